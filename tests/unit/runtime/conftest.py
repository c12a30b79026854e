"""Both runtimes behind one fixture: every test that takes `run` runs on the real and on the
simulated one, so that no room can tell them apart by what the ports promise."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import quorumlog.simulation as simulation
from quorumlog.runtime import Runtime, real

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]

SIMULATED_FOLDER = "/bench"


@pytest.fixture(params=["real", "simulated"])
def which(request: pytest.FixtureRequest) -> str:
    """The name of one runtime after the other."""
    name: str = request.param
    return name


@pytest.fixture
def run(which: str) -> Run:
    """What runs a main on the runtime."""
    return real.run if which == "real" else _run_simulated


@pytest.fixture
def folder(which: str, tmp_path: Path) -> str:
    """An existing folder for the runtime's files."""
    return str(tmp_path) if which == "real" else SIMULATED_FOLDER


def _run_simulated(main: Main) -> None:
    async def with_folder(runtime: Runtime) -> None:
        runtime.files.make_folder(SIMULATED_FOLDER)
        await main(runtime)

    simulation.run(with_folder)
