"""A KIP-848 group as a pure state machine: validation of requests, and answers.

The behaviour is that of Apache Kafka 4.3, with these differences:
- Small groups compute a target at once, whatever `group.consumer.assignment.interval.ms` is, so
  that the second member need not wait for its partitions.
- A heartbeat with an older epoch is answered with the assignment, even if the request is not a full
  one: the answer that raised the epoch was lost.
- A change of the group's assignor increments the group epoch.
- A static member may rejoin a full group, because it replaces itself.
- A pattern matches no internal topic. A heartbeat matches the pattern of its own member only, with
  the topics that the member's client may describe, and a change of ACLs makes the match due.
- The topics of a classic member are those that its client may describe, in its subscription, its
  claims and its assignment. A heartbeat upgrades a group only if its client may describe the topics
  of the classic members. After a downgrade, a description has no assignments until the leader has
  sent them.
- A commit by a member with an instance id that was taken over fails with FencedInstance. After
  UnknownMember, a classic client would rejoin and fence the other instance in turn.
- If the last member of KIP-848 is replaced by a classic instance, the group becomes classic first,
  and the new instance joins it as usual.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....errors import (
    IllegalGeneration,
    QuorumlogError,
    StaleMemberEpoch,
    UnknownMember,
)
from ....metadata.image import MetadataImage
from ...coordinator.decision import NOTHING, Answered, Failed, ShardDecision, Ticket
from ..classic_group import ClassicGroupMachine
from ..config import GroupConfig
from ..consumer_protocol import PROTOCOL_TYPE, version_of
from ..records import (
    ClassicGroup,
    CurrentAssignment,
    GroupDecision,
    GroupRecord,
    Partitions,
    StoredMember,
)
from ..requests import (
    JOIN_EPOCH,
    ClassicHeartbeat,
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerBeat,
    ConsumerHeartbeat,
    FetchOffsets,
    GroupDescription,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    MemberDescription,
    PlainCommit,
    SyncGroup,
)
from . import classic_members, heartbeat
from .classic_members import assignment_bytes
from .core import ASSIGN, GroupCore
from .state import GroupState


class ConsumerGroupMachine:
    """One group; every request with a ticket is answered in its own decision.

    A refusal is a `Failed` reply; `check_commit` and `check_fetch` raise. If `downgraded` is set
    after a decision, it replaces this machine, which must be discarded (the decision has the
    records of the change). Times are in milliseconds.
    """

    def __init__(self, group: str, config: GroupConfig, draw: Callable[[], str]) -> None:
        self.group = group
        self.downgraded: ClassicGroupMachine | None = None
        self._config = config
        self._draw = draw
        self._core = GroupCore(group, config)

    @property
    def state(self) -> GroupState:
        """The stored state; only `replay` may change it."""
        return self._core.state

    def configure(self, config: GroupConfig) -> None:
        """Replace the settings; members get them with their next heartbeats."""
        self._config = config
        self._core.configure(config)

    # --- requests ---------------------------------------------------------------------------------

    def heartbeat(
        self, ticket: Ticket, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        """Let a member join, stay or leave.

        Refused with: InvalidRequest, UnsupportedAssignor, InvalidPattern, GroupFull, UnknownMember,
        FencedInstance, UnreleasedInstance, FencedMemberEpoch.
        """
        core = self._core
        if request.member_epoch >= JOIN_EPOCH:
            return self._answer(
                ticket, lambda: heartbeat.heartbeat(core, self._draw, request, image, now_ms)
            )
        decision = self._answer(ticket, lambda: heartbeat.leave(core, request, image, now_ms))
        return decision + self._maybe_downgrade(decision, image, now_ms)

    def renew_session(
        self, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
    ) -> ConsumerBeat | None:
        """Answer the heartbeat of a member with its target assignment, as `heartbeat` does; None,
        without an effect, for any other."""
        return heartbeat.renew_session(self._core, request, image, now_ms)

    def join(
        self, ticket: Ticket, request: JoinGroup, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        """Let a member of the classic protocol join; it does not wait for other members.

        Refused with: InconsistentGroupProtocol, InvalidSessionTimeout, GroupFull, UnknownMember,
        FencedInstance.
        """
        core, state = self._core, self._core.state
        old = None
        if request.instance_id is not None and not request.member_id:
            old = state.static_member(request.instance_id)
        if old is not None and old.classic is None and self._is_last_consumer_member(old.member_id):
            return self._join_classic(ticket, request, old.member_id, image, now_ms)
        return self._answer(
            ticket, lambda: classic_members.join(core, self._draw, request, image, now_ms)
        )

    def sync(
        self, ticket: Ticket, request: SyncGroup, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        """Return the assignment of a member of the classic protocol.

        Refused with: UnknownMember, FencedInstance, IllegalGeneration, InconsistentGroupProtocol,
        RebalanceInProgress.
        """
        return self._answer(
            ticket, lambda: classic_members.sync(self._core, request, image, now_ms)
        )

    def classic_heartbeat(
        self, ticket: Ticket, request: ClassicHeartbeat, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        """Restart the session of a classic member; RebalanceInProgress asks it to rejoin."""
        return self._answer(
            ticket, lambda: classic_members.heartbeat(self._core, request, image, now_ms)
        )

    def leave(
        self, ticket: Ticket, request: LeaveGroup, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        """Remove members of either protocol; each has an error of its own or None."""
        decision = self._answer(
            ticket, lambda: classic_members.leave(self._core, request, image, now_ms)
        )
        return decision + self._maybe_downgrade(decision, image, now_ms)

    def check_commit(self, request: CommitOffsets) -> None:
        """Raise an error if the commit is not allowed: UnknownMember, FencedInstance,
        StaleMemberEpoch (for a classic member or in a transaction: IllegalGeneration)."""
        if request.generation < 0 and self.is_empty:
            return  # an administrator, or a consumer without a group
        is_transactional = isinstance(request, CommitTransactionalOffsets)
        is_outside = not request.member_id and request.instance_id is None
        if is_transactional and is_outside and request.generation < 0:
            return  # a producer of an older version, which does not send them
        if request.member_id not in self.state.members and request.instance_id is not None:
            heartbeat.find_member(self.state, request.member_id, request.instance_id)
        try:
            self._check_epoch(request.member_id, request.generation)
        except StaleMemberEpoch as error:
            if not is_transactional:
                raise
            raise IllegalGeneration(error.message) from None

    def may_commit(self, commit: PlainCommit) -> bool:
        """Return True if `check_commit` accepts the commit of a member; False for some others
        too."""
        current = self.state.current.get(commit.member_id)
        return (
            current is not None
            and current.epoch == commit.generation >= 0
            and commit.member_id in self.state.members
        )

    def committed(self, commit: PlainCommit, now_ms: int) -> None:
        """Do nothing after a commit: it restarts no session."""

    def check_fetch(self, request: FetchOffsets) -> None:
        """Raise UnknownMember, StaleMemberEpoch or (classic) IllegalGeneration for a member's
        fetch."""
        if request.member_id or request.member_epoch >= 0:
            self._check_epoch(request.member_id, request.member_epoch)

    # --- time and metadata ------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return the time of the next `expire`, never too late; None: no deadline. O(1)."""
        return self._core.timers.next_ms()

    def expire(self, now_ms: int, image: MetadataImage) -> GroupDecision:
        """Fence members after a timeout of session or revocation; compute a target that is due."""
        core = self._core
        late: dict[str, None] = {}
        for kind, member_id in core.timers.due(now_ms):
            if kind == ASSIGN:
                core.refresh(image, now_ms, has_changed=False)
                core.assign(now_ms)
            elif member_id in core.state.members:
                late[member_id] = None
        if not late:
            return ShardDecision(core.take_records())
        # sometimes: a member of the consumer protocol is late
        core.fence(late, image, now_ms)
        decision = ShardDecision(core.take_records())
        return decision + self._maybe_downgrade(decision, image, now_ms)

    # --- descriptions -----------------------------------------------------------------------------

    def describe(self, image: MetadataImage, now_ms: int | None = None) -> GroupDescription:
        """Return the group's description, without partitions of deleted topics. Without `now_ms`,
        the members' `silent_ms` is unknown."""
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

    def listing(self) -> ListedGroup:
        """Return the group's entry in the list of groups."""
        return ListedGroup(
            group=self.group,
            is_classic=False,
            state=self.state.name,
            protocol_type=PROTOCOL_TYPE,
        )

    @property
    def is_empty(self) -> bool:
        """True if the group has no member."""
        return not self.state.members

    @property
    def state_ms(self) -> int:
        """The time since which the group has been empty; -1: unknown."""
        return self.state.target_ms

    @property
    def protocol_type(self) -> str:
        """The protocol type of consumers."""
        return PROTOCOL_TYPE

    @property
    def member_bytes(self) -> int:
        """The bytes of the names and subscriptions of all members."""
        return self.state.stored_bytes

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self.state.members)

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that the members are subscribed to, by name or by pattern."""
        return self.state.subscribed_topics()

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Apply a stored KIP-848 record of this group."""
        self.state.replay(record)

    def loaded(self, now_ms: int) -> None:
        """Start the session of every member after the last record has been replayed."""
        self._core.loaded(now_ms)

    def restart_sessions(self, now_ms: int) -> None:
        """Restart all sessions and timeouts after requests were refused for a while."""
        self._core.restart_timers(now_ms)

    def forget_records(self) -> tuple[GroupRecord, ...]:
        """Return the tombstones of all records; the machine must be discarded."""
        return tuple(self.state.tombstones())

    def check_invariants(self) -> None:
        """Assert the invariants between two steps; O(members + partitions)."""
        self.state.check_invariants()

    # --- helpers ----------------------------------------------------------------------------------

    def _answer(self, ticket: Ticket, step: Callable[[], Any]) -> GroupDecision:
        """Run a step; a refusal keeps the records that the step has appended."""
        try:
            outcome = step()
        except QuorumlogError as error:
            return ShardDecision(self._core.take_records(), (Failed(ticket, error),))
        return ShardDecision(self._core.take_records(), (Answered(ticket, outcome),))

    def _check_epoch(self, member_id: str, epoch: int) -> None:
        member = self.state.members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.group!r}: no member {member_id!r}; join again")
        current_epoch = self.state.current_of(member_id).epoch
        if epoch == current_epoch and epoch >= 0:
            return
        if member.classic is not None:
            raise IllegalGeneration(
                f"the member's generation {epoch} is not the current one, {current_epoch}; join"
                " again"
            )
        raise StaleMemberEpoch(
            f"the member's epoch {epoch} is not the current one, {current_epoch}; use the epoch of"
            " the next heartbeat"
        )

    def _is_last_consumer_member(self, member_id: str) -> bool:
        """Return True if only classic members are left without this one, and the policy allows a
        downgrade."""
        state = self.state
        return state.classic_count == len(state.members) - 1 and self._config.migration in (
            "bidirectional",
            "downgrade",
        )

    def _join_classic(
        self, ticket: Ticket, request: JoinGroup, old_id: str, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        """Replace the last member of KIP-848 by a classic instance with the same instance id. All
        checks come before the member is fenced."""
        core = self._core
        try:
            subscription = classic_members.check_join(core, request)
            classic_members.check_subscription_size(core, old_id, request, subscription)
        except QuorumlogError as error:
            return ShardDecision(replies=(Failed(ticket, error),))
        request = replace(request, check_growth=None)
        core.fence((old_id,), image, now_ms)
        if self.is_empty:
            decision = ShardDecision((*core.take_records(), *self.forget_records()))
            self.downgraded = ClassicGroupMachine(self.group, self._config, self._draw)
        else:
            self.downgraded, decision = downgrade(core, self._draw, image, now_ms)
        return decision + self.downgraded.join(ticket, request, now_ms)

    def _maybe_downgrade(
        self, so_far: GroupDecision, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        """Downgrade the group if the last member of KIP-848 has just left."""
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


def is_to_downgrade(core: GroupCore) -> bool:
    """Return True if all members use the classic protocol and the policy allows a downgrade."""
    state = core.state
    return (
        state.classic_count > 0
        and state.classic_count == len(state.members)
        and core.config.migration in ("bidirectional", "downgrade")
    )


def downgrade(
    core: GroupCore, draw: Callable[[], str], image: MetadataImage, now_ms: int
) -> tuple[ClassicGroupMachine, GroupDecision]:
    """Return the classic group and the records of the change. Its members keep their assignments
    and are asked to rejoin."""
    record = _as_classic(core.state, image, now_ms)
    protocols = {
        member_id: member.classic.protocols
        for member_id, member in core.state.members.items()
        if member.classic is not None
    }
    for tombstone in list(core.state.tombstones()):
        core.append(tombstone)
    machine = ClassicGroupMachine(core.group, core.config, draw)
    machine.load(record, now_ms, protocols)
    decision = ShardDecision((*core.take_records(), record)) + machine.take_over(now_ms)
    return machine, decision + machine.rebalance(now_ms)


def _as_classic(state: GroupState, image: MetadataImage, now_ms: int) -> ClassicGroup:
    protocol = _shared_protocol(state)
    members = []
    for member_id, member in state.members.items():
        assert member.classic is not None, f"{member_id} does not use the classic protocol"
        subscription = dict(member.classic.protocols)[protocol]
        held = _held_by(state.current_of(member_id))
        members.append(
            StoredMember(
                member_id=member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                subscription=subscription,
                assignment=assignment_bytes(held, version_of(subscription), image),
            )
        )
    return ClassicGroup(
        group=state.group,
        protocol_type=PROTOCOL_TYPE,
        generation=state.epoch,
        protocol=protocol,
        leader=members[0].member_id,
        state_ms=now_ms,
        members=tuple(members),
    )


def _held_by(current: CurrentAssignment) -> Partitions:
    """Return the assigned partitions and those not revoked yet. The member may still use the
    latter, so they must not count as free if the group is upgraded again."""
    held = dict(current.assigned)
    for topic_id, indices in current.pending_revocation.items():
        held[topic_id] = held.get(topic_id, frozenset()) | indices
    return held


def _shared_protocol(state: GroupState) -> str:
    """Return the first protocol of the first member that all support; joins ensure that there is
    one."""
    faces = [member.classic for member in state.members.values() if member.classic is not None]
    for name, _ in faces[0].protocols:
        if all(name in dict(face.protocols) for face in faces):
            return name
    raise AssertionError(f"the members of {state.group} share no protocol")
