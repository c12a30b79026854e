"""A timer for a deadline that moves often, mostly later.

A later deadline costs nothing: the timer fires at the earlier time, and the caller checks the
deadline.
"""

import asyncio
from collections.abc import Callable

from ...runtime import Clock


class Alarm:
    """One timer."""

    __slots__ = ("_clock", "_due_ms", "_timer", "_wake")

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        """`wake` may be called before the deadline, and is called soon after it."""
        self._clock = clock
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self, deadline_ms: int) -> None:
        """Schedule a call of `wake` at the deadline or earlier."""
        if self._timer is not None:
            if self._due_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_s = max(0, deadline_ms - self._clock.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)
        self._due_ms = deadline_ms

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._wake()
