"""What both coordinators of a client do: work when there is work or it is time, and tell those who
wait that something has changed."""

import asyncio
from collections.abc import Callable

from ..runtime import Clock


class Changes:
    """Something that callers wait for, all at once and again and again. On one loop's thread."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    async def wait(self) -> None:
        """Return at the first `announce` after this call."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def announce(self) -> None:
        """End every `wait` that began before."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


async def coordinate(step: Callable[[int], int], work: asyncio.Event, clock: Clock) -> None:
    """Call `step(now_ms)` whenever `work` is set, and at the time that it returned, on `now_ms()`;
    until cancelled."""
    while True:
        work.clear()
        wake_ms = step(clock.now_ms())
        wait_ms = max(1, wake_ms - clock.now_ms())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await work.wait()
        except TimeoutError:
            pass
