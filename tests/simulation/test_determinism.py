"""One seed is one run: the same events under any hash seed, and a leak of order is noticed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOAD = Path(__file__).with_name("workload.py")
SEEDS = (1, 2, 3)


def event_hash(seed: int, hash_seed: str, *options: str) -> str:
    """The event hash of the workload in a process with this PYTHONHASHSEED."""
    finished = subprocess.run(
        [sys.executable, str(WORKLOAD), str(seed), *options],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    digest, count = finished.stdout.split()
    assert int(count) > 500, "a workload without events proves nothing"
    return digest


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_events_under_two_hash_seeds(seed: int) -> None:
    assert event_hash(seed, "1") == event_hash(seed, "2")


@pytest.mark.slow
def test_different_seeds_give_different_events() -> None:
    assert len({event_hash(seed, "1") for seed in SEEDS}) == len(SEEDS)


@pytest.mark.slow
def test_an_order_that_follows_a_set_of_strings_is_noticed() -> None:
    """The planted leak: without it the two hashes are equal, with it they differ."""
    assert event_hash(1, "1", "planted") != event_hash(1, "2", "planted")
