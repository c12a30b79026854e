"""Each anomaly planted into a history is found under its name; a clean history has none."""

import pytest

from quorumlog.testing.checkers import Ledger, Stored, anomalies, report

PLACE = ("t", 0)


def history() -> Ledger:
    """Return four acknowledged records of two producers, "b" sent twice."""
    ledger = Ledger()
    for producer, value in (("p", b"a"), ("q", b"b"), ("p", b"c"), ("q", b"d")):
        ledger.ask(producer, value)
        ledger.sent[value] += 1
    ledger.sent[b"b"] += 1
    for offset, value in enumerate([b"a", b"b", b"c", b"d"]):
        ledger.acknowledge(value, PLACE, offset)
    ledger.see(PLACE, 0, b"a")
    return ledger


def found(ledger: Ledger, *values: bytes) -> list[str]:
    stored: Stored = {PLACE: list(enumerate(values))}
    return anomalies(ledger, stored)


def kinds(ledger: Ledger, *values: bytes) -> set[str]:
    return {sentence.partition(":")[0] for sentence in found(ledger, *values)}


def test_a_clean_history_has_no_anomaly() -> None:
    assert found(history(), b"a", b"b", b"c", b"d") == []


def test_duplicate_is_explained_by_its_number_of_sends() -> None:
    assert found(history(), b"a", b"b", b"c", b"d", b"b") == []


def test_a_lost_write_is_found() -> None:
    assert kinds(history(), b"a", b"b", b"c") == {"lost write"}


def test_another_record_at_an_acknowledged_offset_is_found() -> None:
    assert "inconsistent offset" in kinds(history(), b"a", b"c", b"b", b"d")


def test_consumed_record_that_disappeared_is_found() -> None:
    assert "vanished" in kinds(history(), b"b", b"b", b"c", b"d")


def test_a_gap_in_the_offsets_is_found() -> None:
    stored: Stored = {PLACE: [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (5, b"b")]}
    assert [line.partition(":")[0] for line in anomalies(history(), stored)] == ["gap"]


def test_record_that_was_never_sent_is_found() -> None:
    assert kinds(history(), b"a", b"b", b"c", b"d", b"x") == {"phantom"}


def test_a_record_stored_more_often_than_sent_is_found() -> None:
    assert kinds(history(), b"a", b"b", b"c", b"d", b"d") == {"duplicate"}


def test_one_producers_records_in_another_order_are_found() -> None:
    ledger = history()
    ledger.acknowledged.clear()
    ledger.seen.clear()
    assert kinds(ledger, b"c", b"a", b"b", b"d") == {"reordered"}
    assert found(ledger, b"b", b"d", b"a", b"c") == [], (
        "the order between two producers is arbitrary"
    )


def test_a_consumer_that_sees_an_offset_change_fails_at_once() -> None:
    ledger = history()
    with pytest.raises(AssertionError, match="t-0 offset 0"):
        ledger.see(PLACE, 0, b"other")


def test_a_long_report_is_cut_with_its_count() -> None:
    text = report([f"gap: {number}" for number in range(25)])
    assert text.splitlines()[-1] == "... and 15 more"
