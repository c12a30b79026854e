"""The log as consensus sees it: where batches begin and which epoch wrote them, without a byte.

Held in memory and pure; the bytes are the shell's. An entry is one record batch: its index is the
offset of its first record, its term the batch's leader epoch. Replication, truncation and commit
never split a batch, hence the batch boundaries (8 bytes a batch).
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..ids import Epoch, Offset


class EntryKind(StrEnum):
    """What a batch holds."""

    DATA = "data"  # values of proposals
    LEADER_CHANGE = "leader_change"  # the no-op that opens a leader's epoch (Raft §5.4.2, §8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One batch on its way into the log."""

    kind: EntryKind
    epoch: Epoch
    base_offset: Offset
    count: int  # records, >= 1
    size: int  # bytes that it counts for in the bound on uncommitted bytes
    payload: bytes  # the encoded batch without its stamp; empty for LEADER_CHANGE: the shell's

    @property
    def next_offset(self) -> Offset:
        """Offset after its last record."""
        return Offset(self.base_offset + self.count)


class LogView:
    """Batches of [start_offset, end_offset) and the epoch of each."""

    __slots__ = ("_bases", "_epochs", "end_offset", "start_offset")

    def __init__(self, start_offset: Offset) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._bases = array("q")  # base offset of every batch, ascending
        self._epochs: list[tuple[Epoch, Offset]] = []  # (epoch, its first offset), both ascending

    @classmethod
    def of(cls, start_offset: Offset, batches: Iterable[tuple[Offset, Offset, Epoch]]) -> "LogView":
        """Build from (base offset, next offset, epoch) of every batch in order."""
        view = cls(start_offset)
        for base_offset, next_offset, epoch in batches:
            view.append(base_offset, next_offset, epoch)
        return view

    @property
    def last_epoch(self) -> Epoch:
        """Epoch of the last batch, 0 when the log is empty."""
        return self._epochs[-1][0] if self._epochs else Epoch(0)

    def append(self, base_offset: Offset, next_offset: Offset, epoch: Epoch) -> None:
        """Add the batch [base_offset, next_offset) at the end."""
        assert base_offset == self.end_offset, f"batch at {base_offset}, log end {self.end_offset}"
        assert next_offset > base_offset, f"empty batch at {base_offset}"
        assert epoch >= self.last_epoch, f"epoch {epoch} after epoch {self.last_epoch}"
        if not self._epochs or epoch > self._epochs[-1][0]:
            self._epochs.append((epoch, base_offset))
        self._bases.append(base_offset)
        self.end_offset = next_offset

    def truncate_to(self, offset: Offset) -> None:
        """Drop everything from a batch boundary on; `offset` becomes the end."""
        assert self.is_boundary(offset), f"offset {offset} is inside a batch"
        del self._bases[self._index_from(offset) :]
        while self._epochs and self._epochs[-1][1] >= offset:
            self._epochs.pop()
        self.end_offset = offset

    def is_boundary(self, offset: Offset) -> bool:
        """Whether a batch begins at the offset, or the log ends there."""
        if offset == self.end_offset:
            return True
        index = self._index_from(offset)
        return index < len(self._bases) and self._bases[index] == offset

    def boundary_at_or_below(self, offset: Offset) -> Offset:
        """The last batch boundary <= offset; offset is in [start_offset, end_offset]."""
        assert self.start_offset <= offset <= self.end_offset, f"offset {offset} outside the log"
        if offset == self.end_offset:
            return offset
        return Offset(self._bases[bisect_right(self._bases, offset) - 1])

    def epoch_at(self, offset: Offset) -> Epoch:
        """Epoch of the batch that holds the offset; offset is in [start_offset, end_offset)."""
        assert self.start_offset <= offset < self.end_offset, f"offset {offset} outside the log"
        return self._epochs[bisect_right(self._epochs, offset, key=_start) - 1][0]

    def end_offset_for(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """Return the largest epoch <= `epoch` in the log and the end offset of its batches.

        (0, start_offset) when every batch is of a later epoch (KIP-595's diverging epoch).
        """
        index = bisect_right(self._epochs, epoch, key=_epoch)
        if index == 0:
            return Epoch(0), self.start_offset
        end = self._epochs[index][1] if index < len(self._epochs) else self.end_offset
        return self._epochs[index - 1][0], end

    def check_invariants(self) -> None:
        """Cheap part: order of start, end and epochs."""
        assert self.start_offset <= self.end_offset, f"{self.start_offset} > {self.end_offset}"
        assert (len(self._bases) == 0) == (self.start_offset == self.end_offset)
        assert not self._bases or self._bases[-1] < self.end_offset
        assert not self._epochs or self._epochs[-1][1] < self.end_offset

    def _index_from(self, offset: Offset) -> int:
        """Index of the first batch whose base is at or above the offset."""
        return bisect_right(self._bases, offset - 1)


def _epoch(start: tuple[Epoch, Offset]) -> Epoch:
    return start[0]


def _start(start: tuple[Epoch, Offset]) -> Offset:
    return start[1]
