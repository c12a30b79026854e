"""Scripted histories of staged commits: each row of the table of failures of the protocol,
and the steps between which a coordinator fails."""

import pytest
from tests.simulation.levels.transactions.staged_scenarios import STAGED_SCENARIOS


@pytest.mark.slow
@pytest.mark.parametrize("scenario", STAGED_SCENARIOS)
def test_a_staged_scenario_passes(scenario: str) -> None:
    STAGED_SCENARIOS[scenario]()
