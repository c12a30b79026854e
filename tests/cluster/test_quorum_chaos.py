"""A quorum of three real processes under kills, stops and pauses."""

from pathlib import Path

import pytest

from .quorum_chaos import run_chaos


@pytest.mark.long
def test_three_voters_survive_kills_stops_and_pauses(tmp_path: Path) -> None:
    """The full length: `python -m tests.cluster.quorum_chaos --minutes 5 --faults 200`."""
    report = run_chaos(tmp_path, seconds=10, faults=8, seed=1)
    assert isinstance(report["done"], int)
    assert report["done"] > 50, report
