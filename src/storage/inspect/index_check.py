"""Verification of a segment's indexes against its batches, entry by entry, during the scan.

An offset entry is right if a batch starts at its position and ends with its offset. A time entry is
right if the batch that ends with its offset is the first one with its timestamp, and no earlier
batch has a larger one. No batch is kept: the entries are in memory (segment.index.bytes bounds the
files), and one entry of each kind is pending at a time.
"""

import sys
from array import array
from typing import TYPE_CHECKING, Final

from ..index import NO_TIMESTAMP, OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from ..small_files import read_file
from .findings import FindingKind

if TYPE_CHECKING:
    from ...runtime.ports import Files

INDEX_BYTES_MAX: Final = 256 * 1024 * 1024
"""A larger index is not read; the broker never writes one above segment.index.bytes."""

NOTHING: Final = 1 << 62
"""A position that no batch has, for no pending entry."""

REPORTED_MAX: Final = 3
"""Wrong entries reported per file."""


class IndexEntries:
    """One index file, decoded without validation: two columns of integers."""

    __slots__ = ("count", "error", "firsts", "path", "seconds")

    def __init__(self, path: str, content: bytes, entry_size: int) -> None:
        self.path = path
        self.error: str | None = None
        whole = len(content) - len(content) % entry_size
        if whole != len(content):
            self.error = f"{len(content)} bytes are not whole entries of {entry_size}"
        words = array("i", content[:whole])
        if sys.byteorder == "little":
            words.byteswap()
        if entry_size == OFFSET_ENTRY_SIZE:
            self.firsts, self.seconds = words[0::2], words[1::2]
        else:
            pairs = zip(words[0::3], words[1::3], strict=True)
            self.firsts = array("q", [high << 32 | low & 0xFFFFFFFF for high, low in pairs])
            self.seconds = words[2::3]
        self.count = len(self.firsts)


def load_entries(files: "Files", path: str, entry_size: int) -> IndexEntries | None:
    """Return an index file's entries, None if it does not exist. Raises OSError."""
    try:
        if files.size(path) > INDEX_BYTES_MAX:
            entries = IndexEntries(path, b"", entry_size)
            entries.error = f"it has more than {INDEX_BYTES_MAX} bytes"
            return entries
        return IndexEntries(path, read_file(files, path), entry_size)
    except FileNotFoundError:
        return None


class IndexComparison:
    """Compares both indexes of one segment with its batches. `wrong` is the result: (kind, path,
    position in the file, description)."""

    def __init__(
        self, base_offset: int, offsets: IndexEntries | None, times: IndexEntries | None
    ) -> None:
        self.wrong: list[tuple[FindingKind, str, int, str]] = []
        self._base = base_offset
        self._offsets = offsets
        self._times = times
        self._at = 0  # index of the pending entry of `offsets`
        self._time_at = 0
        self._awaited = offsets.seconds[0] if offsets and offsets.count else NOTHING
        self._max = NO_TIMESTAMP
        self._is_blind = False  # an invalid range may have held the largest timestamp
        self._told = {
            FindingKind.INDEX_WRONG: 0,
            FindingKind.TIME_INDEX_WRONG: 0,
            FindingKind.INDEX_FOREIGN: 0,
        }
        for entries, kind in (
            (offsets, FindingKind.INDEX_WRONG),
            (times, FindingKind.TIME_INDEX_WRONG),
        ):
            if entries is not None and entries.error is not None:
                self.wrong.append((kind, entries.path, 0, entries.error))

    def batch(self, position: int, last_offset: int, base_offset: int, max_timestamp: int) -> None:
        """Compare the next valid batch."""
        if self._awaited <= position:
            self._compare_offset(position, last_offset)
        if max_timestamp > self._max:
            if self._times is not None:
                self._compare_time(last_offset, base_offset, max_timestamp)
            self._max = max_timestamp

    def bad(self, position: int, end: int) -> None:
        """Skip a range without a valid batch; its entries cannot be verified."""
        self._is_blind = True
        while self._offsets is not None and position <= self._awaited < end:
            self._next_offset()

    def end(self, *, is_sealed: bool) -> None:
        """Finish at the end of the segment."""
        if self._offsets is not None:
            while self._at < self._offsets.count:
                self._tell_offset(f"points to {self._awaited}, which is not the start of a batch")
                self._next_offset()
        times = self._times
        if times is None or self._is_blind:
            return
        while self._time_at < times.count:
            self._tell_time(
                f"has timestamp {times.firsts[self._time_at]}, which no batch reaches first"
            )
            self._time_at += 1
        last = times.firsts[-1] if times.count else NO_TIMESTAMP
        if is_sealed and last != self._max and not self._told[FindingKind.TIME_INDEX_WRONG]:
            what = f"its last timestamp is {last}, the largest of the segment is {self._max}"
            self._add(FindingKind.TIME_INDEX_WRONG, times.path, times.count * TIME_ENTRY_SIZE, what)

    def _compare_offset(self, position: int, last_offset: int) -> None:
        offsets = self._offsets
        assert offsets is not None, "an entry is pending"
        while self._awaited < position:
            self._tell_offset(f"points to {self._awaited}, which is not the start of a batch")
            self._next_offset()
        if self._awaited != position:
            return
        found = self._base + offsets.firsts[self._at]
        if found != last_offset:
            # Another server's entry may have the last batch of an append of several.
            is_foreign = found > last_offset and self._is_below_next(found)
            what = f"has offset {found} for {position}, where a batch ends with {last_offset}"
            self._tell_offset(
                what, kind=FindingKind.INDEX_FOREIGN if is_foreign else FindingKind.INDEX_WRONG
            )
        self._next_offset()

    def _is_below_next(self, offset: int) -> bool:
        offsets = self._offsets
        assert offsets is not None, "an entry is pending"
        following = self._at + 1
        if following >= offsets.count:
            return False
        return offset < self._base + offsets.firsts[following]

    def _next_offset(self) -> None:
        offsets = self._offsets
        assert offsets is not None, "an entry is pending"
        self._at += 1
        self._awaited = offsets.seconds[self._at] if self._at < offsets.count else NOTHING

    def _compare_time(self, last_offset: int, base_offset: int, timestamp: int) -> None:
        times = self._times
        assert times is not None, "the time index exists"
        while self._time_at < times.count and times.firsts[self._time_at] < timestamp:
            if not self._is_blind:
                found = times.firsts[self._time_at]
                self._tell_time(f"has timestamp {found}, which no batch reaches first")
            self._time_at += 1
        if self._time_at == times.count or times.firsts[self._time_at] != timestamp:
            return
        found = self._base + times.seconds[self._time_at]
        if found != last_offset and not self._is_blind:
            is_foreign = base_offset <= found < last_offset
            self._tell_time(
                f"has offset {found} for {timestamp}, which the batch that ends with {last_offset}"
                " reaches first",
                kind=FindingKind.INDEX_FOREIGN if is_foreign else FindingKind.TIME_INDEX_WRONG,
            )
        self._time_at += 1

    def _tell_offset(self, what: str, *, kind: FindingKind = FindingKind.INDEX_WRONG) -> None:
        assert self._offsets is not None, "there is an index"
        self._add(
            kind, self._offsets.path, self._at * OFFSET_ENTRY_SIZE, f"entry {self._at} {what}"
        )

    def _tell_time(self, what: str, *, kind: FindingKind = FindingKind.TIME_INDEX_WRONG) -> None:
        assert self._times is not None, "there is a time index"
        at = self._time_at
        self._add(kind, self._times.path, at * TIME_ENTRY_SIZE, f"entry {at} {what}")

    def _add(self, kind: FindingKind, path: str, position: int, what: str) -> None:
        self._told[kind] += 1
        if self._told[kind] <= REPORTED_MAX:
            self.wrong.append((kind, path, position, what))
