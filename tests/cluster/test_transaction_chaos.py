"""Exactly-once processing in real processes, with kills of brokers, coordinators and programs."""

from pathlib import Path

import pytest

from .transaction_chaos import CLIENTS, run_transaction_chaos


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [40, pytest.param(120, marks=pytest.mark.long)])
def test_every_record_is_counted_once_through_kills(tmp_path: Path, seconds: int) -> None:
    report = run_transaction_chaos(tmp_path, clients=CLIENTS, seconds=seconds, seed=2)
    assert {"program", "broker"} <= set(report["kills"]), report
    assert report["records"] > 8 * seconds, report
