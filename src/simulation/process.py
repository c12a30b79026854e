"""A simulated machine and the processes that live and die on it.

A *machine* owns what survives a process: the disk, the two clocks, the boot id, the power switch. A
*process* is one incarnation of a node; every port of the runtime that it holds refers to it, and
every handle of the loop finds it through the context variable `NODE`.

This module knows neither the loop nor the ports.
"""

from collections import deque
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .loop import SimHandle

NODE: Final[ContextVar["Process | None"]] = ContextVar("NODE", default=None)
"""The process that a handle belongs to; tasks inherit it. None: the harness itself."""

MILLION: Final = 1_000_000


class NodeKilled(BaseException):
    """The process of the running code is dead: whatever it still does must have no effect.

    A BaseException, so that no `except Exception` of a node takes it for an error of its own.
    """


class Machine:
    """The clocks and the boot of one computer.

    Its monotonic clock is an integer function of the virtual time, so that two runs never differ
    by a rounding: local = base + (virtual - boot) * rate_ppm / 10^6, in nanoseconds.
    """

    def __init__(self, name: str, *, drift_ppm: int, base_ns: int, wall_ms: int) -> None:
        self.name = name
        self.rate_ppm = MILLION + drift_ppm  # local nanoseconds a virtual millisecond
        self.base_ns = base_ns  # monotonic clock at boot
        self.boot_ns = 0  # virtual time of the boot
        self.wall_ms = wall_ms  # UTC at virtual time 0; a clock jump changes it
        self.powered = True
        self.boots = 1
        self.device_slow_ms = 0  # how much longer each job of a lane takes, both ways

    def local_ns(self, virtual_ns: int) -> int:
        """This machine's monotonic clock at a virtual time."""
        return self.base_ns + (virtual_ns - self.boot_ns) * self.rate_ppm // MILLION

    def virtual_ns(self, local_ns: int) -> int:
        """The first virtual time at which the monotonic clock shows at least `local_ns`."""
        return self.boot_ns - (self.base_ns - local_ns) * MILLION // self.rate_ppm

    def utc_ms(self, virtual_ns: int) -> int:
        """This machine's idea of UTC at a virtual time."""
        return self.wall_ms + virtual_ns * self.rate_ppm // MILLION // MILLION

    def boot(self, virtual_ns: int, *, base_ns: int) -> None:
        """Switch on: the monotonic clock starts again."""
        assert not self.powered, f"{self.name} is on"
        self.powered = True
        self.boots += 1
        self.boot_ns, self.base_ns = virtual_ns, base_ns


class Process:
    """One incarnation of a node: alive, paused or dead for ever."""

    def __init__(self, name: str, machine: Machine, incarnation: int) -> None:
        self.name = name
        self.machine = machine
        self.incarnation = incarnation  # 1 for the first
        self.alive = True
        self.parked: deque[SimHandle] | None = None  # handles due while paused; None: it runs
        self.stop_reason = ""  # what stop_node() was given
        context = copy_context()
        context.run(NODE.set, self)
        self._context = context

    def __repr__(self) -> str:
        return f"{self.name}/{self.incarnation}"

    def context(self) -> Context:
        """A new context in which `NODE` is this process."""
        return self._context.copy()

    def check(self) -> None:
        """Raise NodeKilled when dead: every port starts with it."""
        if not self.alive:
            raise NodeKilled(f"{self} is dead")
