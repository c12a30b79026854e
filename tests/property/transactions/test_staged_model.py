"""Staged commits with drivers, tasks and coordinators that fail at any step, with the property of
the sink: each number is decided once, its records are those of one write and of one attempt of each
task, and no other record becomes visible.

The log of a partition is a list for each attempt: appended records, then the markers. A new
coordinator loads the prefix of the log that was committed, compacted or not.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.broker.transactions.shard_play import image_of

from quorumlog.broker.coordinator.decision import Answered, Failed, Reply, Ticket
from quorumlog.broker.transactions.config import TransactionConfig
from quorumlog.broker.transactions.formats import Encoded, decode, encode
from quorumlog.broker.transactions.records import StagedName
from quorumlog.broker.transactions.requests import (
    AbortStage,
    AddPartitions,
    BeginAttempt,
    CommitStage,
    CommittedAttempt,
    CommittedBatch,
    KeepAttemptAlive,
    MarkersWritten,
    SealAttempt,
    SealedPartition,
    TransactionRequest,
    VerifyPartitions,
    WriteMarkers,
)
from quorumlog.broker.transactions.shard import TransactionShard
from quorumlog.broker.transactions.transaction import TransactionDecision
from quorumlog.ids import ProducerIdentity, TopicId
from quorumlog.staged_names import OPEN_TIMEOUT_MS

NAME = "spark/query/"
CONFIG = TransactionConfig(staged_attempts_max=6)
PARTITIONS = (("a", 0), ("a", 1))
STAGE_MS = 2 * OPEN_TIMEOUT_MS
IMAGE = image_of({"a": TopicId(b"a" * 16)})


@dataclass(eq=False)
class Task:
    """A task attempt in the view of its executor."""

    number: int
    write: int
    task: int
    attempt: int
    producer: ProducerIdentity
    written: dict[tuple[str, int], int] = field(default_factory=dict)  # records by partition
    is_sealed: bool = False


@dataclass
class PartitionLog:
    """One partition: the epoch of each producer, and its open transaction."""

    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, Task] = field(default_factory=dict)
    open_count: dict[int, int] = field(default_factory=dict)
    visible: list[tuple[Task, int]] = field(default_factory=list)
    aborted: list[Task] = field(default_factory=list)

    def append(self, task: Task) -> bool:
        producer_id, epoch = task.producer
        if epoch < self.epochs.get(producer_id, -1):
            return False
        self.epochs[producer_id] = epoch
        assert self.open.setdefault(producer_id, task) is task, "two attempts in one transaction"
        self.open_count[producer_id] = self.open_count.get(producer_id, 0) + 1
        return True

    def mark(self, producer: ProducerIdentity, is_commit: bool) -> None:
        """Rule 4 of the markers of transaction.version 2."""
        producer_id, epoch = producer
        known = self.epochs.get(producer_id, -1)
        if epoch <= known:  # a repeat, or rejected: a later transaction is open
            return
        self.epochs[producer_id] = epoch
        task = self.open.pop(producer_id, None)
        if task is None:
            return
        count = self.open_count.pop(producer_id)
        if is_commit:
            self.visible.append((task, count))
        else:
            self.aborted.append(task)


@dataclass
class StoredDecision:
    """One decision of the log."""

    records: list[Encoded]
    effects: tuple[WriteMarkers, ...]
    replies: tuple[Reply, ...]
    decides: tuple[int, int, frozenset[int]] | None = None  # number, write, attempts


class StagedWorld(RuleBasedStateMachine):
    """One name, its drivers (writes), their tasks, two partitions and a coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.next_id = 100
        self.next_write = 0
        self.next_attempt = 0
        self.now_ms = 1_000_000
        self.tickets = 0
        self.requests: dict[Ticket, TransactionRequest[Any]] = {}
        self.steps: list[StoredDecision] = []
        self.released = 0  # committed decisions, with their replies and effects
        self.logs = {part: PartitionLog() for part in PARTITIONS}
        self.effects: list[WriteMarkers] = []
        self.late: list[WriteMarkers] = []  # of earlier coordinators
        self.tasks: list[Task] = []
        self.writes: list[tuple[int, int]] = []  # number and write id of each driver
        self.committed: dict[int, tuple[int, frozenset[int]]] = {}  # write and attempts by number
        self.shard = TransactionShard(CONFIG, self.draw)
        self.shard.loaded(IMAGE, self.now_ms)

    def draw(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    # --- the coordinator --------------------------------------------------------------------------

    def take(self, decision: TransactionDecision) -> None:
        records = [encode(record) for record in decision.records]
        self.steps.append(StoredDecision(records, decision.effects, decision.replies))

    def ask(self, request: TransactionRequest[Any], *, is_stored: bool = True) -> Any:
        """Return the outcome; None for an error and for a lost response: its caller crashed, and
        the records may be lost with the coordinator."""
        self.tickets += 1
        ticket = Ticket(self.tickets)
        self.requests[ticket] = request
        decision = self.shard.handle(ticket, request, IMAGE, self.now_ms)
        self.take(decision)
        if not is_stored:
            return None
        self.release()
        for reply in decision.replies:
            if reply.ticket == ticket and isinstance(reply, Answered):
                return reply.outcome
        return None

    def release(self) -> None:
        """Commit all decisions: deliver effects and replies."""
        for step in self.steps[self.released :]:
            self.effects += step.effects
            self.decided(step)
            for reply in step.replies:
                self.answered(reply)
        self.released = len(self.steps)

    def decided(self, step: StoredDecision) -> None:
        if step.decides is not None:
            number, write, attempts = step.decides
            assert number not in self.committed, "a number is decided twice"
            self.committed[number] = (write, attempts)

    def answered(self, reply: Reply) -> None:
        request = self.requests.pop(reply.ticket)
        if isinstance(reply, Failed):
            return
        if isinstance(request, AbortStage) and reply.outcome is None:
            assert request.number not in self.committed, "an abort of a committed number"
        if not isinstance(reply.outcome, CommittedBatch):
            return
        batch = reply.outcome
        if isinstance(request, CommitStage | BeginAttempt | AbortStage):
            assert batch.number == request.number, (batch, request)
        known = self.committed.get(batch.number)
        assert known is not None, "a number without a commit"
        assert batch.write_id == known[0], (batch, known)
        if batch.is_visible:
            visible = {task for log in self.logs.values() for task, _ in log.visible}
            seen = frozenset(task.attempt for task in visible if task.number == batch.number)
            assert seen == known[1], (batch, known, seen)

    @rule(lost=st.integers(0, 2), is_compacted=st.booleans())
    def crash(self, lost: int, is_compacted: bool) -> None:
        """Elect a new leader. Only decisions that were not released may be lost."""
        del self.steps[max(self.released, len(self.steps) - lost) :]
        for step in self.steps[self.released :]:
            self.decided(step)
        records = [encoded for step in self.steps for encoded in step.records]
        if is_compacted:
            newest = dict(records)
            places = {key: place for place, (key, _) in enumerate(records)}
            records = [(key, newest[key]) for key in sorted(places, key=places.__getitem__)]
        self.shard = TransactionShard(CONFIG, self.draw)
        for key, value in records:
            record = decode(key, value)
            assert record is not None
            self.shard.replay(record)
        self.requests.clear()
        self.late += self.effects
        self.effects.clear()
        self.released = len(self.steps)
        self.take(self.shard.loaded(IMAGE, self.now_ms))
        self.release()

    # --- drivers and tasks ------------------------------------------------------------------------

    @rule(choice=st.integers(0, 3))
    def plan(self, choice: int) -> None:
        """A driver plans the next number, or an earlier one after a restart."""
        newest = max(self.committed, default=-1)
        self.next_write += 1
        self.writes.append((max(0, newest + (0 if choice == 3 else 1)), self.next_write))

    @rule(choice=st.integers(0, 9), task=st.integers(0, 1), is_stored=st.booleans())
    def begin(self, choice: int, task: int, is_stored: bool) -> None:
        if not self.writes:
            return
        number, write = self.writes[-1 if choice < 7 else -1 - choice % len(self.writes)]
        self.next_attempt += 1
        found = self.ask(
            BeginAttempt(
                transactional_id=NAME,
                number=number,
                write_id=write,
                task=task,
                attempt=self.next_attempt,
                timeout_ms=STAGE_MS,
            ),
            is_stored=is_stored,
        )
        if isinstance(found, ProducerIdentity):
            self.tasks.append(Task(number, write, task, self.next_attempt, found))

    def some_task(self, choice: int) -> Task | None:
        if not self.tasks:
            return None
        return self.tasks[-1 - choice % min(len(self.tasks), 6)]

    @rule(choice=st.integers(0, 20), part=st.sampled_from(PARTITIONS), adds=st.booleans())
    def write(self, choice: int, part: tuple[str, int], adds: bool) -> None:
        """Append one record as the partition's leader permits: after verification unless the
        transaction is open there."""
        task = self.some_task(choice)
        if task is None:
            return
        log = self.logs[part]
        is_open = log.open.get(task.producer.producer_id) is task
        if not is_open:
            if adds:
                self.ask(
                    AddPartitions(transactional_id=NAME, producer=task.producer, partitions=(part,))
                )
            verified = self.ask(
                VerifyPartitions(transactional_id=NAME, producer=task.producer, partitions=(part,))
            )
            if verified is None or verified.errors != (None,):
                return
        if log.append(task):
            task.written[part] = task.written.get(part, 0) + 1

    @rule(choice=st.integers(0, 20))
    def seal(self, choice: int) -> None:
        """Seal the attempt of a task: no record is written afterwards."""
        task = self.some_task(choice)
        if task is None:
            return
        self.ask(
            SealAttempt(
                transactional_id=NAME,
                producer=task.producer,
                partitions=tuple(
                    SealedPartition(
                        topic=topic, partition=index, count=count, last_sequence=count - 1
                    )
                    for (topic, index), count in task.written.items()
                ),
            )
        )
        task.is_sealed = True
        self.tasks.remove(task)
        self.tasks.insert(0, task)

    @rule(task=st.integers(0, 1), parts=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def run(self, task: int, parts: set[tuple[str, int]]) -> None:
        """A task of the newest driver, from its begin to its seal."""
        if not self.writes:
            self.plan(0)
        size = len(self.tasks)
        self.begin(0, task, True)
        if len(self.tasks) > size:
            for part in sorted(parts):
                self.write(0, part, True)
            self.seal(0)

    @rule()
    def finish(self) -> None:
        """The newest driver commits its sealed attempts."""
        self.commit(0, True, False, True)

    @rule(choice=st.integers(0, 20))
    def keep_alive(self, choice: int) -> None:
        task = self.some_task(choice)
        if task is not None:
            self.ask(KeepAttemptAlive(transactional_id=NAME, producer=task.producer))

    @rule(
        choice=st.integers(0, 9),
        both=st.booleans(),
        is_careless=st.booleans(),
        is_stored=st.booleans(),
    )
    def commit(self, choice: int, both: bool, is_careless: bool, is_stored: bool) -> None:
        """A driver commits with sealed attempts of its tasks; an incorrect one with open ones."""
        if not self.writes:
            return
        number, write = self.writes[-1 if choice < 7 else -1 - choice % len(self.writes)]
        winners: dict[int, Task] = {}
        for task in self.tasks:
            if (task.number, task.write) == (number, write) and (task.is_sealed or is_careless):
                winners[task.task] = task
        if not both and len(winners) > 1:
            del winners[1]
        self.ask(
            CommitStage(
                transactional_id=NAME,
                number=number,
                write_id=write,
                attempts=tuple(
                    CommittedAttempt(task=each.task, producer=each.producer)
                    for each in winners.values()
                ),
            ),
            is_stored=False,
        )
        step = self.steps[-1]
        for key, value in step.records:
            record = decode(key, value)
            if isinstance(record, StagedName) and record.committed_write_id == write:
                assert all(each.is_sealed for each in winners.values()), "an open attempt commits"
                attempts = {each.attempt for each in winners.values() if each.written}
                step.decides = (number, write, frozenset(attempts))
        if is_stored:
            self.release()

    @rule(choice=st.integers(0, 9), own=st.one_of(st.none(), st.integers(0, 20)))
    def abort(self, choice: int, own: int | None) -> None:
        if not self.writes:
            return
        number, write = self.writes[-1 if choice < 7 else -1 - choice % len(self.writes)]
        task = None if own is None else self.some_task(own)
        self.ask(
            AbortStage(
                transactional_id=NAME,
                number=number,
                write_id=write,
                producer=None if task is None else task.producer,
            )
        )

    # --- markers and time -----------------------------------------------------------------------

    @rule(choice=st.integers(0, 50), only=st.one_of(st.none(), st.integers(0, 1)))
    def mark(self, choice: int, only: int | None) -> None:
        """Write markers of a decision, and report all or some of them."""
        if not self.effects:
            return
        effect = self.effects[choice % len(self.effects)]
        done = tuple(each for each in effect.partitions if only is None or each.partition == only)
        for each in done:
            self.logs[each.topic, each.partition].mark(effect.producer, effect.is_commit)
        self.ask(MarkersWritten(transactional_id=NAME, producer=effect.producer, partitions=done))

    @rule(choice=st.integers(0, 50))
    def mark_late(self, choice: int) -> None:
        """A marker of an earlier coordinator arrives, possibly a second time."""
        if self.late:
            effect = self.late[choice % len(self.late)]
            for each in effect.partitions:
                self.logs[each.topic, each.partition].mark(effect.producer, effect.is_commit)

    @rule(passed_ms=st.sampled_from([1, OPEN_TIMEOUT_MS, STAGE_MS]))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.take(self.shard.expire(self.now_ms, IMAGE))
        self.release()

    # --- invariants -------------------------------------------------------------------------------

    @invariant()
    def the_shard_is_consistent(self) -> None:
        self.shard.check_invariants()

    @invariant()
    def only_winners_are_visible(self) -> None:
        """Check that 1. a visible record is of a winner, 2. it is everything that the winner wrote
        there, 3. no record of a winner is aborted."""
        for part, log in self.logs.items():
            for task, count in log.visible:
                write, attempts = self.committed[task.number]
                assert task.write == write, task
                assert task.attempt in attempts, task
                assert count == task.written[part], task
            for task in log.aborted:
                decided = self.committed.get(task.number)
                assert decided is None or task.attempt not in decided[1], task

    def teardown(self) -> None:
        """Check that 4. after recovery every batch is complete, and no transaction hangs."""
        for _ in range(4):
            self.now_ms += STAGE_MS
            self.take(self.shard.expire(self.now_ms, IMAGE))
            self.release()
            effects, self.effects = self.effects, []
            for effect in effects:
                for each in effect.partitions:
                    self.logs[each.topic, each.partition].mark(effect.producer, effect.is_commit)
                self.ask(
                    MarkersWritten(
                        transactional_id=NAME,
                        producer=effect.producer,
                        partitions=effect.partitions,
                    )
                )
        assert self.shard.open_count == 0
        for log in self.logs.values():
            assert not log.open, log.open
        visible = {task for log in self.logs.values() for task, _ in log.visible}
        for number, (_, attempts) in self.committed.items():
            assert {task.attempt for task in visible if task.number == number} == attempts


TestStagedWorld = StagedWorld.TestCase
TestStagedWorld.settings = settings(
    max_examples=150, stateful_step_count=60, suppress_health_check=[HealthCheck.too_slow]
)
