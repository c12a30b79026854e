"""Prometheus and promtool for tests: those of the system, or what `make prometheus` unpacked."""

import os
import shutil
from pathlib import Path

import pytest

UNPACKED = Path(__file__).parents[2] / "build/prometheus/usr/bin"


def program(name: str) -> str:
    """Return the path of a program of Prometheus; skips the test where it is missing."""
    found = shutil.which(name, path=f"{UNPACKED}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"no {name}: `make prometheus` unpacks Debian's package")
    return found
