"""What one step of a group gathers to say."""

from dataclasses import dataclass, field
from typing import Any

from ....errors import QuorumlogError
from ..decision import Answered, Decision, Failed, Reply, Ticket
from ..records import GroupRecord


@dataclass(slots=True)
class Turn:
    """Grows while a step is taken; `decision` ends it."""

    now_ms: int
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

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
