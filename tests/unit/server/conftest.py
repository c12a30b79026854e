"""Fixtures for both runtimes, and a folder for a node's data."""

from pathlib import Path

import pytest
from tests.kit.node import Run
from tests.kit.waits import run_patiently

from quorumlog import simulation


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a main on both runtimes in turn."""
    return run_patiently if request.param == "real" else simulation.run


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """The data directory of a node; it does not exist yet."""
    return str(tmp_path / "data")
