"""The mechanics of a KIP-848 group, shared by members of both protocols: group epochs, target
assignment and reconciliation.

Every stored fact changes by a record, which is appended to the log and replayed at once. Session
deadlines and the last evaluated metadata are not stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from ....errors import InvalidPattern
from ....ids import TopicId
from ....metadata.image import MetadataImage
from ...coordinator.deadlines import DeadlineQueue
from ..config import GroupConfig
from ..records import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberForgotten,
    CurrentAssignment,
    CurrentAssignmentForgotten,
    GroupRecord,
    MemberState,
    Partitions,
    ResolvedPattern,
    ResolvedPatternForgotten,
    TargetAssignment,
    TargetAssignmentForgotten,
    TargetEpoch,
)
from ..requests import DescribesTopic
from .assignors import ASSIGNORS, MemberSpec
from .reconciliation import reconcile
from .state import GroupState
from .subscriptions import Watched, ids_of, matching, metadata_hash, watch

Timer: TypeAlias = tuple[str, str]
"""The kind of a deadline, and a member id; of ASSIGN an empty one."""

SESSION: Final = "session"  # the member's session has expired
REVOKE: Final = "revoke"  # the member has not revoked its partitions in time
JOIN: Final = "join"  # the member was asked to rejoin (classic)
SYNC: Final = "sync"  # the member has joined and has to sync (classic)
ASSIGN: Final = "assign"  # of the group: the target assignment is due
MEMBER_TIMERS: Final = (SESSION, REVOKE, JOIN, SYNC)

SMALL_GROUP_MEMBERS: Final = 100
"""In groups up to this size, each change of the group epoch computes the target at once."""
RESOLVE_INTERVAL_MS: Final = 1_000
"""The minimum interval between matches of a pattern with topic names after metadata changes."""


class _Match(NamedTuple):
    """The last match of a pattern: the metadata that it depends on, by identity, and the time."""

    names: object  # the map of topic names
    acls: object
    matched_ms: int


class GroupCore:
    """The state of a group without its requests. Records of the current step are kept until
    `take_records`."""

    def __init__(self, group: str, config: GroupConfig) -> None:
        self.group = group
        self.config = config
        self.state = GroupState(group)
        self.timers: DeadlineQueue[Timer] = DeadlineQueue()
        self._records: list[GroupRecord] = []
        self._image: MetadataImage | None = None  # metadata in which `_watched` was found
        self._watched: Watched = {}
        self._matches: dict[str, _Match] = {}  # by pattern
        self._assigned_ms: int | None = None  # time of the last target computation
        # The session timeout of members without a request since their group's config changed.
        self._old_session_ms: dict[str, int] = {}

    def configure(self, config: GroupConfig) -> None:
        """Replace the settings; the present session of a member ends as before."""
        before_ms, self.config = self.config.consumer_session_ms, config
        if config.consumer_session_ms == before_ms:
            return
        for member_id, member in self.state.members.items():
            if member.classic is None:
                self._old_session_ms.setdefault(member_id, before_ms)

    # --- records ----------------------------------------------------------------------------------

    def append(self, record: GroupRecord) -> None:
        """Apply a record and add it to the records of the step."""
        self.state.replay(record)
        self._records.append(record)

    def take_records(self) -> tuple[GroupRecord, ...]:
        """Return and clear the records of the step, in order."""
        records = tuple(self._records)
        self._records.clear()
        return records

    # --- members ----------------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> bool:
        """Store a member; return True if the group needs a new target."""
        before = self.state.members.get(member.member_id)
        if member is before or member == before:
            return False
        assignor = self.assignor
        self.append(member)
        return (
            before is None
            or member.topics != before.topics
            or member.pattern != before.pattern
            or self.assignor != assignor
        )

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace a static member by its new instance, at epoch 0 with the same assignment."""
        current = self.state.current_of(old.member_id)
        target = self.state.targets.get(old.member_id)
        self.remove(old.member_id)
        member = replace(old, member_id=member_id)
        self.append(member)
        if target is not None:
            self.append(TargetAssignment(group=self.group, member_id=member_id, partitions=target))
        self.append(
            replace(
                current,
                member_id=member_id,
                epoch=0,
                previous_epoch=0,
                state=MemberState.STABLE,
                pending_revocation={},
            )
        )
        return member

    def remove(self, member_id: str) -> None:
        """Remove a member; its partitions become unowned."""
        for kind in MEMBER_TIMERS:
            self.timers.drop((kind, member_id))
        self._old_session_ms.pop(member_id, None)
        if member_id in self.state.current:
            self.append(CurrentAssignmentForgotten(group=self.group, member_id=member_id))
        if member_id in self.state.targets:
            self.append(TargetAssignmentForgotten(group=self.group, member_id=member_id))
        self.append(ConsumerMemberForgotten(group=self.group, member_id=member_id))

    def fence(self, member_ids: Iterable[str], image: MetadataImage, now_ms: int) -> None:
        """Remove members; other members get their partitions with later heartbeats."""
        for member_id in member_ids:
            self.remove(member_id)
        self.refresh(image, now_ms, has_changed=True)
        if not self.state.members:
            self.append(TargetEpoch(group=self.group, epoch=self.state.epoch, stored_ms=now_ms))
            self.timers.drop((ASSIGN, ""))

    # --- epochs -----------------------------------------------------------------------------------

    def refresh(
        self,
        image: MetadataImage,
        now_ms: int,
        *,
        has_changed: bool,
        pattern: str | None = None,
        describes: DescribesTopic | None = None,
    ) -> None:
        """Increment the group epoch if the members or the subscribed topics have changed.

        `pattern` is that of the requesting member, and `describes` its client's right to topics.
        Other patterns keep their results until a member with them sends a heartbeat.
        """
        self._forget_patterns()
        if pattern and self._match_pattern(pattern, image, now_ms, describes):
            has_changed = True
        if not has_changed and image is self._image:
            return
        watched = watch(self.state, image)
        is_first, self._image = self._image is None, image
        if not has_changed and not is_first and watched == self._watched:
            return
        self._watched = watched
        found = metadata_hash(watched)
        if has_changed or found != self.state.metadata_hash:
            epoch = self.state.epoch + 1
            self.append(ConsumerGroup(group=self.group, epoch=epoch, metadata_hash=found))

    def is_current(self, image: MetadataImage) -> bool:
        """Return True if `refresh` has nothing to do while the members stay as they are."""
        state = self.state
        return image is self._image and not state.pattern_counts and not state.patterns

    def _forget_patterns(self) -> None:
        """Forget the results of patterns without a member."""
        state = self.state
        for pattern in [each for each in state.patterns if each not in state.pattern_counts]:
            self._matches.pop(pattern, None)
            self.append(ResolvedPatternForgotten(group=self.group, pattern=pattern))

    def _match_pattern(
        self, pattern: str, image: MetadataImage, now_ms: int, describes: DescribesTopic | None
    ) -> bool:
        """Match a pattern if that is due; return True if its result has changed. As in Kafka, the
        result has the topics that the requesting client may describe."""
        before, last = self.state.patterns.get(pattern), self._matches.get(pattern)
        if before is not None and last is not None:
            is_same = image.topics_by_name is last.names and image.acls is last.acls
            interval_ms = self.config.pattern_refresh_ms if is_same else RESOLVE_INTERVAL_MS
            if now_ms - last.matched_ms < min(interval_ms, self.config.pattern_refresh_ms):
                return False
        self._matches[pattern] = _Match(image.topics_by_name, image.acls, now_ms)
        try:
            topics = matching(pattern, image.topics_by_name, describes)
        except InvalidPattern:  # an invalid pattern from the log of another implementation
            topics = frozenset()
        if before is not None and before.topics == topics:
            return False
        self.append(
            ResolvedPattern(
                group=self.group,
                pattern=pattern,
                topics=topics,
                version=image.offset,
                resolved_ms=now_ms,
            )
        )
        return True

    @property
    def assignor(self) -> str:
        """The assignor that most members have chosen, or the broker's default."""
        counts = self.state.assignor_counts
        chosen = [name for name in self.config.assignors if name in counts and name in ASSIGNORS]
        return max(chosen, key=counts.__getitem__, default=self.config.assignors[0])

    # --- assignment -------------------------------------------------------------------------------

    def assign(self, now_ms: int, *, is_urgent: bool = False) -> None:
        """Compute the target assignment of the group epoch; call `refresh` before in the same step.

        In a large group, wait for the assignment interval unless it is urgent: while a thousand
        members join, a target for each of them would be wasted.
        """
        state, timers = self.state, self.timers
        if state.epoch <= state.target_epoch:
            return
        if (
            not is_urgent
            and self._assigned_ms is not None
            and state.target_epoch > 0
            and len(state.members) > SMALL_GROUP_MEMBERS
            and now_ms < (due_ms := self._assigned_ms + self.config.assignment_interval_ms)
        ):
            timers.set((ASSIGN, ""), due_ms)
            return
        timers.drop((ASSIGN, ""))
        self._assigned_ms = now_ms
        for member_id, partitions in self._target().items():
            before = state.targets.get(member_id)
            if partitions is not before and partitions != (before or {}):
                self.append(
                    TargetAssignment(group=self.group, member_id=member_id, partitions=partitions)
                )
        self.append(TargetEpoch(group=self.group, epoch=state.epoch, stored_ms=now_ms))

    def _target(self) -> Mapping[str, Partitions]:
        state = self.state
        ids: dict[frozenset[str], frozenset[TopicId]] = {}
        targets: dict[TopicId, set[int]] = {}  # of the members so far
        specs = []
        for member_id, member in state.members.items():
            names = state.member_topics(member)
            topics = ids.get(names)
            if topics is None:
                topics = ids[names] = ids_of(names, self._watched)
            specs.append(
                MemberSpec(
                    member_id=member_id,
                    sort_key=member.instance_id or member_id,
                    topics=topics,
                    current=_without_taken(targets, state.targets.get(member_id, {})),
                )
            )
        return ASSIGNORS[self.assignor](specs, dict(self._watched.values()))

    # --- reconciliation ---------------------------------------------------------------------------

    def reconcile_member(
        self, member_id: str, owned: Partitions | None, now_ms: int, *, is_forced: bool = False
    ) -> CurrentAssignment:
        """Move a member one step towards its target; return its current assignment."""
        state = self.state
        current = state.current_of(member_id)
        member = state.members[member_id]
        target = state.targets.get(member_id, {})
        if state.target_epoch < state.epoch:
            # The target is older than the subscription.
            topics = ids_of(state.member_topics(member), self._watched)
            target = {topic_id: target[topic_id] for topic_id in target if topic_id in topics}
        after = reconcile(
            current,
            target=target,
            target_epoch=state.target_epoch,
            owned=owned,
            owner=state.owner,
            is_forced=is_forced,
        )
        if after is current or (after == current and member_id in state.current):
            return current
        self.append(after)
        if member.classic is None:
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self.timers.set((REVOKE, member_id), now_ms + member.rebalance_timeout_ms)
            else:
                self.timers.drop((REVOKE, member_id))
        return after

    # --- time -------------------------------------------------------------------------------------

    def start_session(self, member_id: str, now_ms: int) -> None:
        """Restart the member's session."""
        self._old_session_ms.pop(member_id, None)
        self.timers.set((SESSION, member_id), now_ms + self._session_ms(member_id))

    def postpone_session(self, member_id: str, now_ms: int) -> bool:
        """Restart the session of a KIP-848 member; return False, without an effect, if it would end
        earlier."""
        end_ms = now_ms + self.config.consumer_session_ms
        if not self.timers.postpone((SESSION, member_id), end_ms):
            return False
        if self._old_session_ms:
            self._old_session_ms.pop(member_id, None)
        return True

    def _session_ms(self, member_id: str) -> int:
        classic = self.state.members[member_id].classic
        return self.config.consumer_session_ms if classic is None else classic.session_timeout_ms

    def silent_ms(self, member_id: str, now_ms: int | None) -> int:
        """Return the time since the member's last request; -1: unknown."""
        end_ms = self.timers.get((SESSION, member_id))
        if end_ms is None or now_ms is None:
            return -1
        session_ms = self._old_session_ms.get(member_id, self._session_ms(member_id))
        return max(0, now_ms - end_ms + session_ms)

    def restart_timers(self, now_ms: int) -> None:
        """Restart all sessions and timeouts after requests were refused for a while."""
        for member_id, member in self.state.members.items():
            self.start_session(member_id, now_ms)
            for kind in (REVOKE, JOIN, SYNC):
                if (kind, member_id) in self.timers:
                    self.timers.set((kind, member_id), now_ms + member.rebalance_timeout_ms)

    def loaded(self, now_ms: int) -> None:
        """Start the deadlines of all members after the log has been replayed."""
        self.state.rebuild_owners()
        for member_id, member in self.state.members.items():
            self.start_session(member_id, now_ms)
            current = self.state.current_of(member_id)
            if member.classic is None and current.state is MemberState.UNREVOKED_PARTITIONS:
                self.timers.set((REVOKE, member_id), now_ms + member.rebalance_timeout_ms)


def _without_taken(taken: dict[TopicId, set[int]], partitions: Partitions) -> Partitions:
    """Return the part of a member's target that no earlier member has, and record it. Targets are
    disjoint unless the log was damaged: a replica that was offline for longer than tombstones are
    kept restores removed members."""
    kept = {}
    for topic_id, indices in partitions.items():
        of_topic = taken.setdefault(topic_id, set())
        if free := indices - of_topic:
            kept[topic_id] = free
        of_topic |= indices
    return partitions if kept == partitions else kept
