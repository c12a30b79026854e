"""What one step of a group gathers to say."""

from typing import Any

from ....errors import QuorumlogError
from ..decision import Answered, Decision, Failed, Reply, Ticket
from ..records import GroupRecord


class Turn:
    """Grows while a step is taken; `decision` ends it."""

    __slots__ = ("now_ms", "records", "replies")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []

    def store(self, record: GroupRecord) -> None:
        """Append this."""
        self.records.append(record)

    def answer(self, ticket: Ticket, outcome: Any) -> None:
        """Say this once the records are committed."""
        self.replies.append(Answered(ticket, outcome))

    def fail(self, ticket: Ticket, error: QuorumlogError) -> None:
        """Refuse this."""
        self.replies.append(Failed(ticket, error))

    def decision(self) -> Decision:
        """All of it."""
        return Decision(tuple(self.records), tuple(self.replies))
