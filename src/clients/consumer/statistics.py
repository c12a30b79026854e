"""Consumer statistics: immutable snapshots."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..offsets import Place
from .partition_reader import PartitionReader


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The application's lag in one partition."""

    position: int  # offset of the next record to be delivered
    high_watermark: int  # exclusive end of the committed records

    @property
    def lag(self) -> int:
        """Offsets from the position to the high watermark, >= 0.

        It is an upper bound of the number of records: compaction leaves gaps.
        """
        return max(0, self.high_watermark - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    """One partition, as of its leader's last response."""

    position: int  # -1 during its lookup
    high_watermark: int  # -1 before the first response
    log_start_offset: int  # -1 before the first response
    buffered_bytes: int  # prefetched and not decoded
    is_paused: bool
    failures: int  # consecutive failed attempts; 0 after a success
    failure: str  # the message of the last one; ""

    @property
    def lag(self) -> int:
        """Offsets from the position to the known high watermark; -1 if either is unknown."""
        if self.position < 0 or self.high_watermark < 0:
            return -1
        return max(0, self.high_watermark - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """Counters of a consumer since its creation; they only increase."""

    records: int  # delivered
    fetches: int  # fetch responses
    fetched_bytes: int  # of record batches, as stored
    failures: int  # failed calls, retried ones included
    buffered_bytes: int  # prefetched and not decoded at present, all partitions
    partitions: Mapping[Place, PartitionStatistics]


def partition_statistics(reader: PartitionReader) -> PartitionStatistics:
    """Return a snapshot of one partition."""
    return PartitionStatistics(
        position=reader.position,
        high_watermark=reader.high_watermark,
        log_start_offset=reader.log_start_offset,
        buffered_bytes=reader.buffered_bytes,
        is_paused=reader.is_paused,
        failures=reader.failures,
        failure="" if reader.failure is None else str(reader.failure),
    )
