"""What clients ask of the quorum, and whether the answers fit one order in real time.

The state machine is the log itself: a proposal's place is its end offset, a read's place is how far
the state had been applied when it was answered. The committed log is one order (the other
invariants hold it to that), so a history is linearizable if and only if whatever began after
something else was answered has a place behind it (at least the same, for a read). That takes one
comparison an operation: the largest place answered so far, noted at the start, checked at the end.
"""

from ...checkers.violation import Violation


class Proposal:
    """One proposal that a leader appended; its outcome is open."""

    __slots__ = ("end", "epoch", "floor", "number")

    def __init__(self, number: int, floor: int, *, end: int, epoch: int) -> None:
        self.number = number
        self.floor = floor  # the largest place answered when it began
        self.end = end
        self.epoch = epoch


class Read:
    """One linearizable read under way; `number` is its context."""

    __slots__ = ("began_us", "floor", "number")

    def __init__(self, number: int, floor: int, *, began_us: int) -> None:
        self.number = number
        self.floor = floor
        self.began_us = began_us


class History:
    """Operations and their outcomes: answered, refused (not done), unknown."""

    def __init__(self) -> None:
        self.floor = 0  # the largest place that anybody was told of
        self.begun = 0
        self.proposals_answered = 0
        self.reads_answered = 0
        self.refused = 0
        self.unknown = 0
        self.numbers: dict[int, int] = {}  # CRC-32 of a payload -> the proposal's number

    def begin(self) -> int:
        """Count an operation; its number."""
        self.begun += 1
        return self.begun

    def proposal_answered(self, proposal: Proposal) -> None:
        """The client hears that it is committed."""
        if proposal.end <= proposal.floor:
            raise Violation(
                "Linearizable",
                f"proposal {proposal.number} ends at offset {proposal.end}, though everything up"
                f" to {proposal.floor} was answered before it began",
            )
        self.proposals_answered += 1
        self.floor = max(self.floor, proposal.end)

    def read_answered(self, read: Read, place: int) -> None:
        """The client hears the state after [0, place)."""
        if place < read.floor:
            raise Violation(
                "Linearizable",
                f"read {read.number} saw the state at offset {place}, though {read.floor} was"
                " answered before it began",
            )
        self.reads_answered += 1
        self.floor = max(self.floor, place)
