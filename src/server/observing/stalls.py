"""Stalls of the event loop, measured by the lateness of a timer.

A task that blocks the loop for 50 ms delays the timer by 30 to 50 ms. Fifty timers a second cost
0.25 % of a core.
"""

import asyncio
from typing import Final

from ...metrics import STALL_MS, Histogram, Recent, Scrape
from ...metrics.table import LOOP_LATENESS, LOOP_STALL
from ...runtime import Clock

PERIOD_MS: Final = 20
WINDOW_MS: Final = 60_000


class StallMonitor:
    """Measures while run() runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late_ms = Histogram(STALL_MS)
        self._recent = Recent(window_ms=WINDOW_MS)
        self._due_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Measure until cancelled."""
        self._set()
        try:
            await asyncio.Event().wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def longest_ms(self) -> int:
        """Return the longest stall of the last minute."""
        return self._recent.largest(self._clock.now_ms())

    def collect(self, scrape: Scrape) -> None:
        """Write the metrics."""
        scrape.put_histogram(LOOP_LATENESS, self._late_ms)
        scrape.put(LOOP_STALL, self.longest_ms() / 1000)

    def _set(self) -> None:
        self._due_ms = self._clock.now_ms() + PERIOD_MS
        self._timer = asyncio.get_running_loop().call_later(PERIOD_MS / 1000, self._fired)

    def _fired(self) -> None:
        now_ms = self._clock.now_ms()
        late_ms = max(0, now_ms - self._due_ms)
        self._late_ms.observe(late_ms)
        self._recent.observe(late_ms, now_ms)
        self._set()  # a timer costs half of a sleeping task
