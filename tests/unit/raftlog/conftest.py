"""Both runtimes, and a listener that remembers."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.runtime import Runtime, real


@dataclass
class Remembers:
    """A CommitListener that keeps what it was told."""

    batches: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    leaders: list[tuple[int | None, int]] = field(default_factory=list)

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        self.batches.append((base_offset, epoch, values))

    def leadership(self, leader_id: int | None, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))

    @property
    def values(self) -> list[bytes]:
        return [value for _, _, values in self.batches for value in values]


Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]


@pytest.fixture
def listener() -> Remembers:
    return Remembers()


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], Any]:
    """Run `main(runtime, data_dir)` on either runtime; one run a test keeps its files."""
    if request.param == "real":
        return lambda main: real.run(lambda runtime: main(runtime, str(tmp_path / "data")))
    return lambda main: simulation.run(lambda runtime: main(runtime, "/data"))
