"""A classic group with members that join, stall, leave, crash, restart and send invalid requests,
and with coordinators that move: the invariants hold at every step."""

from dataclasses import dataclass, field
from typing import TypeAlias

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from quorumlog.broker.coordinator.decision import Answered, Ticket
from quorumlog.broker.groups.classic_group import ClassicGroupMachine
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.records import ClassicGroup, GroupDecision
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOffsets,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Synced,
    SyncGroup,
)
from quorumlog.errors import FencedInstance, QuorumlogError, UnknownMember

Request: TypeAlias = JoinGroup | SyncGroup | ClassicHeartbeat | LeaveGroup

CONFIG = GroupConfig(size_max=5)
PROGRAMS = 8
OFFERS = (("x", "y"), ("y", "x"), ("x",), ("y", "z"), ("z", "x", "y"))
SESSION_MS, REBALANCE_MS = 10_000, 30_000
CLIENT = st.integers(0, PROGRAMS - 1)


@dataclass(slots=True)
class Program:
    """A client that sends valid requests."""

    number: int
    instance_id: str | None
    offer: tuple[str, ...]
    lives: int = 0  # distinguishes its subscriptions
    member_id: str = ""
    generation: int = -1
    ticket: Ticket | None = None  # of its pending request
    joined: Joined | None = None  # without a sync yet
    is_stable: bool = False

    def forget(self) -> None:
        """Reset the state after a restart."""
        self.lives += 1
        self.member_id, self.generation = "", -1
        self.ticket = self.joined = None
        self.is_stable = False

    @property
    def protocols(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((name, f"{self.number}.{self.lives}".encode()) for name in self.offer)


@dataclass(slots=True)
class Generation:
    """The content of the responses of one generation."""

    leader: str  # static name, or member id
    protocol: str | None
    assigned: dict[str, bytes] = field(default_factory=dict)  # by static name or id


class ClassicGroups(RuleBasedStateMachine):
    """Clients of one group."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.drawn = 0
        self.tickets = 0
        self.programs = [
            Program(number, f"s{number}" if number < 3 else None, OFFERS[number % len(OFFERS)])
            for number in range(PROGRAMS)
        ]
        self.names: dict[str, str] = {}  # member id: static name, or itself
        self.committed: ClassicGroup | None = None
        self.become_coordinator()

    def become_coordinator(self) -> None:
        self.asked: dict[Ticket, tuple[Request, Program | None]] = {}
        self.open: set[Ticket] = set()
        self.generations: dict[int, Generation] = {}
        self.machine = ClassicGroupMachine("g", CONFIG, self.draw_id)

    def draw_id(self) -> str:
        self.drawn += 1
        return str(self.drawn)

    # --- requests and responses -------------------------------------------------------------------

    def ask(self, request: Request, program: Program | None = None) -> None:
        self.tickets += 1
        ticket = Ticket(self.tickets)
        self.asked[ticket] = request, program
        self.open.add(ticket)
        if program is not None:
            program.ticket = ticket
        match request:
            case JoinGroup():
                self.apply(self.machine.join(ticket, request, self.now_ms))
            case SyncGroup():
                self.apply(self.machine.sync(ticket, request, self.now_ms))
            case ClassicHeartbeat():
                self.apply(self.machine.heartbeat(ticket, request, self.now_ms))
            case LeaveGroup():
                self.apply(self.machine.leave(ticket, request, self.now_ms))

    def apply(self, decision: GroupDecision) -> None:
        for record in decision.records:
            assert isinstance(record, ClassicGroup)
            self.committed = record
        for reply in decision.replies:  # the request of the leader may be named before its response
            request, _ = self.asked[reply.ticket]
            if isinstance(request, JoinGroup) and isinstance(reply, Answered):
                self.names[reply.outcome.member_id] = request.instance_id or self.name(
                    reply.outcome.member_id
                )
        for reply in decision.replies:
            assert reply.ticket in self.open, f"{reply.ticket} has two responses"
            self.open.discard(reply.ticket)
            request, program = self.asked[reply.ticket]
            outcome = reply.outcome if isinstance(reply, Answered) else reply.error
            if isinstance(outcome, Joined) and not outcome.is_member_id_required:
                assert isinstance(request, JoinGroup)
                self.check_joined(request, outcome)
            elif isinstance(outcome, Synced):
                assert isinstance(request, SyncGroup)
                self.check_synced(request, outcome)
            if program is not None and program.ticket == reply.ticket:
                program.ticket = None
                self.learn(program, outcome)
        self.check()

    def learn(self, program: Program, outcome: object) -> None:
        """Apply a response as a client does."""
        if isinstance(outcome, Joined):
            program.member_id = outcome.member_id
            if not outcome.is_member_id_required:
                program.generation, program.joined = outcome.generation, outcome
                program.is_stable = False
        elif isinstance(outcome, Synced):
            program.joined, program.is_stable = None, True
        elif isinstance(outcome, UnknownMember | FencedInstance):
            program.forget()
        elif isinstance(outcome, QuorumlogError):
            program.joined, program.is_stable = None, False

    # --- invariants -------------------------------------------------------------------------------

    def check(self) -> None:
        self.machine.check_invariants()
        seen = self.machine.describe()
        known = self.machine.protocols()
        assert len(seen.members) <= 2 * CONFIG.size_max
        assert [m.member_id for m in seen.members] == list(known)
        statics = [m.instance_id for m in seen.members if m.instance_id is not None]
        assert len(statics) == len(set(statics)), "a static name twice"
        if seen.state == "Stable":
            assert self.committed is not None, "stable and not stored"
            assert self.committed.generation == seen.generation
            stored = {m.member_id: m.assignment for m in self.committed.members}
            assert stored == {m.member_id: m.assignment for m in seen.members}
            assert all(seen.protocol in dict(protocols) for protocols in known.values())

    def name(self, member_id: str) -> str:
        return self.names.get(member_id, member_id)

    def check_joined(self, request: JoinGroup, joined: Joined) -> None:
        """Check that all responses of a generation have one leader and one protocol."""
        assigned = self.generations.setdefault(
            joined.generation, Generation(self.name(joined.leader), joined.protocol)
        )
        assert assigned.leader == self.name(joined.leader), "two leaders"
        assert assigned.protocol == joined.protocol, "two protocols"
        assert joined.protocol in dict(request.protocols), (
            "a protocol that the member did not offer"
        )
        if joined.members:
            assert joined.leader == joined.member_id, "a follower gets all members"
            assert joined.member_id in [m.member_id for m in joined.members]

    def check_synced(self, request: SyncGroup, synced: Synced) -> None:
        """Check that each member gets its own part of one assignment."""
        name = self.name(request.member_id)
        if synced.assignment:
            generation, owner = synced.assignment.decode().split("|")
            assert int(generation) == request.generation, "a part of another generation"
            assert self.name(owner) == name, "the part of another member"
        assigned = self.generations.get(request.generation)
        if assigned is not None:
            assert assigned.assigned.setdefault(name, synced.assignment) == synced.assignment
            assert synced.protocol == assigned.protocol

    # --- rules ------------------------------------------------------------------------------------

    @rule(which=CLIENT, takes_id_first=st.booleans(), can_skip=st.booleans())
    def step(self, which: int, takes_id_first: bool, can_skip: bool) -> None:
        """A client sends its next request."""
        program = self.programs[which]
        if program.ticket is not None:
            return
        if program.joined is not None:
            self.sync(program, program.joined)
        elif program.is_stable:
            self.beat(program)
        else:
            self.join(program, takes_id_first, can_skip)

    @rule(count=st.integers(1, 3))
    def all_step(self, count: int) -> None:
        for _ in range(count):
            for which in range(PROGRAMS - 2):
                self.step(which, True, True)

    def join(self, program: Program, takes_id_first: bool, can_skip: bool) -> None:
        request = JoinGroup(
            group="g",
            member_id=program.member_id,
            instance_id=program.instance_id,
            client_id=f"p{program.number}",
            client_host="",
            session_timeout_ms=SESSION_MS + 1_000 * program.number,
            rebalance_timeout_ms=REBALANCE_MS - 1_000 * program.number,
            protocol_type="consumer",
            protocols=program.protocols,
            takes_member_id_first=takes_id_first,
            can_skip_assignment=can_skip,
        )
        self.ask(request, program)

    def sync(self, program: Program, joined: Joined) -> None:
        parts = {m.member_id: f"{joined.generation}|{m.member_id}".encode() for m in joined.members}
        request = SyncGroup(
            group="g",
            member_id=joined.member_id,
            instance_id=program.instance_id,
            generation=joined.generation,
            protocol_type=joined.protocol_type,
            protocol=joined.protocol,
            assignments={} if joined.skip_assignment else parts,
        )
        self.ask(request, program)

    def beat(self, program: Program) -> None:
        request = ClassicHeartbeat(
            group="g",
            member_id=program.member_id,
            instance_id=program.instance_id,
            generation=program.generation,
        )
        self.ask(request, program)

    @rule(which=CLIENT, offer=st.sampled_from(OFFERS))
    def resubscribes(self, which: int, offer: tuple[str, ...]) -> None:
        """A client changes its subscription and joins, even if a request is pending."""
        program = self.programs[which]
        program.offer = offer
        program.lives += 1
        program.joined = None
        self.join(program, True, True)

    @rule(which=CLIENT)
    def retries(self, which: int) -> None:
        """A client reconnects and repeats its request of unknown outcome."""
        program = self.programs[which]
        if program.ticket is not None:
            request, _ = self.asked[program.ticket]
            self.ask(request, program)

    @rule(which=CLIENT)
    def crashes(self, which: int) -> None:
        self.programs[which].forget()

    @rule(which=CLIENT)
    def leaves(self, which: int) -> None:
        program = self.programs[which]
        if program.member_id and program.instance_id is None:
            leaver = Leaver(member_id=program.member_id)
            program.forget()
            self.ask(LeaveGroup(group="g", leavers=(leaver,)))

    @rule(which=st.lists(CLIENT, max_size=3))
    def administrator_removes(self, which: list[int]) -> None:
        named = [self.programs[each].instance_id for each in which]
        leavers = tuple(Leaver(member_id="", instance_id=name) for name in named)
        self.ask(LeaveGroup(group="g", leavers=leavers))

    @precondition(lambda self: self.drawn)
    @rule(
        data=st.data(),
        by=st.integers(-2, 2),
        kind=st.sampled_from(["join", "sync", "beat", "leave", "commit"]),
    )
    def sends_wrong_ids(self, data: st.DataObject, by: int, kind: str) -> None:
        """A request has the ids of another member, or another generation."""
        ids = [m.member_id for m in self.machine.describe().members] or ["unknown"]
        member_id = data.draw(st.sampled_from([*ids, *self.names, ""]))
        instance_id = data.draw(st.sampled_from([None, None, "s0", "s1", "never"]))
        generation = self.machine.describe().generation + by
        if kind == "sync":
            parts = {each: f"{generation}|{each}".encode() for each in ids[1:]}
            self.ask(
                SyncGroup(
                    group="g",
                    member_id=member_id,
                    instance_id=instance_id,
                    generation=generation,
                    assignments=parts,
                )
            )
        elif kind == "beat":
            self.ask(
                ClassicHeartbeat(
                    group="g", member_id=member_id, instance_id=instance_id, generation=generation
                )
            )
        elif kind == "leave":
            leaver = Leaver(member_id=member_id, instance_id=instance_id)
            self.ask(LeaveGroup(group="g", leavers=(leaver,)))
        elif kind == "join":
            stranger = Program(99, instance_id, OFFERS[by % len(OFFERS)], member_id=member_id)
            self.join(stranger, bool(by % 2), True)
        else:
            self.commit(member_id, instance_id, generation)

    def commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Check that only members of the current generation commit, and only while they own
        partitions."""
        request = CommitOffsets(
            group="g",
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            offsets=(),
        )
        seen = self.machine.describe()
        try:
            self.machine.check_commit(request, self.now_ms)
        except QuorumlogError:
            return
        if seen.state == "Empty":
            assert generation < 0
            return
        [member] = [m for m in seen.members if m.member_id == member_id]
        assert instance_id in (None, member.instance_id)
        assert generation == seen.generation
        assert seen.state != "CompletingRebalance"

    @rule(ms=st.sampled_from([1, 500, 3_000, 3_000, 9_000, 35_000]))
    def time_passes(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        for _ in range(200):
            deadline_ms = self.machine.deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.apply(self.machine.expire(self.now_ms))
        else:
            raise AssertionError("the deadline does not advance")
        self.now_ms = end_ms

    @precondition(lambda self: self.committed is not None)
    @rule(takes_ms=st.integers(0, 20_000))
    def the_coordinator_moves(self, takes_ms: int) -> None:
        """Pending requests get no response: clients repeat them at another coordinator."""
        assert self.committed is not None
        for program in self.programs:
            if program.ticket is not None:
                program.ticket = program.joined = None
                program.is_stable = False
        self.become_coordinator()
        self.machine.load(self.committed, self.now_ms)
        self.now_ms += takes_ms
        self.apply(self.machine.take_over(self.now_ms))

    def teardown(self) -> None:
        """Without more requests, every pending request gets a response, and the group becomes
        empty."""
        self.time_passes(1_000_000)
        assert not self.open, f"{self.open} have no response"
        assert self.machine.is_empty
        assert self.machine.listing().state == "Empty"
        assert self.machine.deadline_ms() is None


TestClassicGroups = pytest.mark.slow(ClassicGroups.TestCase)
