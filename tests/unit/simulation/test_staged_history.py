"""The rules of staged batches reject histories that break them."""

import pytest
from tests.simulation.checkers.violation import Violation
from tests.simulation.levels.transactions.staged_history import StagedBatch, StagedHistory

from quorumlog.ids import ProducerIdentity
from quorumlog.testing.checkers import (
    Place,
    Stored,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)

OUT: Place = ("t", 0)
OTHER: Place = ("t", 1)
FIRST, SECOND = ("q", 0), ("q", 1)


class Play:
    """A history of attempts with one record each."""

    def __init__(self) -> None:
        self.history = StagedHistory(TransactionHistory())
        self.at = 0

    def attempt(
        self, write: int, task: int = 0, *, key: tuple[str, int] = FIRST
    ) -> tuple[Transaction, bytes]:
        self.at += 1
        producer = ProducerIdentity(self.at, 0)
        transaction = self.history.begin(key, write, task, producer, at=self.at)
        value = b"%d.%d #%d" % (write, task, self.at)
        self.history.transactions.send(transaction, OUT, value, at=self.at)
        return transaction, value

    def request(self, write: int, *winners: Transaction, key: tuple[str, int] = FIRST) -> None:
        names = frozenset(winner.name for winner in winners)
        self.history.request_commit(key, write, names, at=self.at)

    def answer(self, write: int, records: int, *, key: tuple[str, int] = FIRST) -> None:
        batch = StagedBatch(key[1], write, records, True)
        self.history.answer(key, batch, at=self.at)

    def found(self, *values: bytes, place: Place = OUT) -> Stored:
        return {place: list(enumerate(values))}


@pytest.fixture
def play() -> Play:
    return Play()


def expect(play: Play, invariant: str, final: Stored) -> None:
    with pytest.raises(Violation) as caught:
        play.history.check(final)
    assert caught.value.invariant == invariant


def test_a_committed_batch_is_whole(play: Play) -> None:
    (one, first), (two, second) = play.attempt(7, 0), play.attempt(7, 1)
    loser, _ = play.attempt(7, 1)
    play.request(7, one, two)
    play.answer(7, 2)
    assert play.history.check(play.found(first, second)) == 1
    outcomes = [each.outcome for each in (one, two, loser)]
    committed = TransactionOutcome.COMMITTED
    assert outcomes == [committed, committed, TransactionOutcome.ABORTED]
    expect(play, "TornBatch", play.found(first))
    expect(play, "TornBatch", play.found())


def test_a_batch_without_an_answer_is_whole_or_absent(play: Play) -> None:
    (one, first), (two, second) = play.attempt(7, 0), play.attempt(7, 1)
    play.request(7, one, two)
    assert play.history.check(play.found(first, second)) == 1
    assert play.history.check(play.found()) == 0
    expect(play, "TornBatch", play.found(first))


def test_a_batch_has_the_records_of_one_write(play: Play) -> None:
    (one, first), (two, second) = play.attempt(7), play.attempt(8)
    play.request(7, one)
    play.request(8, two)
    expect(play, "TornBatch", play.found(first, second))
    play.answer(8, 1)
    expect(play, "TornBatch", play.found(first))


def test_records_that_no_commit_names_are_not_visible(play: Play) -> None:
    _, value = play.attempt(7)
    expect(play, "TornBatch", play.found(value))


def test_a_number_has_one_write(play: Play) -> None:
    (one, _), (two, _) = play.attempt(7), play.attempt(8)
    play.request(7, one)
    play.request(8, two)
    play.answer(7, 1)
    for write, records in ((8, 1), (7, 2)):
        with pytest.raises(Violation, match="was returned after"):
            play.answer(write, records)


def test_a_committed_write_was_requested_and_not_refused(play: Play) -> None:
    with pytest.raises(Violation, match="no request names"):
        play.answer(7, 0)
    one, _ = play.attempt(7, key=SECOND)
    play.request(7, one, key=SECOND)
    play.history.refuse(SECOND, 7)
    with pytest.raises(Violation, match="was refused before"):
        play.answer(7, 1, key=SECOND)


def test_a_committed_write_is_not_aborted(play: Play) -> None:
    one, _ = play.attempt(7)
    play.request(7, one)
    play.answer(7, 1)
    play.history.refuse(FIRST, 6)
    with pytest.raises(Violation, match="was returned before"):
        play.history.refuse(FIRST, 7)


def test_batches_are_in_the_order_of_their_numbers(play: Play) -> None:
    (one, first), (two, second) = play.attempt(7), play.attempt(8, key=SECOND)
    play.request(7, one)
    play.request(8, two, key=SECOND)
    assert play.history.check(play.found(first, second)) == 2
    expect(play, "BatchOrder", play.found(second, first))


def test_an_identity_is_of_one_attempt(play: Play) -> None:
    play.attempt(7)
    with pytest.raises(Violation, match="to an attempt before"):
        play.history.begin(FIRST, 8, 0, ProducerIdentity(play.at, 0), at=play.at)
