"""The segments of one log, ascending by base offset; the last one is active: it is appended to.

Creates the first one with the log's folder, rolls, replaces. A list of base offsets beside the
segments makes finding one of 10,000 a bisection over integers; the total size is kept up to date.
Owned by the loop thread; new names become durable with the log's next flush.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .config import LogConfig
from .file_pool import FilePool
from .flush import Unflushed
from .index import RELATIVE_OFFSET_MAX, TIME_ENTRY_SIZE, IndexCache, SegmentIndex
from .layout import PARTITION_METADATA, join, parent_of
from .segment import Segment
from .small_files import fill

if TYPE_CHECKING:
    from ..runtime.ports import File


class Segments:
    """One log's segments; empty before the log has a folder."""

    def __init__(
        self,
        pool: FilePool,
        indexes: IndexCache,
        unflushed: Unflushed,
        *,
        folder: str,
        found: Sequence[Segment],
    ) -> None:
        self.folder = folder
        self.bases = [segment.base_offset for segment in found]
        self.size_bytes = sum(segment.size for segment in found)
        self._all = list(found)
        self._pool = pool
        self._indexes = indexes
        self._unflushed = unflushed

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    def __getitem__(self, place: int) -> Segment:
        return self._all[place]

    @property
    def active(self) -> Segment:
        """The active segment."""
        return self._all[-1]

    @property
    def newest(self) -> Segment | None:
        """The active segment, None without segments."""
        return self._all[-1] if self._all else None

    def find(self, offset: int) -> int:
        """Return the index of the segment that would hold an offset: the last one that starts at or
        below it, -1 if all start above it."""
        return bisect_right(self.bases, offset) - 1

    def index_of(self, segment: Segment) -> SegmentIndex | None:
        """Return a segment's index if it is in memory."""
        return segment.index or self._indexes.get(segment.path)

    def file_of(self, segment: Segment) -> "File":
        """Return a segment's file, opening it if needed; raises OSError."""
        return segment.file or self._pool.file(segment.path)

    def add_bytes(self, segment: Segment, size: int) -> None:
        """Add `size` bytes of completed batches to a segment."""
        segment.size += size
        self.size_bytes += size

    # --- create and roll -----------------------------------------------------------------------

    def create(
        self, base_offset: int, config: LogConfig, *, metadata: bytes | None, wall_ms: int
    ) -> None:
        """Make the folder, its partition.metadata and the first segment. Raises OSError; the next
        attempt then repeats all of it."""
        files = self._pool.files
        files.make_folder(self.folder)
        if metadata is None:
            self._add(base_offset, config, wall_ms)
        else:
            file = files.open(join(self.folder, PARTITION_METADATA), create=True)
            try:
                fill(file, metadata)
                self._add(base_offset, config, wall_ms)
            except OSError:
                file.close()
                raise
            self._unflushed.sync_and_close(file)
        self._unflushed.sync_folders(self.folder, parent_of(self.folder))

    def roll(
        self, base_offset: int, config: LogConfig, *, wall_ms: int, is_flushed: bool
    ) -> Segment:
        """Start a new segment at the log end. Raises OSError; nothing is changed then.

        `is_flushed`: the first segment's name is durable. Otherwise this call syncs the folder: a
        power cut that removed it, but not the new one, would leave a log that seems to start there.
        """
        rolled = self.active
        if not is_flushed:
            self._pool.files.sync_folder(self.folder)
        active = self._add(base_offset, config, wall_ms)
        self._unflushed.seal(rolled)
        assert rolled.index is not None, f"{rolled.path} was active"
        rolled.max_timestamp = rolled.index.max_timestamp
        self._indexes.put(rolled.path, rolled.index)
        rolled.index = None
        self._unflushed.sync_folders(self.folder)
        return active

    def _add(self, base_offset: int, config: LogConfig, wall_ms: int) -> Segment:
        index = SegmentIndex(base_offset, config.index_interval_bytes)
        segment = Segment(self.folder, base_offset, index=index, created_ms=wall_ms)
        file = self._pool.file(segment.path, create=True)
        if file.size():
            file.truncate(0)  # left by a crash between a roll and its first batch
        self._all.append(segment)
        self.bases.append(base_offset)
        return segment

    # --- replace -------------------------------------------------------------------------------

    def splice(self, place: int, count: int, new: Sequence[Segment] = ()) -> None:
        """Replace `count` segments from index `place` on by `new`; close the files of the old
        ones and drop their indexes."""
        old = self._all[place : place + count]
        for segment in old:
            self._forget(segment)
        self.size_bytes += sum(s.size for s in new) - sum(s.size for s in old)
        self._all[place : place + count] = new
        self.bases[place : place + count] = [segment.base_offset for segment in new]

    def reactivate(self, index: SegmentIndex, size: int) -> None:
        """Make the last segment active, cut to `size` bytes; its index grows again."""
        active = self.active
        self._unflushed.unseal(active)
        self._indexes.drop(active.path)
        active.index, active.has_index_files, active.indexed_bytes = index, False, 0
        self.add_bytes(active, size - active.size)

    def close(self) -> None:
        """Close the files of all segments and drop their unflushed changes."""
        for segment in self._all:
            self._forget(segment)

    def check_invariants(self, log_end_offset: int) -> None:
        """Raise AssertionError unless these hold, by number; cost O(segments).

        6. The base offsets ascend and are those of the segments.
        7. The size is the sum over the segments.
        8. Only the active segment has a growing index, with its last entry in the segment.
        """
        bases = [segment.base_offset for segment in self._all]
        # 6. The base offsets ascend and are those of the segments.
        assert self.bases == bases == sorted(set(bases)), (
            f"{self.folder}: invariant 6: bases {self.bases}, segments {bases}"
        )
        # 7. The size is the sum over the segments.
        size = sum(segment.size for segment in self._all)
        assert self.size_bytes == size, (
            f"{self.folder}: invariant 7: {self.size_bytes} bytes, the segments have {size}"
        )
        # 8. Only the active segment has a growing index, with its last entry in the segment.
        growing = [segment for segment in self._all if segment.index is not None]
        assert growing == self._all[-1:], (
            f"{self.folder}: invariant 8: growing indexes of {[one.path for one in growing]}"
        )
        for segment in growing:
            last = segment.index.last_entry if segment.index is not None else None
            is_inside = last is None or (last[0] < log_end_offset and last[1] < segment.size)
            assert is_inside, (
                f"{self.folder}: invariant 8: the index ends with (offset, position) {last}, the"
                f" segment with {log_end_offset}, {segment.size}"
            )

    def _forget(self, segment: Segment) -> None:
        self._unflushed.forget(segment)
        self._pool.forget(segment.path)
        self._indexes.drop(segment.path)


def is_roll_due(
    active: Segment,
    config: LogConfig,
    *,
    size: int,
    end_offset: int,
    timestamp: int,
    wall_ms: int,
) -> bool:
    """Return True if batches that grow the active segment to `size` bytes and `end_offset`, the
    newest with `timestamp`, belong in a new segment: by size, by index size, by the offset span of
    an index, or by time."""
    index = active.index
    assert index is not None, f"{active.path} is active"
    if size > config.segment_bytes or index.size + TIME_ENTRY_SIZE > config.index_bytes_max:
        return True
    if end_offset - active.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if active.first_timestamp >= 0 and timestamp >= 0:
        return timestamp - active.first_timestamp > config.segment_ms
    return wall_ms - active.created_ms > config.segment_ms
