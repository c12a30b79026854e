"""Expectations of an application about its clients, checked during a run. Pure.

A record has one outcome, in time; a consumer returns each offset once, in order; memory is bounded.
Anomalies by name: *second outcome*, *late outcome*, *no outcome*, *stored failure* (a record is
stored although it failed definitely), *out of turn* (another offset than the next one), *over
budget* (more bytes are held than the configuration allows).
"""

from dataclasses import dataclass, field
from enum import StrEnum

from quorumlog.testing.checkers import Place, Stored


class DeliveryOutcome(StrEnum):
    """The outcome of a record, as the producer reported it."""

    DELIVERED = "delivered"
    FAILED = "failed"  # definitely not stored
    UNKNOWN = "unknown"  # possibly stored


@dataclass(slots=True)
class Outcomes:
    """The records given to a producer, and their outcomes."""

    # records without an outcome, and their deadline
    due_ms: dict[bytes, int] = field(default_factory=dict)
    settled: dict[bytes, DeliveryOutcome] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def give(self, value: bytes, *, due_ms: int) -> None:
        """Record that a producer accepted the record; its outcome is due at `due_ms` of the
        application's clock."""
        assert value not in self.due_ms, f"{value[:20]!r} is given twice"
        self.due_ms[value] = due_ms

    def settle(self, value: bytes, outcome: DeliveryOutcome, *, now_ms: int) -> None:
        """Record an outcome that the producer reported."""
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
        """Return all findings; call it when every producer is closed and all records were read."""
        found = list(self.found)
        found += [
            f"no outcome: {value[:20]!r} was neither delivered nor failed" for value in self.due_ms
        ]
        found += [
            f"stored failure: {value[:20]!r} failed and is at {place[0]}-{place[1]} {offset}"
            for place, records in stored.items()
            for offset, value in records
            if self.settled.get(value) is DeliveryOutcome.FAILED
        ]
        return found


@dataclass(slots=True)
class ExpectedOffsets:
    """The next offset that a consumer must return, by partition."""

    name: str
    next_offset: dict[Place, int] = field(default_factory=dict)  # absent: any
    may_skip: bool = False  # offsets may be missing, as reported by a broker that may lie
    handed_out: int = 0

    def seek(self, place: Place, offset: int | None) -> None:
        """Record that the application moved the position; None: to an unknown offset."""
        if offset is None:
            self.next_offset.pop(place, None)
        else:
            self.next_offset[place] = offset

    def take(self, place: Place, offset: int) -> None:
        """Check a returned record; raise AssertionError if it is out of turn."""
        expected = self.next_offset.get(place, offset)
        in_turn = offset >= expected if self.may_skip else offset == expected
        where = f"{place[0]}-{place[1]}"
        assert in_turn, f"out of turn: {self.name} got {where} {offset}, {expected} was next"
        self.next_offset[place] = offset + 1
        self.handed_out += 1


def check_budget(what: str, held: int, allowed: int) -> None:
    """Raise AssertionError if more bytes are held than allowed."""
    assert held <= allowed, f"over budget: {what} holds {held} bytes, {allowed} are allowed"
