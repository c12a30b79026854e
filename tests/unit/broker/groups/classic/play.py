"""A classic group with its clock and its callers, driven step by step.

Every step checks the invariants of the group, and that no request is answered twice.
"""

from collections.abc import Sequence
from struct import pack
from typing import TypeVar

from quorumlog.broker.coordinator.decision import Answered, Ticket
from quorumlog.broker.groups.classic_group import ClassicGroupMachine
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.records import ClassicGroup, GroupDecision, GroupRecord
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOffsets,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Left,
    Synced,
    SyncGroup,
)
from quorumlog.errors import QuorumlogError

E = TypeVar("E", bound=QuorumlogError)

START_MS = 1_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
SMALL = 20
"""A group up to this size is described before and after each heartbeat."""
CONFIG = GroupConfig()
PROTOCOLS = (("range", b"r"), ("roundrobin", b"b"))


def subscription(*topics: str, tail: bytes = b"\xff\xff\xff\xff") -> bytes:
    """Return a consumer's subscription of version 0. `tail`: user data, by default none."""
    contents = [topic.encode() for topic in topics]
    names = b"".join(pack(">h", len(content)) + content for content in contents)
    return pack(">hi", 0, len(topics)) + names + tail


class Play:
    """One group. A request returns a ticket; `answer` and `error` return its outcome."""

    def __init__(self, config: GroupConfig = CONFIG, *, drawn: int = 0) -> None:
        self.config = config
        self.now_ms = START_MS
        self._drawn = drawn  # ids so far
        self._tickets = 0
        self.machine = ClassicGroupMachine("g", config, self._draw)
        self.outcomes: dict[Ticket, object] = {}
        self.records: list[GroupRecord] = []

    def _draw(self) -> str:
        self._drawn += 1
        return str(self._drawn)

    def _ticket(self) -> Ticket:
        self._tickets += 1
        return Ticket(self._tickets)

    def see(self, decision: GroupDecision) -> None:
        """Apply a decision."""
        for reply in decision.replies:
            assert reply.ticket not in self.outcomes, f"{reply.ticket} is answered twice"
            outcome = reply.outcome if isinstance(reply, Answered) else reply.error
            self.outcomes[reply.ticket] = outcome
        self.records += decision.records
        self.machine.check_invariants()

    # --- asking -----------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        client: str = "c",
        protocols: Sequence[tuple[str, bytes]] = PROTOCOLS,
        kind: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        takes_id_first: bool = False,
        can_skip: bool = True,
    ) -> Ticket:
        ticket = self._ticket()
        request = JoinGroup(
            group="g",
            member_id=member_id,
            instance_id=instance,
            client_id=client,
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=kind,
            protocols=tuple(protocols),
            takes_member_id_first=takes_id_first,
            can_skip_assignment=can_skip,
        )
        self.see(self.machine.join(ticket, request, self.now_ms))
        return ticket

    def sync(
        self,
        joined: Joined,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        generation: int | None = None,
        kind: str | None = None,
        protocol: str | None = None,
    ) -> Ticket:
        ticket = self._ticket()
        request = SyncGroup(
            group="g",
            member_id=joined.member_id,
            instance_id=instance,
            generation=joined.generation if generation is None else generation,
            protocol_type=kind,
            protocol=protocol,
            assignments=assignments or {},
        )
        self.see(self.machine.sync(ticket, request, self.now_ms))
        return ticket

    def beat(self, member_id: str, generation: int, *, instance: str | None = None) -> object:
        """Send a heartbeat. Return None or its error."""
        ticket = self._ticket()
        request = ClassicHeartbeat(
            group="g", member_id=member_id, instance_id=instance, generation=generation
        )
        is_renewed = self.machine.renew_session(request, self.now_ms)
        due_ms = self.machine.deadline_ms()
        is_small = self.machine.member_count <= SMALL
        described = self.machine.describe(self.now_ms) if is_small else None
        decision = self.machine.heartbeat(ticket, request, self.now_ms)
        self.see(decision)
        if is_renewed:  # the heartbeat has no further effect
            assert self.outcomes[ticket] is None
            assert not decision.records
            assert self.machine.deadline_ms() == due_ms
            assert not is_small or self.machine.describe(self.now_ms) == described
        return self.outcomes[ticket]

    def leave(self, *leavers: Leaver | str) -> list[QuorumlogError | None]:
        ticket = self._ticket()
        named = tuple(
            Leaver(member_id=leaver) if isinstance(leaver, str) else leaver for leaver in leavers
        )
        self.see(self.machine.leave(ticket, LeaveGroup(group="g", leavers=named), self.now_ms))
        left = self.outcomes[ticket]
        assert isinstance(left, Left)
        return list(left.errors)

    def commit(
        self, member_id: str = "", generation: int = -1, *, instance: str | None = None
    ) -> None:
        """Commit offsets, which renews the session. Raise the error of a refusal."""
        request = CommitOffsets(
            group="g",
            member_id=member_id,
            instance_id=instance,
            generation=generation,
            offsets=(),
        )
        self.machine.check_commit(request, self.now_ms)

    def wait(self, for_ms: int) -> None:
        """Let time pass in the steps that the group's deadlines require."""
        end_ms = self.now_ms + for_ms
        for _ in range(10_000):
            deadline_ms = self.machine.deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.see(self.machine.expire(self.now_ms))
        else:
            raise AssertionError("the machine returns the same deadline again and again")
        self.now_ms = end_ms

    # --- seeing -----------------------------------------------------------------------------------

    def waits(self, *tickets: Ticket) -> bool:
        """Return True if none of the tickets is answered."""
        return not any(ticket in self.outcomes for ticket in tickets)

    def joined(self, ticket: Ticket) -> Joined:
        outcome = self.outcomes[ticket]
        assert isinstance(outcome, Joined), f"{outcome!r}"
        return outcome

    def assignment(self, ticket: Ticket) -> bytes:
        outcome = self.outcomes[ticket]
        assert isinstance(outcome, Synced), f"{outcome!r}"
        return outcome.assignment

    def error(self, ticket: Ticket, kind: type[E]) -> E:
        outcome = self.outcomes[ticket]
        assert isinstance(outcome, kind), f"{outcome!r}"
        return outcome

    @property
    def state(self) -> str:
        return self.machine.listing().state

    @property
    def stored(self) -> ClassicGroup:
        """Return the last stored record."""
        record = self.records[-1]
        assert isinstance(record, ClassicGroup), f"{record!r}"
        return record

    # --- groups to begin with ---------------------------------------------------------------------

    def gather(self, *tickets: Ticket) -> list[Joined]:
        """Complete the first join phase of these tickets."""
        while self.waits(*tickets):
            self.wait(self.config.initial_delay_ms)
        return [self.joined(ticket) for ticket in tickets]

    def settle(self, members: Sequence[Joined]) -> dict[str, bytes]:
        """Sync all members, the leader with an assignment for each. Return the assignments by
        member id."""
        leader = members[0].leader
        parts = {m.member_id: f"{m.member_id}/{m.generation}".encode() for m in members}
        tickets = {m.member_id: self.sync(m) for m in members if m.member_id != leader}
        led = next(m for m in members if m.member_id == leader)
        tickets[leader] = self.sync(led, parts)
        given = {member_id: self.assignment(ticket) for member_id, ticket in tickets.items()}
        assert given == parts
        return given

    def stable(
        self,
        count: int,
        *,
        protocols: Sequence[tuple[str, bytes]] = PROTOCOLS,
        session_ms: int = SESSION_MS,
    ) -> list[Joined]:
        """Return a stable group of new members, the leader first."""
        members = self.gather(
            *[self.join(protocols=protocols, session_ms=session_ms) for _ in range(count)]
        )
        self.settle(members)
        return members

    def stable_static(
        self, *instances: str, protocols: Sequence[tuple[str, bytes]] = PROTOCOLS
    ) -> list[Joined]:
        """Return a stable group of static members, the leader first."""
        members = self.gather(*[self.join(instance=i, protocols=protocols) for i in instances])
        self.settle(members)
        return members
