"""Counters for hot paths: integers, without labels, locks or a clock.

A plain counter is an `int` attribute of its owner; this module has the other instruments. Only the
owner writes, on the event loop; a scrape reads between two iterations of it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

LATENCY_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Bucket bounds for waits of callers, in milliseconds, the resolution of the clock."""

STALL_MS: Final = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Bucket bounds for stalls of the event loop, in milliseconds."""


class Histogram:
    """Counts integers by size; an observation takes half a microsecond."""

    __slots__ = ("_lowest", "bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        """`bounds` ascend; value v counts in the bucket of the first bound >= v, or in the last
        bucket."""
        assert list(bounds) == sorted(set(bounds)), f"bounds {bounds} do not ascend"
        self.bounds = tuple(bounds)
        self._lowest = self.bounds[0]
        self.counts = [0] * (len(bounds) + 1)  # by bucket; the last one is unbounded
        self.total = 0  # the sum of all values

    def observe(self, value: int, count: int = 1) -> None:
        """Count a value `count` times."""
        if value <= self._lowest:  # the usual case
            self.counts[0] += count
        else:
            self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def copy(self) -> "Histogram":
        """Return a copy of the current state."""
        copied = Histogram.__new__(Histogram)
        copied.bounds, copied._lowest = self.bounds, self._lowest
        copied.counts, copied.total = list(self.counts), self.total
        return copied

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[int | None, int]]:
        """Yield each bound and the number of values at or below it; None: all values."""
        seen = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            seen += count
            yield bound, seen


class Recent:
    """The maximum of the values of a sliding window.

    A maximum since the start is useless after a day, and one since the last scrape is wrong with
    two observers; this one depends on the clock alone.
    """

    __slots__ = ("_slots", "_step_ms", "_steps")

    def __init__(self, *, window_ms: int, steps: int = 6) -> None:
        """Values older than `window_ms` are dropped, up to one step earlier."""
        assert window_ms >= steps >= 1, f"window of {window_ms} ms in {steps} steps"
        self._step_ms = window_ms // steps
        self._steps = steps
        self._slots: dict[int, int] = {}  # maximum of each step that has values; oldest first

    def observe(self, value: int, now_ms: int) -> None:
        """Record a value; the clock must not go back."""
        step = now_ms // self._step_ms
        if value > self._slots.get(step, -1):
            self._slots[step] = value
        self._forget(step)

    def largest(self, now_ms: int) -> int:
        """Return the maximum of the window, 0 without values."""
        self._forget(now_ms // self._step_ms)
        return max(self._slots.values(), default=0)

    def _forget(self, step: int) -> None:
        while self._slots and (oldest := next(iter(self._slots))) <= step - self._steps:
            del self._slots[oldest]
