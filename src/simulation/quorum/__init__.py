"""Consensus cores alone on virtual time: tens of thousands of events a second, every fault of the
network, of disks and of processes, and every invariant after every event.

`options` says what a run may be like, `scenario` plays one, `level` makes a level of it, `harness`
executes what a core says, `invariants/` is what must hold, `trace` the story of a run for pictures.
"""

from ..violation import Violation
from .level import play_core
from .options import QuorumOptions
from .scenario import QuorumRun

__all__ = ["QuorumOptions", "QuorumRun", "Violation", "play_core"]
