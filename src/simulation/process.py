"""A simulated machine and its processes.

A *machine* owns the state that survives a process: the disk, the two clocks, the boot id, the power
switch. A *process* is one incarnation of a node. Every port of its runtime refers to it, and every
handle of the loop finds it through the context variable `NODE`.

This module depends on neither the loop nor the ports.
"""

from collections import deque
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..runtime import PeerCertificate
    from .loop import SimHandle

NODE: Final[ContextVar["Process | None"]] = ContextVar("NODE", default=None)
"""The process that a handle belongs to; tasks inherit it. None: the harness."""

MILLION: Final = 1_000_000


class NodeKilled(BaseException):
    """The process of the running code is dead; the code must have no further effect.

    It is a BaseException, so that no `except Exception` of a node catches it.
    """


class Machine:
    """The clocks and the boot state of a computer.

    Its monotonic clock is an integer function of virtual time, so that runs never differ by
    rounding: local = base + (virtual - boot) * rate_ppm / 10^6, in nanoseconds.
    """

    def __init__(self, name: str, *, drift_ppm: int, base_ns: int, wall_ms: int) -> None:
        self.name = name
        self.rate_ppm = MILLION + drift_ppm  # local nanoseconds per virtual millisecond
        self.base_ns = base_ns  # monotonic clock at boot
        self.boot_ns = 0  # virtual time of the boot
        self.wall_ms = wall_ms  # UTC at virtual time 0; a clock jump changes it
        self.powered = True
        self.boots = 1
        self.device_slow_ms = 0  # added to each job of a lane, before and after it
        self.certificate: PeerCertificate | None = None  # that its processes present to others
        self.waited_ms = 0  # for writes to the slow device, as `Clock.busy_us` measures them

    def local_ns(self, virtual_ns: int) -> int:
        """Return this machine's monotonic clock at a virtual time."""
        return self.base_ns + (virtual_ns - self.boot_ns) * self.rate_ppm // MILLION

    def virtual_ns(self, local_ns: int) -> int:
        """Return the first virtual time at which the monotonic clock shows at least `local_ns`."""
        return self.boot_ns - (self.base_ns - local_ns) * MILLION // self.rate_ppm

    def utc_ms(self, virtual_ns: int) -> int:
        """Return this machine's UTC clock at a virtual time."""
        return self.wall_ms + virtual_ns * self.rate_ppm // MILLION // MILLION

    def boot(self, virtual_ns: int, *, base_ns: int) -> None:
        """Power on; the monotonic clock restarts at `base_ns`."""
        assert not self.powered, f"{self.name} is on"
        self.powered = True
        self.boots += 1
        self.boot_ns, self.base_ns = virtual_ns, base_ns


class Process:
    """One incarnation of a node: running, paused or dead."""

    def __init__(self, name: str, machine: Machine, incarnation: int) -> None:
        self.name = name
        self.machine = machine
        self.incarnation = incarnation  # 1 for the first
        self.alive = True
        self.parked: deque[SimHandle] | None = None  # handles due while paused; None: not paused
        self.stop_reason = ""  # the argument of stop_node()
        context = copy_context()
        context.run(NODE.set, self)
        self._context = context

    def __repr__(self) -> str:
        return f"{self.name}/{self.incarnation}"

    def context(self) -> Context:
        """Return a new context in which `NODE` is this process."""
        return self._context.copy()

    def check(self) -> None:
        """Raise NodeKilled if the process is dead; every port call starts with it."""
        if not self.alive:
            raise NodeKilled(f"{self} is dead")
