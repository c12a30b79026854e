"""EndTxn in its versions up to 4 (transaction.version 0 and 1) and 5 (2), and the markers."""

from dataclasses import replace

import pytest

from quorumlog.broker.transactions.records import (
    CLIENT_EPOCH_MAX,
    EPOCH_MAX,
    TransactionState,
)
from quorumlog.broker.transactions.requests import (
    AbortReason,
    MarkerPartition,
    MarkersWritten,
    WriteMarkers,
)
from quorumlog.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    QuorumlogError,
)
from quorumlog.ids import ProducerIdentity

from .shard_play import FIRST_ID, TOPIC_A, TOPIC_A2, TOPIC_B, TOPICS, A, B, ShardPlay, image_of

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

every_version = pytest.mark.parametrize("version", [1, 2])
every_outcome = pytest.mark.parametrize("commit", [False, True])


@pytest.fixture
def play() -> ShardPlay:
    return ShardPlay()


def completed(play: ShardPlay, *, commit: bool, version: int) -> ProducerIdentity:
    """A producer after a complete transaction."""
    producer = play.end(play.begun(A), commit=commit, version=version)
    play.mark()
    return producer


# --- the way of a transaction -------------------------------------------------------------------


@every_outcome
@every_version
def test_a_transaction_is_decided_then_marked_then_complete(
    play: ShardPlay, commit: bool, version: int
) -> None:
    producer = play.begun(A, B)
    after = play.end(producer, commit=commit, version=version)
    assert after == (FIRST_ID, 1 if version == 2 else 0)
    assert play.state is (PREPARE_COMMIT if commit else PREPARE_ABORT)
    assert play.effects == [
        WriteMarkers(
            transactional_id="t",
            producer=after,
            is_commit=commit,
            transaction_version=2 if version == 2 else 0,
            partitions=(MarkerPartition("a", 0, TOPIC_A), MarkerPartition("b", 1, TOPIC_B)),
            abort_reason=None if commit else AbortReason.CLIENT,
        )
    ]
    play.mark()
    assert play.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert play.newest().partitions == frozenset()
    assert play.add(after, B) == [""]
    assert play.newest().partitions == {B}


@every_version
def test_the_last_marker_completes_the_transaction(play: ShardPlay, version: int) -> None:
    play.end(play.begun(A, B), version=version)
    [effect] = play.effects
    for partitions in (effect.partitions[1:], effect.partitions[1:], ()):
        play.mark(replace(effect, partitions=partitions))
        assert play.state is PREPARE_COMMIT
    play.mark(replace(effect, partitions=effect.partitions[:1]))
    assert play.state is COMPLETE_COMMIT


def test_a_report_about_other_markers_changes_nothing(play: ShardPlay) -> None:
    producer = play.end(play.begun(A))
    first = play.effects[-1]
    play.mark()
    play.add(producer, A)
    play.end(producer)
    size = len(play.log)
    play.mark(first)
    other_topic = MarkerPartition("a", 0, TOPIC_A2)
    play.mark(replace(play.effects[-1], partitions=(other_topic,)))
    play.ask(MarkersWritten(transactional_id="x", producer=producer, partitions=()))
    assert (play.state, len(play.log)) == (PREPARE_COMMIT, size)


@every_outcome
@every_version
def test_no_request_of_the_producer_overtakes_the_markers(
    play: ShardPlay, commit: bool, version: int
) -> None:
    after = play.end(play.begun(A), commit=commit, version=version)
    for _ in range(2):
        with pytest.raises(ConcurrentTransactions):
            play.add(after, B)
        with pytest.raises(ConcurrentTransactions):
            play.verify(after, A)
        with pytest.raises(ConcurrentTransactions):
            play.init(after)
        with pytest.raises(ConcurrentTransactions):
            # version 1: the repeated request; version 2: the next one, KAFKA-18464
            play.end(after, commit=commit, version=version)
        play.reload()
    assert play.state in (PREPARE_COMMIT, PREPARE_ABORT)


def test_in_version_2_the_next_end_waits_for_the_markers_whatever_it_decides(
    play: ShardPlay,
) -> None:
    """KAFKA-18464: a commit, then at once an abort without partitions."""
    after = play.end(play.begun(A))
    with pytest.raises(ConcurrentTransactions):
        play.end(after, commit=False)
    play.mark()
    assert play.end(after, commit=False) == (FIRST_ID, 2)


# --- repeated requests ----------------------------------------------------------------------------


@every_outcome
@every_version
def test_a_repeated_end_returns_the_same_result(
    play: ShardPlay, commit: bool, version: int
) -> None:
    producer = play.begun(A)
    after = play.end(producer, commit=commit, version=version)
    with pytest.raises(ConcurrentTransactions):
        play.end(producer, commit=commit, version=version)
    play.mark()
    size = len(play.log)
    assert play.end(producer, commit=commit, version=version) == after
    play.reload()
    assert play.end(producer, commit=commit, version=version) == after
    assert len(play.log) == size


@every_outcome
@every_version
def test_a_repeated_end_with_the_other_outcome_is_refused(
    play: ShardPlay, commit: bool, version: int
) -> None:
    producer = play.begun(A)
    play.end(producer, commit=commit, version=version)
    with pytest.raises(InvalidTxnState):
        play.end(producer, commit=not commit, version=version)
    play.mark()
    with pytest.raises(InvalidTxnState):
        play.end(producer, commit=not commit, version=version)


def test_in_version_2_a_late_end_does_not_end_the_next_transaction(play: ShardPlay) -> None:
    first = play.begun(A)
    second = play.end(first)
    play.mark()
    play.add(second, B)
    for commit in (True, False):
        with pytest.raises(ProducerFenced):
            play.end(first, commit=commit)
    assert play.state is ONGOING


def test_in_version_1_a_late_end_ends_the_next_transaction(play: ShardPlay) -> None:
    """The anomaly that version 2 removes (KAFKA-14402)."""
    producer = play.begun(A)
    play.end(producer, commit=False, version=1)
    play.mark()
    play.add(producer, B)
    play.end(producer, commit=False, version=1)  # the same request, delivered twice
    assert play.state is PREPARE_ABORT


# Kafka's table for the states without an open transaction, version 2: the outcome with the previous
# epoch ("retry") and with the present one.
FENCED, INVALID, SAME, NEW = "PRODUCER_FENCED", "INVALID_TXN_STATE", "same", "new"


@pytest.mark.parametrize(
    ("state", "commit", "retry", "current"),
    [
        (EMPTY, False, FENCED, NEW),
        (EMPTY, True, FENCED, INVALID),
        (COMPLETE_ABORT, False, SAME, NEW),
        (COMPLETE_ABORT, True, INVALID, INVALID),
        (COMPLETE_COMMIT, False, INVALID, NEW),
        (COMPLETE_COMMIT, True, SAME, INVALID),
    ],
)
def test_the_table_of_ends_without_a_transaction(
    play: ShardPlay, state: TransactionState, commit: bool, retry: str, current: str
) -> None:
    if state is EMPTY:
        before = play.init()
        now = play.init(before)
    else:
        before = play.begun(A)
        now = play.end(before, commit=state is COMPLETE_COMMIT)
        play.mark()

    def outcome(producer: ProducerIdentity) -> str:
        try:
            after = play.end(producer, commit=commit)
        except QuorumlogError as error:
            return error.name
        return SAME if after == now else NEW if after == (FIRST_ID, 2) else str(after)

    assert outcome(before) == retry
    assert outcome(now) == current


@pytest.mark.parametrize(
    ("state", "commit", "error"),
    [
        (EMPTY, False, INVALID),
        (EMPTY, True, INVALID),
        (COMPLETE_ABORT, False, ""),
        (COMPLETE_ABORT, True, INVALID),
        (COMPLETE_COMMIT, False, INVALID),
        (COMPLETE_COMMIT, True, ""),
    ],
)
def test_the_table_of_version_1(
    play: ShardPlay, state: TransactionState, commit: bool, error: str
) -> None:
    producer = play.init()
    if state is not EMPTY:
        play.add(producer, A)
        play.end(producer, commit=state is COMPLETE_COMMIT, version=1)
        play.mark()
    if not error:
        assert play.end(producer, commit=commit, version=1) == producer
        return
    with pytest.raises(InvalidTxnState):
        play.end(producer, commit=commit, version=1)


@pytest.mark.parametrize("continues", [False, True])
def test_a_raised_epoch_of_version_1_is_no_repeated_end_of_version_2(
    play: ShardPlay, continues: bool
) -> None:
    """A fenced producer does not get the identity of its successor."""
    zombie = play.init()
    producer = play.init(zombie if continues else None)
    play.add(producer, A)
    play.end(producer, version=1)
    play.mark()
    with pytest.raises(ProducerFenced):
        play.end(zombie)


# --- wrong identities -----------------------------------------------------------------------------


@every_version
def test_wrong_identities_are_refused(play: ShardPlay, version: int) -> None:
    producer = play.begun(A)
    for epoch in (1, 9):
        with pytest.raises(ProducerFenced):
            play.end(ProducerIdentity(producer.producer_id, epoch), version=version)
    with pytest.raises(InvalidProducerIdMapping):
        play.end(ProducerIdentity(9, 0), version=version)
    with pytest.raises(InvalidProducerIdMapping):
        play.end(producer, version=version, name="unknown")
    assert play.state is ONGOING


# --- an abort without partitions ------------------------------------------------------------------


def test_an_abort_without_partitions_is_complete_at_once(play: ShardPlay) -> None:
    """KAFKA-18464: the producer cannot tell whether its writes added partitions."""
    producer = play.init()
    after = play.end(producer, commit=False)
    assert after == (FIRST_ID, 1)
    assert (play.state, len(play.log)) == (COMPLETE_ABORT, 2)
    assert [each.partitions for each in play.effects] == [()]
    assert play.end(producer, commit=False) == after
    with pytest.raises(ProducerFenced):
        play.add(producer, A)
    assert play.add(after, A) == [""]


def test_an_abort_without_partitions_replaces_an_exhausted_id(play: ShardPlay) -> None:
    play.init()
    play.store(replace(play.newest(), producer_epoch=CLIENT_EPOCH_MAX))
    last = ProducerIdentity(FIRST_ID, CLIENT_EPOCH_MAX)
    for _ in range(2):
        assert play.end(last, commit=False) == (FIRST_ID + 1, 0)
        play.reload()
    assert play.newest().producer_id == FIRST_ID + 1


# --- exhausted epochs -------------------------------------------------------------------------


@every_outcome
def test_the_end_of_an_exhausted_id_returns_the_new_one(play: ShardPlay, commit: bool) -> None:
    play.init()
    play.store(replace(play.newest(), producer_epoch=CLIENT_EPOCH_MAX))
    last = ProducerIdentity(FIRST_ID, CLIENT_EPOCH_MAX)
    play.add(last, A)
    play.has_ids = False
    with pytest.raises(CoordinatorLoading):
        play.end(last, commit=commit)
    assert play.state is ONGOING
    play.has_ids = True
    new = play.end(last, commit=commit)
    assert new == (FIRST_ID + 1, 0)
    assert play.effects[-1].producer == (FIRST_ID, EPOCH_MAX)
    for _ in range(2):
        with pytest.raises(ConcurrentTransactions):
            play.add(new, A)  # KAFKA-18660: not INVALID_PRODUCER_ID_MAPPING
        with pytest.raises(ConcurrentTransactions):
            play.end(new, commit=False)
        play.reload()
    play.mark()
    assert play.newest().previous_producer_id == FIRST_ID
    for _ in range(2):
        assert play.end(last, commit=commit) == new
        with pytest.raises(InvalidTxnState):
            play.end(last, commit=not commit)
        play.reload()
    play.add(new, B)
    with pytest.raises(InvalidProducerIdMapping):
        play.end(last, commit=commit)
    assert play.end(new) == (FIRST_ID + 1, 1)


def test_version_1_keeps_an_exhausted_id_until_the_next_producer(play: ShardPlay) -> None:
    play.init()
    play.store(replace(play.newest(), producer_epoch=CLIENT_EPOCH_MAX))
    last = ProducerIdentity(FIRST_ID, CLIENT_EPOCH_MAX)
    for _ in range(2):
        play.add(last, A)
        assert play.end(last, version=1) == last
        play.mark()
    assert play.init(last) == (FIRST_ID + 1, 0)


def test_versions_can_alternate(play: ShardPlay) -> None:
    producer = play.init()
    for version, epoch in ((1, 0), (2, 1), (1, 1), (2, 2)):
        play.add(producer, A)
        producer = play.end(producer, version=version)
        play.mark()
        assert producer == (FIRST_ID, epoch)
        assert play.newest().version == (2 if version == 2 else 0)


# --- deleted topics -------------------------------------------------------------------------------


@every_outcome
def test_a_transaction_of_deleted_topics_is_complete_at_once(play: ShardPlay, commit: bool) -> None:
    producer = play.begun(A)
    play.change(image_of({"b": TOPIC_B}))
    assert play.state is ONGOING
    play.end(producer, commit=commit)
    assert play.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert [each.partitions for each in play.effects] == [()]


def test_the_deletion_of_a_topic_counts_as_its_markers(play: ShardPlay) -> None:
    producer = play.begun(A, ("a", 1), B)
    after = play.end(producer)
    play.change(image_of({"b": TOPIC_B}))
    assert play.state is PREPARE_COMMIT
    assert next(filter(None, play.shard.listings())).state == "PrepareCommit"
    play.mark(replace(play.effects[-1], partitions=(MarkerPartition("b", 1, TOPIC_B),)))
    assert play.state is COMPLETE_COMMIT
    play.add(after, B)
    play.end(after)
    play.change(image_of({}))
    assert play.state is COMPLETE_COMMIT


def test_a_topic_that_was_created_again_is_another_topic(play: ShardPlay) -> None:
    producer = play.begun(A, B)
    play.change(image_of({"a": TOPIC_A2, "b": TOPIC_B}))
    assert play.verify(producer, A, B) == ["TRANSACTION_ABORTABLE", ""]
    play.end(producer)
    assert [each.topic for each in play.effects[-1].partitions] == ["b"]


def test_a_topic_that_was_created_again_can_be_added(play: ShardPlay) -> None:
    producer = play.begun(A)
    play.change(image_of(TOPICS | {"a": TOPIC_A2}))
    size = len(play.log)
    assert play.add(producer, A, topic_ids={"a": TOPIC_A}) == ["UNKNOWN_TOPIC_ID"]
    assert play.add(producer, A, topic_ids={"a": TOPIC_A2}) == [""]
    assert len(play.log) == size  # the record has names only
    play.end(producer)
    assert play.effects[-1].partitions == (MarkerPartition("a", 0, TOPIC_A2),)
