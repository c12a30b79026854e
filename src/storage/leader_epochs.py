"""The leader epoch cache: leader epoch -> start offset, by which replicas find where they diverge.

One entry per epoch, both columns ascending. The entries follow from the batches of the log; the
checkpoint file only saves reading them again (KIP-101, KIP-279). The metadata log has its Raft
epochs here as well.
"""

from bisect import bisect_right
from collections.abc import Iterable

from ..ids import NO_EPOCH


class EpochCache:
    """The leader epochs of one log. Lookups are O(log n)."""

    __slots__ = ("_epochs", "_starts", "loaded")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self._epochs.append(epoch)
            self._starts.append(start)
        self.loaded = self.entries()  # the entries at construction

    @property
    def latest(self) -> int:
        """The newest epoch, -1 without entries."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset), ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that a batch of `epoch` starts at `start_offset`; return True if the epoch is new.

        Batches without an epoch (-1) are skipped.
        """
        if epoch == self.latest or epoch < 0:
            return False
        assert epoch > self.latest, f"epoch {epoch} at {start_offset} after epoch {self.latest}"
        if self._starts and self._starts[-1] == start_offset:
            # sometimes: an epoch without a batch is replaced
            del self._epochs[-1], self._starts[-1]  # no batch of that epoch is left
        if self._starts:
            assert start_offset > self._starts[-1], f"offset {start_offset} after {self._starts}"
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the batch with `offset`, -1 if it lies below the first entry."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest known epoch <= `epoch`, its end offset), the answer to
        OffsetsForLeaderEpoch.

        The end offset is the start of the next epoch, or the log end. Return (-1, -1) if `epoch` is
        newer than the latest one. For an epoch older than all entries, return the start of the
        first entry.
        """
        if epoch < 0 or epoch > self.latest:
            return (-1, -1)
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            # sometimes: an epoch below the log start is asked for
            return (epoch, self._starts[0])
        end = log_end_offset if at == len(self._starts) else self._starts[at]
        return (self._epochs[at - 1], end)

    def truncate_end(self, end_offset: int) -> bool:
        """Drop epochs that start at or after `end_offset`; return True if any was dropped."""
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= end_offset:
            kept -= 1
        dropped = kept < len(self._starts)
        # sometimes if len(self._starts) - kept > 1: several leader epochs are truncated
        del self._epochs[kept:], self._starts[kept:]
        return dropped

    def truncate_start(self, start_offset: int) -> bool:
        """Drop epochs that end at or below `start_offset`; the epoch that spans it then starts
        there."""
        at = bisect_right(self._starts, start_offset)
        if at == 0 or (at == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: at - 1], self._starts[: at - 1]
        self._starts[0] = start_offset
        return True

    def check_invariants(self, log_start_offset: int, log_end_offset: int) -> None:
        """Raise AssertionError unless this holds; cost O(epochs).

        4. Epochs and start offsets ascend. The last epoch starts below the log end, or at or below
           the log start.
        """
        epochs, starts = self._epochs, self._starts
        ascend = epochs == sorted(set(epochs)) and starts == sorted(set(starts))
        last = starts[-1] if starts else log_start_offset
        is_inside = last < log_end_offset or last <= log_start_offset
        # 4. Epochs and start offsets ascend. The last one starts in the log.
        is_sound = ascend and is_inside
        assert is_sound, (
            f"invariant 4: epochs {epochs} start at {starts}; the log spans"
            f" [{log_start_offset}, {log_end_offset})"
        )

    def clear(self) -> None:
        """Drop all entries."""
        self._epochs.clear()
        self._starts.clear()
