"""The transaction coordinator of a broker: serves the transactional ids in the partitions of
`__transaction_state` that it leads."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ....errors import ConcurrentTransactions, InvalidRequest
from ....ids import Epoch
from ....metadata.delta import ImageDelta
from ....runtime.steps import collect
from ...coordinator.shell.coordinator import Coordinator, CoordinatorContext
from ...coordinator.shell.internal_topic import CoordinatorNames, InternalTopicSettings
from ...shell.producer_ids import ProducerIds
from ..config import TRANSACTIONS_TOPIC, TransactionConfig
from ..marker_queue import MarkerQueue
from ..requests import routing_id
from .metrics import TransactionCensus, TransactionMetrics

if TYPE_CHECKING:
    from ...coordinator.shard import CoordinatorRequest
    from ...coordinator.shell.coordinator_shard import CoordinatorDeps
    from ..requests import (
        AddedPartitions,
        AddPartitions,
        ListedTransaction,
        MarkersWritten,
        StageDescription,
    )
    from ..shard import TransactionShard
    from .marker_sender import MarkerSender, WriteHere
    from .transaction_coordinator_shard import TransactionCoordinatorShard

NAMES: Final = CoordinatorNames(
    topic=TRANSACTIONS_TOPIC, entity="transactional id", entities="transactions"
)
ID_LENGTH_MAX: Final = 8_150
"""Maximum length of a transactional id, in characters: at most 32,600 bytes; 32,767 can be
stored."""
WAITS_MAX: Final = 10_000
"""Pending requests of one partition."""
LISTED_A_STEP: Final = 500
"""Transactional ids that are listed between two turns of other tasks."""
MARKERS_MS: Final = 100
"""The time for which the begin of a transaction waits for the markers of the last one."""


class MarkerCompletions:
    """The requests that wait for the markers of a transactional id."""

    def __init__(self) -> None:
        self._watched: dict[str, dict[asyncio.Future[None], None]] = {}

    @contextmanager
    def watch(self, transactional_id: str) -> "Iterator[asyncio.Future[None]]":
        """Yield a future that is done after the next report of markers of the id."""
        watched = self._watched.setdefault(transactional_id, {})
        completed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watched[completed] = None
        try:
            yield completed
        finally:
            del watched[completed]
            if not watched:
                del self._watched[transactional_id]

    def report(self, transactional_id: str) -> None:
        """Complete the futures of an id: markers of it are written."""
        for completed in self._watched.get(transactional_id, ()):
            if not completed.done():
                completed.set_result(None)


class TransactionCoordinator(Coordinator["TransactionCoordinatorShard"]):
    """The transactional ids of this broker. Its keys are transactional ids."""

    def __init__(
        self,
        context: CoordinatorContext,
        config: TransactionConfig,
        *,
        producer_ids: ProducerIds,
        write_here: "WriteHere",
    ) -> None:
        """`write_here` writes markers to partitions that this broker leads."""
        self.figures = TransactionMetrics()
        self._config = config
        self._producer_ids = producer_ids
        self._write_here = write_here
        self._is_stocking = False  # a block of producer ids is being requested
        self._markers = MarkerQueue()
        self._completions = MarkerCompletions()
        self._sender: MarkerSender | None = None  # created with the first shard
        entropy = context.runtime.entropy
        super().__init__(
            context,
            NAMES,
            InternalTopicSettings(
                name=TRANSACTIONS_TOPIC,
                kind=NAMES.entities,
                partitions=config.partitions,
                replicas=config.replicas,
                replicas_setting="transaction.state.log.replication.factor",
            ),
            self.figures,
            new_topic_id=partial(entropy.stream("transactions topic").token, 16),
            waits_max=WAITS_MAX,
        )

    def check_key(self, key: str) -> None:
        """Raise InvalidRequest if a transactional id or a staged name is empty or too long."""
        if not key:
            raise InvalidRequest(
                "the transactional id or staged name is empty; set transactional.id, or the name of"
                " the staged write"
            )
        if len(key) > ID_LENGTH_MAX:
            raise InvalidRequest(
                f"the transactional id or staged name has {len(key)} characters, the limit is"
                f" {ID_LENGTH_MAX}; use a shorter one"
            )

    def _creates_topic(self, request: "CoordinatorRequest[Any]") -> bool:
        from ..requests import BeginAttempt, InitProducerId

        return isinstance(request, InitProducerId | BeginAttempt)

    def partition_of(self, key: str) -> int:
        """Return the partition that stores a transactional id; see `routing_id`."""
        self.check_key(key)
        return super().partition_of(routing_id(key))

    async def add_partitions(
        self, request: "AddPartitions", *, deadline_ms: int
    ) -> "AddedPartitions":
        """Add partitions as `ask` does. If the markers of the last transaction are being written,
        wait for them for a short time: clients wait longer before they retry."""
        clock = self._context.runtime.clock
        until_ms = min(deadline_ms, clock.now_ms() + MARKERS_MS)
        name = request.transactional_id
        while True:
            # Watched before the request: its refusal may arrive after the last marker.
            with self._completions.watch(name) as completed:
                try:
                    return await self.ask(request, deadline_ms=deadline_ms)
                except ConcurrentTransactions:
                    left_ms = until_ms - clock.now_ms()
                    if left_ms <= 0:
                        raise
                try:
                    async with asyncio.timeout(left_ms / 1000):
                        await completed
                except TimeoutError:
                    pass  # the next refusal is the result

    async def listings(self, is_listed: Callable[[str], bool]) -> "list[ListedTransaction]":
        """Return the transactional ids that this broker coordinates and `is_listed` accepts, by
        ascending name. Other tasks run in between. Raises CoordinatorLoading while some of them are
        loading."""
        shards = self.loaded_shards()
        found = await collect(
            (line for shard in shards for line in shard.listings(is_listed)), LISTED_A_STEP
        )
        return sorted(found, key=lambda line: line.transactional_id)

    async def staged_names(self, is_listed: Callable[[str], bool]) -> "list[StageDescription]":
        """Return the names of staged commits, sorted, as `listings` does."""
        shards = self.loaded_shards()
        found = await collect(
            (line for shard in shards for line in shard.staged_names(is_listed)), LISTED_A_STEP
        )
        return sorted(found, key=lambda line: line.name)

    def loaded_shards(self) -> "list[TransactionShard]":
        """Return the state of every partition that this broker serves; raise CoordinatorLoading
        while one is loading."""
        return [shard.loaded_state() for _, shard in sorted(self._shards.items())]

    def apply(self, delta: ImageDelta) -> None:
        """Apply a metadata change; call it after the replicas have applied it."""
        if self._sender is not None:
            self._sender.apply(delta)
        super().apply(delta)

    async def close(self) -> None:
        """End every coordinator shard, and the writing of markers."""
        await super().close()
        if self._sender is not None:
            self._sender.close()

    def census(self) -> TransactionCensus:
        """Count transactional ids, transactions, staged attempts and markers; O(open
        transactions and attempts)."""
        found = TransactionCensus()
        clock = self._context.runtime.clock
        oldest_ms = attempts_oldest_ms = wall_ms = clock.wall_ms()
        for _, shard in sorted(self._shards.items()):
            state = shard.state
            if state is None:
                found.partitions_read += 1
                continue
            found.partitions_served += 1
            found.ids += state.id_count
            found.open += state.open_count
            started_ms = state.oldest_started_ms()
            oldest_ms = oldest_ms if started_ms is None else min(oldest_ms, started_ms)
            staged = state.staged_counts()
            found.staged_names += staged.names
            found.attempts_open += staged.open
            found.attempts_sealed += staged.sealed
            found.attempts_completing += staged.completing
            if staged.oldest_started_ms is not None:
                attempts_oldest_ms = min(attempts_oldest_ms, staged.oldest_started_ms)
        found.oldest_ms = wall_ms - oldest_ms
        found.attempts_oldest_ms = wall_ms - attempts_oldest_ms
        found.markers = self._markers.marker_count()
        found.markers_repeated = self._markers.repeats
        since_ms = self._markers.oldest_since_ms()
        found.markers_oldest_ms = 0 if since_ms is None else clock.now_ms() - since_ms
        return found

    def _new_shard(
        self, deps: "CoordinatorDeps", partition: int, leader_epoch: Epoch
    ) -> "TransactionCoordinatorShard":
        from .transaction_coordinator_shard import TransactionCoordinatorShard

        if self._sender is None:
            self._sender = self._new_sender()
        return TransactionCoordinatorShard(
            deps,
            NAMES,
            partition,
            leader_epoch,
            config=self._config,
            figures=self.figures,
            sender=self._sender,
            draw_producer_id=self._draw_producer_id,
        )

    def _new_sender(self) -> "MarkerSender":
        from ...shell.broker_calls import BrokerCalls
        from .marker_sender import MarkerSender

        context = self._context
        self._markers.image_changed(self.image, ())
        return MarkerSender(
            context.runtime.clock,
            context.scope.spawn,
            self._markers,
            BrokerCalls(context.runtime.network, self._present_image),
            cluster_id=context.directory.meta.cluster_id,
            node_id=self.node_id,
            figures=self.figures,
            write_here=self._write_here,
            report=self._report,
        )

    def _report(self, report: "MarkersWritten") -> None:
        """Have a shard decide a report; raise the error if it does not."""
        self.submit(report, _ignore)
        self._completions.report(report.transactional_id)

    def _draw_producer_id(self) -> int | None:
        """Return a new producer id; None: there is none at hand, and a block is requested."""
        drawn = self._producer_ids.take_now()
        if drawn is None and not self._is_stocking:
            self._is_stocking = True
            self._context.scope.spawn(self._stock(), name="stock producer ids")
        return drawn

    async def _stock(self) -> None:
        try:
            await self._producer_ids.stock()
        finally:
            self._is_stocking = False


def _ignore(outcome: object) -> None:
    """Ignore the reply to a report: if it was not stored, the shard repeats its effect."""
