"""An immutable set of partitions, used as an index over very many of them.

A topic's partitions are the bits of one integer: a few bytes per partition, and a change copies
that integer. Topics are in buckets by the first byte of their id, so that an ordered walk sorts one
bucket at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from immutables import Map, MapMutation

from ..ids import TopicId


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """A set of (topic id, index), iterated by ascending topic id, then by ascending index."""

    buckets: Map[int, Map[TopicId, int]]  # no empty bucket, no topic without a bit
    count: int

    def __len__(self) -> int:
        return self.count

    def __contains__(self, partition: tuple[TopicId, int]) -> bool:
        topic_id, index = partition
        return bool(self.bits_of(topic_id) >> index & 1)

    def __iter__(self) -> Iterator[tuple[TopicId, int]]:
        for _, topics in sorted(self.buckets.items(), key=itemgetter(0)):
            for topic_id, bits in sorted(topics.items(), key=itemgetter(0)):
                for index in _indexes(bits):
                    yield topic_id, index

    def of_topic(self, topic_id: TopicId) -> Iterator[int]:
        """Yield the indexes of one topic, ascending."""
        return _indexes(self.bits_of(topic_id))

    def add(self, topic_id: TopicId, index: int) -> "PartitionSet":
        """Return the set with a partition added; itself if it is a member."""
        return self.with_bits({topic_id: self.bits_of(topic_id) | 1 << index})

    def discard(self, topic_id: TopicId, index: int) -> "PartitionSet":
        """Return the set without a partition; itself if it is not a member."""
        return self.with_bits({topic_id: self.bits_of(topic_id) & ~(1 << index)})

    def bits_of(self, topic_id: TopicId) -> int:
        """Return a topic's indexes as the bits of an integer."""
        topics = self.buckets.get(topic_id[0])
        return 0 if topics is None else topics.get(topic_id, 0)

    def with_bits(self, changes: Mapping[TopicId, int]) -> "PartitionSet":
        """Return the set with new bits for some topics; itself if they do not differ."""
        draft = PartitionSetDraft(self)
        draft.take(changes)
        return draft.finish()


class PartitionSetDraft:
    """A mutable copy of a set: many changes in place, then one new set."""

    __slots__ = ("_before", "_changed", "_count")

    def __init__(self, before: PartitionSet) -> None:
        self._before = before
        self._changed: dict[int, MapMutation[TopicId, int]] = {}  # buckets with other bits
        self._count = before.count

    def bits_of(self, topic_id: TopicId) -> int:
        """Return a topic's indexes as the bits of an integer, after the changes so far."""
        topics = self._changed.get(topic_id[0])
        return self._before.bits_of(topic_id) if topics is None else topics.get(topic_id, 0)

    def take(self, changes: Mapping[TopicId, int]) -> None:
        """Set the bits of some topics."""
        changed, buckets = self._changed, self._before.buckets
        for topic_id, after in changes.items():
            key = topic_id[0]
            topics = changed.get(key)
            bucket = buckets.get(key, _NO_TOPICS) if topics is None else topics
            before = bucket.get(topic_id, 0)
            if before == after:
                continue
            if topics is None:
                topics = changed[key] = buckets.get(key, _NO_TOPICS).mutate()
            if after:
                topics[topic_id] = after
            else:
                del topics[topic_id]
            self._count += after.bit_count() - before.bit_count()

    def finish(self) -> PartitionSet:
        """Return the changed set, the original one without changes. Ends the draft."""
        if not self._changed:
            return self._before
        buckets = self._before.buckets.mutate()
        for key, topics in self._changed.items():
            if len(topics):
                buckets[key] = topics.finish()
            elif key in buckets:
                del buckets[key]
        return PartitionSet(buckets.finish(), self._count)


def _indexes(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits, ascending."""
    for index, bit in enumerate(reversed(bin(bits)[2:])):
        if bit == "1":
            yield index


_NO_TOPICS: Final[Map[TopicId, int]] = Map()
NO_PARTITIONS: Final = PartitionSet(Map(), 0)
