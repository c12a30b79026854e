"""The stored state of a KIP-848 group: the replay of its records, without decisions.

Holds the stored facts and their aggregates (partition owners, members by topic), but no time and no
metadata. Only `replay` changes it, on the coordinator that decides as well as on one that reloads
the log, so both have the same state.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ....ids import TopicId
from ..member_bytes import text_bytes
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
    """The state of one group. States are equal if their facts are, in any order of keys."""

    group: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_ms: int = field(default=NO_TIME_MS, compare=False)  # when it was stored
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    current: dict[str, CurrentAssignment] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    # Aggregates of those.
    statics: dict[str, str] = field(default_factory=dict)  # member id by instance id
    owners: dict[TopicId, dict[int, str]] = field(default_factory=dict)  # assigned or not revoked
    topic_counts: dict[str, int] = field(default_factory=dict)  # subscribers by name
    pattern_counts: dict[str, int] = field(default_factory=dict)  # subscribers by pattern
    assignor_counts: dict[str, int] = field(default_factory=dict)  # members that chose an assignor
    classic_count: int = 0  # members of the classic protocol
    stored_bytes: int = 0  # approximate stored size of all members

    # --- records ----------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Apply a record; it must be of this group and of KIP-848."""
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

    def rebuild_owners(self) -> None:
        """Rebuild the owners after a replay: compaction may have removed intermediate records."""
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
        self.stored_bytes += change * stored_bytes(member)
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
        """Return a member's assignment; none at epoch 0 if nothing is stored."""
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
        """Return the member with an instance id, or None."""
        member_id = self.statics.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner(self, topic_id: TopicId, index: int) -> str | None:
        """Return the member to which a partition was assigned and that has not revoked it."""
        of_topic = self.owners.get(topic_id)
        return None if of_topic is None else of_topic.get(index)

    def member_topics(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member is subscribed to, by name or by its pattern."""
        resolved = self.patterns.get(member.pattern) if member.pattern else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any member is subscribed to."""
        topics = set(self.topic_counts)
        for pattern in self.pattern_counts:
            resolved = self.patterns.get(pattern)
            if resolved is not None:
                topics |= resolved.topics
        return frozenset(topics)

    @property
    def name(self) -> str:
        """Kafka's name of the group's state. O(members)."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        stable = all(map(self.is_reconciled, self.members))
        return "Stable" if stable else "Reconciling"

    def is_reconciled(self, member_id: str) -> bool:
        """Return True if the member has its whole target assignment."""
        current = self.current_of(member_id)
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    def tombstones(self) -> Iterator[GroupRecord]:
        """Return the tombstones of all stored records of the group."""
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
        """Raise AssertionError if an invariant is violated.

        1. No partition has two owners, including partitions not revoked yet (KIP-848,
        reconciliation).
        2. The epochs of members and target are at most the group's epoch.
        3. Only members have assignments and targets.
        """
        seen: dict[tuple[TopicId, int], str] = {}
        for member_id, current in self.current.items():
            assert member_id in self.members, f"{member_id} has an assignment and is not a member"
            assert current.epoch <= self.epoch, f"{current.epoch} > {self.epoch} of the group"
            for partitions in (current.assigned, current.pending_revocation):
                for topic_id, indices in partitions.items():
                    assert indices, f"{member_id} has an empty set of {topic_id.hex()}"
                    for index in indices:
                        other = seen.setdefault((topic_id, index), member_id)
                        assert other == member_id, f"{other} and {member_id} own {index}"
                        assert self.owner(topic_id, index) == member_id, f"{member_id} {index}"
        assert sum(map(len, self.owners.values())) == len(seen), "an owner without a partition"
        assert self.target_epoch <= self.epoch, f"{self.target_epoch} > {self.epoch} of the group"
        for member_id in self.targets:
            assert member_id in self.members, f"{member_id} has a target and is not a member"


def stored_bytes(member: ConsumerMember) -> int:
    """Return the approximate stored size of a member. O(its topics)."""
    names = [
        member.member_id,
        member.instance_id or "",
        member.rack or "",
        member.client_id,
        member.client_host,
        member.pattern or "",
    ]
    protocols = () if member.classic is None else member.classic.protocols
    names += [name for name, _ in protocols]
    size = text_bytes(names) + text_bytes(member.topics)
    return size + sum(len(content) for _, content in protocols)


def _add(counts: dict[str, int], key: str, change: int) -> None:
    """Add to a count; a count of 0 has no entry."""
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
