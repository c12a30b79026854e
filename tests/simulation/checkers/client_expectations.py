"""What an application may expect of its clients, checked while it happens. Pure.

A record that was given has one outcome, in time; a reader gets each offset once, in order; memory
has its bound. Anomalies by name: *second outcome*, *late outcome*, *no outcome*, *stored failure*
(a record is there that was refused for good), *out of turn* (another offset than the next one),
*over budget* (more bytes held than the configuration allows).
"""

from dataclasses import dataclass, field
from enum import StrEnum

from quorumlog.testing.checkers import Place, Stored


class Outcome(StrEnum):
    """What a producer said of a record."""

    DELIVERED = "delivered"
    FAILED = "failed"  # for good: it is not stored
    UNKNOWN = "unknown"  # it may be stored


@dataclass(slots=True)
class Outcomes:
    """Every record that was given to a producer, from then until its outcome."""

    due_ms: dict[bytes, int] = field(default_factory=dict)  # without an outcome: until when
    settled: dict[bytes, Outcome] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def give(self, value: bytes, *, due_ms: int) -> None:
        """A producer took the record; its outcome is due on the application's clock."""
        assert value not in self.due_ms, f"{value[:20]!r} is given twice"
        self.due_ms[value] = due_ms

    def settle(self, value: bytes, outcome: Outcome, *, now_ms: int) -> None:
        """The producer said what became of it."""
        if value in self.settled:
            self.found.append(
                f"second outcome: {value[:20]!r} was {self.settled[value]} and is {outcome}"
            )
            return
        late_ms = now_ms - self.due_ms.pop(value)
        if late_ms > 0:
            self.found.append(f"late outcome: {value[:20]!r} is {outcome}, {late_ms} ms too late")
        self.settled[value] = outcome

    def anomalies(self, stored: Stored) -> list[str]:
        """Everything found, once every producer is closed and all that is stored was read."""
        found = list(self.found)
        found += [f"no outcome: {value[:20]!r} is neither here nor there" for value in self.due_ms]
        found += [
            f"stored failure: {value[:20]!r} failed and is at {place[0]}-{place[1]} {offset}"
            for place, records in stored.items()
            for offset, value in records
            if self.settled.get(value) is Outcome.FAILED
        ]
        return found


@dataclass(slots=True)
class Turns:
    """What one consumer must hand out next, by partition."""

    name: str
    next_offset: dict[Place, int] = field(default_factory=dict)  # absent: whatever comes first
    may_skip: bool = False  # offsets may be missing: the broker says so, and may lie
    handed_out: int = 0

    def seek(self, place: Place, offset: int | None) -> None:
        """The application went somewhere else; None: it does not know where to."""
        if offset is None:
            self.next_offset.pop(place, None)
        else:
            self.next_offset[place] = offset

    def take(self, place: Place, offset: int) -> None:
        """The consumer handed a record out; raises AssertionError when it was not its turn."""
        expected = self.next_offset.get(place, offset)
        in_turn = offset >= expected if self.may_skip else offset == expected
        where = f"{place[0]}-{place[1]}"
        assert in_turn, f"out of turn: {self.name} got {where} {offset}, {expected} was next"
        self.next_offset[place] = offset + 1
        self.handed_out += 1


def check_budget(what: str, held: int, allowed: int) -> None:
    """Raise AssertionError when more bytes are held than allowed."""
    assert held <= allowed, f"over budget: {what} holds {held} bytes, {allowed} are allowed"
