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

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from tests.kit.node_settings import with_settings

from quorumlog.ids import ProducerIdentity
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.simulation.world import SimWorld
from quorumlog.testing.checkers import Place, TransactionHistory, check_transactions

from ...checkers.transaction_logs import TransactionLogs
from ...checkers.violation import Violation
from ...cluster.nodes import ClusterNode
from ...cluster.options import TopicPlan
from ...cluster.scripted import CLIENT, ScriptedCluster, options_of
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
NAME: Final = "scripted"


class ScriptedTransactions:
    """The cluster, and producers of one program."""

    def __init__(self, world: SimWorld, generation: Generation, **settings: int) -> None:
        """Create the cluster; `generation` is the version of all producers."""
        data = TopicPlan(
            name=TOPIC, partitions=2, replication=3, min_isr=2, flush_policy="replicated"
        )
        inner = [
            replace(data, name=name, partitions=1, is_inner=True)
            for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        ]
        options = replace(options_of(data, *inner), has_kafka=True)
        self.stage = ScriptedCluster(world, options)
        chosen = {
            "offsets_topic_num_partitions": 1,
            "transaction_state_log_num_partitions": 1,
            "group_initial_rebalance_delay_ms": 0,
        }
        for node in self.stage.cluster.nodes:
            node.config = with_settings(node.config, **(chosen | settings))
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

        async def run(runtime: Runtime) -> T:
            return await program

        return self.stage.do(run)

    def new_producer(
        self, transactional_id: str = NAME, *, timeout_ms: int = 60_000
    ) -> "ScriptedProducer":
        """Return a producer with an identity, which fences others with its id."""
        self._producers += 1
        made = ScriptedProducer(self, f"p{self._producers}", transactional_id, timeout_ms)
        self.do(made.start())
        return made

    def coordinator(self) -> ClusterNode:
        """Return the coordinator of all transactional ids."""
        topic = self.stage.cluster.newest_image.topic(TRANSACTIONS_TOPIC)
        assert topic is not None, "no transaction was ever begun"
        return self.stage.cluster.node(topic.sorted_partitions()[0][1].leader)

    @property
    def runtime(self) -> Runtime:
        """The runtime of the client machine."""
        assert self._runtime is not None, "start() comes first"
        return self._runtime

    # --- the end -------------------------------------------------------------------------------

    def end(self) -> Findings:
        """End all faults, wait until all is decided, and read everything."""
        reader = ReadingMachine(
            self.runtime, CLIENT, self.bootstrap, [OUT, OTHER], self.observed, self.stage.notes
        )
        self.stage.mend()
        places = [OUT, OTHER]

        def is_decided() -> bool:
            return not self.stage.do(lambda runtime: reader.undecided(runtime, places))

        self.stage.until(is_decided, "every transaction is decided")
        return self.stage.do(lambda runtime: reader.find_all(runtime, places, {}))

    def anomalies(self, found: Findings) -> set[str]:
        """Return the kinds of anomalies of the history and of the logs."""
        history = self.observed.history
        kinds = {str(one.kind) for one in check_transactions(history, found.committed, {})}
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
