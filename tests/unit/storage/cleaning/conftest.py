"""A fixture for the segments of a log, on the real and on the simulated file system."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorumlog.runtime.files import RealFiles
from quorumlog.simulation import SimWorld

from .compacted_log import Shelf


@pytest.fixture(params=["real", "simulated"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    if request.param == "real":
        yield Shelf(RealFiles(), str(tmp_path))
        return
    with SimWorld(0) as world:
        node = world.node("node")
        node.start_process()
        files = node.runtime().files
        files.make_folder("/data")
        yield Shelf(files, "/data")
