"""Offsets committed in transactions, compared with a small model: the committed offset is that of
the newest record in the log that no open or aborted transaction has written. So neither a reload
nor compaction changes a result. Requests and markers are delayed and repeated, in both protocol
versions."""

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.broker.groups.offsets_image import image_of
from tests.unit.broker.groups.transactional_shard import LogEntry, TransactionalShard, compacted

from quorumlog.broker.groups.records import OffsetCommitted, OffsetForgotten
from quorumlog.broker.groups.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    DeleteGroup,
    DeleteOffsets,
    OffsetToCommit,
)
from quorumlog.broker.groups.transactional_producers import VerificationGuard
from quorumlog.errors import (
    CoordinatorNotAvailable,
    GroupNotFound,
    InvalidProducerEpoch,
    InvalidTxnState,
)
from quorumlog.ids import ProducerIdentity, TopicId
from quorumlog.metadata import MetadataImage
from quorumlog.records.control import TransactionMarker

GROUPS: Final = ("g", "h")
TOPICS: Final = ("t", "u")
PARTITIONS: Final = 1
PRODUCERS: Final = 3  # the first one uses the older protocol

T = TypeVar("T")
Place = tuple[str, str, int]  # group, topic, partition
GROUP = st.sampled_from(GROUPS)
PRODUCER = st.integers(0, PRODUCERS - 1)
INDEX = st.integers(0, 99)
PLACES: Final = tuple((topic, partition) for topic in TOPICS for partition in range(PARTITIONS))


def offsets_at(mask: int, first: int) -> list[tuple[str, int, int]]:
    """Return an offset for each place with a set bit."""
    return [(*place, first + each) for each, place in enumerate(PLACES) if mask >> each & 1]


OFFSETS = st.builds(offsets_at, st.integers(1, 2 ** len(PLACES) - 1), st.integers(-1, 9))


@dataclass(slots=True)
class Program:
    """A transactional producer as its coordinator sees it."""

    number: int
    epoch: int = 0
    transaction: int = 0  # the number of the transaction
    is_open: bool = False
    marker: TransactionMarker | None = None  # to be acknowledged before the next transaction
    written: list[TransactionMarker] = field(default_factory=list)  # acknowledged ones

    @property
    def version(self) -> int:
        return 2 if self.number else 0

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.number, self.epoch)


@dataclass(slots=True)
class DelayedCommit:
    """A commit in flight to the group coordinator."""

    program: Program
    transaction: int
    producer: ProducerIdentity
    group: str
    offsets: list[tuple[str, int, int]]
    guard: VerificationGuard | None
    is_verified: bool = False


def answers(log: Iterable[LogEntry]) -> tuple[dict[Place, OffsetCommitted], set[Place]]:
    """Return the committed offset of each partition and the partitions with a pending one."""
    outcome: dict[int, bool] = {}  # of records in transactions, by offset; absent: open
    opened: dict[int, list[int]] = {}
    entries = list(log)
    for entry in entries:
        if entry.marker is not None:
            for offset in opened.pop(entry.marker.producer.producer_id, []):
                outcome[offset] = entry.marker.is_commit
        elif entry.producer is not None:
            opened.setdefault(entry.producer.producer_id, []).append(entry.offset)
    in_force: dict[Place, OffsetCommitted] = {}
    pending: set[Place] = set()
    for entry in entries:
        record = entry.record
        if isinstance(record, OffsetForgotten):
            in_force.pop((record.group, record.topic, record.partition), None)
            pending.discard((record.group, record.topic, record.partition))
        elif isinstance(record, OffsetCommitted):
            place = (record.group, record.topic, record.partition)
            if entry.producer is None or outcome.get(entry.offset) is True:
                in_force[place] = record
            elif entry.offset not in outcome:
                pending.add(place)
    return in_force, pending


class TransactionalOffsets(RuleBasedStateMachine):
    """Groups, producers, delayed requests, and coordinators that load a compacted log."""

    def __init__(self) -> None:
        super().__init__()
        self.lives = dict.fromkeys(TOPICS, 0)
        self.shard = TransactionalShard(image=self.image())
        self.programs = [Program(number) for number in range(PRODUCERS)]
        self.delayed: list[DelayedCommit] = []

    def image(self) -> MetadataImage:
        ids = {
            name: TopicId(name.encode() * 15 + bytes([life])) for name, life in self.lives.items()
        }
        return image_of(ids, partitions=PARTITIONS)

    # --- commits ----------------------------------------------------------------------------------

    @rule(group=GROUP, offsets=OFFSETS)
    def commit_outside_of_transactions(
        self, group: str, offsets: list[tuple[str, int, int]]
    ) -> None:
        outcome = self.shard.ask(CommitOffsets(group=group, offsets=_to_commit(offsets)))
        assert outcome.errors == (None,) * len(offsets)

    @rule(number=PRODUCER, group=GROUP, offsets=OFFSETS, is_delayed=st.sampled_from([0, 0, 1, 2]))
    def commit_in_transaction(
        self, number: int, group: str, offsets: list[tuple[str, int, int]], is_delayed: int
    ) -> None:
        """Commit at once, or stop before (1) or after (2) the verification."""
        program = self.programs[number]
        if program.marker is not None:
            self._write(program)  # a coordinator begins no transaction before the last has ended
        if not program.is_open:
            program.is_open = True
            program.transaction += 1
        guard = self.shard.shard.verification_guard(program.identity, "transactions")
        delayed = DelayedCommit(
            program, program.transaction, program.identity, group, offsets, guard
        )
        delayed.is_verified = guard is None or is_delayed != 1
        if is_delayed:
            self.delayed.append(delayed)
        else:
            assert self._deliver(delayed), "a commit of an open transaction was rejected"

    @precondition(lambda self: self.delayed)
    @rule(index=INDEX)
    def verify_commit(self, index: int) -> None:
        delayed = _pick(self.delayed, index)
        program = delayed.program
        if program.is_open and delayed.transaction == program.transaction:
            delayed.is_verified = True
        elif not delayed.is_verified:
            self.delayed.remove(delayed)

    @precondition(lambda self: any(each.is_verified for each in self.delayed))
    @rule(index=INDEX)
    def deliver_commit(self, index: int) -> None:
        delayed = _pick([each for each in self.delayed if each.is_verified], index)
        self.delayed.remove(delayed)
        self._deliver(delayed)

    def _deliver(self, delayed: DelayedCommit) -> bool:
        """Deliver a verified commit; return False if it was rejected."""
        program = delayed.program
        request = CommitTransactionalOffsets(
            group=delayed.group,
            transactional_id="transactions",
            producer=delayed.producer,
            guard=delayed.guard,
            offsets=_to_commit(delayed.offsets),
        )
        has_ended = program.transaction > delayed.transaction or not (
            program.is_open or program.marker is not None
        )
        if program.version == 0 and program.transaction > delayed.transaction:
            # The requests of one connection are in order: none of an earlier transaction is left.
            return False
        try:
            self.shard.ask(request)
        except (InvalidProducerEpoch, CoordinatorNotAvailable, InvalidTxnState):
            return False
        assert not has_ended, "a commit of an ended transaction began it again"
        return True

    # --- markers ----------------------------------------------------------------------------------

    @precondition(lambda self: any(each.is_open for each in self.programs))
    @rule(index=INDEX, is_commit=st.booleans(), is_delayed=st.booleans())
    def end_transaction(self, index: int, is_commit: bool, is_delayed: bool) -> None:
        program = _pick([each for each in self.programs if each.is_open], index)
        program.is_open = False
        program.epoch += 1 if program.version == 2 else 0
        program.marker = TransactionMarker(program.identity, 0, is_commit, program.version)
        if not is_delayed:
            self._write(program)

    @precondition(lambda self: any(each.marker for each in self.programs))
    @rule(index=INDEX)
    def write_marker(self, index: int) -> None:
        self._write(_pick([each for each in self.programs if each.marker is not None], index))

    def _write(self, program: Program) -> None:
        assert program.marker is not None
        self.shard.write(program.marker)
        program.written.append(program.marker)
        program.marker = None
        assert not self.shard.shard._producers.is_open(program.number)

    @precondition(lambda self: any(each.written for each in self.programs))
    @rule(index=INDEX)
    def repeat_marker(self, index: int) -> None:
        program = _pick([each for each in self.programs if each.written], index)
        if program.version == 0 and (program.is_open or program.marker is not None):
            return  # this protocol cannot distinguish it from the marker of the later transaction
        before = answers(self.shard.log)
        marker = program.written[-1] if program.version == 0 else _pick(program.written, index)
        try:
            self.shard.write(marker)
        except InvalidProducerEpoch:
            assert marker.producer.producer_epoch <= program.epoch
        assert answers(self.shard.log) == before

    # --- deletion, time, topics -------------------------------------------------------------------

    @rule(
        group=GROUP,
        topic=st.sampled_from(TOPICS),
        partition=st.integers(0, PARTITIONS - 1),
        is_group=st.booleans(),
    )
    def delete(self, group: str, topic: str, partition: int, is_group: bool) -> None:
        with suppress(GroupNotFound):
            if is_group:
                self.shard.ask(DeleteGroup(group=group))
            else:
                self.shard.ask(DeleteOffsets(group=group, partitions=((topic, partition),)))
        gone = [
            place
            for place in (*answers(self.shard.log)[0], *answers(self.shard.log)[1])
            if place == (group, topic, partition) or (is_group and place[0] == group)
        ]
        assert not gone

    @rule(ms=st.sampled_from([500, 30_000, 90_000]))
    def wait(self, ms: int) -> None:
        _, pending = answers(self.shard.log)
        self.shard.expire(ms)
        assert answers(self.shard.log)[1] == pending

    @rule(name=st.sampled_from(TOPICS))
    def create_topic_again(self, name: str) -> None:
        self.lives[name] += 1
        self.shard.change_topics(self.image())

    # --- coordinators and compaction --------------------------------------------------------------

    @rule(is_compacted=st.booleans(), drops_tombstones=st.booleans())
    def move(self, is_compacted: bool, drops_tombstones: bool) -> None:
        before = answers(self.shard.log)
        log = self.shard.log
        if is_compacted:
            log = compacted(log, drops_tombstones=drops_tombstones)
        self.shard = self.shard.reload(log)
        assert answers(self.shard.log) == before

    @invariant()
    def answers_follow_the_log(self) -> None:
        in_force, pending = answers(self.shard.log)
        image = self.shard.image
        for group in GROUPS:
            expected = {
                (topic, partition): record.offset
                for (name, topic, partition), record in in_force.items()
                if name == group and record.topic_id == image.topics_by_name[topic]
            }
            assert self.shard.committed(group) == expected
            assert self.shard.unstable(group) == {
                (topic, partition) for name, topic, partition in pending if name == group
            }
        # A group with offsets of a deleted topic only is removed by the next check.
        assert {name for name, _, _ in (*in_force, *pending)} <= self.shard.states().keys()

    def teardown(self) -> None:
        """End every transaction: no offset stays pending, and all groups expire."""
        for program in self.programs:
            if program.is_open:
                program.marker = TransactionMarker(
                    ProducerIdentity(program.number, program.epoch + 1), 0, True, program.version
                )
            if program.marker is not None:
                self._write(program)
        assert answers(self.shard.log)[1] == set()
        self.shard.expire(200_000)
        assert self.shard.states() == {}
        assert self.shard.reload().states() == {}


def _pick(values: list[T], index: int) -> T:
    return values[index % len(values)]


def _to_commit(offsets: list[tuple[str, int, int]]) -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(topic=topic, partition=partition, offset=offset)
        for topic, partition, offset in offsets
    )


TestTransactionalOffsets = TransactionalOffsets.TestCase
TestTransactionalOffsets.settings = settings(max_examples=50)

Step = Callable[[TransactionalOffsets, random.Random], None]


def _commit_in_transaction(machine: TransactionalOffsets, draw: random.Random) -> None:
    machine.commit_in_transaction(
        draw.randrange(PRODUCERS),
        draw.choice(GROUPS),
        offsets_at(draw.randint(1, 2 ** len(PLACES) - 1), draw.randint(-1, 9)),
        draw.choice([0, 0, 1, 2]),
    )


def _commit(machine: TransactionalOffsets, draw: random.Random) -> None:
    machine.commit_outside_of_transactions(
        draw.choice(GROUPS), offsets_at(draw.randint(1, 2 ** len(PLACES) - 1), draw.randint(-1, 9))
    )


def _continue_commit(machine: TransactionalOffsets, draw: random.Random) -> None:
    if machine.delayed:
        machine.verify_commit(draw.randrange(99))
    if any(each.is_verified for each in machine.delayed):
        machine.deliver_commit(draw.randrange(99))


def _end(machine: TransactionalOffsets, draw: random.Random) -> None:
    if any(each.is_open for each in machine.programs):
        machine.end_transaction(draw.randrange(99), draw.random() < 0.7, draw.random() < 0.3)


def _mark(machine: TransactionalOffsets, draw: random.Random) -> None:
    if any(each.marker for each in machine.programs):
        machine.write_marker(draw.randrange(99))
    if any(each.written for each in machine.programs) and draw.random() < 0.3:
        machine.repeat_marker(draw.randrange(99))


def _disturb(machine: TransactionalOffsets, draw: random.Random) -> None:
    group, topic = draw.choice(GROUPS), draw.choice(TOPICS)
    match draw.randrange(4):
        case 0:
            machine.delete(group, topic, draw.randrange(PARTITIONS), draw.random() < 0.3)
        case 1:
            machine.wait(draw.choice([500, 30_000, 90_000]))
        case 2:
            machine.create_topic_again(topic)
        case _:
            machine.move(draw.random() < 0.7, draw.random() < 0.5)


STEPS: dict[Step, int] = {
    _commit_in_transaction: 8,
    _commit: 2,
    _continue_commit: 4,
    _end: 3,
    _mark: 3,
    _disturb: 2,
}


@pytest.mark.parametrize("seed", range(20))
def test_answers_follow_the_log_in_long_histories(seed: int) -> None:
    draw = random.Random(seed)
    machine = TransactionalOffsets()
    for step in draw.choices([*STEPS], weights=[*STEPS.values()], k=300):
        step(machine, draw)
        machine.answers_follow_the_log()
    machine.teardown()
