"""The way of a classic group from one generation to the next.

    Empty --first joins--> PreparingRebalance --all joined, or time up--> CompletingRebalance
      ^                      |          ^                                     |      |
      +--nobody is left------+          +--a member comes, goes or changes----+      |
                                        |                                            |
                                        +-------------------- Stable <--leader syncs-+

A generation is told to its members when it begins (join), and stored when its leader has assigned
(sync): one that was told and never stored is forgotten with its coordinator, and its members join
again. The answers of a sync stand in the decision that stores what they say, or in a later one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ....errors import FencedInstance, QuorumlogError, RebalanceInProgress, UnknownMember
from ..config import GroupConfig
from ..decision import Ticket
from ..records import NO_TIME_MS, ClassicGroup
from ..requests import Joined, JoinedMember, Synced
from .deadlines import Deadlines
from .member import COMES_FROM, Member, State
from .roster import Roster
from .turn import Turn

NEW_MEMBER_JOIN_MS: Final = 300_000
"""A member that was in no generation yet waits so long for one: whoever it belonged to may have
lost its connection and not know its id, and nothing else would end it. The field's value."""
GATHERING_MS_MIN: Final = 1_000
"""Where nobody came at all, the next look is no sooner, however short the members' times are."""


@dataclass(slots=True, kw_only=True)
class Gathering:
    """Members join for the next generation: a state of PreparingRebalance alone."""

    end_ms: int
    first_since_ms: int | None = None  # the group was empty: it waits for more in any case
    has_grown: bool = False  # since the end was last put on


class Generations:
    """Members and states of a group; `ClassicGroupMachine` says who may do what."""

    __slots__ = (
        "_config", "_gathering", "_sync_end_ms", "_unsynced", "generation", "group", "leader",
        "protocol", "roster", "sessions", "state", "state_ms",
    )  # fmt: skip

    def __init__(self, group: str, config: GroupConfig) -> None:
        self.group = group
        self._config = config
        self.roster = Roster()
        self.sessions = Deadlines()  # by id, of members and of ids given out
        self.state = State.EMPTY
        self.state_ms = NO_TIME_MS
        self.generation = 0
        self.protocol: str | None = None
        self.leader: str | None = None  # its member id, from the end of a gathering on
        self._gathering: Gathering | None = None
        self._sync_end_ms: int | None = None  # then those of `_unsynced` go
        self._unsynced: dict[str, None] = {}  # were told of the generation and have not synced

    # --- members come -----------------------------------------------------------------------------

    def await_first_join(self, member_id: str, session_timeout_ms: int, turn: Turn) -> None:
        """An id is given out: the next generation waits for it, until its session ends."""
        self.roster.pending[member_id] = None
        self.sessions.set(member_id, turn.now_ms + session_timeout_ms)

    def add(self, member: Member, protocol_type: str, ticket: Ticket, turn: Turn) -> None:
        """A new member: it waits for the next generation."""
        self.roster.add(member, protocol_type)
        if self._gathering is not None:
            self._gathering.has_grown = True
        self._wait(member, ticket, turn)
        self._gather(turn)

    def rejoin(self, member: Member, ticket: Ticket, turn: Turn) -> None:
        """A member, changed or not, waits for the next generation."""
        self._wait(member, ticket, turn)
        self._gather(turn)

    def replace(self, old: Member, new: Member, turn: Turn) -> None:
        """A static member has come again under a new id, with the old one's place and part.

        Whoever has the old id is fenced. The new one does not wait yet.
        """
        assert old.instance_id == new.instance_id, f"{old.instance_id!r} {new.instance_id!r}"
        self._release(
            old,
            FencedInstance(
                f"group {self.group!r}: static member {old.instance_id!r} came again as"
                f" {new.member_id!r}; end this one"
            ),
            turn,
        )
        protocol_type = self.roster.protocol_type
        self.roster.remove(old)
        self.sessions.drop(old.member_id)
        new.assignment = old.assignment
        new.is_new = False
        self.roster.add(new, protocol_type)
        self.restart_session(new, turn)
        if self.leader == old.member_id:
            self.leader = new.member_id
        if old.member_id in self._unsynced:
            del self._unsynced[old.member_id]
            self._unsynced[new.member_id] = None

    def _wait(self, member: Member, ticket: Ticket, turn: Turn) -> None:
        """Its session stands still until it is answered, but for a new one's."""
        if member.joining is not None:
            self._repeated(self.roster.answered(member), member, turn)
        self.roster.wait(member, ticket)
        if member.is_new:
            self.sessions.set(member.member_id, turn.now_ms + NEW_MEMBER_JOIN_MS)
        else:
            self.sessions.drop(member.member_id)

    def _repeated(self, ticket: Ticket, member: Member, turn: Turn) -> None:
        """The same request has come again: the earlier one is answered, whoever still waits."""
        text = f"group {self.group!r}: member {member.member_id!r} has asked again"
        turn.fail(ticket, RebalanceInProgress(f"{text}; the later request is answered"))

    # --- members live, and go ---------------------------------------------------------------------

    def restart_session(self, member: Member, turn: Turn) -> None:
        """A sign of life; while its join or sync waits, it needs none."""
        if member.joining is None and member.syncing is None:
            self.sessions.set(member.member_id, turn.now_ms + member.session_timeout_ms)

    def silent_ms(self, member: Member, now_ms: int | None) -> int:
        """For how long a member was not heard of; -1: nobody knows."""
        if now_ms is None:
            return -1
        end_ms = self.sessions.get(member.member_id)
        if end_ms is None:
            return 0  # its join or sync waits here
        return max(0, now_ms - end_ms + member.session_timeout_ms)

    def resume(self, turn: Turn) -> None:
        """No member could be heard for a while: who is waited for has its whole time from now."""
        for member in self.roster:
            self.restart_session(member, turn)
        whole_ms = turn.now_ms + self.roster.rebalance_timeout_ms
        if self._sync_end_ms is not None:
            self._sync_end_ms = whole_ms
        if self._gathering is not None and self._gathering.first_since_ms is None:
            self._gathering.end_ms = max(self._gathering.end_ms, whole_ms)

    def forget_pending(self, member_id: str) -> None:
        """An id that was given out is void; call `settle` when all that go have gone."""
        del self.roster.pending[member_id]
        self.sessions.drop(member_id)

    def remove(self, member: Member, turn: Turn) -> None:
        """A member goes; call `settle` when all that go have gone."""
        self._release(
            member,
            UnknownMember(
                f"group {self.group!r} has let member {member.member_id!r} go; join again without"
                " member id"
            ),
            turn,
        )
        self.roster.remove(member)
        self.sessions.drop(member.member_id)
        self._unsynced.pop(member.member_id, None)
        if self.leader == member.member_id:
            self.leader = None

    def settle(self, turn: Turn, *, has_lost: bool) -> None:
        """Go on after some went: `has_lost` members, or only ids that had been given out."""
        if has_lost:
            self._gather(turn)
        else:
            self._maybe_begin(turn)

    def _release(self, member: Member, error: QuorumlogError, turn: Turn) -> None:
        """Fail what of a member waits."""
        if member.joining is not None:
            turn.fail(self.roster.answered(member), error)
        self._fail_sync(member, error, turn)

    def _fail_sync(self, member: Member, error: QuorumlogError, turn: Turn) -> None:
        if member.syncing is not None:
            turn.fail(member.syncing, error)
            member.syncing = None

    def end(self, error: QuorumlogError | None, turn: Turn) -> None:
        """The group is no more."""
        for member in self.roster:
            gone = UnknownMember(
                f"group {self.group!r} was deleted; member {member.member_id!r} joins again"
                " without member id"
            )
            self._release(member, gone if error is None else error, turn)
        self.sessions.clear()
        self.roster = Roster()
        self._gathering = None
        self._forget_syncs()
        self.leader = self.protocol = None
        self._become(State.DEAD, turn.now_ms)

    # --- gathering --------------------------------------------------------------------------------

    def _gather(self, turn: Turn) -> None:
        """Have everybody join, or go on where they do."""
        if self._gathering is None:
            self.prepare(turn)
        else:
            self._maybe_begin(turn)

    def prepare(self, turn: Turn) -> None:
        """Have everybody join for a next generation."""
        if self.state is State.COMPLETING:
            self._undo_syncs(turn)
        self._forget_syncs()
        now_ms = turn.now_ms
        if self.state is State.EMPTY:
            end_ms = now_ms + self._config.initial_delay_ms
            self._gathering = Gathering(end_ms=end_ms, first_since_ms=now_ms)
            self._become(State.PREPARING, now_ms)
        else:
            self._gathering = Gathering(end_ms=now_ms + self.roster.rebalance_timeout_ms)
            self._become(State.PREPARING, now_ms)
            self._maybe_begin(turn)

    def _undo_syncs(self, turn: Turn) -> None:
        """The generation ends before its leader has assigned: all have what they had before."""
        error = RebalanceInProgress(
            f"group {self.group!r} changed before generation {self.generation} was assigned; join"
            " again"
        )
        for member in self.roster:
            if member.syncing is not None:
                self._fail_sync(member, error, turn)
                self.restart_session(member, turn)

    def _forget_syncs(self) -> None:
        self._unsynced.clear()
        self._sync_end_ms = None

    def _maybe_begin(self, turn: Turn) -> None:
        """Begin the generation where nobody has to be waited for."""
        gathering = self._gathering
        if gathering is None or gathering.first_since_ms is not None:
            return
        if not self.roster.members or self.roster.are_all_waiting:
            self._begin(turn)

    def _gathering_ended(self, gathering: Gathering, turn: Turn) -> None:
        """Time is up; a first gathering in which more came goes on, as long as members wait."""
        since_ms = gathering.first_since_ms
        if since_ms is not None and gathering.has_grown:
            limit_ms = since_ms + self.roster.rebalance_timeout_ms
            if turn.now_ms < limit_ms:
                gathering.has_grown = False
                gathering.end_ms = min(turn.now_ms + self._config.initial_delay_ms, limit_ms)
                return
        self._begin(turn)

    def _begin(self, turn: Turn) -> None:
        """The next generation: of those that joined, and of static members that may yet.

        Where only static members are left and none joined, it is gathered on: nobody could lead.
        """
        absent = [m for m in self.roster if m.joining is None and m.instance_id is None]
        for member in absent:
            self.remove(member, turn)
        if self.roster.members and not self.roster.waiting_count:
            wait_ms = max(self.roster.rebalance_timeout_ms, GATHERING_MS_MIN)
            self._gathering = Gathering(end_ms=turn.now_ms + wait_ms)
            return
        self._gathering = None
        self.generation += 1
        if not self.roster.members:
            self.protocol = self.leader = None
            self._become(State.EMPTY, turn.now_ms)
            turn.store(self.record())
            return
        self.protocol = self.roster.choose_protocol()
        self._choose_leader()
        self._become(State.COMPLETING, turn.now_ms)
        self._tell(turn)

    def _choose_leader(self) -> None:
        """The one before where it joined, else the first that did; O(members) once."""
        leader = None if self.leader is None else self.roster.members[self.leader]
        if leader is None or leader.joining is None:
            self.leader = next(m.member_id for m in self.roster if m.joining is not None)

    def _tell(self, turn: Turn) -> None:
        """Answer the joins, and wait for the syncs."""
        for member in self.roster:
            if member.joining is None:
                continue  # static and absent: its session ends it, or it comes in time
            turn.answer(self.roster.answered(member), self.joined(member))
            member.is_new = False
            self.restart_session(member, turn)
            self._unsynced[member.member_id] = None
        self._sync_end_ms = turn.now_ms + self.roster.rebalance_timeout_ms

    def joined(self, member: Member) -> Joined:
        """What a member is told of the present generation; the leader, of everybody."""
        assert self.state in (State.COMPLETING, State.STABLE), f"joined in {self.state}"
        assert self.leader is not None, "a generation without a leader"
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.roster.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=self._everybody() if member.member_id == self.leader else (),
        )

    def _everybody(self) -> tuple[JoinedMember, ...]:
        protocol = self.protocol
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.subscription(protocol)) for m in self.roster
        )

    # --- syncing ----------------------------------------------------------------------------------

    def await_assignment(self, member: Member, ticket: Ticket, turn: Turn) -> None:
        """A member's sync waits for the leader's; its session stands still."""
        assert self.state is State.COMPLETING, f"sync waits in {self.state}"
        self._unsynced.pop(member.member_id, None)
        if member.syncing is not None:
            self._repeated(member.syncing, member, turn)
        member.syncing = ticket
        self.sessions.drop(member.member_id)

    def assign(self, assignments: Mapping[str, bytes], turn: Turn) -> None:
        """The leader says who gets what, itself among those that wait: store it, hand it out."""
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
        self._become(State.STABLE, turn.now_ms)
        turn.store(self.record())
        for member in self.roster:
            if member.syncing is not None:
                turn.answer(member.syncing, self.synced(member))
                member.syncing = None
                self.restart_session(member, turn)
        self._maybe_all_synced()

    def synced_late(self, member: Member, ticket: Ticket, turn: Turn) -> None:
        """A sync after the leader's is answered at once."""
        self._unsynced.pop(member.member_id, None)
        self._maybe_all_synced()
        turn.answer(ticket, self.synced(member))
        self.restart_session(member, turn)

    def synced(self, member: Member) -> Synced:
        """A member's part of the present generation."""
        assert self.state is State.STABLE, f"synced in {self.state}"
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
        """When `expire` is due; None: never."""
        due_ms = self.sessions.next_ms()
        gathered_ms = None if self._gathering is None else self._gathering.end_ms
        for at_ms in (gathered_ms, self._sync_end_ms):
            if at_ms is not None and (due_ms is None or at_ms < due_ms):
                due_ms = at_ms
        return due_ms

    def expire(self, turn: Turn) -> None:
        """Do what is due: first who fell silent, then joins and syncs that take too long."""
        due = self.sessions.due(turn.now_ms)
        has_lost = False
        for member_id in due:
            member = self.roster.members.get(member_id)
            if member is None:
                self.forget_pending(member_id)
            else:
                self.remove(member, turn)
                has_lost = True
        if self._sync_end_ms is not None and self._sync_end_ms <= turn.now_ms:
            self._sync_end_ms = None
            for member_id in list(self._unsynced):
                self.remove(self.roster.members[member_id], turn)
                has_lost = True
        if due or has_lost:
            self.settle(turn, has_lost=has_lost)
        gathering = self._gathering
        if gathering is not None and gathering.end_ms <= turn.now_ms:
            self._gathering_ended(gathering, turn)

    # --- storage ----------------------------------------------------------------------------------

    def load(self, record: ClassicGroup, members: Iterable[Member], now_ms: int) -> None:
        """Become what was stored, whatever stood here; nobody waits for an answer."""
        assert not self.roster.waiting_count, "loaded over joins that wait"
        self.roster = Roster()
        self.sessions.clear()
        self._gathering = None
        self._forget_syncs()
        self.generation = record.generation
        self.protocol, self.leader = record.protocol, record.leader
        for member in members:
            if member.member_id in self.roster.members or self.roster.by_instance(
                member.instance_id
            ):
                continue  # nobody writes such a record; the first one counts
            self.roster.add(member, record.protocol_type)
            self.restart_session(member, Turn(now_ms))
        self.roster.protocol_type = record.protocol_type
        if self.roster.members:
            if self.protocol is None:
                self.protocol = self.roster.choose_protocol()
            if self.leader not in self.roster.members:
                self.leader = next(iter(self.roster.members))
        self.state = State.STABLE if self.roster.members else State.EMPTY
        self.state_ms = record.state_ms

    def record(self) -> ClassicGroup:
        """The group as it stands."""
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

    def _become(self, state: State, now_ms: int) -> None:
        assert self.state in COMES_FROM[state], f"{self.state} -> {state}"
        self.state = state
        self.state_ms = now_ms

    def check_invariants(self) -> None:
        """What holds between any two steps; O(members)."""
        self.roster.check_invariants()
        members, state = self.roster.members, self.state
        # 1. A group has members in every state but the two that say that it has none; while the
        #    first members gather, the last of them may have gone again.
        if state in (State.EMPTY, State.DEAD):
            assert not members, f"{len(members)} members in {state}"
        elif state is not State.PREPARING:
            assert members, f"no members in {state}"
        # 2. Joins wait while members are gathered, syncs until the leader's, and no longer.
        assert (state is State.PREPARING) == (self._gathering is not None), f"gathers in {state}"
        if state is not State.PREPARING:
            assert not self.roster.waiting_count, f"joins wait in {state}"
        if state is not State.COMPLETING:
            assert all(m.syncing is None for m in self.roster), f"syncs wait in {state}"
        # 3. A generation has one leader, who is of it, and a protocol that all of it have.
        if state in (State.COMPLETING, State.STABLE):
            assert self.leader in members, f"leader {self.leader!r} is no member"
            for member in self.roster:
                names = [name for name, _ in member.protocols]
                assert self.protocol in names, f"{member.member_id!r} has no {self.protocol!r}"
        self._check_ends()

    def _check_ends(self) -> None:
        members = self.roster.members
        # 4. Nobody is forgotten: everybody has an end, of its own or of what it waits for.
        for member in self.roster:
            waits = member.joining is not None or member.syncing is not None
            assert waits or member.member_id in self.sessions, f"{member.member_id!r} for ever"
        for member_id in self.roster.pending:
            assert member_id in self.sessions, f"{member_id!r} is given out for ever"
        if self._unsynced:
            assert self._sync_end_ms is not None, f"{list(self._unsynced)} may sync for ever"
        # 5. Nobody is kept in mind who has gone.
        assert self._unsynced.keys() <= members.keys(), "a sync of nobody's is waited for"
        known = members.keys() | self.roster.pending.keys()
        assert self.sessions.names() <= known, "a session of nobody's"
        if self.state is State.COMPLETING:
            assert self._sync_end_ms is not None, "the leader may take for ever"
