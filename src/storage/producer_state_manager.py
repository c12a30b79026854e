"""The producer state of one log: states, aborted transactions, snapshots.

The log reports every step that concerns producers. The manager returns the data that the next flush
must store or a truncation must rebuild; the lane does that work. Owned by the loop thread.

`ProducerReplay` rebuilds the state from a snapshot and the batches after it, in the write lane. It
reads headers, and of the batches only markers. A torn or damaged snapshot is skipped in favour of
an older one. Without any snapshot the state comes from the remaining batches: producers without a
remaining batch are unknown then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..errors import CorruptionError
from ..records.batch import NO_PRODUCER, BatchHeader
from .layout import SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX, segment_base
from .producer_snapshot import (
    BASES_KEPT,
    KEPT,
    ProducerSnapshot,
    SnapshotRetention,
    read_snapshot,
    remove_snapshots,
    store_snapshot,
)
from .producer_snapshot import path_of as snapshot_path
from .producer_state import NONE, Changes, ProducerLimits, ProducerStates
from .segment import Segment, walk
from .transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    UnstoredEntries,
    append_aborted,
    read_aborted,
    store_aborted,
)

if TYPE_CHECKING:
    from ..runtime.ports import File, Files


# --- replay ------------------------------------------------------------------------------------


class ProducerReplay:
    """Applies a log's batches in order; `states` and `aborted` are the result."""

    def __init__(
        self,
        files: "Files",
        folder: str,
        *,
        snapshots: Sequence[int],
        limits: ProducerLimits,
        wall_ms: int,
    ) -> None:
        """`snapshots`: the end offsets of the existing snapshots."""
        self.states = ProducerStates(limits, wall_ms=wall_ms)
        # by segment, from the replayed batches
        self.aborted: dict[int, list[AbortedTransaction]] = {}
        self.warnings: list[str] = []  # skipped snapshots and indexes
        # of the replay; batches below it are covered by the snapshot or not recoverable
        self.start_offset = NONE
        self._files = files
        self._folder = folder
        self._snapshots = sorted(snapshots)
        self._base = NONE  # of the segment being replayed
        self._boundaries: list[ProducerSnapshot] = []  # at the starts of segments, newest last

    def load(self, ceiling: int, *, floor: int, or_above: bool = False) -> None:
        """Start from the newest valid snapshot in [floor, ceiling], or from an empty state.

        `floor` is the start of the log's first segment: with an older snapshot, batches between it
        and the log would be missing, and their producers would seem to skip sequences. `or_above`:
        without one in the range, start from the lowest valid snapshot above it; the caller ensures
        that the log reaches there.
        """
        there = [offset for offset in self._snapshots if offset >= floor]
        below = [offset for offset in there if offset <= ceiling]
        above = there[len(below) :] if or_above else []
        for offset in (*reversed(below), *above):
            try:
                snapshot = read_snapshot(self._files, self._folder, offset)
            except FileNotFoundError:
                continue
            except CorruptionError as error:
                # sometimes: a producer snapshot is damaged
                self.warnings.append(f"{error}; an older snapshot and the log replace it")
                continue
            self.states.load(
                snapshot.entries,
                unreplicated=snapshot.unreplicated,
                age_ms=snapshot.age_ms,
                end_offset=offset,
            )
            self.start_offset = offset
            return

    def catch_up(self, segments: Sequence[Segment], end_offset: int) -> None:
        """Replay the batches of these segments in [start_offset, end_offset). Raises
        CorruptionError."""
        for at, segment in enumerate(segments):
            is_last = at + 1 == len(segments)
            segment_end = end_offset if is_last else segments[at + 1].base_offset
            if segment_end <= self.start_offset or segment.base_offset >= end_offset:
                continue
            self.enter(segment.base_offset)
            file = self._files.open_readonly(segment.path)
            try:
                for position, header in walk(file, 0, segment.size):
                    if header.base_offset >= end_offset:
                        return
                    if header.producer_id != NO_PRODUCER:
                        self.note(file, position, header)
            finally:
                file.close()

    def enter(self, base_offset: int) -> None:
        """Set the segment of the following batches, by its base offset."""
        self._base = base_offset
        if base_offset > max(self.start_offset, 0):
            self._boundaries.append(snapshot_of(self.states, base_offset))
            del self._boundaries[:-KEPT]

    def note(self, file: "File", position: int, header: BatchHeader) -> None:
        """Apply the batch of a producer; raises CorruptionError for a torn marker."""
        if header.base_offset < self.start_offset:
            return
        batch = file.read(position, header.size) if header.is_control else b""
        try:
            ended = self.states.replay(batch, header)
        except CorruptionError as error:
            raise CorruptionError(error.message, path=file.path, position=position) from None
        for one in ended:
            if one.is_aborted:
                self.aborted.setdefault(self._base, []).append(
                    AbortedTransaction(
                        one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset
                    )
                )

    def indexed_below_start(
        self, segments: Sequence[Segment], base_offset: int
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions of a segment with markers below the replay, from its
        .txnindex, or from the log if that file is damaged."""
        try:
            found = read_aborted(self._files, self._folder, [base_offset])
        except CorruptionError as error:
            self.warnings.append(f"{error}; rebuilt from the log")
            replay = ProducerReplay(
                self._files, self._folder, snapshots=(), limits=ProducerLimits(), wall_ms=0
            )
            replay.catch_up(segments, self.start_offset)
            found = replay.aborted
        return [
            entry for entry in found.get(base_offset, ()) if entry.last_offset < self.start_offset
        ]

    def store_boundaries(self, ceiling: int, *, bases: Sequence[int] = ()) -> SnapshotRetention:
        """Store the snapshots of the replayed segments and remove all others above `ceiling`, which
        may describe removed batches. The caller syncs the folder after removals."""
        stays = [offset for offset in self._snapshots if offset <= ceiling]
        new = {snapshot.end_offset for snapshot in self._boundaries}
        stale = [offset for offset in self._snapshots if offset > ceiling and offset not in new]
        remove_snapshots(self._files, self._folder, stale)
        shelf = SnapshotRetention(stays, bases=bases)
        for snapshot in self._boundaries:
            gone = shelf.put(snapshot.end_offset)
            if not store_snapshot(self._files, self._folder, snapshot, gone=gone):
                shelf.restore([snapshot.end_offset], gone)
        return shelf


def snapshot_of(states: ProducerStates, end_offset: int) -> ProducerSnapshot:
    """Return a snapshot of the current state, as of `end_offset`."""
    return ProducerSnapshot(
        end_offset=end_offset,
        entries=tuple(states.entries()),
        unreplicated=tuple(states.undecided.unreplicated()),
        age_ms=states.age_ms,
    )


def load_aborted(
    files: "Files",
    folder: str,
    segments: Sequence[Segment],
    end_offset: int,
    *,
    indexed: frozenset[int],
    warnings: list[str],
) -> dict[int, list[AbortedTransaction]]:
    """Return the entries of the segments' .txnindex files up to `end_offset`; `indexed` are the
    segments with a file. If one file is invalid, all are rebuilt from the log."""
    bases = [segment.base_offset for segment in segments if segment.base_offset in indexed]
    try:
        found = read_aborted(files, folder, bases)
    except CorruptionError as error:
        warnings.append(f"{error}; rebuilt from the log")
    else:
        if all(entries[-1].last_offset < end_offset for entries in found.values() if entries):
            return found
        warnings.append(
            f"{folder}: aborted transactions end above {end_offset}; rebuilt from the log"
        )
    replay = ProducerReplay(files, folder, snapshots=(), limits=ProducerLimits(), wall_ms=0)
    replay.catch_up(segments, end_offset)
    for segment in segments:
        base = segment.base_offset
        store_aborted(files, folder, base, replay.aborted.get(base, ()))
    files.sync_folder(folder)
    return replay.aborted


def merge_index(
    indexed: dict[int, list[AbortedTransaction]], replayed: dict[int, list[AbortedTransaction]]
) -> TransactionIndex:
    """Return an index of the stored entries and of further entries found by a replay of the log's
    end."""
    index = TransactionIndex(indexed)
    for base, entries in replayed.items():
        there = index.of_segment(base)
        last = there[-1].last_offset if there else NONE
        for entry in entries:
            if entry.last_offset > last:
                index.add(base, entry)
    return index


# --- the state of one log ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFlush:
    """The producer data stored by a flush, besides batches."""

    folder: str
    snapshots: tuple[ProducerSnapshot, ...]
    gone: tuple[int, ...]  # offsets of snapshots that it makes redundant
    aborted: tuple[UnstoredEntries, ...]
    # set by the lane if the disk was full
    missing: list[ProducerSnapshot] = field(default_factory=list, init=False)


@dataclass(slots=True, kw_only=True)
class ProducerTruncation:
    """The producer data rebuilt by a truncation; the lane sets `replayed`, the loop applies it."""

    folder: str
    limits: ProducerLimits
    wall_ms: int
    last_changed: int  # no later batch changed a producer
    snapshots: tuple[int, ...]
    segments: tuple[Segment, ...]  # copies of the remaining ones, the truncated one last
    aborted: tuple[AbortedTransaction, ...]  # in the truncated segment
    # state before the truncation; None if it may not be stored, because aborts below it lack in
    # files
    known: ProducerSnapshot | None
    replayed: ProducerReplay | None = field(default=None, init=False)
    is_stored: bool = field(default=False, init=False)  # a snapshot of the new end exists


@dataclass(frozen=True, slots=True)
class ProducerFiles:
    """The producer files in a log's folder."""

    snapshots: tuple[int, ...]  # end offsets
    indexed: frozenset[int]  # base offsets of segments with a .txnindex

    @staticmethod
    def among(names: Sequence[str]) -> "ProducerFiles":
        """Collect the producer files among the names in the folder."""
        snapshots = (segment_base(name, SNAPSHOT_SUFFIX) for name in names)
        indexed = (segment_base(name, TXN_INDEX_SUFFIX) for name in names)
        return ProducerFiles(
            tuple(offset for offset in snapshots if offset is not None),
            frozenset(base for base in indexed if base is not None),
        )


class ProducerStateManager:
    """The producer states of one log, in memory and on the disk."""

    __slots__ = (
        "_begun",
        "_folder",
        "_kept",
        "_limits",
        "_rolled",
        "states",
        "transactions",
        "warnings",
    )

    def __init__(
        self,
        folder: str,
        *,
        states: ProducerStates,
        limits: ProducerLimits,
        transactions: TransactionIndex | None = None,
        shelf: SnapshotRetention | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.states = states
        self.transactions = transactions or TransactionIndex()
        self.warnings = tuple(warnings)  # snapshots and indexes skipped by the opening
        self._folder = folder
        self._limits = limits
        self._kept = shelf or SnapshotRetention()
        self._rolled: list[ProducerSnapshot] = []  # to be stored by the next flush
        self._begun: ProducerFlush | None = None  # begun, not completed

    @staticmethod
    def empty(
        folder: str, *, limits: ProducerLimits | None = None, wall_ms: int = 0
    ) -> "ProducerStateManager":
        """Return the manager of an empty log."""
        limits = limits or ProducerLimits()
        return ProducerStateManager(
            folder, states=ProducerStates(limits, wall_ms=wall_ms), limits=limits
        )

    def emptied(self) -> "ProducerStateManager":
        """Return the manager of the log after a reset, with the same limits and wall clock."""
        return ProducerStateManager.empty(
            self._folder, limits=self._limits, wall_ms=self.states.wall_ms
        )

    @property
    def snapshot_offsets(self) -> list[int]:
        """End offsets of the stored snapshots, ascending; one may be missing after the disk was
        full."""
        return list(self._kept.offsets)

    # --- appends -------------------------------------------------------------------------------

    def complete(self, changes: Changes, base_offset: int) -> None:
        """Apply the changes of a write that was completed in the segment of this base offset."""
        for ended in self.states.complete(changes):
            if ended.is_aborted:
                self.transactions.add(
                    base_offset,
                    AbortedTransaction(
                        ended.producer_id,
                        ended.first_offset,
                        ended.last_offset,
                        ended.last_stable_offset,
                    ),
                )

    @property
    def has_unstored(self) -> bool:
        """True if snapshots wait for a flush; until then no segment below them should be
        removed."""
        return bool(self._rolled)

    def roll(self, end_offset: int) -> None:
        """Snapshot the state at a roll, with no write outstanding, so that no recovery has to read
        below the log end."""
        self._kept.roll(end_offset)
        snapshot = snapshot_of(self.states, end_offset)
        self._rolled = [*self._rolled, snapshot][-BASES_KEPT:]

    # --- flush ---------------------------------------------------------------------------------

    def begin_flush(self, end_offset: int, *, is_last: bool) -> ProducerFlush | None:
        """Return the data that the flush up to `end_offset` stores, None without any. `is_last`:
        the log is about to be closed with no write outstanding, so the state is snapshotted and the
        next opening reads no batch."""
        self._put_off()
        stored = self._kept.offsets
        snapshots, self._rolled = [s for s in self._rolled if s.end_offset not in stored], []
        there = {*stored, *(snapshot.end_offset for snapshot in snapshots)}
        if is_last and end_offset not in there:
            snapshots.append(snapshot_of(self.states, end_offset))
        aborted = self.transactions.unstored()
        if not snapshots and not aborted:
            return None
        gone: list[int] = []
        for snapshot in snapshots:
            gone += self._kept.put(
                snapshot.end_offset, replicated_to=self.states.undecided.high_watermark
            )
        self._begun = ProducerFlush(
            folder=self._folder, snapshots=tuple(snapshots), gone=tuple(gone), aborted=aborted
        )
        return self._begun

    def complete_flush(self, flush: ProducerFlush | None) -> None:
        """Apply a performed flush. A flush that is not completed counts as not performed; the next
        one repeats it."""
        self._begun = None
        if flush is not None:
            self.transactions.stored(flush.aborted)
            self._store_later(flush.missing, flush.gone)

    def _put_off(self) -> None:
        """Return the data of a flush that was not completed to the unstored state."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._store_later(begun.snapshots, begun.gone)

    def _store_later(self, snapshots: Sequence[ProducerSnapshot], gone: Sequence[int]) -> None:
        """Keep snapshots that were not stored for the next flush, and those that they would have
        replaced."""
        if snapshots:
            self._kept.restore([one.end_offset for one in snapshots], gone)
            self._rolled = [*snapshots, *self._rolled][-BASES_KEPT:]

    # --- truncate ------------------------------------------------------------------------------

    def begin_truncate(self, segments: Sequence[Segment]) -> ProducerTruncation:
        """Plan a truncation of the last of these segments; the segments above it are removed."""
        self._put_off()
        return ProducerTruncation(
            folder=self._folder,
            limits=self._limits,
            wall_ms=self.states.wall_ms,
            last_changed=self.states.last_changed,
            snapshots=tuple(self._kept.offsets),
            segments=tuple(Segment(one.folder, one.base_offset, size=one.size) for one in segments),
            aborted=self.transactions.of_segment(segments[-1].base_offset),
            known=None if self.transactions.unstored() else snapshot_of(self.states, end_offset=0),
        )

    def complete_truncate(self, cut: ProducerTruncation, end_offset: int) -> None:
        """Apply a truncation and the state rebuilt for it."""
        # sometimes if self._kept.offsets[-1:] > [end_offset]: truncation below a producer snapshot
        bases = [segment.base_offset for segment in cut.segments]
        self._kept = SnapshotRetention(
            [at for at in self._kept.offsets if at <= end_offset],
            bases=bases,
        )
        self.transactions.truncate(end_offset)
        if cut.replayed is not None:
            cut.replayed.states.undecided.keep_unreplicated(self.states.undecided, end_offset)
            self.states = cut.replayed.states
        self._rolled = [one for one in self._rolled if one.end_offset < end_offset]
        if cut.is_stored:
            self._kept.offsets = sorted({*self._kept.offsets, end_offset})
        else:
            self._rolled = [*self._rolled, snapshot_of(self.states, end_offset)][-BASES_KEPT:]

    # --- invariants ----------------------------------------------------------------------------

    def check_invariants(self, end_offset: int, outstanding: Sequence[Changes]) -> None:
        """Raise AssertionError unless these hold, by number: 9 to 13 of `ProducerStates`, and

        14. The snapshots ascend, and none is above the log end.
        15. The markers of aborted transactions ascend and are below the log end.
        """
        self.states.check_invariants(end_offset, outstanding)
        # 14. The snapshots ascend, and none is above the log end.
        offsets = [*self._kept.offsets, *(one.end_offset for one in self._rolled)]
        is_sound = self._kept.offsets == sorted(set(self._kept.offsets))
        is_sound = is_sound and all(offset <= end_offset for offset in offsets)
        assert is_sound, f"{self._folder}: invariant 14: snapshots {offsets}, log end {end_offset}"
        # 15. The markers of aborted transactions ascend and are below the log end.
        markers = self.transactions.markers()
        is_sound = markers == sorted(set(markers)) and all(one < end_offset for one in markers)
        assert is_sound, f"{self._folder}: invariant 15: markers {markers}, log end {end_offset}"


# --- in the write lane -------------------------------------------------------------------------


def flush_producers(files: "Files", flush: ProducerFlush) -> None:
    """Perform a flush, after that of the batches. Raises OSError, including for a full disk while
    storing aborted transactions: without their entries, aborted records would be served."""
    for unstored in flush.aborted:
        append_aborted(files, flush.folder, unstored)
    if any(unstored.position == 0 for unstored in flush.aborted):
        files.sync_folder(flush.folder)
    for snapshot in flush.snapshots:
        if not store_snapshot(files, flush.folder, snapshot):
            flush.missing.append(snapshot)
    if not flush.missing:
        remove_snapshots(files, flush.folder, flush.gone)


def truncate_producers(
    files: "Files", cut: ProducerTruncation, *, size: int, end_offset: int
) -> None:
    """Rebuild the state below `end_offset`, at which the last segment has `size` bytes, and remove
    files about later offsets. Runs before the truncation itself. Raises OSError, or CorruptionError
    with nothing changed."""
    if cut.last_changed >= end_offset:
        cut.segments[-1].size = size
        replay = ProducerReplay(
            files, cut.folder, snapshots=cut.snapshots, limits=cut.limits, wall_ms=cut.wall_ms
        )
        replay.load(end_offset, floor=cut.segments[0].base_offset)
        replay.catch_up(cut.segments, end_offset)
        cut.replayed = replay
    _store_known(files, cut, end_offset)
    # All snapshots above the end, listed or not: a remaining one would be loaded once the log has
    # grown again, with other contents, to its offset.
    found = ProducerFiles.among(files.names(cut.folder))
    above = [offset for offset in found.snapshots if offset > end_offset]
    remove_snapshots(files, cut.folder, above)
    stays = [entry for entry in cut.aborted if entry.last_offset < end_offset]
    if len(stays) < len(cut.aborted):
        # sometimes: a truncation removes an abort marker
        store_aborted(files, cut.folder, cut.segments[-1].base_offset, stays)
    if above or len(stays) < len(cut.aborted):
        files.sync_folder(cut.folder)


def _store_known(files: "Files", cut: ProducerTruncation, end_offset: int) -> None:
    """Store a snapshot of the new end. The older snapshots may lie far below, and the next removal
    of segments would leave a gap above them."""
    cut.is_stored = files.exists(snapshot_path(cut.folder, end_offset))
    if not cut.is_stored and cut.known is not None:
        replayed = cut.replayed
        known = cut.known if replayed is None else snapshot_of(replayed.states, end_offset)
        cut.is_stored = store_snapshot(files, cut.folder, replace(known, end_offset=end_offset))


def open_producers(
    files: "Files",
    folder: str,
    segments: Sequence[Segment],
    end_offset: int,
    *,
    found: ProducerFiles,
    limits: ProducerLimits,
    wall_ms: int,
) -> ProducerStateManager:
    """Open the state after a clean shutdown; reads no batch if the newest snapshot is at the log
    end."""
    snapshots = found.snapshots
    replay = ProducerReplay(files, folder, snapshots=snapshots, limits=limits, wall_ms=wall_ms)
    replay.load(end_offset, floor=segments[0].base_offset)
    if replay.start_offset < end_offset:
        replay.catch_up(segments, end_offset)
    stale = [offset for offset in snapshots if offset > end_offset]
    if stale:
        remove_snapshots(files, folder, stale)
        files.sync_folder(folder)
    aborted = load_aborted(
        files,
        folder,
        segments,
        end_offset,
        indexed=found.indexed,
        warnings=replay.warnings,
    )
    return ProducerStateManager(
        folder,
        states=replay.states,
        limits=limits,
        transactions=merge_index(aborted, replay.aborted),
        shelf=SnapshotRetention(
            [offset for offset in snapshots if offset <= end_offset],
            bases=[segment.base_offset for segment in segments],
        ),
        warnings=replay.warnings,
    )


def recover_producers(
    files: "Files",
    folder: str,
    replay: ProducerReplay,
    segments: Sequence[Segment],
    *,
    scanned_from: int,
    known_to: int,
    found: ProducerFiles,
    limits: ProducerLimits,
) -> ProducerStateManager:
    """Store the state found by a recovery that read the segments from `scanned_from`. All their
    batches went through `replay`, except those covered by a snapshot at `known_to`. The caller
    syncs the folder."""
    below = [segment for segment in segments if segment.base_offset < scanned_from]
    aborted = load_aborted(
        files,
        folder,
        below,
        scanned_from,
        indexed=found.indexed,
        warnings=replay.warnings,
    )
    for segment in segments[len(below) :]:
        base = segment.base_offset
        entries = replay.aborted.get(base, [])
        if base in found.indexed and base < replay.start_offset:
            entries = [*replay.indexed_below_start(segments, base), *entries]
        if entries or base in found.indexed:
            store_aborted(files, folder, base, entries)
        aborted[base] = entries
    return ProducerStateManager(
        folder,
        states=replay.states,
        limits=limits,
        transactions=TransactionIndex(aborted),
        shelf=replay.store_boundaries(
            known_to,
            bases=[segment.base_offset for segment in segments],
        ),
        warnings=replay.warnings,
    )
