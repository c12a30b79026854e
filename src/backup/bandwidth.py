"""The bandwidth limit of a backup or a restore."""

import asyncio

from ..runtime import Clock


class Bandwidth:
    """Delays transfers so that their average stays at or below a rate."""

    def __init__(self, clock: Clock, bytes_per_s: int = 0) -> None:
        """`bytes_per_s`: 0 is no limit."""
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._free_ms = 0.0  # time at which everything spent has been transferred at the rate

    async def spend(self, size: int) -> None:
        """Wait until `size` bytes more are within the rate."""
        if not self._bytes_per_s:
            return
        now_ms = self._clock.now_ms()
        self._free_ms = max(self._free_ms, now_ms) + 1_000 * size / self._bytes_per_s
        await asyncio.sleep((self._free_ms - now_ms) / 1_000)
