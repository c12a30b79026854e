"""Both runtimes, and a cluster that decides and replays commands without a log."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.kit.metadata_cluster import Cluster
from tests.kit.waits import run_patiently

from quorumlog import simulation
from quorumlog.runtime import Runtime


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], Any]:
    """Run `main(runtime, data_dir)` on either runtime."""
    if request.param == "real":
        return lambda main: run_patiently(lambda runtime: main(runtime, str(tmp_path / "data")))
    return lambda main: simulation.run(lambda runtime: main(runtime, "/data"))
