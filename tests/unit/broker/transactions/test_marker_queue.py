"""Decisions of the marker queue: the broker, the time and the request of each marker."""

import pytest
from immutables import Map

from quorumlog.broker.transactions.marker_queue import (
    BACKOFF_MAX_MS,
    BACKOFF_MIN_MS,
    FRESH_REQUESTS_MAX,
    REQUEST_MARKERS_MAX,
    MarkerQueue,
    MarkerRequest,
)
from quorumlog.broker.transactions.requests import MarkerPartition, WriteMarkers
from quorumlog.errors import (
    InvalidProducerEpoch,
    NotEnoughReplicas,
    QuorumlogError,
    TransactionCoordinatorFenced,
    UnknownTopicId,
)
from quorumlog.ids import NO_NODE, Epoch, NodeId, ProducerIdentity, TopicId
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage
from quorumlog.records.control import TransactionMarker

ID = TopicId(b"t" * 16)


def image_of(*leaders: int, epoch: int = 0) -> MetadataImage:
    """An image with the topic "t", whose partitions have these leaders; none: no topic."""
    partitions = {
        index: PartitionImage(
            replicas=(NodeId(1), NodeId(2)),
            isr=(NodeId(1),),
            leader=NodeId(leader),
            leader_epoch=Epoch(epoch),
            partition_epoch=0,
        )
        for index, leader in enumerate(leaders)
    }
    topic = TopicImage(id=ID, name="t", partitions=Map(partitions), configs=Map())
    return MetadataImage(
        offset=EMPTY_IMAGE.offset,
        epoch=EMPTY_IMAGE.epoch,
        brokers=Map(),
        topics_by_id=Map({ID: topic} if leaders else {}),
        topics_by_name=Map({"t": ID} if leaders else {}),
        topics_by_key=Map(),
    )


class Play:
    """A queue and its clock."""

    def __init__(self, *leaders: int) -> None:
        self.now_ms = 0
        self.queue = MarkerQueue()
        self.queue.image_changed(image_of(*leaders), ())

    def decide(
        self,
        name: str,
        *partitions: int,
        producer_id: int = 1,
        coordinator_epoch: int = 5,
        version: int = 2,
    ) -> None:
        producer = ProducerIdentity(producer_id, 0)
        effect = WriteMarkers(
            transactional_id=name,
            producer=producer,
            is_commit=True,
            transaction_version=version,
            partitions=tuple(MarkerPartition("t", index, ID) for index in partitions),
        )
        marker = TransactionMarker(producer, coordinator_epoch, True, version)
        self.queue.add(0, marker, effect, self.now_ms)

    def elect(self, *leaders: int, epoch: int) -> None:
        touched = [(ID, index) for index in range(8)]
        self.queue.image_changed(image_of(*leaders, epoch=epoch), touched)

    def take(self, wait_ms: int = 0) -> list[MarkerRequest]:
        self.now_ms += wait_ms
        requests = self.queue.take_requests(self.now_ms)
        self.queue.check_invariants()
        return requests

    def answer(self, request: MarkerRequest, *errors: QuorumlogError | None) -> None:
        outcomes = errors or (None,) * len(request.markers)
        self.queue.answered(request, outcomes, self.now_ms)
        self.queue.check_invariants()

    def written(self) -> list[str]:
        return [each.effect.transactional_id for each in self.queue.take_written()]


def shown(request: MarkerRequest) -> tuple[int, list[tuple[str, int]]]:
    return request.broker, [
        (each.transaction.effect.transactional_id, each.partition.partition)
        for each in request.markers
    ]


def test_one_request_per_broker_has_the_markers_of_all_transactions() -> None:
    play = Play(1, 2, 1)
    play.decide("a", 0, 1)
    play.decide("b", 2, producer_id=2)
    assert [shown(each) for each in play.take()] == [(1, [("a", 0), ("b", 2)]), (2, [("a", 1)])]
    assert play.take() == []


def test_transaction_is_written_after_its_last_marker() -> None:
    play = Play(1, 2)
    play.decide("a", 0, 1)
    first, second = play.take()
    play.answer(first)
    assert play.written() == []
    play.answer(second)
    assert play.written() == ["a"]
    assert play.written() == []


def test_transaction_without_partitions_is_written_at_once() -> None:
    play = Play(1)
    play.decide("a")
    assert play.written() == ["a"]


def test_backoff_doubles_up_to_its_maximum() -> None:
    play = Play(1)
    play.decide("a", 0)
    (request,) = play.take()
    pauses = []
    for _ in range(8):
        play.answer(request, NotEnoughReplicas("no"))
        due_ms = play.queue.deadline_ms()
        assert due_ms is not None
        pauses.append(due_ms - play.now_ms)
        (request,) = play.take(due_ms - play.now_ms)
    assert pauses == [min(BACKOFF_MIN_MS << n, BACKOFF_MAX_MS) for n in range(8)]
    assert play.queue.repeats == 8


def test_markers_of_a_late_partition_travel_apart() -> None:
    play = Play(1, 1)
    play.decide("a", 0)
    (request,) = play.take()
    play.answer(request, NotEnoughReplicas("no"))
    play.decide("b", 0, producer_id=2)
    play.decide("c", 1, producer_id=3)
    fresh, late = play.take(BACKOFF_MIN_MS)
    assert shown(fresh) == (1, [("c", 1)])
    assert sorted(shown(late)[1]) == [("a", 0), ("b", 0)]
    play.answer(fresh)
    assert play.written() == ["c"]
    play.answer(late)
    play.decide("d", 0, producer_id=4)
    (request,) = play.take()
    assert request.is_fresh  # the partition answers again


def test_requests_in_flight_and_their_markers_are_limited() -> None:
    play = Play(1)
    count = REQUEST_MARKERS_MAX * (FRESH_REQUESTS_MAX + 1) + 1
    for number in range(count):
        play.decide(f"{number}", 0, producer_id=number)
    requests = play.take()
    assert [len(each.markers) for each in requests] == [REQUEST_MARKERS_MAX] * FRESH_REQUESTS_MAX
    play.answer(requests[0])
    (following,) = play.take()
    assert shown(following)[1][0] == (f"{REQUEST_MARKERS_MAX * FRESH_REQUESTS_MAX}", 0)


def test_marker_follows_the_leader_with_its_epoch_while_a_request_is_in_flight() -> None:
    play = Play(1)
    play.decide("a", 0)
    (old,) = play.take()
    play.elect(2, epoch=1)
    (new,) = play.take()
    assert shown(new) == (2, [("a", 0)])
    assert new.markers[0].leader_epoch == 1
    play.answer(old, NotEnoughReplicas("deposed"))
    assert play.take(BACKOFF_MAX_MS) == []  # the other request is in flight
    play.answer(new)
    assert play.written() == ["a"]


def test_marker_in_flight_to_a_new_leader_is_not_repeated_after_the_pause() -> None:
    play = Play(1)
    play.decide("a", 0)
    (old,) = play.take()
    play.answer(old, NotEnoughReplicas("no"))
    play.elect(2, epoch=1)
    assert len(play.take()) == 1
    assert play.take(BACKOFF_MAX_MS) == []


def test_acknowledgement_of_the_old_leader_counts_in_version_2() -> None:
    play = Play(1)
    play.decide("a", 0)
    (old,) = play.take()
    play.elect(2, epoch=1)
    play.answer(old)
    assert play.written() == ["a"]
    assert play.take() == []


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("error", [None, InvalidProducerEpoch("a later transaction")])
def test_late_marker_cannot_end_the_next_transaction_of_the_same_epoch(
    version: int, error: QuorumlogError | None
) -> None:
    """A producer of an old version begins its next transaction only after the last marker."""
    play = Play(1)
    play.decide("a", 0, version=version)
    (old,) = play.take()
    play.elect(2, epoch=1)
    (new,) = play.take()
    play.answer(old, error)
    assert play.written() == []
    assert play.queue.outdated == 0
    play.answer(new)
    assert play.written() == ["a"]


def test_old_version_ignores_the_old_leader_before_the_marker_is_sent_again() -> None:
    play = Play(1)
    play.decide("a", 0, version=0)
    (old,) = play.take()
    play.elect(NO_NODE, epoch=1)
    play.answer(old)
    assert play.written() == []
    play.elect(2, epoch=2)
    (new,) = play.take()
    play.answer(new)
    assert play.written() == ["a"]


def test_new_epoch_of_the_same_leader_is_sent() -> None:
    play = Play(1)
    play.decide("a", 0)
    play.take()
    play.elect(1, epoch=3)
    (request,) = play.take()
    assert request.markers[0].leader_epoch == 3


def test_partition_without_a_leader_waits_for_one() -> None:
    play = Play(NO_NODE)
    play.decide("a", 0)
    assert play.take(60_000) == []
    assert play.queue.deadline_ms() is None
    play.elect(2, epoch=1)
    assert [shown(each) for each in play.take()] == [(2, [("a", 0)])]


def test_silent_broker_gets_one_attempt_after_each_pause() -> None:
    play = Play(1, 1)
    play.decide("a", 0)
    (request,) = play.take()
    play.queue.failed(request, play.now_ms)
    play.decide("b", 1, producer_id=2)
    assert play.take(BACKOFF_MIN_MS - 1) == []
    assert play.queue.deadline_ms() == play.now_ms + 1
    assert len(play.take(1)) == 2


def test_deleted_topic_is_done() -> None:
    play = Play(1)
    play.decide("a", 0)
    (request,) = play.take()
    play.queue.image_changed(image_of(), [(ID, 0)])
    assert play.written() == ["a"]
    play.answer(request, UnknownTopicId("gone"))
    assert play.queue.marker_count() == 0


def test_unknown_topic_at_a_leader_with_old_metadata_is_repeated() -> None:
    play = Play(1)
    play.decide("a", 0)
    (request,) = play.take()
    play.answer(request, UnknownTopicId("the leader has an older image"))
    assert play.written() == []
    assert len(play.take(BACKOFF_MAX_MS)) == 1


def test_marker_of_an_outdated_transaction_is_done_and_counted() -> None:
    play = Play(1)
    play.decide("a", 0)
    (request,) = play.take()
    play.answer(request, InvalidProducerEpoch("a later transaction"))
    assert play.written() == ["a"]
    assert play.queue.outdated == 1


def test_fenced_marker_is_not_done() -> None:
    play = Play(1)
    play.decide("a", 0)
    (request,) = play.take()
    play.answer(request, TransactionCoordinatorFenced("newer"))
    assert play.written() == []
    assert play.queue.marker_count() == 1


def test_dropped_transactions_are_neither_sent_nor_reported() -> None:
    play = Play(1)
    play.decide("a", 0)
    (request,) = play.take()
    play.decide("b", 0, producer_id=2)
    play.queue.drop(0, 5)
    play.answer(request)
    assert play.take(BACKOFF_MAX_MS) == []
    assert play.written() == []
    assert play.queue.oldest_since_ms() is None


def test_late_end_of_an_earlier_leadership_drops_nothing_of_the_next_one() -> None:
    play = Play(1, 1)
    play.decide("a", 0, coordinator_epoch=5)
    play.decide("a", 0, 1, coordinator_epoch=7)
    play.queue.drop(0, 5)
    (request,) = play.take()
    assert shown(request) == (1, [("a", 0), ("a", 1)])
    play.answer(request)
    assert play.written() == ["a"]


def test_repeated_effect_replaces_the_earlier_one() -> None:
    play = Play(1, 1)
    play.decide("a", 0, 1)
    play.decide("a", 1)
    (request,) = play.take()
    assert shown(request) == (1, [("a", 1)])


def test_refused_report_is_repeated_and_a_decided_one_is_not() -> None:
    play = Play(1)
    play.decide("a")
    (transaction,) = play.queue.take_written()
    play.queue.not_reported(transaction, play.now_ms)
    play.take(BACKOFF_MIN_MS)
    assert play.queue.take_written() == [transaction]
    play.queue.reported(transaction)
    play.take(BACKOFF_MAX_MS)
    assert play.queue.take_written() == []
    assert play.queue.oldest_since_ms() is None


def test_next_transaction_ends_the_repetition_of_a_report() -> None:
    """A producer of an old version keeps its identity: the report would complete the next one."""
    play = Play(1)
    play.decide("a")
    (transaction,) = play.queue.take_written()
    play.queue.not_reported(transaction, play.now_ms)
    play.decide("a", 0)
    play.take(BACKOFF_MAX_MS)
    assert play.written() == []
