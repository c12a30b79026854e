"""What must hold after every event of a run of consensus cores, one small class an invariant.

The numbers are those of `docs/core_simulation.md`; each class says its source. `every` lists them.
"""

from .every import INVARIANTS

__all__ = ["INVARIANTS"]
