"""`python -m tests.simulation.shrink`: shrink a failed seed, and print the events that it needs.

The plan of the run and a timeline are written to a folder. The exit code is 0 if the seed was
shrunk, 3 if it passes, 4 if its recorded plan does not replay its violation.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from ..runs import LEVELS
from .report import shrink_seed

FOLDER: Final = Path("build") / "shrink"
SECONDS: Final = 60.0


def main() -> int:
    """Parse the command line, shrink the seed, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.shrink", description=__doc__)
    parser.add_argument("--level", choices=LEVELS, required=True, help="level of the seed")
    parser.add_argument("--seed", type=int, required=True, help="the failed seed")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"bound of wall time [{SECONDS:g}]"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"for the files [{FOLDER}]")
    options = parser.parse_args()
    return shrink_seed(options.level, options.seed, seconds=options.seconds, folder=options.folder)


if __name__ == "__main__":
    sys.exit(main())
