"""Counting on hot paths: whole numbers, no labels, no locks, no clock of its own.

A counter is an `int` attribute of whoever counts. What needs more than that is here. One owner
writes, on the loop; whoever looks reads between two turns.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

LATENCY_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Bounds for what a caller waits for, in milliseconds: the clock counts no finer."""

STALL_MS: Final = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Bounds for how long a loop kept everybody waiting, in milliseconds."""


class Histogram:
    """How often whole numbers of which size were seen; an observation takes half a microsecond."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        """`bounds` ascend; value v counts for the first bound >= v, or for the rest beyond."""
        assert list(bounds) == sorted(set(bounds)), f"bounds {bounds} do not ascend"
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)  # by bound, the last one beyond all of them
        self.total = 0  # the sum of all values

    def observe(self, value: int) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> "Histogram":
        """What it stands at now."""
        copied = Histogram.__new__(Histogram)
        copied.bounds, copied.counts, copied.total = self.bounds, list(self.counts), self.total
        return copied

    @property
    def count(self) -> int:
        """Values seen."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[int | None, int]]:
        """Yield each bound with how many values were at or below it; None: all of them."""
        seen = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            seen += count
            yield bound, seen


class Recent:
    """The largest of what was seen within a window that slides in steps.

    A maximum since the start says nothing of today, and one since the last look is lost on a second
    observer; this one forgets by the clock alone.
    """

    __slots__ = ("_slots", "_step_ms", "_steps")

    def __init__(self, *, window_ms: int, steps: int = 6) -> None:
        """What is older than `window_ms` is forgotten, a step of it sooner at most."""
        assert window_ms >= steps >= 1, f"window of {window_ms} ms in {steps} steps"
        self._step_ms = window_ms // steps
        self._steps = steps
        self._slots: dict[int, int] = {}  # the largest of each step with a value; oldest first

    def observe(self, value: int, now_ms: int) -> None:
        """Take a value; the clock does not go back."""
        step = now_ms // self._step_ms
        if value > self._slots.get(step, -1):
            self._slots[step] = value
        self._forget(step)

    def largest(self, now_ms: int) -> int:
        """The largest value within the window, 0 where there was none."""
        self._forget(now_ms // self._step_ms)
        return max(self._slots.values(), default=0)

    def _forget(self, step: int) -> None:
        while self._slots and (oldest := next(iter(self._slots))) <= step - self._steps:
            del self._slots[oldest]
