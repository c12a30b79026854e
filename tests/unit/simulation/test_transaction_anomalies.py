"""Each anomaly planted into a history of transactions is found by name, by both checkers.

Histories that the rules allow have none.
"""

import pytest
from tests.simulation.checkers.transaction_relations import judged

from quorumlog.errors import InvalidRequest
from quorumlog.testing.checkers import (
    OffsetRead,
    Place,
    Stored,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)

IN: Place = ("in", 0)
OUT: Place = ("out", 0)
OTHER: Place = ("out", 1)
COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
UNKNOWN = TransactionOutcome.UNKNOWN


class Written:
    """A history under construction, with a clock that every operation advances."""

    def __init__(self) -> None:
        self.history = TransactionHistory()
        self.now = 0
        self.final: dict[Place, list[tuple[int, bytes]]] = {IN: [], OUT: [], OTHER: []}
        self.committed: dict[tuple[str, Place], int] = {}

    def tick(self) -> int:
        self.now += 1
        return self.now

    def plain(self, offset: int, value: bytes) -> None:
        """A record of the input that is not part of a transaction."""
        self.history.records.invoke("plain", IN, value, at=self.tick())
        self.history.records.acknowledge(value, offset, at=self.tick())
        self.final[IN].append((offset, value))

    def transaction(
        self,
        name: str,
        *sends: tuple[Place, int, bytes],
        outcome: TransactionOutcome = COMMITTED,
        requests: bool = True,
        shown: tuple[Place, ...] = (OUT, OTHER),
    ) -> Transaction:
        """A transaction with acknowledged records; those in `shown` partitions are visible."""
        one = self.history.begin(name, "p", at=self.tick())
        for place, offset, value in sends:
            self.history.send(one, place, value, at=self.tick())
            self.history.records.acknowledge(value, offset, at=self.tick())
        if requests:
            self.history.request_commit(one, at=self.tick())
        self.history.end(one, outcome, at=self.tick())
        if outcome is not ABORTED:
            for place, offset, value in sends:
                if place in shown:
                    self.final[place].append((offset, value))
        return one

    def process(self, one: Transaction, first: int, end: int) -> None:
        """Let group `g` process the records of a range of the input in this transaction."""
        one.reads += [(IN, at, value) for at, value in self.final[IN] if first <= at < end]
        one.offsets["g", IN] = (first, end)

    def poll(self, place: Place, *records: tuple[int, bytes]) -> None:
        self.history.records.poll("r", place, records, at=self.tick())

    def kinds(self, *, processed: bool = False, incomplete: tuple[Place, ...] = ()) -> set[str]:
        final: Stored = {place: sorted(found) for place, found in self.final.items()}
        found = judged(
            self.history,
            final,
            self.committed,
            incomplete=incomplete,
            processed={"g": [IN]} if processed else None,
        )
        return {str(one.kind) for one in found}


def processing() -> Written:
    """Four inputs, processed by two transactions with an output in each of two partitions."""
    written = Written()
    for offset in range(4):
        written.plain(offset, b"i%d" % offset)
    for number, first in enumerate((0, 2)):
        values = (b"a%d" % number, b"b%d" % number)
        one = written.transaction(
            f"t{number}", (OUT, 2 * number, values[0]), (OTHER, 2 * number, values[1])
        )
        written.process(one, first, first + 2)
    written.committed["g", IN] = 4
    return written


def test_two_transactions_that_process_everything_once_have_no_anomaly() -> None:
    written = processing()
    written.poll(OUT, (0, b"a0"), (2, b"a1"))
    assert written.kinds(processed=True) == set()


def test_aborted_transactions_and_undecided_ones_without_effect_are_allowed() -> None:
    written = processing()
    one = written.transaction("t2", (OUT, 4, b"x"), outcome=ABORTED)
    written.process(one, 0, 4)
    open_one = written.transaction("t3", (OUT, 6, b"y"), outcome=UNKNOWN, requests=False, shown=())
    written.process(open_one, 1, 3)
    lost = written.transaction("t4", (OUT, 7, b"z"), outcome=UNKNOWN, shown=())
    written.process(lost, 2, 4)
    assert written.kinds(processed=True) == set()


def test_an_undecided_commit_with_all_its_records_visible_is_a_commit() -> None:
    written = processing()
    written.plain(4, b"i4")
    one = written.transaction("t2", (OUT, 4, b"x"), (OTHER, 4, b"y"), outcome=UNKNOWN)
    written.process(one, 4, 5)
    written.committed["g", IN] = 5
    assert written.kinds(processed=True) == set()


def test_an_acknowledged_commit_without_its_records_is_lost() -> None:
    written = processing()
    written.transaction("t2", (OUT, 4, b"x"), shown=())
    assert written.kinds() == {"lost write", "torn transaction"}


@pytest.mark.parametrize("outcome", [COMMITTED, UNKNOWN])
def test_a_transaction_with_one_of_two_partitions_visible_is_torn(
    outcome: TransactionOutcome,
) -> None:
    written = processing()
    written.transaction("t2", (OUT, 4, b"x"), (OTHER, 4, b"y"), outcome=outcome, shown=(OUT,))
    assert "torn transaction" in written.kinds()


def test_records_that_retention_may_have_removed_tear_nothing() -> None:
    written = processing()
    written.transaction("t2", (OUT, 4, b"x"), (OTHER, 4, b"y"), shown=(OUT,))
    assert written.kinds(incomplete=(OTHER,)) == set()


def test_a_visible_record_of_an_aborted_transaction_is_an_aborted_read() -> None:
    written = processing()
    written.transaction("t2", (OUT, 4, b"x"), outcome=ABORTED)
    written.final[OUT].append((4, b"x"))
    assert written.kinds() == {"aborted read"}


def test_a_transaction_that_never_requested_its_commit_counts_as_aborted() -> None:
    written = processing()
    written.transaction("t2", (OUT, 4, b"x"), outcome=UNKNOWN, requests=False)
    assert written.kinds() == {"aborted read"}


def test_a_polled_record_that_is_missing_at_the_end_has_vanished() -> None:
    written = processing()
    written.transaction("t2", (OUT, 4, b"x"), outcome=UNKNOWN, shown=())
    written.poll(OUT, (4, b"x"))
    assert written.kinds() == {"vanished"}


def test_a_record_that_is_returned_before_the_commit_is_requested_is_precommitted() -> None:
    written = Written()
    one = written.history.begin("t0", "p", at=written.tick())
    written.history.send(one, OUT, b"x", at=written.tick())
    written.history.records.acknowledge(b"x", 0, at=written.tick())
    written.poll(OUT, (0, b"x"))
    written.history.request_commit(one, at=written.tick())
    written.history.end(one, COMMITTED, at=written.tick())
    written.final[OUT].append((0, b"x"))
    assert written.kinds() == {"precommitted read"}


def test_two_transactions_that_read_each_other_are_a_cycle() -> None:
    written = Written()
    one = written.transaction("t0", (OUT, 0, b"x"))
    other = written.transaction("t1", (OTHER, 0, b"y"))
    one.reads.append((OTHER, 0, b"y"))
    assert written.kinds() == set()
    other.reads.append((OUT, 0, b"x"))
    assert written.kinds() == {"read cycle"}


def test_a_transaction_that_reads_its_own_record_is_a_cycle() -> None:
    written = Written()
    one = written.transaction("t0", (OUT, 0, b"x"))
    one.reads.append((OUT, 0, b"x"))
    assert written.kinds() == {"read cycle"}


def test_input_of_two_effective_transactions_is_processed_twice() -> None:
    written = processing()
    one = written.transaction("t2", (OUT, 4, b"x"), outcome=UNKNOWN)
    written.process(one, 3, 4)
    assert written.kinds() == {"processed twice"}


def test_input_between_two_effective_transactions_is_not_processed() -> None:
    written = processing()
    for offset in (4, 5):
        written.plain(offset, b"i%d" % offset)
    one = written.transaction("t2", (OUT, 4, b"x"))
    written.process(one, 5, 6)
    written.committed["g", IN] = 6
    assert written.kinds(processed=True) == {"not processed"}


def test_input_behind_the_last_effective_transaction_is_not_processed() -> None:
    written = processing()
    written.plain(4, b"i4")
    assert written.kinds(processed=True) == {"not processed"}
    assert written.kinds() == set()


def test_input_inside_a_range_that_its_transaction_never_read_is_not_processed() -> None:
    written = processing()
    written.history.transactions["t1"].reads.pop()
    assert written.kinds() == {"not processed"}


@pytest.mark.parametrize("offset", [-1, 2, 5])
def test_a_final_offset_that_disagrees_with_the_output_is_wrong(offset: int) -> None:
    written = processing()
    written.committed["g", IN] = offset
    assert written.kinds() == {"wrong offset"}


def test_an_offset_before_that_of_an_acknowledged_commit_is_lost() -> None:
    written = processing()
    written.history.offset_reads.append(OffsetRead("g", IN, 2, written.now, written.now + 1))
    assert written.kinds() == {"lost offset"}


def test_an_offset_during_a_commit_may_be_the_old_or_the_new_one() -> None:
    written = processing()
    second = written.history.transactions["t1"]
    during = second.ended_at - 1
    written.history.offset_reads += [
        OffsetRead("g", IN, offset, during, during + 1) for offset in (2, 4)
    ]
    assert written.kinds() == set()


@pytest.mark.parametrize("offset", [3, 4])
def test_an_offset_that_no_transaction_had_committed_is_uncommitted(offset: int) -> None:
    written = processing()
    second = written.history.transactions["t1"]
    before = second.commit_requested_at - 1
    written.history.offset_reads.append(OffsetRead("g", IN, offset, before, before))
    assert written.kinds() == {"uncommitted offset"}


def test_both_outcomes_acknowledged_for_one_epoch_are_a_changed_outcome() -> None:
    written = processing()
    written.history.decided("id 1 epoch 0", is_commit=True)
    written.history.decided("id 1 epoch 0", is_commit=True)
    written.history.decided("id 1 epoch 1", is_commit=False)
    assert written.kinds() == set()
    written.history.decided("id 1 epoch 0", is_commit=False)
    assert written.kinds() == {"changed outcome"}


def test_the_rules_of_plain_records_hold_for_those_of_transactions() -> None:
    written = processing()
    written.final[OUT].append((9, b"a0"))
    assert written.kinds() == {"duplicate"}
    written = processing()
    written.final[OUT].append((9, b"nobody sent this"))
    assert written.kinds() == {"phantom"}


def test_the_name_of_a_transaction_is_unique() -> None:
    with pytest.raises(InvalidRequest, match="t0 is not unique"):
        processing().history.begin("t0", "p", at=99)
