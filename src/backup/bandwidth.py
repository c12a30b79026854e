"""The bandwidth limit of a backup or a restore."""

import asyncio

from ..runtime import Clock
from ..runtime.rate_limit import Throttle


class Bandwidth:
    """Delays transfers so that their average stays at or below a rate."""

    def __init__(self, clock: Clock, bytes_per_s: int = 0) -> None:
        """`bytes_per_s`: 0 is no limit."""
        self._clock = clock
        self._throttle = Throttle(bytes_per_s)

    async def spend(self, size: int) -> None:
        """Wait until `size` bytes more are within the rate."""
        delay_ms = self._throttle.spend(size, self._clock.now_ms())
        if delay_ms:
            await asyncio.sleep(delay_ms / 1_000)
