"""Both runtimes, and a state machine that records its calls."""

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waits import run_patiently

from quorumlog import simulation
from quorumlog.runtime import Runtime


@dataclass
class Remembers:
    """A state machine that records its calls. Its snapshot drops the batch boundaries."""

    batches: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    leaders: list[tuple[int | None, int]] = field(default_factory=list)

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        self.batches.append((base_offset, epoch, values))

    def leadership(self, leader_id: int | None, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))

    def snapshot(self) -> Iterator[list[bytes]]:
        return iter([self.values])

    def begin_restore(self) -> None:
        self.batches.clear()

    def restore(self, values: list[bytes]) -> None:
        self.batches.append((-1, -1, values))

    def end_restore(self, end_offset: int, epoch: int) -> None:
        pass

    @property
    def values(self) -> list[bytes]:
        return [value for _, _, values in self.batches for value in values]


Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]


@pytest.fixture
def listener() -> Remembers:
    return Remembers()


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], Any]:
    """Run `main(runtime, data_dir)` on either runtime. The runs of one test share their files."""
    if request.param == "real":
        return lambda main: run_patiently(lambda runtime: main(runtime, str(tmp_path / "data")))
    return lambda main: simulation.run(lambda runtime: main(runtime, "/data"))
