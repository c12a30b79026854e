"""A classic group as a pure machine: who may do what, and what each asks and is told.

Apache Kafka 4.1 settles the behaviour. Where this differs, and why:
- A static member that comes again with other topics makes the group share out anew; there it goes
  on with partitions of topics that it does not want.
- A static member that did not join in time is not waited for at the sync: its session alone ends
  its place, as KIP-345 has it.
- A static member that comes again is let into a full group: it takes its own place.
- Ids that were given out and not joined with are at most `group.max.size`.
- A join or sync that is sent again answers the earlier one with RebalanceInProgress.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ....errors import (
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
from ..config import GroupConfig
from ..consumer_protocol import PROTOCOL_TYPE
from ..decision import Decision, Ticket
from ..records import ClassicGroup
from ..requests import (
    ClassicHeartbeat,
    CommitOffsets,
    GroupDescription,
    GroupListing,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Left,
    SyncGroup,
)
from .generations import Generations
from .member import Member, State, joining, offered, rebalance_timeout_ms, restored
from .subscription import topics_of
from .turn import Turn


class ClassicGroupMachine:
    """One group. Every method with a ticket answers it in its decision, or in a later one.

    `draw` gives a random text, new each time; a member's id is made from it. Times are in
    milliseconds of the wall clock.
    """

    def __init__(self, group: str, config: GroupConfig, draw: Callable[[], str]) -> None:
        self.group = group
        self._config = config
        self._draw = draw
        self._course = Generations(group, config)

    # --- joining ----------------------------------------------------------------------------------

    def join(self, ticket: Ticket, request: JoinGroup, now_ms: int) -> Decision:
        """A member comes: answered when the generation it will be of has gathered.

        Refused with: InvalidSessionTimeout, GroupFull, InconsistentGroupProtocol, UnknownMember,
        FencedInstance, CoordinatorNotAvailable (dropped); RebalanceInProgress where it is sent
        again while it waits, or UnknownMember where it was removed.
        """
        turn = Turn(now_ms)
        try:
            self._join(ticket, request, turn)
        except QuorumlogError as error:
            turn.fail(ticket, error)
        return turn.decision()

    def _join(self, ticket: Ticket, request: JoinGroup, turn: Turn) -> None:
        self._check_alive()
        low, high = self._config.session_timeout_min_ms, self._config.session_timeout_max_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"session time-out {request.session_timeout_ms} ms, the broker takes {low} to"
                f" {high} ms"
            )
        self._check_room(request, turn)
        roster = self._course.roster
        names = [name for name, _ in request.protocols]
        roster.check_protocols(self.group, request.protocol_type, names)
        self._check_bytes(request)
        if not request.member_id:
            self._join_anew(ticket, request, turn)
        elif request.member_id in roster.pending and request.instance_id is None:
            self._add(request.member_id, ticket, request, turn)
        else:
            member = roster.find(self.group, request.member_id, request.instance_id)
            self._join_again(member, ticket, request, turn)

    def _check_room(self, request: JoinGroup, turn: Turn) -> None:
        """Raises GroupFull; a member that comes to a full generation too late has to go.

        While members are gathered those count that have come: of a group that has grown too large
        (its bound was lowered) the last ones go.
        """
        course, size_max = self._course, self._config.size_max
        roster = course.roster
        member = roster.members.get(request.member_id)
        if member is None and not request.member_id:
            member = roster.by_instance(request.instance_id)
        if course.state is State.PREPARING:
            is_in = member is not None and member.joining is not None
            has_room = is_in or roster.waiting_count < size_max
        else:
            has_room = member is not None or len(roster) < size_max
        if has_room:
            return
        if member is not None:
            course.remove(member, turn)
            course.settle(turn, has_lost=True)
        elif request.member_id in roster.pending:
            course.forget_pending(request.member_id)
            course.settle(turn, has_lost=False)
        raise GroupFull(
            f"group {self.group!r} has {size_max} members (group.max.size); take another group, or"
            " raise it"
        )

    def _check_bytes(self, request: JoinGroup) -> None:
        """Raises GroupFull where all that the members want could not be stored together."""
        roster = self._course.roster
        old = roster.members.get(request.member_id) or roster.by_instance(request.instance_id)
        more = joining(request.member_id, request).brought_bytes
        more -= 0 if old is None else old.brought_bytes
        limit = self._config.group_bytes_max
        if more > 0 and roster.brought_bytes + more > limit:
            raise GroupFull(
                f"the members of group {self.group!r} would have subscriptions of"
                f" {roster.brought_bytes + more} bytes, at most {limit} are stored; subscribe to"
                " fewer topics, or take several groups"
            )

    def _join_anew(self, ticket: Ticket, request: JoinGroup, turn: Turn) -> None:
        """Without member id: it is new, or its program was started again."""
        old = self._course.roster.by_instance(request.instance_id)
        member_id = self._new_id(request)
        if old is not None:
            self._come_back(old, member_id, ticket, request, turn)
        elif request.instance_id is not None or not request.takes_member_id_first:
            self._add(member_id, ticket, request, turn)
        elif len(self._course.roster.pending) >= self._config.size_max:
            raise GroupFull(
                f"group {self.group!r} has given {self._config.size_max} ids out that nobody has"
                " joined with (group.max.size); ask again later"
            )
        else:
            self._course.await_first_join(member_id, request.session_timeout_ms, turn)
            turn.answer(ticket, Joined(member_id=member_id, is_member_id_required=True))

    def _new_id(self, request: JoinGroup) -> str:
        return f"{request.instance_id or request.client_id}-{self._draw()}"

    def _add(self, member_id: str, ticket: Ticket, request: JoinGroup, turn: Turn) -> None:
        self._course.add(joining(member_id, request), request.protocol_type, ticket, turn)

    def _join_again(self, member: Member, ticket: Ticket, request: JoinGroup, turn: Turn) -> None:
        """A member with its id: for the next generation, or it did not hear of the present one.

        A leader that joins a stable group wants to assign anew: what counts may have changed
        elsewhere, such as the number of partitions.
        """
        course = self._course
        has_changed = offered(request.protocols) != member.protocols
        wants_anew = course.state is State.STABLE and member.member_id == course.leader
        if course.state is State.PREPARING or has_changed or wants_anew:
            course.roster.offer(member, offered(request.protocols))
            member.rebalance_timeout_ms = rebalance_timeout_ms(request)
            member.session_timeout_ms = request.session_timeout_ms
            course.rejoin(member, ticket, turn)
        else:
            turn.answer(ticket, course.joined(member))
            course.restart_session(member, turn)

    def _come_back(
        self, old: Member, member_id: str, ticket: Ticket, request: JoinGroup, turn: Turn
    ) -> None:
        """A static member was started again: a stable group goes on where it wants what it had."""
        course = self._course
        member = joining(member_id, request)
        had, led = old.subscription(course.protocol), course.leader
        course.replace(old, member, turn)
        if course.state is not State.STABLE or not self._wants_as_before(member, had):
            course.rejoin(member, ticket, turn)
            return
        turn.store(course.record())
        joined = course.joined(member)
        is_leader = member.member_id == course.leader
        if is_leader and request.can_skip_assignment:
            joined = replace(joined, skip_assignment=True)
        elif is_leader:
            # Told that another leads, it does not assign: nobody would take its assignment.
            joined = replace(joined, leader=led or "", members=())
        turn.answer(ticket, joined)

    def _wants_as_before(self, member: Member, had: bytes) -> bool:
        """Whether the assignment still fits; subscriptions differ by what they own, too."""
        roster, protocol = self._course.roster, self._course.protocol
        if roster.choose_protocol() != protocol:
            return False
        if roster.protocol_type != PROTOCOL_TYPE:
            return True
        return topics_of(member.subscription(protocol)) == topics_of(had)

    # --- syncing, living, leaving -----------------------------------------------------------------

    def sync(self, ticket: Ticket, request: SyncGroup, now_ms: int) -> Decision:
        """A member asks for its part: answered when the leader has brought it.

        Refused with: UnknownMember, FencedInstance, IllegalGeneration, InconsistentGroupProtocol
        (KIP-559), MessageTooLarge, RebalanceInProgress, CoordinatorNotAvailable (dropped).
        """
        turn = Turn(now_ms)
        try:
            self._sync(ticket, request, turn)
        except QuorumlogError as error:
            turn.fail(ticket, error)
        return turn.decision()

    def _sync(self, ticket: Ticket, request: SyncGroup, turn: Turn) -> None:
        course = self._course
        member = self._find(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        self._check_names(request)
        if course.state is State.PREPARING:
            raise self._rebalancing()
        if course.state is State.STABLE:
            course.synced_late(member, ticket, turn)
            return
        if member.member_id == course.leader:
            self._check_assigned(request)
        course.await_assignment(member, ticket, turn)
        if member.member_id == course.leader:
            course.assign(request.assignments, turn)

    def _check_assigned(self, request: SyncGroup) -> None:
        """Raises MessageTooLarge for what could not be stored: the leader may say less, or goes
        when its time is up, as if it had said nothing."""
        roster, limit = self._course.roster, self._config.group_bytes_max
        size = sum(len(request.assignments.get(member_id, b"")) for member_id in roster.members)
        if size > limit:
            raise MessageTooLarge(
                f"the assignments of group {self.group!r} have {size} bytes, at most {limit} are"
                " stored; assign in fewer words, or take several groups"
            )

    def _check_names(self, request: SyncGroup) -> None:
        """Raises InconsistentGroupProtocol where the member thinks of another protocol."""
        course = self._course
        pairs = (
            (request.protocol_type, course.roster.protocol_type),
            (request.protocol, course.protocol),
        )
        for said, true in pairs:
            if said is not None and said != true:
                raise InconsistentGroupProtocol(
                    f"group {self.group!r} has {true!r}, the member says {said!r}; join again"
                )

    def heartbeat(self, ticket: Ticket, request: ClassicHeartbeat, now_ms: int) -> Decision:
        """A member lives.

        Refused with: UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress (it
        lives all the same), CoordinatorNotAvailable (dropped).
        """
        turn = Turn(now_ms)
        try:
            member = self._find(request.member_id, request.instance_id)
            self._check_generation(request.generation)
            self._course.restart_session(member, turn)
            if self._course.state is State.PREPARING:
                raise self._rebalancing()
        except QuorumlogError as error:
            turn.fail(ticket, error)
        else:
            turn.answer(ticket, None)
        return turn.decision()

    def leave(self, ticket: Ticket, request: LeaveGroup, now_ms: int) -> Decision:
        """Members go; each has an error of its own (UnknownMember, FencedInstance)."""
        turn = Turn(now_ms)
        try:
            self._check_alive()
        except QuorumlogError as error:
            turn.fail(ticket, error)
            return turn.decision()
        count = len(self._course.roster)
        errors: list[QuorumlogError | None] = []
        for leaver in request.leavers:
            try:
                self._leave(leaver, turn)
            except QuorumlogError as error:
                errors.append(error)
            else:
                errors.append(None)
        if None in errors:
            self._course.settle(turn, has_lost=len(self._course.roster) < count)
        turn.answer(ticket, Left(errors=tuple(errors)))
        return turn.decision()

    def _leave(self, leaver: Leaver, turn: Turn) -> None:
        """By id, or by static name alone: an administrator's."""
        roster = self._course.roster
        if leaver.member_id in roster.pending:
            self._course.forget_pending(leaver.member_id)
            return
        by_name = None if leaver.member_id else roster.by_instance(leaver.instance_id)
        member = by_name or roster.find(self.group, leaver.member_id, leaver.instance_id)
        self._course.remove(member, turn)

    def check_commit(self, request: CommitOffsets, now_ms: int | None = None) -> None:
        """Raises what speaks against a commit; with a time, a commit counts as a sign of life.

        Without member and generation a program outside of the group commits, which only an empty
        group takes. Raises: UnknownMember, IllegalGeneration, RebalanceInProgress, FencedInstance,
        CoordinatorNotAvailable (dropped).
        """
        self._check_alive()
        course = self._course
        if request.generation < 0 and course.state is State.EMPTY:
            return
        names_nobody = not request.member_id and request.instance_id is None
        if request.generation < 0 and names_nobody:
            raise UnknownMember(
                f"group {self.group!r} has members: only they commit; stop them first, or take"
                " another group"
            )
        member = self._find(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if course.state is State.COMPLETING:
            raise self._rebalancing()
        if now_ms is not None:
            course.restart_session(member, Turn(now_ms))

    def _find(self, member_id: str, instance_id: str | None) -> Member:
        self._check_alive()
        return self._course.roster.find(self.group, member_id, instance_id)

    def _check_alive(self) -> None:
        if self._course.state is State.DEAD:
            raise CoordinatorNotAvailable(f"group {self.group!r} is being removed; ask again")

    def _check_generation(self, generation: int) -> None:
        if generation != self._course.generation:
            raise IllegalGeneration(
                f"group {self.group!r} is in generation {self._course.generation}, not"
                f" {generation}; join again"
            )

    def _rebalancing(self) -> RebalanceInProgress:
        return RebalanceInProgress(
            f"group {self.group!r} shares its partitions out anew; join again"
        )

    # --- time -------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """When `expire` is to be called next; None: never."""
        return self._course.deadline_ms()

    def expire(self, now_ms: int) -> Decision:
        """Do what is due: members that fell silent go, joins and syncs end."""
        turn = Turn(now_ms)
        self._course.expire(turn)
        return turn.decision()

    # --- looking on -------------------------------------------------------------------------------

    def describe(self, now_ms: int | None = None) -> GroupDescription:
        """The group as it stands; protocol and subscriptions while it is stable. Without a time
        nothing is said of how long members have been silent."""
        course = self._course
        protocol = course.protocol if course.state is State.STABLE else None
        return GroupDescription(
            group=self.group,
            is_classic=True,
            state=course.state.value,
            protocol_type=course.roster.protocol_type,
            protocol=protocol or "",
            generation=course.generation,
            members=tuple(
                member.description(protocol, course.silent_ms(member, now_ms))
                for member in course.roster
            ),
        )

    def listing(self) -> GroupListing:
        """Its line in the list."""
        return GroupListing(
            group=self.group,
            is_classic=True,
            state=self._course.state.value,
            protocol_type=self.protocol_type,
        )

    @property
    def is_empty(self) -> bool:
        """It has no member (ids may have been given out)."""
        return not self._course.roster.members

    @property
    def is_stable(self) -> bool:
        """All members are there and have their parts; else one may be missing for a moment."""
        return self._course.state is State.STABLE

    @property
    def member_count(self) -> int:
        """Members that it has."""
        return len(self._course.roster.members)

    @property
    def is_dead(self) -> bool:
        """It was dropped: throw it away."""
        return self._course.state is State.DEAD

    @property
    def is_blank(self) -> bool:
        """As new: no member, no id given out, no generation; forgetting it loses nothing."""
        roster = self._course.roster
        return not (roster.members or roster.pending or self._course.generation)

    @property
    def state_ms(self) -> int:
        """When it came into its present state; -1: unknown. Offsets of an empty group expire."""
        return self._course.state_ms

    @property
    def protocol_type(self) -> str:
        """Such as "consumer"; empty: none yet."""
        return self._course.roster.protocol_type

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members read; none without members; None: not to be known.

        That is so where it is not of kind "consumer", or a subscription cannot be read.
        """
        return self._course.roster.topics(self._course.protocol)

    # --- storage, and the other face --------------------------------------------------------------

    def load(
        self,
        record: ClassicGroup,
        now_ms: int,
        protocols: Mapping[str, tuple[tuple[str, bytes], ...]] | None = None,
    ) -> None:
        """Become what was stored; its members have their whole session from now on.

        `protocols`: by member id, all that it offers, where that is known (a downgrade).
        """
        known = protocols or {}
        members = [restored(m, record.protocol, known.get(m.member_id)) for m in record.members]
        self._course.load(record, members, now_ms)

    def take_over(self, now_ms: int) -> Decision:
        """All is loaded: every member has its whole session from now; too many of them rebalance.

        Call it once, when the coordinator begins to answer.
        """
        turn = Turn(now_ms)
        for member in self._course.roster:
            self._course.restart_session(member, turn)
        if len(self._course.roster) > self._config.size_max:
            self._course.prepare(turn)
        return turn.decision()

    def resumed(self, now_ms: int) -> None:
        """No member could be heard for a while: each has its whole time from now on."""
        self._course.resume(Turn(now_ms))

    def snapshot(self) -> ClassicGroup:
        """The record that `load` would make this group from."""
        return self._course.record()

    def protocols(self) -> Mapping[str, tuple[tuple[str, bytes], ...]]:
        """By member id, what each offers (an upgrade takes it along)."""
        return {member.member_id: member.protocols for member in self._course.roster}

    def rebalance(self, now_ms: int) -> Decision:
        """Make the members join again (after a downgrade); nothing where they do already."""
        turn = Turn(now_ms)
        if self._course.state in (State.COMPLETING, State.STABLE):
            self._course.prepare(turn)
        return turn.decision()

    def drop(self, error: QuorumlogError | None = None) -> Decision:
        """The group ends: waiting joins and syncs fail with `error`, else UnknownMember.

        Stores nothing: the tombstone is written by who drops it.
        """
        turn = Turn(max(self._course.state_ms, 0))
        self._course.end(error, turn)
        return turn.decision()

    def check_invariants(self) -> None:
        """What holds between any two steps; O(members)."""
        self._course.check_invariants()
