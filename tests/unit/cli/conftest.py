"""A node shared by the tests of a file, and a topic name for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.command import dev_node


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the shared node."""
    return tmp_path_factory.mktemp("cli") / "data"


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """The gRPC address of a node that all tests of a file share."""
    with dev_node(folder) as addresses:
        yield addresses["grpc"]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name for one test."""
    name: str = request.node.name
    return name.replace("[", ".").replace("]", "")[:200]
