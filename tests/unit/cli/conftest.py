"""A node that the tests of a file share, and a topic for each of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .shared_node import WAIT_S, start_dev


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the shared node."""
    return tmp_path_factory.mktemp("cli") / "data"


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """The gRPC address of a node that all tests of this file share."""
    with start_dev(folder, "--output", "json") as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["grpc"]
        finally:
            process.terminate()
            process.wait(WAIT_S)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    name: str = request.node.name
    return name.replace("[", ".").replace("]", "")[:200]
