"""What a step of a group is: records to store, and who is answered what once they are committed."""

from dataclasses import dataclass
from typing import Any, NewType, TypeAlias

from ...errors import QuorumlogError
from .records import GroupRecord

Ticket = NewType("Ticket", int)
"""Who waits for an answer: given by the shell with each request, and by the machine with the
answer, maybe much later (a join waits for the other members)."""


@dataclass(init=False, unsafe_hash=True, slots=True)  # as `Decision`
class Answered:
    """The answer of a request, an instance of its `GroupRequest`'s type argument."""

    ticket: Ticket
    outcome: Any

    def __init__(self, ticket: Ticket, outcome: Any) -> None:
        self.ticket = ticket
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """A request was refused; nothing of it has been done."""

    ticket: Ticket
    error: QuorumlogError


Reply: TypeAlias = Answered | Failed


@dataclass(init=False, unsafe_hash=True, slots=True)  # as `OffsetCommitted`
class Decision:
    """Records to append in this order, all or none, and what to answer then. Of very many offsets
    in front of the others a beginning may be stored alone: each is a fact by itself.

    The state has moved on when a decision is returned. Where its records cannot be stored the
    whole state is thrown away and read anew, so no machine knows how to go back. Replies of a
    decision without records wait until all that was decided before is committed.
    """

    records: tuple[GroupRecord, ...]
    replies: tuple[Reply, ...]

    def __init__(
        self, records: tuple[GroupRecord, ...] = (), replies: tuple[Reply, ...] = ()
    ) -> None:
        self.records = records
        self.replies = replies

    def __add__(self, other: "Decision") -> "Decision":
        """Both, this one first."""
        return Decision(self.records + other.records, self.replies + other.replies)


NOTHING = Decision()
