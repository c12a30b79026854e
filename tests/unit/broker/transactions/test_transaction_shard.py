"""Timeouts, expiry of transactional ids, operators' requests, and loading."""

from dataclasses import replace

import pytest

from quorumlog.broker.transactions.config import TransactionConfig
from quorumlog.broker.transactions.records import CLIENT_EPOCH_MAX, TransactionState
from quorumlog.broker.transactions.requests import (
    AbortReason,
    AbortTransaction,
    DescribeTransaction,
    ListedTransaction,
    TransactionDescription,
)
from quorumlog.broker.transactions.shard import EXPIRED_A_STEP, ID_RETRY_MS
from quorumlog.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdNotFound,
)
from quorumlog.ids import ProducerIdentity

from .shard_play import (
    DAY_MS,
    FIRST_ID,
    START_MS,
    TOPIC_A2,
    TOPIC_B,
    TOPICS,
    A,
    B,
    ShardPlay,
    image_of,
    states,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


@pytest.fixture
def play() -> ShardPlay:
    return ShardPlay()


def abort(play: ShardPlay, name: str = "t") -> ProducerIdentity:
    return play.ask(AbortTransaction(transactional_id=name))


# --- timeouts -------------------------------------------------------------------------------------


def test_a_transaction_is_aborted_at_its_timeout(play: ShardPlay) -> None:
    producer = play.init(timeout_ms=1_000)
    play.add(producer, A)
    play.now_ms += 600
    play.add(producer, B)  # does not extend it
    assert play.shard.deadline_ms() == START_MS + 1_000
    play.now_ms = START_MS + 999
    assert play.expire() == []
    play.now_ms += 1
    assert states(play.expire()) == [PREPARE_ABORT]
    [effect] = play.effects
    assert effect.abort_reason is AbortReason.TIMEOUT
    assert effect.producer == (FIRST_ID, 1)
    assert play.shard.deadline_ms() is None
    play.mark()
    assert play.state is COMPLETE_ABORT


def test_a_timeout_is_a_decision_before_or_after_the_commit(play: ShardPlay) -> None:
    producer = play.begun(A)
    play.end(producer)
    play.now_ms += DAY_MS
    assert play.expire() == []
    assert play.state is PREPARE_COMMIT


def test_after_a_timeout_the_producer_cannot_commit_but_can_continue(play: ShardPlay) -> None:
    producer = play.begun(A)
    play.now_ms += 60_000
    play.expire()
    with pytest.raises(InvalidTxnState):
        play.end(producer)
    with pytest.raises(ConcurrentTransactions):
        play.end(producer, commit=False)
    with pytest.raises(ProducerFenced):
        play.add(producer, B)
    play.mark()
    with pytest.raises(InvalidTxnState):
        play.end(producer)
    assert play.end(producer, commit=False) == (FIRST_ID, 1)


def test_after_a_timeout_an_old_client_is_fenced_and_gets_a_new_epoch(play: ShardPlay) -> None:
    producer = play.begun(A)
    play.now_ms += 60_000
    play.expire()
    play.mark()
    for commit in (True, False):
        with pytest.raises(ProducerFenced):
            play.end(producer, commit=commit, version=1)
    assert play.init(producer) == (FIRST_ID, 1)  # KIP-360


def test_a_timeout_of_an_exhausted_id_waits_for_a_new_id(play: ShardPlay) -> None:
    """KAFKA-20090"""
    play.init()
    play.store(replace(play.newest(), producer_epoch=CLIENT_EPOCH_MAX))
    last = ProducerIdentity(FIRST_ID, CLIENT_EPOCH_MAX)
    play.add(last, A)
    play.now_ms += 60_000
    play.has_ids = False
    assert play.expire() == []
    assert play.shard.deadline_ms() == play.now_ms + ID_RETRY_MS
    play.has_ids = True
    play.now_ms += ID_RETRY_MS
    assert states(play.expire()) == [PREPARE_ABORT]
    play.mark()
    assert play.end(last, commit=False) == (FIRST_ID + 1, 0)  # the late request of the client


def test_a_step_expires_a_bounded_number_of_transactions(play: ShardPlay) -> None:
    for number in range(EXPIRED_A_STEP + 3):
        producer = play.init(name=f"t{number}")
        play.add(producer, A, name=f"t{number}")
    play.now_ms += 60_000
    assert len(play.expire()) == EXPIRED_A_STEP
    assert play.shard.deadline_ms() == START_MS + 60_000
    assert len(play.expire()) == 3
    assert play.shard.deadline_ms() is None


# --- expiry of transactional ids --------------------------------------------------------------


def test_an_unused_id_expires(play: ShardPlay) -> None:
    first = play.init()
    play.now_ms += 7 * DAY_MS - 1
    assert play.expire() == []
    play.now_ms += 1
    assert states(play.expire()) == ["t"]
    assert list(filter(None, play.shard.listings())) == []
    with pytest.raises(InvalidProducerIdMapping):
        play.add(first, A)
    play.reload()
    assert list(filter(None, play.shard.listings())) == []
    assert play.init(first) == (FIRST_ID + 1, 0)


def test_a_change_extends_the_life_of_an_id(play: ShardPlay) -> None:
    producer = play.begun(A)
    play.now_ms += 1_000
    producer = play.end(producer)
    play.now_ms += 1_000
    play.mark()
    assert play.shard.deadline_ms() == START_MS + 2_000 + 7 * DAY_MS
    play.now_ms = START_MS + 2_000 + 7 * DAY_MS
    assert states(play.expire()) == ["t"]


@pytest.mark.parametrize("is_decided", [False, True])
def test_an_id_with_an_open_or_decided_transaction_does_not_expire(is_decided: bool) -> None:
    config = TransactionConfig(id_expiration_ms=1)
    play = ShardPlay(config=config)
    producer = play.begun(A)
    if is_decided:
        play.end(producer)
    for _ in range(2):
        play.now_ms += 10_000
        assert play.expire() == []
        play.reload()
    assert next(filter(None, play.shard.listings())).transactional_id == "t"


# --- operators ------------------------------------------------------------------------------------


def test_an_operators_abort_fences_the_producer(play: ShardPlay) -> None:
    producer = play.begun(A)
    assert abort(play) == (FIRST_ID, 1)
    assert play.effects[-1].abort_reason is AbortReason.OPERATOR
    with pytest.raises(ConcurrentTransactions, match="PrepareAbort"):
        abort(play)
    play.mark()
    for commit in (True, False):
        with pytest.raises(ProducerFenced):
            play.end(producer, commit=commit)
    with pytest.raises(InvalidTxnState, match="CompleteAbort"):
        abort(play)
    with pytest.raises(TransactionalIdNotFound):
        abort(play, "unknown")


def test_a_description_has_the_state_and_the_partitions(play: ShardPlay) -> None:
    with pytest.raises(TransactionalIdNotFound):
        play.ask(DescribeTransaction(transactional_id="t"))
    producer = play.begun(B, A)
    described = TransactionDescription(
        transactional_id="t",
        state="Ongoing",
        producer=producer,
        timeout_ms=60_000,
        started_ms=START_MS,
        partitions=(A, B),
    )
    assert play.ask(DescribeTransaction(transactional_id="t")) == described
    play.end(producer)
    play.mark(replace(play.effects[-1], partitions=play.effects[-1].partitions[:1]))
    found = play.ask(DescribeTransaction(transactional_id="t"))
    assert (found.state, found.partitions) == ("PrepareCommit", (B,))


def test_ids_are_listed_if_asked_for(play: ShardPlay) -> None:
    play.begun(A)
    play.init(name="s")
    begun = ListedTransaction(
        transactional_id="t",
        resource="t",
        producer_id=FIRST_ID,
        state="Ongoing",
        started_ms=START_MS,
    )
    empty = ListedTransaction(
        transactional_id="s",
        resource="s",
        producer_id=FIRST_ID + 1,
        state="Empty",
        started_ms=-1,
    )
    assert list(play.shard.listings()) == [begun, empty]
    assert list(play.shard.listings(lambda name: name == "s")) == [None, empty]
    assert (play.shard.id_count, play.shard.open_count) == (2, 1)
    assert play.shard.oldest_started_ms() == START_MS


# --- loading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [False, True])
def test_a_new_leader_resumes_the_markers(play: ShardPlay, commit: bool) -> None:
    play.end(play.begun(A, B), commit=commit)
    [before] = play.effects
    play.mark(replace(before, partitions=before.partitions[:1]))
    play.reload()
    [after] = play.effects  # acknowledgements are not stored
    assert after == replace(before, abort_reason=None)
    assert play.shard.deadline_ms() is None
    play.mark()
    assert play.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)


def test_the_clock_of_an_earlier_leader_does_not_lengthen_a_timeout(play: ShardPlay) -> None:
    producer = play.init(timeout_ms=1_000)
    play.now_ms += DAY_MS
    play.add(producer, A)
    play.now_ms -= DAY_MS
    play.reload()
    assert play.expire() == []
    play.now_ms += 1_000
    assert states(play.expire()) == [PREPARE_ABORT]


def test_a_new_leader_aborts_at_the_timeout_too(play: ShardPlay) -> None:
    play.begun(A)
    play.reload()
    assert play.shard.deadline_ms() == START_MS + 60_000
    play.now_ms += 60_000
    assert states(play.expire()) == [PREPARE_ABORT]
    assert len(play.effects[-1].partitions) == 1


def test_after_a_load_partitions_have_the_present_topic_ids(play: ShardPlay) -> None:
    producer = play.begun(A, B)
    play.image = image_of({"a": TOPIC_A2})
    play.reload()
    assert play.verify(producer, A, B) == ["", "TRANSACTION_ABORTABLE"]
    play.end(producer)
    assert [each.topic_id for each in play.effects[-1].partitions] == [TOPIC_A2]


def test_a_decided_transaction_of_deleted_topics_is_complete_after_a_load(play: ShardPlay) -> None:
    play.end(play.begun(A))
    play.image = image_of({"b": TOPIC_B})
    assert states(play.reload()) == [COMPLETE_COMMIT]
    assert play.effects == []


def test_a_load_returns_to_the_same_state(play: ShardPlay) -> None:
    play.begun(A)
    play.image = image_of(TOPICS)
    play.end(play.init(name="s"), commit=False, name="s")
    before = list(filter(None, play.shard.listings())), play.shard.deadline_ms()
    play.reload()
    assert (list(filter(None, play.shard.listings())), play.shard.deadline_ms()) == before
