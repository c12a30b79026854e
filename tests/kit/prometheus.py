"""Prometheus and promtool for tests: those of the system, or of `make prometheus`."""

import os
import shutil
from pathlib import Path

import pytest

UNPACKED = Path(__file__).parents[2] / "build/prometheus/usr/bin"


def program(name: str) -> str:
    """Return the path of a program of Prometheus. Skip the test if it is missing."""
    found = shutil.which(name, path=f"{UNPACKED}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is missing: `make prometheus` unpacks Debian's package")
    return found
