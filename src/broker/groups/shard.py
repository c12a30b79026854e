"""The groups of one partition of `__consumer_offsets`: dispatch of requests, protocol changes of
groups, and deadlines. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from ...ids import ProducerIdentity, TopicId
from ...metadata.image import MetadataImage, TopicImage
from ...records.control import TransactionMarker
from ...storage.producer_state import ProducerLimits
from ..coordinator.decision import NOTHING, UNDECIDED, Answered, Failed, ShardDecision, Ticket
from .classic_group import ClassicGroupMachine
from .config import GroupConfig
from .consumer import ConsumerGroupMachine, upgrade
from .member_bytes import Charge, ShardMemberBytes
from .offsets import OffsetEntry, Offsets
from .records import (
    ClassicGroup,
    ClassicGroupForgotten,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    CurrentAssignmentForgotten,
    GroupDecision,
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
    CommitOutcome,
    CommitTransactionalOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    PlainCommit,
    SyncGroup,
    WriteGroupMarker,
)
from .transactional_producers import TransactionalProducers, VerificationGuard

Machine: TypeAlias = ClassicGroupMachine | ConsumerGroupMachine
StoreOffsets: TypeAlias = Callable[[tuple[TopicId, ...]], bool]
"""Stores the offsets of a commit, given the ids of its topics; returns False if nothing was stored
and the commit needs a decision."""

CHECKED_A_STEP = 2_000
"""Maximum number of offsets that one step checks for expiry."""
GROUPS_A_STEP = 100
"""Maximum number of groups that one step expires. After a load, the sessions of all members end at
the same time."""

_CONSUMER_TOMBSTONES = (
    ConsumerMemberForgotten,
    TargetEpochForgotten,
    TargetAssignmentForgotten,
    CurrentAssignmentForgotten,
    ResolvedPatternForgotten,
)


class GroupShard:
    """The groups of one partition; times are in milliseconds of the wall clock.

    To load it, call `replay` for each stored record and `replay_marker` for each control batch, in
    log order, and then `loaded`.
    """

    def __init__(
        self,
        config: GroupConfig,
        draw: Callable[[], str],
        producer_limits: ProducerLimits,
        charge: Charge | None = None,
    ) -> None:
        """`draw` returns a random member id; `producer_limits` are those of the partition's log;
        `charge` is that of `ShardMemberBytes`."""
        self._config = config
        self._group_configs: Mapping[str, Mapping[str, str]] = {}  # of the last image
        self._draw = draw
        self._groups: dict[str, Machine] = {}
        self._stored: dict[str, ClassicGroup] = {}  # classic groups, until `loaded`
        self._offsets = Offsets(config)
        self._producers = TransactionalProducers(producer_limits)
        self._deadlines: list[tuple[int, str]] = []  # a heap; valid: equal to `_due`
        self._due: dict[str, int] = {}
        # what the members of all groups sent
        self.members = ShardMemberBytes(self._groups, charge)
        self._check_ms: int | None = None  # time of the next expiry check of offsets
        self._to_check: list[str] = []  # groups that the current expiry check has yet to visit
        self._handlers: dict[type, Callable[..., GroupDecision]] = {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            ClassicHeartbeat: self._heartbeat,
            LeaveGroup: self._leave,
            ConsumerHeartbeat: self._consumer_heartbeat,
            CommitOffsets: self._commit,
            CommitTransactionalOffsets: self._commit_in_transaction,
            FetchOffsets: self._fetch,
            DeleteOffsets: self._delete_offsets,
            DescribeGroup: self._describe,
            DeleteGroup: self._delete,
        }

    # --- requests ---------------------------------------------------------------------------------

    def handle(
        self,
        ticket: Ticket,
        request: GroupRequest[Any] | WriteGroupMarker,
        image: MetadataImage,
        now_ms: int,
    ) -> GroupDecision:
        """Decide a request; a refusal is a `Failed` reply of the decision."""
        if image.group_configs is not self._group_configs:
            self._configure(image)
        if isinstance(request, WriteGroupMarker):
            return self._write_marker(ticket, request.marker, now_ms)
        # A commit to a known group changes no group, and moves a deadline only later.
        changes_group = type(request) is not CommitOffsets or request.group not in self._groups
        try:
            decision = self._handlers[type(request)](ticket, request, image, now_ms)
        except QuorumlogError as error:
            decision = ShardDecision(replies=(Failed(ticket, error),))
        if changes_group:
            self._update_group(request.group, request.client)
        return decision

    def renew_session(
        self, request: GroupRequest[Any], image: MetadataImage, now_ms: int
    ) -> object:
        """Return the outcome of a heartbeat that only restarts its member's session; for all else
        UNDECIDED, without an effect. No deadline moves earlier, and nothing is stored."""
        if image.group_configs is not self._group_configs:
            return UNDECIDED
        machine = self._groups.get(request.group)
        if isinstance(request, ClassicHeartbeat):
            if isinstance(machine, ClassicGroupMachine) and machine.renew_session(request, now_ms):
                return None
        elif isinstance(request, ConsumerHeartbeat) and isinstance(machine, ConsumerGroupMachine):
            beat = machine.renew_session(request, image, now_ms)
            if beat is not None:
                return beat
        return UNDECIDED

    def _configure(self, image: MetadataImage) -> None:
        """Apply the configs of groups in newer metadata; O(the fewer of the shard's groups and the
        groups with configs)."""
        before, after = self._group_configs, image.group_configs
        self._group_configs = after
        are_fewer = len(self._groups) < len(before) + len(after)
        for group in self._groups if are_fewer else dict.fromkeys((*before, *after)):
            machine = self._groups.get(group)
            if isinstance(machine, ConsumerGroupMachine) and (
                before.get(group) is not after.get(group)
            ):
                machine.configure(self._config_of(group))

    def _config_of(self, group: str) -> GroupConfig:
        return self._config.of_group(self._group_configs.get(group, {}))

    def _join(
        self, ticket: Ticket, request: JoinGroup, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._groups.get(request.group)
        before = NOTHING
        if isinstance(machine, ConsumerGroupMachine):
            if not machine.is_empty:
                return machine.join(ticket, request, image, now_ms)
            before = ShardDecision(records=machine.forget_records())
            machine = None
        if machine is None:
            machine = ClassicGroupMachine(request.group, self._config, self._draw)
            self._groups[request.group] = machine
        return before + machine.join(ticket, request, now_ms)

    def _sync(
        self, ticket: Ticket, request: SyncGroup, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._member_of(request)
        if isinstance(machine, ConsumerGroupMachine):
            return machine.sync(ticket, request, image, now_ms)
        return machine.sync(ticket, request, now_ms)

    def _heartbeat(
        self, ticket: Ticket, request: ClassicHeartbeat, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._member_of(request)
        if isinstance(machine, ConsumerGroupMachine):
            return machine.classic_heartbeat(ticket, request, image, now_ms)
        return machine.heartbeat(ticket, request, now_ms)

    def _leave(
        self, ticket: Ticket, request: LeaveGroup, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._member_of(request)
        if isinstance(machine, ConsumerGroupMachine):
            return machine.leave(ticket, request, image, now_ms)
        return machine.leave(ticket, request, now_ms)

    def _consumer_heartbeat(
        self, ticket: Ticket, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        group, machine = request.group, self._groups.get(request.group)
        if machine is None and request.member_epoch == JOIN_EPOCH:
            made = ConsumerGroupMachine(group, self._config_of(group), self._draw)
            decision = made.heartbeat(ticket, request, image, now_ms)
            if not made.is_empty:
                self._groups[group] = made
            return decision
        if machine is None or (
            isinstance(machine, ClassicGroupMachine) and request.member_epoch != JOIN_EPOCH
        ):
            raise UnknownMember(
                f"group {group}: no such group of the consumer protocol; join it with member epoch"
                " 0"
            )
        if isinstance(machine, ConsumerGroupMachine):
            return machine.heartbeat(ticket, request, image, now_ms)
        new, decision = upgrade(
            machine,
            ticket,
            request,
            image,
            config=self._config_of(group),
            draw=self._draw,
            now_ms=now_ms,
        )
        if new is not None:
            # sometimes if not machine.is_empty: a group with classic members is upgraded
            self._groups[group] = new
        return decision

    def _member_of(self, request: GroupRequest[Any]) -> Machine:
        machine = self._groups.get(request.group)
        if machine is None:
            raise UnknownMember(f"group {request.group}: no such group; join it as a new member")
        return machine

    # --- offsets ----------------------------------------------------------------------------------

    def _commit(
        self, ticket: Ticket, request: CommitOffsets, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._groups.get(request.group)
        if machine is None:
            if request.member_id or request.generation >= 0:
                raise IllegalGeneration(
                    f"group {request.group}: no such group, so no generation {request.generation};"
                    " join it as a new member"
                )
            machine = self._new_simple_group(request.group)
        elif isinstance(machine, ConsumerGroupMachine):
            machine.check_commit(request)
        else:
            machine.check_commit(request, now_ms)
        records, errors = self._offsets.commit(request, image, now_ms)
        return ShardDecision(tuple(records), (Answered(ticket, CommitOutcome(errors=errors)),))

    def commit_at_once(
        self, commit: PlainCommit, image: MetadataImage, now_ms: int, store: StoreOffsets
    ) -> bool:
        """Store and apply a commit if a decision would store every offset of it and change nothing
        else but the member's session. Return False, without a change, for any other, for some such
        commits too, and if `store` returns False."""
        if image.group_configs is not self._group_configs:
            return False
        machine = self._groups.get(commit.group)
        if machine is None or not machine.may_commit(commit):
            return False
        topic_ids = self._offsets.topic_ids(commit.topics, image)
        if topic_ids is None or not store(topic_ids):
            return False
        machine.committed(commit, now_ms)
        self._offsets.put(commit, topic_ids, now_ms)
        return True

    def _commit_in_transaction(
        self, ticket: Ticket, request: CommitTransactionalOffsets, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        self._producers.check_commit(request.producer, request.transactional_id, request.guard)
        machine = self._groups.get(request.group)
        if machine is None:
            if request.generation >= 0:
                raise IllegalGeneration(
                    f"group {request.group}: no such group, so no generation {request.generation};"
                    " join it as a new member"
                )
            self._new_simple_group(request.group)
        else:
            machine.check_commit(request)
        records, errors = self._offsets.commit(request, image, now_ms)
        replies = (Answered(ticket, CommitOutcome(errors=errors)),)
        if not records:
            return ShardDecision(replies=replies)
        self._producers.begin(request.producer, request.transactional_id, now_ms)
        return ShardDecision(tuple(records), replies, producer=request.producer)

    def verification_guard(
        self, producer: ProducerIdentity, transactional_id: str
    ) -> VerificationGuard | None:
        """Return the guard to hold while the transaction of a commit is verified at its
        coordinator; None: it is open here and needs no verification. Raises
        InvalidProducerEpoch."""
        return self._producers.guard(producer, transactional_id)

    def _write_marker(
        self, ticket: Ticket, marker: TransactionMarker, now_ms: int
    ) -> GroupDecision:
        """Apply or drop the pending offsets of a producer."""
        try:
            is_new = self._producers.end(marker, now_ms)
        except QuorumlogError as error:
            return ShardDecision(replies=(Failed(ticket, error),))
        if is_new:
            self._end_transaction(marker)
        replies = (Answered(ticket, None),)
        return ShardDecision(replies=replies, marker=marker if is_new else None)

    def _end_transaction(self, marker: TransactionMarker) -> None:
        producer_id = marker.producer.producer_id
        for group in self._offsets.end_transaction(producer_id, is_commit=marker.is_commit):
            self._update_group(group)

    def _new_simple_group(self, group: str) -> ClassicGroupMachine:
        """Create a simple group, for clients that commit without members: a classic group that
        stays empty."""
        machine = ClassicGroupMachine(group, self._config, self._draw)
        self._groups[group] = machine
        return machine

    def _fetch(
        self, ticket: Ticket, request: FetchOffsets, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._groups.get(request.group)
        if isinstance(machine, ConsumerGroupMachine):
            machine.check_fetch(request)
        found = self._offsets.fetch(request, image)
        return ShardDecision(replies=(Answered(ticket, found),))

    def _delete_offsets(
        self, ticket: Ticket, request: DeleteOffsets, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._existing(request.group)
        subscribed = frozenset() if machine.is_empty else machine.subscribed_topics()
        if subscribed is None:
            raise NonEmptyGroup(
                f"group {request.group}: not empty, and its subscribed topics are unknown; stop"
                " its members first"
            )
        records: list[GroupRecord] = []
        errors: list[QuorumlogError | None] = []
        for topic, partition in request.partitions:
            if topic in subscribed:
                errors.append(
                    GroupSubscribedToTopic(
                        f"group {request.group}: its members are subscribed to this topic; stop"
                        " them first",
                        topic=topic,
                        partition=partition,
                    )
                )
                continue
            records += self._offsets.forget(request.group, topic, partition)
            errors.append(None)
        return ShardDecision(
            tuple(records), (Answered(ticket, CommitOutcome(errors=tuple(errors))),)
        )

    # --- descriptions and deletion ----------------------------------------------------------------

    def _existing(self, group: str) -> Machine:
        machine = self._groups.get(group)
        if machine is None:
            raise GroupNotFound(f"group {group}: no such group")
        return machine

    def _describe(
        self, ticket: Ticket, request: DescribeGroup, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._existing(request.group)
        if isinstance(machine, ConsumerGroupMachine):
            found = machine.describe(image, now_ms)
        else:
            found = machine.describe(now_ms)
        return ShardDecision(replies=(Answered(ticket, found),))

    def _delete(
        self, ticket: Ticket, request: DeleteGroup, image: MetadataImage, now_ms: int
    ) -> GroupDecision:
        machine = self._existing(request.group)
        if not machine.is_empty:
            raise NonEmptyGroup(f"group {request.group}: not empty; stop its members first")
        decision = self._forget(request.group, machine)
        return decision + ShardDecision(replies=(Answered(ticket, None),))

    def _forget(self, group: str, machine: Machine) -> GroupDecision:
        """Delete an empty group and its committed offsets."""
        del self._groups[group]
        offsets: GroupDecision = ShardDecision(records=tuple(self._offsets.forget_group(group)))
        if isinstance(machine, ConsumerGroupMachine):
            return offsets + ShardDecision(records=machine.forget_records())
        forgotten: GroupDecision = ShardDecision((ClassicGroupForgotten(group=group),))
        return offsets + forgotten + machine.drop()

    def listings(
        self, is_listed: Callable[[str], bool] = lambda name: True
    ) -> Iterator[ListedGroup | None]:
        """Yield each group that `is_listed` accepts, and None for another or a removed one. The
        state may change between two steps."""
        for name in list(self._groups):
            machine = self._groups.get(name) if is_listed(name) else None
            yield None if machine is None else machine.listing()

    @property
    def offset_count(self) -> int:
        """The number of committed offsets."""
        return len(self._offsets)

    def member_count(self) -> int:
        """Return the number of members of all groups."""
        return sum(machine.member_count for machine in self._groups.values())

    # --- time and metadata ------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return the time of the next `expire`, never too late; None: no deadline."""
        heap = self._deadlines
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if self._to_check:
            return 0
        if not heap:
            return self._check_ms
        due_ms = heap[0][0]
        return due_ms if self._check_ms is None else min(due_ms, self._check_ms)

    def expire(self, now_ms: int, image: MetadataImage) -> GroupDecision:
        """Handle expired deadlines; call it again at once if `deadline_ms` is still in the past."""
        decision = NOTHING
        for group in self._overdue(now_ms):
            machine = self._groups.get(group)
            if isinstance(machine, ConsumerGroupMachine):
                decision += machine.expire(now_ms, image)
            elif machine is not None:
                decision += machine.expire(now_ms)
            self._update_group(group)
        if not self._to_check and self._check_ms is not None and now_ms >= self._check_ms:
            self._to_check = sorted(self._groups, reverse=True)
            self._check_ms = now_ms + self._config.offsets_check_ms
            self._producers.expire(now_ms)
        return decision + self._check_offsets(now_ms, image)

    def restart_sessions(self, now_ms: int) -> None:
        """Restart all sessions after requests were refused for a while: no member is late for
        that."""
        for group, machine in list(self._groups.items()):
            machine.restart_sessions(now_ms)
            self._update_group(group)

    def _overdue(self, now_ms: int) -> list[str]:
        """Remove and return at most `GROUPS_A_STEP` groups with an expired deadline."""
        found: list[str] = []
        heap = self._deadlines
        while heap and heap[0][0] <= now_ms and len(found) < GROUPS_A_STEP:
            due_ms, group = heappop(heap)
            if self._due.get(group) == due_ms:
                del self._due[group]
                found.append(group)
        return found

    def _update_group(self, group: str, client: str = "") -> None:
        """Update the group after a change, which `client` requested ("": none): replace it if its
        protocol changed, drop it if it is dead or blank, and schedule its deadline.

        A deadline that moves later, as with every heartbeat, is rescheduled when the earlier time
        is reached.
        """
        machine = self._groups.get(group)
        if isinstance(machine, ConsumerGroupMachine) and machine.downgraded is not None:
            # sometimes: a group is downgraded
            self._groups[group] = machine = machine.downgraded
        if isinstance(machine, ClassicGroupMachine) and (
            machine.is_dead or (machine.is_blank and not self._offsets.has_any(group))
        ):
            del self._groups[group]
            machine = None
        self.members.update(group, client)
        due_ms = None if machine is None else machine.deadline_ms()
        if due_ms is None:
            self._due.pop(group, None)
        elif (known_ms := self._due.get(group)) is None or due_ms < known_ms:
            self._due[group] = due_ms
            heappush(self._deadlines, (due_ms, group))
            if len(self._deadlines) > 2 * len(self._due) + 1_000:
                self._deadlines = sorted((time, name) for name, time in self._due.items())

    def _check_offsets(self, now_ms: int, image: MetadataImage) -> GroupDecision:
        """Delete expired offsets of some groups, and the groups without members and offsets."""
        decision, left = NOTHING, CHECKED_A_STEP
        while self._to_check and left > 0:
            group = self._to_check.pop()
            machine = self._groups.get(group)
            if machine is None:
                continue
            left -= 1 + self._offsets.count_of(group)
            since, subscribed = _retention(machine)
            gone = self._offsets.expired(group, image, now_ms, since=since, subscribed=subscribed)
            decision += ShardDecision(records=tuple(gone))
            if machine.is_empty and not self._offsets.has_any(group):
                decision += self._forget(group, machine)
            self._update_group(group)
        return decision

    def image_changed(
        self, image: MetadataImage, now_ms: int, *, deleted: Iterable[TopicImage] = ()
    ) -> GroupDecision:
        """Apply a metadata change with these deleted topics. Groups apply the rest of the change
        with their members' next heartbeats."""
        records: list[GroupRecord] = []
        for topic in deleted:
            records += self._offsets.forget_topic(topic.name, topic.id)
        return ShardDecision(records=tuple(records))

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: GroupRecord, producer: ProducerIdentity | None = None) -> None:
        """Apply a stored record. `producer` has the id and epoch of its batch if that is
        transactional."""
        group = record.group
        if producer is not None:
            self._producers.begin(producer, None, 0)
        if isinstance(record, OffsetCommitted | OffsetForgotten):
            self._offsets.replay(record, None if producer is None else producer.producer_id)
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
                self._groups[group] = ConsumerGroupMachine(
                    group, self._config_of(group), self._draw
                )
            cast(ConsumerGroupMachine, self._groups[group]).replay(record)

    def replay_marker(self, marker: TransactionMarker) -> None:
        """Apply a stored control batch."""
        self._producers.replay_marker(marker)
        self._offsets.end_transaction(marker.producer.producer_id, is_commit=marker.is_commit)

    def loaded(self, image: MetadataImage, now_ms: int) -> GroupDecision:
        """Finish loading: start the session of every member."""
        decision = NOTHING
        self._producers.loaded(now_ms)
        self._configure(image)
        for machine in self._groups.values():
            if isinstance(machine, ConsumerGroupMachine):
                machine.loaded(now_ms)
        for group, record in self._stored.items():
            classic = self._new_simple_group(group)
            classic.load(record, now_ms)
            decision += classic.take_over(now_ms)
        self._stored.clear()
        for group in self._offsets.groups():
            if group not in self._groups:
                self._new_simple_group(group)
        for group in list(self._groups):
            self._update_group(group)
        self._check_ms = now_ms + self._config.offsets_check_ms
        return decision

    def check_invariants(self) -> None:
        """Raise AssertionError unless these hold between two steps, by number; O(state).

        1. Every group with committed or pending offsets exists.
        2. The invariants of offsets and of groups; see their `check_invariants`.
        3. The bytes of all members are counted.
        """
        absent = self._offsets.groups().keys() - self._groups.keys()
        assert not absent, f"group shard invariant 1: offsets of absent groups {sorted(absent)}"
        self._offsets.check_invariants(self._producers.is_open)
        size = 0
        for machine in self._groups.values():
            machine.check_invariants()
            size += machine.member_bytes
        assert size == self.members.total, (
            f"group shard invariant 3: {size} bytes, {self.members.total} counted"
        )


def _retention(machine: Machine) -> tuple[Callable[[OffsetEntry], int] | None, frozenset[str]]:
    """Return the start of offset retention (None: offsets do not expire by age), and the topics
    with offsets that do not expire."""
    if machine.is_empty:
        state_ms = machine.state_ms
        if not machine.protocol_type or state_ms < 0:
            return _commit_ms, frozenset()
        return (lambda kept: max(state_ms, kept.commit_ms)), frozenset()
    subscribed = machine.subscribed_topics()
    if subscribed is None or (isinstance(machine, ClassicGroupMachine) and not machine.is_stable):
        return None, frozenset()
    return _commit_ms, subscribed


def _commit_ms(kept: OffsetEntry) -> int:
    return kept.commit_ms
