"""Members and generations of a classic group: the rebalance state machine.

    Empty --first join--> PreparingRebalance --all joined, or timeout--> CompletingRebalance
      ^                     |          ^                                    |      |
      +--no member left-----+          +--member joins, leaves or changes---+      |
                                       |                                           |
                                       +------------------- Stable <--leader syncs-+

A generation starts when the joins are answered, and is stored when its leader has sent the
assignments (sync). A generation that was not stored is lost with its coordinator, and its members
join again. The reply of a sync is in the decision that stores the assignment, or in a later one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...errors import FencedInstance, QuorumlogError, RebalanceInProgress, UnknownMember
from ..coordinator.deadlines import DeadlineQueue
from ..coordinator.decision import Ticket
from .classic_members import PREVIOUS_STATES, ClassicGroupState, ClassicMember, Roster
from .config import GroupConfig
from .records import NO_TIME_MS, ClassicGroup, GroupDecisionBuilder
from .requests import Joined, JoinedMember, Synced

NEW_MEMBER_JOIN_MS: Final = 300_000
"""The session timeout of a member that has not been in a generation yet. Its client may have
disconnected without receiving the member id, so no other timeout would remove the member. Kafka
uses the same value."""
JOIN_PHASE_MS_MIN: Final = 1_000
"""The minimum length of another join phase after one in which no member joined."""


@dataclass(slots=True, kw_only=True)
class JoinPhase:
    """The join phase of a rebalance; exists only in state PreparingRebalance."""

    end_ms: int
    first_since_ms: int | None = None  # set if the group was empty: a longer phase
    has_grown: bool = False  # since `end_ms` was last extended


class ClassicRebalance:
    """The members and the state of one group; `ClassicGroupMachine` validates requests."""

    __slots__ = (
        "_config", "_join_phase", "_sync_end_ms", "_unsynced", "generation", "group", "leader",
        "protocol", "roster", "sessions", "state", "state_ms",
    )  # fmt: skip

    def __init__(self, group: str, config: GroupConfig) -> None:
        self.group = group
        self._config = config
        self.roster = Roster()
        self.sessions: DeadlineQueue[str] = DeadlineQueue()  # by (pending) member id
        self.state = ClassicGroupState.EMPTY
        self.state_ms = NO_TIME_MS
        self.generation = 0
        self.protocol: str | None = None
        self.leader: str | None = None  # a member id; set from the end of the join phase
        self._join_phase: JoinPhase | None = None
        self._sync_end_ms: int | None = None  # then members in `_unsynced` are removed
        self._unsynced: dict[str, None] = {}  # joined the generation and have not synced

    # --- joins ------------------------------------------------------------------------------------

    def add_pending(
        self, member_id: str, session_timeout_ms: int, builder: GroupDecisionBuilder
    ) -> None:
        """Record an issued member id; the next generation waits for it until its session
        expires."""
        self.roster.pending.add(member_id)
        self.sessions.set(member_id, builder.now_ms + session_timeout_ms)

    def add(
        self,
        member: ClassicMember,
        protocol_type: str,
        ticket: Ticket,
        builder: GroupDecisionBuilder,
    ) -> None:
        """Add a new member; its join waits for the next generation."""
        self.roster.add(member, protocol_type)
        if self._join_phase is not None:
            self._join_phase.has_grown = True
        self._wait(member, ticket, builder)
        self._rebalance_or_complete(builder)

    def rejoin(self, member: ClassicMember, ticket: Ticket, builder: GroupDecisionBuilder) -> None:
        """Have a member's join wait for the next generation."""
        self._wait(member, ticket, builder)
        self._rebalance_or_complete(builder)

    def replace(
        self, old: ClassicMember, new: ClassicMember, builder: GroupDecisionBuilder
    ) -> None:
        """Replace a static member that joined again with a new id; the new one keeps the
        assignment.

        Pending requests of the old id are fenced. The join of the new one does not wait yet.
        """
        assert old.instance_id == new.instance_id, f"{old.instance_id!r} {new.instance_id!r}"
        self._fail_waiting(
            old,
            FencedInstance(
                f"group {self.group!r}: static member {old.instance_id!r} joined again as"
                f" {new.member_id!r}; stop this instance"
            ),
            builder,
        )
        protocol_type = self.roster.protocol_type
        self.roster.remove(old)
        self.sessions.drop(old.member_id)
        new.assignment = old.assignment
        new.is_new = False
        self.roster.add(new, protocol_type)
        self.restart_session(new, builder.now_ms)
        if self.leader == old.member_id:
            self.leader = new.member_id
        if old.member_id in self._unsynced:
            del self._unsynced[old.member_id]
            self._unsynced[new.member_id] = None

    def _wait(self, member: ClassicMember, ticket: Ticket, builder: GroupDecisionBuilder) -> None:
        """Record a waiting join; the session of a member that is not new is suspended until the
        reply."""
        if member.joining is not None:
            # sometimes: a waiting join is repeated
            self._fail_repeated(self.roster.pop_join(member), member, builder)
        self.roster.wait(member, ticket)
        if member.is_new:
            self.sessions.set(member.member_id, builder.now_ms + NEW_MEMBER_JOIN_MS)
        else:
            self.sessions.drop(member.member_id)

    def _fail_repeated(
        self, ticket: Ticket, member: ClassicMember, builder: GroupDecisionBuilder
    ) -> None:
        """Fail an earlier request that the member has repeated."""
        text = f"group {self.group!r}: member {member.member_id!r} repeated its request"
        builder.fail(ticket, RebalanceInProgress(f"{text}; use the answer of the later request"))

    # --- sessions and removals --------------------------------------------------------------------

    def restart_session(self, member: ClassicMember, now_ms: int) -> None:
        """Restart the member's session; it is suspended while its join or sync waits."""
        if member.joining is None and member.syncing is None:
            self.sessions.set(member.member_id, now_ms + member.session_timeout_ms)

    def silent_ms(self, member: ClassicMember, now_ms: int | None) -> int:
        """Return the time since the member's last request; -1: unknown."""
        if now_ms is None:
            return -1
        end_ms = self.sessions.get(member.member_id)
        if end_ms is None:
            return 0  # its join or sync is waiting
        return max(0, now_ms - end_ms + member.session_timeout_ms)

    def restart_deadlines(self, builder: GroupDecisionBuilder) -> None:
        """Restart all sessions and timeouts after requests were refused for a while."""
        for member in self.roster:
            self.restart_session(member, builder.now_ms)
        whole_ms = builder.now_ms + self.roster.rebalance_timeout_ms
        if self._sync_end_ms is not None:
            self._sync_end_ms = whole_ms
        if self._join_phase is not None and self._join_phase.first_since_ms is None:
            self._join_phase.end_ms = max(self._join_phase.end_ms, whole_ms)

    def remove_pending(self, member_id: str) -> None:
        """Remove an issued member id; call `finish_removals` after the last removal."""
        self.roster.pending.discard(member_id)
        self.sessions.drop(member_id)

    def remove(self, member: ClassicMember, builder: GroupDecisionBuilder) -> None:
        """Remove a member; call `finish_removals` after the last removal."""
        self._fail_waiting(
            member,
            UnknownMember(
                f"group {self.group!r}: member {member.member_id!r} was removed; join again"
                " without a member id"
            ),
            builder,
        )
        self.roster.remove(member)
        self.sessions.drop(member.member_id)
        self._unsynced.pop(member.member_id, None)
        if self.leader == member.member_id:
            self.leader = None

    def finish_removals(self, builder: GroupDecisionBuilder, *, has_lost: bool) -> None:
        """Continue after removals: of members (`has_lost`), or only of issued member ids."""
        if has_lost:
            self._rebalance_or_complete(builder)
        else:
            self._maybe_complete_join(builder)

    def _fail_waiting(
        self, member: ClassicMember, error: QuorumlogError, builder: GroupDecisionBuilder
    ) -> None:
        """Fail the waiting join and sync of a member."""
        if member.joining is not None:
            builder.fail(self.roster.pop_join(member), error)
        self._fail_sync(member, error, builder)

    def _fail_sync(
        self, member: ClassicMember, error: QuorumlogError, builder: GroupDecisionBuilder
    ) -> None:
        if member.syncing is not None:
            builder.fail(member.syncing, error)
            member.syncing = None

    def end(self, error: QuorumlogError | None, builder: GroupDecisionBuilder) -> None:
        """End the group; waiting requests fail with `error`, else with UnknownMember."""
        for member in self.roster:
            gone = UnknownMember(
                f"group {self.group!r}: the group was deleted; member {member.member_id!r} must"
                " join again without a member id"
            )
            self._fail_waiting(member, gone if error is None else error, builder)
        self.sessions.clear()
        self.roster = Roster()
        self._join_phase = None
        self._clear_syncs()
        self.leader = self.protocol = None
        self._become(ClassicGroupState.DEAD, builder.now_ms)

    # --- join phase -------------------------------------------------------------------------------

    def _rebalance_or_complete(self, builder: GroupDecisionBuilder) -> None:
        """Start a rebalance, or complete the join phase if all members have joined."""
        if self._join_phase is None:
            self.start_rebalance(builder)
        else:
            self._maybe_complete_join(builder)

    def start_rebalance(self, builder: GroupDecisionBuilder) -> None:
        """Start a rebalance: all members must join again."""
        if self.state is ClassicGroupState.COMPLETING:
            # sometimes: a rebalance begins before the last assignment
            self._fail_syncs(builder)
        self._clear_syncs()
        now_ms = builder.now_ms
        if self.state is ClassicGroupState.EMPTY:
            end_ms = now_ms + self._config.initial_delay_ms
            self._join_phase = JoinPhase(end_ms=end_ms, first_since_ms=now_ms)
            self._become(ClassicGroupState.PREPARING, now_ms)
        else:
            self._join_phase = JoinPhase(end_ms=now_ms + self.roster.rebalance_timeout_ms)
            self._become(ClassicGroupState.PREPARING, now_ms)
            self._maybe_complete_join(builder)

    def _fail_syncs(self, builder: GroupDecisionBuilder) -> None:
        """Fail the waiting syncs: the generation ends before the leader's assignments; previous
        assignments stay."""
        error = RebalanceInProgress(
            f"group {self.group!r}: generation {self.generation} ended before it was assigned;"
            " join again"
        )
        for member in self.roster:
            if member.syncing is not None:
                self._fail_sync(member, error, builder)
                self.restart_session(member, builder.now_ms)

    def _clear_syncs(self) -> None:
        self._unsynced.clear()
        self._sync_end_ms = None

    def _maybe_complete_join(self, builder: GroupDecisionBuilder) -> None:
        """Complete the join phase if no member has to be waited for."""
        phase = self._join_phase
        if phase is None or phase.first_since_ms is not None:
            return
        if not self.roster.members or self.roster.all_joined:
            self._complete_join(builder)

    def _join_timed_out(self, phase: JoinPhase, builder: GroupDecisionBuilder) -> None:
        """Handle the timeout of the join phase.

        The first join phase of an empty group is extended while members arrive, up to the rebalance
        timeout.
        """
        since_ms = phase.first_since_ms
        if since_ms is not None and phase.has_grown:
            limit_ms = since_ms + self.roster.rebalance_timeout_ms
            if builder.now_ms < limit_ms:
                phase.has_grown = False
                phase.end_ms = min(builder.now_ms + self._config.initial_delay_ms, limit_ms)
                return
        self._complete_join(builder)

    def _complete_join(self, builder: GroupDecisionBuilder) -> None:
        """Complete the join phase: start the next generation with the members that joined, and with
        absent static members.

        If only static members are left and none has joined, the join phase is repeated, since no
        member could lead.
        """
        absent = [m for m in self.roster if m.joining is None and m.instance_id is None]
        for member in absent:
            # sometimes: a member misses a rebalance
            self.remove(member, builder)
        if self.roster.members and not self.roster.waiting_count:
            wait_ms = max(self.roster.rebalance_timeout_ms, JOIN_PHASE_MS_MIN)
            self._join_phase = JoinPhase(end_ms=builder.now_ms + wait_ms)
            return
        self._join_phase = None
        self.generation += 1
        if not self.roster.members:
            self.protocol = self.leader = None
            self._become(ClassicGroupState.EMPTY, builder.now_ms)
            builder.store(self.record())
            return
        self.protocol = self.roster.choose_protocol()
        self._choose_leader()
        self._become(ClassicGroupState.COMPLETING, builder.now_ms)
        self._answer_joins(builder)

    def _choose_leader(self) -> None:
        """Keep the leader if it joined, else choose the first member that did; O(members)."""
        leader = None if self.leader is None else self.roster.members[self.leader]
        if leader is None or leader.joining is None:
            self.leader = next(m.member_id for m in self.roster if m.joining is not None)

    def _answer_joins(self, builder: GroupDecisionBuilder) -> None:
        """Answer the joins, and wait for the syncs."""
        for member in self.roster:
            if member.joining is None:
                continue  # an absent static member: it joins in time or its session expires
            builder.answer(self.roster.pop_join(member), self.joined(member))
            member.is_new = False
            self.restart_session(member, builder.now_ms)
            self._unsynced[member.member_id] = None
        self._sync_end_ms = builder.now_ms + self.roster.rebalance_timeout_ms

    def joined(self, member: ClassicMember) -> Joined:
        """Return the join answer for the current generation; the leader's has all members."""
        assert self.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE), (
            f"join answered in {self.state}"
        )
        assert self.leader is not None, "a generation without a leader"
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.roster.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=self._joined_members() if member.member_id == self.leader else (),
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        protocol = self.protocol
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.subscription(protocol)) for m in self.roster
        )

    # --- sync -------------------------------------------------------------------------------------

    def await_assignment(
        self, member: ClassicMember, ticket: Ticket, builder: GroupDecisionBuilder
    ) -> None:
        """Have a member's sync wait for the leader's; its session is suspended."""
        assert self.state is ClassicGroupState.COMPLETING, f"sync waits in {self.state}"
        self._unsynced.pop(member.member_id, None)
        if member.syncing is not None:
            # sometimes: a waiting sync is repeated
            self._fail_repeated(member.syncing, member, builder)
        member.syncing = ticket
        self.sessions.drop(member.member_id)

    def assign(self, assignments: Mapping[str, bytes], builder: GroupDecisionBuilder) -> None:
        """Store the leader's assignments and answer the waiting syncs, the leader's among them."""
        self.roster.assign(assignments)
        self._become(ClassicGroupState.STABLE, builder.now_ms)
        builder.store(self.record())
        for member in self.roster:
            if member.syncing is not None:
                builder.answer(member.syncing, self.synced(member))
                member.syncing = None
                self.restart_session(member, builder.now_ms)
        self._maybe_all_synced()

    def answer_sync(
        self, member: ClassicMember, ticket: Ticket, builder: GroupDecisionBuilder
    ) -> None:
        """Answer a sync that arrives after the leader's."""
        self._unsynced.pop(member.member_id, None)
        self._maybe_all_synced()
        builder.answer(ticket, self.synced(member))
        self.restart_session(member, builder.now_ms)

    def synced(self, member: ClassicMember) -> Synced:
        """Return a member's sync answer for the current generation."""
        assert self.state is ClassicGroupState.STABLE, f"sync answered in {self.state}"
        return Synced(
            protocol_type=self.roster.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    def _maybe_all_synced(self) -> None:
        if not self._unsynced:
            self._sync_end_ms = None

    # --- time -------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return the time of the next `expire`; None: no deadline."""
        due_ms = self.sessions.next_ms()
        joined_ms = None if self._join_phase is None else self._join_phase.end_ms
        for at_ms in (joined_ms, self._sync_end_ms):
            if at_ms is not None and (due_ms is None or at_ms < due_ms):
                due_ms = at_ms
        return due_ms

    def expire(self, builder: GroupDecisionBuilder) -> None:
        """Remove members after a timeout of their session or sync, then handle the join timeout."""
        due = self.sessions.due(builder.now_ms)
        has_lost = False
        for member_id in due:
            member = self.roster.members.get(member_id)
            if member is None:
                self.remove_pending(member_id)
            else:
                self.remove(member, builder)
                has_lost = True
        if self._sync_end_ms is not None and self._sync_end_ms <= builder.now_ms:
            self._sync_end_ms = None
            for member_id in list(self._unsynced):
                # sometimes: a member does not sync in time
                self.remove(self.roster.members[member_id], builder)
                has_lost = True
        if due or has_lost:
            self.finish_removals(builder, has_lost=has_lost)
        phase = self._join_phase
        if phase is not None and phase.end_ms <= builder.now_ms:
            self._join_timed_out(phase, builder)

    # --- storage ----------------------------------------------------------------------------------

    def load(self, record: ClassicGroup, members: Iterable[ClassicMember], now_ms: int) -> None:
        """Replace the state by a stored one; no request may be waiting."""
        assert not self.roster.waiting_count, "load with waiting joins"
        self.roster = Roster()
        self.sessions.clear()
        self._join_phase = None
        self._clear_syncs()
        self.generation = record.generation
        self.protocol, self.leader = record.protocol, record.leader
        for member in members:
            if member.member_id in self.roster.members or self.roster.by_instance(
                member.instance_id
            ):
                continue  # no coordinator writes such a record; the first member counts
            self.roster.add(member, record.protocol_type)
            self.restart_session(member, now_ms)
        self.roster.protocol_type = record.protocol_type
        if self.roster.members:
            if self.protocol is None:
                self.protocol = self.roster.choose_protocol()
            if self.leader not in self.roster.members:
                self.leader = next(iter(self.roster.members))
        self.state = ClassicGroupState.STABLE if self.roster.members else ClassicGroupState.EMPTY
        self.state_ms = record.state_ms

    def record(self) -> ClassicGroup:
        """Return the group's record."""
        protocol = self.protocol
        return ClassicGroup(
            group=self.group,
            protocol_type=self.roster.protocol_type,
            generation=self.generation,
            protocol=protocol,
            leader=self.leader,
            state_ms=self.state_ms,
            members=tuple(member.stored(protocol) for member in self.roster),
        )

    def _become(self, state: ClassicGroupState, now_ms: int) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.state} -> {state}"
        self.state = state
        self.state_ms = now_ms

    def check_invariants(self) -> None:
        """Assert the invariants between two steps; O(members)."""
        self.roster.check_invariants()
        members, state = self.roster.members, self.state
        # 1. A group has members in every state except Empty and Dead. In its first join phase, the
        # last member may have left again.
        if state in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD):
            assert not members, f"{len(members)} members in {state}"
        elif state is not ClassicGroupState.PREPARING:
            assert members, f"no members in {state}"
        # 2. Joins wait only in PreparingRebalance, syncs only in CompletingRebalance.
        assert (state is ClassicGroupState.PREPARING) == (self._join_phase is not None), (
            f"join phase in {self.state}"
        )
        if state is not ClassicGroupState.PREPARING:
            assert not self.roster.waiting_count, f"joins wait in {state}"
        if state is not ClassicGroupState.COMPLETING:
            assert all(m.syncing is None for m in self.roster), f"syncs wait in {state}"
        # 3. A generation has a leader, which is a member, and a protocol that all members support.
        if state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE):
            assert self.leader in members, f"leader {self.leader!r} is not a member"
            for member in self.roster:
                names = [name for name, _ in member.protocols]
                assert self.protocol in names, (
                    f"{member.member_id!r} does not support {self.protocol!r}"
                )
        self._check_deadlines()

    def _check_deadlines(self) -> None:
        members = self.roster.members
        # 4. Every member and every issued member id has a deadline, or a request that waits.
        for member in self.roster:
            waits = member.joining is not None or member.syncing is not None
            assert waits or member.member_id in self.sessions, (
                f"{member.member_id!r} has no deadline"
            )
        for member_id in self.roster.pending:
            assert member_id in self.sessions, f"pending id {member_id!r} has no deadline"
        if self._unsynced:
            assert self._sync_end_ms is not None, f"{list(self._unsynced)} have no sync deadline"
        # 5. Deadlines and awaited syncs belong to existing members.
        assert self._unsynced.keys() <= members.keys(), "a removed member's sync is awaited"
        known = members.keys() | set(self.roster.pending)
        assert self.sessions.names() <= known, "a session without a member"
        if self.state is ClassicGroupState.COMPLETING:
            assert self._sync_end_ms is not None, "no deadline for the leader's sync"
