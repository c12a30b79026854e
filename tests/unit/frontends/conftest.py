"""Both runtimes behind one fixture, and a folder for a node's data."""

from pathlib import Path

import pytest
from tests.kit.node import Run

from quorumlog import simulation
from quorumlog.runtime import real


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    """What runs a main on one runtime after the other."""
    return real.run if request.param == "real" else simulation.run


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Where a node keeps its data: nothing is there yet."""
    return str(tmp_path / "data")
