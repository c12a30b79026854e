"""Each violated expectation of an application is found by name; a clean history has none."""

import pytest
from tests.simulation.checkers.client_expectations import (
    DeliveryOutcome,
    ExpectedOffsets,
    Outcomes,
    check_budget,
)

PLACE = ("t", 0)


def settled(outcome: DeliveryOutcome, *, now_ms: int = 50) -> Outcomes:
    outcomes = Outcomes()
    outcomes.give(b"a", due_ms=100)
    outcomes.settle(b"a", outcome, now_ms=now_ms)
    return outcomes


def test_one_outcome_in_time_is_no_anomaly() -> None:
    assert settled(DeliveryOutcome.DELIVERED).anomalies({PLACE: [(0, b"a")]}) == []
    assert settled(DeliveryOutcome.FAILED).anomalies({PLACE: []}) == []
    assert settled(DeliveryOutcome.UNKNOWN).anomalies({PLACE: [(0, b"a")]}) == []


def test_a_late_outcome_is_found() -> None:
    (found,) = settled(DeliveryOutcome.DELIVERED, now_ms=101).anomalies({})
    assert found == "late outcome: b'a' is delivered, 1 ms too late"


def test_a_second_outcome_is_found() -> None:
    outcomes = settled(DeliveryOutcome.DELIVERED)
    outcomes.settle(b"a", DeliveryOutcome.FAILED, now_ms=60)
    (found,) = outcomes.anomalies({})
    assert found == "second outcome: b'a' was delivered and is failed"


def test_a_record_without_an_outcome_is_found() -> None:
    outcomes = Outcomes()
    outcomes.give(b"a", due_ms=100)
    assert outcomes.anomalies({})[0].startswith("no outcome")


def test_a_stored_record_that_failed_for_good_is_found() -> None:
    (found,) = settled(DeliveryOutcome.FAILED).anomalies({PLACE: [(0, b"x"), (1, b"a")]})
    assert found == "stored failure: b'a' failed and is at t-0 1"


@pytest.mark.parametrize("offset", [3, 5])
def test_unexpected_offset_is_out_of_order(offset: int) -> None:
    turns = ExpectedOffsets("reader", {PLACE: 3})
    turns.take(PLACE, 3)
    with pytest.raises(AssertionError, match=f"out of turn: reader got t-0 {offset}, 4 was next"):
        turns.take(PLACE, offset)


def test_reader_that_may_skip_never_rewinds() -> None:
    turns = ExpectedOffsets("reader", may_skip=True)
    turns.take(PLACE, 7)
    turns.take(PLACE, 9)
    with pytest.raises(AssertionError, match="10 was next"):
        turns.take(PLACE, 9)


def test_seek_changes_the_expected_offset() -> None:
    turns = ExpectedOffsets("reader", {PLACE: 3})
    turns.seek(PLACE, 1)
    turns.take(PLACE, 1)
    turns.seek(PLACE, None)
    turns.take(PLACE, 40)
    assert turns.handed_out == 2


def test_more_bytes_than_allowed_are_over_budget() -> None:
    check_budget("p", 10, 10)
    with pytest.raises(AssertionError, match="over budget: p holds 11 bytes, 10 are allowed"):
        check_budget("p", 11, 10)
