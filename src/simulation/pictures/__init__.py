"""Pictures of simulated runs: message-sequence diagrams as SVG, drawn from a run's trace.

`python -m quorumlog.simulation.pictures FOLDER` plays the stories of docs/raft.md and writes one
file each. The same trace gives the same bytes, so a test can tell when a picture is out of date.
"""

from .layout import Diagram, lay_out
from .svg import draw

__all__ = ["Diagram", "draw", "lay_out"]
