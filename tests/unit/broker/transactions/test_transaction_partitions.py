"""AddPartitionsToTxn: adding partitions, and the verification by partition leaders."""

import pytest

from quorumlog.broker.transactions.records import TransactionState
from quorumlog.errors import InvalidProducerIdMapping, ProducerFenced
from quorumlog.ids import ProducerIdentity

from .shard_play import TOPIC_A, TOPIC_A2, A, B, ShardPlay

ABORTABLE = "TRANSACTION_ABORTABLE"
UNKNOWN, NOT_TRIED = "UNKNOWN_TOPIC_OR_PARTITION", "OPERATION_NOT_ATTEMPTED"


@pytest.fixture
def play() -> ShardPlay:
    return ShardPlay()


def test_the_first_partition_begins_the_transaction(play: ShardPlay) -> None:
    producer = play.init()
    play.now_ms += 5
    assert play.add(producer, A) == [""]
    begun = play.newest()
    assert begun.state is TransactionState.ONGOING
    assert begun.partitions == {A}
    assert begun.started_ms == play.now_ms
    play.now_ms += 5
    assert play.add(producer, A, B) == ["", ""]
    assert play.newest().partitions == {A, B}
    assert play.newest().started_ms == begun.started_ms


def test_known_partitions_are_added_without_a_record(play: ShardPlay) -> None:
    producer = play.begun(A, B)
    size = len(play.log)
    assert play.add(producer, B, A) == ["", ""]
    assert play.add(producer) == []
    assert len(play.log) == size


def test_no_partitions_begin_no_transaction(play: ShardPlay) -> None:
    producer = play.init()
    assert play.add(producer) == []
    assert play.state is TransactionState.EMPTY


def test_one_unknown_partition_refuses_all(play: ShardPlay) -> None:
    producer = play.init()
    assert play.add(producer, A, ("a", 2), ("c", 0)) == [NOT_TRIED, UNKNOWN, UNKNOWN]
    assert play.add(producer, A, B, topic_ids={"a": TOPIC_A2}) == ["UNKNOWN_TOPIC_ID", NOT_TRIED]
    assert play.state is TransactionState.EMPTY
    play.add(producer, B)
    assert play.add(producer, A, ("a", 2)) == [NOT_TRIED, UNKNOWN]
    assert play.newest().partitions == {B}


def test_a_partition_can_be_verified_once_it_is_added(play: ShardPlay) -> None:
    producer = play.init()
    size = len(play.log)
    assert play.verify(producer, A) == [ABORTABLE]
    assert len(play.log) == size
    play.add(producer, A)
    assert play.verify(producer, A, B) == ["", ABORTABLE]
    assert play.verify(producer, A, topic_ids={"a": TOPIC_A}) == [""]
    assert play.verify(producer, A, topic_ids={"a": TOPIC_A2}) == [ABORTABLE]


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_cannot_be_verified_after_the_transaction(
    play: ShardPlay, version: int
) -> None:
    producer = play.begun(A)
    after = play.end(producer, version=version)
    play.mark()
    assert play.verify(after, A) == [ABORTABLE]
    if version == 2:
        with pytest.raises(ProducerFenced):
            play.verify(producer, A)


def test_a_late_write_of_a_decided_transaction_is_fenced_at_once(play: ShardPlay) -> None:
    producer = play.begun(A)
    play.end(producer)
    with pytest.raises(ProducerFenced):
        play.verify(producer, A)
    with pytest.raises(ProducerFenced):
        play.add(producer, A)


def test_wrong_identities_are_refused(play: ShardPlay) -> None:
    producer = play.begun(A)
    for epoch in (1, 9):
        with pytest.raises(ProducerFenced):
            play.add(ProducerIdentity(producer.producer_id, epoch), B)
        with pytest.raises(ProducerFenced):
            play.verify(ProducerIdentity(producer.producer_id, epoch), A)
    for wrong in (ProducerIdentity(9, 0), ProducerIdentity(producer.producer_id + 1, 0)):
        with pytest.raises(InvalidProducerIdMapping):
            play.add(wrong, B)
        with pytest.raises(InvalidProducerIdMapping):
            play.verify(wrong, A)
    with pytest.raises(InvalidProducerIdMapping):
        play.add(producer, A, name="unknown")
    assert play.newest().partitions == {A}
