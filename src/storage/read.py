"""Reads of a log: planning, and ranges of whole batches in a segment, read without a copy.

`ReadPlanner` finds the segment of an offset and caches the next position of sequential readers,
which then need no search. It is owned by the loop thread, and only opens files.

The sparse index gives a start position; reading a few headers from there ("probing") finds the
exact batch. On the loop thread, probes read from the page cache only. If that would wait for the
device, the range stays unlocated, and the read lane locates and reads it in one job. A range holds
a lease on its file, so eviction and deletion do not close it. Cost: four bisections and at most
three probes. For a sequential reader with a cached position, one probe of a few headers, and none
if the whole rest of the segment is read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ..errors import CorruptionError, DiskFailed
from ..native import whole_batches
from ..records.batch import EXTENT, HEADER_SIZE, LENGTH_END
from .file_pool import FilePool
from .index import SegmentIndex
from .segment import IndexLoader, Segment
from .segments import Segments
from .time_lookup import TimedSegment

if TYPE_CHECKING:
    from ..runtime.ports import File, Lease


PROBE_SIZE: Final = 4096
CUT_PROBE_SIZE: Final = 256
"""Probe size for a cut: the index usually has a batch right before it, so this one's header and the
next one's suffice."""

_TRUNCATED: Final = "the log was truncated during the read"

Probe: TypeAlias = Callable[[int, int], "bytes | None"]
"""Reads (position, size) of a file; returns None if that would wait for the device."""


class WouldWait(Exception):
    """The page cache does not hold the bytes of a probe."""


class RangeTruncated(Exception):
    """The file ends before the segment's known size."""


@dataclass(slots=True)  # these three are not frozen: each read makes them, and freezing costs 2 us
class BatchPosition:
    """The position of a batch, and its base offset."""

    position: int
    base_offset: int


@dataclass(slots=True, kw_only=True)
class ReadRequest:
    """A read request for one segment, in plain numbers so that a lane job may take it.

    Floors are positions of batches at or before the thing in their name.
    """

    start_offset: int
    end_offset: int  # exclusive; no batch reaches beyond it
    bytes_max: int
    at_least_one: bool  # return the first batch even if it exceeds bytes_max
    segment_end_offset: int  # end offset of the segment's last completed batch
    segment_size: int  # bytes of completed batches

    def floors(self, index: SegmentIndex, start: int | None = None) -> "Floors":
        """Return the floors of the index; `start` is a known position: that of the first batch that
        ends after `start_offset`, or the segment's end."""
        is_known = start is not None
        if start is None:
            start = index.floor(self.start_offset)
        reaches_end = self.end_offset >= self.segment_end_offset
        end = self.segment_size if reaches_end else index.floor(self.end_offset)
        cut = end
        if end - start > self.bytes_max:
            cut = index.floor_position(start + self.bytes_max)
        before = index.floor_position((cut if start < cut < end else end) - 1)
        return Floors(start, end, cut, before, is_known)


@dataclass(slots=True)
class Floors:
    """Positions from the sparse index for a read request."""

    start: int
    end: int
    cut: int
    before: int  # of a batch before both `end` and `cut`, unless they are the start
    is_start_known: bool  # the range begins at `start`


class SegmentRange:
    """Whole batches of one segment, with a lease on its file.

    `position`, `size` and `next_offset` are exact once `is_located`; before that `size` is an upper
    bound and `next_offset` is -1. Call `release` once; a second call has no effect.
    """

    __slots__ = (
        "_floors",
        "_lease",
        "_load_index",
        "_wanted",
        "file",
        "is_located",
        "loaded_index",
        "next_offset",
        "position",
        "size",
        "start_offset",
        "tail",
    )

    def __init__(
        self,
        file: "File",
        wanted: ReadRequest,
        floors: Floors | None,
        load_index: IndexLoader | None = None,
    ) -> None:
        self.file = file
        self.start_offset = wanted.start_offset
        self.next_offset = -1
        self.position = 0
        self.tail = 0  # position of one of the last batches
        self.size = min(wanted.bytes_max, wanted.segment_size)
        self.is_located = False
        self.loaded_index: SegmentIndex | None = None  # read by the lane; the log caches it
        self._wanted = wanted
        self._floors = floors
        self._load_index = load_index
        self._lease: Lease | None = file.lease()
        if floors is not None:
            self._locate_cached()

    def read_cached(self) -> bytes | None:
        """Return the bytes, or None if reading would wait for the device."""
        if not self.is_located:
            return None
        if self.size == 0:
            return b""
        content = self.file.read_cached(self.position, self.size)
        return None if content is None else self._whole(content)

    def read(self) -> bytes:
        """Return the bytes; locate the range first if needed. May wait: for the read lane."""
        if not self.is_located:
            self.locate()
        return self._whole(self.file.read(self.position, self.size)) if self.size else b""

    def locate(self) -> None:
        """Make position, size and next_offset exact. May wait: for the read lane."""
        if self._floors is None:
            assert self._load_index is not None, "a range without floors can load its index"
            self.loaded_index = self._load_index.load()
            self._floors = self._wanted.floors(self.loaded_index)
        self._locate(self._floors, self.file.read)

    @property
    def cacheable_index(self) -> SegmentIndex | None:
        """The index read by the lane, if the files still have their names."""
        if self._load_index is None or self._load_index.names.is_replaced:
            return None
        return self.loaded_index

    def end_of(self, content: bytes) -> int:
        """Return the offset after the last batch of `content`; only the last batches are parsed.
        `next_offset` is higher if compaction left a gap."""
        end, at, limit = self.next_offset, self.tail - self.position, len(content) - HEADER_SIZE
        while at <= limit:
            base_offset, length, last_delta = EXTENT.unpack_from(content, at)
            at += length + LENGTH_END
            if length < HEADER_SIZE - LENGTH_END or at > len(content):
                return self.next_offset  # invalid bytes; the reader reports them
            end = base_offset + last_delta + 1
        return end

    def release(self) -> None:
        """Release the lease on the file."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _locate_cached(self) -> None:
        assert self._floors is not None, "floors are known"
        try:
            self._locate(self._floors, self.file.read_cached)
        except WouldWait:
            return
        except (CorruptionError, DiskFailed):
            self.release()
            raise
        except OSError as error:
            self.release()
            raise DiskFailed(f"{self.file.path}: {error.strerror}") from error

    def _locate(self, floors: Floors, probe: Probe) -> None:
        try:
            self.position, self.size, self.next_offset = locate(probe, self._wanted, floors)
        except RangeTruncated as missing:
            raise DiskFailed(f"{self.file.path}: {missing}; {_TRUNCATED}") from None
        start = tail = self.position
        end = start + self.size
        for place in (floors.end, floors.cut, floors.before):  # most often descending
            if tail < place < end:
                tail = place
        self.tail = tail
        self.is_located = True

    def _whole(self, content: bytes) -> bytes:
        if len(content) != self.size:
            raise DiskFailed(
                f"{self.file.path}: {len(content)} of {self.size} bytes at {self.position} are "
                f"left; {_TRUNCATED}"
            )
        return content


def locate(probe: Probe, wanted: ReadRequest, floors: Floors) -> tuple[int, int, int]:
    """Return (position, size, next offset) of a wanted range.

    Size 0 when no batch of the segment lies in [start_offset, end_offset), or the first one is
    larger than bytes_max and not asked for. Raises WouldWait, CorruptionError.
    """
    size = wanted.segment_size
    start = floors.start
    if not floors.is_start_known:
        head = find_batch(probe, start, size, wanted.start_offset)
        if head is not None and head.position == start > 0 and _is_beyond(head, wanted):
            head = find_batch(probe, 0, size, wanted.start_offset)  # the index led too far
        start = size if head is None else head.position
    end, next_offset = size, wanted.segment_end_offset
    # A cut that is known to come before the end needs no search for the end.
    if wanted.end_offset < next_offset and floors.end - start <= wanted.bytes_max:
        tail = find_batch(probe, max(floors.end, start), size, wanted.end_offset)
        if tail is not None:
            end, next_offset = tail.position, tail.base_offset
    if end - start <= wanted.bytes_max:
        return start, end - start, next_offset
    return _cut(probe, wanted, start, max(floors.cut, start), end, next_offset)


def _is_beyond(head: BatchPosition, wanted: ReadRequest) -> bool:
    """Return True if the indexed batch starts above the wanted offset. Its entry is then invalid,
    since a lookup returns entries at or below the offset."""
    return head.base_offset > wanted.start_offset


def find_batch(probe: Probe, position: int, end: int, offset: int) -> BatchPosition | None:
    """Return the first batch in [position, end) with a last offset >= `offset`.

    `position` must be a batch's. Raises WouldWait, CorruptionError.
    """
    while position < end:
        window = _probe(probe, position, end)
        at, limit = 0, len(window) - HEADER_SIZE
        while at <= limit:
            base_offset, length, last_delta = EXTENT.unpack_from(window, at)
            if base_offset + last_delta >= offset:
                return BatchPosition(position + at, base_offset)
            at += _size(length, position + at)
        position += at
    return None


def _cut(
    probe: Probe, wanted: ReadRequest, start: int, position: int, end: int, next_offset: int
) -> tuple[int, int, int]:
    """Take whole batches from `start` while they fit. Those before `position` are known to; few are
    left, since the index has no entry after it."""
    size, most = CUT_PROBE_SIZE, start + wanted.bytes_max
    while position < end:
        window = _probe(probe, position, end, size)
        size = PROBE_SIZE
        at, limit = 0, len(window) - HEADER_SIZE
        while at <= limit:
            base_offset, length, _ = EXTENT.unpack_from(window, at)
            here = position + at
            behind = here + _size(length, here)
            if behind > most and not (here == start and wanted.at_least_one):
                return start, here - start, base_offset
            at = behind - position
        position += at
    return start, end - start, next_offset


def _probe(probe: Probe, position: int, end: int, size: int = PROBE_SIZE) -> bytes:
    size = min(size, end - position)
    window = probe(position, size)
    if window is None:
        raise WouldWait
    if len(window) < size:
        raise RangeTruncated(f"{len(window)} of {size} bytes at {position} are left")
    if len(window) < HEADER_SIZE:
        raise CorruptionError(f"{len(window)} bytes are no batch header", position=position)
    return window


def _size(batch_length: int, position: int) -> int:
    size = batch_length + LENGTH_END
    if size < HEADER_SIZE:
        raise CorruptionError(f"batch length {batch_length} is impossible", position=position)
    return size


SMALL_BYTES: Final = 64 << 10
"""A read up to this size is cheaper as a copy than as a range of a file."""

CACHED_POSITIONS_MAX: Final = 64
"""Sequential readers whose next position is cached; the oldest is evicted first."""


class ReadPlanner:
    """Plans the reads of one log; `segments` are the log's own."""

    def __init__(self, pool: FilePool, segments: Segments) -> None:
        self._pool = pool
        self._segments = segments
        self.version = 0  # changes of file contents behind names, counted at the start and end
        self.is_changing = False
        self._positions: dict[tuple[int, int], int] = {}  # (segment, offset): position of the batch
        self._cut_from: int | None = None  # nothing is readable from there until the change ends

    def plan(
        self,
        start_offset: int,
        *,
        end_offset: int,
        log_end_offset: int,
        interval_bytes: int,
        max_bytes: int,
        min_one: bool,
    ) -> SegmentRange | None:
        """Return whole batches of [start_offset, end_offset) of one segment, as specified by
        `Log.read`; None without any. Raises CorruptionError, DiskFailed."""
        if self._cut_from is not None:
            end_offset = min(end_offset, self._cut_from)
        at = self._segments.find(start_offset)
        while start_offset < end_offset and at < len(self._segments):
            place = max(at, 0)
            is_active = place + 1 == len(self._segments)
            segment_end = log_end_offset if is_active else self._segments.bases[place + 1]
            segment = self._segments[place]
            wanted = ReadRequest(
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

    def read_small(
        self, start_offset: int, *, end_offset: int, max_bytes: int
    ) -> tuple[bytes, int] | None:
        """Return the whole batches of [start_offset, end_offset), and the offset behind them. Only
        for the next read of a sequential reader, of at most `SMALL_BYTES` in the page cache; None
        in every other case. The caller has checked that the log has the offsets. Raises
        DiskFailed."""
        place = self._segments.find(start_offset)
        if place < 0 or self.is_changing:
            return None
        segment = self._segments[place]
        position = self._positions.get((segment.base_offset, start_offset))
        if position is None:
            return None
        size = segment.size - position
        if size > max_bytes:
            size = max_bytes
        if size > SMALL_BYTES:
            return None
        try:
            content = self._segments.file_of(segment).read_cached(position, size)
        except OSError as error:
            raise DiskFailed(f"{segment.path}: {error.strerror}") from error
        if content is None:
            return None
        taken, next_offset = whole_batches(content, end_offset)
        if not taken:
            return None
        self._cache_next(segment, start_offset, next_offset, position + taken)
        return (content if taken == size else content[:taken]), next_offset

    def lookup_input(self, segment: Segment, timestamp_ms: int | None) -> TimedSegment:
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

    def begin_change(self, cut_from: int | None = None) -> None:
        """Begin a change of the file contents behind the segments' names. Reads end at `cut_from`
        until `end_change`. It may be called again."""
        if not self.is_changing:
            self.version += 1
        self.is_changing, self._cut_from = True, cut_from

    def end_change(self) -> None:
        """End the change. Drop cached positions: after a truncation they may lie above the log
        end."""
        self.version += 1
        self.is_changing, self._cut_from = False, None
        self._positions.clear()

    def _range(self, segment: Segment, wanted: ReadRequest, interval_bytes: int) -> SegmentRange:
        try:
            file = self._segments.file_of(segment)
        except OSError as error:
            raise DiskFailed(f"{segment.path}: {error.strerror}") from error
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
            return SegmentRange(file, wanted, None, loader)
        known = self._positions.get((segment.base_offset, wanted.start_offset))
        found = SegmentRange(file, wanted, wanted.floors(index, known))
        if found.is_located and found.size:
            end = found.position + found.size
            self._cache_next(segment, wanted.start_offset, found.next_offset, end)
        return found

    def _cache_next(self, segment: Segment, offset: int, next_offset: int, position: int) -> None:
        """Cache the next position of a sequential reader that has read from `offset`, which saves a
        search per read. The last one is kept only at the end, where several readers need it: the
        followers and the consumers."""
        known = self._positions
        if position < segment.size:
            known.pop((segment.base_offset, offset), None)
        known[segment.base_offset, next_offset] = position
        if len(known) > CACHED_POSITIONS_MAX:
            del known[next(iter(known))]
