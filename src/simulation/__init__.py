"""Simulated runtime: virtual time, a simulated network and simulated disks with injected faults.

It implements `runtime.ports`, so that nodes run on it unchanged. One seed determines a run. Start
with `SimWorld`, or with `run` for a single node without faults.
"""

from .fault_options import Faults
from .files import CrashPoint
from .loop import Deadlock, Livelock, SimLoop
from .process import NodeKilled
from .world import NotReached, SimNode, SimWorld, run

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
