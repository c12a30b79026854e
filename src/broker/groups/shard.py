"""The groups of one partition of `__consumer_offsets`: who is asked what, which face a group has,
when something is due. Pure."""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, TypeAlias, cast

from ...errors import (
    GroupNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    QuorumlogError,
    UnknownMember,
)
from ...metadata.image import MetadataImage, TopicImage
from .classic import ClassicGroupMachine
from .config import GroupConfig
from .consumer import ConsumerGroupMachine, upgrade
from .decision import NOTHING, Answered, Decision, Failed, Ticket
from .offsets import Kept, Offsets
from .records import (
    ClassicGroup,
    ClassicGroupForgotten,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    CurrentAssignmentForgotten,
    GroupRecord,
    OffsetCommitted,
    OffsetForgotten,
    ResolvedPatternForgotten,
    TargetAssignmentForgotten,
    TargetEpochForgotten,
)
from .requests import (
    JOIN_EPOCH,
    ClassicHeartbeat,
    CommitOffsets,
    Committed,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupListing,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)

Machine: TypeAlias = ClassicGroupMachine | ConsumerGroupMachine

CHECKED_A_STEP = 2_000
"""Offsets that are looked at in one step for whether they are too old."""
GROUPS_A_STEP = 100
"""Groups that do in one step what is due: after a load the sessions of all end together."""

_CONSUMER_TOMBSTONES = (
    ConsumerMemberForgotten,
    TargetEpochForgotten,
    TargetAssignmentForgotten,
    CurrentAssignmentForgotten,
    ResolvedPatternForgotten,
)


class GroupShard:
    """The groups of one partition. Load it by `replay` of what is stored and then `loaded`; times
    are in milliseconds of the wall clock."""

    def __init__(self, config: GroupConfig, draw: Callable[[], str]) -> None:
        self._config = config
        self._draw = draw
        self._groups: dict[str, Machine] = {}
        self._stored: dict[str, ClassicGroup] = {}  # classic groups, until all is loaded
        self._offsets = Offsets(config)
        self._deadlines: list[tuple[int, str]] = []  # a heap; counts where `_due` says the same
        self._due: dict[str, int] = {}
        self._check_ms: int | None = None  # when old offsets are looked for next
        self._to_check: list[str] = []  # groups of this round
        self._ask: dict[type, Callable[..., Decision]] = {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            ClassicHeartbeat: self._beat,
            LeaveGroup: self._leave,
            ConsumerHeartbeat: self._consumer_beat,
            CommitOffsets: self._commit,
            FetchOffsets: self._fetch,
            DeleteOffsets: self._delete_offsets,
            DescribeGroup: self._describe,
            DeleteGroup: self._delete,
        }

    # --- what is asked ----------------------------------------------------------------------------

    def handle(
        self, ticket: Ticket, request: GroupRequest[Any], image: MetadataImage, now_ms: int
    ) -> Decision:
        """Decide a request; what it is refused with is a `Failed` of the decision."""
        try:
            decision = self._ask[type(request)](ticket, request, image, now_ms)
        except QuorumlogError as error:
            decision = Decision(replies=(Failed(ticket, error),))
        self._touched(request.group)
        return decision

    def _join(
        self, ticket: Ticket, request: JoinGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._groups.get(request.group)
        before = NOTHING
        if isinstance(machine, ConsumerGroupMachine):
            if not machine.is_empty:
                return machine.join(ticket, request, image, now_ms)
            before = Decision(records=machine.forget_records())
            machine = None
        if machine is None:
            machine = ClassicGroupMachine(request.group, self._config, self._draw)
            self._groups[request.group] = machine
        return before + machine.join(ticket, request, now_ms)

    def _sync(
        self, ticket: Ticket, request: SyncGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._member_of(request)
        if isinstance(machine, ConsumerGroupMachine):
            return machine.sync(ticket, request, image, now_ms)
        return machine.sync(ticket, request, now_ms)

    def _beat(
        self, ticket: Ticket, request: ClassicHeartbeat, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._member_of(request)
        if isinstance(machine, ConsumerGroupMachine):
            return machine.classic_heartbeat(ticket, request, image, now_ms)
        return machine.heartbeat(ticket, request, now_ms)

    def _leave(
        self, ticket: Ticket, request: LeaveGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._member_of(request)
        if isinstance(machine, ConsumerGroupMachine):
            return machine.leave(ticket, request, image, now_ms)
        return machine.leave(ticket, request, now_ms)

    def _consumer_beat(
        self, ticket: Ticket, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
    ) -> Decision:
        group, machine = request.group, self._groups.get(request.group)
        if machine is None and request.member_epoch == JOIN_EPOCH:
            made = ConsumerGroupMachine(group, self._config, self._draw)
            decision = made.heartbeat(ticket, request, image, now_ms)
            if not made.is_empty:
                self._groups[group] = made
            return decision
        if machine is None or (
            isinstance(machine, ClassicGroupMachine) and request.member_epoch != JOIN_EPOCH
        ):
            raise UnknownMember(
                f"there is no group {group} of the consumer protocol; join it with member epoch 0"
            )
        if isinstance(machine, ConsumerGroupMachine):
            return machine.heartbeat(ticket, request, image, now_ms)
        new, decision = upgrade(
            machine,
            ticket,
            request,
            image,
            config=self._config,
            draw=self._draw,
            now_ms=now_ms,
        )
        if new is not None:
            self._groups[group] = new
        return decision

    def _member_of(self, request: GroupRequest[Any]) -> Machine:
        machine = self._groups.get(request.group)
        if machine is None:
            raise UnknownMember(f"there is no group {request.group}; join it as a new member")
        return machine

    # --- offsets ----------------------------------------------------------------------------------

    def _commit(
        self, ticket: Ticket, request: CommitOffsets, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._groups.get(request.group)
        if machine is None:
            if request.member_id or request.generation >= 0:
                raise IllegalGeneration(
                    f"there is no group {request.group}, nor a generation {request.generation} of"
                    " it; join it as a new member"
                )
            machine = self._simple(request.group)
        elif isinstance(machine, ConsumerGroupMachine):
            machine.check_commit(request)
        else:
            machine.check_commit(request, now_ms)
        records, errors = self._offsets.commit(request, image, now_ms)
        return Decision(tuple(records), (Answered(ticket, Committed(errors=errors)),))

    def _simple(self, group: str) -> ClassicGroupMachine:
        """The group of those that commit without members: a classic one that stays empty."""
        machine = ClassicGroupMachine(group, self._config, self._draw)
        self._groups[group] = machine
        return machine

    def _fetch(
        self, ticket: Ticket, request: FetchOffsets, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._groups.get(request.group)
        if isinstance(machine, ConsumerGroupMachine):
            machine.check_fetch(request)
        found = self._offsets.fetch(request, image)
        return Decision(replies=(Answered(ticket, found),))

    def _delete_offsets(
        self, ticket: Ticket, request: DeleteOffsets, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._known(request.group)
        subscribed = frozenset() if machine.is_empty else machine.subscribed_topics()
        if subscribed is None:
            raise NonEmptyGroup(
                f"group {request.group} has members, and what they read is not known here; stop"
                " them first"
            )
        records: list[GroupRecord] = []
        errors: list[QuorumlogError | None] = []
        for topic, partition in request.partitions:
            if topic in subscribed:
                errors.append(
                    GroupSubscribedToTopic(
                        f"members of group {request.group} read this topic; stop them first",
                        topic=topic,
                        partition=partition,
                    )
                )
                continue
            records += self._offsets.forget(request.group, topic, partition)
            errors.append(None)
        return Decision(tuple(records), (Answered(ticket, Committed(errors=tuple(errors))),))

    # --- looking on, and deleting -----------------------------------------------------------------

    def _known(self, group: str) -> Machine:
        machine = self._groups.get(group)
        if machine is None:
            raise GroupNotFound(f"there is no group {group}")
        return machine

    def _describe(
        self, ticket: Ticket, request: DescribeGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._known(request.group)
        if isinstance(machine, ConsumerGroupMachine):
            found = machine.describe(image, now_ms)
        else:
            found = machine.describe(now_ms)
        return Decision(replies=(Answered(ticket, found),))

    def _delete(
        self, ticket: Ticket, request: DeleteGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        machine = self._known(request.group)
        if not machine.is_empty:
            raise NonEmptyGroup(f"group {request.group} has members; stop them first")
        decision = self._forget(request.group, machine)
        return decision + Decision(replies=(Answered(ticket, None),))

    def _forget(self, group: str, machine: Machine) -> Decision:
        """Forget a group without members, and what it has committed."""
        del self._groups[group]
        offsets = Decision(records=tuple(self._offsets.forget_group(group)))
        if isinstance(machine, ConsumerGroupMachine):
            return offsets + Decision(records=machine.forget_records())
        return offsets + Decision((ClassicGroupForgotten(group=group),)) + machine.drop()

    def listings(self) -> list[GroupListing]:
        """All groups, by ascending name."""
        return [machine.listing() for _, machine in sorted(self._groups.items())]

    @property
    def offset_count(self) -> int:
        """Committed offsets."""
        return len(self._offsets)

    def member_count(self) -> int:
        """Members of all groups."""
        return sum(machine.member_count for machine in self._groups.values())

    # --- time, and the cluster --------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """When `expire` is to be called next, never too late; None: never."""
        heap = self._deadlines
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if self._to_check:
            return 0
        if not heap:
            return self._check_ms
        due_ms = heap[0][0]
        return due_ms if self._check_ms is None else min(due_ms, self._check_ms)

    def expire(self, now_ms: int, image: MetadataImage) -> Decision:
        """Do what is due; called again at once where `deadline_ms` has passed already."""
        decision = NOTHING
        for group in self._overdue(now_ms):
            machine = self._groups.get(group)
            if isinstance(machine, ConsumerGroupMachine):
                decision += machine.expire(now_ms, image)
            elif machine is not None:
                decision += machine.expire(now_ms)
            self._touched(group)
        if not self._to_check and self._check_ms is not None and now_ms >= self._check_ms:
            self._to_check = sorted(self._groups, reverse=True)
            self._check_ms = now_ms + self._config.offsets_check_ms
        return decision + self._check_offsets(now_ms, image)

    def resumed(self, now_ms: int) -> None:
        """Nobody could be heard for a while: no member is late for that."""
        for group, machine in list(self._groups.items()):
            machine.resumed(now_ms)
            self._touched(group)

    def _overdue(self, now_ms: int) -> list[str]:
        """Take some of the groups off that have something to do."""
        found: list[str] = []
        heap = self._deadlines
        while heap and heap[0][0] <= now_ms and len(found) < GROUPS_A_STEP:
            due_ms, group = heappop(heap)
            if self._due.get(group) == due_ms:
                del self._due[group]
                found.append(group)
        return found

    def _touched(self, group: str) -> None:
        """A group may have changed: take its other face, forget it where nothing is left of it, and
        note when it has something to do. What has moved into the future, as with every sign of
        life, is noted when the earlier time has come."""
        machine = self._groups.get(group)
        if isinstance(machine, ConsumerGroupMachine) and machine.downgraded is not None:
            self._groups[group] = machine = machine.downgraded
        if isinstance(machine, ClassicGroupMachine) and (
            machine.is_dead or (machine.is_blank and not self._offsets.has_any(group))
        ):
            del self._groups[group]
            machine = None
        due_ms = None if machine is None else machine.deadline_ms()
        if due_ms is None:
            self._due.pop(group, None)
        elif (known_ms := self._due.get(group)) is None or due_ms < known_ms:
            self._due[group] = due_ms
            heappush(self._deadlines, (due_ms, group))
            if len(self._deadlines) > 2 * len(self._due) + 1_000:
                self._deadlines = sorted((time, name) for name, time in self._due.items())

    def _check_offsets(self, now_ms: int, image: MetadataImage) -> Decision:
        """Forget the old offsets of some groups, and the groups that have neither member nor
        offset."""
        decision, left = NOTHING, CHECKED_A_STEP
        while self._to_check and left > 0:
            group = self._to_check.pop()
            machine = self._groups.get(group)
            if machine is None:
                continue
            left -= 1 + self._offsets.count_of(group)
            since, subscribed = _retention(machine)
            gone = self._offsets.expired(group, image, now_ms, since=since, subscribed=subscribed)
            decision += Decision(records=tuple(gone))
            if machine.is_empty and not self._offsets.has_any(group):
                decision += self._forget(group, machine)
            self._touched(group)
        return decision

    def image_changed(
        self, image: MetadataImage, now_ms: int, *, deleted: Iterable[TopicImage] = ()
    ) -> Decision:
        """The cluster has changed, and these topics are gone. Groups look at what else it means to
        them with their members' next heartbeats."""
        records: list[GroupRecord] = []
        for topic in deleted:
            records += self._offsets.forget_topic(topic.name, topic.id)
        return Decision(records=tuple(records))

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Take in what is stored, in the order of the log."""
        group = record.group
        if isinstance(record, OffsetCommitted | OffsetForgotten):
            self._offsets.replay(record)
        elif isinstance(record, ClassicGroup):
            self._stored[group] = record
            self._groups.pop(group, None)
        elif isinstance(record, ClassicGroupForgotten):
            self._stored.pop(group, None)
        elif isinstance(record, ConsumerGroupForgotten):
            self._groups.pop(group, None)
        elif group in self._groups or not isinstance(record, _CONSUMER_TOMBSTONES):
            self._stored.pop(group, None)
            if group not in self._groups:
                self._groups[group] = ConsumerGroupMachine(group, self._config, self._draw)
            cast(ConsumerGroupMachine, self._groups[group]).replay(record)

    def loaded(self, now_ms: int) -> Decision:
        """All that is stored has been replayed: members have their whole sessions from now on."""
        decision = NOTHING
        for machine in self._groups.values():
            if isinstance(machine, ConsumerGroupMachine):
                machine.loaded(now_ms)
        for group, record in self._stored.items():
            classic = self._simple(group)
            classic.load(record, now_ms)
            decision += classic.take_over(now_ms)
        self._stored.clear()
        for group in self._offsets.groups():
            if group not in self._groups:
                self._simple(group)
        for group in list(self._groups):
            self._touched(group)
        self._check_ms = now_ms + self._config.offsets_check_ms
        return decision


def _retention(machine: Machine) -> tuple[Callable[[Kept], int] | None, frozenset[str]]:
    """From when on offsets of a group get old (None: not), and the topics of which they do not."""
    if machine.is_empty:
        state_ms = machine.state_ms
        if not machine.protocol_type or state_ms < 0:
            return _commit_ms, frozenset()
        return (lambda kept: max(state_ms, kept.commit_ms)), frozenset()
    subscribed = machine.subscribed_topics()
    if subscribed is None or (isinstance(machine, ClassicGroupMachine) and not machine.is_stable):
        return None, frozenset()
    return _commit_ms, subscribed


def _commit_ms(kept: Kept) -> int:
    return kept.commit_ms
