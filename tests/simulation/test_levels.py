"""A few seeds of the levels of the clients, where a failure shows its traceback; `make simulate`
plays more of them, each under two hash seeds."""

import pytest
from tests.simulation.runs import play_seed, scenario_of


def failure(level: str, seed: int) -> str:
    return play_seed(level, seed, scenario_of(level)).failure


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 7])
def test_clients_of_every_kind_live_through_a_nodes_troubles(seed: int) -> None:
    assert not failure("clients", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 5, 12])
def test_clients_live_with_a_broker_that_lies(seed: int) -> None:
    assert not failure("evil", seed)
