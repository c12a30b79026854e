"""Offset lookup by timestamp: the first record at or after it.

Planned on the loop, run in the read lane: the time indexes of inactive segments, a walk over the
headers of at most one index interval, and one batch decoded to find the record.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..records.codec import decode_batch, find_timestamp
from .index import NO_TIMESTAMP, SegmentIndex
from .segment import load_index, walk

if TYPE_CHECKING:
    from ..runtime.ports import File, Files


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """The offset of a record found by timestamp."""

    offset: int
    timestamp: int  # ms since 1970 (UTC)
    leader_epoch: int  # of its batch


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSegment:
    """One segment of a lookup. If its index is in memory, `max_timestamp` and `floor` are set."""

    path: str
    base_offset: int
    size: int
    max_timestamp: int | None = None  # None: read it from the time index
    floor: int = 0  # position at which the walk starts


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLookup:
    """A lookup of the first record of [start_offset, end_offset) with a timestamp >= `timestamp`.

    Without a timestamp: the first record with the largest one.
    """

    timestamp: int | None
    start_offset: int
    end_offset: int
    interval_bytes: int
    segments: tuple[TimedSegment, ...]  # ascending

    def run(self, files: "Files") -> TimedOffset | None:
        """Run the lookup. May wait for the device; raises OSError, CorruptionError."""
        if self.timestamp is not None:
            return self._first_from(files, self.timestamp)
        largest = max((self._max_timestamp(files, s) for s in self.segments), default=NO_TIMESTAMP)
        found = None
        if largest != NO_TIMESTAMP:
            found = self._first_from(files, largest)
        # it belongs to a record that was compacted or deleted
        if found is None and largest != NO_TIMESTAMP:
            largest = self._largest_left(files)
            found = None if largest == NO_TIMESTAMP else self._first_from(files, largest)
        return found

    def _first_from(self, files: "Files", target: int) -> TimedOffset | None:
        """Return the first record with a timestamp >= `target`."""
        for segment in self.segments:
            floor = self._floor(files, segment, target)
            if floor is None:
                continue
            found = self._search(files, segment, floor, target)
            if found is not None:
                return found
        return None

    def _largest_left(self, files: "Files") -> int:
        """Return the largest timestamp of the remaining records, from as few headers as needed and
        the batches across the two ends."""
        largest = NO_TIMESTAMP
        most = {s.base_offset: self._max_timestamp(files, s) for s in self.segments}
        for segment in sorted(self.segments, key=lambda s: most[s.base_offset], reverse=True):
            if most[segment.base_offset] <= largest:
                break
            file = files.open_readonly(segment.path)
            try:
                for position, header in walk(file, 0, segment.size):
                    first, last = header.base_offset, header.last_offset
                    if last < self.start_offset or first >= self.end_offset:
                        continue
                    if first < self.start_offset or last >= self.end_offset:
                        batch = file.read(position, header.size)
                        largest = max(largest, self._largest_of(batch))
                    elif header.record_count:
                        largest = max(largest, header.max_timestamp)
            finally:
                file.close()
        return largest

    def _largest_of(self, batch: bytes) -> int:
        times = [
            record.timestamp_ms
            for record in decode_batch(batch)
            if self.start_offset <= record.offset < self.end_offset
        ]
        return max(times, default=NO_TIMESTAMP)

    def _max_timestamp(self, files: "Files", segment: TimedSegment) -> int:
        if segment.max_timestamp is not None:
            return segment.max_timestamp
        return self._index(files, segment).max_timestamp

    def _floor(self, files: "Files", segment: TimedSegment, target: int) -> int | None:
        """Return a position at or before the record, None if the segment has no such record."""
        if segment.max_timestamp is not None:
            return segment.floor if segment.max_timestamp >= target else None
        index = self._index(files, segment)
        if index.max_timestamp < target:
            return None
        return index.floor(index.floor_time(target))

    def _index(self, files: "Files", segment: TimedSegment) -> SegmentIndex:
        return load_index(
            files,
            segment.path,
            base_offset=segment.base_offset,
            size=segment.size,
            interval_bytes=self.interval_bytes,
        )

    def _search(
        self, files: "Files", segment: TimedSegment, floor: int, target: int
    ) -> TimedOffset | None:
        file = files.open_readonly(segment.path)
        try:
            return next(self._matches(file, segment, floor, target), None)
        finally:
            file.close()

    def _matches(
        self, file: "File", segment: TimedSegment, floor: int, target: int
    ) -> Iterator[TimedOffset]:
        for position, header in walk(file, floor, segment.size):
            if header.base_offset >= self.end_offset:
                return
            if header.max_timestamp < target or header.last_offset < self.start_offset:
                continue
            found = find_timestamp(
                file.read(position, header.size), 0, target, start_offset=self.start_offset
            )
            if found is not None and found[0] < self.end_offset:
                yield TimedOffset(*found, header.leader_epoch)
