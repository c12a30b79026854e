"""The verification of transactional batches: the rules of the pure part, one by one."""

import pytest

from quorumlog.broker.verification import (
    MarkerAppend,
    TransactionalWrite,
    VerifiedAppend,
    VerifiedProducer,
    VerifiedProducers,
    is_open,
    must_verify,
    verification_error,
)
from quorumlog.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerFenced,
    QuorumlogError,
    TimedOut,
    TransactionAbortable,
)
from quorumlog.ids import ProducerIdentity
from quorumlog.records import MarkerType, encode_batch, encode_marker, parse_header
from quorumlog.records.control import TransactionMarker
from quorumlog.records.record import Record
from quorumlog.storage.producer_state import ProducerLimits, ProducerStates

NOW_MS = 1_000_000
LAST = 2**31 - 1


def producer(epoch: int = 0) -> ProducerIdentity:
    return ProducerIdentity(7, epoch)


def states(*batches: bytes) -> ProducerStates:
    """Return the states of a log with these batches."""
    found = ProducerStates(ProducerLimits(), wall_ms=NOW_MS)
    for batch in batches:
        found.replay(batch, parse_header(batch))
    return found


def data(offset: int, epoch: int = 0) -> bytes:
    return encode_batch(
        [Record(offset, 1, None, b"v")],
        base_offset=offset,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=offset,
        is_transactional=True,
    )


def marker(offset: int, epoch: int = 0) -> bytes:
    return encode_marker(
        producer_id=7,
        producer_epoch=epoch,
        kind=MarkerType.COMMIT,
        coordinator_epoch=0,
        timestamp_ms=1,
        base_offset=offset,
    )


def append(
    producers: VerifiedProducers,
    state: VerifiedProducer | None,
    *,
    epoch: int = 0,
    sequence: int = 0,
) -> VerifiedAppend:
    return VerifiedAppend(producer(epoch), sequence, producers, state)


def verified(producers: VerifiedProducers, sequence: int = 0) -> VerifiedProducer:
    state = producers.begin(producer(), "t", sequence)
    state.is_verified = True
    return state


def unexpected(last: int, held: int) -> None:
    raise AssertionError(f"torn: {held} of {last}")


def test_only_a_batch_that_would_begin_a_transaction_is_verified() -> None:
    unknown = states()
    assert must_verify(unknown.entry(7), 0)
    opened = states(data(0))
    assert not must_verify(opened.entry(7), 0)
    assert must_verify(opened.entry(7), 1)
    ended = states(data(0), marker(1))
    assert must_verify(ended.entry(7), 0)
    fenced = states(data(0), marker(1, epoch=1))
    assert not must_verify(fenced.entry(7), 0)  # the log refuses the older epoch


def test_a_verified_batch_is_appended_and_a_waiting_one_is_not() -> None:
    producers = VerifiedProducers()
    state = producers.begin(producer(), "t", 0)
    with pytest.raises(NotEnoughReplicas, match="its verification is outdated"):
        append(producers, state).is_met(states())
    state.is_verified = True
    assert append(producers, state).is_met(states())


def test_a_batch_without_a_verification_is_appended_only_to_an_open_transaction() -> None:
    """It arrived while the transaction was open; a marker was queued before it."""
    producers = VerifiedProducers()
    assert append(producers, None).is_met(states(data(0)))
    with pytest.raises(NotEnoughReplicas):
        append(producers, None).is_met(states(data(0), marker(1)))


def test_a_state_is_that_of_one_transactional_id() -> None:
    producers = VerifiedProducers()
    assert not producers.is_verified(producer(), "t")
    state = producers.begin(producer(), "t", 0)
    assert not producers.is_verified(producer(), "t")
    state.is_verified = True
    assert producers.is_verified(producer(), "t")
    assert not producers.is_verified(producer(1), "t")
    assert not producers.is_verified(producer(), "other")


def test_a_question_of_another_transactional_id_has_no_effect_on_the_state() -> None:
    producers = VerifiedProducers()
    state = verified(producers, sequence=5)
    foreign = producers.begin(producer(), "other", 0)
    newer = producers.begin(producer(1), "other", 0)
    assert (foreign.is_verified, newer.is_verified) == (False, False)
    assert producers.is_valid(state)
    assert append(producers, state, sequence=5).is_met(states())
    producers.delete(foreign)  # replaced before
    assert len(producers) == 2
    producers.delete(newer)
    assert len(producers) == 1
    assert producers.is_valid(state)


def test_a_refused_epoch_leaves_the_verified_older_one() -> None:
    producers = VerifiedProducers()
    older = verified(producers)
    producers.delete(producers.begin(producer(9), "t", 0))
    assert producers.is_valid(older)


def test_a_marker_deletes_the_states_of_all_transactional_ids() -> None:
    producers = VerifiedProducers()
    state = verified(producers)
    producers.begin(producer(), "other", 0)
    producers.marked(TransactionMarker(producer(1), 0, True, 2))
    assert len(producers) == 0
    assert not producers.is_valid(state)


def test_an_open_transaction_of_another_epoch_is_not_that_of_the_batch() -> None:
    assert is_open(states(data(0)).entry(7), 0)
    assert not is_open(states(data(0)).entry(7), 1)
    assert not is_open(states(data(0), marker(1)).entry(7), 0)
    assert not is_open(states().entry(7), 0)


def test_a_marker_deletes_the_verification_also_if_it_is_not_appended() -> None:
    producers = VerifiedProducers()
    state = verified(producers)
    later = states(marker(0, epoch=3))
    outdated = TransactionMarker(producer(1), 0, True, 2)
    with pytest.raises(InvalidProducerEpoch):
        MarkerAppend(outdated, producers.marked, -1, unexpected).is_met(later)
    assert not producers.is_valid(state)
    with pytest.raises(NotEnoughReplicas):
        append(producers, state).is_met(states())


def test_an_answer_to_an_earlier_question_verifies_nothing_after_a_marker() -> None:
    """The verification of the next transaction is another one, although the producer and the epoch
    are the same (KIP-890)."""
    producers = VerifiedProducers()
    earlier = producers.begin(producer(), "t", 0)
    producers.marked(TransactionMarker(producer(), 0, True, 1))
    later = producers.begin(producer(), "t", 1)
    earlier.is_verified = True
    assert not producers.is_valid(earlier)
    assert not producers.is_valid(later)


@pytest.mark.parametrize(
    ("version", "epoch", "keeps"), [(2, 1, False), (2, 0, True), (1, 0, False)]
)
def test_a_marker_deletes_the_verification_of_the_transaction_that_it_ends(
    version: int, epoch: int, keeps: bool
) -> None:
    producers = VerifiedProducers()
    state = verified(producers)
    producers.marked(TransactionMarker(producer(epoch), 0, True, version))
    assert producers.is_valid(state) == keeps


def test_a_verified_newer_epoch_replaces_the_verification_of_an_older_one() -> None:
    producers = VerifiedProducers()
    older = verified(producers)
    newer = producers.begin(producer(1), "t", 0)
    assert newer is not older
    newer.is_verified = True
    assert producers.is_valid(newer)
    assert not producers.is_valid(older)
    with pytest.raises(InvalidProducerEpoch, match="epoch 1 now, the batch has 0"):
        producers.begin(producer(), "t", 0)


def test_an_unverified_epoch_fences_no_producer() -> None:
    producers = VerifiedProducers()
    older = verified(producers, sequence=3)
    first = producers.begin(producer(9), "t", 0)
    second = producers.begin(producer(8), "t", 0)  # neither has an answer
    assert producers.is_valid(older)
    assert producers.begin(producer(), "t", 2) is older
    assert older.lowest_sequence == 2
    first.is_verified = True
    assert not producers.is_valid(first)  # replaced; its retry asks again
    second.is_verified = True
    assert producers.is_valid(second)
    assert not producers.is_valid(older)


def test_an_unverified_epoch_refuses_no_older_one() -> None:
    producers = VerifiedProducers()
    newer = producers.begin(producer(9), "t", 0)
    older = verified(producers)
    newer.is_verified = True
    assert producers.is_valid(older)
    assert not producers.is_valid(newer)


@pytest.mark.parametrize(
    ("version", "epoch", "keeps"), [(2, 1, False), (2, 0, True), (1, 0, False)]
)
def test_a_marker_deletes_a_verification_with_a_newer_one_under_way(
    version: int, epoch: int, keeps: bool
) -> None:
    producers = VerifiedProducers()
    state = verified(producers)
    newer = producers.begin(producer(1), "t", 0)
    producers.marked(TransactionMarker(producer(epoch), 0, True, version))
    assert producers.is_valid(state) == keeps
    newer.is_verified = True
    assert producers.is_valid(newer) == (version == 2)


def test_a_batch_above_the_lowest_sequence_that_asked_is_out_of_order() -> None:
    """The first batch's verification failed, the second one's succeeded: the log would accept the
    second as the first of an unknown producer, and refuse the retry of the first forever."""
    producers = VerifiedProducers()
    state = producers.begin(producer(), "t", 0)
    assert producers.begin(producer(), "t", 5) is state
    state.is_verified = True
    with pytest.raises(OutOfOrderSequence, match="sequence 5, but the one of sequence 0"):
        append(producers, state, sequence=5).is_met(states())
    assert append(producers, state, sequence=0).is_met(states())
    assert append(producers, state, sequence=5).is_met(states(data(0)))


def test_the_lowest_sequence_is_found_across_the_wrap() -> None:
    producers = VerifiedProducers()
    state = verified(producers, sequence=0)
    assert producers.begin(producer(), "t", LAST) is state
    assert append(producers, state, sequence=LAST).is_met(states())
    with pytest.raises(OutOfOrderSequence):
        append(producers, state, sequence=0).is_met(states())


def test_the_number_of_verifications_is_bounded() -> None:
    producers = VerifiedProducers(producers_max=3)
    first = producers.begin(ProducerIdentity(1, 0), "t", 0)
    first.is_verified = True
    for producer_id in (2, 3, 4):
        producers.begin(ProducerIdentity(producer_id, 0), "t", 0)
    assert len(producers) == 3
    assert not producers.is_valid(first)


@pytest.mark.parametrize(
    ("error", "up_to_10", "from_11", "from_12"),
    [
        (InvalidTxnState, InvalidTxnState, TransactionAbortable, TransactionAbortable),
        (TransactionAbortable, InvalidTxnState, TransactionAbortable, TransactionAbortable),
        (ProducerFenced, InvalidProducerEpoch, InvalidProducerEpoch, InvalidProducerEpoch),
        (InvalidProducerEpoch, InvalidProducerEpoch, InvalidProducerEpoch, InvalidProducerEpoch),
        (ConcurrentTransactions, NotEnoughReplicas, NotEnoughReplicas, ConcurrentTransactions),
        (NotCoordinator, NotEnoughReplicas, NotEnoughReplicas, NotEnoughReplicas),
        (CoordinatorLoading, NotEnoughReplicas, NotEnoughReplicas, NotEnoughReplicas),
        (CoordinatorNotAvailable, NotEnoughReplicas, NotEnoughReplicas, NotEnoughReplicas),
        (OutcomeUnknown, NotEnoughReplicas, NotEnoughReplicas, NotEnoughReplicas),
        (TimedOut, NotEnoughReplicas, NotEnoughReplicas, NotEnoughReplicas),
        (
            InvalidProducerIdMapping,
            InvalidProducerIdMapping,
            InvalidProducerIdMapping,
            InvalidProducerIdMapping,
        ),
    ],
)
def test_errors_of_the_coordinator_become_those_of_a_produce_version(
    error: type[QuorumlogError],
    up_to_10: type[QuorumlogError],
    from_11: type[QuorumlogError],
    from_12: type[QuorumlogError],
) -> None:
    for knows_abortable, adds, expected in (
        (False, False, up_to_10),
        (True, False, from_11),
        (True, True, from_12),
    ):
        write = TransactionalWrite("t", adds=adds, knows_abortable=knows_abortable)
        assert type(verification_error(error("reason"), write)) is expected
