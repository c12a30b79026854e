"""The result of one step of a shard: records to store, and replies to send once they commit."""

from dataclasses import dataclass
from typing import Any, Final, Generic, NewType, TypeAlias, TypeVar

from ...errors import QuorumlogError
from ...ids import ProducerIdentity
from ...records.control import TransactionMarker

Rec = TypeVar("Rec")
"""The type of a shard's records."""

Ticket = NewType("Ticket", int)
"""Identifies a pending request. The shell assigns it to each request; the reply may come much
later, such as that of a join, which waits for the other members."""


@dataclass(unsafe_hash=True, slots=True)  # cheaper than frozen: one for each reply
class Answered:
    """The reply to a request; `outcome` is an instance of the request's type argument."""

    ticket: Ticket
    outcome: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The refusal of a request, which changed nothing."""

    ticket: Ticket
    error: QuorumlogError


Reply: TypeAlias = Answered | Failed


UNDECIDED: Final = object()
"""In place of an outcome: the request needs a decision."""


class ShardDecision(Generic[Rec]):
    """Records to append in this order, atomically, and replies to send after that. A decision with
    very many offsets may be split: a prefix of the offset records, each a fact by itself, may be
    stored alone.

    The in-memory state has already changed when a decision is returned. If its records cannot be
    stored, the shell discards the whole state and reloads it from the log, so no machine implements
    rollback. Replies of a decision without records wait until every earlier decision is committed.

    `effects` are work for the shell, such as markers to write. They start, in order, once the
    records of this decision and of every earlier one are committed. They are dropped when the state
    is discarded; `Shard.loaded` returns those that a new leader must resume.

    With `producer`, the records are a transactional batch of their own with that producer id and
    epoch, without a sequence. With `marker`, the decision is one control batch, without records.
    """

    __slots__ = ("effects", "marker", "producer", "records", "replies")

    def __init__(
        self,
        records: tuple[Rec, ...] = (),
        replies: tuple[Reply, ...] = (),
        effects: tuple[Any, ...] = (),
        producer: ProducerIdentity | None = None,
        marker: TransactionMarker | None = None,
    ) -> None:
        self.records = records
        self.replies = replies
        self.effects = effects
        self.producer = producer
        self.marker = marker

    def __add__(self, other: "ShardDecision[Rec]") -> "ShardDecision[Rec]":
        """Return both decisions as one, this one first. A batch of a producer and a control batch
        are decisions of their own; nothing is added to them."""
        assert self.producer is other.producer is None, "the batch of a producer"
        assert self.marker is other.marker is None, "a control batch"
        return ShardDecision(
            self.records + other.records,
            self.replies + other.replies,
            self.effects + other.effects,
        )

    def __repr__(self) -> str:
        return (
            f"ShardDecision({self.records}, {self.replies}, {self.effects},"
            f" producer={self.producer}, marker={self.marker})"
        )


NOTHING: Final[ShardDecision[Any]] = ShardDecision()


class DecisionBuilder(Generic[Rec]):
    """Collects the records, replies and effects of one step."""

    __slots__ = ("effects", "now_ms", "records", "replies")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[Rec] = []
        self.replies: list[Reply] = []
        self.effects: list[Any] = []

    def store(self, record: Rec) -> None:
        """Append a record."""
        self.records.append(record)

    def answer(self, ticket: Ticket, outcome: Any) -> None:
        """Reply to a request once the records are committed."""
        self.replies.append(Answered(ticket, outcome))

    def fail(self, ticket: Ticket, error: QuorumlogError) -> None:
        """Refuse a request."""
        self.replies.append(Failed(ticket, error))

    def start(self, effect: Any) -> None:
        """Start an effect once the records are committed."""
        self.effects.append(effect)

    def build(self) -> ShardDecision[Rec]:
        """Return the decision."""
        return ShardDecision(tuple(self.records), tuple(self.replies), tuple(self.effects))
