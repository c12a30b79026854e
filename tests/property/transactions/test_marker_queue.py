"""The marker queue compared with a model: partitions with leaders, requests that succeed, fail or
stay pending, and transactions that are added, repeated and removed."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from immutables import Map

from quorumlog.broker.transactions.marker_queue import (
    BACKOFF_MAX_MS,
    FRESH_REQUESTS_MAX,
    REQUEST_MARKERS_MAX,
    MarkedTransaction,
    MarkerQueue,
    MarkerRequest,
)
from quorumlog.broker.transactions.requests import MarkerPartition, WriteMarkers
from quorumlog.errors import InvalidProducerEpoch, NotEnoughReplicas, QuorumlogError
from quorumlog.ids import NO_NODE, Epoch, NodeId, ProducerIdentity, TopicId
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage
from quorumlog.records.control import TransactionMarker

IDS = ("a", "b", "c", "d")
COORDINATORS = (0, 1)
TOPICS = ("t", "u")
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))


class Leaders:
    """The leaders of the partitions; a deleted topic has no id."""

    def __init__(self) -> None:
        self.ids = {name: TopicId(name.encode() * 16) for name in TOPICS}
        self._created = 0
        self._leaders = dict.fromkeys(PARTITIONS, (NodeId(1), Epoch(0)))

    def elect(self, partition: tuple[str, int], leader: int) -> list[tuple[TopicId, int]]:
        """Elect another leader; return the touched partitions."""
        _, epoch = self._leaders[partition]
        self._leaders[partition] = NodeId(leader), Epoch(epoch + 1)
        topic, index = partition
        return [(self.ids[topic], index)] if topic in self.ids else []

    def delete(self, topic: str) -> list[tuple[TopicId, int]]:
        """Delete a topic; return the touched partitions."""
        topic_id = self.ids.pop(topic, None)
        return (
            [] if topic_id is None else [(topic_id, i) for name, i in PARTITIONS if name == topic]
        )

    def create(self, topic: str) -> None:
        """Create a deleted topic again, with another id."""
        self._created += 1
        self.ids.setdefault(topic, TopicId(topic.encode() * 15 + bytes([self._created % 100])))

    def image(self) -> MetadataImage:
        topics = {}
        for name, topic_id in self.ids.items():
            partitions = {
                index: PartitionImage(
                    replicas=(NodeId(1), NodeId(2), NodeId(3)),
                    isr=(NodeId(1),),
                    leader=self._leaders[topic, index][0],
                    leader_epoch=self._leaders[topic, index][1],
                    partition_epoch=0,
                )
                for topic, index in PARTITIONS
                if topic == name
            }
            topics[topic_id] = TopicImage(
                id=topic_id, name=name, partitions=Map(partitions), configs=Map()
            )
        return MetadataImage(
            offset=EMPTY_IMAGE.offset,
            epoch=EMPTY_IMAGE.epoch,
            brokers=Map(),
            topics_by_id=Map(topics),
            topics_by_name=Map(self.ids),
            topics_by_key=Map(),
        )


class MarkerQueueMachine(RuleBasedStateMachine):
    """Model: the partitions of each transaction that have not acknowledged its marker."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.leaders = Leaders()
        self.queue = MarkerQueue()
        self.queue.image_changed(self.leaders.image(), ())
        self.requests: list[MarkerRequest] = []
        self.serial = 0
        self.left: dict[tuple[int, str], tuple[int, set[MarkerPartition]]] = {}
        self.reports: dict[tuple[int, str], int] = {}  # expected reports, by producer id

    @rule(
        coordinator=st.sampled_from(COORDINATORS),
        name=st.sampled_from(IDS),
        chosen=st.sets(st.sampled_from(PARTITIONS), max_size=4),
        version=st.sampled_from((0, 2)),
    )
    def decide(
        self, coordinator: int, name: str, chosen: set[tuple[str, int]], version: int
    ) -> None:
        self.serial += 1
        partitions = tuple(
            MarkerPartition(topic, index, self.leaders.ids[topic])
            for topic, index in sorted(chosen)
            if topic in self.leaders.ids
        )
        effect = WriteMarkers(
            transactional_id=name,
            producer=ProducerIdentity(IDS.index(name), self.serial),
            is_commit=True,
            transaction_version=version,
            partitions=partitions,
        )
        marker = TransactionMarker(effect.producer, 1, True, version)
        self.queue.add(coordinator, marker, effect, self.now_ms)
        self.left[coordinator, name] = self.serial, set(partitions)

    @rule(coordinator=st.sampled_from(COORDINATORS))
    def drop(self, coordinator: int) -> None:
        self.queue.drop(coordinator, 1)
        self.left = {key: each for key, each in self.left.items() if key[0] != coordinator}

    @rule(partition=st.sampled_from(PARTITIONS), leader=st.sampled_from((NO_NODE, 1, 2, 3)))
    def elect(self, partition: tuple[str, int], leader: int) -> None:
        self.changed(self.leaders.elect(partition, leader))

    @rule(topic=st.sampled_from(TOPICS))
    def create(self, topic: str) -> None:
        self.leaders.create(topic)
        self.changed([])

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic: str) -> None:
        touched = self.leaders.delete(topic)
        self.changed(touched)
        for _, left in self.left.values():
            for each in [one for one in left if (one.topic_id, one.partition) in touched]:
                left.discard(each)

    def changed(self, touched: list[tuple[TopicId, int]]) -> None:
        self.queue.image_changed(self.leaders.image(), touched)

    @rule(wait_ms=st.sampled_from((0, 10, 20, 100, 1_000)))
    def send(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        for request in self.queue.take_requests(self.now_ms):
            assert 0 < len(request.markers) <= REQUEST_MARKERS_MAX
            assert request.broker != NO_NODE
            self.requests.append(request)
        in_flight: dict[int, int] = {}
        for request in self.requests:
            in_flight[request.broker] = in_flight.get(request.broker, 0) + 1
        assert all(count <= FRESH_REQUESTS_MAX + 1 for count in in_flight.values())

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        request = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        errors: list[QuorumlogError | None] = []
        for marker in request.markers:
            error = data.draw(
                st.sampled_from((None, None, NotEnoughReplicas("no"), InvalidProducerEpoch("late")))
            )
            errors.append(error)
            counts = marker.request is request or marker.transaction.marker.transaction_version == 2
            if counts and not isinstance(error, NotEnoughReplicas):
                self.acknowledged(marker.transaction, marker.partition)
        self.queue.answered(request, errors, self.now_ms)

    def acknowledged(self, transaction: MarkedTransaction, partition: MarkerPartition) -> None:
        key = transaction.partition, transaction.effect.transactional_id
        serial, left = self.left.get(key, (0, set()))
        if serial == transaction.marker.producer.producer_epoch:
            left.discard(partition)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        request = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        self.queue.failed(request, self.now_ms)

    @rule(is_decided=st.booleans())
    def report(self, is_decided: bool) -> None:
        for transaction in self.queue.take_written():
            key = transaction.partition, transaction.effect.transactional_id
            serial, left = self.left[key]
            assert serial == transaction.marker.producer.producer_epoch
            assert not left, "reported before every partition acknowledged"
            if is_decided:
                self.queue.reported(transaction)
                del self.left[key]
            else:
                self.queue.not_reported(transaction, self.now_ms)

    @invariant()
    def queue_agrees_with_the_model(self) -> None:
        self.queue.check_invariants()
        assert self.queue.marker_count() == sum(len(left) for _, left in self.left.values())

    def teardown(self) -> None:
        """Every transaction is reported once the partitions have leaders that respond."""
        for partition in PARTITIONS:
            if partition[0] in self.leaders.ids:
                self.changed(self.leaders.elect(partition, 1))
        for _ in range(20):
            self.now_ms += BACKOFF_MAX_MS
            for request in (*self.requests, *self.queue.take_requests(self.now_ms)):
                self.queue.answered(request, [None] * len(request.markers), self.now_ms)
            self.requests.clear()
            for transaction in self.queue.take_written():
                self.queue.reported(transaction)
                del self.left[transaction.partition, transaction.effect.transactional_id]
            self.queue.check_invariants()
        assert self.left == {}
        assert self.queue.marker_count() == 0
        assert self.queue.deadline_ms() is None
        assert self.queue.oldest_since_ms() is None


TestMarkerQueue = MarkerQueueMachine.TestCase
TestMarkerQueue.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
