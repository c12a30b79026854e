"""Exactly once in real processes, while brokers, coordinators and the program are killed."""

from pathlib import Path

import pytest

from .transaction_chaos import run_transaction_chaos


@pytest.mark.slow
def test_a_killed_program_counts_every_record_once(tmp_path: Path) -> None:
    report = run_transaction_chaos(tmp_path, seconds=10, seed=1, pause_s=(0.2, 0.8))
    assert report["records"] > 100, report


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_record_is_counted_once_through_two_minutes_of_kills(tmp_path: Path) -> None:
    report = run_transaction_chaos(tmp_path, seconds=100, seed=2)
    assert {"program", "broker", "coordinator"} <= set(report["events"]), report
    assert report["records"] > 1_000, report
