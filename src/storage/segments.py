"""The segments of one log, ascending by base offset; the last one is active: it is appended to.

Creates the first one with the log's folder, rolls, truncates. A list of base offsets beside the
segments makes finding one of 10,000 a bisection over integers; the total size is kept up to date.
Owned by the loop thread; new names become durable with the log's next flush.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .config import LogConfig
from .file_pool import FilePool
from .flush import Unflushed
from .index import RELATIVE_OFFSET_MAX, TIME_ENTRY_SIZE, IndexCache, SegmentIndex
from .layout import PARTITION_METADATA, join, parent_of
from .segment import FileNames, Segment, SegmentAge, SegmentOutline, index_step
from .segment_files import CleanedGroup, Removal, Swap
from .small_files import fill
from .truncation import Truncation, TruncationPoint


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

    def find(self, offset: int) -> int:
        """Return the index of the segment that would hold an offset: the last one that starts at or
        below it, -1 if all start above it."""
        return bisect_right(self.bases, offset) - 1

    def index_of(self, segment: Segment) -> SegmentIndex | None:
        """Return a segment's index if it is in memory."""
        return segment.index or self._indexes.get(segment.path)

    def add_bytes(self, segment: Segment, size: int) -> None:
        """Add `size` bytes of completed batches to a segment."""
        segment.size += size
        self.size_bytes += size

    def keep_index(self, config: LogConfig) -> bool:
        """Store the active segment's index with the next flush if the segment has grown by an index
        step: recovery then need not read below it. Return True if it is stored."""
        if not self._all:
            return False
        active = self.active
        if active.size - active.indexed_bytes < index_step(config.segment_bytes):
            return False
        self._unflushed.keep_index(active)
        return True

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

    # --- truncate------------------------------------------------------------------------------

    def plan_truncation(self, offset: int, log_start_offset: int) -> Truncation:
        """Plan the removal of every batch that holds or follows `offset`.

        At the log start, the segment that ends there is cut, if it still exists: its last batch has
        the epoch of the log.
        """
        at = max(self.find(offset), 0)
        if at > 0 and self.bases[at] == offset == log_start_offset:
            at -= 1
        segment = self._all[at]
        file = segment.file or self._pool.file(segment.path)
        index = self.index_of(segment)
        return Truncation(
            offset=offset,
            folder=self.folder,
            base_offset=segment.base_offset,
            file=file,
            lease=file.lease(),
            size=segment.size,
            index=index,
            floor=index.truncation_floor(offset) if index is not None else 0,
            removed=tuple(s.path for s in reversed(self._all[at + 1 :])),
            below=tuple(s.path for s in reversed(self._all[:at])),
            log_start_offset=log_start_offset,
        )

    def truncate(self, truncation: Truncation, cut: TruncationPoint, config: LogConfig) -> None:
        """Apply a durably performed truncation."""
        truncation.lease.release()
        kept = 0 if cut.is_empty else len(self._all) - len(truncation.removed)
        for segment in self._all[kept:]:
            self.size_bytes -= segment.size
            self.forget(segment)
        del self._all[kept:], self.bases[kept:]
        if cut.is_empty:
            return
        active = self.active
        self._unflushed.unseal(active)  # its index grows again
        index = truncation.index
        if index is None or truncation.floor == 0:
            index = SegmentIndex(active.base_offset, config.index_interval_bytes)
        else:
            index.truncate(truncation.floor)
        for batch in cut.tail:
            index.note(
                position=batch.position,
                size=batch.size,
                last_offset=batch.last_offset,
                max_timestamp=batch.max_timestamp,
            )
        self._indexes.drop(active.path)
        active.index, active.has_index_files, active.indexed_bytes = index, False, 0
        self.add_bytes(active, cut.size - active.size)

    def clear(self) -> None:
        """Remove all segments; their files are gone, durably."""
        for segment in self._all:
            segment.names.is_replaced = True
            self.forget(segment)
        self._all.clear()
        self.bases.clear()
        self.size_bytes = 0

    # --- remove and replace --------------------------------------------------------------------

    def plan_removal(self, count: int) -> Removal:
        """Plan the removal of the oldest segments; at least the active one stays."""
        assert 0 < count < len(self._all), f"{count} of {len(self._all)} segments are removed"
        return Removal(
            folder=self.folder,
            log_paths=tuple(segment.path for segment in self._all[:count]),
            log_start_offset=self.bases[count],
        )

    def apply_removal(self, removal: Removal) -> None:
        """Apply a durably performed removal."""
        count = len(removal.log_paths)
        for segment in self._all[:count]:
            self.size_bytes -= segment.size
            segment.names.is_replaced = True
            self.forget(segment)
        del self._all[:count], self.bases[:count]

    def plan_swap(self, group: CleanedGroup) -> Swap | None:
        """Plan the replacement of segments by the output of a cleaning; None if they changed since
        they were read. Raises OSError."""
        place = max(self.find(group.base_offset), 0)
        end, sources = place + len(group.sources), group.sources
        there = self._all[place:end]
        is_same = [(s.base_offset, s.size) for s in there] == [
            (s.base_offset, s.size) for s in sources
        ]
        if not is_same or end >= len(self._all):
            return None
        try:
            for source in sources:
                self._pool.pin(source.path)
        except OSError:
            for source in sources:
                self._pool.forget(source.path)
            raise
        for segment in there:
            segment.names.is_replaced = True
        return Swap(
            folder=self.folder,
            base_offset=group.base_offset,
            end_offset=self.bases[end],
            sources=tuple(source.base_offset for source in sources),
            size=group.size,
            index=group.index,
            aborted=group.aborted,
        )

    def apply_swap(self, swap: Swap, *, is_done: bool) -> None:
        """Apply a performed swap, or with `is_done` False a rejected one that changed nothing."""
        place = self.find(swap.base_offset)
        old = self._all[place : place + len(swap.sources)]
        new = [replace(segment, names=FileNames()) for segment in old]
        if is_done:
            new = [
                Segment(
                    self.folder,
                    swap.base_offset,
                    size=swap.size,
                    first_timestamp=old[0].first_timestamp,
                    max_timestamp=swap.index.max_timestamp,
                    created_ms=max(segment.created_ms for segment in old),
                )
            ]
        for segment in old:
            self.forget(segment)
        self.size_bytes += sum(s.size for s in new) - sum(s.size for s in old)
        self._all[place : place + len(old)] = new
        self.bases[place : place + len(old)] = [segment.base_offset for segment in new]
        if is_done:
            self._indexes.put(new[0].path, swap.index)

    def set_timestamps(self, base_offset: int, first_ms: int, largest_ms: int) -> None:
        """Set the timestamps of an inactive segment, if it still exists."""
        place = self.find(base_offset)
        if place >= 0 and self.bases[place] == base_offset:
            self._all[place].first_timestamp = first_ms
            self._all[place].max_timestamp = largest_ms

    def age_of(self, place: int, log_end_offset: int) -> SegmentAge:
        """Return the properties of a segment that retention needs."""
        segment = self._all[place]
        index = segment.index
        return SegmentAge(
            segment.base_offset,
            log_end_offset if place == len(self._all) - 1 else self.bases[place + 1],
            segment.size,
            segment.max_timestamp if index is None else index.max_timestamp,
            segment.created_ms,
            segment.first_timestamp,
        )

    def outline(self, log_end_offset: int) -> SegmentOutline:
        """Return the segments' properties that compaction needs; valid until the log changes."""
        return SegmentOutline(
            bases=self.bases,
            sizes=[segment.size for segment in self._all],
            end_offset=log_end_offset,
            age_of=lambda place: self.age_of(place, log_end_offset),
        )

    # --- forget --------------------------------------------------------------------------------

    def forget(self, segment: Segment) -> None:
        """Close a segment's file and drop its index and its unflushed changes."""
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
