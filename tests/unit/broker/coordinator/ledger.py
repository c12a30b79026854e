"""A small coordinator for tests: its shard stores texts, producer batches and control batches."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.kit.replica_cluster import Cluster, world

from quorumlog.broker.coordinator.decision import NOTHING, Answered, ShardDecision, Ticket
from quorumlog.broker.coordinator.shard import CoordinatorRequest
from quorumlog.broker.coordinator.shell.coordinator import (
    Coordinator,
    CoordinatorContext,
    CoordinatorMetrics,
)
from quorumlog.broker.coordinator.shell.coordinator_shard import (
    BatchLimits,
    CoordinatorDeps,
    CoordinatorShard,
)
from quorumlog.broker.coordinator.shell.internal_topic import (
    CoordinatorNames,
    InternalTopicSettings,
)
from quorumlog.ids import Epoch, ProducerIdentity
from quorumlog.metadata import ImageDelta
from quorumlog.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from quorumlog.records import Record
from quorumlog.records.control import TransactionMarker
from quorumlog.runtime import Runtime

T = TypeVar("T")

TOPIC = "ledger"
NAMES = CoordinatorNames(topic=TOPIC, entity="entry", entities="entries")
SETTINGS = InternalTopicSettings(
    name=TOPIC, kind="entries", partitions=1, replicas=0, replicas_setting="ledger.replicas"
)


@dataclass(frozen=True, kw_only=True)
class Put(CoordinatorRequest[int]):
    """Store texts. The response is the number of texts so far."""

    texts: tuple[str, ...] = ()
    effect: str | None = None
    producer: ProducerIdentity | None = None
    marker: TransactionMarker | None = None

    @property
    def key(self) -> str:
        return "one"


class LedgerShard:
    """A pure shard: the stored texts with their producers, and the control batches."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, ProducerIdentity | None] | TransactionMarker] = []

    def handle(
        self, ticket: Ticket, request: Put, image: MetadataImage, now_ms: int
    ) -> ShardDecision[str]:
        self.entries += [(text, request.producer) for text in request.texts]
        if request.marker is not None:
            self.entries.append(request.marker)
        return ShardDecision(
            request.texts,
            (Answered(ticket, len(self.entries)),),
            () if request.effect is None else (request.effect,),
            request.producer,
            request.marker,
        )

    def deadline_ms(self) -> int | None:
        return None

    def expire(self, now_ms: int, image: MetadataImage) -> ShardDecision[str]:
        return NOTHING

    def restart_sessions(self, now_ms: int) -> None:
        pass

    def image_changed(
        self, image: MetadataImage, now_ms: int, *, deleted: Iterable[TopicImage] = ()
    ) -> ShardDecision[str]:
        return NOTHING

    def replay(self, record: str, producer: ProducerIdentity | None = None) -> None:
        self.entries.append((record, producer))

    def replay_marker(self, marker: TransactionMarker) -> None:
        self.entries.append(marker)

    def loaded(self, image: MetadataImage, now_ms: int) -> ShardDecision[str]:
        return ShardDecision(effects=(f"loaded {len(self.entries)}",))


class LedgerCoordinatorShard(CoordinatorShard[LedgerShard]):
    """A shard that appends its effects to `started`; the effect `broken` raises the first time."""

    started: list[str]

    def _new_state(self, limits: BatchLimits) -> LedgerShard:
        return LedgerShard()

    def _encode(self, record: str) -> tuple[bytes, bytes | None]:
        return record.encode(), b"stored"

    def _decode(self, record: Record) -> str:
        assert record.key is not None
        return record.key.decode()

    def _check_request(self, request: Any) -> None:
        pass

    def _is_read_only(self, request: Any) -> bool:
        return False

    def _log_loaded(self, state: LedgerShard, records: int, took_ms: int) -> None:
        pass

    def _start(self, effect: str) -> None:
        self.started.append(effect)
        if effect == "broken" and self.started.count(effect) == 1:
            raise RuntimeError("broken effect")


class LedgerCoordinator(Coordinator[LedgerCoordinatorShard]):
    """The ledger coordinator of one broker."""

    def __init__(self, context: CoordinatorContext) -> None:
        self.figures = CoordinatorMetrics()
        self.started: list[str] = []
        super().__init__(
            context,
            NAMES,
            SETTINGS,
            self.figures,
            new_topic_id=lambda: bytes(16),
            waits_max=1_000,
        )

    def check_key(self, key: str) -> None:
        assert key

    def _new_shard(
        self, deps: CoordinatorDeps, partition: int, leader_epoch: Epoch
    ) -> LedgerCoordinatorShard:
        shard = LedgerCoordinatorShard(deps, NAMES, partition, leader_epoch)
        shard.started = self.started
        return shard

    def entries(self) -> list[Any] | None:
        """Return the texts of the partition, or None if this broker does not coordinate it."""
        shard = self._shards.get(0)
        return None if shard is None or shard.state is None else shard.state.entries


@dataclass
class Ledgers:
    """Nodes with a ledger coordinator each."""

    nodes: Cluster
    coordinators: dict[int, LedgerCoordinator]

    def open(self, *numbers: int) -> None:
        """Start a coordinator on each node, beside its group coordinator."""
        for number in numbers:

            async def main(runtime: Runtime, number: int = number) -> None:
                parts = self.nodes.nodes[number].parts
                assert parts.directory is not None
                assert parts.replicas is not None
                assert parts.publisher is not None
                async with runtime.tasks.scope("ledger") as scope:
                    ledger = self.coordinators[number] = LedgerCoordinator(
                        CoordinatorContext(
                            runtime=runtime,
                            scope=scope,
                            directory=parts.directory,
                            node_id=parts.directory.meta.node_id,
                            replica_of=parts.replicas.hosted.replica_of,
                            may_be_replaced=parts.replicas.may_be_replaced,
                            formed_for=lambda: 1,
                        )
                    )
                    parts.publisher.subscribe(ledger.apply)
                    ledger.apply(
                        ImageDelta(
                            before=EMPTY_IMAGE,
                            after=parts.publisher.image,
                            touched_topics=(),
                            touched_partitions=(),
                            touched_brokers=(),
                        )
                    )
                    await asyncio.Event().wait()

            self.nodes.machine(number).attach(main, name="ledger")
            self.nodes.until(lambda number=number: number in self.coordinators)  # type: ignore[misc]

    def coordinator(self) -> int:
        """Return the node that coordinates; 0: none."""
        for number, ledger in self.coordinators.items():
            if number in self.nodes.nodes and ledger.entries() is not None:
                return number
        return 0

    def put(self, number: int, request: Put) -> "asyncio.Task[int]":
        async def main(runtime: Runtime) -> int:
            deadline_ms = runtime.clock.now_ms() + 60_000
            return await self.coordinators[number].ask(request, deadline_ms=deadline_ms)

        return self.nodes.machine(number).attach(main, name="put")

    def on(self, number: int, work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        task = self.nodes.machine(number).attach(work, name="test")
        self.nodes.world.run_until(task, virtual_ms=60_000)
        found: T = task.result()
        return found


@contextmanager
def ledgers(*numbers: int) -> Iterator[Ledgers]:
    """Started nodes with a ledger coordinator each, and their topic."""
    with world(1) as simulated:
        nodes = Cluster(simulated, numbers)
        nodes.start()
        opened = Ledgers(nodes, {})
        opened.open(*numbers)
        nodes.run(lambda log: log.admin.create_topic(TOPIC, partitions=1))
        nodes.until(lambda: opened.coordinator() != 0)
        yield opened
