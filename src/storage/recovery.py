"""Recovery of a log's folder: from its files after a clean shutdown, by reading the log otherwise.

After an unclean shutdown everything from the recovery point on is read and its CRCs are checked.
Below the recovery point (a completed fsync) an invalid batch is corruption. At or above it,
writeback has no order, so a gap followed by valid batches is an ordinary torn tail:

- `replicated` logs are truncated at the first invalid batch, whatever follows;
- `fsync` logs never had more than two write groups unsynced, so an invalid batch followed by more
  valid data than that is corruption.

The verified prefix of a segment is not read. While the active segment grows, its index is stored at
intervals, together with a producer snapshot of the same offset. Recovery starts after the newest
snapshot at or below the recovery point: index and snapshot cover the batches below. After any crash
it reads the log above the recovery point and at most one interval of the index below it.

Corruption raises CorruptionError and changes nothing: the caller decides about a replica or a voter
without its log. The returned state is durable: batches above the recovery point are rewritten
before the sync, since an earlier sync of them may have failed. Runs in the write lane.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ..errors import CorruptionError
from ..ids import NO_EPOCH
from ..records.batch import HEADER_SIZE, MAGIC, NO_PRODUCER, BatchHeader, check_crc, parse_header
from .checkpoints import decode_epochs
from .config import LogConfig
from .flush import store_index_if_room
from .index import SegmentIndex
from .layout import (
    INDEX_SUFFIX,
    LEADER_EPOCHS,
    LEFTOVER_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    join,
    segment_base,
)
from .leader_epochs import EpochCache
from .producer_state import ProducerLimits
from .producer_state_manager import (
    ProducerFiles,
    ProducerReplay,
    ProducerStateManager,
    open_producers,
    recover_producers,
)
from .segment import INDEX_STEP_MIN, Segment, build_index, header_at, read_index, remove_index, walk
from .segment_files import finish_swaps
from .small_files import read_file
from .truncation import remove_segment

if TYPE_CHECKING:
    from ..runtime.ports import File, Files


@dataclass(slots=True, kw_only=True)
class LogState:
    """The state of a recovered log, durable on the disk."""

    segments: list[Segment]  # ascending; empty if the folder does not exist yet
    epochs: EpochCache
    log_start_offset: int
    log_end_offset: int
    # as stored durably in the folder, now or with the first append
    unsynced_bytes_max: int | None = None
    producers: ProducerStateManager | None = None  # None: no producer is known
    gaps_below: int | None = None  # like unsynced_bytes_max: see PartitionMeta


SCAN_SIZE: Final = 256 * 1024
"""Bytes per read while searching for valid batches after an invalid one."""

REWRITE_SIZE: Final = 1024 * 1024
"""Bytes per rewrite."""

MAGIC_AT: Final = 16
RELATIVE_MAX: Final = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The parameters of opening one log."""

    folder: str
    config: LogConfig
    is_clean: bool  # the clean-shutdown marker existed
    recovery_point: int  # offset below which everything was fsynced
    log_start_offset: int  # as checkpointed; 0 if never
    torn_bytes_max: int | None  # of an fsync log: bytes of two write groups; None: no limit
    wall_ms: int
    # as checkpointed: end of the last cleaning run; None: never cleaned
    cleaned_to: int | None = None
    producer_limits: ProducerLimits = field(default_factory=ProducerLimits)
    gaps_below: int | None = None  # the same from the log's folder; None: not stored

    @property
    def may_have_gaps(self) -> bool:
        """True if offsets may be missing between batches, whatever the policy is now."""
        was_cleaned = self.cleaned_to is not None or self.gaps_below is not None
        return self.config.compacted or was_cleaned

    def may_follow(self, base_offset: int, expected: int) -> bool:
        """Return True if a segment may come next. Only compaction removes a segment's last offsets;
        above its end a gap means a lost segment."""
        bound = max(self.cleaned_to or 0, self.gaps_below or 0)
        return base_offset == expected or expected < base_offset <= bound


def recover(files: "Files", recovery: Recovery) -> LogState:
    """Recover the log in a folder; raises CorruptionError, OSError."""
    names = _sweep(files, recovery.folder) if files.exists(recovery.folder) else []
    bases = [base for name in names if (base := segment_base(name)) is not None]
    epochs = _load_epochs(files, recovery, bases)
    of_emptied = _epoch_of_emptied(epochs, max(recovery.log_start_offset, *bases[:1], 0))
    if not recovery.is_clean:
        epochs.truncate_end(recovery.recovery_point)
    if not bases:
        return _recover_empty(recovery, epochs, of_emptied)
    found = ProducerFiles.among(names)
    if recovery.is_clean:
        segments, end = _open_clean(files, recovery, bases)
        if recovery.recovery_point > 0 and end != recovery.recovery_point:
            # A clean shutdown leaves them equal. Read the log above the point, whichever broker
            # wrote it; an end below it is corruption.
            return recover(files, replace(recovery, is_clean=False))
        producers = open_producers(
            files,
            recovery.folder,
            segments,
            end,
            found=found,
            limits=recovery.producer_limits,
            wall_ms=recovery.wall_ms,
        )
    else:
        scan = _Scan(files, recovery, epochs, found)
        segments, end = scan.run(bases)
        producers = scan.producers
    if end < recovery.log_start_offset:
        if recovery.is_clean:  # nothing was truncated, so an offset is invalid
            raise CorruptionError(
                f"the log ends at {end}, but starts at {recovery.log_start_offset}",
                path=recovery.folder,
            )
        _remove_all(files, recovery, bases)
        return _empty(recovery, epochs, of_emptied)
    start = max(recovery.log_start_offset, bases[0])
    _settle_epochs(epochs, of_emptied, start=start, end=end)
    return LogState(
        segments=segments,
        epochs=epochs,
        log_start_offset=start,
        log_end_offset=end,
        producers=producers,
    )


def _remove_all(files: "Files", recovery: Recovery, bases: list[int]) -> None:
    """Remove the remaining segments, since all their records were deleted; the log continues at its
    start."""
    # sometimes: a recovery ends below the log start
    for base in reversed(bases):
        path = Segment(recovery.folder, base).path
        if files.exists(path):  # a scan may have cut it off already
            remove_segment(files, path)
            files.sync_folder(recovery.folder)
    _sweep(files, recovery.folder)


def _recover_empty(recovery: Recovery, epochs: EpochCache, of_emptied: int) -> LogState:
    start = recovery.log_start_offset
    if recovery.recovery_point > start:
        raise CorruptionError(
            f"no segment exists, but offsets up to {recovery.recovery_point} were fsynced",
            path=recovery.folder,
        )
    return _empty(recovery, epochs, of_emptied)


def _empty(recovery: Recovery, epochs: EpochCache, of_emptied: int) -> LogState:
    start = recovery.log_start_offset
    _settle_epochs(epochs, of_emptied, start=start, end=start)
    return LogState(
        segments=[],
        epochs=epochs,
        log_start_offset=start,
        log_end_offset=start,
        producers=ProducerStateManager.empty(
            recovery.folder, limits=recovery.producer_limits, wall_ms=recovery.wall_ms
        ),
    )


def _sweep(files: "Files", folder: str) -> list[str]:
    """Unlink files of unfinished work; return the remaining names, ascending."""
    names = finish_swaps(files, folder, files.names(folder))
    bases = {base for name in names if (base := segment_base(name)) is not None}
    kept = []
    for name in names:
        is_leftover = name.endswith(LEFTOVER_SUFFIXES)
        is_leftover = is_leftover or (not bases and name.endswith(SNAPSHOT_SUFFIX))
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            base = segment_base(name, suffix)
            is_leftover = is_leftover or (base is not None and base not in bases)
        if is_leftover:
            files.remove(join(folder, name))
        else:
            kept.append(name)
    return kept


# --- clean -------------------------------------------------------------------------------------


def _open_clean(files: "Files", recovery: Recovery, bases: list[int]) -> tuple[list[Segment], int]:
    """Open the segments without reading them, except the end of the active one."""
    segments = [_segment(files, recovery, base) for base in bases]
    active = segments[-1]
    file = files.open_readonly(active.path)
    try:
        interval = recovery.config.index_interval_bytes
        index = read_index(
            files,
            active.path,
            base_offset=active.base_offset,
            size=active.size,
            interval_bytes=interval,
        )
        end = None if index is None else _end_behind(file, index, active)
        active.has_index_files = end is not None
        if index is None or end is None:
            index = build_index(
                file, base_offset=active.base_offset, end=active.size, interval_bytes=interval
            )
            end = _end_behind(file, index, active)
            assert end is not None, f"the index of {active.path} was just made"
        if active.size:
            active.first_timestamp = header_at(
                file.read(0, HEADER_SIZE), 0, path=active.path, position=0
            ).max_timestamp
    finally:
        file.close()
    active.index = index
    return segments, end


def _end_behind(file: "File", index: SegmentIndex, segment: Segment) -> int | None:
    """Return the offset after a segment's last batch; None if its index has no batch at the
    position of its last entry: the index is invalid then and rebuilt. Raises CorruptionError."""
    end, (offset, position) = segment.base_offset, index.last_entry or (-1, 0)
    is_sure = offset < 0  # a batch starts at the position
    try:
        for _, header in walk(file, position, segment.size):
            if not is_sure and header.last_offset != offset:
                return None
            is_sure, end = True, header.next_offset
    except CorruptionError:
        if is_sure:
            raise
        return None
    return end


def _segment(files: "Files", recovery: Recovery, base: int) -> Segment:
    segment = Segment(recovery.folder, base, created_ms=recovery.wall_ms)
    segment.size = files.size(segment.path)
    return segment


# --- epochs ------------------------------------------------------------------------------------


def _load_epochs(files: "Files", recovery: Recovery, bases: list[int]) -> EpochCache:
    """Read the checkpoint, or all headers if it is unreadable. After an unclean shutdown only
    entries below the recovery point are trusted."""
    path = join(recovery.folder, LEADER_EPOCHS)
    try:
        epochs = EpochCache(decode_epochs(read_file(files, path), path))
    except (FileNotFoundError, CorruptionError):
        epochs = EpochCache()
        end = None if recovery.is_clean else recovery.recovery_point
        _walk_epochs(files, recovery, bases, epochs, end)
    return epochs


def _epoch_of_emptied(epochs: EpochCache, start: int) -> int:
    """Return the epoch of a log without records, -1 if unknown: that of the offsets
    below its start, which have no batches any more."""
    entries = epochs.entries()
    if not entries or entries[0][1] != start:
        return NO_EPOCH
    return entries[0][0]


def _settle_epochs(epochs: EpochCache, of_emptied: int, *, start: int, end: int) -> None:
    """Drop epochs outside the log's offsets; an empty log keeps its newest epoch."""
    epochs.truncate_start(start)
    epochs.truncate_end(max(end, start + 1))
    if start == end and epochs.latest == NO_EPOCH:
        epochs.assign(of_emptied, start)


def _walk_epochs(
    files: "Files", recovery: Recovery, bases: list[int], epochs: EpochCache, end: int | None
) -> None:
    for base in bases:
        if end is not None and base >= end:
            return
        segment = _segment(files, recovery, base)
        file = files.open_readonly(segment.path)
        try:
            for _, header in walk(file, 0, segment.size):
                if header.leader_epoch > epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
                if end is not None and header.next_offset >= end:
                    return  # the following batches may be torn
        finally:
            file.close()


# --- verified prefix ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPrefix:
    """The verified batches of a segment: those before `position`."""

    index: SegmentIndex  # of these batches only; the batch at `position` is the next to add
    position: int
    next_offset: int  # base offset of the batch at `position`
    offset: int  # end offset of a producer snapshot, at or above next_offset
    first_timestamp: int  # ms, largest of the segment's first batch


def find_verified_prefix(
    files: "Files",
    segment: Segment,
    *,
    found: ProducerFiles,
    recovery_point: int,
    interval_bytes: int,
) -> VerifiedPrefix | None:
    """Return the verified prefix of a segment, None without one.

    Segments with aborted transactions are read completely, because their transaction index is
    rebuilt.
    """
    base = segment.base_offset
    snapshots = [offset for offset in found.snapshots if base < offset <= recovery_point]
    if not snapshots or base in found.indexed:
        return None
    index = read_index(
        files,
        segment.path,
        base_offset=base,
        size=segment.size,
        interval_bytes=interval_bytes,
    )
    if index is None:
        return None
    offset = max(snapshots)
    position = index.truncation_floor(offset)
    if position == 0:
        return None
    index.truncate(position)
    file = files.open_readonly(segment.path)
    try:
        first = header_at(file.read(0, HEADER_SIZE), 0, path=segment.path, position=0)
        at = header_at(file.read(position, HEADER_SIZE), 0, path=segment.path, position=position)
    except CorruptionError:
        return None
    finally:
        file.close()
    if (at.last_offset, position) != index.last_entry:
        return None  # the index belongs to other contents
    return VerifiedPrefix(
        index=index,
        position=position,
        next_offset=at.base_offset,
        offset=offset,
        first_timestamp=first.max_timestamp,
    )


# --- unclean -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """Reads a log from its recovery point on."""

    files: "Files"
    recovery: Recovery
    epochs: EpochCache
    found: ProducerFiles
    expected: int = 0  # expected offset of the next batch
    epoch: int = -1  # of the previous batch
    segments: list[Segment] = field(default_factory=list)
    unsure: dict[int, int] = field(default_factory=dict)  # base offset -> bytes known to be durable
    replay: ProducerReplay = field(init=False)
    producers: ProducerStateManager = field(init=False)  # set at the end of `run`
    scanned_from: int = 0  # base offset

    def run(self, bases: list[int]) -> tuple[list[Segment], int]:
        """Return the remaining segments, and the log end offset."""
        # A segment that ends at the recovery point may have been rolled since; its index is older.
        first = max(i for i, base in enumerate(bases) if i == 0 or base < self._point)
        self.segments = [_segment(self.files, self.recovery, base) for base in bases[:first]]
        self.expected = self.scanned_from = bases[first]
        segment = _segment(self.files, self.recovery, bases[first])
        beginning = self._known_beginning(segment, floor=bases[0])
        for at in range(first, len(bases)):
            if at > first:
                segment, beginning = _segment(self.files, self.recovery, bases[at]), None
            bad = self._scan(segment, beginning)
            if bad is not None:
                self._cut(segment, bad, bases[at + 1 :])
                break
        if self.expected < self._point:
            raise CorruptionError(
                f"the log ends at {self.expected}, but offsets up to {self._point} were fsynced",
                path=self.segments[-1].path,
            )
        if self.replay.start_offset > self.expected:  # beyond the remaining log
            self._know_producers(self.expected, floor=bases[0], ceiling=self.expected)
        self.producers = recover_producers(
            self.files,
            self.recovery.folder,
            self.replay,
            self.segments,
            scanned_from=self.scanned_from,
            known_to=max(self.scanned_from, self.replay.start_offset),
            found=self.found,
            limits=self.recovery.producer_limits,
        )
        self._finish()
        return self.segments, self.expected

    @property
    def _point(self) -> int:
        return self.recovery.recovery_point

    def _known_beginning(self, segment: Segment, *, floor: int) -> VerifiedPrefix | None:
        """Return the verified prefix of the first segment, after bringing the replay to its end."""
        beginning = find_verified_prefix(
            self.files,
            segment,
            found=self.found,
            recovery_point=self._point,
            interval_bytes=self.recovery.config.index_interval_bytes,
        )
        if beginning is not None:
            self._know_producers(beginning.offset, floor=floor, ceiling=beginning.offset)
            if self.replay.start_offset == beginning.offset:
                # sometimes: a recovery skips a verified part
                return beginning
        # There is no such snapshot, or it is torn. Any other one is valid too if the log reaches
        # its offset, since it was stored after the fsync of everything below it.
        ceiling = max(self.scanned_from, self._point)
        self._know_producers(self.scanned_from, floor=floor, ceiling=ceiling, or_above=True)
        return None

    def _know_producers(
        self, offset: int, *, floor: int, ceiling: int, or_above: bool = False
    ) -> None:
        """Bring the replay to `offset`, or further with a snapshot; see `ProducerReplay.load`."""
        self.replay = ProducerReplay(
            self.files,
            self.recovery.folder,
            snapshots=self.found.snapshots,
            limits=self.recovery.producer_limits,
            wall_ms=self.recovery.wall_ms,
        )
        self.replay.load(ceiling, floor=floor, or_above=or_above)
        self.replay.catch_up(self.segments, offset)

    def _scan(self, segment: Segment, beginning: VerifiedPrefix | None) -> "_Bad | None":
        """Add a segment's batches up to an invalid one, starting after its verified prefix."""
        if not self.recovery.may_follow(segment.base_offset, self.expected):
            # sometimes: a segment does not follow the one before it
            return _Bad(0, f"the segment follows offset {self.expected}")
        self.expected = segment.base_offset
        self.segments.append(segment)
        self.replay.enter(segment.base_offset)
        start = 0
        if beginning is None:
            interval = self.recovery.config.index_interval_bytes
            segment.index = SegmentIndex(segment.base_offset, interval)
        else:
            start, self.expected = beginning.position, beginning.next_offset
            segment.index, segment.first_timestamp = beginning.index, beginning.first_timestamp
        file = self.files.open_readonly(segment.path)
        try:
            for position, header in self._batches(file, start, segment.size):
                segment.index.note(
                    position=position,
                    size=header.size,
                    last_offset=header.last_offset,
                    max_timestamp=header.max_timestamp,
                )
                if position == 0:
                    segment.first_timestamp = header.max_timestamp
                if header.leader_epoch > self.epochs.latest:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id != NO_PRODUCER:
                    self.replay.note(file, position, header)
                self.expected, self.epoch = header.next_offset, header.leader_epoch
        except CorruptionError as error:
            return _Bad(error.position, error.message)
        finally:
            file.close()
        return None

    def _batches(self, file: "File", start: int, size: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield valid batches; raises CorruptionError at the first invalid one."""
        for position, header in walk(file, start, size):
            fits = header.base_offset == self.expected or (
                self.recovery.may_have_gaps and header.base_offset > self.expected
            )
            if not fits or header.last_offset_delta < 0:
                raise CorruptionError(
                    f"a batch of offset {header.base_offset} follows offset {self.expected}",
                    position=position,
                )
            if header.leader_epoch < self.epoch:
                raise CorruptionError(
                    f"a batch of epoch {header.leader_epoch} follows epoch {self.epoch}",
                    position=position,
                )
            if header.last_offset >= self._point:
                self.unsure.setdefault(self.segments[-1].base_offset, position)
                try:
                    check_crc(file.read(position, header.size), 0, header)
                except CorruptionError as error:
                    raise CorruptionError(error.message, position=position) from None
            yield position, header

    def _cut(self, segment: Segment, bad: "_Bad", later: list[int]) -> None:
        """Truncate the log at an invalid batch; raise CorruptionError if that would lose fsynced
        data."""
        damage = CorruptionError(bad.reason, path=segment.path, position=bad.position)
        if self.expected < self._point:
            raise damage
        enough = self.recovery.torn_bytes_max
        if enough is not None:
            behind = self._valid_bytes(segment, bad.position + 1, later, enough)
            if behind > enough:
                damage.add_note(f"at least {behind} bytes of valid batches follow it")
                raise damage
        is_kept = bool(self.segments) and self.segments[-1] is segment
        # sometimes if later: a torn segment is followed by others
        for base in reversed(later if is_kept else [segment.base_offset, *later]):
            remove_segment(self.files, Segment(segment.folder, base).path)
            self.files.sync_folder(segment.folder)
        if is_kept:
            file = self.files.open(segment.path)
            try:
                # sometimes if bad.position == 0: a recovery truncates a whole segment
                # sometimes: a recovery truncates a torn batch
                file.truncate(bad.position)
            finally:
                file.close()
            segment.size = bad.position

    def _valid_bytes(self, segment: Segment, position: int, later: list[int], enough: int) -> int:
        """Count the bytes of valid batches after an invalid one, up to `enough`."""
        total = 0
        for base in [segment.base_offset, *later]:
            path = Segment(segment.folder, base).path
            file = self.files.open_readonly(path)
            try:
                total += valid_bytes(
                    file, position, file.size(), expected=self.expected, enough=enough - total
                )
            finally:
                file.close()
            position = 0
            if total > enough:
                break
        return total

    def _finish(self) -> None:
        """Make the part above the recovery point durable, and store the rebuilt indexes."""
        for segment in self.segments:
            if segment.index is None:
                continue  # completely below the recovery point
            file = self.files.open(segment.path)
            try:
                durable = self.unsure.get(segment.base_offset, segment.size)
                rewrite(file, durable, segment.size)
                file.sync()
            finally:
                file.close()
            if segment is not self.segments[-1]:
                segment.index.seal()
                store_index_if_room(self.files, segment.path, segment.index)
                segment.index = None
        self._activate()
        self.files.sync_folder(self.recovery.folder)

    def _activate(self) -> None:
        active = self.segments[-1]
        if active.index is not None and active.size >= INDEX_STEP_MIN:
            store_index_if_room(self.files, active.path, active.index)  # for the next recovery
            active.indexed_bytes = active.size
        else:
            remove_index(self.files, active.path)
        if active.index is None:
            file = self.files.open_readonly(active.path)
            try:
                active.index = build_index(
                    file,
                    base_offset=active.base_offset,
                    end=active.size,
                    interval_bytes=self.recovery.config.index_interval_bytes,
                )
            finally:
                file.close()


def rewrite(file: "File", position: int, end: int) -> None:
    """Write [position, end) over itself, so that the next sync must write it to the disk.

    After a failed sync the page cache marks pages clean that the disk does not have, and a new
    process in the same boot reads them from there. Another sync would report success without
    writing.
    """
    while position < end:
        content = file.read(position, min(REWRITE_SIZE, end - position))
        if not content:
            raise CorruptionError("the file ends inside its batches", position=position)
        position += file.write(position, [content])


@dataclass(frozen=True, slots=True)
class _Bad:
    position: int
    reason: str


def valid_bytes(file: "File", position: int, end: int, *, expected: int, enough: int) -> int:
    """Count the bytes of valid batches with offsets above `expected` in [position, end), wherever
    they start; stop above `enough`."""
    total = 0
    while position + HEADER_SIZE <= end and total <= enough:
        chunk = file.read(position, min(SCAN_SIZE, end - position))
        at = chunk.find(MAGIC, MAGIC_AT)
        size = 0
        while at >= 0 and not size:
            size = _valid_size(file, position + at - MAGIC_AT, end, expected)
            if not size:
                at = chunk.find(MAGIC, at + 1)
        if size:
            total += size
            position += at - MAGIC_AT + size
        else:
            position += max(1, len(chunk) - MAGIC_AT)
    return total


def _valid_size(file: "File", position: int, end: int, expected: int) -> int:
    """Return the size of a valid batch at `position`, 0 without one."""
    try:
        header = parse_header(file.read(position, HEADER_SIZE))
        is_plausible = (
            expected < header.base_offset < expected + RELATIVE_MAX
            and header.last_offset_delta >= 0
            and position + header.size <= end
        )
        if not is_plausible:
            return 0
        check_crc(file.read(position, header.size), 0, header)
    except CorruptionError:
        return 0
    return header.size
