"""The producer state of one log: states, aborted transactions, snapshots.

The log reports every step that concerns producers. The manager returns the data that the next flush
must store or a truncation must rebuild; the lane does that work. Owned by the loop thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .layout import SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX, segment_base
from .producer_replay import Replay, aborted_of_segments, merged, snapshot_of
from .producer_snapshot import BASES_KEPT, Shelf, Snapshot, remove_snapshots, store_snapshot
from .producer_snapshot import path_of as snapshot_path
from .producer_state import Changes, ProducerLimits, ProducerStates
from .segment import Segment
from .transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    Unstored,
    append_aborted,
    store_aborted,
)

if TYPE_CHECKING:
    from ..runtime.ports import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFlush:
    """The producer data stored by a flush, besides batches."""

    folder: str
    snapshots: tuple[Snapshot, ...]
    gone: tuple[int, ...]  # offsets of snapshots that it makes redundant
    aborted: tuple[Unstored, ...]
    # set by the lane if the disk was full
    missing: list[Snapshot] = field(default_factory=list, init=False)


@dataclass(slots=True, kw_only=True)
class ProducerCut:
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
    known: Snapshot | None
    replayed: Replay | None = field(default=None, init=False)
    is_stored: bool = field(default=False, init=False)  # a snapshot of the new end exists


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The producer files in a log's folder."""

    snapshots: tuple[int, ...]  # end offsets
    indexed: frozenset[int]  # base offsets of segments with a .txnindex

    @staticmethod
    def among(names: Sequence[str]) -> "FoundFiles":
        """Collect the producer files among the names in the folder."""
        snapshots = (segment_base(name, SNAPSHOT_SUFFIX) for name in names)
        indexed = (segment_base(name, TXN_INDEX_SUFFIX) for name in names)
        return FoundFiles(
            tuple(offset for offset in snapshots if offset is not None),
            frozenset(base for base in indexed if base is not None),
        )


class ProducerBook:
    """The producer states of one log, in memory and on the disk."""

    __slots__ = (
        "_begun",
        "_folder",
        "_limits",
        "_rolled",
        "_shelf",
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
        shelf: Shelf | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.states = states
        self.transactions = transactions or TransactionIndex()
        self.warnings = tuple(warnings)  # snapshots and indexes skipped by the opening
        self._folder = folder
        self._limits = limits
        self._shelf = shelf or Shelf()
        self._rolled: list[Snapshot] = []  # to be stored by the next flush
        self._begun: ProducerFlush | None = None  # begun, not completed

    @staticmethod
    def empty(
        folder: str, *, limits: ProducerLimits | None = None, wall_ms: int = 0
    ) -> "ProducerBook":
        """Return the manager of an empty log."""
        limits = limits or ProducerLimits()
        return ProducerBook(folder, states=ProducerStates(limits, wall_ms=wall_ms), limits=limits)

    @property
    def snapshot_offsets(self) -> list[int]:
        """End offsets of the stored snapshots, ascending; one may be missing after the disk was
        full."""
        return list(self._shelf.offsets)

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

    def rolled(self, end_offset: int) -> None:
        """Snapshot the state at a roll, with no write outstanding, so that no recovery has to read
        below the log end."""
        self._shelf.rolled(end_offset)
        snapshot = snapshot_of(self.states, end_offset)
        self._rolled = [*self._rolled, snapshot][-BASES_KEPT:]

    # --- flush ---------------------------------------------------------------------------------

    def begin_flush(self, end_offset: int, *, is_last: bool) -> ProducerFlush | None:
        """Return the data that the flush up to `end_offset` stores, None without any. `is_last`:
        the log is about to be closed with no write outstanding, so the state is snapshotted and the
        next opening reads no batch."""
        self._put_off()
        stored = self._shelf.offsets
        snapshots, self._rolled = [s for s in self._rolled if s.end_offset not in stored], []
        there = {*stored, *(snapshot.end_offset for snapshot in snapshots)}
        if is_last and end_offset not in there:
            snapshots.append(snapshot_of(self.states, end_offset))
        aborted = self.transactions.unstored()
        if not snapshots and not aborted:
            return None
        gone: list[int] = []
        for snapshot in snapshots:
            gone += self._shelf.put(snapshot.end_offset, replicated_to=self.states.high_watermark)
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

    def _store_later(self, snapshots: Sequence[Snapshot], gone: Sequence[int]) -> None:
        """Keep snapshots that were not stored for the next flush, and those that they would have
        replaced."""
        if snapshots:
            self._shelf.take_back([one.end_offset for one in snapshots], gone)
            self._rolled = [*snapshots, *self._rolled][-BASES_KEPT:]

    # --- truncate ------------------------------------------------------------------------------

    def begin_truncate(self, segments: Sequence[Segment]) -> ProducerCut:
        """Plan a truncation of the last of these segments; the segments above it are removed."""
        self._put_off()
        return ProducerCut(
            folder=self._folder,
            limits=self._limits,
            wall_ms=self.states.wall_ms,
            last_changed=self.states.last_changed,
            snapshots=tuple(self._shelf.offsets),
            segments=tuple(Segment(one.folder, one.base_offset, size=one.size) for one in segments),
            aborted=self.transactions.of_segment(segments[-1].base_offset),
            known=None if self.transactions.unstored() else snapshot_of(self.states, end_offset=0),
        )

    def complete_truncate(self, cut: ProducerCut, end_offset: int) -> None:
        """Apply a truncation and the state rebuilt for it."""
        bases = [segment.base_offset for segment in cut.segments]
        self._shelf = Shelf(
            [at for at in self._shelf.offsets if at <= end_offset],
            bases=bases,
        )
        self.transactions.truncate(end_offset)
        if cut.replayed is not None:
            cut.replayed.states.keep_unreplicated(self.states)
            self.states = cut.replayed.states
        self._rolled = [one for one in self._rolled if one.end_offset < end_offset]
        if cut.is_stored:
            self._shelf.offsets = sorted({*self._shelf.offsets, end_offset})
        else:
            self._rolled = [*self._rolled, snapshot_of(self.states, end_offset)][-BASES_KEPT:]

    def removed(self, log_start_offset: int) -> None:
        """Drop the transaction index of segments removed below the new log start. Producer state
        stays until it expires: batches may still be retried (R22)."""
        self.transactions.remove_below(log_start_offset)

    def replaced(
        self, sources: Sequence[int], base_offset: int, aborted: Sequence[AbortedTransaction]
    ) -> None:
        """Replace the transaction index of cleaned segments by `aborted`, that of the segment in
        their place."""
        self.transactions.replace(sources, base_offset, aborted)


# --- in the write lane -------------------------------------------------------------------------


def store_producers(files: "Files", flush: ProducerFlush) -> None:
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


def cut_producers(files: "Files", cut: ProducerCut, *, size: int, end_offset: int) -> None:
    """Rebuild the state below `end_offset`, at which the last segment has `size` bytes, and remove
    files about later offsets. Runs before the truncation itself. Raises OSError, or CorruptionError
    with nothing changed."""
    if cut.last_changed >= end_offset:
        cut.segments[-1].size = size
        replay = Replay(
            files, cut.folder, snapshots=cut.snapshots, limits=cut.limits, wall_ms=cut.wall_ms
        )
        replay.load(end_offset, floor=cut.segments[0].base_offset)
        replay.catch_up(cut.segments, end_offset)
        cut.replayed = replay
    _store_known(files, cut, end_offset)
    # All snapshots above the end, listed or not: a remaining one would be loaded once the log has
    # grown again, with other contents, to its offset.
    found = FoundFiles.among(files.names(cut.folder))
    above = [offset for offset in found.snapshots if offset > end_offset]
    remove_snapshots(files, cut.folder, above)
    stays = [entry for entry in cut.aborted if entry.last_offset < end_offset]
    if len(stays) < len(cut.aborted):
        store_aborted(files, cut.folder, cut.segments[-1].base_offset, stays)
    if above or len(stays) < len(cut.aborted):
        files.sync_folder(cut.folder)


def _store_known(files: "Files", cut: ProducerCut, end_offset: int) -> None:
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
    found: FoundFiles,
    limits: ProducerLimits,
    wall_ms: int,
) -> ProducerBook:
    """Open the state after a clean shutdown; reads no batch if the newest snapshot is at the log
    end."""
    snapshots = found.snapshots
    replay = Replay(files, folder, snapshots=snapshots, limits=limits, wall_ms=wall_ms)
    replay.load(end_offset, floor=segments[0].base_offset)
    if replay.start_offset < end_offset:
        replay.catch_up(segments, end_offset)
    stale = [offset for offset in snapshots if offset > end_offset]
    if stale:
        remove_snapshots(files, folder, stale)
        files.sync_folder(folder)
    aborted = aborted_of_segments(
        files,
        folder,
        segments,
        end_offset,
        indexed=found.indexed,
        warnings=replay.warnings,
    )
    return ProducerBook(
        folder,
        states=replay.states,
        limits=limits,
        transactions=merged(aborted, replay.aborted),
        shelf=Shelf(
            [offset for offset in snapshots if offset <= end_offset],
            bases=[segment.base_offset for segment in segments],
        ),
        warnings=replay.warnings,
    )


def recovered_producers(
    files: "Files",
    folder: str,
    replay: Replay,
    segments: Sequence[Segment],
    *,
    scanned_from: int,
    known_to: int,
    found: FoundFiles,
    limits: ProducerLimits,
) -> ProducerBook:
    """Store the state found by a recovery that read the segments from `scanned_from`. All their
    batches went through `replay`, except those covered by a snapshot at `known_to`. The caller
    syncs the folder."""
    below = [segment for segment in segments if segment.base_offset < scanned_from]
    aborted = aborted_of_segments(
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
    return ProducerBook(
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
