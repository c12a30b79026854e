"""What both faces of a KIP-848 group do: keep facts, raise epochs, share out, move members on.

Every fact changes by a record that is put: it goes to the log, and is replayed at once. What is
not stored is when members were last heard of, and what of the cluster was looked at last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ....errors import InvalidPattern
from ....ids import TopicId
from ....metadata.image import MetadataImage
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
from .assignors import ASSIGNORS, Wish
from .patterns import matching
from .reconciling import reconcile
from .state import GroupState
from .subscriptions import Watched, ids_of, metadata_hash, watch
from .timers import Timers

SESSION: Final = "session"  # the member was not heard of
REVOKE: Final = "revoke"  # it was asked to give partitions back
JOIN: Final = "join"  # it was asked to join again (classic)
SYNC: Final = "sync"  # it has joined and is to ask for its part (classic)
ASSIGN: Final = "assign"  # of the group: the target is to be made
MEMBER_TIMERS: Final = (SESSION, REVOKE, JOIN, SYNC)

SMALL_GROUP_MEMBERS: Final = 100
"""Up to as many members the target is made at once, whenever the group's epoch rises."""
RESOLVE_INTERVAL_MS: Final = 1_000
"""Patterns are matched against the topics' names no more often, however many topics come and go."""


class GroupCore:
    """A group without those who ask. Records of the turn under way are kept until `take`."""

    def __init__(self, group: str, config: GroupConfig) -> None:
        self.group = group
        self.config = config
        self.state = GroupState(group)
        self.timers = Timers()
        self._records: list[GroupRecord] = []
        self._image: MetadataImage | None = None  # that `_watched` was found in
        self._watched: Watched = {}
        self._names: object = None  # the map of names that all patterns were matched with
        self._resolved_ms = 0  # when that was
        self._assigned_ms: int | None = None  # when the target was made last

    # --- records ----------------------------------------------------------------------------------

    def put(self, record: GroupRecord) -> None:
        """Store a fact: it holds from now on."""
        self.state.replay(record)
        self._records.append(record)

    def take(self) -> tuple[GroupRecord, ...]:
        """The records since the last time, in order."""
        records = tuple(self._records)
        self._records.clear()
        return records

    # --- members ----------------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> bool:
        """Store who a member is; returns whether the group needs another target for it."""
        before = self.state.members.get(member.member_id)
        if member is before or member == before:
            return False
        assignor = self.assignor
        self.put(member)
        return (
            before is None
            or member.topics != before.topics
            or member.pattern != before.pattern
            or self.assignor != assignor
        )

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Another life of a static member, which starts at epoch 0 with what the last one had."""
        current = self.state.current_of(old.member_id)
        target = self.state.targets.get(old.member_id)
        self.remove(old.member_id)
        member = replace(old, member_id=member_id)
        self.put(member)
        if target is not None:
            self.put(TargetAssignment(group=self.group, member_id=member_id, partitions=target))
        self.put(
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
        """Forget a member; what it had is free."""
        self.timers.stop(*MEMBER_TIMERS, member_id=member_id)
        if member_id in self.state.current:
            self.put(CurrentAssignmentForgotten(group=self.group, member_id=member_id))
        if member_id in self.state.targets:
            self.put(TargetAssignmentForgotten(group=self.group, member_id=member_id))
        self.put(ConsumerMemberForgotten(group=self.group, member_id=member_id))

    def fence(self, member_ids: Iterable[str], image: MetadataImage, now_ms: int) -> None:
        """Remove members; the others share out what they had, with their next heartbeats."""
        for member_id in member_ids:
            self.remove(member_id)
        self.refresh(image, now_ms, has_changed=True)
        if not self.state.members:
            self.put(TargetEpoch(group=self.group, epoch=self.state.epoch, stored_ms=now_ms))
            self.timers.stop(ASSIGN, member_id="")

    # --- epochs -----------------------------------------------------------------------------------

    def refresh(self, image: MetadataImage, now_ms: int, *, has_changed: bool) -> None:
        """Look at the cluster, and raise the group's epoch where the members, or what they are
        subscribed to, have changed."""
        if self._resolve(image, now_ms):
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
            self.put(ConsumerGroup(group=self.group, epoch=epoch, metadata_hash=found))

    def _resolve(self, image: MetadataImage, now_ms: int) -> bool:
        """Match the members' patterns where that is due; returns whether any has other topics."""
        state = self.state
        for pattern in [each for each in state.patterns if each not in state.pattern_counts]:
            self.put(ResolvedPatternForgotten(group=self.group, pattern=pattern))
        if not state.pattern_counts:
            return False
        due = [each for each in state.pattern_counts if each not in state.patterns]
        since_ms = now_ms - self._resolved_ms
        if self._names is None or (
            (since_ms >= RESOLVE_INTERVAL_MS and image.topics_by_name is not self._names)
            or since_ms >= self.config.pattern_refresh_ms
        ):
            due = list(state.pattern_counts)
            self._names, self._resolved_ms = image.topics_by_name, now_ms
        if not due:
            return False
        names = list(image.topics_by_name)
        changed = False
        for pattern in due:
            try:
                topics = matching(pattern, names)
            except InvalidPattern:  # of a log that somebody else has written
                topics = frozenset()
            before = state.patterns.get(pattern)
            if before is None or before.topics != topics:
                changed = True
                self.put(
                    ResolvedPattern(
                        group=self.group,
                        pattern=pattern,
                        topics=topics,
                        version=image.offset,
                        resolved_ms=now_ms,
                    )
                )
        return changed

    @property
    def assignor(self) -> str:
        """The one that most members have chosen, the broker's default where none has."""
        counts = self.state.assignor_counts
        chosen = [name for name in self.config.assignors if name in counts and name in ASSIGNORS]
        return max(chosen, key=counts.__getitem__, default=self.config.assignors[0])

    # --- assignment -------------------------------------------------------------------------------

    def assign(self, now_ms: int, *, is_urgent: bool = False) -> None:
        """Make the target of the group's epoch; `refresh` has been called in this turn.

        In a large group not before a while after the last one, unless it is urgent: while a
        thousand members come or go, a target for each of them would be made for nothing.
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
            timers.start(ASSIGN, "", due_ms)
            return
        timers.stop(ASSIGN, member_id="")
        self._assigned_ms = now_ms
        for member_id, partitions in self._target().items():
            before = state.targets.get(member_id)
            if partitions is not before and partitions != (before or {}):
                self.put(
                    TargetAssignment(group=self.group, member_id=member_id, partitions=partitions)
                )
        self.put(TargetEpoch(group=self.group, epoch=state.epoch, stored_ms=now_ms))

    def _target(self) -> Mapping[str, Partitions]:
        state = self.state
        ids: dict[frozenset[str], frozenset[TopicId]] = {}
        targets: dict[TopicId, set[int]] = {}  # of the members so far
        wishes = []
        for member_id, member in state.members.items():
            names = state.wanted_topics(member)
            topics = ids.get(names)
            if topics is None:
                topics = ids[names] = ids_of(names, self._watched)
            wishes.append(
                Wish(
                    member_id=member_id,
                    place=member.instance_id or member_id,
                    topics=topics,
                    current=_beside(targets, state.targets.get(member_id, {})),
                )
            )
        return ASSIGNORS[self.assignor](wishes, dict(self._watched.values()))

    # --- reconciliation ---------------------------------------------------------------------------

    def settle(
        self, member_id: str, owned: Partitions | None, now_ms: int, *, is_forced: bool = False
    ) -> CurrentAssignment:
        """Take a member a step towards its target; returns what it owns now."""
        state = self.state
        current = state.current_of(member_id)
        member = state.members[member_id]
        target = state.targets.get(member_id, {})
        if state.target_epoch < state.epoch:
            # An old target, which the member's subscription may have left behind.
            topics = ids_of(state.wanted_topics(member), self._watched)
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
        self.put(after)
        if member.classic is None:
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self.timers.start(REVOKE, member_id, now_ms + member.rebalance_timeout_ms)
            else:
                self.timers.stop(REVOKE, member_id=member_id)
        return after

    # --- time -------------------------------------------------------------------------------------

    def start_session(self, member_id: str, now_ms: int) -> None:
        """The member has been heard of."""
        self.timers.start(SESSION, member_id, now_ms + self._session_ms(member_id))

    def _session_ms(self, member_id: str) -> int:
        classic = self.state.members[member_id].classic
        return self.config.consumer_session_ms if classic is None else classic.session_timeout_ms

    def silent_ms(self, member_id: str, now_ms: int | None) -> int:
        """For how long a member was not heard of; -1: nobody knows."""
        end_ms = self.timers.at_ms(SESSION, member_id)
        if end_ms is None or now_ms is None:
            return -1
        return max(0, now_ms - end_ms + self._session_ms(member_id))

    def restart_sessions(self, now_ms: int) -> None:
        """No member could be heard for a while: each has its whole time from now on."""
        for member_id, member in self.state.members.items():
            self.start_session(member_id, now_ms)
            for kind in (REVOKE, JOIN, SYNC):
                if self.timers.runs(kind, member_id):
                    self.timers.start(kind, member_id, now_ms + member.rebalance_timeout_ms)

    def loaded(self, now_ms: int) -> None:
        """Start the time of every member, after the log has been read."""
        self.state.settle_owners()
        for member_id, member in self.state.members.items():
            self.start_session(member_id, now_ms)
            current = self.state.current_of(member_id)
            if member.classic is None and current.state is MemberState.UNREVOKED_PARTITIONS:
                self.timers.start(REVOKE, member_id, now_ms + member.rebalance_timeout_ms)


def _beside(taken: dict[TopicId, set[int]], partitions: Partitions) -> Partitions:
    """What of a member's target nobody before has, and note it. Targets have nothing in common,
    unless the log has: a replica that was away for longer than tombstones stay brings back a member
    that is gone."""
    kept = {}
    for topic_id, indices in partitions.items():
        of_topic = taken.setdefault(topic_id, set())
        if free := indices - of_topic:
            kept[topic_id] = free
        of_topic |= indices
    return partitions if kept == partitions else kept
