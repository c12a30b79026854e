"""The report of `produce` about its records, without a node."""

from concurrent.futures import Future
from typing import Any

import pytest

from quorumlog.cli.produce import report as module
from quorumlog.cli.produce.report import InputPosition, Report
from quorumlog.cli.record_json import NewRecord
from quorumlog.clients.producer.batches import Delivered


class LateDelivery(Future[Delivered]):
    """A delivery whose outcome is set when a caller waits for it."""

    def result(self, timeout: float | None = None) -> Delivered:
        if not self.done():
            self.set_result(Delivered(topic="t", partition=0, offset=0, timestamp_ms=0))
        return super().result(timeout)


def test_records_behind_a_late_one_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 10)
    report = Report(verbose=False, as_json=False)
    late: list[Any] = [LateDelivery() for _ in range(100)]
    for line, delivery in enumerate(late, start=1):
        report.sent(InputPosition("", "line", line, line), NewRecord(None, b"xyz"), delivery)
        assert sum(not each.done() for each in late[:line]) <= 10
    assert (report.records, report.stored_bytes) == (90, 270)
    report.settle_all()
    assert (report.records, report.stored_bytes) == (100, 300)
