"""One cleaning run: a resumable object that a lane runs in slices.

A run is created on the loop from numbers and touches files only in `step`. It first reads the dirty
part and maps each key to its newest offset. `CleaningPlan.map_bytes` limits the map: a full map
ends the dirty part there, and the next run continues. Then it rewrites the log from its start to
the end of the mapped part into `.cleaned` files. No reader sees these until `swap` replaces their
sources. `compaction` defines which records stay.

Protocol: call `step` in one lane until `finished`; then swap each of `groups` in ascending order;
then store `cleaned_to`. A group must never be swapped before a lower one: the removal of a
tombstone would outlive the values it deletes. After an error, or to cancel, `discard` removes the
remaining files.

Segments are merged while the remaining bytes fit `segment.bytes`, the indexes their limit and the
offsets the 32 bits of an index. A segment of which everything stays forms no group. Leader epochs
are unchanged: batches are removed, the start offsets of epochs are not.

The delete horizon counts from `wall_ms`. A reader that starts at the log start sees the last state
of every key if it reaches the end within `delete.retention.ms`, less the time from the start of the
run to its last swap.

Memory: `map_bytes`, and a few times the larger of READ_SIZE and the largest batch inflated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..errors import CorruptionError
from ..records.batch import HEADER_SIZE
from ..records.key_map import KeyMap
from .compaction import CompactionRules, Compactor, KeyMapBuilder
from .config import SEGMENT_BYTES_MAX
from .index import OFFSET_ENTRY_SIZE, RELATIVE_OFFSET_MAX, TIME_ENTRY_SIZE, SegmentIndex
from .layout import CLEANED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from .producer_state import LastRecord
from .segment import header_at
from .segment_files import CleanedGroup, SourceSegment
from .small_files import write_file
from .transaction_index import AbortedTransaction, encode_aborted

if TYPE_CHECKING:
    from ..runtime.ports import Files

READ_SIZE: Final = 1024 * 1024
"""Bytes of a log per read; a larger batch is read completely."""

READ_SIZE_MIN: Final = 16 * 1024

SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class SegmentReader:
    """One segment's batches from its start, in pieces that begin at a batch."""

    def __init__(self, files: "Files", path: str, base_offset: int, size: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self.position = 0  # position of the next batch
        self._file = files.open_readonly(path)

    @property
    def is_at_end(self) -> bool:
        """True if every batch was processed."""
        return self.position >= self.size

    def read(self, wanted: int) -> bytes:
        """Return the next piece, of about `wanted` bytes, with at least one whole batch.

        Raises CorruptionError if the segment ends inside a batch.
        """
        left = self.size - self.position
        size = min(left, READ_SIZE, max(wanted, READ_SIZE_MIN))
        piece = self._file.read(self.position, size)
        if not left:
            return piece  # a segment without batches
        header = header_at(piece, 0, path=self.path, position=self.position)
        if header.size > left:
            raise CorruptionError(
                f"a batch of {header.size} bytes reaches beyond {self.size}",
                path=self.path,
                position=self.position,
            )
        if header.size > len(piece):
            piece = self._file.read(self.position, header.size)
        if header.size > len(piece):
            raise CorruptionError(
                f"the file ends at {self.position + len(piece)}, {self.size} bytes are expected",
                path=self.path,
                position=self.position,
            )
        return piece

    def advance(self, count: int) -> None:
        """Advance by the bytes processed of the last piece."""
        self.position += count

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class CleanedSegmentWriter:
    """A cleaned segment being written, and its indexes."""

    def __init__(
        self, files: "Files", log_path: str, base_offset: int, interval_bytes: int
    ) -> None:
        self.log_path = log_path  # of the first source
        self.size = 0
        self.index = SegmentIndex(base_offset, interval_bytes)
        self._files = files
        self._file = files.open(cleaned_path(log_path, LOG_SUFFIX), create=True)
        self._file.truncate(0)

    def append(self, batches: memoryview, notes: memoryview) -> int:
        """Write batches with their `notes` (size, last offset, max timestamp); return their bytes.
        Raises CorruptionError if the segment would exceed the range of its positions."""
        if self.size + len(batches) > SEGMENT_BYTES_MAX:
            raise CorruptionError(
                f"the rest of the segment needs more than {SEGMENT_BYTES_MAX} bytes: its batches "
                "were compressed better than this node compresses them",
                path=self.log_path,
                position=0,
            )
        started = position = self.size
        while len(batches):
            written = self._file.write(position, [batches])
            position += written
            batches = batches[written:]
        rows = iter(notes)
        for size, last_offset, max_timestamp in zip(rows, rows, rows, strict=True):
            self.index.note(
                position=self.size,
                size=size,
                last_offset=last_offset,
                max_timestamp=max_timestamp,
            )
            self.size += size
        assert self.size == position, f"{position} bytes written, {self.size} noted"
        return position - started

    def finish(self, aborted: Sequence[AbortedTransaction]) -> int:
        """Write the indexes, sync everything and close it; return the bytes of the indexes."""
        self._file.sync()
        self._file.close()
        self.index.seal()
        contents = {
            INDEX_SUFFIX: self.index.encode_offsets(),
            TIME_INDEX_SUFFIX: self.index.encode_times(),
        }
        if aborted:
            contents[TXN_INDEX_SUFFIX] = encode_aborted(aborted)
        for suffix, content in contents.items():
            write_file(self._files, cleaned_path(self.log_path, suffix), content)
        return sum(map(len, contents.values()))

    def close(self) -> None:
        """Close the file without making it durable."""
        self._file.close()


def cleaned_path(log_path: str, suffix: str) -> str:
    """Return the path of one of a cleaned segment's files."""
    return log_path.removesuffix(LOG_SUFFIX) + suffix + CLEANED_SUFFIX


def discard_cleaned(files: "Files", log_path: str) -> None:
    """Remove the existing files of a cleaned segment."""
    for suffix in SUFFIXES:
        path = cleaned_path(log_path, suffix)
        if files.exists(path):
            files.remove(path)


SLOT_SIZE: Final = 24
"""Bytes of the map per key, at a load of nine tenths: a hash of 16 bytes and an offset."""

SLOTS_MIN: Final = 4096
BYTES_PER_KEY_MIN: Final = 16
"""The map has at most one slot per this many dirty bytes. If that is too few, as for batches with
high compression, the run covers less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """The parameters of a cleaning run."""

    segments: tuple[SourceSegment, ...]  # ascending, from the log's first; none is active
    first_dirty_offset: int  # earlier runs cleaned the log below it
    end_offset: int  # exclusive; at most the last stable offset and the active segment's base
    wall_ms: int
    # 16 random bytes, new for every run, so that no client can construct colliding keys
    seed: bytes
    map_bytes: int  # clean_buffer_bytes
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    delete_retention_ms: int
    inflate_bytes_max: int
    aborted: tuple[AbortedTransaction, ...] = ()
    """All aborted transactions with records or markers in the segments; records of a missing one
    would be treated as committed."""
    live_producers: Mapping[int, LastRecord] = field(default_factory=dict)  # used by this run only

    def __post_init__(self) -> None:
        assert self.segments, "a run has segments"
        end = min(self.end_offset, self.segments[-1].end_offset)
        assert self.first_dirty_offset < end, f"nothing in [{self.first_dirty_offset}, {end})"

    @property
    def slots(self) -> int:
        """Number of slots of the key map."""
        dirty = sum(s.size for s in self.segments if s.end_offset > self.first_dirty_offset)
        wanted = max(SLOTS_MIN, dirty // BYTES_PER_KEY_MIN)
        return max(2, min(self.map_bytes // SLOT_SIZE, wanted, 1 << 32))


@dataclass(slots=True, kw_only=True)
class CleanerStats:
    """Counters of a cleaning run."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0  # below the mapped end
    records_kept: int = 0
    keys: int = 0  # in the map
    batches_unread: int = 0  # kept because their records are unreadable
    unread_reason: str = ""  # of the first of them


class CleaningRun:
    """One cleaning run over one log. Created on the loop; then used only by the lane that steps
    it."""

    def __init__(self, plan: CleaningPlan) -> None:
        self.plan = plan
        self.groups: list[CleanedGroup] = []  # ascending; complete once finished
        self.stats = CleanerStats()
        # the next run's first dirty offset, once finished
        self.cleaned_to = plan.first_dirty_offset
        self.finished = False
        self._rules = CompactionRules(
            first_dirty_offset=plan.first_dirty_offset,
            end_offset=min(plan.end_offset, plan.segments[-1].end_offset),
            wall_ms=plan.wall_ms,
            delete_retention_ms=plan.delete_retention_ms,
            inflate_bytes_max=plan.inflate_bytes_max,
            aborted=plan.aborted,
            live_producers=plan.live_producers,
        )
        self._keys: KeyMap | None = None  # created by the first step: it is large
        self._scan: KeyMapBuilder | None = None
        self._compactor: Compactor | None = None
        self._todo = [s for s in plan.segments if s.end_offset > plan.first_dirty_offset][::-1]
        self._pieces: SegmentReader | None = None  # of the source being read
        self._sources: list[SourceSegment] = []  # of the group being written
        self._cleaned: CleanedSegmentWriter | None = None

    def step(self, files: "Files", *, budget_bytes: int) -> int:
        """Read and write about `budget_bytes`, at least one batch; return the actual number.

        A lane job. Raises CorruptionError, OSError; the run must be discarded then.
        """
        if self._keys is None:
            self._keys = KeyMap(self.plan.slots, self.plan.seed)
        done = 0
        while done < budget_bytes and not self.finished:
            if self._compactor is None:
                done += self._map(files, budget_bytes - done, self._keys)
            else:
                done += self._filter(files, budget_bytes - done, self._compactor)
        return done

    def discard(self, files: "Files") -> None:
        """Close open files and remove all existing `.cleaned` files of the run.

        Raises OSError if one cannot be removed; the next opening of the log removes it then.
        """
        self.finished = True
        self._keys = self._scan = self._compactor = None
        if self._pieces is not None:
            self._pieces.close()
        started = [group.sources[0].path for group in self.groups]
        if self._cleaned is not None:
            self._cleaned.close()
            started.append(self._cleaned.log_path)
        self._pieces = self._cleaned = None
        for log_path in started:
            discard_cleaned(files, log_path)

    # --- first pass ----------------------------------------------------------------------------

    def _map(self, files: "Files", budget: int, keys: KeyMap) -> int:
        """Map the keys of the next piece."""
        if self._scan is None:
            self._scan = KeyMapBuilder(self._rules, keys, base_offset=self._todo[-1].base_offset)
        scan = self._scan
        pieces = self._open_next(files)
        if pieces is None:
            self._begin_filter(scan, keys)
            return 0
        piece = pieces.read(budget)
        pieces.advance(self._feed(scan, piece, pieces))
        self.stats.bytes_read += len(piece)
        self.stats.keys = keys.count
        if scan.is_done:
            self._begin_filter(scan, keys)
        elif pieces.is_at_end:
            self._check_end(scan.next_offset)
            self._close_source()
        return len(piece)

    def _begin_filter(self, scan: KeyMapBuilder, keys: KeyMap) -> None:
        if self._pieces is not None:
            self._pieces.close()
        self._pieces = self._scan = None
        self.cleaned_to = scan.mapped_end
        live = (last.last_offset for last in self.plan.live_producers.values())
        self._compactor = Compactor(
            self._rules,
            keys,
            base_offset=self.plan.segments[0].base_offset,
            mapped_end=scan.mapped_end,
            kept_empty={scan.last_offset, *live} - {-1},
        )
        self._todo = [s for s in self.plan.segments if s.base_offset < scan.mapped_end][::-1]

    # --- second pass ---------------------------------------------------------------------------

    def _filter(self, files: "Files", budget: int, compactor: Compactor) -> int:
        """Write the remaining batches of the next piece."""
        if self._pieces is None and not self._joins_group():
            return self._end_group(files, compactor)
        pieces = self._open_next(files)
        if pieces is None:
            self._keys = self._compactor = None
            self.finished = True
            return 0
        if self._cleaned is None:
            self._cleaned = CleanedSegmentWriter(
                files, pieces.path, pieces.base_offset, self.plan.index_interval_bytes
            )
        if pieces.position == 0:
            self._sources.append(self._todo[-1])
        cleaned = self._cleaned
        piece = pieces.read(budget)
        left = pieces.size - pieces.position
        compactor.growth_max = max(0, SEGMENT_BYTES_MAX - cleaned.size - left)
        pieces.advance(self._feed(compactor, piece, pieces))
        written = cleaned.append(*compactor.take())
        self.stats.bytes_read += len(piece)
        self.stats.bytes_written += written
        self.stats.records_read = compactor.records_read
        self.stats.records_kept = compactor.records_kept
        self.stats.batches_unread = compactor.unread
        self.stats.unread_reason = compactor.unread_reason
        if pieces.is_at_end:
            self._check_end(compactor.next_offset)
            self._close_source()
        return len(piece) + written

    def _joins_group(self) -> bool:
        """Return True if the next source belongs to the group being written, or there is no
        group."""
        cleaned = self._cleaned
        if cleaned is None:
            return True
        if not self._todo:
            return False
        following, plan = self._todo[-1], self.plan
        most = following.size // max(plan.index_interval_bytes, HEADER_SIZE) + 2  # index entries
        entry = max(OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE)
        return (
            cleaned.size + following.size <= plan.segment_bytes
            and cleaned.index.size + most * entry <= plan.index_bytes_max
            and following.end_offset - 1 - self._sources[0].base_offset <= RELATIVE_OFFSET_MAX
        )

    def _end_group(self, files: "Files", compactor: Compactor) -> int:
        """Make the group durable, or drop it if its only source is unchanged."""
        cleaned, sources = self._cleaned, tuple(self._sources)
        assert cleaned is not None, "a group is written"
        is_same = len(sources) == 1 and not compactor.rewritten and cleaned.size == sources[0].size
        self._sources, compactor.rewritten = [], 0
        if is_same:
            cleaned.close()
            discard_cleaned(files, cleaned.log_path)
            self._cleaned = None
            return 0
        # sometimes if len(sources) > 1: compaction merges segments
        base, end = sources[0].base_offset, sources[-1].end_offset
        aborted = tuple(
            entry
            for entry in self.plan.aborted
            if base <= entry.last_offset < end and compactor.is_left(entry)
        )
        written = cleaned.finish(aborted)
        self._cleaned = None
        self.groups.append(
            CleanedGroup(
                sources=sources,
                base_offset=base,
                size=cleaned.size,
                index=cleaned.index,
                aborted=aborted,
            )
        )
        return written

    # --- reading -------------------------------------------------------------------------------

    def _open_next(self, files: "Files") -> SegmentReader | None:
        """Return the source being read; open the next one if there is none."""
        if self._pieces is None and self._todo:
            source = self._todo[-1]
            self._pieces = SegmentReader(files, source.path, source.base_offset, source.size)
        return self._pieces

    def _close_source(self) -> None:
        if self._pieces is not None:
            self._pieces.close()
            self._pieces = None
            self._todo.pop()

    def _feed(self, taker: KeyMapBuilder | Compactor, piece: bytes, pieces: SegmentReader) -> int:
        try:
            return taker.feed(piece)
        except CorruptionError as error:
            raise CorruptionError(
                error.message, path=pieces.path, position=pieces.position + max(0, error.position)
            ) from None

    def _check_end(self, next_offset: int) -> None:
        """Raise CorruptionError if a segment overlaps the next one."""
        source = self._todo[-1]
        if next_offset > source.end_offset:
            raise CorruptionError(
                f"the segment's batches reach to offset {next_offset - 1}, the next segment starts "
                f"at {source.end_offset}",
                path=source.path,
                position=source.size,
            )
