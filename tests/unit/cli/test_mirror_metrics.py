"""Metrics of a mirror and their sources."""

from quorumlog.cli.mirror_runner import metrics_page
from quorumlog.clients.mirror import CopyProgress, CopyState


def progress() -> CopyProgress:
    found = CopyProgress(topic="t", partition=3, source="c/t")
    found.looked(copy_start=0, copy_end=5, source_start=0, address="a", epoch=1)
    return found


def value(of: CopyProgress, name: str, now_ms: int = 10_000) -> float:
    page = metrics_page([of], now_ms).decode()
    (line,) = [each for each in page.splitlines() if each.startswith(f"quorumlog_mirror_{name}{{")]
    assert 'topic="t",partition="3"' in line
    return float(line.split()[-1])


def test_lag_is_unknown_then_counted_in_offsets_and_seconds() -> None:
    one = progress()
    assert (value(one, "lag_records"), value(one, "lag_seconds")) == (-1, -1)
    one.answered(source_start=0, source_end=5, now_ms=1_000)
    assert (value(one, "lag_records"), value(one, "lag_seconds")) == (0, 0)
    one.answered(source_start=0, source_end=9, now_ms=2_000)
    assert (value(one, "lag_records"), value(one, "lag_seconds")) == (4, 9)
    one.appended(copy_start=0, copy_end=9, records=4, size=70, newest_ms=1, now_ms=3_000)
    assert (value(one, "lag_records"), value(one, "copied_bytes_total")) == (0, 70)


def test_fetches_without_records_to_send_are_not_counted_as_lag() -> None:
    one = progress()
    one.answered(source_start=0, source_end=9, now_ms=1_000)
    one.asked_to = 9
    assert (one.lag, one.is_caught_up) == (0, True)
    one.sent(next_offset=12, end_offset=12)
    one.answered(source_start=0, source_end=12, now_ms=1_000)
    assert one.lag == 7, "it is in flight, not stored"


def test_large_lag_is_exact() -> None:
    one = progress()
    one.answered(source_start=0, source_end=12_345_678_906, now_ms=1_000)
    assert value(one, "lag_records") == 12_345_678_901


def test_stopped_partition_is_reported_without_records_in_flight() -> None:
    one = progress()
    turn = one.turn
    one.differs_at(4)
    assert (value(one, "stopped"), value(one, "diverged")) == (1, 1)
    assert one.turn > turn, "records in flight are dropped"
    one.failed("late news", 5)
    one.compare_again()
    assert one.state is CopyState.STOPPED


def test_source_with_a_lower_end_is_tolerated_for_a_while() -> None:
    one = progress()
    one.compare_again()
    one.ends_before(3, 5, now_ms=1_000)
    assert (one.state, one.is_diverged) == (CopyState.COMPARING, False)
    one.ends_before(3, 5, now_ms=15_999)
    assert one.state is CopyState.COMPARING
    one.looked(copy_start=0, copy_end=5, source_start=0, address="a", epoch=2)
    one.compare_again()
    one.ends_before(3, 5, now_ms=20_000)
    assert one.state is CopyState.COMPARING, "counted again"
    one.ends_before(3, 5, now_ms=35_000)
    assert (one.state, one.is_diverged) == (CopyState.STOPPED, True)
