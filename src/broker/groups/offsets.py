"""The committed offsets by group, topic and partition. Pure.

A committed offset belongs to a topic id. If a topic was deleted and created again under the same
name, offsets of the old topic are no longer returned. They are deleted when the topic's deletion is
applied; if that was missed, `expired` deletes them.

Offsets of open transactions are pending (`pending_offsets`). A tombstone deletes the committed and
the pending offsets of its key, as compaction does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...errors import (
    OffsetNoteTooLarge,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from ...ids import TopicId
from ...metadata.image import MetadataImage, TopicImage
from .config import GroupConfig
from .pending_offsets import PendingOffsets
from .records import NO_TIME_MS, OffsetCommitted, OffsetForgotten
from .requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    FetchOffsets,
    OffsetToCommit,
    PlainCommit,
    PlainOffsets,
    StoredOffset,
)


@dataclass(slots=True)  # as `OffsetCommitted`
class OffsetEntry:
    """A committed offset without its key. There may be hundreds of thousands, so it takes no more
    memory than a tuple of its fields."""

    offset: int
    leader_epoch: int
    note: str
    commit_ms: int
    expire_ms: int  # -1: the broker's retention applies
    topic_id: TopicId | None


RetentionStart: TypeAlias = Callable[[OffsetEntry], int]
"""Returns the time at which an offset's retention starts, in ms of the wall clock."""


class Offsets:
    """The committed and pending offsets of the groups of one partition."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, dict[str, dict[int, OffsetEntry]]] = {}
        self._pending = PendingOffsets()
        self._ids: dict[TopicId, TopicId] = {}  # interns topic ids
        self._count = 0

    def __len__(self) -> int:
        """Return the number of committed offsets."""
        return self._count

    def groups(self) -> dict[str, None]:
        """Return the groups that have committed or pending offsets, in a fixed order."""
        return dict.fromkeys((*self._groups, *self._pending.groups()))

    def has_any(self, group: str) -> bool:
        """Return True if the group has committed or pending offsets."""
        return group in self._groups or self._pending.has_any(group)

    # --- commits and fetches ----------------------------------------------------------------------

    def commit(
        self,
        request: CommitOffsets,
        image: MetadataImage,
        now_ms: int,
    ) -> tuple[list[OffsetCommitted], tuple[QuorumlogError | None, ...]]:
        """Apply the valid part of a commit, or stage it in its transaction. Return its records and,
        for each offset in the order of the request, None or the error: OffsetNoteTooLarge,
        UnknownTopicOrPartition, UnknownTopicId.

        Negative offsets are stored too, as Kafka does: a client that lost its position commits -1
        or -2, and resets its position after it fetched that.
        """
        producer_id, expire_ms = None, NO_TIME_MS
        if isinstance(request, CommitTransactionalOffsets):
            producer_id = request.producer.producer_id
        elif request.retention_ms >= 0:
            expire_ms = now_ms + request.retention_ms
        is_plain = producer_id is None and not self._pending  # the usual case
        records: list[OffsetCommitted] = []
        errors: list[QuorumlogError | None] = []
        name, topic = "", None
        for each in request.offsets:
            if each.topic != name:
                name, topic = each.topic, image.topic(each.topic)
            topic_id = each.topic_id
            if (
                topic is None
                or topic_id != topic.id
                or each.note
                or each.partition not in topic.partitions
            ):
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
            if is_plain:
                self._put(record)
            else:
                self.replay(record, producer_id)
            records.append(record)
            errors.append(None)
        return records, tuple(errors)

    def topic_ids(
        self, topics: tuple[PlainOffsets, ...], image: MetadataImage
    ) -> tuple[TopicId, ...] | None:
        """Return the id of each topic; None if `put` must not store the offsets: a partition does
        not exist, or some offsets are pending."""
        if self._pending:
            return None
        found: list[TopicId] = []
        for name, partitions, _, _ in topics:
            topic = image.topic(name)
            if topic is None or not all(map(topic.partitions.__contains__, partitions)):
                return None
            found.append(topic.id)
        return tuple(found)

    def put(self, commit: PlainCommit, topic_ids: tuple[TopicId, ...], now_ms: int) -> None:
        """Apply a commit with the result of `topic_ids`, as `commit` does."""
        topics = self._groups.setdefault(commit.group, {})
        for (name, *columns), topic_id in zip(commit.topics, topic_ids, strict=True):
            topic_id = self._ids.setdefault(topic_id, topic_id)
            partitions = topics.setdefault(name, {})
            for partition, offset, leader_epoch in zip(*columns, strict=True):
                entry = partitions.get(partition)
                if entry is None:
                    entry = OffsetEntry(offset, leader_epoch, "", now_ms, NO_TIME_MS, topic_id)
                    partitions[partition] = entry
                    self._count += 1
                    continue
                entry.offset = offset
                entry.leader_epoch = leader_epoch
                entry.note = ""
                entry.commit_ms = now_ms
                entry.expire_ms = NO_TIME_MS
                entry.topic_id = topic_id

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> list[str]:
        """Apply or drop the pending offsets of a producer; return the groups that had some."""
        applied, groups = self._pending.end(producer_id, is_commit=is_commit)
        for record in applied:
            self._put(record)
        return groups

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
            # sometimes: an offset of a deleted topic is committed
            raise UnknownTopicId(
                "the offset cannot be committed: the topic was deleted and created again; refresh"
                " the metadata and do not reuse offsets of the old topic",
                topic=each.topic,
                partition=each.partition,
            )
        return topic.id

    def fetch(self, request: FetchOffsets, image: MetadataImage) -> tuple[StoredOffset, ...]:
        """Return the committed offsets of the requested partitions in request order, or all of the
        group by ascending topic and partition.

        If the request requires stable offsets, a partition with a pending one has the error
        UnstableOffsetCommit in place of its offset.
        """
        if request.require_stable and self._pending.has_any(request.group):
            return self._fetch_stable(request, image)
        topics = self._groups.get(request.group, {})
        if request.partitions is None:
            return tuple(self._listed(request.group, image))
        answers = []
        for topic, partition in request.partitions:
            kept = topics.get(topic, {}).get(partition)
            if kept is None or not _is_of_current_topic(kept.topic_id, topic, image):
                # sometimes if kept is not None: a committed offset belongs to a deleted topic
                answers.append(StoredOffset(topic=topic, partition=partition, offset=-1))
            else:
                answers.append(_stored(topic, partition, kept))
        return tuple(answers)

    def _listed(self, group: str, image: MetadataImage) -> list[StoredOffset]:
        """Return the committed offsets of a group, by ascending topic and partition."""
        return [
            _stored(topic, partition, kept)
            for topic, partitions in sorted(self._groups.get(group, {}).items())
            for partition, kept in sorted(partitions.items())
            if _is_of_current_topic(kept.topic_id, topic, image)
        ]

    def _fetch_stable(
        self, request: FetchOffsets, image: MetadataImage
    ) -> tuple[StoredOffset, ...]:
        """Return the offsets of a group with pending ones. A query of all includes the partitions
        that have only a pending offset: without them, it would seem that none is on its way."""
        unstable = {
            place
            for place in self._pending.places(request.group)
            if any(
                _is_of_current_topic(record.topic_id, record.topic, image)
                for record in self._pending.at(request.group, *place)
            )
        }
        # sometimes if unstable: offsets are fetched while some are pending
        asked = request.partitions
        if asked is None:
            listed = {(each.topic, each.partition) for each in self._listed(request.group, image)}
            asked = tuple(sorted(listed | unstable))
        stable = replace(
            request,
            partitions=tuple(place for place in asked if place not in unstable),
            require_stable=False,
        )
        found = iter(self.fetch(stable, image))
        return tuple(_unstable(*place) if place in unstable else next(found) for place in asked)

    # --- deletion ---------------------------------------------------------------------------------

    def forget(self, group: str, topic: str, partition: int) -> list[OffsetForgotten]:
        """Delete the offsets of one partition; return the tombstone, or an empty list without
        any."""
        is_committed = partition in self._groups.get(group, {}).get(topic, {})
        if not is_committed and not self._pending.at(group, topic, partition):
            return []
        record = OffsetForgotten(group=group, topic=topic, partition=partition)
        self.replay(record)
        return [record]

    def forget_group(self, group: str) -> list[OffsetForgotten]:
        """Delete all offsets of a group; return the tombstones."""
        places = dict.fromkeys(
            (topic, partition) for topic, partition, _ in self._offsets_of(group)
        )
        places |= dict.fromkeys(self._pending.places(group))
        found = [
            OffsetForgotten(group=group, topic=topic, partition=partition)
            for topic, partition in places
        ]
        for record in found:
            self.replay(record)
        return found

    def forget_topic(self, topic: str, topic_id: TopicId) -> list[OffsetForgotten]:
        """Delete the offsets of a deleted topic; return the tombstones.

        A partition that also has an offset of the topic's successor keeps both, since a tombstone
        deletes both; the older one is not returned any more.
        """
        places = [
            (group, partition)
            for group, topics in self._groups.items()
            for partition in topics.get(topic, ())
        ]
        places += self._pending.of_topic(topic)
        found = [
            OffsetForgotten(group=group, topic=topic, partition=partition)
            for group, partition in dict.fromkeys(places)
            if self._topic_ids(group, topic, partition) <= {None, topic_id}
        ]
        for record in found:
            self.replay(record)
        self._ids.pop(topic_id, None)
        return found

    def _topic_ids(self, group: str, topic: str, partition: int) -> set[TopicId | None]:
        """Return the topic ids of the committed and the pending offsets of one partition."""
        found = {record.topic_id for record in self._pending.at(group, topic, partition)}
        kept = self._groups.get(group, {}).get(topic, {}).get(partition)
        return found if kept is None else found | {kept.topic_id}

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
        age. Offsets of `subscribed` topics do not expire by age either. A partition with a pending
        offset keeps both.
        """
        found = []
        for topic, partition, kept in self._offsets_of(group):
            if self._pending and self._pending.at(group, topic, partition):
                continue
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

    def check_invariants(self, is_open: Callable[[int], bool] = lambda _: True) -> None:
        """Raise AssertionError unless these hold, by number; O(offsets). `is_open` returns True for
        a producer with an open transaction.

        1. The count is that of the committed offsets.
        2. No group and no topic is empty.
        3. Only producers with an open transaction have pending offsets.
        4. The invariants of the pending offsets; see `PendingOffsets.check_invariants`.
        """
        counted = sum(map(self.count_of, self._groups))
        assert self._count == counted, (
            f"offsets invariant 1: {counted} are committed, {self._count} are counted"
        )
        is_sound = all(topics and all(topics.values()) for topics in self._groups.values())
        assert is_sound, f"offsets invariant 2: an empty part in {self._groups}"
        ended = [each for each in self._pending.producers() if not is_open(each)]
        assert not ended, f"offsets invariant 3: producers {ended} have pending offsets"
        self._pending.check_invariants()

    # --- storage ----------------------------------------------------------------------------------

    def replay(
        self, record: OffsetCommitted | OffsetForgotten, producer_id: int | None = None
    ) -> None:
        """Apply a stored record, or stage it in the transaction of its producer."""
        if isinstance(record, OffsetForgotten):
            self._drop(record)
        elif producer_id is not None:
            self._pending.stage(producer_id, record)
        else:
            self._put(record)
            if self._pending:
                self._pending.supersede(record.group, record.topic, record.partition)

    def _put(self, record: OffsetCommitted) -> None:
        """Replace the committed offset of a partition."""
        topic_id = record.topic_id
        if topic_id is not None:
            topic_id = self._ids.setdefault(topic_id, topic_id)
        try:
            entry = self._groups[record.group][record.topic][record.partition]
        except KeyError:
            self._add(record, topic_id)
            return
        entry.offset = record.offset
        entry.leader_epoch = record.leader_epoch
        entry.note = record.note
        entry.commit_ms = record.commit_ms
        entry.expire_ms = record.expire_ms
        entry.topic_id = topic_id

    def _add(self, record: OffsetCommitted, topic_id: TopicId | None) -> None:
        """Store the first committed offset of a partition."""
        partitions = self._groups.setdefault(record.group, {}).setdefault(record.topic, {})
        partitions[record.partition] = OffsetEntry(
            record.offset,
            record.leader_epoch,
            record.note,
            record.commit_ms,
            record.expire_ms,
            topic_id,
        )
        self._count += 1

    def _drop(self, record: OffsetForgotten) -> None:
        if self._pending:
            self._pending.drop(record.group, record.topic, record.partition)
        topics = self._groups.get(record.group, {})
        partitions = topics.get(record.topic, {})
        if partitions.pop(record.partition, None) is None:
            return
        self._count -= 1
        if not partitions:
            del topics[record.topic]
            if not topics:
                del self._groups[record.group]


def _is_of_current_topic(topic_id: TopicId | None, topic: str, image: MetadataImage) -> bool:
    """Return True if an offset belongs to the topic that has this name now, or if that is
    unknown."""
    present = image.topic(topic)
    return topic_id is None or present is None or present.id == topic_id


def _unstable(topic: str, partition: int) -> StoredOffset:
    error = UnstableOffsetCommit(
        "the offset is not stable: an open transaction has committed a newer one; retry once it has"
        " ended",
        topic=topic,
        partition=partition,
    )
    return StoredOffset(topic=topic, partition=partition, offset=-1, error=error)


def _stored(topic: str, partition: int, kept: OffsetEntry) -> StoredOffset:
    return StoredOffset(
        topic=topic,
        partition=partition,
        offset=kept.offset,
        leader_epoch=kept.leader_epoch,
        note=kept.note,
        commit_ms=kept.commit_ms,
    )
