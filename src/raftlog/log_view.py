"""The consensus core's view of the log: batch boundaries, epochs and sizes, without payloads.

It is pure and held in memory; the shell stores the bytes. An entry is one record batch: its index
is the offset of its first record, its term the batch's leader epoch. Replication, truncation and
commit never split a batch, so the view stores batch boundaries (16 bytes per batch).
"""

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..ids import Epoch, Offset
from .voters import VoterSet


class EntryKind(StrEnum):
    """The content of a batch."""

    DATA = "data"  # proposed values
    LEADER_CHANGE = "leader_change"  # the no-op that opens a leader's epoch (Raft §5.4.2, §8)
    VOTERS = "voters"  # a new voter set, in force once appended (KIP-853)


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """The end of a log, ordered as the up-to-date rule orders logs (Raft §5.4.1).

    As `prev` of an append request it is the offset before the first entry and the epoch of the
    batch that ends there; (0, 0) at the start of the log.
    """

    epoch: Epoch  # of the last batch
    offset: Offset  # log end offset


LOG_START: Final = LogEnd(Epoch(0), Offset(0))
"""The start of a log from which nothing was removed."""


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """The id of a snapshot of the state after [0, end_offset) (KIP-630)."""

    end_offset: Offset  # exclusive, a batch boundary
    epoch: Epoch  # of the last batch below it

    @property
    def log_end(self) -> LogEnd:
        """The log position of the snapshot's end."""
        return LogEnd(self.epoch, self.end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One batch that is appended to the log."""

    kind: EntryKind
    epoch: Epoch
    base_offset: Offset
    count: int  # records, >= 1
    payload: bytes  # the stored batch, stamped with base offset and epoch
    voters: VoterSet | None = None  # of a VOTERS entry

    @property
    def next_offset(self) -> Offset:
        """The offset after its last record."""
        return Offset(self.base_offset + self.count)

    @property
    def size(self) -> int:
        """The size of the batch in bytes."""
        return len(self.payload)


class LogView:
    """The batches of [start_offset, end_offset), with their epochs and sizes."""

    __slots__ = ("_bases", "_epochs", "_positions", "_size", "end_offset", "start")

    def __init__(self, start: LogEnd = LOG_START) -> None:
        """Start empty at `start`, whose epoch is that of the last batch in the snapshot below."""
        self.start = start
        self.end_offset = start.offset
        self._bases = array("q")  # base offset of every batch, ascending
        self._positions = array("q")  # start of every batch in bytes from a fixed origin
        self._size = 0  # the position after the last batch
        self._epochs: list[tuple[Epoch, Offset]] = []  # (epoch, its first offset), both ascending

    @property
    def start_offset(self) -> Offset:
        """The base offset of the first batch."""
        return self.start.offset

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last batch, in the log or below it in a snapshot; 0 if there is none."""
        return self._epochs[-1][0] if self._epochs else self.start.epoch

    @property
    def end(self) -> LogEnd:
        """The last epoch and the end offset."""
        return LogEnd(self.last_epoch, self.end_offset)

    def append(self, base_offset: Offset, next_offset: Offset, epoch: Epoch, size: int) -> None:
        """Append the batch [base_offset, next_offset) of `size` bytes."""
        assert base_offset == self.end_offset, f"batch at {base_offset}, log end {self.end_offset}"
        assert next_offset > base_offset, f"empty batch at {base_offset}"
        assert epoch >= self.last_epoch, f"epoch {epoch} after epoch {self.last_epoch}"
        if not self._epochs or epoch > self._epochs[-1][0]:
            self._epochs.append((epoch, base_offset))
        self._bases.append(base_offset)
        self._positions.append(self._size)
        self._size += size
        self.end_offset = next_offset

    def truncate_to(self, offset: Offset) -> None:
        """Remove everything from a batch boundary on; `offset` becomes the end."""
        assert self.is_boundary(offset), f"offset {offset} is inside a batch"
        index = self._index_from(offset)
        if index < len(self._bases):
            self._size = self._positions[index]
            del self._bases[index:], self._positions[index:]
        while self._epochs and self._epochs[-1][1] >= offset:
            self._epochs.pop()
        self.end_offset = offset

    def clean_to(self, start: LogEnd) -> None:
        """Remove everything below a batch boundary, at which a snapshot ends."""
        assert self.is_boundary(start.offset), f"offset {start.offset} is inside a batch"
        assert self.epoch_before(start.offset) == start.epoch, f"{start} is of another epoch"
        index = self._index_from(start.offset)
        del self._bases[:index], self._positions[:index]
        while len(self._epochs) > 1 and self._epochs[1][1] <= start.offset:
            self._epochs.pop(0)
        if self._epochs:
            if self._bases:
                self._epochs[0] = (self._epochs[0][0], max(self._epochs[0][1], start.offset))
            else:
                self._epochs.clear()
        self.start = start

    def reset(self, start: LogEnd) -> None:
        """Become empty at a snapshot's end."""
        del self._bases[:], self._positions[:]
        self._epochs.clear()
        self.start, self.end_offset = start, start.offset

    def is_boundary(self, offset: Offset) -> bool:
        """Return True if a batch begins at the offset, or the log ends there."""
        if offset == self.end_offset:
            return True
        index = self._index_from(offset)
        return index < len(self._bases) and self._bases[index] == offset

    def boundary_at_or_below(self, offset: Offset) -> Offset:
        """Return the last batch boundary <= offset; offset is in [start_offset, end_offset]."""
        assert self.start_offset <= offset <= self.end_offset, f"offset {offset} outside the log"
        if offset == self.end_offset:
            return offset
        return Offset(self._bases[bisect_right(self._bases, offset) - 1])

    def range_end(self, start_offset: Offset, *, bytes_max: int) -> tuple[Offset, int]:
        """Return the end and the size of the batches from a boundary on, limited to `bytes_max`
        bytes or one larger batch. Return (start_offset, 0) at the end of the log."""
        first = self._index_from(start_offset)
        if first == len(self._bases):
            return start_offset, 0
        begin = self._positions[first]
        if self._size - begin <= bytes_max:
            return self.end_offset, self._size - begin
        index = max(first + 1, bisect_right(self._positions, begin + bytes_max) - 1)
        if index == len(self._bases):
            return self.end_offset, self._size - begin
        return Offset(self._bases[index]), self._positions[index] - begin

    def bytes_between(self, start_offset: Offset, end_offset: Offset) -> int:
        """Return the size of the batches of [start, end), both boundaries; removed batches count
        0."""
        return max(0, self._position_of(end_offset) - self._position_of(start_offset))

    def epoch_at(self, offset: Offset) -> Epoch:
        """Return the epoch of the batch with the offset; offset is in [start_offset,
        end_offset)."""
        assert self.start_offset <= offset < self.end_offset, f"offset {offset} outside the log"
        return self._epochs[bisect_right(self._epochs, offset, key=_start) - 1][0]

    def epoch_before(self, offset: Offset) -> Epoch:
        """Return the epoch of the batch that ends at the offset; offset is in [start_offset,
        end_offset]."""
        if offset == self.start.offset:
            return self.start.epoch
        return self.epoch_at(Offset(offset - 1))

    def end_offset_for(self, epoch: Epoch) -> LogEnd:
        """Return the largest epoch <= `epoch` in the log and the end offset of its batches.

        Return the log's start if every batch has a later epoch (KIP-595's diverging epoch).
        """
        index = bisect_right(self._epochs, epoch, key=_epoch)
        if index == 0:
            return self.start
        end = self._epochs[index][1] if index < len(self._epochs) else self.end_offset
        return LogEnd(self._epochs[index - 1][0], end)

    def check_invariants(self) -> None:
        """Check the order of start, end and epochs. Cost O(1)."""
        assert self.start.offset <= self.end_offset, f"{self.start} > {self.end_offset}"
        assert (len(self._bases) == 0) == (self.start.offset == self.end_offset)
        assert not self._bases or self._bases[-1] < self.end_offset
        assert not self._epochs or self._epochs[-1][1] < self.end_offset
        assert not self._epochs or self._epochs[0][0] >= self.start.epoch

    def _position_of(self, offset: Offset) -> int:
        index = self._index_from(offset)
        return self._positions[index] if index < len(self._positions) else self._size

    def _index_from(self, offset: Offset) -> int:
        """Return the index of the first batch whose base offset is at or above the offset."""
        return bisect_right(self._bases, offset - 1)


def _epoch(start: tuple[Epoch, Offset]) -> Epoch:
    return start[0]


def _start(start: tuple[Epoch, Offset]) -> Offset:
    return start[1]
