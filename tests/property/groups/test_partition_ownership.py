"""No partition has two owners, and in the end every partition has one.

An owner is a member that received a partition, and has not reported since that it released it.
Members are late, lose responses, repeat old heartbeats, send wrong epochs and owned partitions,
crash and restart, while topics are created, extended and deleted.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.broker.groups.consumer.play import REBALANCE_MS, Play, cluster, subscription

from quorumlog.broker.groups.consumer.state import GroupState
from quorumlog.broker.groups.consumer_protocol import decode_assignment
from quorumlog.broker.groups.records import GroupRecord, MemberState, Partitions
from quorumlog.broker.groups.requests import ConsumerBeat, Joined, Synced
from quorumlog.errors import (
    FencedInstance,
    FencedMemberEpoch,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)
from quorumlog.ids import TopicId

Held = set[tuple[TopicId, int]]


def flat(partitions: Partitions) -> Held:
    return {(topic, index) for topic, indices in partitions.items() for index in indices}


def nested(held: Held) -> Partitions:
    found: dict[TopicId, set[int]] = {}
    for topic, index in held:
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(indices) for topic, indices in found.items()}


@dataclass
class Client:
    """A consumer of KIP-848 and its view of the group."""

    name: str
    instance_id: str | None
    life: int = 0
    epoch: int = 0
    topics: frozenset[str] = frozenset({"t"})
    held: Held = field(default_factory=set)  # received, and not released
    wants: Held = field(default_factory=set)  # the last received assignment
    is_dead: bool = False
    has_received: bool = True  # True if it received the last response
    epochs: list[int] = field(default_factory=list)
    sent: dict[str, Any] = field(default_factory=dict)

    @property
    def member_id(self) -> str:
        return f"{self.name}.{self.life}"


class World:
    """Clients of one group, of both protocols, and the metadata of the topics."""

    def __init__(self) -> None:
        self.play = Play({"t": 3, "u": 2}, migration="upgrade")
        self.counts = {"t": 3, "u": 2}
        self.lives = {"t": 0, "u": 0}
        self.clients = [
            Client("a", None),
            Client("b", "static-b"),
            Client("c", None, topics=frozenset({"t", "u"})),
            Client("d", None, topics=frozenset({"u"})),
        ]
        self.classics = [Classic("k", 3), Classic("l", 0)]
        self.epochs = (0, 0)

    # --- members of KIP-848 -----------------------------------------------------------------------

    def beat(self, client: Client, *, is_lost: bool = False, **wrong: Any) -> None:
        """Send a heartbeat with the client's state, or with other values; apply the response unless
        it is lost."""
        if client.epoch == 0:
            fields: dict[str, Any] = {"owned": {}}
        else:
            held = client.held & client.wants
            fields = {"owned": nested(held)}
        if client.epoch == 0 or not client.has_received:
            fields |= {"rebalance_timeout_ms": REBALANCE_MS, "topics": client.topics}
        fields |= {"instance_id": client.instance_id, "member_epoch": client.epoch} | wrong
        client.sent = fields
        self.send(client, dict(fields), is_lost=is_lost)

    def send(self, client: Client, fields: dict[str, Any], *, is_lost: bool) -> None:
        member_epoch = fields.pop("member_epoch")
        before = self.play.machine.state.current_of(client.member_id)
        answer = self.play.ask(client.member_id, member_epoch, **fields)
        if isinstance(answer, ConsumerBeat):
            if member_epoch not in (0, before.epoch):
                assert member_epoch == before.previous_epoch, "a fenced member gets an assignment"
                assert flat(fields["owned"]) <= flat(before.assigned), (
                    "the member owns more than its assignment"
                )
            if fields.get("owned") is not None:
                client.held &= flat(fields["owned"])
            if not is_lost:
                self.receive(client, answer)
        elif isinstance(answer, UnknownMember | FencedMemberEpoch | FencedInstance):
            assert self.play.last == ()
            if not is_lost:
                self.end(client)
        client.has_received = not is_lost and isinstance(answer, ConsumerBeat)
        self.check()

    def receive(self, client: Client, answer: ConsumerBeat) -> None:
        assert not client.epochs or answer.member_epoch >= client.epochs[-1]
        client.epoch = answer.member_epoch
        client.epochs.append(answer.member_epoch)
        if answer.assignment is not None:
            client.wants = flat(answer.assignment)
            client.held |= client.wants

    def end(self, client: Client, *, is_new: bool = False) -> None:
        """Release everything; a new process has another id."""
        client.epoch, client.has_received = 0, True
        client.held, client.wants, client.epochs = set(), set(), []
        client.life += 1 if is_new else 0

    def leave(self, client: Client, epoch: int) -> None:
        answer = self.play.ask(client.member_id, epoch, instance_id=client.instance_id)
        if isinstance(answer, ConsumerBeat):
            self.end(client, is_new=True)
        self.check()

    # --- members of the classic protocol ----------------------------------------------------------

    def classic_beat(self, client: "Classic") -> None:
        """Send a heartbeat, and join and sync if required."""
        if client.generation >= 0:
            answer = self.play.classic_beat(client.name, client.generation)
            if isinstance(answer, UnknownMember | IllegalGeneration):
                client.lose_all()
            elif not isinstance(answer, RebalanceInProgress) and client.held == client.wants:
                return
        if client.version == 0:
            client.held.clear()  # eager: releases all before the join
        client.held &= client.wants  # cooperative: releases the revoked partitions
        owned: dict[str, tuple[int, ...]] = {}
        for topic, index in sorted(client.held):
            image = self.play.image.topic_of_id(topic)
            if image is not None:
                owned[image.name] = (*owned.get(image.name, ()), index)
        metadata = subscription("t", version=client.version, owned=owned)
        protocols = (("strategy", metadata),)
        joined = self.play.classic_join(client.name, protocols=protocols)
        assert isinstance(joined, Joined), joined
        assert joined.generation >= client.generation
        client.generation = joined.generation
        self.check()
        synced = self.play.sync(client.name, client.generation)
        if isinstance(synced, Synced):
            client.wants = {
                (self.play.image.topics_by_name[name], index)
                for name, indices in decode_assignment(synced.assignment).partitions.items()
                for index in indices
            }
            client.held |= client.wants
        self.check()

    # --- invariants -------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that no partition has two owners, and that no epoch decreases."""
        members = self.play.machine.state.members
        owners: dict[tuple[TopicId, int], str] = {}
        owned: list[tuple[str, Held]] = [(each.member_id, each.held) for each in self.clients]
        owned += [(each.name, each.held) for each in self.classics]
        for member_id, held in owned:
            for partition in held if member_id in members else ():
                other = owners.setdefault(partition, member_id)
                assert other == member_id, f"{other} and {member_id} own {partition}"
        state = self.play.machine.state
        for current in state.current.values():
            if current.state is MemberState.UNREVOKED_PARTITIONS:
                assert current.epoch < state.target_epoch, "an epoch rose before the revocation"
        epochs = (self.play.machine.state.epoch, self.play.machine.state.target_epoch)
        assert epochs >= self.epochs
        assert epochs[1] >= self.epochs[1]
        self.epochs = epochs
        for client in self.clients:
            if client.member_id not in members:
                error = self.play.commit_error(client.member_id, max(client.epoch, 0))
                assert error is not None, f"{client.member_id} may commit without membership"

    def expect_all_owned(self) -> None:
        """Let all running members send valid full heartbeats: every partition gets one owner."""
        for client in self.clients:
            client.has_received = False
        for _ in range(30):
            self.play.wait(5_000)
            for client in self.clients:
                if not client.is_dead:
                    self.beat(client)
            for classic in self.classics:
                if not classic.is_dead:
                    self.classic_beat(classic)
        assert self.play.state_name in ("Stable", "Empty")
        living = [each for each in self.clients if not each.is_dead]
        topics = {topic for each in living for topic in each.topics}
        if any(not each.is_dead for each in self.classics):
            topics.add("t")
        wanted = {
            (self.play.image.topics_by_name[name], index)
            for name, count in self.counts.items()
            for index in range(count)
            if name in topics
        }
        held = [each.held for each in living]
        held += [each.held for each in self.classics if not each.is_dead]
        assert sum(map(len, held)) == len(wanted)
        assert set().union(*held) == wanted

    def expect_equal_replay(self) -> None:
        """Check that a replay of the whole log, or of the compacted log, gives the same state."""
        for log in (self.play.log, compacted(self.play.log)):
            read = GroupState("g")
            for record in log:
                read.replay(record)
            read.rebuild_owners()
            assert read == self.play.machine.state


@dataclass
class Classic:
    """A consumer of the classic protocol: cooperative, or eager with subscriptions of version 0."""

    name: str
    version: int
    generation: int = -1
    held: Held = field(default_factory=set)
    wants: Held = field(default_factory=set)  # the last received assignment
    is_dead: bool = True  # until it starts

    def lose_all(self) -> None:
        self.generation = -1
        self.held, self.wants = set(), set()


def compacted(log: list[GroupRecord]) -> list[GroupRecord]:
    """Return the last record of each key."""
    last: dict[object, GroupRecord] = {}
    for record in log:
        kind = type(record).__name__.removesuffix("Forgotten")
        key = (kind, getattr(record, "member_id", None), getattr(record, "pattern", None))
        if kind == "ConsumerMember":
            key = (kind, getattr(record, "member_id", None), None)
        last.pop(key, None)
        last[key] = record
    return list(last.values())


def act(world: World, what: str, member: int, number: int) -> None:
    """Run one step."""
    client = world.clients[member % len(world.clients)]
    name = "tu"[number % 2]
    match what:
        case "wait":
            world.play.wait((1_000, 10_000, 50_000)[number % 3])
            world.check()
        case "classic":
            classic = world.classics[member % len(world.classics)]
            classic.is_dead = False
            world.classic_beat(classic)
        case "grow":
            world.counts[name] += 1
            world.play.image = cluster(world.counts, lives=world.lives)
        case "recreate":
            world.lives[name] += 1
            world.counts[name] = 1 + number % 3
            world.play.image = cluster(world.counts, lives=world.lives)
        case _:
            live(world, client, what, number)


def live(world: World, client: Client, what: str, number: int) -> None:
    """Run one valid step of a client."""
    match what:
        case "beat" | "lose":
            client.is_dead = False
            world.beat(client, is_lost=what == "lose")
        case "subscribe":
            client.topics = frozenset({"tu"[number % 2]})
            client.has_received = False
        case "leave":
            world.leave(client, -1)
        case "leave for a while" if client.instance_id is not None:
            world.leave(client, -2)
        case "die":
            client.is_dead = True
            world.end(client, is_new=client.instance_id is None)
        case _:
            send_wrong(world, client, what, number)


def send_wrong(world: World, client: Client, what: str, number: int) -> None:
    """Run one step of a client with wrong values."""
    match what:
        case "repeat" if client.sent:
            world.send(client, dict(client.sent), is_lost=True)
        case "wrong epoch":
            world.beat(client, member_epoch=number)
        case "wrong owned" if client.epoch > 0:
            topic = world.play.image.topics_by_name["tu"[number % 2]]
            world.beat(client, owned={topic: frozenset(range(number))} if number else {})
        case "omit owned" if client.epoch > 0:
            world.beat(client, owned=None)
        case _:
            pass


ACTIONS = (
    "beat",
    "lose",
    "repeat",
    "wrong epoch",
    "wrong owned",
    "omit owned",
    "subscribe",
    "leave",
    "leave for a while",
    "die",
    "wait",
    "classic",
    "grow",
    "recreate",
)
BUSY = ("beat", "beat", "beat", "lose", "classic", "wait")
STEP = st.tuples(
    st.sampled_from(BUSY + ACTIONS), st.integers(min_value=0, max_value=3), st.integers(0, 5)
)
# Lists are short where no example needs a long one.
SCRIPT = st.one_of(st.lists(STEP, max_size=15), st.lists(STEP, min_size=40, max_size=80))


@pytest.mark.slow
@settings(max_examples=60)
@given(SCRIPT)
@example([("beat", 0, 0), ("beat", 1, 0), ("beat", 0, 0), ("wrong owned", 0, 0)])
@example([("beat", 0, 0), ("beat", 2, 0), ("lose", 0, 0), ("beat", 0, 0), ("beat", 2, 0)])
def test_no_partition_has_two_owners_and_every_one_has_one_in_the_end(
    script: list[tuple[str, int, int]],
) -> None:
    world = World()
    for what, member, number in script:
        act(world, what, member, number)
    world.expect_equal_replay()
    world.expect_all_owned()
    world.expect_equal_replay()
