"""`python -m tests.simulation.pictures FOLDER`: draw every diagram, one SVG file each."""

import sys
from pathlib import Path

from . import staged_commit, transaction
from .layout import lay_out
from .scripts import DIAGRAMS, play_diagram
from .svg import draw


def main() -> int:
    """Draw the diagrams and return the exit code."""
    if len(sys.argv) != 2:
        print("usage: python -m tests.simulation.pictures FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for spec in DIAGRAMS:
        trace, nodes = play_diagram(spec)
        path = folder / f"{spec.name}.svg"
        path.write_text(draw(lay_out(trace, nodes=nodes), title=spec.title))
        print(f"{path}: {spec.title}, {len(trace)} events")
    for name, script, play in (
        ("transaction", transaction, transaction.play_transaction),
        ("staged_commit", staged_commit, staged_commit.play_staged_commit),
    ):
        trace, columns = play()
        path = folder / f"{name}.svg"
        diagram = lay_out(trace, nodes=columns, heads=script.HEADS)
        path.write_text(draw(diagram, title=script.TITLE))
        print(f"{path}: {script.TITLE}, {len(trace)} events")
    return 0


if __name__ == "__main__":
    sys.exit(main())
