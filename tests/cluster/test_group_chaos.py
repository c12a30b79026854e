"""Consumer groups in real processes: under joins, leaves, kills and failovers every partition has
one owner at a time, and every record is processed."""

from pathlib import Path

import pytest

from .group_chaos import run_group_chaos


@pytest.mark.long
def test_a_group_survives_joins_leaves_kills_and_failovers(tmp_path: Path) -> None:
    report = run_group_chaos(tmp_path, events=8, seed=3, pause_s=(0.2, 0.8))
    assert sum(report["events"].values()) == 8
    assert report["records"] > 0
    assert report["claims"] >= 20


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_group_survives_a_hundred_joins_leaves_kills_and_failovers(tmp_path: Path) -> None:
    report = run_group_chaos(tmp_path, events=100, seed=1)
    assert set(report["events"]) == {"join", "leave", "kill", "failover"}, report
    assert report["worked"] >= report["records"] > 1_000, report
