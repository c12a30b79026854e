"""The clock port of a simulated process: its machine's clocks over the virtual time."""

from typing import Final

from .loop import SimLoop
from .process import Process

TICK_MS: Final = (
    0.0005  # 1.001 s times 1000 is a hair under 1001: a float must not cost a millisecond
)


class SimClock:
    """Reads the loop's virtual time as the process's machine sees it. Reads are not events."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self._loop = loop
        self._process = process

    def now_ms(self) -> int:
        """Monotonic milliseconds, equal to int(loop.time() * 1000) on this node."""
        self._process.check()
        return int(self._loop.time_of(self._process) * 1000 + TICK_MS)

    def wall_ms(self) -> int:
        """Milliseconds since 1970 on this machine's UTC clock."""
        self._process.check()
        return self._process.machine.utc_ms(self._loop.now_ns)

    def busy_us(self) -> int:
        """The virtual time, which stands still while code runs."""
        self._process.check()
        return int(self._loop.time_of(self._process) * 1_000_000)
