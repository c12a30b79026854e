"""Read planning: the segment and position of an offset's batch, and the segments for a timestamp.

Plans reads, and caches the next position of sequential readers, which then need no search. Owned by
the loop thread; it only opens files. `Range` and `TimeLookup` read.
"""

from typing import Final

from ..errors import StorageError
from .file_pool import FilePool
from .read import Range, Wanted
from .segment import IndexLoader, Segment
from .segments import Segments
from .time_lookup import TimedSegment

KNOWN_PLACES_MAX: Final = 64
"""Sequential readers whose next position is cached; the oldest is evicted first."""


class Places:
    """Plans the reads of one log; `segments` are the log's own."""

    def __init__(self, pool: FilePool, segments: Segments) -> None:
        self._pool = pool
        self._segments = segments
        self._known: dict[tuple[int, int], int] = {}  # (segment, offset): position of the batch

    def find(
        self,
        start_offset: int,
        *,
        end_offset: int,
        log_end_offset: int,
        interval_bytes: int,
        max_bytes: int,
        min_one: bool,
    ) -> Range | None:
        """Return whole batches of [start_offset, end_offset) of one segment, as specified by
        `Log.read`; None without any. Raises CorruptionError, StorageError."""
        at = self._segments.place_of(start_offset)
        while start_offset < end_offset and at < len(self._segments):
            place = max(at, 0)
            is_active = place + 1 == len(self._segments)
            segment_end = log_end_offset if is_active else self._segments.bases[place + 1]
            segment = self._segments[place]
            wanted = Wanted(
                start_offset=start_offset,
                end_offset=end_offset,
                bytes_max=max_bytes,
                at_least_one=min_one,
                segment_end_offset=segment_end,
                segment_size=segment.size,
            )
            found = self._range(segment, wanted, interval_bytes)
            if found.size or not found.is_located:
                return found
            found.release()
            if found.next_offset <= start_offset or found.next_offset >= end_offset:
                return None
            start_offset = found.next_offset  # compaction left no batch after it in this segment
            at += 1
        return None

    def timed(self, segment: Segment, timestamp_ms: int | None) -> TimedSegment:
        """Return the lookup input of a segment for a timestamp; None: for its largest timestamp."""
        index = self._segments.index_of(segment)
        if index is None:
            return TimedSegment(
                path=segment.path, base_offset=segment.base_offset, size=segment.size
            )
        sought = index.max_timestamp if timestamp_ms is None else timestamp_ms
        return TimedSegment(
            path=segment.path,
            base_offset=segment.base_offset,
            size=segment.size,
            max_timestamp=index.max_timestamp,
            floor=index.floor(index.floor_time(sought)),
        )

    def forget(self) -> None:
        """Drop cached positions after a truncation; they may lie above the log end."""
        self._known.clear()

    def _range(self, segment: Segment, wanted: Wanted, interval_bytes: int) -> Range:
        try:
            file = segment.file or self._pool.file(segment.path)
        except OSError as error:
            raise StorageError(f"{segment.path}: {error.strerror}") from error
        index = self._segments.index_of(segment)
        if index is None:
            loader = IndexLoader(
                files=self._pool.files,
                file=file,
                base_offset=segment.base_offset,
                size=segment.size,
                interval_bytes=interval_bytes,
                names=segment.names,
            )
            return Range(file, wanted, None, loader)
        known = self._known.pop((segment.base_offset, wanted.start_offset), None)
        found = Range(file, wanted, wanted.floors(index, known))
        if found.is_located and found.size:
            self._know(segment, found.next_offset, found.position + found.size)
        return found

    def _know(self, segment: Segment, offset: int, position: int) -> None:
        """Cache the next position of a sequential reader, which saves a search per read."""
        known = self._known
        known[segment.base_offset, offset] = position
        if len(known) > KNOWN_PLACES_MAX:
            del known[next(iter(known))]
