"""Add the top of the checkout to the import path: the benchmarks are not in the package."""

import sys
from pathlib import Path

TOP = str(Path(__file__).parents[3])

if TOP not in sys.path:
    sys.path.append(TOP)
