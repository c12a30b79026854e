"""A token bucket: a rate limit with a burst and with debt.

It fills at its rate up to the amount of `BURST_MS`, so an idle client may take that at once. It
falls below zero if more is taken than it has; the client must then wait.

Kafka keeps sums of the last eleven one-second windows instead, with the same limits: ten seconds'
worth at once, and the rate from then on. But sums forget: a client that takes a hundred seconds'
worth, and reconnects after eleven seconds, starts without debt; here it still has to wait. In any t
seconds a client gets at most the rate times (t + 10), and one more request per connection.
"""

from typing import Final

BURST_MS: Final = 10_000
"""The time for which unused allowance is kept: ten of Kafka's one-second windows."""

WAIT_MS_MAX: Final = 600_000
"""The limit of one wait; debt beyond it is kept. A connection that is not read looks open for that
long after its client has gone."""


class Allowance:
    """The token bucket of one client, or of several that share a quota."""

    __slots__ = ("__weakref__", "_left", "_per_ms", "_when_ms", "per_second")

    def __init__(self, *, per_second: float, now_ms: int) -> None:
        """Start with a full burst; `per_second` is above 0, in the caller's units."""
        assert per_second > 0, f"a rate of {per_second}"
        self.per_second = per_second
        self._per_ms = per_second / 1000
        self._left = self._per_ms * BURST_MS  # in units, at `_when_ms`
        self._when_ms = now_ms

    def take(self, units: float, now_ms: int) -> int:
        """Take `units`, even if that exceeds the balance; return the milliseconds for which nothing
        more may be taken, 0 without debt."""
        assert units >= 0, f"{units} are taken"
        self._left = self._left_at(now_ms) - units
        self._when_ms = max(self._when_ms, now_ms)
        if self._left >= 0:
            return 0
        wait_ms = -self._left / self._per_ms
        return WAIT_MS_MAX if wait_ms > WAIT_MS_MAX else max(1, int(wait_ms + 0.5))

    def burst(self) -> float:
        """Return the capacity in units."""
        return self._per_ms * BURST_MS

    def _left_at(self, now_ms: int) -> float:
        passed_ms = max(0, now_ms - self._when_ms)
        return min(self.burst(), self._left + passed_ms * self._per_ms)
