"""The benchmarks are no part of the package: found from the top of the checkout."""

import sys
from pathlib import Path

TOP = str(Path(__file__).parents[3])

if TOP not in sys.path:
    sys.path.append(TOP)
