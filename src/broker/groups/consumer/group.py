"""A group of KIP-848 as a pure machine: who asks what is answered here, `core` does it.

Apache Kafka 4.3 settles the behaviour. Where this differs, and why:
- Small groups share out at once, whatever `group.consumer.assignment.interval.ms` says: the
  second member of a group need not wait for its partitions.
- A member that asks with an older epoch than it has is told its assignment, whole request or not:
  the answer that raised its epoch was lost.
- A change of the group's assignor raises the group's epoch.
- A static member may come again into a full group: it takes its own place.
- A pattern matches none of the cluster's own topics.
- Whose static name another one has taken is told so when it commits, too: told that it is no
  member, a program of the classic protocol would join again, and shut the other one out in turn.
- When the last member of KIP-848 makes way for a classic static one, the group becomes classic
  first and that one joins it, as any does.
"""

from collections.abc import Callable
from typing import Any

from ....errors import (
    IllegalGeneration,
    QuorumlogError,
    StaleMemberEpoch,
    UnknownMember,
)
from ....metadata.image import MetadataImage
from ..classic import ClassicGroupMachine
from ..config import GroupConfig
from ..consumer_protocol import PROTOCOL_TYPE
from ..decision import NOTHING, Answered, Decision, Failed, Ticket
from ..records import GroupRecord, Partitions
from ..requests import (
    JOIN_EPOCH,
    ClassicHeartbeat,
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    GroupDescription,
    GroupListing,
    JoinGroup,
    LeaveGroup,
    MemberDescription,
    SyncGroup,
)
from . import classic_face, heartbeating
from .core import ASSIGN, GroupCore
from .downgrading import downgrade, is_to_downgrade
from .state import GroupState


class ConsumerGroupMachine:
    """One group. Every request with a ticket is answered in its own decision.

    A refusal is a `Failed` of the decision; `check_commit` and `check_fetch` raise. After each
    decision look at `downgraded`: where it is set, that machine is the group from now on, and this
    one is to be thrown away (the decision has its records). Times are in milliseconds.
    """

    def __init__(self, group: str, config: GroupConfig, draw: Callable[[], str]) -> None:
        self.group = group
        self.downgraded: ClassicGroupMachine | None = None
        self._config = config
        self._draw = draw
        self._core = GroupCore(group, config)

    @property
    def state(self) -> GroupState:
        """What is stored of it; not to be changed but by `replay`."""
        return self._core.state

    # --- requests ---------------------------------------------------------------------------------

    def heartbeat(
        self, ticket: Ticket, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
    ) -> Decision:
        """A member joins, stays or leaves.

        Refused with: InvalidRequest, UnsupportedAssignor, InvalidPattern, GroupFull,
        UnknownMember, FencedInstance, UnreleasedInstance, FencedMemberEpoch.
        """
        core = self._core
        if request.member_epoch >= JOIN_EPOCH:
            return self._answer(
                ticket, lambda: heartbeating.heartbeat(core, self._draw, request, image, now_ms)
            )
        decision = self._answer(ticket, lambda: heartbeating.leave(core, request, image, now_ms))
        return decision + self._maybe_downgrade(decision, image, now_ms)

    def join(
        self, ticket: Ticket, request: JoinGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        """A member of the classic protocol comes; answered at once, it waits for nobody.

        Refused with: InconsistentGroupProtocol, InvalidSessionTimeout, GroupFull, UnknownMember,
        FencedInstance.
        """
        core, state = self._core, self._core.state
        old = None
        if request.instance_id is not None and not request.member_id:
            old = state.static_member(request.instance_id)
        if old is not None and old.classic is None and self._is_last_but(old.member_id):
            return self._join_classic(ticket, request, old.member_id, image, now_ms)
        return self._answer(
            ticket, lambda: classic_face.join(core, self._draw, request, image, now_ms)
        )

    def sync(
        self, ticket: Ticket, request: SyncGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        """A member of the classic protocol asks for its part.

        Refused with: UnknownMember, FencedInstance, IllegalGeneration, InconsistentGroupProtocol,
        RebalanceInProgress.
        """
        return self._answer(ticket, lambda: classic_face.sync(self._core, request, image, now_ms))

    def classic_heartbeat(
        self, ticket: Ticket, request: ClassicHeartbeat, image: MetadataImage, now_ms: int
    ) -> Decision:
        """A member of the classic protocol lives; RebalanceInProgress: it is to join again."""
        return self._answer(
            ticket, lambda: classic_face.heartbeat(self._core, request, image, now_ms)
        )

    def leave(
        self, ticket: Ticket, request: LeaveGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        """Members go, or are sent away, of either protocol; each has an error of its own."""
        decision = self._answer(
            ticket, lambda: classic_face.leave(self._core, request, image, now_ms)
        )
        return decision + self._maybe_downgrade(decision, image, now_ms)

    def check_commit(self, request: CommitOffsets) -> None:
        """Raises what speaks against a commit: UnknownMember, FencedInstance, StaleMemberEpoch (of
        a member of the classic protocol: IllegalGeneration)."""
        if request.generation < 0 and self.is_empty:
            return  # an administrator, or a consumer without a group
        if request.member_id not in self.state.members and request.instance_id is not None:
            heartbeating.find_member(self.state, request.member_id, request.instance_id)
        self._check_epoch(request.member_id, request.generation)

    def check_fetch(self, request: FetchOffsets) -> None:
        """Raises UnknownMember or StaleMemberEpoch (IllegalGeneration) where a member asks."""
        if request.member_id or request.member_epoch >= 0:
            self._check_epoch(request.member_id, request.member_epoch)

    # --- time and metadata ------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """When `expire` is to be called next, never too late; None: never. O(1)."""
        return self._core.timers.next_ms()

    def expire(self, now_ms: int, image: MetadataImage) -> Decision:
        """Do what is due: members that fell silent, or do not revoke, are fenced."""
        core = self._core
        late: dict[str, None] = {}
        for kind, member_id in core.timers.due(now_ms):
            if kind == ASSIGN:
                core.refresh(image, now_ms, has_changed=False)
                core.assign(now_ms)
            elif member_id in core.state.members:
                late[member_id] = None
        if not late:
            return Decision(core.take())
        core.fence(late, image, now_ms)
        decision = Decision(core.take())
        return decision + self._maybe_downgrade(decision, image, now_ms)

    # --- descriptions -----------------------------------------------------------------------------

    def describe(self, image: MetadataImage, now_ms: int | None = None) -> GroupDescription:
        """The group as it stands; what is read of topics that are gone is left out. Without a time
        nothing is said of how long members have been silent."""
        state = self.state
        return GroupDescription(
            group=self.group,
            is_classic=False,
            state=state.name,
            protocol_type=PROTOCOL_TYPE,
            protocol=self._core.assignor,
            generation=state.epoch,
            target_epoch=state.target_epoch,
            members=tuple(self._describe_member(each, image, now_ms) for each in state.members),
        )

    def _describe_member(
        self, member_id: str, image: MetadataImage, now_ms: int | None
    ) -> MemberDescription:
        member, current = self.state.members[member_id], self.state.current_of(member_id)
        return MemberDescription(
            member_id=member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rack=member.rack,
            is_classic=member.classic is not None,
            silent_ms=self._core.silent_ms(member_id, now_ms),
            member_epoch=current.epoch,
            topics=member.topics,
            pattern=member.pattern,
            owned=_existing(current.assigned, image),
            target=_existing(self.state.targets.get(member_id, {}), image),
        )

    def listing(self) -> GroupListing:
        """Its line in the list."""
        return GroupListing(
            group=self.group,
            is_classic=False,
            state=self.state.name,
            protocol_type=PROTOCOL_TYPE,
        )

    @property
    def is_empty(self) -> bool:
        """It has no member."""
        return not self.state.members

    @property
    def state_ms(self) -> int:
        """Since when it has no member, where it has none; -1: unknown."""
        return self.state.target_ms

    @property
    def protocol_type(self) -> str:
        """Of consumers."""
        return PROTOCOL_TYPE

    @property
    def member_count(self) -> int:
        """Members that it has."""
        return len(self.state.members)

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that the members read, by name or by a pattern."""
        return self.state.subscribed_topics()

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Take in a stored record of this group (its KIP-848 kinds); nothing else changes."""
        self.state.replay(record)

    def loaded(self, now_ms: int) -> None:
        """All records have been replayed: every member has its whole session from now on."""
        self._core.loaded(now_ms)

    def restart_sessions(self, now_ms: int) -> None:
        """No member could be heard for a while: each has its whole time from now on."""
        self._core.restart_sessions(now_ms)

    def forget_records(self) -> tuple[GroupRecord, ...]:
        """Tombstones of everything that is stored of it; this machine is to be thrown away."""
        return tuple(self.state.tombstones())

    def check_invariants(self) -> None:
        """What holds between any two steps; O(members + partitions)."""
        self.state.check_invariants()

    # --- helpers ----------------------------------------------------------------------------------

    def _answer(self, ticket: Ticket, step: Callable[[], Any]) -> Decision:
        """Do it; a refusal has the records of what was due anyway."""
        try:
            outcome = step()
        except QuorumlogError as error:
            return Decision(self._core.take(), (Failed(ticket, error),))
        return Decision(self._core.take(), (Answered(ticket, outcome),))

    def _check_epoch(self, member_id: str, epoch: int) -> None:
        member = self.state.members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.group!r} has no member {member_id!r}: join again")
        current_epoch = self.state.current_of(member_id).epoch
        if epoch == current_epoch and epoch >= 0:
            return
        if member.classic is not None:
            raise IllegalGeneration(
                f"the member comes with generation {epoch} and is at {current_epoch}: join again"
            )
        raise StaleMemberEpoch(
            f"the member comes with epoch {epoch} and is at {current_epoch}: take the one of the "
            "next heartbeat"
        )

    def _is_last_but(self, member_id: str) -> bool:
        """Whether this is the last member of KIP-848, and the group would be classic without."""
        state = self.state
        return state.classic_count == len(state.members) - 1 and self._config.migration in (
            "bidirectional",
            "downgrade",
        )

    def _join_classic(
        self, ticket: Ticket, request: JoinGroup, old_id: str, image: MetadataImage, now_ms: int
    ) -> Decision:
        """The last member of KIP-848 makes way for a classic one of its static name."""
        core = self._core
        try:
            classic_face.check_join(core, request)
        except QuorumlogError as error:
            return Decision(replies=(Failed(ticket, error),))
        core.fence((old_id,), image, now_ms)
        if self.is_empty:
            decision = Decision((*core.take(), *self.forget_records()))
            self.downgraded = ClassicGroupMachine(self.group, self._config, self._draw)
        else:
            self.downgraded, decision = downgrade(core, self._draw, image, now_ms)
        return decision + self.downgraded.join(ticket, request, now_ms)

    def _maybe_downgrade(self, so_far: Decision, image: MetadataImage, now_ms: int) -> Decision:
        """Become classic where the last member of KIP-848 has just gone."""
        if not so_far.records or not is_to_downgrade(self._core):
            return NOTHING
        self.downgraded, decision = downgrade(self._core, self._draw, image, now_ms)
        return decision


def _existing(partitions: Partitions, image: MetadataImage) -> Partitions:
    return {
        topic_id: indices
        for topic_id, indices in partitions.items()
        if image.topic_of_id(topic_id) is not None
    }
