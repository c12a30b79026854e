"""Delivered positions: the records that the application got and has not finished.

Records count as processed at the application's next call; only those are committed.
"""

from collections.abc import Collection, Mapping, Sequence

from ..consumer.record import ConsumerRecord
from ..offsets import PartitionLike


class DeliveredPositions:
    """Delivered positions of an asyncio consumer: the result of the last reading call."""

    __slots__ = ("_count", "_last")

    def __init__(self) -> None:
        self._last: Sequence[ConsumerRecord] | Mapping[PartitionLike, int] = ()
        self._count = 0  # of completed reading calls

    def record(self, last: Sequence[ConsumerRecord] | Mapping[PartitionLike, int]) -> None:
        """Record what a reading call returns: records, or rows that begin at these offsets."""
        self._last = last
        self._count += 1

    def finish_delivered(self) -> None:
        """Record that the application finished all delivered records: it called again."""
        self._last = ()

    def pending(self) -> dict[PartitionLike, int]:
        """Return the first offset of each partition with unfinished records."""
        if isinstance(self._last, Mapping):
            return dict(self._last)
        return first_offsets(self._last)

    def undelivered(self) -> dict[PartitionLike, int]:
        """Return the first undelivered offset of each partition with a position beyond it."""
        return {}

    def mark(self) -> object:
        """Return a value that changes whenever the application makes progress."""
        return self._count

    def recall(self, places: Collection[PartitionLike]) -> None:
        """Withhold the undelivered records of these partitions, which are being revoked."""


def first_offsets(records: Sequence[ConsumerRecord]) -> dict[PartitionLike, int]:
    """Return the first offset of each partition in a sequence of records."""
    found: dict[PartitionLike, int] = {}
    for record in records:
        found.setdefault((record.topic, record.partition), record.offset)
    return found
