"""The harness can fail: every planted bug is found within a bounded number of seeds."""

import pytest
from tests.simulation.levels import broker, mini
from tests.simulation.runs import play_seed

from quorumlog.simulation.world import SimWorld

SEEDS_MAX = {"ack-before-sync": 5, "no-folder-sync": 10, "short-write": 10, "no-checksum": 40}


def first_failure(bug: str, seeds: int) -> str:
    """The failure of the first seed that finds the bug; "" when none does."""
    for seed in range(seeds):
        outcome = play_seed("mini", seed, lambda world: mini.play(world, bug=bug))
        if outcome.failure:
            return outcome.failure
    return ""


@pytest.mark.long
def test_the_small_log_without_a_bug_passes_every_seed() -> None:
    assert first_failure("", 30) == ""


def test_every_planted_bug_has_its_bound() -> None:
    assert set(SEEDS_MAX) == set(mini.BUGS) - {""}


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(SEEDS_MAX))
def test_a_planted_bug_is_found_within_its_bound(bug: str) -> None:
    failure = first_failure(bug, SEEDS_MAX[bug])
    assert "AssertionError" in failure, f"{bug} is not found in {SEEDS_MAX[bug]} seeds"


@pytest.mark.slow
def test_a_log_that_acknowledges_before_its_sync_loses_writes() -> None:
    failure = first_failure("ack-before-sync", 5)
    assert "lost write" in failure or "inconsistent offset" in failure


@pytest.mark.long
def test_a_whole_broker_on_a_disk_that_never_syncs_is_found_out() -> None:
    """The broker scenario can fail: nothing acknowledged survives the last power cut."""

    def play(world: SimWorld) -> dict[str, int]:
        return broker.play(world, lying_disk=True)

    failures = [play_seed("broker", seed, play).failure for seed in (2, 5, 10)]
    assert all(failures)
