"""A ledger: the records that one application sent and saw, checked against the stored ones.

A record may be stored as often as it was sent: it suits producers that may repeat.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...errors import InvalidRequest

Place: TypeAlias = tuple[str, int]  # topic, partition
Stored: TypeAlias = Mapping[Place, Sequence[tuple[int, bytes]]]  # (offset, value), as read

ANOMALIES_SHOWN = 10


@dataclass(slots=True)
class Ledger:
    """One application's view of a log. Values are unique in a run."""

    asked: dict[bytes, str] = field(default_factory=dict)  # value -> its producer, in order
    sent: Counter[bytes] = field(default_factory=Counter)  # requests that contained it
    acknowledged: dict[bytes, tuple[Place, int]] = field(default_factory=dict)  # value -> position
    seen: dict[tuple[Place, int], bytes] = field(default_factory=dict)  # by a consumer
    failed: Counter[str] = field(default_factory=Counter)  # errors returned to the application
    # a late copy may arrive at any time: no order
    given_up: set[bytes] = field(default_factory=set)

    def ask(self, producer: str, value: bytes) -> None:
        """Record that the application gave a record to a producer."""
        if value in self.asked:
            raise InvalidRequest(f"{short(value)} is not unique: give each record its own value")
        self.asked[value] = producer

    def acknowledge(self, value: bytes, place: Place, offset: int) -> None:
        """Record the position that the producer returned."""
        assert value not in self.acknowledged, f"{short(value)} acknowledged twice"
        self.acknowledged[value] = (place, offset)

    def see(self, place: Place, offset: int, value: bytes) -> None:
        """Record a consumed record; raise AssertionError if the offset had another value before."""
        before = self.seen.setdefault((place, offset), value)
        assert before == value, (
            f"{where(place, offset)} was {short(before)} and is now {short(value)}"
        )


def anomalies(ledger: Ledger, stored: Stored) -> list[str]:
    """Return every anomaly as a sentence, worst kinds first."""
    found = [*_lost(ledger, stored), *_vanished(ledger, stored), *_gaps(stored)]
    found += [*_phantoms(ledger, stored), *_duplicates(ledger, stored), *_reordered(ledger, stored)]
    return found


def report(found: Sequence[str]) -> str:
    """Return the first anomalies as lines, and the number of further ones."""
    more = [f"... and {len(found) - ANOMALIES_SHOWN} more"] if len(found) > ANOMALIES_SHOWN else []
    return "\n".join([*found[:ANOMALIES_SHOWN], *more])


def _lost(ledger: Ledger, stored: Stored) -> list[str]:
    by_place = {place: dict(records) for place, records in stored.items()}
    found = []
    for value, (place, offset) in ledger.acknowledged.items():
        there = by_place.get(place, {}).get(offset)
        if there is None:
            found.append(f"lost write: {short(value)} was acknowledged at {where(place, offset)}")
        elif there != value:
            found.append(
                f"inconsistent offset: {short(value)} was acknowledged at {where(place, offset)}, "
                f"which holds {short(there)}"
            )
    return found


def _vanished(ledger: Ledger, stored: Stored) -> list[str]:
    by_place = {place: dict(records) for place, records in stored.items()}
    return [
        f"vanished: a consumer saw {short(value)} at {where(place, offset)}"
        for (place, offset), value in ledger.seen.items()
        if by_place.get(place, {}).get(offset) != value
    ]


def _gaps(stored: Stored) -> list[str]:
    found = []
    for place, records in stored.items():
        offsets = [offset for offset, _ in records]
        if offsets != list(range(len(offsets))):
            first = next(at for at, offset in enumerate(offsets) if offset != at)
            found.append(f"gap: {where(place, first)} is followed by offset {offsets[first]}")
    return found


def _phantoms(ledger: Ledger, stored: Stored) -> list[str]:
    return [
        f"phantom: {where(place, offset)} holds {short(value)}, which was never sent"
        for place, records in stored.items()
        for offset, value in records
        if value not in ledger.asked
    ]


def _duplicates(ledger: Ledger, stored: Stored) -> list[str]:
    seen = Counter(value for records in stored.values() for _, value in records)
    return [
        f"duplicate: {short(value)} was sent {ledger.sent[value]} times, is stored {times} times"
        for value, times in seen.items()
        if value in ledger.asked and times > ledger.sent[value]
    ]


def _reordered(ledger: Ledger, stored: Stored) -> list[str]:
    """Return records that first occur out of their producer's order of sending."""
    order = {value: number for number, value in enumerate(ledger.asked)}
    found = []
    for place, records in stored.items():
        last: dict[str, tuple[int, bytes]] = {}
        seen: set[bytes] = set()  # membership only
        for offset, value in records:
            if value in seen or value not in order or value in ledger.given_up:
                continue
            seen.add(value)
            producer = ledger.asked[value]
            before = last.get(producer)
            if before is not None and before[0] > order[value]:
                found.append(
                    f"reordered: {short(value)} at {where(place, offset)} after {short(before[1])}"
                )
            last[producer] = (order[value], value)
    return found


def short(value: bytes) -> str:
    """Return a value as text for a message."""
    return repr(value) if len(value) <= 24 else f"{value[:20]!r}... ({len(value)} bytes)"


def where(place: Place, offset: int | None = None) -> str:
    """Return a partition, or an offset of it, as text for a message."""
    name = f"{place[0]}-{place[1]}"
    return name if offset is None else f"{name} offset {offset}"
