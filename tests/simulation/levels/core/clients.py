"""Clients' operations on the quorum, and the check that their results are linearizable.

The state machine is the log itself: a proposal's position is its end offset, a read's position is
the applied end at its answer. The committed log is one order (other invariants enforce that). So a
history is linearizable if and only if each operation that began after another one was answered has
a later position (or the same, for a read). That takes one comparison per operation: the largest
position answered so far, stored at the start, checked at the end.
"""

from ...checkers.violation import Violation


class PendingProposal:
    """A proposal that a leader appended, without an outcome yet."""

    __slots__ = ("end", "epoch", "floor", "number")

    def __init__(self, number: int, floor: int, *, end: int, epoch: int) -> None:
        self.number = number
        self.floor = floor  # the largest position answered when it began
        self.end = end
        self.epoch = epoch


class PendingRead:
    """A linearizable read in progress; `number` is its context."""

    __slots__ = ("began_us", "floor", "number")

    def __init__(self, number: int, floor: int, *, began_us: int) -> None:
        self.number = number
        self.floor = floor
        self.began_us = began_us


class CoreHistory:
    """The counts of operations and their outcomes: answered, refused (not executed), unknown."""

    def __init__(self) -> None:
        self.floor = 0  # the largest position answered
        self.begun = 0
        self.proposals_answered = 0
        self.reads_answered = 0
        self.refused = 0
        self.unknown = 0
        self.numbers: dict[int, int] = {}  # CRC-32 of a payload -> the proposal's number

    def begin(self) -> int:
        """Count an operation and return its number."""
        self.begun += 1
        return self.begun

    def proposal_answered(self, proposal: PendingProposal) -> None:
        """Check a proposal that was answered as committed."""
        if proposal.end <= proposal.floor:
            raise Violation(
                "Linearizable",
                f"proposal {proposal.number} ends at offset {proposal.end}, though everything up"
                f" to {proposal.floor} was answered before it began",
            )
        self.proposals_answered += 1
        self.floor = max(self.floor, proposal.end)

    def read_answered(self, read: PendingRead, place: int) -> None:
        """Check a read that was answered with the state after [0, place)."""
        if place < read.floor:
            raise Violation(
                "Linearizable",
                f"read {read.number} saw the state at offset {place}, though {read.floor} was"
                " answered before it began",
            )
        self.reads_answered += 1
        self.floor = max(self.floor, place)
