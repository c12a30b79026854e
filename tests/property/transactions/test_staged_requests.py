"""Requests of staged commits compared with a small model of their rules: drivers and tasks of all
ages, with requests that are delayed, repeated and reordered, and coordinators that load the
committed prefix of the log. Each response and each marker is that of the model, and released
responses satisfy the guarantees of the protocol."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.broker.transactions.shard_play import ChangingTopics, names_of

from quorumlog.broker.coordinator.decision import Failed, Reply, Ticket
from quorumlog.broker.transactions.config import TransactionConfig
from quorumlog.broker.transactions.formats import Encoded, decode, encode
from quorumlog.broker.transactions.records import (
    FreeProducerId,
    ProducerIdForgotten,
    StagedName,
    StagedNameForgotten,
)
from quorumlog.broker.transactions.requests import (
    AbortStage,
    AbortTransaction,
    AddedPartitions,
    AddPartitions,
    BeginAttempt,
    CommitStage,
    CommittedAttempt,
    CommittedBatch,
    DeleteStage,
    DescribedStage,
    DescribeStage,
    KeepAttemptAlive,
    MarkersWritten,
    ResetStage,
    SealAttempt,
    SealedPartition,
    TransactionRequest,
    VerifyPartitions,
    WriteMarkers,
)
from quorumlog.broker.transactions.shard import TransactionShard
from quorumlog.broker.transactions.transaction import TransactionDecision
from quorumlog.ids import ProducerIdentity

from .staged_model import ANSWER_MS, LAST_EPOCH, OPEN_MS, RETENTION_MS, Part, Place, StagedModel

NAMES = ("spark/a/", "spark/b/")
PARTS: list[Part] = [("a", 0), ("a", 1), ("b", 0)]
CONFIG = TransactionConfig(staged_attempts_max=3)
START_MS, STAGE_MS = 1_000_000, 2 * OPEN_MS
WIRE_MAX = 40
LATE, UNANSWERED, NOW = 0, 1, 2  # a request arrives later only; at once, with a pending response
WHEN = st.sampled_from((NOW, NOW, NOW, UNANSWERED, LATE))
PARTS_SOME = st.sets(st.sampled_from(PARTS), min_size=1)


@dataclass(frozen=True)
class Driver:
    """One execution of one batch."""

    name: str
    number: int
    write: int


@dataclass(eq=False)
class Task:
    """A task attempt in the view of its executor."""

    driver: Driver
    task: int
    producer: ProducerIdentity
    counts: dict[Part, int] = field(default_factory=dict)
    is_sealed: bool = False


@dataclass
class Step:
    """One decision, with the request and the model after it."""

    records: list[Encoded]
    effects: tuple[WriteMarkers, ...]
    replies: tuple[Reply, ...]
    model: StagedModel
    topics: dict[str, bytes]
    request: TransactionRequest[Any] | None = None
    decides: bool = False  # a number


def value_of(reply: Reply) -> Any:
    """Return a response in the form of the model."""
    if isinstance(reply, Failed):
        return reply.error.name
    outcome = reply.outcome
    if isinstance(outcome, AddedPartitions):
        return names_of(outcome.errors)
    if isinstance(outcome, DescribedStage):
        known = outcome.stage
        return (
            (known.last_committed, known.committed_write_id, known.committed_count),
            (known.write_id, known.number),
            sorted((one.task, one.attempt, one.state.name.lower()) for one in outcome.attempts),
        )
    return outcome


class StagedRequests(RuleBasedStateMachine):
    """Two names and unnamed ones, their drivers and tasks, two topics, and a log."""

    def __init__(self) -> None:
        super().__init__()
        self.next_id = 100
        self.next_write = 0
        self.next_attempt = 0
        self.now_ms = START_MS
        self.tickets = 0
        self.topics = ChangingTopics()
        self.model = StagedModel(limit=CONFIG.staged_attempts_max)
        self.steps: list[Step] = []
        self.released = 0
        self.wire: list[TransactionRequest[Any]] = []
        self.waiting: dict[Ticket, TransactionRequest[Any]] = {}
        self.drivers: list[Driver] = []
        self.tasks: list[Task] = []
        self.delivered: list[WriteMarkers] = []
        # The released state:
        self.owners: dict[ProducerIdentity, tuple[str, int, int]] = {}
        self.added: dict[ProducerIdentity, set[Place]] = {}
        self.marked: dict[ProducerIdentity, set[Place]] = {}
        self.winners: set[ProducerIdentity] = set()
        self.decisions: dict[tuple[str, int], tuple[int, frozenset[ProducerIdentity]]] = {}
        self.shard = TransactionShard(CONFIG, self.draw)
        self.shard.loaded(self.image, self.now_ms)

    def draw(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    @property
    def image(self) -> Any:
        return self.topics.image()

    @initialize(is_old=st.booleans())
    def start(self, is_old: bool) -> None:
        """Start with an id of random age in the pool."""
        if is_old:
            record = FreeProducerId(producer_id=self.draw(), producer_epoch=LAST_EPOCH - 1)
            self.model.free[record.producer_id] = record.producer_epoch
            self.steps.append(Step([encode(record)], (), (), deepcopy(self.model), self.topics.ids))
            self.released = 1
            self.load()

    # --- the coordinator --------------------------------------------------------------------------

    def deliver(self, request: TransactionRequest[Any], *, is_stored: bool = True) -> None:
        """Deliver a request, and compare the decision with the model's."""
        self.tickets += 1
        ticket = Ticket(self.tickets)
        self.waiting[ticket] = request
        decision = self.shard.handle(ticket, request, self.image, self.now_ms)
        given = [value_of(reply) for reply in decision.replies if reply.ticket == ticket]
        before = {name: (each.last, each.last_write) for name, each in self.model.names.items()}
        self.model.handle(
            ticket,
            request,
            now_ms=self.now_ms,
            topics=self.topics.ids,
            given=given[0] if given and isinstance(given[0], ProducerIdentity) else None,
        )
        self.take(decision, request)
        name = request.transactional_id
        if isinstance(request, CommitStage) and name in self.model.names:
            known = self.model.names[name]
            self.steps[-1].decides = before[name] != (known.last, known.last_write)
        if is_stored:
            self.release()

    def take(
        self, decision: TransactionDecision, request: TransactionRequest[Any] | None = None
    ) -> None:
        for record in decision.records:
            if isinstance(record, ProducerIdForgotten):
                self.model.forget_id(record.producer_id)
        assert all(epoch <= LAST_EPOCH for epoch in self.model.free.values()), self.model.free
        assert {reply.ticket: value_of(reply) for reply in decision.replies} == self.model.answers
        assert {
            (*effect.producer, effect.is_commit): frozenset(
                ((each.topic, each.partition), each.topic_id) for each in effect.partitions
            )
            for effect in decision.effects
        } == self.model.markers
        self.model.answers.clear()
        self.model.markers.clear()
        self.shard.check_invariants()
        self.steps.append(
            Step(
                [encode(record) for record in decision.records],
                decision.effects,
                decision.replies,
                deepcopy(self.model),
                self.topics.ids,
                request,
            )
        )

    @rule()
    def release(self) -> None:
        """Commit all decisions: replies and effects leave the coordinator."""
        for step in self.steps[self.released :]:
            self.learn(step)
            for effect in step.effects:
                self.see_effect(effect)
            for reply in step.replies:
                request = self.waiting.pop(reply.ticket)
                if not isinstance(reply, Failed):
                    self.see_answer(request, reply.outcome, step)
        self.released = len(self.steps)

    @rule(lost=st.integers(0, 3), is_compacted=st.booleans())
    def crash(self, lost: int, is_compacted: bool) -> None:
        """A new leader has everything that was committed, and possibly some of the rest."""
        del self.steps[max(self.released, len(self.steps) - lost) :]
        for step in self.steps[self.released :]:
            self.learn(step)
        self.released = len(self.steps)
        limit = CONFIG.staged_attempts_max
        self.model = deepcopy(self.steps[-1].model) if self.steps else StagedModel(limit=limit)
        self.waiting.clear()
        self.load(is_compacted=is_compacted)

    def load(self, *, is_compacted: bool = False) -> None:
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
        decision = self.shard.loaded(self.image, self.now_ms)
        self.model.loaded(self.now_ms, self.topics.ids)
        self.take(decision)
        self.release()

    # --- guarantees -------------------------------------------------------------------------------

    def learn(self, step: Step) -> None:
        """Check that a decision is final."""
        request = step.request
        if isinstance(request, CommitStage) and step.decides:
            key = (request.transactional_id, request.number)
            assert key not in self.decisions, f"{key} is decided twice"
            winners = frozenset(winner.producer for winner in request.attempts)
            for producer in winners:
                owner = self.owners[producer]
                assert owner[:2] == (request.transactional_id, request.write_id), owner
            self.decisions[key] = (request.write_id, winners)
            self.winners |= winners
        for encoded in step.records:
            record = decode(*encoded)
            if isinstance(record, StagedNameForgotten):
                self.forget_decisions(record.transactional_id, -1)
            elif isinstance(record, StagedName) and isinstance(request, ResetStage):
                self.forget_decisions(record.transactional_id, record.last_committed)

    def forget_decisions(self, name: str, last: int) -> None:
        """Remove numbers that an operator reset, and unnamed writes that expired."""
        kept = {key: each for key, each in self.decisions.items() if key[0] != name}
        kept |= {key: each for key, each in self.decisions.items() if key[1] < last}
        self.decisions = kept

    def see_effect(self, effect: WriteMarkers) -> None:
        """Check that an attempt commits exactly if a decision names it."""
        self.delivered.append(effect)
        producer_id, epoch = effect.producer
        producer = ProducerIdentity(producer_id, epoch - 1)
        assert self.owners[producer][0] == effect.transactional_id
        assert effect.is_commit == (producer in self.winners), effect

    def see_answer(self, request: TransactionRequest[Any], outcome: Any, step: Step) -> None:
        if isinstance(request, BeginAttempt) and isinstance(outcome, ProducerIdentity):
            self.see_identity(request, outcome)
        elif isinstance(request, AddPartitions) and not any(outcome.errors):
            places = self.added.setdefault(request.producer, set())
            places |= {(part, step.topics[part[0]]) for part in request.partitions}
            for one in self.tasks:
                if one.producer == request.producer:
                    one.counts |= {part: one.counts.get(part, 0) for part in request.partitions}
        elif isinstance(request, SealAttempt):
            for one in self.tasks:
                one.is_sealed |= one.producer == request.producer
        elif isinstance(outcome, CommittedBatch):
            self.see_batch(request, outcome)

    def see_identity(self, request: BeginAttempt, producer: ProducerIdentity) -> None:
        """Check that an identity has one attempt, and that earlier identities of its id have all
        markers."""
        owner = (request.transactional_id, request.write_id, request.attempt)
        if self.owners.setdefault(producer, owner) != owner:
            raise AssertionError(f"{producer} of {self.owners[producer]} is assigned to {owner}")
        for earlier, places in self.added.items():
            if earlier.producer_id == producer.producer_id and earlier < producer:
                left = places - self.marked.get(earlier, set())
                left = {place for place in left if place[1] == self.topics.ids.get(place[0][0])}
                assert not left, f"{producer} is assigned while {earlier} has no marker in {left}"
        if not any(one.producer == producer for one in self.tasks):
            driver = Driver(request.transactional_id, request.number, request.write_id)
            self.tasks.append(Task(driver, request.task, producer))

    def see_batch(self, request: TransactionRequest[Any], batch: CommittedBatch) -> None:
        """Check that a committed number has the write of its decision, and a visible one its
        markers."""
        assert isinstance(request, BeginAttempt | CommitStage | AbortStage)
        assert batch.number == request.number
        found = self.decisions.get((request.transactional_id, batch.number))
        if found is None:  # set by an operator
            return
        write, winners = found
        assert batch.write_id == write, (batch, write)
        for producer in winners if batch.is_visible else ():
            left = self.added.get(producer, set()) - self.marked.get(producer, set())
            left = {place for place in left if place[1] == self.topics.ids.get(place[0][0])}
            assert not left, f"{batch} is not visible in {left}"

    # --- requests ---------------------------------------------------------------------------------

    def send(self, request: TransactionRequest[Any], when: int) -> None:
        self.wire = [*self.wire[-WIRE_MAX:], request]
        if when != LATE:
            self.deliver(request, is_stored=when == NOW)

    @rule(choice=st.integers(0, WIRE_MAX), is_stored=st.booleans())
    def arrive(self, choice: int, is_stored: bool) -> None:
        """A delayed or repeated request arrives."""
        if self.wire:
            self.deliver(self.wire[-1 - choice % len(self.wire)], is_stored=is_stored)

    # --- drivers and tasks ------------------------------------------------------------------------

    @rule(kind=st.integers(0, 9), step=st.sampled_from([1, 1, 1, 1, 0, -1, 2]))
    def plan(self, kind: int, step: int) -> None:
        """A driver plans the next number, or another one."""
        self.next_write += 1
        name = NAMES[kind > 6] if kind < 9 else f"batch/{self.next_write}"
        known = self.model.names.get(name)
        number = max(0, (-1 if known is None else known.last) + step)
        self.drivers.append(Driver(name, number, self.next_write))

    def some_driver(self, choice: int) -> Driver:
        if not self.drivers:
            self.plan(0, 1)
        return self.drivers[-1 if choice < 7 else -1 - choice % len(self.drivers)]

    def some_task(self, choice: int) -> Task | None:
        return self.tasks[-1 - choice % min(len(self.tasks), 8)] if self.tasks else None

    @rule(choice=st.integers(0, 20), task=st.integers(0, 1), when=WHEN)
    def begin(self, choice: int, task: int, when: int) -> None:
        driver = self.some_driver(choice)
        self.next_attempt += 1
        request = BeginAttempt(
            transactional_id=driver.name,
            number=driver.number,
            write_id=driver.write,
            task=task,
            attempt=self.next_attempt,
            timeout_ms=STAGE_MS,
        )
        self.send(request, when)

    @rule(
        choice=st.integers(0, 20),
        parts=PARTS_SOME,
        verifies=st.booleans(),
        when=WHEN,
    )
    def add(self, choice: int, parts: set[Part], verifies: bool, when: int) -> None:
        task = self.some_task(choice)
        if task is not None:
            kind = VerifyPartitions if verifies else AddPartitions
            name, some = task.driver.name, tuple(sorted(parts))
            self.send(kind(transactional_id=name, producer=task.producer, partitions=some), when)

    @rule(choice=st.integers(0, 20), count=st.integers(0, 2), when=WHEN)
    def seal(self, choice: int, count: int, when: int) -> None:
        task = self.some_task(choice)
        if task is None:
            return
        partitions = tuple(
            SealedPartition(topic=topic, partition=index, count=count, last_sequence=count - 1)
            for topic, index in sorted(task.counts)
        )
        self.send(
            SealAttempt(
                transactional_id=task.driver.name, producer=task.producer, partitions=partitions
            ),
            when,
        )

    @rule(choice=st.integers(0, 20), when=WHEN)
    def keep_alive(self, choice: int, when: int) -> None:
        task = self.some_task(choice)
        if task is not None:
            name = task.driver.name
            self.send(KeepAttemptAlive(transactional_id=name, producer=task.producer), when)

    @rule(task=st.integers(0, 1), parts=PARTS_SOME, is_sealed=st.booleans())
    def run(self, task: int, parts: set[Part], is_sealed: bool) -> None:
        """A task of the newest driver, from its begin to its seal."""
        count = len(self.tasks)
        self.begin(0, task, NOW)
        if len(self.tasks) > count:
            self.add(0, parts, False, NOW)
            if is_sealed:
                self.seal(0, 1, NOW)

    @rule(kind=st.integers(0, 9), first=PARTS_SOME, second=PARTS_SOME, is_sealed=st.booleans())
    def stage(self, kind: int, first: set[Part], second: set[Part], is_sealed: bool) -> None:
        """Run a driver with its tasks."""
        self.plan(kind, 1)
        self.run(0, first, True)
        self.run(1, second, is_sealed)

    @rule(choice=st.integers(0, 20), is_careless=st.booleans(), when=WHEN)
    def commit(self, choice: int, is_careless: bool, when: int) -> None:
        """A driver commits with the sealed attempts of its tasks; an incorrect one with any."""
        driver = self.some_driver(choice)
        winners = {
            one.task: CommittedAttempt(task=one.task, producer=one.producer)
            for one in self.tasks
            if one.driver == driver and (one.is_sealed or is_careless)
        }
        request = CommitStage(
            transactional_id=driver.name,
            number=driver.number,
            write_id=driver.write,
            attempts=tuple(winners.values()),
        )
        self.send(request, when)

    @rule()
    def finish(self) -> None:
        self.commit(0, False, NOW)

    @rule(
        choice=st.integers(0, 20),
        own=st.one_of(st.none(), st.integers(0, 20)),
        when=WHEN,
    )
    def abort(self, choice: int, own: int | None, when: int) -> None:
        driver = self.some_driver(choice)
        task = None if own is None else self.some_task(own)
        request = AbortStage(
            transactional_id=driver.name,
            number=driver.number,
            write_id=driver.write,
            producer=None if task is None else task.producer,
        )
        self.send(request, when)

    @rule(kind=st.integers(0, 19), name=st.sampled_from(NAMES), last=st.integers(-1, 3))
    def operate(self, kind: int, name: str, last: int) -> None:
        """An operator describes, or sometimes changes, a name."""
        if kind == 0:
            self.deliver(ResetStage(transactional_id=name, last_committed=last))
        elif kind == 1:
            self.deliver(DeleteStage(transactional_id=name))
        elif kind == 2:
            self.deliver(AbortTransaction(transactional_id=name))
        else:
            self.deliver(DescribeStage(transactional_id=name))

    # --- markers, time, topics --------------------------------------------------------------------

    @rule(choice=st.integers(0, 30), keep=st.sets(st.integers(0, 2), max_size=2))
    def mark(self, choice: int, keep: set[int]) -> None:
        """Markers of any leader, old or new, are written and reported."""
        if not self.delivered:
            return
        effect = self.delivered[-1 - choice % len(self.delivered)]
        done = tuple(each for at, each in enumerate(effect.partitions) if at not in keep)
        producer = ProducerIdentity(effect.producer.producer_id, effect.producer.producer_epoch - 1)
        places = {((each.topic, each.partition), each.topic_id) for each in done}
        self.marked.setdefault(producer, set()).update(places)
        request = MarkersWritten(
            transactional_id=effect.transactional_id, producer=effect.producer, partitions=done
        )
        self.send(request, NOW)

    @rule()
    def mark_all(self) -> None:
        for choice in range(min(len(self.delivered), 8)):
            self.mark(choice, set())

    @rule(
        passed_ms=st.sampled_from([1, ANSWER_MS, OPEN_MS, STAGE_MS, RETENTION_MS]),
        fails_over=st.booleans(),
    )
    def expire(self, passed_ms: int, fails_over: bool = False) -> None:
        """Time passes; the next leader has only the records of what expired."""
        self.now_ms += passed_ms
        decision = self.shard.expire(self.now_ms, self.image)
        forgotten = {
            record.transactional_id
            for record in decision.records
            if isinstance(record, StagedNameForgotten)
        }
        self.model.expire(self.now_ms, self.topics.ids, forgotten)
        self.take(decision)
        if fails_over:
            self.release()
            self.crash(0, False)

    @rule(name=st.sampled_from(["a", "b"]), is_recreated=st.booleans())
    def change_topics(self, name: str, is_recreated: bool) -> None:
        deleted = self.topics.change(name, is_recreated=is_recreated)
        decision = self.shard.image_changed(self.image, self.now_ms, deleted=deleted)
        self.model.topics_deleted({topic.id for topic in deleted}, self.now_ms)
        self.take(decision)

    # --- invariants -------------------------------------------------------------------------------

    @invariant()
    def each_name_follows_from_the_one_before(self) -> None:
        """Check that a number and a write never decrease, except by an operator, and that the facts
        of a committed number never change."""
        known: dict[str, StagedName] = {}
        for step in self.steps:
            for encoded in step.records:
                record = decode(*encoded)
                if isinstance(record, StagedNameForgotten):
                    known.pop(record.transactional_id, None)
                if not isinstance(record, StagedName):
                    continue
                before = known.get(record.transactional_id)
                known[record.transactional_id] = record
                if before is None:
                    continue
                assert record.write_id >= before.write_id, (before, record)
                assert record.fenced_write_id >= before.fenced_write_id, (before, record)
                if isinstance(step.request, ResetStage):
                    continue
                assert record.last_committed >= before.last_committed, (before, record)
                if record.last_committed == before.last_committed:
                    facts = [
                        (each.committed_write_id, each.committed_count) for each in (before, record)
                    ]
                    assert facts[0] == facts[1], (before, record)

    @invariant()
    def the_attempts_agree(self) -> None:
        """Check that the shard and the model have the same attempts, with and without all
        markers."""
        states = {"committing": "PrepareCommit", "aborting": "PrepareAbort"}
        expected = {
            f"{one.name}#{producer_id}": states.get(one.state, "Ongoing")
            for producer_id, one in self.model.attempts.items()
        }
        listed = {each.transactional_id: each.state for each in filter(None, self.shard.listings())}
        assert listed == expected

    def teardown(self) -> None:
        """After recovery no attempt is left, and no commit is pending."""
        self.release()
        for _ in range(4):
            self.expire(STAGE_MS)
            self.release()
            for choice in reversed(range(len(self.delivered))):  # delayed ones first
                self.mark(choice, set())
        assert self.shard.open_count == 0
        assert not any(known.waiting for known in self.model.names.values())


TestStagedRequests = StagedRequests.TestCase
TestStagedRequests.settings = settings(
    max_examples=100,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
