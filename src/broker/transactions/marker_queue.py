"""The markers that a transaction coordinator has yet to write: where each is due, and when. Pure.

Each partition of a decided transaction gets a marker, written by the partition's leader. The queue
groups markers into one request per broker, over all transactions, and repeats them until the leader
acknowledges or the topic is deleted. A leader accepts a repeated marker, so a marker may be sent to
the old and to the new leader of a partition at once.

Below transaction version 2 a producer keeps its epoch, so a late marker would end its next
transaction. Each request therefore has the leader epoch of each partition, and only the answer of
the newest request counts: the next transaction cannot begin while another request is in flight.
A request that timed out counts as ended. If it arrives nonetheless, after the repeated one and at
the same leader, it ends the next transaction of its producer: the older protocol has no means
against it, and Apache Kafka has the same flaw (KIP-1228).

A leader answers a request when it has answered all of its markers. So markers of partitions that
answered late before are sent in requests of their own, behind which no other marker waits.

Bounds: a marker is in the queue of one broker at a time, and a coordinator has at most one decided
transaction of each producer id. Requests in flight and markers in a request are limited.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

from ...errors import InvalidProducerEpoch, MirrorTopic, QuorumlogError
from ...ids import NO_EPOCH, NO_NODE, Epoch, NodeId, TopicId
from ...metadata.image import MetadataImage
from ...records.control import EPOCH_BUMP_VERSION, TransactionMarker
from .requests import MarkerPartition, WriteMarkers

REQUEST_MARKERS_MAX: Final = 500
"""Markers of one request."""
FRESH_REQUESTS_MAX: Final = 4
"""Requests in flight to one broker with markers that are sent for the first time."""
BACKOFF_MIN_MS: Final = 20
BACKOFF_MAX_MS: Final = 1_000
FINAL: Final = (InvalidProducerEpoch, MirrorTopic)
"""Errors that count as acknowledgements: a later transaction of the producer has begun or ended in
the partition, or the partition became a mirror, which producers cannot write to."""


class MarkedTransaction:
    """A decided transaction of one leadership of a coordinator's partition."""

    __slots__ = (
        "attempts",
        "effect",
        "is_dropped",
        "left",
        "marker",
        "partition",
        "pending",
        "since_ms",
    )

    def __init__(
        self, partition: int, marker: TransactionMarker, effect: WriteMarkers, now_ms: int
    ) -> None:
        self.partition = partition  # of `__transaction_state`
        self.marker = marker
        self.effect = effect
        self.since_ms = now_ms
        self.pending = [PendingMarker(self, each) for each in effect.partitions]
        self.left = len(self.pending)  # markers that are not done
        self.attempts = 0  # failed reports
        self.is_dropped = False  # the leadership ended, or the effect was repeated


class PendingMarker:
    """The marker of one transaction for one partition."""

    __slots__ = (
        "attempts",
        "broker",
        "is_done",
        "leader_epoch",
        "partition",
        "request",
        "transaction",
    )

    def __init__(self, transaction: MarkedTransaction, partition: MarkerPartition) -> None:
        self.transaction = transaction
        self.partition = partition
        self.broker = NO_NODE  # the leader; NO_NODE: the partition has none
        self.leader_epoch = NO_EPOCH
        self.request: MarkerRequest | None = None  # in flight to `broker`
        self.attempts = 0
        self.is_done = False


class MarkerRequest:
    """A request to one broker."""

    __slots__ = ("broker", "is_fresh", "markers")

    def __init__(self, broker: NodeId, markers: Sequence[PendingMarker], *, is_fresh: bool) -> None:
        self.broker = broker
        self.markers = markers
        self.is_fresh = is_fresh


class _Partition:
    """The markers of one partition that are not done."""

    __slots__ = ("late", "markers")

    def __init__(self) -> None:
        self.markers: dict[PendingMarker, None] = {}
        self.late = 0  # markers that were sent before


class _Broker:
    """The markers that are due at one broker."""

    __slots__ = ("failures", "fresh", "fresh_requests", "not_before_ms", "repeated", "repeats")

    def __init__(self) -> None:
        self.fresh: OrderedDict[PendingMarker, None] = OrderedDict()
        self.repeated: OrderedDict[PendingMarker, None] = OrderedDict()
        self.fresh_requests = 0  # in flight
        self.repeats = False  # a request with repeated markers is in flight
        self.failures = 0  # requests without an answer, in a row
        self.not_before_ms = 0

    @property
    def has_due(self) -> bool:
        """True if a request could be sent, apart from `not_before_ms`."""
        return bool(
            (self.fresh and self.fresh_requests < FRESH_REQUESTS_MAX)
            or (self.repeated and not self.repeats)
        )


class MarkerQueue:
    """The markers of one broker's coordinator; times by the runtime's clock."""

    def __init__(self) -> None:
        self.outdated = 0  # markers refused because of a later transaction of the producer
        self.repeats = 0  # markers that were sent again
        self._image: MetadataImage | None = None
        # By leadership: partition of `__transaction_state` and leader epoch; by producer id.
        self._transactions: dict[tuple[int, int], dict[int, MarkedTransaction]] = {}
        self._partitions: dict[tuple[TopicId, int], _Partition] = {}
        self._brokers: dict[NodeId, _Broker] = {}
        self._delayed: list[tuple[int, int, PendingMarker | MarkedTransaction]] = []  # a heap
        self._serial = 0
        self._written: list[MarkedTransaction] = []  # to report

    # --- transactions -----------------------------------------------------------------------------

    def add(
        self, partition: int, marker: TransactionMarker, effect: WriteMarkers, now_ms: int
    ) -> None:
        """Queue the markers of a decided transaction. Replaces those of the same producer id: a
        coordinator repeats the effect when it loads its state again."""
        found = self._transactions.setdefault((partition, marker.coordinator_epoch), {})
        known = found.get(effect.producer.producer_id)
        if known is not None:
            self._drop(known)
        added = MarkedTransaction(partition, marker, effect, now_ms)
        found[effect.producer.producer_id] = added
        if not added.left:
            self._written.append(added)
        for pending in added.pending:
            self._partitions.setdefault(_key(pending), _Partition()).markers[pending] = None
        for pending in added.pending:
            self._route(pending)

    def drop(self, partition: int, coordinator_epoch: int) -> None:
        """Drop the transactions of one leadership of a partition of `__transaction_state`: it
        ended, or its state is loaded again. A late drop of an earlier leadership leaves the markers
        of the next one."""
        for transaction in self._transactions.pop((partition, coordinator_epoch), {}).values():
            self._drop(transaction)

    def _drop(self, transaction: MarkedTransaction) -> None:
        transaction.is_dropped = True
        for marker in transaction.pending:
            if not marker.is_done:
                self._remove(marker)

    def take_written(self) -> list[MarkedTransaction]:
        """Return the transactions with all markers written since the last call. Each is to be
        reported to its shard, with `reported` or `not_reported` as the outcome."""
        written = [each for each in self._written if not each.is_dropped]
        self._written.clear()
        return written

    def reported(self, transaction: MarkedTransaction) -> None:
        """Forget a transaction: its shard has decided the report. If the decision is not stored,
        the shard loads its state again and repeats the effect. A report must not be repeated after
        its decision: it would match the next transaction of a producer that keeps its epoch."""
        if not transaction.is_dropped:
            transaction.is_dropped = True
            key = transaction.partition, transaction.marker.coordinator_epoch
            del self._transactions[key][transaction.effect.producer.producer_id]

    def not_reported(self, transaction: MarkedTransaction, now_ms: int) -> None:
        """Repeat a report that was refused, after a while."""
        if not transaction.is_dropped:
            transaction.attempts += 1
            self._delay(transaction, now_ms + _backoff_ms(transaction.attempts))

    # --- leaders ----------------------------------------------------------------------------------

    def image_changed(self, image: MetadataImage, touched: Iterable[tuple[TopicId, int]]) -> None:
        """Route the markers of partitions that may have another leader, or none any more."""
        self._image = image
        for key in touched:
            found = self._partitions.get(key)
            for marker in () if found is None else list(found.markers):
                if self._leader_of(marker.partition) != (marker.broker, marker.leader_epoch):
                    # sometimes if marker.request is not None: a leader changes before a marker
                    self._unqueue(marker)
                    marker.request = None  # its errors no longer count; see `answered`
                    self._route(marker)

    def outstanding_partitions(self) -> Iterable[tuple[TopicId, int]]:
        """Return the partitions with markers that are not done."""
        return list(self._partitions)

    def _leader_of(self, partition: MarkerPartition) -> tuple[NodeId, Epoch] | None:
        """Return the leader of a partition and its epoch; None if the topic is deleted."""
        assert self._image is not None, "no image yet"
        topic = self._image.topic_of_id(partition.topic_id)
        state = None if topic is None else topic.partitions.get(partition.partition)
        return None if state is None else (state.leader, state.leader_epoch)

    def _route(self, marker: PendingMarker) -> None:
        """Queue a marker for the leader of its partition. Without a leader it waits for the next
        image; without a topic it is done."""
        leader = self._leader_of(marker.partition)
        if leader is None:
            # sometimes: a marker's topic is deleted
            self._done(marker)
            return
        marker.broker, marker.leader_epoch = leader
        if marker.broker == NO_NODE:
            # sometimes: a marker waits for a leader
            return
        broker = self._brokers.get(marker.broker)
        if broker is None:
            broker = self._brokers[marker.broker] = _Broker()
        if self._partitions[_key(marker)].late:
            broker.repeated[marker] = None
        else:
            broker.fresh[marker] = None

    def _unqueue(self, marker: PendingMarker) -> None:
        broker = self._brokers.get(marker.broker)
        if broker is not None:
            broker.fresh.pop(marker, None)
            broker.repeated.pop(marker, None)

    # --- requests ---------------------------------------------------------------------------------

    def take_requests(self, now_ms: int) -> list[MarkerRequest]:
        """Return the requests to send now; each outcome goes to `answered` or `failed`."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, _, delayed = heappop(self._delayed)
            if isinstance(delayed, MarkedTransaction):
                self._written.append(delayed)
            elif not delayed.is_done and delayed.request is None:
                self._route(delayed)
        requests = []
        for node, broker in self._brokers.items():
            if broker.not_before_ms <= now_ms:
                while broker.fresh and broker.fresh_requests < FRESH_REQUESTS_MAX:
                    broker.fresh_requests += 1
                    requests.append(_take(node, broker.fresh, is_fresh=True))
                if broker.repeated and not broker.repeats:
                    broker.repeats = True
                    requests.append(_take(node, broker.repeated, is_fresh=False))
        return requests

    def answered(
        self, request: MarkerRequest, errors: Sequence[QuorumlogError | None], now_ms: int
    ) -> None:
        """Handle the answer of a request: an error or None for each of its markers."""
        broker = self._ended(request)
        broker.failures = 0
        for marker, error in zip(request.markers, errors, strict=True):
            if marker.is_done:
                continue
            version = marker.transaction.marker.transaction_version
            if version < EPOCH_BUMP_VERSION and marker.request is not request:
                # sometimes: a marker of the older version is answered by a former leader
                continue  # the marker is sent again: it must not outlast its transaction
            if error is None or isinstance(error, FINAL):
                # sometimes if isinstance(error, InvalidProducerEpoch): a marker arrives too late
                self.outdated += isinstance(error, InvalidProducerEpoch)
                self._done(marker)
            else:
                self._repeat(marker, request, now_ms)

    def failed(self, request: MarkerRequest, now_ms: int) -> None:
        """Handle a request without an answer: the broker gets no other one for a while."""
        broker = self._ended(request)
        broker.failures += 1
        broker.not_before_ms = now_ms + _backoff_ms(broker.failures)
        for marker in request.markers:
            if not marker.is_done:
                self._repeat(marker, request, now_ms)

    def deadline_ms(self) -> int | None:
        """Return the time of the next `take_requests`, unless an event comes first; None: no
        time."""
        due = [self._delayed[0][0]] if self._delayed else []
        due += [each.not_before_ms for each in self._brokers.values() if each.has_due]
        return min(due, default=None)

    def _ended(self, request: MarkerRequest) -> _Broker:
        broker = self._brokers[request.broker]
        if request.is_fresh:
            broker.fresh_requests -= 1
        else:
            broker.repeats = False
        return broker

    def _repeat(self, marker: PendingMarker, request: MarkerRequest, now_ms: int) -> None:
        if marker.request is not request:
            return  # it is queued for another leader already
        marker.request = None
        if not marker.attempts:
            self._partitions[_key(marker)].late += 1
        marker.attempts += 1
        self.repeats += 1
        self._delay(marker, now_ms + _backoff_ms(marker.attempts))

    def _delay(self, delayed: PendingMarker | MarkedTransaction, due_ms: int) -> None:
        self._serial += 1
        heappush(self._delayed, (due_ms, self._serial, delayed))

    def _done(self, marker: PendingMarker) -> None:
        """Handle a marker that is acknowledged, or needed no more."""
        self._remove(marker)
        transaction = marker.transaction
        transaction.left -= 1
        if not transaction.left:
            self._written.append(transaction)

    def _remove(self, marker: PendingMarker) -> None:
        self._unqueue(marker)
        marker.is_done = True
        key = _key(marker)
        found = self._partitions[key]
        del found.markers[marker]
        found.late -= marker.attempts > 0
        if not found.markers:
            del self._partitions[key]

    # --- for the metrics --------------------------------------------------------------------------

    def marker_count(self) -> int:
        """Return the number of markers that are not done."""
        return sum(len(each.markers) for each in self._partitions.values())

    def oldest_since_ms(self) -> int | None:
        """Return the time at which the oldest transaction was queued; None: there is none."""
        first = (next(iter(found.values())) for found in self._transactions.values() if found)
        return min((each.since_ms for each in first), default=None)

    def check_invariants(self) -> None:
        """Raise AssertionError for a state that no sequence of calls may reach."""
        delayed = {id(each) for _, _, each in self._delayed}
        for key, found in self._partitions.items():
            # 1. A partition in the index has markers, and `late` counts those sent before.
            assert found.markers, key
            assert found.late == sum(each.attempts > 0 for each in found.markers), key
            for marker in found.markers:
                # 2. An indexed marker is not done, and its transaction is not dropped.
                assert not marker.is_done
                assert not marker.transaction.is_dropped
                # 3. A marker is in exactly one place: queued, in flight, delayed, without a leader.
                broker = self._brokers.get(marker.broker)
                queued = (
                    0 if broker is None else (marker in broker.fresh) + (marker in broker.repeated)
                )
                places = queued + (marker.request is not None) + (marker.broker == NO_NODE)
                assert places == 1 or (places == 0 and id(marker) in delayed), marker.partition
        for transactions in self._transactions.values():
            for transaction in transactions.values():
                # 4. `left` counts the markers that are not done, all of which are in the index.
                left = [each for each in transaction.pending if not each.is_done]
                assert transaction.left == len(left), transaction.effect
                assert all(each in self._partitions[_key(each)].markers for each in left)
        for node, broker in self._brokers.items():
            # 5. A queue has markers of its broker only, none of which is in flight.
            for marker in (*broker.fresh, *broker.repeated):
                assert marker.broker == node
                assert marker.request is None
                assert not marker.is_done
            # 6. Requests in flight are limited.
            assert 0 <= broker.fresh_requests <= FRESH_REQUESTS_MAX


def _key(marker: PendingMarker) -> tuple[TopicId, int]:
    return marker.partition.topic_id, marker.partition.partition


def _take(
    node: NodeId, queue: "OrderedDict[PendingMarker, None]", *, is_fresh: bool
) -> MarkerRequest:
    count = min(len(queue), REQUEST_MARKERS_MAX)
    request = MarkerRequest(
        node, [queue.popitem(last=False)[0] for _ in range(count)], is_fresh=is_fresh
    )
    for marker in request.markers:
        marker.request = request
    return request


def _backoff_ms(attempts: int) -> int:
    """Return the pause before the attempt after this number of failed ones, >= 1."""
    return int(min(BACKOFF_MAX_MS, BACKOFF_MIN_MS << min(attempts - 1, 10)))
