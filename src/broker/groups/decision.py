"""The result of one step of a group: records to store, and replies to send once they commit."""

from dataclasses import dataclass
from typing import Any, NewType, TypeAlias

from ...errors import QuorumlogError
from .records import GroupRecord

Ticket = NewType("Ticket", int)
"""Identifies a pending request. The shell assigns it to each request; the reply may come much
later, such as that of a join, which waits for the other members."""


@dataclass(init=False, unsafe_hash=True, slots=True)  # as `GroupDecision`
class Answered:
    """The reply to a request; `outcome` is an instance of its `GroupRequest`'s type argument."""

    ticket: Ticket
    outcome: Any

    def __init__(self, ticket: Ticket, outcome: Any) -> None:
        self.ticket = ticket
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """The refusal of a request, which changed nothing."""

    ticket: Ticket
    error: QuorumlogError


Reply: TypeAlias = Answered | Failed


@dataclass(init=False, unsafe_hash=True, slots=True)  # as `OffsetCommitted`
class GroupDecision:
    """Records to append in this order, atomically, and replies to send after that. A decision with
    very many offsets may be split: a prefix of the offset records, each a fact by itself, may be
    stored alone.

    The in-memory state has already changed when a decision is returned. If its records cannot be
    stored, the shell discards the whole state and reloads it from the log, so no machine implements
    rollback. Replies of a decision without records wait until every earlier decision is committed.
    """

    records: tuple[GroupRecord, ...]
    replies: tuple[Reply, ...]

    def __init__(
        self, records: tuple[GroupRecord, ...] = (), replies: tuple[Reply, ...] = ()
    ) -> None:
        self.records = records
        self.replies = replies

    def __add__(self, other: "GroupDecision") -> "GroupDecision":
        """Return both decisions as one, this one first."""
        return GroupDecision(self.records + other.records, self.replies + other.replies)


NOTHING = GroupDecision()


class DecisionBuilder:
    """Collects the records and replies of one step."""

    __slots__ = ("now_ms", "records", "replies")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []

    def store(self, record: GroupRecord) -> None:
        """Append a record."""
        self.records.append(record)

    def answer(self, ticket: Ticket, outcome: Any) -> None:
        """Reply to a request once the records are committed."""
        self.replies.append(Answered(ticket, outcome))

    def fail(self, ticket: Ticket, error: QuorumlogError) -> None:
        """Refuse a request."""
        self.replies.append(Failed(ticket, error))

    def build(self) -> GroupDecision:
        """Return the decision."""
        return GroupDecision(tuple(self.records), tuple(self.replies))
