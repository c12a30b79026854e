"""Scheduling of a client's coordinator tasks: a work loop with a timer, and change notification."""

import asyncio
from collections.abc import Callable

from ..runtime import Clock


class Changes:
    """A notification that any number of tasks wait for, repeatedly. Not thread-safe: one loop."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self) -> None:
        """Wait for the next `announce`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def announce(self) -> None:
        """Wake every task that waits."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


async def coordinate(step: Callable[[int], int], work: asyncio.Event, clock: Clock) -> None:
    """Call `step(now_ms)` whenever `work` is set, and at the time that the last call returned.

    Times are on `clock.now_ms()`. Runs until cancelled.
    """
    while True:
        work.clear()
        wake_ms = step(clock.now_ms())
        wait_ms = max(1, wake_ms - clock.now_ms())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await work.wait()
        except TimeoutError:
            pass
