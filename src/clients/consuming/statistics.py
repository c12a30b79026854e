"""What a consumer says of itself: snapshots, never changed after they were made."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..offsets import Place
from .partition_reader import PartitionReader


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far the application is behind one partition's end."""

    position: int  # offset of the next record that the application gets
    high_watermark: int  # everything below is committed

    @property
    def lag(self) -> int:
        """Offsets from the position to the high watermark, 0 or more: an upper bound of the
        records, since compaction leaves gaps."""
        return max(0, self.high_watermark - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    """One partition, as the last answer of its leader left it."""

    position: int  # -1 while it is looked up
    high_watermark: int  # -1 before the first answer
    log_start_offset: int  # first offset that is left; -1 before the first answer
    buffered_bytes: int  # read ahead and not handed out, as they came
    is_paused: bool
    failures: int  # attempts in a row that failed; 0 when all is well
    failure: str  # the newest of them, as a sentence; ""

    @property
    def lag(self) -> int:
        """Offsets from the position to the high watermark known; -1 while either is unknown."""
        if self.position < 0 or self.high_watermark < 0:
            return -1
        return max(0, self.high_watermark - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """A consumer since it was made; counters only rise."""

    records: int  # handed out
    fetches: int  # answers of brokers
    fetched_bytes: int  # of record batches, as stored
    failures: int  # calls that failed and were repeated, or told
    buffered_bytes: int  # read ahead and not handed out now, all partitions
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
