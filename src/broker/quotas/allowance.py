"""A rate that is kept on average: what was taken, and how long until it is made up for.

It grows with time up to what `BURST_MS` bring, so that a client which was idle may take that at
once, and falls below zero when more is taken than there is. Below zero the client owes time.

The field keeps sums of the last eleven windows of a second instead, which lets through the same:
ten seconds' worth at once, and the rate from then on. But sums forget. Who takes a hundred seconds'
worth and comes again by a new connection after eleven finds nothing held against it there; here it
still owes the rest. So whatever a client does, in any time of t seconds it is let have at most the
rate times (t + 10), and one request of each connection more.
"""

from typing import Final

BURST_MS: Final = 10_000
"""What is not used is kept for so long: ten of the field's windows of a second."""

WAIT_MS_MAX: Final = 600_000
"""Nobody is told to wait for longer; what is owed beyond it stays owed. A connection that is not
read looks open as long as that when its client has gone."""


class Allowance:
    """What one client, or several that share a quota, may take of one thing."""

    __slots__ = ("__weakref__", "_left", "_per_ms", "_when_ms", "per_second")

    def __init__(self, *, per_second: float, now_ms: int) -> None:
        """`per_second` is above 0, in units of its own; there is a burst to begin with."""
        assert per_second > 0, f"a rate of {per_second}"
        self.per_second = per_second
        self._per_ms = per_second / 1000
        self._left = self._per_ms * BURST_MS  # in units, at `_when_ms`
        self._when_ms = now_ms

    def take(self, units: float, now_ms: int) -> int:
        """Take `units`, there or not, and return for how many milliseconds nothing more may be
        taken: 0 while nothing is owed."""
        assert units >= 0, f"{units} are taken"
        self._left = self._left_at(now_ms) - units
        self._when_ms = max(self._when_ms, now_ms)
        if self._left >= 0:
            return 0
        wait_ms = -self._left / self._per_ms
        return WAIT_MS_MAX if wait_ms > WAIT_MS_MAX else max(1, int(wait_ms + 0.5))

    def burst(self) -> float:
        """The most that it ever holds."""
        return self._per_ms * BURST_MS

    def _left_at(self, now_ms: int) -> float:
        passed_ms = max(0, now_ms - self._when_ms)
        return min(self.burst(), self._left + passed_ms * self._per_ms)
