"""The checker of stored transactions rejects every log that breaks a rule, and accepts others."""

from collections.abc import Sequence

import pytest
from tests.simulation.checkers.transaction_logs import LogBatch, TransactionLogs
from tests.simulation.checkers.violation import Violation

from quorumlog.records.control import MarkerType
from quorumlog.testing.checkers import Place, TransactionHistory, TransactionOutcome

PLACE: Place = ("t", 0)
OTHER: Place = ("t", 1)
NEW, OLD = 1, 2  # producer ids
ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


def data(producer_id: int, epoch: int, *values: bytes) -> LogBatch:
    records = tuple((at, None, value) for at, value in enumerate(values))
    return LogBatch(0, len(values), producer_id, epoch, True, None, -1, records)


def marker(producer_id: int, epoch: int, kind: MarkerType, coordinator_epoch: int = 0) -> LogBatch:
    return LogBatch(0, 0, producer_id, epoch, True, kind, coordinator_epoch, ())


def broken(
    *batches: LogBatch,
    others: Sequence[LogBatch] = (),
    history: TransactionHistory | None = None,
) -> str:
    """Return the name of the broken rule, "" for none."""
    logs = TransactionLogs(history or TransactionHistory(), {NEW})
    try:
        logs.check({PLACE: batches, OTHER: others})
    except Violation as violation:
        return violation.invariant
    return ""


def history(*outcomes: TransactionOutcome) -> TransactionHistory:
    """Return transactions `t0`, `t1`... that sent the records `0`, `1`..."""
    written = TransactionHistory()
    for number, outcome in enumerate(outcomes):
        one = written.begin(f"t{number}", "p", at=number)
        written.send(one, PLACE, b"%d" % number, at=number)
        written.request_commit(one, at=number)
        written.end(one, outcome, at=number)
    return written


def test_transactions_of_both_versions_are_accepted() -> None:
    assert not broken(
        data(NEW, 0, b"a"),
        data(OLD, 0, b"b"),
        marker(NEW, 1, COMMIT),
        marker(OLD, 0, COMMIT),
        data(OLD, 0, b"c"),
        data(NEW, 1, b"d"),
        data(NEW, 1, b"e"),
        marker(OLD, 1, ABORT, 1),
        marker(NEW, 2, ABORT, 1),
        others=[marker(NEW, 1, COMMIT), data(NEW, 1, b"f"), marker(NEW, 2, ABORT)],
    )


def test_a_marker_without_batches_is_accepted() -> None:
    assert not broken(marker(NEW, 1, ABORT), marker(NEW, 2, COMMIT))


def test_plain_batches_do_not_count() -> None:
    plain = data(NEW, 0, b"a")._replace(is_transactional=False)
    assert not broken(marker(NEW, 3, COMMIT), plain)


def test_a_transaction_without_a_marker_is_undecided() -> None:
    assert broken(data(OLD, 0, b"a")) == "Undecided"


def test_a_batch_behind_a_later_epoch_was_not_fenced() -> None:
    assert broken(marker(OLD, 1, ABORT), data(OLD, 0, b"a")) == "OldEpochAppended"
    assert broken(data(NEW, 1, b"a"), data(NEW, 0, b"b")) == "OldEpochAppended"


def test_a_marker_behind_a_later_epoch_was_not_fenced() -> None:
    assert broken(marker(OLD, 1, ABORT), marker(OLD, 0, ABORT)) == "OldEpochAppended"


def test_a_marker_of_an_older_coordinator_was_not_fenced() -> None:
    log = marker(OLD, 0, ABORT, 2), marker(OLD, 0, ABORT, 1)
    assert broken(*log) == "OldCoordinator"


def test_a_marker_of_the_epoch_of_its_batches_is_late() -> None:
    log = marker(NEW, 1, COMMIT), data(NEW, 1, b"a"), marker(NEW, 1, COMMIT)
    assert broken(*log) == "LateMarker"
    assert not broken(data(OLD, 1, b"a"), marker(OLD, 1, COMMIT))


def test_a_repeated_marker_is_refused_where_each_transaction_has_its_epoch() -> None:
    assert broken(marker(NEW, 1, COMMIT), marker(NEW, 1, COMMIT)) == "RepeatedMarker"
    assert not broken(marker(OLD, 1, COMMIT), marker(OLD, 1, COMMIT))


def test_two_outcomes_of_one_epoch_are_a_torn_decision() -> None:
    assert broken(marker(NEW, 1, COMMIT), others=[marker(NEW, 1, ABORT)]) == "TornDecision"
    assert not broken(marker(OLD, 1, COMMIT), others=[marker(OLD, 1, ABORT)])


def test_one_marker_decides_one_transaction() -> None:
    written = history(TransactionOutcome.UNKNOWN, TransactionOutcome.UNKNOWN)
    log = data(OLD, 0, b"0"), data(OLD, 0, b"1"), marker(OLD, 0, COMMIT)
    assert broken(*log, history=written) == "MixedTransactions"
    apart = data(OLD, 0, b"0"), marker(OLD, 0, COMMIT), data(OLD, 0, b"1"), marker(OLD, 0, ABORT)
    assert not broken(*apart, history=written)


@pytest.mark.parametrize(
    ("outcome", "kind", "rule"),
    [
        (TransactionOutcome.COMMITTED, COMMIT, ""),
        (TransactionOutcome.COMMITTED, ABORT, "WrongMarker"),
        (TransactionOutcome.ABORTED, COMMIT, "WrongMarker"),
        (TransactionOutcome.ABORTED, ABORT, ""),
        (TransactionOutcome.UNKNOWN, COMMIT, ""),
        (TransactionOutcome.UNKNOWN, ABORT, ""),
    ],
)
def test_the_marker_agrees_with_the_result_that_the_producer_received(
    outcome: TransactionOutcome, kind: MarkerType, rule: str
) -> None:
    log = data(OLD, 0, b"0"), marker(OLD, 0, kind)
    assert broken(*log, history=history(outcome)) == rule
