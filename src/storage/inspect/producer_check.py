"""Verification of a log's snapshots and transaction indexes against its batches.

The batches are replayed into the same `ProducerStates` that a log uses. A log without its first
segments starts from its oldest snapshot, once the scan reaches its offset; nothing is compared
before that. Idle time is ignored: a log drops idle producers, so a snapshot may lack some, but
never one with an open transaction.
"""

from typing import TYPE_CHECKING, Final

from ...errors import CorruptionError
from ..layout import SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX, join, segment_base, segment_file
from ..producer_snapshot import ProducerSnapshot, decode_snapshot
from ..producer_state import ProducerEntry, ProducerLimits, ProducerStates, StoredBatch
from ..small_files import read_file
from ..transaction_index import ENTRY_SIZE, AbortedTransaction, decode_aborted
from .findings import FindingKind, Findings
from .scan import ValidBatch

if TYPE_CHECKING:
    from ...runtime.ports import Files

PRODUCERS_MAX: Final = 100_000
"""Producers tracked at once; above it the longest idle ones are not compared."""


class ProducerCheck:
    """Tracks the producers of one log."""

    def __init__(
        self, files: "Files", folder: str, names: list[str], *, first: int, is_compacted: bool
    ) -> None:
        self._files = files
        self._folder = folder
        self._names = frozenset(names)
        self._is_compacted = is_compacted
        self._is_blind = False  # a batch is missing, so nothing after it can be compared
        self._is_whole = first == 0  # everything since the log's first offset was seen
        self._first = first
        self._states = ProducerStates(ProducerLimits(producers_max=PRODUCERS_MAX), wall_ms=0)
        self._aborted: list[AbortedTransaction] = []  # in the current segment
        offsets = (segment_base(name, SNAPSHOT_SUFFIX) for name in names)
        self._snapshots = sorted(offset for offset in offsets if offset is not None)

    def good(self, good: ValidBatch, findings: Findings) -> str | None:
        """Process the next batch; return the fault of its sequence or marker, None without one."""
        header = good.header
        if self._snapshots and self._snapshots[0] <= header.base_offset:
            self._meet(header.base_offset, findings)
        if header.producer_id < 0 or self._is_blind:
            return None
        batch = memoryview(good.content)[good.at : good.at + header.size]
        try:
            ended = self._states.replay(batch, header)
        except CorruptionError as error:
            self._is_blind = True
            return error.message
        self._aborted += [
            AbortedTransaction(
                one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset
            )
            for one in ended
            if one.is_aborted
        ]
        return None

    def bad(self) -> None:
        """Mark everything from here on as incomplete."""
        self._is_blind = True

    # --- transaction indexes -------------------------------------------------------------------

    def end_segment(self, base_offset: int, end_offset: int, findings: Findings) -> None:
        """Compare the transaction index of the finished segment: one entry for each abort in it."""
        expected, self._aborted = self._aborted, []
        name = segment_file(base_offset, TXN_INDEX_SUFFIX)
        path = join(self._folder, name)
        found: list[AbortedTransaction] = []
        if name in self._names:
            try:
                content = read_file(self._files, path)
                found = decode_aborted(
                    content, path, base_offset=base_offset, end_offset=max(end_offset, base_offset)
                )
            except CorruptionError as error:
                findings.add(
                    FindingKind.TRANSACTION_INDEX_WRONG,
                    path,
                    error.message,
                    position=error.position,
                )
                return
        if not self._is_blind:
            self._compare_aborted(path, found, expected, findings)

    def skip_segment(self) -> None:
        """Skip the transaction index of the finished segment, which the next start rebuilds."""
        self._aborted = []

    def _compare_aborted(
        self,
        path: str,
        found: list[AbortedTransaction],
        expected: list[AbortedTransaction],
        findings: Findings,
    ) -> None:
        there = {entry.last_offset: entry for entry in found}
        for entry in expected:
            said = there.pop(entry.last_offset, None)
            if said == entry or (said is not None and self._is_explained(said, entry)):
                continue
            what = f"it has {said}, the batches have {entry}" if said else f"it lacks {entry}"
            at = found.index(said) * ENTRY_SIZE if said else None
            findings.add(
                FindingKind.TRANSACTION_INDEX_WRONG,
                path,
                what,
                position=at,
                offset=entry.last_offset,
            )
        for said in there.values():
            if self._is_compacted or said.first_offset < self._first:
                continue  # its records or its marker are removed
            findings.add(
                FindingKind.TRANSACTION_INDEX_WRONG,
                path,
                f"it has {said}, but no marker in the segment aborts that transaction",
                position=found.index(said) * ENTRY_SIZE,
                offset=said.last_offset,
            )

    def _is_explained(self, said: AbortedTransaction, entry: AbortedTransaction) -> bool:
        """Return True if records that are removed explain the difference of two entries with the
        same marker: those before the log start, or the first ones of a transaction."""
        if said.producer_id != entry.producer_id:
            return False
        if self._is_compacted:
            return said.first_offset <= entry.first_offset
        return not self._is_whole and said.first_offset == entry.first_offset

    # --- snapshots -----------------------------------------------------------------------------

    def end(self, end_offset: int, findings: Findings) -> None:
        """Finish at the end of the log; the next start removes snapshots above it."""
        self._meet(end_offset, findings)
        for offset in self._snapshots:
            path = join(self._folder, segment_file(offset, SNAPSHOT_SUFFIX))
            what = f"the log ends at {end_offset}"
            findings.add(FindingKind.SNAPSHOT_STALE, path, what, offset=offset)

    def _meet(self, offset: int, findings: Findings) -> None:
        """Compare the snapshots up to `offset`, after all batches below it were seen."""
        while self._snapshots and self._snapshots[0] <= offset:
            end = self._snapshots.pop(0)
            path = join(self._folder, segment_file(end, SNAPSHOT_SUFFIX))
            try:
                snapshot = decode_snapshot(read_file(self._files, path), path, end_offset=end)
            except CorruptionError as error:
                findings.add(FindingKind.SNAPSHOT_WRONG, path, error.message, offset=end)
                continue
            if self._is_blind:
                continue
            if end < self._first:
                continue  # the batches between it and the first segment are removed
            if not self._is_whole:
                self._start_with(snapshot)
                continue
            if end < offset and self._states.last_changed >= end:
                findings.add(
                    FindingKind.SNAPSHOT_WRONG, path, "no batch ends at its offset", offset=end
                )
                continue
            wrong = self._contradiction(snapshot)
            if wrong is not None:
                findings.add(FindingKind.SNAPSHOT_WRONG, path, wrong, offset=end)

    def _start_with(self, snapshot: ProducerSnapshot) -> None:
        self._states.load(
            snapshot.entries,
            unreplicated=snapshot.unreplicated,
            age_ms=snapshot.age_ms,
            end_offset=snapshot.end_offset,
        )
        self._is_whole = True

    def _contradiction(self, snapshot: ProducerSnapshot) -> str | None:
        """Return the first contradiction between a snapshot and the batches below it, None without
        one."""
        said = dict(snapshot.entries)
        for producer_id, entry in said.items():
            seen = self._states.entry(producer_id)
            if self._is_compacted and (seen is None or _is_later(entry, seen)):
                continue  # compaction removed batches or markers since
            if seen is None:
                return f"it has producer {producer_id}, which has no batch"
            if _last(entry) != _last(seen):
                return (
                    f"producer {producer_id} has (epoch, transaction, last batch)"
                    f" {_last(entry)} in the snapshot, {_last(seen)} in the batches"
                )
        for producer_id, seen in self._states.entries():
            if seen.transaction_start >= 0 and producer_id not in said:
                return f"it lacks producer {producer_id} with its open transaction"
        return None


def _last(entry: ProducerEntry) -> tuple[int, int, StoredBatch | None]:
    """Return the fields that two views of a producer must share. The time of its last batch is
    excluded: Kafka's snapshots have the time of a later marker instead, if there is one."""
    batch = entry.batches[-1]._replace(timestamp=0) if entry.batches else None
    return entry.epoch, entry.transaction_start, batch


def _is_later(entry: ProducerEntry, seen: ProducerEntry) -> bool:
    """Return True if `seen` can be `entry` without removed batches and markers. A marker is removed
    after the batches of its transaction."""
    epoch, start, batch = _last(entry)
    seen_epoch, seen_start, seen_batch = _last(seen)
    if seen_start >= 0 and not 0 <= start <= seen_start:
        return False
    if epoch != seen_epoch or seen_batch is None:
        return epoch >= seen_epoch
    return batch is not None and (batch == seen_batch or batch.last_offset > seen_batch.last_offset)
