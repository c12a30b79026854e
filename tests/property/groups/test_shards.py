"""Groups of one partition under random requests: no request fails internally or waits forever, and
a replay of the log gives the same groups.

Members use both protocols, also in one another's names, with unknown assignors, while topics are
created and deleted, groups are deleted and the coordinator moves.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.groups.consumer.play import cluster, subscription

from quorumlog.broker.coordinator.decision import Answered, Ticket
from quorumlog.broker.coordinator.shell.loader import RecordWindow
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.consumer import ConsumerGroupMachine
from quorumlog.broker.groups.consumer_protocol import ConsumerAssignment, encode_assignment
from quorumlog.broker.groups.formats import decode, encode
from quorumlog.broker.groups.records import GroupDecision, GroupRecord, Partitions
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerBeat,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupRequest,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    OffsetToCommit,
    SyncGroup,
    WriteGroupMarker,
)
from quorumlog.broker.groups.shard import GroupShard
from quorumlog.errors import InvalidProducerEpoch
from quorumlog.ids import ProducerIdentity
from quorumlog.records import Record
from quorumlog.records.control import TransactionMarker
from quorumlog.storage.producer_state import ProducerLimits

START_MS = 10**12
TOPICS = ("t", "u", "w")


class World:
    """A shard, its log and its clients."""

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        self.config = GroupConfig(
            initial_delay_ms=draw.choice([0, 3_000]),
            size_max=draw.choice([3, 100]),
            migration=draw.choice(["bidirectional", "bidirectional", "upgrade", "disabled"]),
            offsets_retention_minutes=1,
            offsets_check_ms=20_000,
        )
        self.now_ms = START_MS
        self.log: list[tuple[GroupRecord, ProducerIdentity | None] | TransactionMarker] = []
        self.epochs = dict.fromkeys(range(3), 0)  # by producer
        self.counts = {"t": 3, "u": 2}
        self.lives = dict.fromkeys(TOPICS, 0)
        self.image = cluster(self.counts, lives=self.lives)
        self.waiting: dict[Ticket, GroupRequest[Any] | WriteGroupMarker] = {}
        self.members: list[tuple[str, int, str | None]] = []  # member, epoch, static name
        self.owned: dict[str, Partitions] = {}
        self._drawn = 0
        self.shard = self.read()

    def read(self) -> GroupShard:
        """Load the log into a new coordinator."""
        shard = GroupShard(self.config, self.draw, ProducerLimits())
        self.replay(shard)
        self.waiting.clear()
        self.shard = shard
        self.take(shard.loaded(self.image, self.now_ms))
        return shard

    def replay(self, shard: GroupShard) -> None:
        """Replay the log as the loader does: without the records that later ones replace."""
        size = self.random.choice([1, 10, 1_000])
        for first in range(0, len(self.log), size):
            window = RecordWindow()
            window.add(
                entry
                if isinstance(entry, TransactionMarker)
                else (Record(0, 0, *encode(entry[0])), entry[1])
                for entry in self.log[first : first + size]
            )
            for entry in window.take():
                if isinstance(entry, TransactionMarker):
                    shard.replay_marker(entry)
                    continue
                record = decode(entry[0].key, entry[0].value)
                assert record is not None
                shard.replay(record, entry[1])

    def draw(self) -> str:
        self._drawn += 1
        return f"drawn-{self._drawn}"

    # --- decisions --------------------------------------------------------------------------------

    def take(self, decision: GroupDecision) -> None:
        for record in decision.records:
            stored = decode(*encode(record))
            assert stored == record
            self.log.append((record, decision.producer))
        if decision.marker is not None:
            self.log.append(decision.marker)
        for reply in decision.replies:
            request: Any = self.waiting.pop(reply.ticket)  # a pending request gets one response
            outcome = reply.outcome if isinstance(reply, Answered) else None
            if isinstance(outcome, Joined):
                self.members.append((outcome.member_id, outcome.generation, request.instance_id))
            elif isinstance(outcome, ConsumerBeat):
                self.members.append((outcome.member_id, outcome.member_epoch, request.instance_id))
                self.owned[outcome.member_id] = outcome.assignment or {}
        self.shard.check_invariants()

    def expect_equal_replay(self) -> None:
        """Check that a new coordinator has the stored state after a replay; pending joins are not
        stored."""
        other = GroupShard(self.config, self.draw, ProducerLimits())
        self.replay(other)
        other.loaded(self.image, self.now_ms)
        assert other._offsets._groups == self.shard._offsets._groups
        assert other.offset_count == self.shard.offset_count
        for group in "gh":
            mine, theirs = self.shard._offsets._pending, other._offsets._pending
            assert set(mine.places(group)) == set(theirs.places(group))
            for place in mine.places(group):
                assert mine.at(group, *place) == theirs.at(group, *place)
        assert other._groups.keys() <= self.shard._groups.keys()
        for group, machine in self.shard._groups.items():
            found = other._groups.get(group)
            if isinstance(machine, ConsumerGroupMachine):
                assert isinstance(found, ConsumerGroupMachine)
                assert found.state == machine.state
            elif machine.is_stable:
                assert found is not None
                assert not isinstance(found, ConsumerGroupMachine)
                assert found.snapshot() == machine.snapshot()

    # --- requests ---------------------------------------------------------------------------------

    def ask(self, request: GroupRequest[Any] | WriteGroupMarker) -> None:
        self._drawn += 1
        ticket = Ticket(self._drawn)
        self.waiting[ticket] = request
        self.take(self.shard.handle(ticket, request, self.image, self.now_ms))

    def drawn_member(self) -> tuple[str, int, str | None]:
        """Return a member with a recent response, or an unknown one."""
        if self.members and self.random.random() < 0.8:
            return self.random.choice(self.members[-15:])
        statics = (None, None, None, "s1", "s2")
        member = self.random.choice(["m1", "m2", "m3", ""])
        return member, self.random.randint(-2, 6), self.random.choice(statics)

    def join(self, group: str) -> None:
        draw, (member_id, _, instance_id) = self.random, self.drawn_member()
        owned = {"t": tuple(draw.sample(range(3), draw.randint(0, 2)))}
        wants = subscription(
            *draw.sample(TOPICS, draw.randint(1, 2)), version=draw.randint(0, 3), owned=owned
        )
        names = draw.sample(["range", "sticky"], draw.randint(1, 2))
        request = JoinGroup(
            group=group,
            member_id=draw.choice([member_id, member_id, ""]),
            instance_id=instance_id,
            client_id="c",
            client_host="h",
            session_timeout_ms=draw.choice([10_000, 6_000, 30_000, 1]),
            rebalance_timeout_ms=draw.choice([5_000, 60_000, -1]),
            protocol_type=draw.choice(["consumer"] * 9 + ["connect"]),
            protocols=tuple((name, draw.choice([wants] * 9 + [b"x"])) for name in names),
            takes_member_id_first=draw.random() < 0.5,
            can_skip_assignment=draw.random() < 0.5,
        )
        self.ask(request)

    def sync(self, group: str) -> None:
        draw, (member_id, generation, instance_id) = self.random, self.drawn_member()
        assignments = {}
        for other, _, _ in self.members[-10:]:
            parts = {"t": tuple(draw.sample(range(3), draw.randint(0, 3)))}
            encoded = encode_assignment(ConsumerAssignment(version=1, partitions=parts))
            assignments[other] = draw.choice([encoded] * 9 + [b"zz"])
        self.ask(
            SyncGroup(
                group=group,
                member_id=member_id,
                instance_id=instance_id,
                generation=generation,
                assignments=assignments,
            )
        )

    def classic_beat(self, group: str) -> None:
        member_id, epoch, instance_id = self.drawn_member()
        self.ask(
            ClassicHeartbeat(
                group=group, member_id=member_id, instance_id=instance_id, generation=epoch
            )
        )

    def leave(self, group: str) -> None:
        several = [self.drawn_member() for _ in range(self.random.randint(0, 3))]
        leavers = tuple(Leaver(member_id=each[0], instance_id=each[2]) for each in several)
        self.ask(LeaveGroup(group=group, leavers=leavers))

    def beat(self, group: str) -> None:
        draw, (member_id, known, instance_id) = self.random, self.drawn_member()
        epoch = draw.choice([0, 0, known, known, known, -1, -2])
        says = epoch == 0 or draw.random() < 0.2
        topics = frozenset(draw.sample(TOPICS, draw.randint(0, 2))) if says else None
        owned = draw.choice([None, self.owned.get(member_id), self.owned.get(member_id), {}])
        request = ConsumerHeartbeat(
            group=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=5_000 if epoch == 0 else -1,
            topics=topics,
            pattern=draw.choice([None] * 6 + ["t.*", ".*", "", "["]),
            assignor=draw.choice([None, None, "uniform", "range", "none"]),
            owned={} if epoch == 0 else owned,
        )
        self.ask(request)

    def commit(self, group: str) -> None:
        draw, (member_id, epoch, instance_id) = self.random, self.drawn_member()
        offsets = tuple(
            OffsetToCommit(
                topic=draw.choice(TOPICS), partition=draw.randint(0, 3), offset=draw.randint(0, 9)
            )
            for _ in range(draw.randint(0, 3))
        )
        request = CommitOffsets(
            group=group,
            member_id=draw.choice([member_id, ""]),
            instance_id=instance_id,
            generation=draw.choice([epoch, -1]),
            offsets=offsets,
        )
        self.ask(request)

    def commit_in_transaction(self, group: str) -> None:
        draw, (member_id, epoch, instance_id) = self.random, self.drawn_member()
        number = draw.choice([*self.epochs])
        producer = ProducerIdentity(number, max(0, self.epochs[number] - draw.choice([0, 0, 0, 1])))
        try:
            guard = self.shard.verification_guard(producer, "x")
        except InvalidProducerEpoch:
            guard = None
        offsets = tuple(
            OffsetToCommit(
                topic=draw.choice(TOPICS), partition=draw.randint(0, 3), offset=draw.randint(0, 9)
            )
            for _ in range(draw.randint(0, 3))
        )
        request = CommitTransactionalOffsets(
            group=group,
            transactional_id="x",
            producer=producer,
            guard=guard,
            member_id=draw.choice([member_id, ""]),
            instance_id=instance_id,
            generation=draw.choice([epoch, -1]),
            offsets=offsets,
        )
        self.ask(request)

    def end_transaction(self, group: str) -> None:
        number = self.random.choice([*self.epochs])
        self.epochs[number] += self.random.choice([0, 1, 1])
        producer = ProducerIdentity(number, self.epochs[number])
        is_commit, version = self.random.random() < 0.7, self.random.choice([0, 2])
        self.ask(WriteGroupMarker(TransactionMarker(producer, 0, is_commit, version)))

    def end_all_transactions(self) -> None:
        for number in self.epochs:
            self.epochs[number] += 1
            producer = ProducerIdentity(number, self.epochs[number])
            self.ask(WriteGroupMarker(TransactionMarker(producer, 0, True, 2)))

    def look(self, group: str) -> None:
        self.ask(FetchOffsets(group=group, require_stable=any(self.epochs.values())))
        self.ask(DescribeGroup(group=group))

    def delete(self, group: str) -> None:
        requests: list[GroupRequest[Any]] = [
            DeleteOffsets(group=group, partitions=(("t", 0), ("u", 1))),
            DeleteGroup(group=group),
        ]
        self.ask(self.random.choice(requests))

    def change_topics(self, group: str) -> None:
        name, deleted = self.random.choice(TOPICS), []
        if self.random.random() < 0.7 and (topic := self.image.topic(name)) is not None:
            deleted = [topic]
            del self.counts[name]
            self.lives[name] += 1
        if not deleted or self.random.random() < 0.5:
            self.counts[name] = self.random.randint(1, 5)
        self.image = cluster(self.counts, lives=self.lives)
        self.take(self.shard.image_changed(self.image, self.now_ms, deleted=deleted))

    def move(self, group: str) -> None:
        self.read()

    def wait(self, group: str) -> None:
        self.pass_time(self.random.choice([100, 1_000, 5_000, 20_000, 70_000]))

    def pass_time(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while (due_ms := self.shard.deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.shard.expire(self.now_ms, self.image))
        self.now_ms = until_ms


HAPPENS: dict[Callable[[World, str], None], int] = {
    World.join: 20,
    World.sync: 20,
    World.classic_beat: 10,
    World.leave: 5,
    World.beat: 20,
    World.commit: 10,
    World.look: 2,
    World.delete: 3,
    World.change_topics: 3,
    World.move: 1,
    World.wait: 6,
}


HAPPENS_WITH_TRANSACTIONS = HAPPENS | {World.commit_in_transaction: 15, World.end_transaction: 8}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_transactions_of_members_leave_nothing_pending(seed: int) -> None:
    world = World(seed)
    happens = HAPPENS_WITH_TRANSACTIONS
    steps = world.random.choices([*happens], weights=[*happens.values()], k=300)
    for number, step in enumerate(steps):
        step(world, world.random.choice("gh"))
        if number % 10 == 0:
            world.expect_equal_replay()
    world.end_all_transactions()
    world.pass_time(4_000_000)
    assert not world.waiting
    assert not world.shard._groups
    world.expect_equal_replay()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(20), 60, 363])
def test_random_requests_break_no_group(seed: int) -> None:
    world = World(seed)
    steps = world.random.choices([*HAPPENS], weights=[*HAPPENS.values()], k=300)
    for number, step in enumerate(steps):
        step(world, world.random.choice("gh"))
        if number % 10 == 0:
            world.expect_equal_replay()
    world.pass_time(4_000_000)
    assert not world.waiting
    assert not world.shard._groups
    world.expect_equal_replay()
