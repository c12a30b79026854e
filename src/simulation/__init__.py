"""The same nodes on a simulated runtime: virtual time, a network and disks that fail on purpose.

One seed decides everything; `runtime.ports` is what it implements. Start with `world`.
"""

from .faults import Faults
from .files import CrashPoint
from .loop import Deadlock, Livelock, SimLoop
from .process import NodeKilled
from .runner import run
from .world import NotReached, SimNode, SimWorld

__all__ = [
    "run",
    "SimWorld",
    "SimNode",
    "SimLoop",
    "Faults",
    "CrashPoint",
    "NodeKilled",
    "NotReached",
    "Deadlock",
    "Livelock",
]
