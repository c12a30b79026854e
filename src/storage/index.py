"""The sparse indexes of one segment: offset -> position, and timestamp -> offset.

In memory each is a pair of arrays (8 and 12 bytes an entry, one entry per `index.interval.bytes` of
log). The active segment's are built as batches arrive; the others are read from their files on
first use. The files hold big-endian entries, without checksum or header, as Kafka's tools read
them:

    .index      relative offset 4, position 4     the batch at `position` ends with that offset
    .timeindex  timestamp 8, relative offset 4    largest timestamp so far, last offset of its batch

Both columns of both files ascend strictly (positions and time-index offsets too). That is the only
integrity check: an index that does not ascend is rebuilt from the log. No mmap: a truncated mapping
raises SIGBUS, and the kernel limits the number of maps.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from operator import lt
from typing import TYPE_CHECKING, Final

from ..errors import CorruptionError

if TYPE_CHECKING:
    from ..native import RunTail

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
NO_TIMESTAMP: Final = -1
_LITTLE: Final = sys.byteorder == "little"
_HIGH, _LOW = (1, 0) if _LITTLE else (0, 1)  # indexes of the halves of a number in memory


class SegmentIndex:
    """Both indexes of a segment, and its largest timestamp so far.

    `note` is called once per batch, in order. Positions are byte offsets in the .log file.
    """

    __slots__ = (
        "_interval_bytes",
        "_offsets",
        "_positions",
        "_time_offsets",
        "_times",
        "base_offset",
        "bytes_since_entry",
        "max_timestamp",
        "max_timestamp_offset",
    )

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.max_timestamp = NO_TIMESTAMP  # ms since 1970, of all batches noted; -1 none
        self.max_timestamp_offset = NO_TIMESTAMP  # last offset of the batch that holds it
        self._interval_bytes = interval_bytes
        self.bytes_since_entry = 0
        # last offset of the batch at the position, relative to base_offset
        self._offsets = array("I")
        self._positions = array("I")
        self._times = array("q")
        self._time_offsets = array("I")

    # --- building ------------------------------------------------------------------------------

    def note(self, *, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Add the batch of `size` bytes at `position`."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > self._interval_bytes:
            self._offsets.append(last_offset - self.base_offset)
            self._positions.append(position)
            self._note_time()
            self.bytes_since_entry = 0
        self.bytes_since_entry += size

    def extend(self, tail: "RunTail") -> None:
        """Add the batches of a run. Its tail began with the state of this index."""
        offsets, positions, times, time_offsets = tail.index_entries()
        self._offsets.frombytes(offsets)
        self._positions.frombytes(positions)
        self._times.frombytes(times)
        self._time_offsets.frombytes(time_offsets)
        self.max_timestamp = tail.max_timestamp
        self.max_timestamp_offset = tail.max_timestamp_offset
        self.bytes_since_entry = tail.bytes_since_entry

    def seal(self) -> None:
        """Add the time entry of the segment's largest timestamp; call it once, at the end."""
        self._note_time()

    def _note_time(self) -> None:
        times = self._times
        if self.max_timestamp < 0 or (times and times[-1] >= self.max_timestamp):
            return
        times.append(self.max_timestamp)
        self._time_offsets.append(self.max_timestamp_offset - self.base_offset)

    def copy(self) -> "SegmentIndex":
        """Return a copy of the entries, for another thread."""
        copy = SegmentIndex(self.base_offset, self._interval_bytes)
        copy._offsets, copy._positions = self._offsets[:], self._positions[:]
        copy._times, copy._time_offsets = self._times[:], self._time_offsets[:]
        return copy

    def truncation_floor(self, offset: int) -> int:
        """Return the last indexed position of a batch that lies below `offset`; 0 without one."""
        at = bisect_left(self._offsets, max(0, offset - self.base_offset))
        return self._positions[at - 1] if at else 0

    def truncate(self, floor: int) -> None:
        """Drop the entries above `floor` (0: all entries).

        Between two entries only the larger timestamp is kept, so the batches from `floor` must be
        added again.
        """
        kept = bisect_right(self._positions, floor) if floor else 0
        del self._offsets[kept:], self._positions[kept:]
        last = self._offsets[-1] if kept else -1
        kept_times = bisect_right(self._time_offsets, last)
        del self._times[kept_times:], self._time_offsets[kept_times:]
        self.bytes_since_entry = 0
        self.max_timestamp = self.max_timestamp_offset = NO_TIMESTAMP
        if kept_times:
            self.max_timestamp = self._times[-1]
            self.max_timestamp_offset = self.base_offset + self._time_offsets[-1]

    # --- lookups -------------------------------------------------------------------------------

    def floor(self, offset: int) -> int:
        """Return the position of a batch at or before the batch with `offset`; 0 without an
        entry."""
        at = bisect_right(self._offsets, max(0, offset - self.base_offset))
        return self._positions[at - 1] if at and offset >= self.base_offset else 0

    def floor_position(self, position: int) -> int:
        """Return the largest indexed batch position <= `position`; 0 without an entry."""
        at = bisect_right(self._positions, position)
        return self._positions[at - 1] if at else 0

    def floor_time(self, timestamp: int) -> int:
        """Return an offset at or before the first record with this or a later timestamp."""
        at = bisect_left(self._times, timestamp)
        return self.base_offset + self._time_offsets[at - 1] if at else self.base_offset

    @property
    def size(self) -> int:
        """Size in bytes of the larger of the two files."""
        return max(len(self._offsets) * OFFSET_ENTRY_SIZE, len(self._times) * TIME_ENTRY_SIZE)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the entries in memory."""
        return len(self._offsets) * OFFSET_ENTRY_SIZE + len(self._times) * TIME_ENTRY_SIZE

    @property
    def last_time(self) -> int:
        """The timestamp of the last time entry, -1 without one."""
        return self._times[-1] if self._times else NO_TIMESTAMP

    @property
    def last_entry(self) -> tuple[int, int] | None:
        """(offset, position) of the last entry, None without one."""
        if not self._offsets:
            return None
        return self.base_offset + self._offsets[-1], self._positions[-1]

    def entries(self) -> list[tuple[int, int]]:
        """Return (offset, position) of each entry."""
        base = self.base_offset
        return [(base + o, p) for o, p in zip(self._offsets, self._positions, strict=True)]

    def time_entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of each entry."""
        base = self.base_offset
        return [(t, base + o) for t, o in zip(self._times, self._time_offsets, strict=True)]

    # --- files ---------------------------------------------------------------------------------

    def encode_offsets(self) -> bytes:
        """Encode the .index file."""
        columns = array("I", bytes(OFFSET_ENTRY_SIZE * len(self._offsets)))
        columns[0::2] = self._offsets
        columns[1::2] = self._positions
        return _big_endian(columns)

    def encode_times(self) -> bytes:
        """Encode the .timeindex file."""
        columns = array("I", bytes(TIME_ENTRY_SIZE * len(self._times)))
        halves = array("I", self._times.tobytes())
        columns[0::3], columns[1::3] = halves[_HIGH::2], halves[_LOW::2]
        columns[2::3] = self._time_offsets
        return _big_endian(columns)


def decode_index(
    offsets: bytes, times: bytes, *, base_offset: int, log_size: int, interval_bytes: int
) -> SegmentIndex:
    """Decode both files of a segment with `log_size` bytes of .log.

    Raises CorruptionError if an entry does not ascend or points outside the log: the caller then
    rebuilds the index from the log. The result may be appended to.
    """
    index = SegmentIndex(base_offset, interval_bytes)
    columns = _native(offsets, OFFSET_ENTRY_SIZE)
    index._offsets, index._positions = columns[0::2], columns[1::2]
    columns = _native(times, TIME_ENTRY_SIZE)
    halves = array("I", bytes(8 * (len(columns) // 3)))
    halves[_HIGH::2], halves[_LOW::2] = columns[0::3], columns[1::3]
    index._times = array("q", halves.tobytes())
    index._time_offsets = columns[2::3]
    _check_ascending("offset", index._offsets, RELATIVE_OFFSET_MAX)
    _check_ascending("position", index._positions, log_size - 1)
    _check_ascending("timestamp", index._times, 2**63 - 1)
    _check_ascending("time offset", index._time_offsets, RELATIVE_OFFSET_MAX)
    if index._positions:
        index.bytes_since_entry = log_size - index._positions[-1]
    else:
        index.bytes_since_entry = log_size
    if index._times:
        index.max_timestamp = index._times[-1]
        index.max_timestamp_offset = base_offset + index._time_offsets[-1]
    return index


class IndexCache:
    """Indexes of inactive segments by .log path, with LRU eviction."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()

    def get(self, path: str) -> SegmentIndex | None:
        """Return an index and make it the most recently used."""
        index = self._indexes.get(path)
        if index is not None:
            self._indexes.move_to_end(path)
        return index

    def put(self, path: str, index: SegmentIndex) -> None:
        """Add an index; the newest one stays even if it alone exceeds the limit."""
        self.drop(path)
        self._indexes[path] = index
        self._bytes += index.memory_bytes
        while self._bytes > self._bytes_max and len(self._indexes) > 1:
            _, oldest = self._indexes.popitem(last=False)
            self._bytes -= oldest.memory_bytes

    def drop(self, path: str) -> None:
        """Remove an index, if cached."""
        index = self._indexes.pop(path, None)
        if index is not None:
            self._bytes -= index.memory_bytes


def _check_ascending(column: str, values: "array[int]", most: int) -> None:
    if values and (values[0] < 0 or values[-1] > most):
        raise CorruptionError(f"index {column} {values[-1]} is outside [0, {most}]")
    if not all(map(lt, values, values[1:])):
        raise CorruptionError(f"index {column}s do not ascend")


def _native(content: bytes, entry_size: int) -> "array[int]":
    if len(content) % entry_size:
        raise CorruptionError(f"{len(content)} bytes are not whole entries of {entry_size}")
    columns = array("I", content)
    if _LITTLE:
        columns.byteswap()
    return columns


def _big_endian(columns: "array[int]") -> bytes:
    if _LITTLE:
        columns.byteswap()
    return columns.tobytes()
