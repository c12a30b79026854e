"""How long the event loop keeps everybody waiting: a timer that notes how late it fires.

What runs on the loop for 50 ms makes the timer up to 50 ms late, and at least 30. Fifty wakings a
second cost a fifth of a percent of a core.
"""

import asyncio
from typing import Final

from ...metrics import STALL_MS, Histogram, Recent, Scrape
from ...metrics.table import LOOP_LATENESS, LOOP_STALL
from ...runtime import Clock

PERIOD_MS: Final = 20
WINDOW_MS: Final = 60_000


class StallWatch:
    """Runs until it is cancelled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late_ms = Histogram(STALL_MS)
        self._recent = Recent(window_ms=WINDOW_MS)

    async def run(self) -> None:
        """Measure, again and again."""
        while True:
            due_ms = self._clock.now_ms() + PERIOD_MS
            await asyncio.sleep(PERIOD_MS / 1000)
            now_ms = self._clock.now_ms()
            late_ms = max(0, now_ms - due_ms)
            self._late_ms.observe(late_ms)
            self._recent.observe(late_ms, now_ms)

    def longest_ms(self) -> int:
        """The longest of the last minute."""
        return self._recent.largest(self._clock.now_ms())

    def collect(self, scrape: Scrape) -> None:
        """Put what was measured."""
        scrape.put_histogram(LOOP_LATENESS, self._late_ms)
        scrape.put(LOOP_STALL, self.longest_ms() / 1000)
