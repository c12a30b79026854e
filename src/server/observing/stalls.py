"""How long the event loop keeps everybody waiting: a timer that notes how late it fires.

What runs on the loop for 50 ms makes the timer up to 50 ms late, and at least 30. Fifty wakings a
second cost a quarter of a percent of a core.
"""

import asyncio
from typing import Final

from ...metrics import STALL_MS, Histogram, Recent, Scrape
from ...metrics.table import LOOP_LATENESS, LOOP_STALL
from ...runtime import Clock

PERIOD_MS: Final = 20
WINDOW_MS: Final = 60_000


class StallWatch:
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
        """The longest of the last minute."""
        return self._recent.largest(self._clock.now_ms())

    def collect(self, scrape: Scrape) -> None:
        """Put what was measured."""
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
        self._set()  # a plain timer costs half of what a task does that sleeps
