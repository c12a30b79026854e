"""A transaction shard that is driven by hand, with its log, its marker work and a wall clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from immutables import Map

from quorumlog.broker.coordinator.decision import Failed, Reply, Ticket
from quorumlog.broker.transactions.config import TRANSACTION_VERSION, TransactionConfig
from quorumlog.broker.transactions.formats import decode, encode
from quorumlog.broker.transactions.records import (
    TransactionalIdForgotten,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from quorumlog.broker.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    TransactionRequest,
    VerifyPartitions,
    WriteMarkers,
)
from quorumlog.broker.transactions.shard import TransactionShard
from quorumlog.broker.transactions.transaction import TransactionDecision
from quorumlog.errors import QuorumlogError
from quorumlog.ids import Epoch, NodeId, ProducerIdentity, TopicId
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage

R = TypeVar("R")

A, B = ("a", 0), ("b", 1)
TOPIC_A, TOPIC_B, TOPIC_A2 = TopicId(b"a" * 16), TopicId(b"b" * 16), TopicId(b"2" * 16)
TOPICS = {"a": TOPIC_A, "b": TOPIC_B}
DAY_MS = 24 * 3_600_000
START_MS = 1_700_000_000_000
FIRST_ID = 1_000


def image_of(
    topics: Mapping[str, TopicId], *, partitions: int = 2, version: int = 2
) -> MetadataImage:
    """An image with these topics, and transaction.version at this level."""
    one = PartitionImage(
        replicas=(NodeId(1),),
        isr=(NodeId(1),),
        leader=NodeId(1),
        leader_epoch=Epoch(0),
        partition_epoch=0,
    )
    made = {
        topic_id: TopicImage(
            id=topic_id,
            name=name,
            partitions=Map(dict.fromkeys(range(partitions), one)),
            configs=Map(),
        )
        for name, topic_id in topics.items()
    }
    return MetadataImage(
        offset=EMPTY_IMAGE.offset,
        epoch=EMPTY_IMAGE.epoch,
        brokers=Map(),
        topics_by_id=Map(made),
        topics_by_name=Map(dict(topics)),
        topics_by_key=Map(),
        features=Map({TRANSACTION_VERSION: version} if version else {}),
    )


@dataclass
class ChangingTopics:
    """Topics "a" and "b", which are deleted and created; each incarnation has an id of its own."""

    incarnations: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 1})  # even: deleted

    @property
    def ids(self) -> dict[str, bytes]:
        return {
            name: f"{name}{incarnation}".encode().ljust(16)
            for name, incarnation in self.incarnations.items()
            if incarnation % 2
        }

    def image(self, version: int = 2) -> MetadataImage:
        topics = {name: TopicId(topic_id) for name, topic_id in self.ids.items()}
        return image_of(topics, version=version)

    def change(self, name: str, *, is_recreated: bool) -> list[TopicImage]:
        """Delete a topic, create it, or both at once; return the deleted ones."""
        if name not in self.ids:
            self.incarnations[name] += 1
            return []
        deleted = self.image().topics_by_id[TopicId(self.ids[name])]
        self.incarnations[name] += 2 if is_recreated else 1
        return [deleted]


@dataclass
class ShardPlay:
    """One shard. Decisions are stored at once, in the encoded form of the log."""

    config: TransactionConfig = field(default_factory=TransactionConfig)
    image: MetadataImage = field(default_factory=lambda: image_of(TOPICS))
    now_ms: int = START_MS
    next_id: int = FIRST_ID
    has_ids: bool = True
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    effects: list[WriteMarkers] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shard = TransactionShard(self.config, self.draw)
        self.tickets = 0
        self.answers: dict[Ticket, Reply] = {}

    def draw(self) -> int | None:
        if not self.has_ids:
            return None
        self.next_id += 1
        return self.next_id - 1

    def take(self, decision: TransactionDecision) -> list[TransactionRecord]:
        """Store a decision; return its records."""
        for record in decision.records:
            key, value = encode(record)
            assert decode(key, value) == record
            self.log.append((key, value))
        self.effects += decision.effects
        for reply in decision.replies:
            assert reply.ticket not in self.answers
            self.answers[reply.ticket] = reply
        self.shard.check_invariants()
        return list(decision.records)

    def submit(self, request: TransactionRequest[Any]) -> Ticket:
        """Hand in a request."""
        self.tickets += 1
        ticket = Ticket(self.tickets)
        self.take(self.shard.handle(ticket, request, self.image, self.now_ms))
        return ticket

    def answer(self, ticket: Ticket) -> Any:
        """The answer that a request got; raises its error."""
        reply = self.answers[ticket]
        if isinstance(reply, Failed):
            raise reply.error
        return reply.outcome

    def ask(self, request: TransactionRequest[R]) -> R:
        """The answer to a request, at once; raises its error."""
        outcome: R = self.answer(self.submit(request))
        return outcome

    def expire(self) -> list[TransactionRecord]:
        return self.take(self.shard.expire(self.now_ms, self.image))

    def change(self, image: MetadataImage) -> list[TransactionRecord]:
        """Apply a new image."""
        before, self.image = self.image, image
        deleted = [
            topic
            for topic_id, topic in before.topics_by_id.items()
            if topic_id not in image.topics_by_id
        ]
        return self.take(self.shard.image_changed(image, self.now_ms, deleted=deleted))

    def reload(self) -> list[TransactionRecord]:
        """Load the shard from its log, as the next leader does."""
        self.shard = TransactionShard(self.config, self.draw)
        self.effects.clear()
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.shard.replay(record)
        return self.take(self.shard.loaded(self.image, self.now_ms))

    # --- the requests of a producer ---------------------------------------------------------------

    def init(
        self,
        current: ProducerIdentity | None = None,
        *,
        name: str = "t",
        timeout_ms: int = 60_000,
    ) -> ProducerIdentity:
        return self.ask(
            InitProducerId(transactional_id=name, timeout_ms=timeout_ms, current=current)
        )

    def add(
        self,
        producer: ProducerIdentity,
        *partitions: tuple[str, int],
        name: str = "t",
        topic_ids: Mapping[str, TopicId] | None = None,
    ) -> list[str]:
        """The names of the errors of the partitions, "" for none."""
        added = self.ask(
            AddPartitions(
                transactional_id=name,
                producer=producer,
                partitions=partitions,
                topic_ids=topic_ids or {},
            )
        )
        return names_of(added.errors)

    def verify(
        self,
        producer: ProducerIdentity,
        *partitions: tuple[str, int],
        topic_ids: Mapping[str, TopicId] | None = None,
    ) -> list[str]:
        verified = self.ask(
            VerifyPartitions(
                transactional_id="t",
                producer=producer,
                partitions=partitions,
                topic_ids=topic_ids or {},
            )
        )
        return names_of(verified.errors)

    def end(
        self, producer: ProducerIdentity, *, commit: bool = True, version: int = 2, name: str = "t"
    ) -> ProducerIdentity:
        return self.ask(
            EndTransaction(
                transactional_id=name, producer=producer, commit=commit, bumps_epoch=version >= 2
            )
        )

    def mark(self, effect: WriteMarkers | None = None) -> None:
        """Report that every marker of an effect (else: of the last one) is written."""
        effect = effect or self.effects[-1]
        self.ask(
            MarkersWritten(
                transactional_id=effect.transactional_id,
                producer=effect.producer,
                partitions=effect.partitions,
            )
        )

    def begun(self, *partitions: tuple[str, int]) -> ProducerIdentity:
        """A producer with an open transaction."""
        producer = self.init()
        self.add(producer, *(partitions or (A,)))
        return producer

    # --- what is stored ---------------------------------------------------------------------------

    def newest(self, name: str = "t") -> TransactionMetadata:
        """The newest record of a transactional id."""
        records = [decode(key, value) for key, value in self.log]
        found = [
            record
            for record in records
            if isinstance(record, TransactionMetadata) and record.transactional_id == name
        ]
        return found[-1]

    @property
    def state(self) -> TransactionState:
        return self.newest().state

    def store(self, record: TransactionMetadata) -> None:
        """Put a record into the log and load it."""
        self.log.append(encode(record))
        self.reload()


def names_of(errors: tuple[QuorumlogError | None, ...]) -> list[str]:
    return ["" if error is None else error.name for error in errors]


def states(records: list[TransactionRecord]) -> list[Any]:
    """The states of records; the names of deleted ids."""
    return [
        record.transactional_id
        if isinstance(record, TransactionalIdForgotten)
        else getattr(record, "state", type(record).__name__)
        for record in records
    ]
