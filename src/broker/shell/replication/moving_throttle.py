"""How fast this broker reads for replicas that a reassignment adds here.

A bound on average: each answer says how long its partition waits before it asks again. Replicas
that are in sync are never held up.
"""

from typing import Final

from ....runtime import Clock
from ....storage.throttle import Throttle

ASKED_BYTES_MIN: Final = 4 << 10
"""However low the rate is, an answer brings so much, and the pause behind it is the longer."""


class MovingThrottle:
    """One for all that a node follows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bytes_per_second = -1
        self._throttle: Throttle | None = None  # None: no bound

    def set_rate(self, bytes_per_second: int) -> bool:
        """Keep to a rate from now on, -1: to none; returns whether it is another one."""
        if bytes_per_second == self._bytes_per_second:
            return False
        self._bytes_per_second = bytes_per_second
        self._throttle = Throttle(max(1, bytes_per_second)) if bytes_per_second >= 0 else None
        return True

    def asked_bytes(self, wanted: int) -> int:
        """How much of one partition to ask for at once, of what is wanted."""
        if self._throttle is None:
            return wanted
        return min(wanted, max(ASKED_BYTES_MIN, self._bytes_per_second // 4))

    def spend(self, size: int) -> int:
        """`size` bytes have come; return how many ms to wait before more is asked for."""
        return 0 if self._throttle is None else self._throttle.spend(size, self._clock.now_ms())
