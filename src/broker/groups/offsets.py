"""How far groups have read: what is committed, by group, topic and partition.

Pure. A commit belongs to the topic of its id: once a topic was deleted and made anew under the same
name, what was committed before is not told any more. It goes when the deletion is seen, or when
old offsets are looked for (`expired`), where the deletion was missed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import (
    InvalidRequest,
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
class Kept:
    """A committed offset, as small as a tuple of these: there may be hundreds of thousands."""

    offset: int
    leader_epoch: int
    note: str
    commit_ms: int
    expire_ms: int  # -1: by the retention of all
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


KeptSince: TypeAlias = Callable[[Kept], int]
"""From when on the retention of an offset counts, in ms of the wall clock."""


class Offsets:
    """The committed offsets of the groups of one partition."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, dict[str, dict[int, Kept]]] = {}
        self._ids: dict[TopicId, TopicId] = {}  # one object for each
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def groups(self) -> list[str]:
        """The groups that have any."""
        return list(self._groups)

    def has_any(self, group: str) -> bool:
        """Whether anything is committed of a group."""
        return group in self._groups

    # --- commits and looking ----------------------------------------------------------------------

    def commit(
        self, request: CommitOffsets, image: MetadataImage, now_ms: int
    ) -> tuple[list[OffsetCommitted], tuple[QuorumlogError | None, ...]]:
        """Take what can be taken of a commit; returns its records, and for each offset in the order
        of the request why it was not taken: OffsetNoteTooLarge, UnknownTopicOrPartition,
        UnknownTopicId, InvalidRequest."""
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
        """Raise why this is not taken; returns the id of its topic as it is now."""
        note_bytes = len(each.note.encode()) if each.note else 0
        if note_bytes > self._config.note_bytes_max:
            raise OffsetNoteTooLarge(
                f"the note beside the offset has {note_bytes} bytes, offset.metadata.max.bytes is"
                f" {self._config.note_bytes_max}: commit a shorter one",
                topic=each.topic,
                partition=each.partition,
            )
        if each.offset < 0:
            raise InvalidRequest(
                f"offset {each.offset} cannot be committed: give that of the next record to read,"
                " 0 or more",
                topic=each.topic,
                partition=each.partition,
            )
        if topic is None or each.partition not in topic.partitions:
            raise UnknownTopicOrPartition(
                "there is no such partition to commit an offset of; refresh the metadata",
                topic=each.topic,
                partition=each.partition,
            )
        if each.topic_id is not None and each.topic_id != topic.id:
            raise UnknownTopicId(
                "the topic of this name was made anew since; refresh the metadata, and take no"
                " offset over",
                topic=each.topic,
                partition=each.partition,
            )
        return topic.id

    def fetch(self, request: FetchOffsets, image: MetadataImage) -> tuple[StoredOffset, ...]:
        """Return what is stored of the partitions asked for, in their order, or of all by ascending
        topic and partition."""
        topics = self._groups.get(request.group, {})
        if request.partitions is None:
            found = [
                _stored(topic, partition, kept)
                for topic, partitions in sorted(topics.items())
                for partition, kept in sorted(partitions.items())
                if _is_of_present(kept, topic, image)
            ]
            return tuple(found)
        answers = []
        for topic, partition in request.partitions:
            kept = topics.get(topic, {}).get(partition)
            if kept is None or not _is_of_present(kept, topic, image):
                answers.append(StoredOffset(topic=topic, partition=partition, offset=-1))
            else:
                answers.append(_stored(topic, partition, kept))
        return tuple(answers)

    # --- forgetting -------------------------------------------------------------------------------

    def forget(self, group: str, topic: str, partition: int) -> list[OffsetForgotten]:
        """Forget one; returns its tombstone, or nothing where nothing is stored."""
        if partition not in self._groups.get(group, {}).get(topic, {}):
            return []
        record = OffsetForgotten(group=group, topic=topic, partition=partition)
        self.replay(record)
        return [record]

    def forget_group(self, group: str) -> list[OffsetForgotten]:
        """Forget all of a group; returns the tombstones."""
        found = [
            OffsetForgotten(group=group, topic=topic, partition=partition)
            for topic, partitions in self._groups.pop(group, {}).items()
            for partition in partitions
        ]
        self._count -= len(found)
        return found

    def forget_topic(self, topic: str, topic_id: TopicId) -> list[OffsetForgotten]:
        """A topic was deleted: forget what was committed of it; returns the tombstones."""
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
        since: KeptSince | None,
        subscribed: frozenset[str],
    ) -> list[OffsetForgotten]:
        """Forget what is too old, or of topics that are gone; returns the tombstones.

        `since` None: the group is at work in a way that nobody knows what it reads, so nothing of
        it gets old. What is `subscribed` does not either.
        """
        found = []
        for topic, partition, kept in self._of(group):
            if self._is_gone(kept, topic, image, now_ms) or (
                since is not None
                and topic not in subscribed
                and self._is_due(kept, since(kept), now_ms)
            ):
                found.append(OffsetForgotten(group=group, topic=topic, partition=partition))
        for record in found:
            self.replay(record)
        return found

    def _is_due(self, kept: Kept, since_ms: int, now_ms: int) -> bool:
        if kept.expire_ms != NO_TIME_MS:
            return now_ms >= kept.expire_ms
        return now_ms - since_ms >= self._config.offsets_retention_ms

    def _is_gone(self, kept: Kept, topic: str, image: MetadataImage, now_ms: int) -> bool:
        """Whether the topic is not any more. Only of commits of some age: the broker that took a
        young one may have known of a topic that this one does not know yet."""
        if kept.topic_id is None or now_ms - kept.commit_ms < self._config.offsets_check_ms:
            return False
        present = image.topic(topic)
        return present is None or present.id != kept.topic_id

    def _of(self, group: str) -> Iterator[tuple[str, int, Kept]]:
        for topic, partitions in self._groups.get(group, {}).items():
            for partition, kept in partitions.items():
                yield topic, partition, kept

    def count_of(self, group: str) -> int:
        """How many are stored of a group."""
        return sum(map(len, self._groups.get(group, {}).values()))

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: OffsetCommitted | OffsetForgotten) -> None:
        """Take in what is stored."""
        if isinstance(record, OffsetForgotten):
            self._drop(record)
            return
        topics = self._groups.setdefault(record.group, {})
        partitions = topics.setdefault(record.topic, {})
        before = len(partitions)
        topic_id = record.topic_id
        partitions[record.partition] = Kept(
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


def _is_of_present(kept: Kept, topic: str, image: MetadataImage) -> bool:
    """Whether it was committed of the topic that has this name now; where none has, nobody knows
    better."""
    present = image.topic(topic)
    return kept.topic_id is None or present is None or present.id == kept.topic_id


def _stored(topic: str, partition: int, kept: Kept) -> StoredOffset:
    return StoredOffset(
        topic=topic,
        partition=partition,
        offset=kept.offset,
        leader_epoch=kept.leader_epoch,
        note=kept.note,
        commit_ms=kept.commit_ms,
    )
