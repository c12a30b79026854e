"""A set of partitions as an immutable value, kept by whoever must find some of very many at once.

By topic one whole number whose bits are the partitions' indexes: a few bytes a partition, and a
change costs what the topic's number costs to copy. Topics stand in buckets by the first byte of
their id, so that a walk in order sorts one bucket at a time and never all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from immutables import Map

from ..ids import TopicId


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """(topic id, index) pairs; walked by ascending topic id, then by ascending index."""

    buckets: Map[int, Map[TopicId, int]]  # no empty bucket, no topic without a bit
    count: int

    def __len__(self) -> int:
        return self.count

    def __contains__(self, partition: tuple[TopicId, int]) -> bool:
        topic_id, index = partition
        return bool(self._bits(topic_id) >> index & 1)

    def __iter__(self) -> Iterator[tuple[TopicId, int]]:
        for _, topics in sorted(self.buckets.items(), key=itemgetter(0)):
            for topic_id, bits in sorted(topics.items(), key=itemgetter(0)):
                for index in _indexes(bits):
                    yield topic_id, index

    def of_topic(self, topic_id: TopicId) -> Iterator[int]:
        """The indexes of one topic, ascending."""
        return _indexes(self._bits(topic_id))

    def add(self, topic_id: TopicId, index: int) -> "PartitionSet":
        """Return the set with one partition more; itself when it is there."""
        bits = self._bits(topic_id)
        return self._with_bits(topic_id, bits, bits | 1 << index)

    def discard(self, topic_id: TopicId, index: int) -> "PartitionSet":
        """Return the set with one partition less; itself when it is not there."""
        bits = self._bits(topic_id)
        return self._with_bits(topic_id, bits, bits & ~(1 << index))

    def discard_topic(self, topic_id: TopicId) -> "PartitionSet":
        """Return the set without any partition of a topic."""
        return self._with_bits(topic_id, self._bits(topic_id), 0)

    def _bits(self, topic_id: TopicId) -> int:
        topics = self.buckets.get(topic_id[0])
        return 0 if topics is None else topics.get(topic_id, 0)

    def _with_bits(self, topic_id: TopicId, before: int, after: int) -> "PartitionSet":
        if before == after:
            return self
        bucket = topic_id[0]
        topics = self.buckets.get(bucket, _NO_TOPICS)
        topics = topics.set(topic_id, after) if after else topics.delete(topic_id)
        buckets = self.buckets.set(bucket, topics) if topics else self.buckets.delete(bucket)
        return PartitionSet(buckets, self.count + after.bit_count() - before.bit_count())


def _indexes(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits, ascending."""
    for index, bit in enumerate(reversed(bin(bits)[2:])):
        if bit == "1":
            yield index


_NO_TOPICS: Final[Map[TopicId, int]] = Map()
NO_PARTITIONS: Final = PartitionSet(Map(), 0)
