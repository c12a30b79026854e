"""Each anomaly planted into a history of clients is found under its name only.

A clean history has no anomaly.
"""

import json

import pytest

from quorumlog.errors import InvalidRequest
from quorumlog.testing.checkers import AnomalyKind, History, Stored, check, describe, merge
from quorumlog.testing.checkers.history import SendOutcome

PLACE = ("t", 0)
OTHER = ("t", 1)
VALUES = (b"a", b"b", b"c", b"d")


def history() -> History:
    """Return four records of two producers, acknowledged at 0 to 3, and a consumer that read
    them."""
    written = History()
    for at, (producer, value) in enumerate(zip("pqpq", VALUES, strict=True)):
        written.invoke(producer, PLACE, value, at=at)
    for offset, value in enumerate(VALUES):
        written.acknowledge(value, offset, at=10 + offset)
    written.assign("r", PLACE)
    written.poll("r", PLACE, [(0, b"a"), (1, b"b")], at=20)
    written.poll("r", PLACE, [(2, b"c"), (3, b"d")], at=21)
    return written


def final(*values: bytes) -> Stored:
    return {PLACE: list(enumerate(values or VALUES))}


def kinds(written: History, stored: Stored) -> set[str]:
    return {str(one.kind) for one in check(written, stored)}


def test_a_clean_history_has_no_anomaly() -> None:
    assert check(history(), final()) == []
    assert describe([]) == "no anomalies"


def test_acknowledged_record_that_was_never_read_is_lost() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    written.acknowledge(b"e", 4, at=31)
    assert kinds(written, final()) == {"lost write"}
    assert "b'e' of p was acknowledged at t-0 offset 4" in describe(check(written, final()))


def test_a_record_behind_which_others_were_read_is_lost_without_a_last_read() -> None:
    written = history()
    written.invoke("q", PLACE, b"e", at=30)
    written.acknowledge(b"e", 2, at=31)
    found = {one.kind for one in check(written, {})}
    assert AnomalyKind.LOST_WRITE in found


def test_acknowledged_record_at_the_end_not_read_yet_is_unseen() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    written.acknowledge(b"e", 4, at=31)
    assert kinds(written, {}) == {"unseen"}


def test_a_record_of_unknown_outcome_may_be_there_or_not() -> None:
    written = history()
    for value in (b"e", b"f"):
        written.invoke("p", PLACE, value, at=30)
        written.fail(value, at=31, is_certain=False)
    assert check(written, final(*VALUES, b"e")) == []


def test_record_that_only_the_leader_acknowledged_may_be_lost_and_its_offset_reused() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    written.acknowledge(b"e", 3, at=31, is_promise=False)
    assert check(written, final()) == []


def test_one_offset_with_two_values_is_found() -> None:
    written = history()
    written.invoke("s", PLACE, b"e", at=30)
    written.acknowledge(b"e", 4, at=31)
    written.invoke("u", PLACE, b"f", at=32)
    written.poll("x", PLACE, [(4, b"e")], at=33)
    assert kinds(written, final(*VALUES, b"f")) == {"inconsistent offset", "vanished"}


def test_consumed_record_that_disappeared_is_found() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    written.poll("x", PLACE, [(4, b"e")], at=31)
    assert kinds(written, final()) == {"vanished"}


def test_a_record_that_failed_for_good_and_is_read_is_found() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    written.fail(b"e", at=31, is_certain=True)
    assert kinds(written, final(*VALUES, b"e")) == {"aborted read"}


def test_record_that_was_never_sent_is_found() -> None:
    assert kinds(history(), final(*VALUES, b"x")) == {"phantom"}


def test_a_record_in_another_partition_than_it_was_sent_to_is_found() -> None:
    written = history()
    written.poll("r", OTHER, [(0, b"a")], at=30)
    assert kinds(written, final()) == {"phantom", "duplicate"}


def test_one_value_at_two_offsets_is_found() -> None:
    assert kinds(history(), final(*VALUES, b"d")) == {"duplicate"}


def test_a_producers_records_in_another_order_are_found() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    written.invoke("p", PLACE, b"f", at=31)
    written.acknowledge(b"e", 5, at=32)
    written.acknowledge(b"f", 4, at=33)
    assert kinds(written, final(*VALUES, b"f", b"e")) == {"reordered"}


def test_order_between_two_producers_is_arbitrary() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    written.invoke("q", PLACE, b"f", at=31)
    written.acknowledge(b"e", 5, at=32)
    written.acknowledge(b"f", 4, at=33)
    assert check(written, final(*VALUES, b"f", b"e")) == []


def test_order_of_failed_records_is_arbitrary() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    written.invoke("p", PLACE, b"f", at=31)
    written.fail(b"e", at=32, is_certain=False)
    written.acknowledge(b"f", 4, at=33)
    assert check(written, final(*VALUES, b"f", b"e")) == []


def test_a_gap_in_the_offsets_is_found_where_the_read_is_complete() -> None:
    written = history()
    written.invoke("p", PLACE, b"e", at=30)
    stored: Stored = {PLACE: [*enumerate(VALUES), (5, b"e")]}
    assert kinds(written, stored) == {"gap"}
    assert check(written, stored, is_complete=False) == []


def test_a_consumer_that_jumps_over_a_record_is_found() -> None:
    written = history()
    written.assign("x", PLACE)
    written.poll("x", PLACE, [(0, b"a")], at=30)
    written.poll("x", PLACE, [(2, b"c")], at=31)
    assert kinds(written, final()) == {"skipped poll"}


def test_a_jump_within_one_poll_is_found() -> None:
    written = history()
    written.poll("x", PLACE, [(0, b"a"), (3, b"d")], at=30)
    assert kinds(written, final()) == {"skipped poll"}


def test_a_jump_over_offsets_that_hold_no_record_is_none() -> None:
    written = History()
    written.invoke("p", PLACE, b"a", at=1)
    written.invoke("p", PLACE, b"b", at=2)
    written.poll("r", PLACE, [(0, b"a"), (7, b"b")], at=3)
    assert check(written, {}) == []


def test_consumer_that_gets_a_record_twice_is_found() -> None:
    written = history()
    written.poll("r", PLACE, [(3, b"d")], at=30)
    assert kinds(written, final()) == {"nonmonotonic poll"}


def test_offsets_that_go_back_within_one_poll_are_found() -> None:
    written = history()
    written.poll("x", PLACE, [(1, b"b"), (0, b"a")], at=30)
    assert kinds(written, final()) == {"nonmonotonic poll"}


def test_consumer_after_a_seek_may_read_any_offset() -> None:
    written = history()
    written.assign("r", PLACE)
    written.poll("r", PLACE, [(1, b"b"), (2, b"c")], at=30)
    assert check(written, final()) == []


def test_allowed_anomalies_are_not_reported() -> None:
    found = check(history(), final(*VALUES, b"d"), allowed=frozenset({AnomalyKind.DUPLICATE}))
    assert found == []


def test_the_worst_comes_first_and_a_long_report_is_cut() -> None:
    written = history()
    for number in range(20):
        value = b"lost %d" % number
        written.invoke("p", PLACE, value, at=30 + number)
        written.acknowledge(value, 100 + number, at=60)
    found = check(written, final(*VALUES, b"d"))
    assert [found[0].kind, found[-1].kind] == [AnomalyKind.LOST_WRITE, AnomalyKind.DUPLICATE]
    lines = describe(found).splitlines()
    assert lines[0] == "20 lost write, 1 duplicate"
    assert len(lines) == 11


def test_history_round_trip() -> None:
    written = history()
    written.invoke("p", PLACE, b"\xff", at=30)
    written.fail(b"\xff", at=31, is_certain=True)
    again = History.parse(written.lines())
    assert (again.sends, again.polls) == (written.sends, written.polls)


def test_lines_of_something_else_are_refused() -> None:
    with pytest.raises(ValueError, match="neither"):
        History.parse([json.dumps({"place": ["t", 0]})])
    with pytest.raises(ValueError, match="not unique"):
        History.parse([*history().lines(), *history().lines()])


def test_histories_of_several_processes_become_one_in_the_order_of_their_times() -> None:
    one, other = History(), History()
    one.invoke("p", PLACE, b"a", at=5)
    other.invoke("q", PLACE, b"b", at=3)
    one.poll("r", PLACE, [(0, b"b")], at=9)
    other.poll("s", PLACE, [(0, b"b")], at=8)
    merged = merge([one, other])
    assert list(merged.sends) == [b"b", b"a"]
    assert [poll.consumer for poll in merged.polls] == ["s", "r"]
    with pytest.raises(ValueError, match="not unique"):
        merge([one, one])


def test_a_record_has_one_outcome() -> None:
    written = history()
    with pytest.raises(InvalidRequest, match="has an outcome"):
        written.fail(b"a", at=40, is_certain=False)
    assert written.sends[b"a"].outcome is SendOutcome.OK


def test_values_are_unique() -> None:
    with pytest.raises(InvalidRequest, match="not unique"):
        history().invoke("p", PLACE, b"a", at=40)
