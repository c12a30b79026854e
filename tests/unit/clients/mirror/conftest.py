"""Two simulated clusters for each test of mirroring."""

from collections.abc import Iterator

import pytest
from tests.kit.replica_cluster import world

from .clusters import Clusters


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    """A source and a target cluster on one simulated network."""
    with world() as simulated:
        yield Clusters(simulated)
