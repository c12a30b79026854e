"""The committed offsets by group, topic and partition. Pure.

A committed offset belongs to a topic id. If a topic was deleted and created again under the same
name, offsets of the old topic are no longer returned. They are deleted when the topic's deletion is
applied; if that was missed, `expired` deletes them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import (
    OffsetNoteTooLarge,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...ids import TopicId
from ...metadata.image import MetadataImage, TopicImage
from .config import GroupConfig
from .records import NO_TIME_MS, OffsetCommitted, OffsetForgotten
from .requests import CommitOffsets, FetchOffsets, OffsetToCommit, StoredOffset


@dataclass(init=False, slots=True)  # as `OffsetCommitted`
class OffsetEntry:
    """A committed offset without its key. There may be hundreds of thousands, so it takes no more
    memory than a tuple of its fields."""

    offset: int
    leader_epoch: int
    note: str
    commit_ms: int
    expire_ms: int  # -1: the broker's retention applies
    topic_id: TopicId | None

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        note: str,
        commit_ms: int,
        expire_ms: int,
        topic_id: TopicId | None,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.note = note
        self.commit_ms = commit_ms
        self.expire_ms = expire_ms
        self.topic_id = topic_id


RetentionStart: TypeAlias = Callable[[OffsetEntry], int]
"""Returns the time at which an offset's retention starts, in ms of the wall clock."""


class Offsets:
    """The committed offsets of the groups of one partition."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, dict[str, dict[int, OffsetEntry]]] = {}
        self._ids: dict[TopicId, TopicId] = {}  # interns topic ids
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def groups(self) -> list[str]:
        """Return the groups that have committed offsets."""
        return list(self._groups)

    def has_any(self, group: str) -> bool:
        """Return True if the group has committed offsets."""
        return group in self._groups

    # --- commits and fetches ----------------------------------------------------------------------

    def commit(
        self, request: CommitOffsets, image: MetadataImage, now_ms: int
    ) -> tuple[list[OffsetCommitted], tuple[QuorumlogError | None, ...]]:
        """Apply the valid part of a commit. Return its records and, for each offset in the order of
        the request, None or the error: OffsetNoteTooLarge, UnknownTopicOrPartition, UnknownTopicId.

        Negative offsets are stored too, as Kafka does: a client that lost its position commits -1
        or -2, and resets its position after it fetched that.
        """
        expire_ms = now_ms + request.retention_ms if request.retention_ms >= 0 else NO_TIME_MS
        records: list[OffsetCommitted] = []
        errors: list[QuorumlogError | None] = []
        name, topic = "", None
        for each in request.offsets:
            if each.topic != name:
                name, topic = each.topic, image.topic(each.topic)
            try:
                topic_id = self._check(each, topic)
            except QuorumlogError as error:
                errors.append(error)
                continue
            record = OffsetCommitted(
                group=request.group,
                topic=each.topic,
                partition=each.partition,
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                note=each.note,
                commit_ms=now_ms,
                expire_ms=expire_ms,
                topic_id=topic_id,
            )
            self.replay(record)
            records.append(record)
            errors.append(None)
        return records, tuple(errors)

    def _check(self, each: OffsetToCommit, topic: TopicImage | None) -> TopicId:
        """Raise an error if the offset must not be committed; return the current id of its
        topic."""
        note_bytes = len(each.note.encode()) if each.note else 0
        if note_bytes > self._config.note_bytes_max:
            raise OffsetNoteTooLarge(
                f"the metadata beside the offset is too large; it has {note_bytes} bytes, the"
                f" limit is offset.metadata.max.bytes={self._config.note_bytes_max}; commit less"
                " metadata",
                topic=each.topic,
                partition=each.partition,
            )
        if topic is None or each.partition not in topic.partitions:
            raise UnknownTopicOrPartition(
                "the offset cannot be committed: the partition does not exist; refresh the"
                " metadata",
                topic=each.topic,
                partition=each.partition,
            )
        if each.topic_id is not None and each.topic_id != topic.id:
            raise UnknownTopicId(
                "the offset cannot be committed: the topic was deleted and created again; refresh"
                " the metadata and do not reuse offsets of the old topic",
                topic=each.topic,
                partition=each.partition,
            )
        return topic.id

    def fetch(self, request: FetchOffsets, image: MetadataImage) -> tuple[StoredOffset, ...]:
        """Return the committed offsets of the requested partitions in request order, or all of the
        group by ascending topic and partition."""
        topics = self._groups.get(request.group, {})
        if request.partitions is None:
            found = [
                _stored(topic, partition, kept)
                for topic, partitions in sorted(topics.items())
                for partition, kept in sorted(partitions.items())
                if _is_of_current_topic(kept, topic, image)
            ]
            return tuple(found)
        answers = []
        for topic, partition in request.partitions:
            kept = topics.get(topic, {}).get(partition)
            if kept is None or not _is_of_current_topic(kept, topic, image):
                answers.append(StoredOffset(topic=topic, partition=partition, offset=-1))
            else:
                answers.append(_stored(topic, partition, kept))
        return tuple(answers)

    # --- deletion ---------------------------------------------------------------------------------

    def forget(self, group: str, topic: str, partition: int) -> list[OffsetForgotten]:
        """Delete one offset; return its tombstone, or an empty list if none is committed."""
        if partition not in self._groups.get(group, {}).get(topic, {}):
            return []
        record = OffsetForgotten(group=group, topic=topic, partition=partition)
        self.replay(record)
        return [record]

    def forget_group(self, group: str) -> list[OffsetForgotten]:
        """Delete all offsets of a group; return the tombstones."""
        found = [
            OffsetForgotten(group=group, topic=topic, partition=partition)
            for topic, partitions in self._groups.pop(group, {}).items()
            for partition in partitions
        ]
        self._count -= len(found)
        return found

    def forget_topic(self, topic: str, topic_id: TopicId) -> list[OffsetForgotten]:
        """Delete the offsets of a deleted topic; return the tombstones."""
        found = [
            OffsetForgotten(group=group, topic=topic, partition=partition)
            for group, topics in self._groups.items()
            for partition, kept in topics.get(topic, {}).items()
            if kept.topic_id is None or kept.topic_id == topic_id
        ]
        for record in found:
            self.replay(record)
        self._ids.pop(topic_id, None)
        return found

    def expired(
        self,
        group: str,
        image: MetadataImage,
        now_ms: int,
        *,
        since: RetentionStart | None,
        subscribed: frozenset[str],
    ) -> list[OffsetForgotten]:
        """Delete offsets that have expired or belong to deleted topics; return the tombstones.

        `since` None: the topics that the active group reads are unknown, so no offset expires by
        age. Offsets of `subscribed` topics do not expire by age either.
        """
        found = []
        for topic, partition, kept in self._offsets_of(group):
            if self._is_gone(kept, topic, image, now_ms) or (
                since is not None
                and topic not in subscribed
                and self._is_due(kept, since(kept), now_ms)
            ):
                found.append(OffsetForgotten(group=group, topic=topic, partition=partition))
        for record in found:
            self.replay(record)
        return found

    def _is_due(self, kept: OffsetEntry, since_ms: int, now_ms: int) -> bool:
        if kept.expire_ms != NO_TIME_MS:
            return now_ms >= kept.expire_ms
        return now_ms - since_ms >= self._config.offsets_retention_ms

    def _is_gone(self, kept: OffsetEntry, topic: str, image: MetadataImage, now_ms: int) -> bool:
        """Return True if the topic of the offset no longer exists. Commits younger than
        `offsets_check_ms` do not count: the broker that accepted one may have had newer metadata
        than this image."""
        if kept.topic_id is None or now_ms - kept.commit_ms < self._config.offsets_check_ms:
            return False
        present = image.topic(topic)
        return present is None or present.id != kept.topic_id

    def _offsets_of(self, group: str) -> Iterator[tuple[str, int, OffsetEntry]]:
        for topic, partitions in self._groups.get(group, {}).items():
            for partition, kept in partitions.items():
                yield topic, partition, kept

    def count_of(self, group: str) -> int:
        """Return the number of committed offsets of a group."""
        return sum(map(len, self._groups.get(group, {}).values()))

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: OffsetCommitted | OffsetForgotten) -> None:
        """Apply a stored record."""
        if isinstance(record, OffsetForgotten):
            self._drop(record)
            return
        topics = self._groups.setdefault(record.group, {})
        partitions = topics.setdefault(record.topic, {})
        before = len(partitions)
        topic_id = record.topic_id
        partitions[record.partition] = OffsetEntry(
            record.offset,
            record.leader_epoch,
            record.note,
            record.commit_ms,
            record.expire_ms,
            None if topic_id is None else self._ids.setdefault(topic_id, topic_id),
        )
        self._count += len(partitions) - before

    def _drop(self, record: OffsetForgotten) -> None:
        topics = self._groups.get(record.group, {})
        partitions = topics.get(record.topic, {})
        if partitions.pop(record.partition, None) is None:
            return
        self._count -= 1
        if not partitions:
            del topics[record.topic]
            if not topics:
                del self._groups[record.group]


def _is_of_current_topic(kept: OffsetEntry, topic: str, image: MetadataImage) -> bool:
    """Return True if the offset belongs to the topic that has this name now, or if that is
    unknown."""
    present = image.topic(topic)
    return kept.topic_id is None or present is None or present.id == kept.topic_id


def _stored(topic: str, partition: int, kept: OffsetEntry) -> StoredOffset:
    return StoredOffset(
        topic=topic,
        partition=partition,
        offset=kept.offset,
        leader_epoch=kept.leader_epoch,
        note=kept.note,
        commit_ms=kept.commit_ms,
    )
