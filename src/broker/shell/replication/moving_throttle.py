"""The throttle for replicas that a reassignment adds to this broker.

It limits the average rate: after each answer, the partition's next fetch is delayed. In-sync
replicas are not throttled.
"""

from typing import Final

from ....runtime import Clock
from ....storage.throttle import Throttle

ASKED_BYTES_MIN: Final = 4 << 10
"""The minimum fetch size at low rates; the delay after it is longer then."""


class ReassignmentThrottle:
    """The throttle of all reassigned replicas of a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bytes_per_second = -1
        self._throttle: Throttle | None = None  # None: unlimited

    def set_rate(self, bytes_per_second: int) -> bool:
        """Set the rate, -1: unlimited; return True if it has changed."""
        if bytes_per_second == self._bytes_per_second:
            return False
        self._bytes_per_second = bytes_per_second
        self._throttle = Throttle(max(1, bytes_per_second)) if bytes_per_second >= 0 else None
        return True

    def asked_bytes(self, wanted: int) -> int:
        """Return the fetch size of one partition, at most `wanted`."""
        if self._throttle is None:
            return wanted
        return min(wanted, max(ASKED_BYTES_MIN, self._bytes_per_second // 4))

    def spend(self, size: int) -> int:
        """Count `size` received bytes; return the delay in ms before the next fetch."""
        return 0 if self._throttle is None else self._throttle.spend(size, self._clock.now_ms())
