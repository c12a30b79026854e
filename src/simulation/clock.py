"""Clock port of a simulated process: the clocks of its machine, derived from virtual time."""

from typing import Final

from .loop import SimLoop
from .process import Process

TICK_MS: Final = (
    0.0005  # 1.001 s times 1000 is a hair under 1001: a float must not cost a millisecond
)


class SimClock:
    """Clocks of a process's machine. Reads are not events."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self._loop = loop
        self._process = process

    def now_ms(self) -> int:
        """Return monotonic milliseconds, equal to int(loop.time() * 1000) on this node."""
        self._process.check()
        return int(self._loop.time_of(self._process) * 1000 + TICK_MS)

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970 of this machine's UTC clock."""
        self._process.check()
        return self._process.machine.utc_ms(self._loop.now_ns)

    def busy_us(self) -> int:
        """Return the virtual time in microseconds; it does not advance while code runs."""
        self._process.check()
        return int(self._loop.time_of(self._process) * 1_000_000)
