"""No partition ever has two owners, whatever members do; and in the end every one has one.

An owner is a member that has been told of a partition, and has not reported since that it does not
hold it. Members here are late, lose answers, send old heartbeats again, lie about epochs and about
what they own, die and come back, while topics are made, grow and go.
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
    """A consumer of KIP-848 and what it believes."""

    name: str
    instance_id: str | None
    life: int = 0
    epoch: int = 0
    topics: frozenset[str] = frozenset({"t"})
    held: Held = field(default_factory=set)  # told, and not reported as given back
    wants: Held = field(default_factory=set)  # as it was told last
    is_dead: bool = False
    is_heard: bool = True  # whether it got the last answer
    epochs: list[int] = field(default_factory=list)
    sent: dict[str, Any] = field(default_factory=dict)

    @property
    def member_id(self) -> str:
        return f"{self.name}.{self.life}"


class World:
    """Clients of one group, of both protocols, and the cluster that they read."""

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

    def beat(self, client: Client, *, is_lost: bool = False, **lies: Any) -> None:
        """It sends what it believes (or lies), and hears the answer unless that is lost."""
        if client.epoch == 0:
            said: dict[str, Any] = {"owned": {}}
        else:
            held = client.held & client.wants
            said = {"owned": nested(held)}
        if client.epoch == 0 or not client.is_heard:
            said |= {"rebalance_timeout_ms": REBALANCE_MS, "topics": client.topics}
        said |= {"instance_id": client.instance_id, "member_epoch": client.epoch} | lies
        client.sent = said
        self.send(client, dict(said), is_lost=is_lost)

    def send(self, client: Client, said: dict[str, Any], *, is_lost: bool) -> None:
        member_epoch = said.pop("member_epoch")
        before = self.play.machine.state.current_of(client.member_id)
        answer = self.play.ask(client.member_id, member_epoch, **said)
        if isinstance(answer, ConsumerBeat):
            if member_epoch not in (0, before.epoch):
                assert member_epoch == before.previous_epoch, "a fenced member is served"
                assert flat(said["owned"]) <= flat(before.assigned), "it has more than its own"
            if said.get("owned") is not None:
                client.held &= flat(said["owned"])
            if not is_lost:
                self.hear(client, answer)
        elif isinstance(answer, UnknownMember | FencedMemberEpoch | FencedInstance):
            assert self.play.last == ()
            if not is_lost:
                self.end(client)
        client.is_heard = not is_lost and isinstance(answer, ConsumerBeat)
        self.check()

    def hear(self, client: Client, answer: ConsumerBeat) -> None:
        assert not client.epochs or answer.member_epoch >= client.epochs[-1]
        client.epoch = answer.member_epoch
        client.epochs.append(answer.member_epoch)
        if answer.assignment is not None:
            client.wants = flat(answer.assignment)
            client.held |= client.wants

    def end(self, client: Client, *, is_new: bool = False) -> None:
        """It gives everything up; as a new process it has another id."""
        client.epoch, client.is_heard = 0, True
        client.held, client.wants, client.epochs = set(), set(), []
        client.life += 1 if is_new else 0

    def leave(self, client: Client, epoch: int) -> None:
        answer = self.play.ask(client.member_id, epoch, instance_id=client.instance_id)
        if isinstance(answer, ConsumerBeat):
            self.end(client, is_new=True)
        self.check()

    # --- members of the classic protocol ----------------------------------------------------------

    def classic_beat(self, client: "Classic") -> None:
        """A whole turn of it: heartbeat, and where it is told so, join and sync."""
        if client.generation >= 0:
            answer = self.play.classic_beat(client.name, client.generation)
            if isinstance(answer, UnknownMember | IllegalGeneration):
                client.lose_all()
            elif not isinstance(answer, RebalanceInProgress) and client.held == client.wants:
                return
        if client.version == 0:
            client.held.clear()  # eager: it gives all back before it joins
        client.held &= client.wants  # cooperative: what it was told to give back
        owned: dict[str, tuple[int, ...]] = {}
        for topic, index in sorted(client.held):
            image = self.play.image.topic_of_id(topic)
            if image is not None:
                owned[image.name] = (*owned.get(image.name, ()), index)
        said = subscription("t", version=client.version, owned=owned)
        protocols = (("strategy", said),)
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

    # --- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        """Nobody owns what another owns, and no epoch goes back."""
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
                assert error is not None, f"{client.member_id} commits and is no member"

    def expect_all_owned(self) -> None:
        """Everybody is honest from now on and asks anew, the dead stay dead: it comes to rest."""
        for client in self.clients:
            client.is_heard = False
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

    def expect_log_to_say_so(self) -> None:
        """Who reads the whole log, or what compaction leaves of it, has the same state."""
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
    wants: Held = field(default_factory=set)  # as it was told last
    is_dead: bool = True  # until it starts

    def lose_all(self) -> None:
        self.generation = -1
        self.held, self.wants = set(), set()


def compacted(log: list[GroupRecord]) -> list[GroupRecord]:
    """The last record of each key."""
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
    """One step of the world."""
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
        case "make anew":
            world.lives[name] += 1
            world.counts[name] = 1 + number % 3
            world.play.image = cluster(world.counts, lives=world.lives)
        case _:
            live(world, client, what, number)


def live(world: World, client: Client, what: str, number: int) -> None:
    """One honest step of a client."""
    match what:
        case "beat" | "lose":
            client.is_dead = False
            world.beat(client, is_lost=what == "lose")
        case "wish":
            client.topics = frozenset({"tu"[number % 2]})
            client.is_heard = False
        case "leave":
            world.leave(client, -1)
        case "leave for a while" if client.instance_id is not None:
            world.leave(client, -2)
        case "die":
            client.is_dead = True
            world.end(client, is_new=client.instance_id is None)
        case _:
            lie(world, client, what, number)


def lie(world: World, client: Client, what: str, number: int) -> None:
    """One step of a client that says what is not so."""
    match what:
        case "repeat" if client.sent:
            world.send(client, dict(client.sent), is_lost=True)
        case "lie about epoch":
            world.beat(client, member_epoch=number)
        case "lie about owned" if client.epoch > 0:
            topic = world.play.image.topics_by_name["tu"[number % 2]]
            world.beat(client, owned={topic: frozenset(range(number))} if number else {})
        case "say nothing" if client.epoch > 0:
            world.beat(client, owned=None)
        case _:
            pass


ACTIONS = (
    "beat",
    "lose",
    "repeat",
    "lie about epoch",
    "lie about owned",
    "say nothing",
    "wish",
    "leave",
    "leave for a while",
    "die",
    "wait",
    "classic",
    "grow",
    "make anew",
)
BUSY = ("beat", "beat", "beat", "lose", "classic", "wait")
STEP = st.tuples(
    st.sampled_from(BUSY + ACTIONS), st.integers(min_value=0, max_value=3), st.integers(0, 5)
)
# Lists are short where nothing asks for more.
SCRIPT = st.one_of(st.lists(STEP, max_size=15), st.lists(STEP, min_size=40, max_size=80))


@pytest.mark.slow
@settings(max_examples=60)
@given(SCRIPT)
@example([("beat", 0, 0), ("beat", 1, 0), ("beat", 0, 0), ("lie about owned", 0, 0)])
@example([("beat", 0, 0), ("beat", 2, 0), ("lose", 0, 0), ("beat", 0, 0), ("beat", 2, 0)])
def test_no_partition_has_two_owners_and_every_one_has_one_in_the_end(
    script: list[tuple[str, int, int]],
) -> None:
    world = World()
    for what, member, number in script:
        act(world, what, member, number)
    world.expect_log_to_say_so()
    world.expect_all_owned()
    world.expect_log_to_say_so()
