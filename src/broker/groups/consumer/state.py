"""What the log says of a group: every record of it taken in, nothing decided.

Owns the group's facts and what follows from them at once (who holds a partition, how many members
want a topic). Knows neither time nor the cluster. Nothing but `replay` changes it, on the
coordinator that decides as on the one that reads the log anew, so both have the same state.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ....ids import TopicId
from ..records import (
    NO_TIME_MS,
    ConsumerGroup,
    ConsumerGroupForgotten,
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
    TargetEpochForgotten,
)


@dataclass(slots=True)
class GroupState:
    """Equal states have read equal facts, in whatever order of keys."""

    group: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_ms: int = field(default=NO_TIME_MS, compare=False)  # when that was stored
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    current: dict[str, CurrentAssignment] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    # What follows from those.
    statics: dict[str, str] = field(default_factory=dict)  # member id by static name
    owners: dict[TopicId, dict[int, str]] = field(
        default_factory=dict
    )  # assigned or not given back
    topic_counts: dict[str, int] = field(default_factory=dict)  # members that name a topic
    pattern_counts: dict[str, int] = field(default_factory=dict)  # members of a pattern
    assignor_counts: dict[str, int] = field(default_factory=dict)  # members that chose one
    classic_count: int = 0  # members of the classic protocol
    brought_bytes: int = 0  # what all members want and are called, about as it is stored

    # --- records ----------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Take a record in; one of another kind of group is a mistake of the caller."""
        assert record.group == self.group, f"a record of {record.group} for {self.group}"
        match record:
            case ConsumerGroup():
                self.epoch, self.metadata_hash = record.epoch, record.metadata_hash
            case ConsumerGroupForgotten():
                self.epoch = self.metadata_hash = 0
            case TargetEpoch():
                self.target_epoch, self.target_ms = record.epoch, record.stored_ms
            case TargetEpochForgotten():
                self.target_epoch = 0
            case ResolvedPattern():
                self.patterns[record.pattern] = record
            case ResolvedPatternForgotten():
                self.patterns.pop(record.pattern, None)
            case _:
                self._replay_of_member(record)

    def _replay_of_member(self, record: GroupRecord) -> None:
        match record:
            case ConsumerMember():
                self._put_member(record)
            case ConsumerMemberForgotten():
                self._drop_member(record.member_id)
            case CurrentAssignment():
                self._release(self.current.get(record.member_id))
                self.current[record.member_id] = record
                self._claim(record)
            case CurrentAssignmentForgotten():
                self._release(self.current.pop(record.member_id, None))
            case TargetAssignment():
                self.targets[record.member_id] = record.partitions
            case TargetAssignmentForgotten():
                self.targets.pop(record.member_id, None)
            case _:
                raise AssertionError(f"{type(record).__name__} is no record of a KIP-848 group")

    def settle_owners(self) -> None:
        """Find the owners anew, after a log has been read whose middle compaction took out."""
        self.owners.clear()
        for current in self.current.values():
            self._claim(current)

    def _put_member(self, member: ConsumerMember) -> None:
        self._drop_member(member.member_id, keep_place=True)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self._count(member, 1)

    def _drop_member(self, member_id: str, *, keep_place: bool = False) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        if not keep_place:
            del self.members[member_id]
        name = member.instance_id
        if name is not None and self.statics.get(name) == member_id:
            del self.statics[name]
        self._count(member, -1)

    def _count(self, member: ConsumerMember, change: int) -> None:
        self.brought_bytes += change * brought_bytes(member)
        for topic in member.topics:
            _add(self.topic_counts, topic, change)
        if member.pattern:
            _add(self.pattern_counts, member.pattern, change)
        if member.assignor is not None:
            _add(self.assignor_counts, member.assignor, change)
        if member.classic is not None:
            self.classic_count += change

    def _claim(self, current: CurrentAssignment) -> None:
        for partitions in (current.assigned, current.pending_revocation):
            for topic_id, indices in partitions.items():
                of_topic = self.owners.setdefault(topic_id, {})
                for index in indices:
                    of_topic[index] = current.member_id

    def _release(self, current: CurrentAssignment | None) -> None:
        if current is None:
            return
        for partitions in (current.assigned, current.pending_revocation):
            for topic_id, indices in partitions.items():
                of_topic = self.owners.get(topic_id)
                if of_topic is None:
                    continue
                for index in indices:
                    if of_topic.get(index) == current.member_id:
                        del of_topic[index]
                if not of_topic:
                    del self.owners[topic_id]

    # --- descriptions -----------------------------------------------------------------------------

    def current_of(self, member_id: str) -> CurrentAssignment:
        """What a member owns; nothing at epoch 0 where nothing is stored of it."""
        current = self.current.get(member_id)
        if current is not None:
            return current
        return CurrentAssignment(
            group=self.group,
            member_id=member_id,
            epoch=0,
            previous_epoch=0,
            state=MemberState.STABLE,
            assigned={},
        )

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member of a static name."""
        member_id = self.statics.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner(self, topic_id: TopicId, index: int) -> str | None:
        """The member that has been told of a partition and has not given it back."""
        of_topic = self.owners.get(topic_id)
        return None if of_topic is None else of_topic.get(index)

    def wanted_topics(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member is to read, by name or by its pattern."""
        resolved = self.patterns.get(member.pattern) if member.pattern else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        """The names of the topics that any member is to read."""
        topics = set(self.topic_counts)
        for pattern in self.pattern_counts:
            resolved = self.patterns.get(pattern)
            if resolved is not None:
                topics |= resolved.topics
        return frozenset(topics)

    @property
    def name(self) -> str:
        """The state as the field names it. O(members)."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        stable = all(map(self.is_reconciled, self.members))
        return "Stable" if stable else "Reconciling"

    def is_reconciled(self, member_id: str) -> bool:
        """Whether a member has got all that it is to have."""
        current = self.current_of(member_id)
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    def tombstones(self) -> Iterator[GroupRecord]:
        """What makes the log forget the group."""
        group = self.group
        for member_id in self.current:
            yield CurrentAssignmentForgotten(group=group, member_id=member_id)
        for member_id in self.targets:
            yield TargetAssignmentForgotten(group=group, member_id=member_id)
        yield TargetEpochForgotten(group=group)
        for member_id in self.members:
            yield ConsumerMemberForgotten(group=group, member_id=member_id)
        for pattern in self.patterns:
            yield ResolvedPatternForgotten(group=group, pattern=pattern)
        yield ConsumerGroupForgotten(group=group)

    def check_invariants(self) -> None:
        """Raises AssertionError where the facts do not fit together.

        1. No partition has two owners, counting what is not given back (KIP-848, reconciliation).
        2. No epoch of a member, and not the target's, is beyond the group's.
        3. Only members own, or are to own.
        """
        seen: dict[tuple[TopicId, int], str] = {}
        for member_id, current in self.current.items():
            assert member_id in self.members, f"{member_id} owns and is no member"
            assert current.epoch <= self.epoch, f"{current.epoch} > {self.epoch} of the group"
            for partitions in (current.assigned, current.pending_revocation):
                for topic_id, indices in partitions.items():
                    assert indices, f"{member_id} owns nothing of {topic_id.hex()}"
                    for index in indices:
                        other = seen.setdefault((topic_id, index), member_id)
                        assert other == member_id, f"{other} and {member_id} own {index}"
                        assert self.owner(topic_id, index) == member_id, f"{member_id} {index}"
        assert sum(map(len, self.owners.values())) == len(seen), "an owner without a partition"
        assert self.target_epoch <= self.epoch, f"{self.target_epoch} > {self.epoch} of the group"
        for member_id in self.targets:
            assert member_id in self.members, f"{member_id} has a target and is no member"


def brought_bytes(member: ConsumerMember) -> int:
    """What a member is called and wants, about as it is stored. O(its topics)."""
    face = member.classic
    names = (
        member.member_id,
        member.instance_id or "",
        member.rack or "",
        member.client_id,
        member.client_host,
        member.pattern or "",
    )
    size = sum(map(len, names)) + sum(map(len, member.topics))
    return size if face is None else size + sum(len(content) for _, content in face.protocols)


def _add(counts: dict[str, int], key: str, change: int) -> None:
    """Count up or down; what nobody counts has no entry."""
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
