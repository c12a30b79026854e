"""Rebuilding the producer state of a log from a snapshot and the batches after it.

Reads headers, and of the batches only markers. A torn or damaged snapshot is skipped in favour of
an older one. Without any snapshot the state comes from the remaining batches: producers without a
remaining batch are unknown then. Runs in the write lane.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import CorruptionError
from ..records.batch import NO_PRODUCER, BatchHeader
from .producer_snapshot import (
    KEPT,
    Shelf,
    Snapshot,
    read_snapshot,
    remove_snapshots,
    store_snapshot,
)
from .producer_state import NONE, ProducerLimits, ProducerStates
from .segment import Segment, walk
from .transaction_index import AbortedTransaction, TransactionIndex, read_aborted, store_aborted

if TYPE_CHECKING:
    from ..runtime.ports import File, Files


class Replay:
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
        self._boundaries: list[Snapshot] = []  # at the starts of segments, newest last

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
            replay = Replay(
                self._files, self._folder, snapshots=(), limits=ProducerLimits(), wall_ms=0
            )
            replay.catch_up(segments, self.start_offset)
            found = replay.aborted
        return [
            entry for entry in found.get(base_offset, ()) if entry.last_offset < self.start_offset
        ]

    def store_boundaries(self, ceiling: int, *, bases: Sequence[int] = ()) -> Shelf:
        """Store the snapshots of the replayed segments and remove all others above `ceiling`, which
        may describe removed batches. The caller syncs the folder after removals."""
        stays = [offset for offset in self._snapshots if offset <= ceiling]
        new = {snapshot.end_offset for snapshot in self._boundaries}
        stale = [offset for offset in self._snapshots if offset > ceiling and offset not in new]
        remove_snapshots(self._files, self._folder, stale)
        shelf = Shelf(stays, bases=bases)
        for snapshot in self._boundaries:
            gone = shelf.put(snapshot.end_offset)
            if not store_snapshot(self._files, self._folder, snapshot, gone=gone):
                shelf.take_back([snapshot.end_offset], gone)
        return shelf


def snapshot_of(states: ProducerStates, end_offset: int) -> Snapshot:
    """Return a snapshot of the current state, as of `end_offset`."""
    return Snapshot(
        end_offset=end_offset,
        entries=tuple(states.entries()),
        unreplicated=tuple(states.unreplicated()),
        age_ms=states.age_ms,
    )


def aborted_of_segments(
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
    replay = Replay(files, folder, snapshots=(), limits=ProducerLimits(), wall_ms=0)
    replay.catch_up(segments, end_offset)
    for segment in segments:
        base = segment.base_offset
        store_aborted(files, folder, base, replay.aborted.get(base, ()))
    files.sync_folder(folder)
    return replay.aborted


def merged(
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
