"""A classic group as a pure state machine: validation of requests, and answers.

The coordinator collects the members (join), sends the group's leader all subscriptions, and
distributes the leader's assignments (sync). `classic_rebalance` is the state machine of the
rebalance, and `classic_members` holds the members.

The behaviour is that of Apache Kafka 4.1, with these differences:
- A static member that rejoins with other topics triggers a rebalance; in Kafka it keeps partitions
  of topics that it is not subscribed to.
- A static member that did not join in time is not awaited at the sync: only the end of its session
  removes it (KIP-345).
- A static member may rejoin a full group, because it replaces itself.
- At most `group.max.size` issued member ids may be pending.
- A repeated join or sync fails the earlier one with RebalanceInProgress.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...errors import (
    CoordinatorNotAvailable,
    GroupFull,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MessageTooLarge,
    QuorumlogError,
    RebalanceInProgress,
    UnknownMember,
)
from ..coordinator.decision import Ticket
from .classic_members import (
    ClassicGroupState,
    ClassicMember,
    new_member,
    rebalance_timeout_ms,
    stored_member,
    unique_protocols,
)
from .classic_rebalance import ClassicRebalance
from .config import GroupConfig
from .consumer_protocol import PROTOCOL_TYPE, topics_of
from .member_bytes import text_bytes
from .records import ClassicGroup, GroupDecision, GroupDecisionBuilder
from .requests import (
    ClassicHeartbeat,
    CommitOffsets,
    CommitTransactionalOffsets,
    GroupDescription,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Left,
    ListedGroup,
    PlainCommit,
    SyncGroup,
)


class ClassicGroupMachine:
    """One classic group. A method with a ticket replies in its decision or in a later one.

    `draw` returns a new random string at each call, of which member ids are made. Times are in
    milliseconds of the wall clock.
    """

    def __init__(self, group: str, config: GroupConfig, draw: Callable[[], str]) -> None:
        self.group = group
        self._config = config
        self._draw = draw
        self._rebalance = ClassicRebalance(group, config)

    # --- join -------------------------------------------------------------------------------------

    def join(self, ticket: Ticket, request: JoinGroup, now_ms: int) -> GroupDecision:
        """Let a member join; the reply comes when the join phase completes.

        Refused with: InvalidSessionTimeout, GroupFull, InconsistentGroupProtocol, UnknownMember,
        FencedInstance, CoordinatorNotAvailable (dead group); RebalanceInProgress if the member
        repeats the join while it waits, UnknownMember if the member was removed.
        """
        builder = GroupDecisionBuilder(now_ms)
        try:
            self._join(ticket, request, builder)
        except QuorumlogError as error:
            builder.fail(ticket, error)
        return builder.build()

    def _join(self, ticket: Ticket, request: JoinGroup, builder: GroupDecisionBuilder) -> None:
        self._check_alive()
        low, high = self._config.session_timeout_min_ms, self._config.session_timeout_max_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"session.timeout.ms={request.session_timeout_ms} is out of range; the broker"
                f" accepts {low} to {high} ms"
            )
        self._check_group_size(request, builder)
        roster = self._rebalance.roster
        names = [name for name, _ in request.protocols]
        roster.check_protocols(self.group, request.protocol_type, names)
        member_id = request.member_id or self._new_id(request)
        self._check_bytes(request, member_id)
        if not request.member_id:
            self._join_without_id(ticket, member_id, request, builder)
        elif request.member_id in roster.pending and request.instance_id is None:
            self._add(request.member_id, ticket, request, builder)
        else:
            member = roster.find(self.group, request.member_id, request.instance_id)
            self._rejoin(member, ticket, request, builder)

    def _check_group_size(self, request: JoinGroup, builder: GroupDecisionBuilder) -> None:
        """Raise GroupFull if the group is full; a member that joins too late is then removed.

        In a join phase, only members that have joined count: if the group exceeds a lowered limit,
        the last ones to join are removed.
        """
        rebalance, size_max = self._rebalance, self._config.size_max
        roster = rebalance.roster
        member = roster.members.get(request.member_id)
        if member is None and not request.member_id:
            member = roster.by_instance(request.instance_id)
        if rebalance.state is ClassicGroupState.PREPARING:
            is_in = member is not None and member.joining is not None
            has_room = is_in or roster.waiting_count < size_max
        else:
            has_room = member is not None or len(roster) < size_max
        if has_room:
            return
        if member is not None:
            rebalance.remove(member, builder)
            rebalance.finish_removals(builder, has_lost=True)
        elif request.member_id in roster.pending:
            rebalance.remove_pending(request.member_id)
            rebalance.finish_removals(builder, has_lost=False)
        raise GroupFull(
            f"group {self.group!r}: has group.max.size={size_max} members; use another group, or"
            " raise the limit"
        )

    def _check_bytes(self, request: JoinGroup, member_id: str) -> None:
        """Raise GroupFull if the subscriptions of all members are too large to be stored
        together, or the client adds too much to the groups of the broker."""
        roster = self._rebalance.roster
        old = roster.members.get(request.member_id) or roster.by_instance(request.instance_id)
        more = new_member(member_id, request).stored_bytes
        more -= 0 if old is None else old.stored_bytes
        limit = self._config.group_bytes_max
        if more > 0 and roster.stored_bytes + more > limit:
            raise GroupFull(
                f"group {self.group!r}: the subscriptions of its members have"
                f" {roster.stored_bytes + more} bytes, the limit is {limit}; subscribe to fewer"
                " topics, or use several groups"
            )
        if _is_only_issued(request):
            more = text_bytes((member_id,))
        elif member_id in roster.pending:
            more -= text_bytes((member_id,))
        if not roster.members:
            more += text_bytes((request.protocol_type,))
        if more > 0 and request.check_growth is not None:
            request.check_growth(more)

    def _join_without_id(
        self, ticket: Ticket, member_id: str, request: JoinGroup, builder: GroupDecisionBuilder
    ) -> None:
        """Join with a new member id: a new member, or a restarted static one."""
        old = self._rebalance.roster.by_instance(request.instance_id)
        if old is not None:
            self._rejoin_static(old, member_id, ticket, request, builder)
        elif not _is_only_issued(request):
            self._add(member_id, ticket, request, builder)
        elif len(self._rebalance.roster.pending) >= self._config.size_max:
            raise GroupFull(
                f"group {self.group!r}: too many pending member ids; the limit is"
                f" group.max.size={self._config.size_max}; retry later"
            )
        else:
            self._rebalance.add_pending(member_id, request.session_timeout_ms, builder)
            builder.answer(ticket, Joined(member_id=member_id, is_member_id_required=True))

    def _new_id(self, request: JoinGroup) -> str:
        return f"{request.instance_id or request.client_id}-{self._draw()}"

    def _add(
        self,
        member_id: str,
        ticket: Ticket,
        request: JoinGroup,
        builder: GroupDecisionBuilder,
    ) -> None:
        self._rebalance.add(new_member(member_id, request), request.protocol_type, ticket, builder)

    def _rejoin(
        self,
        member: ClassicMember,
        ticket: Ticket,
        request: JoinGroup,
        builder: GroupDecisionBuilder,
    ) -> None:
        """Join with a member id: for the next generation, or again because the answer was lost.

        A leader that rejoins a stable group triggers a rebalance: other input of the assignment may
        have changed, such as the number of partitions.
        """
        rebalance = self._rebalance
        has_changed = unique_protocols(request.protocols) != member.protocols
        is_leader_of_stable = (
            rebalance.state is ClassicGroupState.STABLE and member.member_id == rebalance.leader
        )
        if rebalance.state is ClassicGroupState.PREPARING or has_changed or is_leader_of_stable:
            rebalance.roster.set_protocols(member, unique_protocols(request.protocols))
            member.rebalance_timeout_ms = rebalance_timeout_ms(request)
            member.session_timeout_ms = request.session_timeout_ms
            rebalance.rejoin(member, ticket, builder)
        else:
            # sometimes: a join is repeated after a lost response
            builder.answer(ticket, rebalance.joined(member))
            rebalance.restart_session(member, builder.now_ms)

    def _rejoin_static(
        self,
        old: ClassicMember,
        member_id: str,
        ticket: Ticket,
        request: JoinGroup,
        builder: GroupDecisionBuilder,
    ) -> None:
        """Let a restarted static member join; a stable group stays stable if the subscription is
        unchanged."""
        rebalance = self._rebalance
        member = new_member(member_id, request)
        # sometimes if old.joining or old.syncing: a static member returns while its request waits
        # sometimes if old.member_id == self._rebalance.leader: a static leader returns
        had, led = old.subscription(rebalance.protocol), rebalance.leader
        rebalance.replace(old, member, builder)
        if rebalance.state is not ClassicGroupState.STABLE or not self._is_assignment_valid(
            member, had
        ):
            rebalance.rejoin(member, ticket, builder)
            return
        builder.store(rebalance.record())
        joined = rebalance.joined(member)
        is_leader = member.member_id == rebalance.leader
        if is_leader and request.can_skip_assignment:
            joined = replace(joined, skip_assignment=True)
        elif is_leader:
            # The answer names the old leader, so that this member does not assign: its assignment
            # would be ignored.
            joined = replace(joined, leader=led or "", members=())
        builder.answer(ticket, joined)

    def _is_assignment_valid(self, member: ClassicMember, had: bytes) -> bool:
        """Return True if the assignment is still valid; subscriptions may also differ in owned
        partitions."""
        roster, protocol = self._rebalance.roster, self._rebalance.protocol
        if roster.choose_protocol() != protocol:
            return False
        if roster.protocol_type != PROTOCOL_TYPE:
            return True
        return topics_of(member.subscription(protocol)) == topics_of(had)

    # --- sync, heartbeat, leave -------------------------------------------------------------------

    def sync(self, ticket: Ticket, request: SyncGroup, now_ms: int) -> GroupDecision:
        """Return a member's assignment; the reply comes when the leader has sent all assignments.

        Refused with: UnknownMember, FencedInstance, IllegalGeneration, InconsistentGroupProtocol
        (KIP-559), MessageTooLarge, GroupFull, RebalanceInProgress, CoordinatorNotAvailable (dead
        group).
        """
        builder = GroupDecisionBuilder(now_ms)
        try:
            self._sync(ticket, request, builder)
        except QuorumlogError as error:
            builder.fail(ticket, error)
        return builder.build()

    def _sync(self, ticket: Ticket, request: SyncGroup, builder: GroupDecisionBuilder) -> None:
        rebalance = self._rebalance
        member = self._find(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        self._check_protocol(request)
        if rebalance.state is ClassicGroupState.PREPARING:
            # sometimes: a sync arrives after the next rebalance began
            raise self._rebalance_in_progress()
        if rebalance.state is ClassicGroupState.STABLE:
            rebalance.answer_sync(member, ticket, builder)
            return
        if member.member_id == rebalance.leader:
            self._check_assignment_size(request)
        rebalance.await_assignment(member, ticket, builder)
        if member.member_id == rebalance.leader:
            rebalance.assign(request.assignments, builder)

    def _check_assignment_size(self, request: SyncGroup) -> None:
        """Raise MessageTooLarge if the assignments cannot be stored, GroupFull if the client adds
        too much to the groups of the broker. The leader may send smaller ones; if it does not, the
        sync timeout removes it."""
        roster, limit = self._rebalance.roster, self._config.group_bytes_max
        size = sum(len(request.assignments.get(member_id, b"")) for member_id in roster.members)
        if size > limit:
            raise MessageTooLarge(
                f"group {self.group!r}: the assignments have {size} bytes, the limit is {limit};"
                " assign fewer partitions, or use several groups"
            )
        growth = size - roster.assigned_bytes
        if growth > 0 and request.check_growth is not None:
            request.check_growth(growth)

    def _check_protocol(self, request: SyncGroup) -> None:
        """Raise InconsistentGroupProtocol if the request names another protocol than the
        group's."""
        rebalance = self._rebalance
        pairs = (
            (request.protocol_type, rebalance.roster.protocol_type),
            (request.protocol, rebalance.protocol),
        )
        for sent, expected in pairs:
            if sent is not None and sent != expected:
                raise InconsistentGroupProtocol(
                    f"group {self.group!r}: the protocol is {expected!r}, the member sent {sent!r};"
                    " join again"
                )

    def heartbeat(self, ticket: Ticket, request: ClassicHeartbeat, now_ms: int) -> GroupDecision:
        """Restart a member's session.

        Refused with: UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress (the
        session is restarted all the same), CoordinatorNotAvailable (dead group).
        """
        builder = GroupDecisionBuilder(now_ms)
        try:
            member = self._find(request.member_id, request.instance_id)
            self._check_generation(request.generation)
            self._rebalance.restart_session(member, builder.now_ms)
            if self._rebalance.state is ClassicGroupState.PREPARING:
                raise self._rebalance_in_progress()
        except QuorumlogError as error:
            builder.fail(ticket, error)
        else:
            builder.answer(ticket, None)
        return builder.build()

    def renew_session(self, request: ClassicHeartbeat, now_ms: int) -> bool:
        """Handle the heartbeat of a member of a stable group, as `heartbeat` does; return False,
        without an effect, for any other."""
        member = self.stable_member(request.member_id, request.instance_id, request.generation)
        return member is not None and self._rebalance.sessions.postpone(
            member.member_id, now_ms + member.session_timeout_ms
        )

    def stable_member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ClassicMember | None:
        """Return the member that sent a request, if the group is stable and nothing of the member
        waits; otherwise None."""
        rebalance = self._rebalance
        if rebalance.state is not ClassicGroupState.STABLE or generation != rebalance.generation:
            return None
        member = rebalance.roster.members.get(member_id)
        if (
            member is None
            or member.joining is not None
            or member.syncing is not None
            or (instance_id is not None and instance_id != member.instance_id)
        ):
            return None
        return member

    def leave(self, ticket: Ticket, request: LeaveGroup, now_ms: int) -> GroupDecision:
        """Remove members; each has an error of its own (UnknownMember, FencedInstance) or None."""
        builder = GroupDecisionBuilder(now_ms)
        try:
            self._check_alive()
        except QuorumlogError as error:
            builder.fail(ticket, error)
            return builder.build()
        count = len(self._rebalance.roster)
        errors: list[QuorumlogError | None] = []
        for leaver in request.leavers:
            try:
                self._leave(leaver, builder)
            except QuorumlogError as error:
                errors.append(error)
            else:
                errors.append(None)
        if None in errors:
            self._rebalance.finish_removals(builder, has_lost=len(self._rebalance.roster) < count)
        builder.answer(ticket, Left(errors=tuple(errors)))
        return builder.build()

    def _leave(self, leaver: Leaver, builder: GroupDecisionBuilder) -> None:
        """Remove a member by id, or by instance id alone, as an administrator does."""
        roster = self._rebalance.roster
        if leaver.member_id in roster.pending:
            self._rebalance.remove_pending(leaver.member_id)
            return
        by_name = None if leaver.member_id else roster.by_instance(leaver.instance_id)
        member = by_name or roster.find(self.group, leaver.member_id, leaver.instance_id)
        self._rebalance.remove(member, builder)

    def check_commit(self, request: CommitOffsets, now_ms: int | None = None) -> None:
        """Raise an error if the commit is not allowed; with a time, the commit restarts the
        session.

        A client outside of the group commits without member id and generation, which only an empty
        group allows. A transactional commit is allowed without them in any group, since older
        producers do not send them, and by members during a rebalance (KIP-447).

        Raises: UnknownMember, IllegalGeneration, RebalanceInProgress, FencedInstance,
        CoordinatorNotAvailable (dead group).
        """
        self._check_alive()
        rebalance = self._rebalance
        if request.generation < 0 and rebalance.state is ClassicGroupState.EMPTY:
            return
        is_transactional = isinstance(request, CommitTransactionalOffsets)
        is_outside = not request.member_id and request.instance_id is None
        if request.generation < 0 and is_outside:
            if is_transactional:
                return
            raise UnknownMember(
                f"group {self.group!r}: not empty, so only its members may commit; stop them"
                " first, or use another group"
            )
        member = self._find(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if rebalance.state is ClassicGroupState.COMPLETING and not is_transactional:
            raise self._rebalance_in_progress()
        if now_ms is not None:
            rebalance.restart_session(member, now_ms)

    def may_commit(self, commit: PlainCommit) -> bool:
        """Return True if `check_commit` accepts the commit of a member and restarts its session;
        False for some others too."""
        return self.stable_member(*commit[1:4]) is not None

    def committed(self, commit: PlainCommit, now_ms: int) -> None:
        """Restart the session of a member after a commit that `may_commit` has accepted."""
        member = self._rebalance.roster.members[commit.member_id]
        self._rebalance.restart_session(member, now_ms)

    def _find(self, member_id: str, instance_id: str | None) -> ClassicMember:
        self._check_alive()
        return self._rebalance.roster.find(self.group, member_id, instance_id)

    def _check_alive(self) -> None:
        if self._rebalance.state is ClassicGroupState.DEAD:
            raise CoordinatorNotAvailable(
                f"group {self.group!r}: the group is being deleted; retry"
            )

    def _check_generation(self, generation: int) -> None:
        if generation != self._rebalance.generation:
            raise IllegalGeneration(
                f"group {self.group!r}: generation {generation} is not the current one,"
                f" {self._rebalance.generation}; join again"
            )

    def _rebalance_in_progress(self) -> RebalanceInProgress:
        return RebalanceInProgress(f"group {self.group!r}: a rebalance is in progress; join again")

    # --- time -------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return the time of the next `expire`; None: no deadline."""
        return self._rebalance.deadline_ms()

    def expire(self, now_ms: int) -> GroupDecision:
        """Remove members with expired sessions, and end joins and syncs that timed out."""
        builder = GroupDecisionBuilder(now_ms)
        self._rebalance.expire(builder)
        return builder.build()

    # --- descriptions -----------------------------------------------------------------------------

    def describe(self, now_ms: int | None = None) -> GroupDescription:
        """Return the group's description; protocol and subscriptions only while it is stable.
        Without `now_ms`, the members' `silent_ms` is unknown. After a downgrade there are no
        assignments until the leader has sent them: the present ones have the topics that exist of
        those that members named."""
        rebalance = self._rebalance
        with_assignment = not rebalance.roster.is_downgraded
        protocol = rebalance.protocol if rebalance.state is ClassicGroupState.STABLE else None
        return GroupDescription(
            group=self.group,
            is_classic=True,
            state=rebalance.state.value,
            protocol_type=rebalance.roster.protocol_type,
            protocol=protocol or "",
            generation=rebalance.generation,
            members=tuple(
                member.description(
                    protocol, rebalance.silent_ms(member, now_ms), with_assignment=with_assignment
                )
                for member in rebalance.roster
            ),
        )

    def listing(self) -> ListedGroup:
        """Return the group's entry in the list of groups."""
        return ListedGroup(
            group=self.group,
            is_classic=True,
            state=self._rebalance.state.value,
            protocol_type=self.protocol_type,
        )

    @property
    def is_empty(self) -> bool:
        """True if the group has no member; member ids may be pending."""
        return not self._rebalance.roster.members

    @property
    def is_stable(self) -> bool:
        """True in state Stable: all members have their assignments."""
        return self._rebalance.state is ClassicGroupState.STABLE

    @property
    def member_bytes(self) -> int:
        """The bytes of all members, of pending member ids, and of the protocol type."""
        roster = self._rebalance.roster
        own = text_bytes((roster.protocol_type,)) + roster.pending.size
        return own + roster.stored_bytes + roster.assigned_bytes

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self._rebalance.roster.members)

    @property
    def is_dead(self) -> bool:
        """True if the group has ended and must be discarded."""
        return self._rebalance.state is ClassicGroupState.DEAD

    @property
    def is_blank(self) -> bool:
        """True if the group has no state to lose: no member, no pending id, no generation."""
        roster = self._rebalance.roster
        return not (roster.members or roster.pending or self._rebalance.generation)

    @property
    def state_ms(self) -> int:
        """The start of the current state; -1: unknown. Offset retention of an empty group starts
        then."""
        return self._rebalance.state_ms

    @property
    def protocol_type(self) -> str:
        """Such as "consumer"; empty: no member has joined yet."""
        return self._rebalance.roster.protocol_type

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members are subscribed to; None: unknown.

        Unknown are the topics of a protocol type other than "consumer", and those of a malformed
        subscription.
        """
        return self._rebalance.roster.topics(self._rebalance.protocol)

    # --- storage and protocol changes -------------------------------------------------------------

    def load(
        self,
        record: ClassicGroup,
        now_ms: int,
        protocols: Mapping[str, tuple[tuple[str, bytes], ...]] | None = None,
    ) -> None:
        """Replace the state by a stored one; each member's session starts now.

        `protocols`: all protocols of each member by id, if known (at a downgrade).
        """
        known = protocols or {}
        members = [
            stored_member(m, record.protocol, known.get(m.member_id)) for m in record.members
        ]
        self._rebalance.load(record, members, now_ms)

    def take_over(self, now_ms: int) -> GroupDecision:
        """Start to serve a loaded group: restart all sessions, and rebalance if it has too many
        members.

        Call it once, when the coordinator starts to serve requests.
        """
        builder = GroupDecisionBuilder(now_ms)
        for member in self._rebalance.roster:
            self._rebalance.restart_session(member, builder.now_ms)
        if len(self._rebalance.roster) > self._config.size_max:
            self._rebalance.start_rebalance(builder)
        return builder.build()

    def restart_sessions(self, now_ms: int) -> None:
        """Restart all sessions and timeouts after requests were refused for a while."""
        self._rebalance.restart_deadlines(GroupDecisionBuilder(now_ms))

    def snapshot(self) -> ClassicGroup:
        """Return the record from which `load` restores this group."""
        return self._rebalance.record()

    def protocols(self) -> Mapping[str, tuple[tuple[str, bytes], ...]]:
        """Return each member's protocols by member id, for an upgrade."""
        return {member.member_id: member.protocols for member in self._rebalance.roster}

    def rebalance(self, now_ms: int) -> GroupDecision:
        """Start a rebalance after a downgrade; no-op if one is in progress."""
        builder = GroupDecisionBuilder(now_ms)
        self._rebalance.roster.is_downgraded = True
        if self._rebalance.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE):
            self._rebalance.start_rebalance(builder)
        return builder.build()

    def drop(self, error: QuorumlogError | None = None) -> GroupDecision:
        """End the group: waiting joins and syncs fail with `error`, else with UnknownMember.

        Stores nothing: the caller writes the tombstone.
        """
        builder = GroupDecisionBuilder(max(self._rebalance.state_ms, 0))
        self._rebalance.end(error, builder)
        return builder.build()

    def check_invariants(self) -> None:
        """Assert the invariants between two steps; O(members)."""
        self._rebalance.check_invariants()


def _is_only_issued(request: JoinGroup) -> bool:
    """Return True if the answer to a join without a member id is an id to join with."""
    return not request.member_id and request.instance_id is None and request.takes_member_id_first
