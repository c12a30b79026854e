"""Named scenarios of our Python client: a group consumer with a transactional producer, and jobs
with staged commits. Each input record must have exactly one committed result.

A scenario raises AssertionError, Violation or NotReached if a rule is broken; the hunt for planted
bugs plays some of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tests.kit.node_settings import with_settings

from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.groups.group_consumer import AsyncGroupConsumer, Offsets
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.transactional_producer import AsyncTransactionalProducer
from quorumlog.clients.staged_commits import CommittedWrite
from quorumlog.errors import CommittedBatchDiffers, OutcomeUnknown, TransactionAbortable
from quorumlog.services import STAGED_COMMITS_COMMIT
from quorumlog.simulation.links import between
from quorumlog.simulation.world import SimWorld
from quorumlog.testing.checkers import Place, Transaction, TransactionOutcome

from ...checkers.violation import Violation
from ...cluster.scripted import CLIENT
from .calls import Generation
from .clients import Findings
from .faults import VERIFY
from .plan import OFFSETS_TOPIC
from .scripted import OUT, ScriptedTransactions

INPUT: Final = "in"
GROUP: Final = "processors"
JOB: Final = "daily"
SESSION_MS: Final = 2_000
HEARTBEAT_MS: Final = 200
VERIFY_MS: Final = 2_500  # of a verification: within its time limit, and longer than a session
IDLE_MS: Final = 3_000  # without a record: all input is processed
COMMIT_MS: Final = 3_000
LATE_MS: Final = 8_000  # of a response that comes after the time limit of the commit


class ClientScene:
    """A scripted cluster with a coordinator of transactions on each node, and the client."""

    def __init__(self, world: SimWorld) -> None:
        self.stage = ScriptedTransactions(world, Generation.NEW, coordinators=3)
        for node in self.stage.stage.cluster.nodes:
            node.config = with_settings(
                node.config,
                group_consumer_session_timeout_ms=SESSION_MS,
                group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
            )
        self._names = 0

    @property
    def log(self) -> AsyncLog:
        """The client."""
        return self.stage.stage.client()

    def begin(self) -> Transaction:
        """Record the begin of a transaction."""
        self._names += 1
        observed = self.stage.observed
        return observed.history.begin(f"t{self._names}", "client", at=observed.now_ns())

    def send(self, transaction: Transaction, place: Place, value: bytes) -> None:
        """Record that a transaction sends a value."""
        observed = self.stage.observed
        observed.history.send(transaction, place, value, at=observed.now_ns())

    def request_commit(self, transaction: Transaction) -> None:
        """Record that a commit is requested."""
        observed = self.stage.observed
        observed.history.request_commit(transaction, at=observed.now_ns())

    def end(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        """Record the end of a transaction."""
        observed = self.stage.observed
        observed.history.end(transaction, outcome, at=observed.now_ns())

    def lose_responses(self, condition: Callable[[], bool], why: str) -> None:
        """Hold everything that the brokers send to the client until the condition holds."""
        stage = self.stage.stage
        directions = between([node.name for node in stage.cluster.nodes], [CLIENT])
        stage.world.fabric.barriers.close(directions)
        stage.until(condition, why)
        stage.world.fabric.barriers.open(directions)

    def find_all(self) -> Findings:
        """End all faults; every transaction must be decided without an anomaly."""
        found = self.stage.end()
        anomalies = self.stage.anomalies(found)
        if anomalies:
            raise Violation(min(anomalies), f"anomalies: {sorted(anomalies)}")
        return found


@contextmanager
def scene() -> Iterator[ClientScene]:
    """Yield a started scene."""
    with SimWorld(1) as world:
        made = ClientScene(world)
        made.stage.start()
        yield made


# --- group consumers -----------------------------------------------------------------------------


class ScriptedProcessor:
    """A member of a group that processes the input, one transaction at a time."""

    def __init__(
        self,
        scene: ClientScene,
        producer: AsyncTransactionalProducer,
        consumer: AsyncGroupConsumer,
    ) -> None:
        self.consumer = consumer
        self._scene = scene
        self._producer = producer
        self._transaction: Transaction | None = None

    @classmethod
    async def start(cls, scene: ClientScene, transactional_id: str) -> "ScriptedProcessor":
        """Get an identity and join the group."""
        producer = scene.log.producer(transactional_id=transactional_id, linger_ms=0)
        consumer = scene.log.group_consumer(GROUP, INPUT, start="earliest", auto_commit=False)
        return cls(scene, await producer.__aenter__(), await consumer.__aenter__())

    def is_assigned(self) -> bool:
        """Return True if the member owns the input, and has its position."""
        return bool(self.consumer.positions())

    async def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Begin a transaction with a result of each record."""
        await self._producer.begin_transaction()
        self._transaction = self._scene.begin()
        for record in records:
            value = (record.value or b"") + b" by " + self._transaction.name.encode()
            self._scene.send(self._transaction, OUT, value)
            await self._producer.send_and_wait(OUT[0], value, partition=OUT[1])

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit results and offsets; if that is refused, abort and read the records again."""
        assert self._transaction is not None, "a transaction is open"
        try:
            await self._producer.send_offsets(self.consumer, offsets)
            self._scene.request_commit(self._transaction)
            await self._producer.commit_transaction()
        except TransactionAbortable:
            await self._producer.abort_transaction()
            await self.consumer.seek_to_committed()
            self._scene.end(self._transaction, TransactionOutcome.ABORTED)
        else:
            self._scene.end(self._transaction, TransactionOutcome.COMMITTED)

    async def finish(self) -> None:
        """Process the rest of the input, and leave the group."""
        while records := await self.consumer.poll(timeout_ms=IDLE_MS):
            await self.write(records)
            await self.commit()
        await self.consumer.close(commit=False)
        await self._producer.close()


class ProcessorScene:
    """A scene with one processor and its input."""

    def __init__(self, scene: ClientScene, *values: bytes) -> None:
        self.scene, self.stage = scene, scene.stage
        self._values = values
        offsets = (OFFSETS_TOPIC, 0)
        self.stage.do(self._create_input())  # the group creates its topic
        found = self.stage.id_at(lambda node: node is not self.stage.stage.leader(offsets))
        self.processor = self.stage.do(ScriptedProcessor.start(scene, found))

    async def _create_input(self) -> None:
        log = self.scene.log
        await log.admin.create_topic(INPUT, partitions=1, replication=3)
        async with log.producer() as producer:
            await producer.send_many(INPUT, self._values)
        async with log.group_consumer(GROUP, INPUT, auto_commit=False):
            pass

    def poll(self) -> list[ConsumerRecord]:
        """Return all input records."""
        records = self.stage.do(self.processor.consumer.poll(timeout_ms=IDLE_MS))
        assert len(records) == len(self._values), records
        return records

    def lose_and_join_again(self) -> None:
        """Let the member give up its partitions without responses, and join again: the coordinator
        received its heartbeats, and did not remove it."""
        consumer = self.processor.consumer
        self.scene.lose_responses(lambda: not consumer.positions(), "the member loses its session")
        self.stage.stage.until(self.processor.is_assigned, "the member has joined again")

    def end(self) -> None:
        """Process the rest; each record must have exactly one committed result."""
        self.stage.delays_ms.clear()
        self.stage.do(self.processor.finish())
        found = self.scene.find_all()
        counts = Counter(value.partition(b" by ")[0] for _, value in found.committed[OUT])
        if counts != Counter(self._values):
            raise Violation("ProcessedTwice", f"committed results by input: {dict(counts)}")


def offsets_of_a_former_assignment() -> None:
    """The offsets of a transaction are stored after their member has joined again and has fetched
    the offsets before them: the records come again, and the transaction must not commit."""
    with scene() as made:
        processing = ProcessorScene(made, b"a", b"b")
        records = processing.poll()
        made.stage.do(processing.processor.write(records))
        made.stage.delays_ms[VERIFY, False] = VERIFY_MS
        committing = made.stage.begin(processing.processor.commit())
        made.stage.stage.run(HEARTBEAT_MS)
        processing.lose_and_join_again()
        if committing.done():
            raise Violation("Scenario", "the offsets were stored before the member joined again")
        made.stage.stage.until(committing.done, "the transaction has ended")
        committing.result()
        processing.end()


def records_of_a_former_assignment() -> None:
    """Two records of one poll are committed in two transactions. The partition is lost in between,
    and assigned again from the second record on, which comes again."""
    with scene() as made:
        processing = ProcessorScene(made, b"a", b"b")
        first, second = processing.poll()
        made.stage.do(processing.processor.write([first]))
        made.stage.do(processing.processor.commit({(INPUT, 0): first.offset + 1}))
        processing.lose_and_join_again()
        made.stage.do(processing.processor.write([second]))
        made.stage.do(processing.processor.commit({(INPUT, 0): second.offset + 1}))
        processing.end()


# --- staged commits ------------------------------------------------------------------------------


def repeated_job_with_another_input() -> None:
    """A job is run again because its commit had no answer: it writes nothing. Run with another
    input, it must not take the committed batch for its own."""
    with scene() as made:
        job = ScriptedJob(made)
        made.stage.delays_ms[STAGED_COMMITS_COMMIT.path, True] = LATE_MS
        try:
            made.stage.do(job.run([b"a", b"b"], [b"c"], is_first=True))
        except OutcomeUnknown:
            made.stage.delays_ms.clear()
        else:
            raise Violation("NotLost", "a commit without a response has succeeded")
        again = made.stage.do(job.run([b"a"], [b"b", b"c"]))
        if again is None or again.is_mine or again.count != 3:
            raise Violation("WrongBatch", f"the repeated job got {again}")
        try:
            other = made.stage.do(job.run([b"a"], [b"b"]))
        except CommittedBatchDiffers:
            pass
        else:
            raise Violation("NotCompared", f"a job with another input got {other}")
        values = sorted(value for _, value in made.find_all().committed[OUT])
        if values != [b"a", b"b", b"c"]:
            raise Violation("WrongRecords", f"{values} are committed")


class ScriptedJob:
    """A job that writes one batch, with all its tasks in one process."""

    def __init__(self, scene: ClientScene) -> None:
        self._scene = scene

    async def run(self, *tasks: Sequence[bytes], is_first: bool = False) -> CommittedWrite | None:
        """Run the tasks and commit; only the first run stores its records."""
        log = self._scene.log
        write = await log.open_write(JOB, 0)
        results = []
        transaction = self._scene.begin() if is_first else None
        for task, values in enumerate(tasks):
            async with log.staged_producer(write, task, linger_ms=0) as producer:
                for value in values:
                    if transaction is not None:
                        self._scene.send(transaction, OUT, value)
                    await producer.send(OUT[0], value, partition=OUT[1])
                results.append(await producer.seal())
        if transaction is not None:
            self._scene.request_commit(transaction)
        return await log.commit_write(write, results, timeout_ms=COMMIT_MS)


CLIENT_SCENARIOS: Final[Mapping[str, Callable[[], Any]]] = {
    one.__name__: one
    for one in (
        offsets_of_a_former_assignment,
        records_of_a_former_assignment,
        repeated_job_with_another_input,
    )
}
