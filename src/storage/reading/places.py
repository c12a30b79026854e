"""Where in a log's segments something lies: an offset's batch, the batches of a time.

Plans reads, and remembers where sequential readers will go on, so that they need no search. It
belongs to the loop thread and only opens files; the reading itself is `Range` and `TimeLookup`.
"""

from typing import Final

from ...errors import StorageError
from ..disk.pool import FilePool
from ..segments.segment import IndexLoader, Segment
from ..segments.segments import Segments
from .ranges import Range, Wanted
from .times import TimedSegment

KNOWN_PLACES_MAX: Final = 64
"""Sequential readers whose next place is remembered, oldest forgotten first."""


class Places:
    """The places of one log; `segments` are the log's own."""

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
        """Return whole batches of [start_offset, end_offset) of one segment, as `Log.read` says;
        None when there are none. Raises CorruptionError, StorageError."""
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
            start_offset = found.next_offset  # compaction left nothing behind it in this segment
            at += 1
        return None

    def timed(self, segment: Segment, timestamp_ms: int | None) -> TimedSegment:
        """Return what is known of a segment for a look-up by time; None: by the largest one."""
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
        """The log was truncated: remembered places may lie behind its end."""
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
        """Remember where a sequential reader will go on: it saves a search each time."""
        known = self._known
        known[segment.base_offset, offset] = position
        if len(known) > KNOWN_PLACES_MAX:
            del known[next(iter(known))]
