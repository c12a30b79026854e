"""The rules of the producer state: sequences, epochs, transactions, expiry."""

import pytest

from quorumlog.errors import (
    CorruptionError,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequence,
    Overloaded,
    TransactionCoordinatorFenced,
)
from quorumlog.ids import ProducerIdentity
from quorumlog.records import MarkerType, iterate_batches, parse_header
from quorumlog.records.codec import encode_batch
from quorumlog.records.control import TransactionMarker
from quorumlog.records.record import Record
from quorumlog.storage import AppendOrigin
from quorumlog.storage.producer_state import (
    EXPIRY_INTERVAL_MS,
    STEP_MS_MAX,
    AlreadyStored,
    LastRecord,
)

from .producer_batches import START_MS, Producers, data, marker

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WINDOW_MS = 120_000
LAST = 2**31 - 1


def undecided(producers: Producers) -> int | None:
    return producers.states.undecided.first_offset


# --- sequences ---------------------------------------------------------------------------------


def test_an_unknown_producer_may_start_anywhere() -> None:
    producers = Producers()
    producers.write(data(500))
    producers.write(data(501))


@pytest.mark.parametrize("sequence", [0, 4, 6, LAST])
def test_a_sequence_that_does_not_follow_is_out_of_order(sequence: int) -> None:
    producers = Producers()
    producers.write(data(1, count=4))
    with pytest.raises(OutOfOrderSequence, match="the next sequence is 5"):
        producers.write(data(sequence))
    producers.write(data(5))


def test_sequence_wraps_to_zero() -> None:
    producers = Producers()
    producers.write(data(LAST - 1))
    producers.write(data(LAST, count=3))  # LAST, 0, 1
    producers.write(data(2))
    with pytest.raises(AlreadyStored):
        producers.write(data(LAST, count=3))


@pytest.mark.parametrize("back", range(5))
def test_duplicates_of_the_last_five_batches_are_detected(back: int) -> None:
    producers = Producers()
    for sequence in range(0, 14, 2):
        producers.write(data(sequence, count=2))
    with pytest.raises(AlreadyStored) as stored:
        producers.write(data(12 - 2 * back, count=2))
    assert stored.value.args == (12 - 2 * back, 14 - 2 * back, 1_000)
    assert producers.end == 14


def test_the_sixth_batch_back_is_out_of_order() -> None:
    producers = Producers()
    for sequence in range(6):
        producers.write(data(sequence))
    with pytest.raises(OutOfOrderSequence):
        producers.write(data(0))


def test_part_of_a_stored_batch_is_no_duplicate() -> None:
    producers = Producers()
    producers.write(data(0, count=4))
    for part in (data(0, count=3), data(1, count=3), data(0, count=5)):
        with pytest.raises(OutOfOrderSequence):
            producers.write(part)


def test_producers_are_independent() -> None:
    producers = Producers()
    producers.write(data(0, producer=1))
    producers.write(data(7, producer=2))
    producers.write(data(1, producer=1))


def test_client_append_with_a_producer_id_has_one_batch() -> None:
    producers = Producers()
    both = data(0) + data(1)
    with pytest.raises(InvalidRecord, match="one by one"):
        producers.states.plan(
            both, list(iterate_batches(both)), next_offset=0, origin=AppendOrigin.CLIENT, wall_ms=0
        )


def test_replicated_batches_are_not_checked() -> None:
    producers = Producers()
    producers.write(data(0, epoch=5), AppendOrigin.REPLICATED)
    producers.write(data(9, epoch=5), AppendOrigin.REPLICATED)
    producers.write(data(3, epoch=4), AppendOrigin.REPLICATED)
    entry = producers.states.entry(1)
    assert entry is not None
    assert (entry.epoch, entry.next_sequence, len(entry.batches)) == (4, 4, 1)


# --- epochs ------------------------------------------------------------------------------------


def test_an_older_epoch_is_fenced() -> None:
    producers = Producers()
    producers.write(data(0, epoch=3))
    with pytest.raises(InvalidProducerEpoch, match="epoch 3 in this log, the batch has 2"):
        producers.write(data(1, epoch=2))


def test_newer_producer_epoch_starts_at_sequence_zero() -> None:
    producers = Producers()
    producers.write(data(0))
    producers.write(data(1))
    with pytest.raises(OutOfOrderSequence):
        producers.write(data(2, epoch=1))
    producers.write(data(0, epoch=1))
    with pytest.raises(OutOfOrderSequence, match="next sequence is 1, the batch starts with 2"):
        producers.write(data(2, epoch=1))


# --- two phases --------------------------------------------------------------------------------


def test_writes_in_flight_count_in_later_checks() -> None:
    producers = Producers()
    first, second = producers.plan(data(0)), producers.plan(data(1))
    with pytest.raises(OutOfOrderSequence):
        producers.plan(data(3))
    assert first is not None
    assert second is not None
    assert producers.states.entry(1) is None, "nothing is in the log yet"
    producers.complete(first)
    producers.complete(second)
    producers.write(data(2))


def test_duplicate_of_a_write_in_flight_is_pending() -> None:
    producers = Producers()
    producers.write(data(0))
    changes = producers.plan(data(1))
    assert producers.plan(data(1)) is None
    with pytest.raises(AlreadyStored):  # the original of this one is in the log
        producers.plan(data(0))
    assert changes is not None
    producers.complete(changes)
    with pytest.raises(AlreadyStored):
        producers.plan(data(1))


def test_failed_write_is_rolled_back() -> None:
    producers = Producers()
    producers.write(data(0))
    second, third = producers.plan(data(1)), producers.plan(data(2, txn=True))
    assert second is not None
    assert third is not None
    producers.fail(third)
    producers.fail(second)
    producers.end = 1
    assert undecided(producers) is None
    producers.write(data(1))
    producers.write(data(2))


def test_a_failed_first_write_leaves_the_producer_unknown() -> None:
    producers = Producers()
    changes = producers.plan(data(9))
    assert changes is not None
    producers.fail(changes)
    producers.write(data(4))


def test_append_of_many_batches_is_rolled_back_entirely() -> None:
    producers = Producers()
    many = data(0) + data(1, base_offset=1) + data(0, producer=2, base_offset=2)
    changes = producers.states.plan(
        many, list(iterate_batches(many)), next_offset=0, origin=AppendOrigin.REPLICATED, wall_ms=0
    )
    assert changes is not None
    producers.states.reserve(changes)
    producers.states.failed(changes)
    producers.write(data(7))
    producers.write(data(8, producer=2))


# --- transactions ------------------------------------------------------------------------------


def test_a_transaction_runs_from_its_first_batch_to_its_marker() -> None:
    producers = Producers()
    producers.write(data(0))
    producers.write(data(1, txn=True))
    producers.write(data(2, txn=True))
    assert undecided(producers) == 1
    (ended,) = producers.mark(MarkerType.COMMIT)
    assert (ended.first_offset, ended.last_offset, ended.is_aborted) == (1, 3, False)
    assert undecided(producers) is None
    producers.write(data(3))


def test_aborted_transaction_records_the_last_stable_offset() -> None:
    producers = Producers()
    producers.write(data(0, producer=1, txn=True))
    producers.write(data(0, producer=2, txn=True))
    (first,) = producers.mark(MarkerType.ABORT, producer=1)
    (second,) = producers.mark(MarkerType.ABORT, producer=2)
    assert (first.is_aborted, first.last_stable_offset) == (True, 1)
    assert second.last_stable_offset == 4, "no transaction is open"


def test_open_transaction_rejects_non_transactional_batches_of_its_producer() -> None:
    producers = Producers()
    producers.write(data(0, txn=True))
    with pytest.raises(InvalidTxnState, match="open since offset 0"):
        producers.write(data(1))
    producers.write(data(1, txn=True))
    producers.write(data(0, producer=2))


def test_second_marker_completes_no_transaction() -> None:
    """R23: two coordinators that complete one transaction."""
    producers = Producers()
    producers.write(data(0, txn=True))
    assert len(producers.mark(MarkerType.ABORT)) == 1
    assert producers.mark(MarkerType.ABORT) == []


def test_a_marker_of_an_older_coordinator_is_fenced() -> None:
    producers = Producers()
    producers.write(data(0, txn=True))
    producers.mark(MarkerType.COMMIT, coordinator=5)
    producers.write(data(1, txn=True))
    with pytest.raises(TransactionCoordinatorFenced, match="epoch 4, below 5"):
        producers.mark(MarkerType.COMMIT, coordinator=4)
    producers.mark(MarkerType.COMMIT, coordinator=5)


def test_coordinator_epoch_of_the_last_marker_counts_after_a_restart() -> None:
    """In Kafka a marker of a lower epoch was accepted after the producer had expired."""
    producers = Producers()
    for coordinator in (1, 0):
        batch = marker(MarkerType.COMMIT, coordinator=coordinator)
        producers.write(batch, AppendOrigin.REPLICATED)
    producers.mark(MarkerType.COMMIT, coordinator=0)


def test_a_marker_of_an_older_producer_epoch_is_fenced() -> None:
    producers = Producers()
    producers.write(data(0, epoch=2, txn=True))
    with pytest.raises(InvalidProducerEpoch, match="the marker has 1"):
        producers.mark(MarkerType.ABORT, epoch=1)


def marker_of(epoch: int, version: int = 2) -> TransactionMarker:
    return TransactionMarker(ProducerIdentity(1, epoch), 0, True, version)


def test_marker_of_version_2_is_appended_for_an_unknown_producer() -> None:
    assert Producers().states.check_marker(marker_of(0))


def test_marker_of_version_2_with_a_newer_epoch_is_appended_without_a_transaction() -> None:
    producers = Producers()
    producers.mark(MarkerType.COMMIT, epoch=3)
    assert producers.states.check_marker(marker_of(4))


def test_repeated_marker_of_version_2_is_answered_and_not_appended() -> None:
    """KAFKA-19999. The offset to wait for is above the marker that it repeats."""
    producers = Producers()
    producers.write(data(0, txn=True))
    producers.mark(MarkerType.COMMIT, epoch=1)
    with pytest.raises(AlreadyStored) as stored:
        producers.states.check_marker(marker_of(1))
    assert stored.value.next_offset == producers.end == 2


def test_marker_of_version_2_waits_for_an_outstanding_write_of_its_producer() -> None:
    producers = Producers()
    producers.write(data(0, txn=True))
    first = producers.plan(marker(MarkerType.COMMIT, epoch=1), AppendOrigin.INTERNAL)
    assert first is not None
    assert not producers.states.check_marker(marker_of(1))
    producers.fail(first)
    assert producers.states.check_marker(marker_of(1))


@pytest.mark.parametrize("epoch", [0, 1])
def test_marker_of_version_2_does_not_end_a_later_transaction(epoch: int) -> None:
    """Planted bug: m >= e, the rule of older versions."""
    producers = Producers()
    producers.mark(MarkerType.COMMIT, epoch=1)
    producers.write(data(0, epoch=1, txn=True))
    with pytest.raises(InvalidProducerEpoch, match="belongs to an earlier transaction"):
        producers.states.check_marker(marker_of(epoch))
    assert undecided(producers) == 1


def test_marker_below_version_2_ends_a_transaction_of_its_epoch() -> None:
    producers = Producers()
    producers.write(data(0, epoch=1, txn=True))
    assert producers.states.check_marker(marker_of(1, version=1))
    assert len(producers.mark(MarkerType.COMMIT, epoch=1)) == 1
    assert producers.states.check_marker(marker_of(1, version=1))


def test_a_marker_of_a_newer_epoch_fences_the_producer() -> None:
    """A coordinator that aborts after a timeout bumps the epoch. A late batch of the old epoch must
    not open the transaction again (R24)."""
    producers = Producers()
    producers.write(data(0, txn=True))
    producers.mark(MarkerType.ABORT, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        producers.write(data(1, txn=True))
    with pytest.raises(OutOfOrderSequence):
        producers.write(data(1, epoch=1, txn=True))
    producers.write(data(0, epoch=1, txn=True))


def test_commit_marker_keeps_the_sequence() -> None:
    producers = Producers()
    producers.write(data(0, txn=True))
    producers.mark(MarkerType.COMMIT)
    with pytest.raises(AlreadyStored):
        producers.write(data(0, txn=True))
    producers.write(data(1, txn=True))


def test_producer_with_only_a_marker_may_continue_at_any_sequence() -> None:
    producers = Producers()
    producers.mark(MarkerType.COMMIT, producer=3)
    producers.write(data(77, producer=3))


def test_torn_marker_is_rejected() -> None:
    producers = Producers()
    batch = bytearray(marker(MarkerType.COMMIT))
    batch[-1] ^= 1
    with pytest.raises(CorruptionError):
        producers.write(bytes(batch), AppendOrigin.REPLICATED)


def test_another_control_batch_of_a_producer_changes_nothing() -> None:
    producers = Producers()
    other = encode_batch(
        [Record(0, 0, bytes.fromhex("00000005"), b"")], producer_id=1, is_control=True
    )
    header = parse_header(other)
    assert (
        producers.states.plan(
            other, [(0, header)], next_offset=0, origin=AppendOrigin.REPLICATED, wall_ms=0
        )
        == ()
    )


def test_a_batch_without_a_sequence_opens_a_transaction_and_leaves_the_sequence_alone() -> None:
    """Offsets that a coordinator commits in a transaction have no sequence."""
    producers = Producers()
    producers.write(data(0))
    producers.write(data(-1, txn=True), AppendOrigin.INTERNAL)
    assert undecided(producers) == 1
    producers.mark(MarkerType.COMMIT)
    producers.write(data(1))


# --- what is stable ----------------------------------------------------------------------------


def test_the_last_stable_offset_is_the_least_of_watermark_and_undecided() -> None:
    producers = Producers()
    producers.write(data(0))
    assert producers.states.undecided.last_stable_offset(1) == 1
    producers.write(data(1, txn=True))
    producers.write(data(2, txn=True))
    assert producers.states.undecided.last_stable_offset(3) == 1
    assert producers.states.undecided.last_stable_offset(0) == 0


def test_a_decided_transaction_counts_once_its_marker_is_committed() -> None:
    producers = Producers()
    producers.write(data(0, txn=True))
    producers.write(data(0, producer=2))
    producers.mark(MarkerType.COMMIT)  # at 2
    for high_watermark, stable in ((1, 0), (2, 0), (3, 3)):
        producers.states.undecided.replicated_to(high_watermark)
        assert producers.states.undecided.last_stable_offset(high_watermark) == stable


# --- forgetting --------------------------------------------------------------------------------


def test_idle_producer_expires() -> None:
    producers = Producers(expiration_ms=2 * HOUR_MS)
    producers.write(data(0))
    producers.write(data(0, producer=2))
    producers.now_ms += HOUR_MS
    producers.write(data(1, producer=2))
    assert producers.states.expire(producers.now_ms + HOUR_MS - 1) == 0
    assert producers.states.expire(producers.now_ms + HOUR_MS) == 1
    assert producers.states.entry(1) is None
    assert producers.states.entry(2) is not None


def test_appends_trigger_producer_expiry() -> None:
    producers = Producers(expiration_ms=HOUR_MS)
    producers.write(data(0))
    for sequence in range(3):
        producers.now_ms += HOUR_MS // 2
        producers.write(data(sequence, producer=2))
    assert producers.states.entry(1) is None


def test_producer_with_an_open_transaction_does_not_expire() -> None:
    producers = Producers(expiration_ms=HOUR_MS)
    producers.write(data(0, txn=True))
    for _ in range(30):
        producers.now_ms += HOUR_MS
        producers.states.expire(producers.now_ms)
    assert producers.states.entry(1) is not None


@pytest.mark.parametrize("jump_ms", [-30 * DAY_MS, 365 * DAY_MS])
def test_wall_clock_jump_expires_no_producer(jump_ms: int) -> None:
    producers = Producers(expiration_ms=DAY_MS)
    producers.write(data(0))
    producers.now_ms += jump_ms
    assert producers.states.expire(producers.now_ms) == 0
    with pytest.raises(AlreadyStored):
        producers.write(data(0))
    for _ in range(DAY_MS // STEP_MS_MAX + 1):
        producers.now_ms += STEP_MS_MAX
        producers.states.expire(producers.now_ms)
    assert len(producers.states) == 0, "time continues from the new value"


def test_producer_limit_evicts_the_longest_idle() -> None:
    producers = Producers(producers_max=3)
    producers.write(data(0, producer=1, txn=True))
    for producer in (2, 3):
        producers.write(data(0, producer=producer))
    producers.write(data(1, producer=2))
    producers.now_ms += WINDOW_MS
    producers.write(data(0, producer=4))
    assert [producer_id for producer_id, _ in producers.states.entries()] == [1, 2, 4]


def test_new_producers_evict_no_producer_that_may_retry() -> None:
    producers = Producers(producers_max=3)
    producers.write(data(0, producer=1))
    producers.now_ms += WINDOW_MS - 1
    for producer in (2, 3):
        producers.write(data(0, producer=producer))
    for invented in range(100, 110):
        with pytest.raises(Overloaded, match="wrote within the last 120000 ms; the limit is 3"):
            producers.write(data(0, producer=invented))
    with pytest.raises(AlreadyStored):
        producers.write(data(0, producer=1))
    producers.write(data(1, producer=1))
    producers.now_ms += WINDOW_MS
    producers.write(data(0, producer=110))


def test_new_producers_in_flight_count_toward_the_limit() -> None:
    """Each of them evicts one producer once it is in the log."""
    producers = Producers(producers_max=2)
    producers.write(data(0, producer=1))
    producers.now_ms += WINDOW_MS
    producers.write(data(0, producer=2))
    changes = producers.plan(data(0, producer=3))
    with pytest.raises(Overloaded):
        producers.plan(data(0, producer=4))
    assert changes is not None
    producers.complete(changes)
    assert [producer_id for producer_id, _ in producers.states.entries()] == [2, 3]


def test_replicated_batch_always_evicts_the_longest_idle_producer() -> None:
    producers = Producers(producers_max=2)
    for producer in (1, 2, 3):
        producers.write(data(0, producer=producer), AppendOrigin.REPLICATED)
    assert [producer_id for producer_id, _ in producers.states.entries()] == [2, 3]


def test_producer_limit_of_open_transactions_rejects_new_producers() -> None:
    producers = Producers(producers_max=2)
    producers.write(data(0, producer=1, txn=True))
    producers.write(data(0, producer=2, txn=True))
    producers.now_ms += WINDOW_MS
    with pytest.raises(Overloaded, match="2 producers have a transaction open"):
        producers.write(data(0, producer=3))
    producers.write(data(1, producer=2, txn=True))
    producers.mark(MarkerType.ABORT, producer=1)
    producers.now_ms += WINDOW_MS
    producers.write(data(0, producer=3))


def test_producer_with_a_write_in_flight_does_not_expire() -> None:
    producers = Producers(producers_max=1)
    producers.write(data(0, producer=1))
    changes = producers.plan(data(1, producer=1))
    producers.write(data(0, producer=2), AppendOrigin.REPLICATED)
    assert changes is not None
    assert producers.states.entry(1) is not None
    producers.fail(changes)


def test_internal_writes_for_a_producer_are_fenced_by_its_epoch() -> None:
    """Otherwise the offsets that a fenced producer commits for a group would be stored."""
    producers = Producers()
    producers.write(data(0, epoch=3))
    with pytest.raises(InvalidProducerEpoch):
        producers.write(data(-1, epoch=2, txn=True), AppendOrigin.INTERNAL)
    producers.write(data(-1, epoch=3, txn=True), AppendOrigin.INTERNAL)
    with pytest.raises(InvalidTxnState):
        producers.write(data(-1, epoch=3), AppendOrigin.INTERNAL)


def test_expiry_returns_the_number_of_expired_producers() -> None:
    producers = Producers(expiration_ms=1_000)
    for producer in range(4):
        producers.write(data(0, producer=producer))
    assert producers.states.expire(START_MS + EXPIRY_INTERVAL_MS) == 4
    assert producers.states.expire(START_MS + EXPIRY_INTERVAL_MS) == 0


def test_offsets_of_the_last_data_of_active_producers() -> None:
    producers = Producers()
    producers.write(data(0, count=3))
    producers.mark(MarkerType.COMMIT, producer=2, epoch=4)
    assert producers.states.last_records() == {1: LastRecord(2, 0), 2: LastRecord(-1, 4)}
