"""The state machine of one transactional id (KIP-98, KIP-360, KIP-890). Pure.

An identity is a producer id with an epoch. A transaction that ends by EndTxn version 5 raises the
epoch (transaction.version 2), so each transaction has an identity of its own and a late request
matches no other one. A producer of an older version keeps its identity until InitProducerId. When
the coordinator itself aborts, it raises the epoch once. At the highest epoch the producer id is
replaced: markers are written under the old one, and the next transaction begins under the new one.

Differences from Apache Kafka, all of which refuse more:
- While markers are written, a fenced producer fails at once, without ConcurrentTransactions first.
- InitProducerId of a fenced producer does not abort the transaction of its successor.
- A producer that InitProducerId of another one fenced cannot repeat EndTxn to get the new epoch.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from ...errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OperationNotAttempted,
    ProducerFenced,
    QuorumlogError,
    TransactionAbortable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...ids import ProducerIdentity, TopicId
from ...metadata.image import MetadataImage
from ...records.control import EPOCH_BUMP_VERSION
from ..coordinator.decision import NOTHING, Answered, Failed, ShardDecision, Ticket
from .config import TRANSACTION_VERSION
from .records import (
    CLIENT_EPOCH_MAX,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME_MS,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from .requests import (
    AbortReason,
    AddedPartitions,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ListedTransaction,
    MarkerPartition,
    MarkersWritten,
    TransactionDescription,
    VerifyPartitions,
    WriteMarkers,
)

DrawProducerId: TypeAlias = Callable[[], int | None]
"""Returns an unused producer id; None: none is at hand yet."""
TransactionDecision: TypeAlias = ShardDecision[TransactionRecord]

PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
ENDED: Final = PREPARED + COMPLETE
COMMITTING: Final = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_NO_TOPIC_IDS: Final[Mapping[str, TopicId]] = {}
_NO_PARTITIONS: Final[frozenset[MarkerPartition]] = frozenset()


def draw_id(draw: DrawProducerId, transactional_id: str) -> int:
    """Return an unused producer id; raise CoordinatorLoading if none is at hand."""
    producer_id = draw()
    if producer_id is None:
        raise CoordinatorLoading(
            f"transactional id {transactional_id}: its coordinator has no unused producer id yet;"
            " retry"
        )
    return producer_id


def new_metadata(request: InitProducerId, producer_id: int, now_ms: int) -> TransactionMetadata:
    """Return the first state of a transactional id."""
    return TransactionMetadata(
        transactional_id=request.transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=request.timeout_ms,
        state=TransactionState.EMPTY,
        updated_ms=now_ms,
    )


class TransactionMachine:
    """The state of one transactional id: its newest record, and what is left of its markers."""

    __slots__ = ("_draw", "_topic_ids", "metadata", "unmarked")

    def __init__(self, metadata: TransactionMetadata, draw: DrawProducerId) -> None:
        self.metadata = metadata
        self.unmarked: frozenset[MarkerPartition] = _NO_PARTITIONS
        """The partitions of a decided transaction that have not acknowledged their marker."""
        self._draw = draw
        self._topic_ids: Mapping[str, TopicId] = _NO_TOPIC_IDS  # of the transaction's topics

    # --- identities -------------------------------------------------------------------------------

    @property
    def producer(self) -> ProducerIdentity:
        """The identity of the next transaction, or of the open one."""
        known = self.metadata
        if known.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(known.next_producer_id, 0)
        return ProducerIdentity(known.producer_id, known.producer_epoch)

    def _last_producer(self) -> ProducerIdentity | None:
        """Return the identity before the present one; None if that producer was fenced."""
        known = self.metadata
        if known.last_producer_epoch == NO_PRODUCER_EPOCH:
            return None
        producer_id = known.previous_producer_id
        if producer_id == NO_PRODUCER_ID:
            producer_id = known.producer_id
        return ProducerIdentity(producer_id, known.last_producer_epoch)

    def _ended_producer(self) -> ProducerIdentity | None:
        """Return the identity of the transaction that ended last, if its end raised the epoch."""
        known = self.metadata
        if known.version < EPOCH_BUMP_VERSION or known.state not in ENDED:
            return None
        return self._last_producer()

    def _check_producer(self, producer: ProducerIdentity) -> None:
        """Raise ProducerFenced or InvalidProducerIdMapping for an identity that is not current, or
        that no client has: the highest epoch fenced the last one."""
        current = self.producer
        if producer == current and producer.producer_epoch <= CLIENT_EPOCH_MAX:
            return
        known = self.metadata
        if producer.producer_id not in (known.producer_id, current.producer_id):
            raise InvalidProducerIdMapping(
                f"transactional id {known.transactional_id}: its producer id is"
                f" {current.producer_id}, the request has {producer.producer_id}; close this"
                " producer"
            )
        raise self._fenced(producer)

    def _fenced(self, producer: ProducerIdentity) -> ProducerFenced:
        current = self.producer
        return ProducerFenced(
            f"transactional id {self.metadata.transactional_id}: producer {producer.producer_id}"
            f" epoch {producer.producer_epoch} is fenced by producer {current.producer_id} epoch"
            f" {current.producer_epoch}; close this producer"
        )

    def _concurrent(self) -> ConcurrentTransactions:
        return ConcurrentTransactions(
            f"transactional id {self.metadata.transactional_id}: {len(self.unmarked)} partitions"
            " of its last transaction have no marker yet; retry"
        )

    # --- InitProducerId ---------------------------------------------------------------------------

    def init_producer_id(
        self, ticket: Ticket, request: InitProducerId, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        """Raise the epoch, or replace an id with exhausted epochs. Repeat the last result for the
        last identity. Abort an open transaction, and let the producer retry."""
        known, current = self.metadata, request.current
        if known.state in PREPARED:
            raise self._concurrent()
        is_repeat = current is not None and current == self._last_producer()
        if current is not None and current != self.producer and not is_repeat:
            raise self._fenced(current)
        if known.state is TransactionState.ONGOING:
            if is_repeat and current is not None:  # it got its answer and began this transaction
                raise self._fenced(current)
            aborted = self.abort(
                image,
                now_ms,
                reason=AbortReason.CLIENT if current is not None else AbortReason.FENCED,
                keeps_producer=current is not None,
            )
            return aborted + ShardDecision(replies=(Failed(ticket, self._concurrent()),))
        if is_repeat:
            # sometimes: a producer id request is repeated after a lost response
            metadata = known
        elif known.producer_epoch >= CLIENT_EPOCH_MAX:
            # sometimes: the epochs of a producer id are exhausted
            metadata = replace(
                known,
                producer_id=draw_id(self._draw, known.transactional_id),
                previous_producer_id=known.producer_id,
                producer_epoch=0,
                last_producer_epoch=(
                    NO_PRODUCER_EPOCH if current is None else known.producer_epoch
                ),
            )
        else:
            metadata = replace(
                known,
                previous_producer_id=NO_PRODUCER_ID,
                producer_epoch=known.producer_epoch + 1,
                last_producer_epoch=(
                    NO_PRODUCER_EPOCH if current is None else known.producer_epoch
                ),
            )
        self.metadata = replace(
            metadata,
            timeout_ms=request.timeout_ms,
            state=TransactionState.EMPTY,
            updated_ms=now_ms,
            started_ms=NO_TIME_MS,
        )
        return ShardDecision((self.metadata,), (Answered(ticket, self.producer),))

    # --- partitions -------------------------------------------------------------------------------

    def add_partitions(
        self, ticket: Ticket, request: AddPartitions, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        """Add partitions; the first ones begin a transaction."""
        self._check_producer(request.producer)
        known = self.metadata
        if known.state in PREPARED:
            raise self._concurrent()
        topic_ids, errors = resolve(request, image)
        answer = (Answered(ticket, AddedPartitions(errors=errors)),)
        is_open = known.state is TransactionState.ONGOING
        if any(errors) or not request.partitions:
            return ShardDecision(replies=answer)
        if not is_open or any(self._topic_ids.get(name) != topic_ids[name] for name in topic_ids):
            before = self._topic_ids if is_open else _NO_TOPIC_IDS
            self._topic_ids = {**before, **topic_ids}
        partitions = known.partitions.union(request.partitions)
        if is_open and len(partitions) == len(known.partitions):
            return ShardDecision(replies=answer)
        self.metadata = replace(
            known if known.previous_producer_id == NO_PRODUCER_ID else _without_previous(known),
            state=TransactionState.ONGOING,
            partitions=partitions,
            updated_ms=now_ms,
            started_ms=known.started_ms if is_open else now_ms,
        )
        return ShardDecision((self.metadata,), answer)

    def verify_partitions(
        self, ticket: Ticket, request: VerifyPartitions, image: MetadataImage
    ) -> TransactionDecision:
        """Answer which partitions are in the producer's open transaction."""
        self._check_producer(request.producer)
        known = self.metadata
        if known.state in PREPARED:
            # sometimes: a batch is verified while markers are written
            raise self._concurrent()
        errors: list[QuorumlogError | None] = []
        for topic, partition in request.partitions:
            topic_id = request.topic_ids.get(topic) or _current_id(topic, image)
            is_in = (topic, partition) in known.partitions
            if is_in and topic_id is not None and topic_id == self._topic_ids.get(topic):
                errors.append(None)
                continue
            errors.append(
                TransactionAbortable(
                    f"transactional id {known.transactional_id}: the partition is not in its open"
                    " transaction; abort the transaction",
                    topic=topic,
                    partition=partition,
                )
            )
        return ShardDecision(replies=(Answered(ticket, AddedPartitions(errors=tuple(errors))),))

    # --- the end of a transaction -----------------------------------------------------------------

    def end(
        self, ticket: Ticket, request: EndTransaction, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        """Commit or abort the open transaction, or repeat the answer to that request.

        From version 5 on, a producer may also abort without partitions: after failed writes, it has
        no answer that states if a partition was added (KAFKA-18464).
        """
        known, producer = self.metadata, request.producer
        repeats = producer == (self._ended_producer() if request.bumps_epoch else self.producer)
        if repeats and known.state in ENDED:
            if request.commit == (known.state in COMMITTING):
                if known.state in PREPARED:
                    raise self._concurrent()
                return ShardDecision(replies=(Answered(ticket, self.producer),))
            raise self._invalid_end(request.commit)
        self._check_producer(producer)
        if known.state in PREPARED:
            raise self._concurrent()
        if known.state is not TransactionState.ONGOING and (
            request.commit or not request.bumps_epoch
        ):
            raise self._invalid_end(request.commit)
        decision = self._decide(
            request.commit,
            image,
            now_ms,
            version=EPOCH_BUMP_VERSION if request.bumps_epoch else 0,
            raises_epoch=request.bumps_epoch,
            keeps_producer=True,
            reason=None if request.commit else AbortReason.CLIENT,
        )
        return decision + ShardDecision(replies=(Answered(ticket, self.producer),))

    def _invalid_end(self, commit: bool) -> InvalidTxnState:
        known = self.metadata
        return InvalidTxnState(
            f"transactional id {known.transactional_id}: its state is {known.state.kafka_name}, so"
            f" it cannot {'commit' if commit else 'abort'}; check the outcome of the last"
            " transaction"
        )

    def abort(
        self, image: MetadataImage, now_ms: int, *, reason: AbortReason, keeps_producer: bool
    ) -> TransactionDecision:
        """Abort the open transaction by a decision of the coordinator, which raises the epoch.

        With `keeps_producer`, and from transaction.version 2 on, the producer can continue: a
        repeated request with its epoch returns the raised one. Otherwise it is fenced for good.
        Raises CoordinatorLoading if the id has to be replaced and none is at hand.
        """
        assert self.metadata.state is TransactionState.ONGOING, self.metadata
        # sometimes if reason is AbortReason.TIMEOUT: a transaction times out
        # sometimes if reason is AbortReason.FENCED: a producer starts with a transaction open
        level = image.features.get(TRANSACTION_VERSION, 0)
        return self._decide(
            False,
            image,
            now_ms,
            version=EPOCH_BUMP_VERSION if level >= EPOCH_BUMP_VERSION else 0,
            raises_epoch=True,
            keeps_producer=keeps_producer and level >= EPOCH_BUMP_VERSION,
            reason=reason,
        )

    def _decide(
        self,
        commit: bool,
        image: MetadataImage,
        now_ms: int,
        *,
        version: int,
        raises_epoch: bool,
        keeps_producer: bool,
        reason: AbortReason | None,
    ) -> TransactionDecision:
        """Return the decision record with the marker work; without partitions, the completion, and
        marker work without partitions, which is counted."""
        known = self.metadata
        # sometimes if reason is AbortReason.OPERATOR: an operator aborts a transaction
        epoch, last_epoch, next_id = known.producer_epoch, known.last_producer_epoch, NO_PRODUCER_ID
        if raises_epoch:
            if version >= EPOCH_BUMP_VERSION and epoch >= CLIENT_EPOCH_MAX:
                next_id = draw_id(self._draw, known.transactional_id)
            last_epoch = epoch if keeps_producer else NO_PRODUCER_EPOCH
            epoch = min(epoch + 1, EPOCH_MAX)
        is_open = known.state is TransactionState.ONGOING
        self.metadata = replace(
            known,
            previous_producer_id=NO_PRODUCER_ID,
            next_producer_id=next_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            state=(TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT),
            updated_ms=now_ms,
            started_ms=known.started_ms if is_open else now_ms,
            version=version,
        )
        self.unmarked = self._existing_partitions(image)
        self._topic_ids = _NO_TOPIC_IDS
        effects = (self._markers(reason),)
        if not self.unmarked:
            return self._complete(now_ms) + ShardDecision(effects=effects)
        return ShardDecision((self.metadata,), effects=effects)

    def _existing_partitions(self, image: MetadataImage) -> frozenset[MarkerPartition]:
        """Return the partitions of the transaction that still exist."""
        return frozenset(
            MarkerPartition(topic, partition, self._topic_ids[topic])
            for topic, partition in self.metadata.partitions
            if topic in self._topic_ids and _current_id(topic, image) == self._topic_ids[topic]
        )

    def _markers(self, reason: AbortReason | None) -> WriteMarkers:
        known = self.metadata
        return WriteMarkers(
            transactional_id=known.transactional_id,
            producer=ProducerIdentity(known.producer_id, known.producer_epoch),
            is_commit=known.state in COMMITTING,
            transaction_version=known.version,
            partitions=tuple(sorted(self.unmarked)),
            abort_reason=reason,
        )

    def markers_written(self, request: MarkersWritten, now_ms: int) -> TransactionDecision:
        """Record partitions that are done; complete the transaction after the last one."""
        known = self.metadata
        markers = ProducerIdentity(known.producer_id, known.producer_epoch)
        if known.state not in PREPARED or request.producer != markers:
            # sometimes: markers of a completed transaction are reported
            return NOTHING
        self.unmarked = self.unmarked.difference(request.partitions)
        return NOTHING if self.unmarked else self._complete(now_ms)

    def topics_deleted(self, topic_ids: frozenset[TopicId], now_ms: int) -> TransactionDecision:
        """Drop the markers of deleted topics; complete the transaction if no other is left."""
        if self.metadata.state not in PREPARED:
            return NOTHING
        # sometimes if topic_ids & {e.topic_id for e in self.unmarked}: a marker loses its topic
        self.unmarked = frozenset(each for each in self.unmarked if each.topic_id not in topic_ids)
        return NOTHING if self.unmarked else self._complete(now_ms)

    def _complete(self, now_ms: int) -> TransactionDecision:
        known = self.metadata
        is_commit = known.state is TransactionState.PREPARE_COMMIT
        self.metadata = replace(
            known,
            state=(
                TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
            ),
            partitions=frozenset(),
            updated_ms=now_ms,
        )
        if known.next_producer_id != NO_PRODUCER_ID:
            self.metadata = replace(
                self.metadata,
                producer_id=known.next_producer_id,
                previous_producer_id=known.producer_id,
                next_producer_id=NO_PRODUCER_ID,
                producer_epoch=0,
            )
        return ShardDecision((self.metadata,))

    # --- loading and descriptions -----------------------------------------------------------------

    def loaded(self, image: MetadataImage, now_ms: int) -> TransactionDecision:
        """Finish loading: resume the markers of a decided transaction.

        A topic without an id in `image` is deleted: the image of a leader is never older than the
        one with which an earlier leader added the topic.
        """
        known = self.metadata
        names = {topic for topic, _ in known.partitions}
        found = ((name, _current_id(name, image)) for name in sorted(names))
        self._topic_ids = {name: topic_id for name, topic_id in found if topic_id is not None}
        if known.state not in PREPARED:
            return NOTHING
        self.unmarked = self._existing_partitions(image)
        self._topic_ids = _NO_TOPIC_IDS
        if not self.unmarked:
            return self._complete(now_ms)
        return ShardDecision(effects=(self._markers(None),))

    def describe(self) -> TransactionDescription:
        """Return the description of the transactional id."""
        known = self.metadata
        partitions: list[tuple[str, int]] = sorted(known.partitions)
        if known.state in PREPARED:
            partitions = sorted((each.topic, each.partition) for each in self.unmarked)
        return TransactionDescription(
            transactional_id=known.transactional_id,
            state=known.state.kafka_name,
            producer=ProducerIdentity(known.producer_id, known.producer_epoch),
            timeout_ms=known.timeout_ms,
            started_ms=known.started_ms,
            partitions=tuple(partitions),
        )

    def listing(self) -> ListedTransaction:
        """Return the entry for the list of transactional ids."""
        known = self.metadata
        return ListedTransaction(
            transactional_id=known.transactional_id,
            resource=known.transactional_id,
            producer_id=known.producer_id,
            state=known.state.kafka_name,
            started_ms=known.started_ms,
        )

    def check_invariants(self) -> None:
        """Raise AssertionError for a state that no sequence of requests may reach."""
        known = self.metadata
        state, epoch = known.state, known.producer_epoch
        is_open, is_decided = state is TransactionState.ONGOING, state in PREPARED
        # 1. The states that exist for a moment only are not stored.
        assert state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE), known
        # 2. A client never has the highest epoch, so that it can always be fenced.
        assert 0 <= epoch <= EPOCH_MAX, known
        assert epoch <= CLIENT_EPOCH_MAX or is_decided or state in COMPLETE, known
        # 3. A transaction has partitions from its begin to its completion.
        assert bool(known.partitions) == (is_open or is_decided), known
        # 4. Markers are left exactly as long as the transaction is decided and not complete.
        assert bool(self.unmarked) == is_decided, (known, self.unmarked)
        marked = {(each.topic, each.partition) for each in self.unmarked}
        assert marked <= known.partitions, (known, self.unmarked)
        # 5. The id is replaced exactly when its markers carry the highest epoch.
        replaces = is_decided and known.version >= EPOCH_BUMP_VERSION and epoch == EPOCH_MAX
        assert (known.next_producer_id != NO_PRODUCER_ID) == replaces, known
        assert known.next_producer_id != known.producer_id, known
        # 6. A previous id exists only right after its replacement.
        if known.previous_producer_id != NO_PRODUCER_ID:
            assert epoch == 0, known
            assert not is_open, known
            assert not is_decided, known
            assert known.previous_producer_id != known.producer_id, known
        # 7. The last identity is the predecessor of the present one.
        if known.last_producer_epoch != NO_PRODUCER_EPOCH:
            is_replaced = known.previous_producer_id != NO_PRODUCER_ID
            assert is_replaced or known.last_producer_epoch < epoch, known
        # 8. A transaction has a time of its begin.
        assert (known.started_ms != NO_TIME_MS) == (state is not TransactionState.EMPTY), known
        assert known.started_ms <= known.updated_ms, known
        # 9. The topics of an open transaction have ids; a deleted one may have none after a load.
        assert is_open or not self._topic_ids, known


def _without_previous(known: TransactionMetadata) -> TransactionMetadata:
    return replace(
        known, previous_producer_id=NO_PRODUCER_ID, last_producer_epoch=NO_PRODUCER_EPOCH
    )


def _current_id(topic: str, image: MetadataImage) -> TopicId | None:
    return image.topics_by_name.get(topic)


def resolve(
    request: AddPartitions, image: MetadataImage
) -> tuple[dict[str, TopicId], tuple[QuorumlogError | None, ...]]:
    """Return the topic ids by name, and one error or None for each partition: if one partition
    does not exist, none is added."""
    topic_ids: dict[str, TopicId] = {}
    errors: list[QuorumlogError | None] = []
    for name, partition in request.partitions:
        topic = image.topic(name)
        expected = request.topic_ids.get(name)
        if topic is None or partition not in topic.partitions:
            errors.append(
                UnknownTopicOrPartition(
                    "the partition cannot be added to the transaction: it does not exist; refresh"
                    " the metadata",
                    topic=name,
                    partition=partition,
                )
            )
        elif expected is not None and expected != topic.id:
            errors.append(
                UnknownTopicId(
                    "the partition cannot be added to the transaction: the coordinator has another"
                    " id of its topic; refresh the metadata and retry",
                    topic=name,
                    partition=partition,
                )
            )
        else:
            topic_ids[name] = topic.id
            errors.append(None)
    if not any(errors):
        return topic_ids, tuple(errors)
    return topic_ids, tuple(
        error
        or OperationNotAttempted(
            "the partition was not added to the transaction: another partition of the request does"
            " not exist; repeat the request without that one",
            topic=name,
            partition=partition,
        )
        for error, (name, partition) in zip(errors, request.partitions, strict=True)
    )
