"""Exactly once in real processes, while brokers, coordinators and programs are killed."""

from pathlib import Path

import pytest

from .transaction_chaos import CLIENTS, run_transaction_chaos


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_record_is_counted_once_through_two_minutes_of_kills(tmp_path: Path) -> None:
    report = run_transaction_chaos(tmp_path, clients=CLIENTS, seconds=120, seed=2)
    assert {"program", "broker", "coordinator"} <= set(report["kills"]), report
    assert report["records"] > 1_000, report
