"""InitProducerId: a new producer's identity, the fencing of older ones, repeated requests."""

from dataclasses import replace

import pytest

from quorumlog.broker.transactions.formats import encode
from quorumlog.broker.transactions.records import (
    CLIENT_EPOCH_MAX,
    EPOCH_MAX,
    TransactionState,
)
from quorumlog.broker.transactions.requests import AbortReason
from quorumlog.broker.transactions.shard import TransactionShard
from quorumlog.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
)
from quorumlog.ids import ProducerIdentity

from .shard_play import FIRST_ID, TOPICS, A, ShardPlay, image_of

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_ABORT, COMPLETE_ABORT = TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT


@pytest.fixture
def play() -> ShardPlay:
    return ShardPlay()


def at_epoch(play: ShardPlay, epoch: int) -> ProducerIdentity:
    """The identity of a producer that has reached this epoch."""
    play.init()
    play.store(replace(play.newest(), producer_epoch=epoch))
    return ProducerIdentity(FIRST_ID, epoch)


def test_a_new_id_gets_a_producer_id_with_epoch_0(play: ShardPlay) -> None:
    assert play.init() == (FIRST_ID, 0)
    assert play.init(name="other") == (FIRST_ID + 1, 0)
    assert play.state is EMPTY


def test_every_producer_raises_the_epoch(play: ShardPlay) -> None:
    assert [play.init() for _ in range(3)] == [(FIRST_ID, 0), (FIRST_ID, 1), (FIRST_ID, 2)]


def test_an_unknown_id_accepts_the_identity_of_an_expired_one(play: ShardPlay) -> None:
    assert play.init(ProducerIdentity(7, 3)) == (FIRST_ID, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_above_the_maximum_is_refused(play: ShardPlay, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms=900000"):
        play.init(timeout_ms=timeout_ms)
    assert not play.log
    assert play.init(timeout_ms=900_000) == (FIRST_ID, 0)


def test_an_empty_transactional_id_is_refused(play: ShardPlay) -> None:
    with pytest.raises(InvalidRequest, match="transactional_id"):
        play.init(name="")


def test_without_a_producer_id_at_hand_the_client_retries(play: ShardPlay) -> None:
    play.has_ids = False
    with pytest.raises(CoordinatorLoading):
        play.init()
    assert not play.log
    play.has_ids = True
    assert play.init() == (FIRST_ID, 0)


def test_a_producer_continues_with_the_next_epoch(play: ShardPlay) -> None:
    first = play.init()
    assert play.init(first) == (FIRST_ID, 1)


def test_a_repeated_request_with_the_previous_epoch_returns_the_same_result(
    play: ShardPlay,
) -> None:
    first = play.init()
    second = play.init(first)
    assert play.init(first) == second
    play.reload()  # KAFKA-20357
    assert play.init(first) == second


def test_a_producer_that_another_one_replaced_is_fenced(play: ShardPlay) -> None:
    first = play.init()
    play.init()
    with pytest.raises(ProducerFenced):
        play.init(first)
    with pytest.raises(ProducerFenced):
        play.init(ProducerIdentity(FIRST_ID + 50, 0))


def test_an_epoch_that_was_never_returned_is_fenced(play: ShardPlay) -> None:
    first = play.init()
    with pytest.raises(ProducerFenced):
        play.init(ProducerIdentity(first.producer_id, 9))


def test_the_timeout_of_the_newest_request_applies(play: ShardPlay) -> None:
    first = play.init(timeout_ms=1_000)
    play.init(first, timeout_ms=2_000)
    play.init(first, timeout_ms=3_000)
    assert play.newest().timeout_ms == 3_000


# --- an open transaction ----------------------------------------------------------------------


@pytest.mark.parametrize("is_same", [False, True])
def test_an_open_transaction_is_aborted_before_the_answer(play: ShardPlay, is_same: bool) -> None:
    first = play.begun(A)
    current = first if is_same else None
    with pytest.raises(ConcurrentTransactions):
        play.init(current)
    assert play.state is PREPARE_ABORT
    [effect] = play.effects
    assert effect.abort_reason == (AbortReason.CLIENT if is_same else AbortReason.FENCED)
    assert (effect.is_commit, effect.transaction_version) == (False, 2)
    assert effect.producer == (FIRST_ID, 1)
    with pytest.raises(ConcurrentTransactions):
        play.init(current)  # until the markers are written
    play.mark()
    assert play.state is COMPLETE_ABORT
    # the same producer gets the epoch of the abort, another one a higher one
    assert play.init(current) == (FIRST_ID, 1 if is_same else 2)


def test_an_abort_by_the_coordinator_raises_the_epoch_once(play: ShardPlay) -> None:
    """KAFKA-19367"""
    first = play.begun(A)
    with pytest.raises(ConcurrentTransactions):
        play.init()
    assert play.newest().producer_epoch == first.producer_epoch + 1
    play.mark()
    assert play.newest().producer_epoch == first.producer_epoch + 1


def test_the_fenced_producer_cannot_end_its_transaction(play: ShardPlay) -> None:
    first = play.begun(A)
    with pytest.raises(ConcurrentTransactions):
        play.init()
    for _ in range(2):
        for commit in (False, True):
            for version in (1, 2):
                with pytest.raises(ProducerFenced):
                    play.end(first, commit=commit, version=version)
        with pytest.raises(ProducerFenced):
            play.add(first, A)
        if play.state is PREPARE_ABORT:
            play.mark()


def test_a_fenced_producer_does_not_abort_its_successors_transaction(play: ShardPlay) -> None:
    first = play.init()
    second = play.init(first)  # so `first` is the previous identity
    play.add(second, A)
    with pytest.raises(ProducerFenced):
        play.init(first)
    assert play.state is ONGOING
    assert play.end(second) == (FIRST_ID, 2)


def test_below_version_2_an_abort_fences_the_producer_for_good(play: ShardPlay) -> None:
    play.image = image_of(TOPICS, version=1)
    first = play.begun(A)
    with pytest.raises(ConcurrentTransactions):
        play.init(first)
    [effect] = play.effects
    assert (effect.producer, effect.transaction_version) == ((FIRST_ID, 1), 0)
    play.mark()
    with pytest.raises(ProducerFenced):
        play.init(first)
    assert play.init() == (FIRST_ID, 2)


# --- exhausted epochs -------------------------------------------------------------------------


@pytest.mark.parametrize("continues", [False, True])
def test_an_exhausted_id_is_replaced(play: ShardPlay, continues: bool) -> None:
    last = at_epoch(play, CLIENT_EPOCH_MAX - 1)
    last = play.init(last)
    assert last == (FIRST_ID, CLIENT_EPOCH_MAX)
    assert play.init(last if continues else None) == (FIRST_ID + 1, 0)
    assert play.newest().previous_producer_id == FIRST_ID


def test_the_replacement_of_an_id_is_repeated(play: ShardPlay) -> None:
    last = at_epoch(play, CLIENT_EPOCH_MAX)
    new = play.init(last)
    for _ in range(2):
        assert play.init(last) == new == (FIRST_ID + 1, 0)
        play.reload()  # KAFKA-20310
    play.add(new, A)
    with pytest.raises(ProducerFenced):
        play.init(last)


def test_a_replaced_id_is_fenced_if_another_producer_asked(play: ShardPlay) -> None:
    last = at_epoch(play, CLIENT_EPOCH_MAX)
    play.init()
    with pytest.raises(ProducerFenced):
        play.init(last)


def test_an_open_transaction_of_an_exhausted_id_is_aborted_and_the_id_replaced(
    play: ShardPlay,
) -> None:
    """KAFKA-20090"""
    last = at_epoch(play, CLIENT_EPOCH_MAX)
    play.add(last, A)
    with pytest.raises(ConcurrentTransactions):
        play.init(last)
    assert play.effects[-1].producer == (FIRST_ID, EPOCH_MAX)
    play.reload()
    play.mark()
    assert play.newest().next_producer_id == -1
    assert play.init(last) == (FIRST_ID + 1, 0)
    assert play.init() == (FIRST_ID + 1, 1)


def test_an_abort_without_a_replacement_id_at_hand_changes_nothing(play: ShardPlay) -> None:
    last = at_epoch(play, CLIENT_EPOCH_MAX)
    play.add(last, A)
    play.has_ids = False
    with pytest.raises(CoordinatorLoading):
        play.init()
    assert (play.state, play.effects) == (ONGOING, [])
    play.has_ids = True
    with pytest.raises(ConcurrentTransactions):
        play.init()


def test_below_version_2_the_next_producer_gets_the_new_id(play: ShardPlay) -> None:
    play.image = image_of(TOPICS, version=0)
    last = at_epoch(play, CLIENT_EPOCH_MAX)
    play.add(last, A)
    with pytest.raises(ConcurrentTransactions):
        play.init()
    assert play.effects[-1].producer == (FIRST_ID, EPOCH_MAX)
    play.mark()
    assert play.newest().producer_epoch == EPOCH_MAX
    with pytest.raises(ProducerFenced):  # no client has this epoch
        play.add(ProducerIdentity(FIRST_ID, EPOCH_MAX), A)
    assert play.init() == (FIRST_ID + 1, 0)


def test_an_open_transaction_with_the_highest_epoch_recovers(play: ShardPlay) -> None:
    """KAFKA-20090: Kafka 4.0 could leave such a transaction in the log."""
    play.begun(A)
    play.log.append(encode(replace(play.newest(), producer_epoch=EPOCH_MAX)))
    play.shard = TransactionShard(play.config, play.draw)
    play.shard.replay(play.newest())
    play.shard.loaded(play.image, play.now_ms)
    with pytest.raises(ConcurrentTransactions):
        play.init()
    assert play.effects[-1].producer == (FIRST_ID, EPOCH_MAX)
    play.mark()
    assert play.init() == (FIRST_ID + 1, 1)
