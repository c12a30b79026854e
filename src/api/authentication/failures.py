"""Delays after failed authentications, against guessing of passwords."""

import asyncio
from collections.abc import Callable
from typing import Final

from ...runtime.client_bounds import address_block

WINDOW_MS: Final = 1_000  # failures of one address within it add up
DELAY_MS_MAX: Final = 10_000
WAIT_MS_MAX: Final = 1_000  # for honest clients behind the same address
ADDRESSES_MAX: Final = 10_000


class FailureDelays:
    """The delay of the response to each failed authentication.

    Failures of one address within a second add up, also those of different connections. An address
    is forgotten after a second without a failure.
    """

    def __init__(self, now_ms: Callable[[], int], base_ms: int) -> None:
        self._now_ms = now_ms
        self._base_ms = base_ms
        self._recent: dict[str, tuple[int, int]] = {}  # last failure and count, oldest first

    async def before_attempt(self, host: str) -> None:
        """Wait until an address may begin another authentication: one that left before the delayed
        response waits at its next attempt."""
        last_ms, count = self._recent.get(address_block(host), (0, 0))
        until_ms = last_ms + min(self._base_ms * count, WAIT_MS_MAX)
        await _pause(until_ms - self._now_ms() if count else 0)

    async def after_failure(self, host: str) -> None:
        """Count a failure of an address, and delay its response."""
        now_ms, host = self._now_ms(), address_block(host)
        last_ms, count = self._recent.pop(host, (0, 0))
        count = count + 1 if now_ms - last_ms < WINDOW_MS else 1
        if len(self._recent) >= ADDRESSES_MAX:
            del self._recent[next(iter(self._recent))]
        self._recent[host] = (now_ms, count)
        await _pause(min(self._base_ms * count, DELAY_MS_MAX))


async def _pause(pause_ms: int) -> None:
    if pause_ms > 0:
        await asyncio.sleep(pause_ms / 1_000)
