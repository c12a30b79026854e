"""`python -m tests.simulation.pictures FOLDER`: draw every diagram, one SVG file each."""

import sys
from pathlib import Path

from .layout import lay_out
from .scripts import DIAGRAMS, play_diagram
from .svg import draw
from .transaction import HEADS, TITLE, play_transaction


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
    trace, columns = play_transaction()
    path = folder / "transaction.svg"
    path.write_text(draw(lay_out(trace, nodes=columns, heads=HEADS), title=TITLE))
    print(f"{path}: {TITLE}, {len(trace)} events")
    return 0


if __name__ == "__main__":
    sys.exit(main())
