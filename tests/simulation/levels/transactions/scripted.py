"""A transactional producer controlled by a scripted scenario, on a scripted cluster.

```python
with SimWorld(1) as world:
    stage = ScriptedTransactions(world, Generation.OLD)
    stage.start()
    stage.do(stage.write({OUT: b"a"}))
    stage.do(stage.producer.commit())
    stage.end()
    assert stage.anomalies() == set()
```
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from tests.kit.node_settings import with_settings

from quorumlog.broker.coordinator.key_hash import partition_of
from quorumlog.ids import ProducerIdentity
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.simulation.links import LinkEnd
from quorumlog.simulation.world import SimWorld
from quorumlog.testing.checkers import Place, TransactionHistory

from ...checkers.transaction_logs import TransactionLogs
from ...checkers.transaction_relations import judged
from ...checkers.violation import Violation
from ...cluster.nodes import ClusterNode
from ...cluster.options import TopicPlan
from ...cluster.scripted import CLIENT, ScriptedCluster, options_of
from ...faults.call_delays import CallDelays
from ..kafka.client import KafkaClient
from .calls import Generation, TransactionCalls
from .clients import Findings, ReadingMachine
from .plan import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from .producer import Observations, TransactionalProducer

T = TypeVar("T")

TOPIC: Final = "t"
OUT: Final[Place] = (TOPIC, 0)
OTHER: Final[Place] = (TOPIC, 1)
TIMEOUT_MS: Final = 3_000
DECIDED_MS: Final = 30_000  # bound for every transaction to be decided after the faults
NAME: Final = "scripted"


class ScriptedTransactions:
    """The cluster, and producers of one program."""

    def __init__(
        self,
        world: SimWorld,
        generation: Generation,
        *,
        copies: int = 3,
        coordinators: int = 1,
        coordinator_copies: int = 3,
    ) -> None:
        """Create the cluster; `generation` is the version of all producers. `copies` are replicas
        of data; `coordinators` are partitions of `__transaction_state`, and `coordinator_copies`
        their replicas."""
        data = TopicPlan(
            name=TOPIC,
            partitions=2,
            replication=copies,
            min_isr=min(2, copies),
            flush_policy="replicated" if copies > 1 else "fsync",
        )
        inner = [
            replace(data, name=name, partitions=1, flush_policy="replicated", is_inner=True)
            for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        ]
        options = replace(options_of(data, *inner), has_kafka=True)
        self.stage = ScriptedCluster(world, options)
        chosen = {
            "offsets_topic_num_partitions": 1,
            "transaction_state_log_num_partitions": coordinators,
            "transaction_state_log_replication_factor": coordinator_copies,
            "group_initial_rebalance_delay_ms": 0,
        }
        for node in self.stage.cluster.nodes:
            node.config = with_settings(node.config, **chosen)
        self.delays_ms: dict[tuple[str, bool], int] = {}
        """Delays of calls between machines: by path, True for the answer."""
        self.delayed: ClusterNode | None = None  # the only node that sends late; None: all do
        world.fabric.delay_ns = CallDelays(self._delay_ms).delay_ns
        notes = self.stage.notes
        self.observed = Observations(
            now_ns=lambda: world.loop.now_ns,
            history=TransactionHistory(records=notes.history),
            next_value=notes.next_value,
        )
        self.generation = generation
        self.bootstrap = self.stage.cluster.kafka_bootstrap.split(",")
        self._runtime: Runtime | None = None
        self._producers = 0

    # --- actions -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the cluster."""
        self.stage.start()

        async def keep(runtime: Runtime) -> None:
            self._runtime = runtime

        self.stage.do(keep)

    def do(self, program: Coroutine[Any, Any, T]) -> T:
        """Run a program on the client machine and return its result."""
        task = self.begin(program)
        self.stage.until(task.done, "the program has ended")
        return task.result()

    def begin(self, program: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a program on the client machine."""

        async def run(runtime: Runtime) -> T:
            return await program

        return self.stage.begin(run)

    def new_producer(
        self, transactional_id: str = NAME, *, timeout_ms: int = 60_000
    ) -> "ScriptedProducer":
        """Return a producer with an identity, which fences others with its id."""
        self._producers += 1
        made = ScriptedProducer(self, f"p{self._producers}", transactional_id, timeout_ms)
        self.do(made.start())
        return made

    def coordinator(self, transactional_id: str = NAME) -> ClusterNode:
        """Return the coordinator of a transactional id."""
        topic = self.stage.cluster.newest_image.topic(TRANSACTIONS_TOPIC)
        assert topic is not None, "no transaction was ever begun"
        index = partition_of(transactional_id, len(topic.partitions))
        return self.stage.leader((TRANSACTIONS_TOPIC, index))

    def id_at(self, is_suitable: Callable[[ClusterNode], bool]) -> str:
        """Return a transactional id with a suitable coordinator; needs a coordinator on every
        node."""
        self.new_producer()  # creates the topic
        names = (f"{NAME}-{number}" for number in range(100))
        return next(name for name in names if is_suitable(self.coordinator(name)))

    def wait_complete(self) -> None:
        """Wait until the coordinator has completed every transaction."""
        reader = self.reader()
        self.stage.until(
            lambda: not self.stage.do(lambda runtime: reader.undecided(runtime, [])),
            "every transaction is complete",
        )

    @property
    def runtime(self) -> Runtime:
        """The runtime of the client machine."""
        assert self._runtime is not None, "start() comes first"
        return self._runtime

    # --- the end -------------------------------------------------------------------------------

    def end(self) -> Findings:
        """End all faults, wait until all is decided, and read everything."""
        reader = self.reader()
        self.stage.mend()
        self.delays_ms.clear()
        places, end_ms = [OUT, OTHER], self.stage.world.now_ms() + DECIDED_MS
        inner = [(OFFSETS_TOPIC, 0)] if self.stage.state((OFFSETS_TOPIC, 0)) else []
        while left := self.stage.do(lambda runtime: reader.undecided(runtime, places + inner)):
            if self.stage.world.now_ms() >= end_ms:
                raise Violation("Hanging", f"undecided after {DECIDED_MS} ms: {left}")
            self.stage.run(500)
        return self.stage.do(lambda runtime: reader.find_all(runtime, places, {}))

    def _delay_ms(self, sender: LinkEnd, path: str, is_answer: bool) -> int:
        if self.delayed is not None and sender.process.machine.name != self.delayed.name:
            return 0
        return self.delays_ms.get((path, is_answer), 0)

    def reader(self) -> ReadingMachine:
        """Return the client that reads."""
        return ReadingMachine(
            self.runtime, CLIENT, self.bootstrap, [OUT, OTHER], self.observed, self.stage.notes
        )

    def anomalies(self, found: Findings) -> set[str]:
        """Return the kinds of anomalies of the history and of the logs."""
        history = self.observed.history
        kinds = {str(one.kind) for one in judged(history, found.committed, {})}
        generations = self.observed.generations.items()
        epoch_each = {one for one, generation in generations if generation is Generation.NEW}
        try:
            TransactionLogs(history, epoch_each).check(found.logs)
        except Violation as violation:
            kinds.add(violation.invariant)
        return kinds


class ScriptedProducer:
    """A transactional producer of a scenario, with its own connections."""

    def __init__(
        self, stage: ScriptedTransactions, name: str, transactional_id: str, timeout_ms: int
    ) -> None:
        client = KafkaClient(
            stage.runtime, stage.bootstrap, name=name, timeout_ms=TIMEOUT_MS, codec=Codec.NONE
        )
        self.transactional_id = transactional_id
        self.calls = TransactionCalls(
            stage.runtime, client, name, stage.generation, timeout_ms=TIMEOUT_MS
        )
        self.producer = TransactionalProducer(
            self.calls,
            stage.observed,
            stage.runtime.clock,
            name=name,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            delivery_timeout_ms=20_000,
            topics=[TOPIC],
        )
        self._client = client

    @property
    def identity(self) -> ProducerIdentity:
        """The producer's identity."""
        return self.producer.identity

    async def start(self) -> None:
        """Find the brokers, and get an identity."""
        await self._client.look([TOPIC])
        await self.producer.init()

    async def write(self, values: dict[Place, bytes]) -> None:
        """Write a record to each partition, in the open transaction or a new one."""
        if self.producer.transaction is None:
            self.producer.begin()
        for place, value in values.items():
            await self.producer.send(place, [(None, value)])

    async def end_late(self, identity: ProducerIdentity, *, is_commit: bool) -> int:
        """Send the end of an earlier transaction, as if it had been delayed; return the code."""
        code, _ = await self.calls.end(self.transactional_id, identity, is_commit=is_commit)
        return code
