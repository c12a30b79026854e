"""The report of a small cluster whose brokers fail in turn matches the events."""

from typing import Any

import pytest
from benchmarks.metadata.failures import Scale
from benchmarks.metadata.rolling import measure

SMALL = Scale(brokers=6, topics=1, failures=2, appends_per_s=50.0)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return measure(SMALL)


@pytest.mark.slow
def test_every_failure_removes_the_brokers_share_of_the_isr_and_it_returns(
    result: dict[str, Any],
) -> None:
    rolled = result["phases"][0]
    assert rolled["isr_shrunk"] == rolled["isr_grown"] > 2 * 100 * 3 // 6 - 20
    assert rolled["orphans_max"] == 0  # one of three replicas is never all of them


@pytest.mark.slow
def test_a_gap_ends_within_the_session_and_the_moves_are_counted_both_ways(
    result: dict[str, Any],
) -> None:
    rolled = result["phases"][0]
    assert 0 < rolled["gap_median_ms"] <= rolled["gap_max_ms"] < SMALL.session_timeout_ms + 100
    assert rolled["leaders_moved"] == 2 * rolled["gaps"]  # away, and back to preferred ones


@pytest.mark.slow
def test_clients_are_answered_throughout(result: dict[str, Any]) -> None:
    assert result["acknowledged"] >= sum(phase["acknowledged"] for phase in result["phases"]) > 0


@pytest.mark.slow
def test_the_same_seed_is_the_same_run(result: dict[str, Any]) -> None:
    assert measure(SMALL)["event_hash"] == result["event_hash"]
