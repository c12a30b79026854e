"""The anomalies of a history, with one function each.

Names and meanings are those of Jepsen's workload for Kafka (jepsen.tests.kafka). The kinds that
concern transactions are found in `transactions.py`. Each function takes the index of a history and
yields its findings; `check` runs all of them. Linear in the records of the history.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, pairwise

from .history import History, Poll, Send, SendOutcome
from .ledger import ANOMALIES_SHOWN, Place, Stored, short, where


class AnomalyKind(StrEnum):
    """The kinds of anomalies, worst first."""

    LOST_WRITE = "lost write"
    TORN_TRANSACTION = "torn transaction"
    CHANGED_OUTCOME = "changed outcome"
    INCONSISTENT_OFFSET = "inconsistent offset"
    VANISHED = "vanished"
    ABORTED_READ = "aborted read"
    PRECOMMITTED_READ = "precommitted read"
    READ_CYCLE = "read cycle"
    PROCESSED_TWICE = "processed twice"
    NOT_PROCESSED = "not processed"
    LOST_OFFSET = "lost offset"
    UNCOMMITTED_OFFSET = "uncommitted offset"
    WRONG_OFFSET = "wrong offset"
    PHANTOM = "phantom"
    DUPLICATE = "duplicate"
    UNSEEN = "unseen"
    REORDERED = "reordered"
    GAP = "gap"
    SKIPPED_POLL = "skipped poll"
    NONMONOTONIC_POLL = "nonmonotonic poll"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation, with its details."""

    kind: AnomalyKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(slots=True)
class _Index:
    """A history and a complete read at its end, indexed by partition, value and offset."""

    history: History
    final: Stored
    offsets: dict[bytes, list[tuple[Place, int]]] = field(default_factory=dict)  # read, by value
    # first value read or acknowledged there
    values: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    highest: dict[Place, int] = field(default_factory=dict)  # highest offset read
    conflicts: dict[tuple[Place, int], list[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, history: History, final: Stored) -> "_Index":
        index = cls(history, final)
        reads = ((poll.place, poll.records) for poll in history.polls)
        for place, records in chain(reads, final.items()):
            for offset, value in records:
                index._saw(place, offset, value)
        for send in history.sends.values():
            if send.offset >= 0:
                index._is_at(send.place, send.offset, send.value)
        return index

    def found(self, send: Send) -> list[int]:
        """Return the offsets at which the record was read in its partition."""
        return [at for place, at in self.offsets.get(send.value, ()) if place == send.place]

    def _saw(self, place: Place, offset: int, value: bytes) -> None:
        at = self.offsets.setdefault(value, [])
        if (place, offset) not in at:
            at.append((place, offset))
        if offset > self.highest.get(place, -1):
            self.highest[place] = offset
        self._is_at(place, offset, value)

    def _is_at(self, place: Place, offset: int, value: bytes) -> None:
        known = self.values.setdefault((place, offset), value)
        if known != value:
            others = self.conflicts.setdefault((place, offset), [known])
            if value not in others:
                others.append(value)


Found = Iterator[Anomaly]


def check(
    history: History,
    final: Stored,
    *,
    is_complete: bool = True,
    allowed: frozenset[AnomalyKind] = frozenset(),
) -> list[Anomaly]:
    """Return every anomaly, worst kinds first.

    `final` is the read of each partition by new consumers, from its start to its end, after all
    other operations. Without `is_complete` it may lack offsets (compaction, transaction markers,
    retention): then missing records are no anomaly.
    """
    index = _Index.of(history, final)
    looks: tuple[Callable[[_Index], Found], ...] = (
        _lost_writes,
        _inconsistent_offsets,
        _vanished,
        _aborted_reads,
        _phantoms,
        _duplicates,
        _unseen,
        _reordered,
        _gaps,
        _poll_order,
    )
    missing = {AnomalyKind.LOST_WRITE, AnomalyKind.VANISHED, AnomalyKind.UNSEEN, AnomalyKind.GAP}
    ignored = allowed if is_complete else allowed | missing
    found = [one for look in looks for one in look(index) if one.kind not in ignored]
    order = list(AnomalyKind)
    return sorted(found, key=lambda one: order.index(one.kind))


def describe(found: Sequence[Anomaly]) -> str:
    """Return the count of each kind, and the first anomalies, a line each."""
    if not found:
        return "no anomalies"
    counts = Counter(one.kind for one in found)
    head = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return "\n".join([head, *(str(one) for one in found[:ANOMALIES_SHOWN])])


# --- stored records --------------------------------------------------------------------------


def _lost_writes(index: _Index) -> Found:
    """Yield acknowledged records missing from the complete read, or skipped by all readers of
    later offsets."""
    for send in index.history.sends.values():
        if send.outcome is not SendOutcome.OK or index.found(send):
            continue
        is_passed = index.highest.get(send.place, -1) > send.offset >= 0
        if is_passed or send.place in index.final:
            yield Anomaly(
                AnomalyKind.LOST_WRITE,
                f"{short(send.value)} of {send.producer} was acknowledged at"
                f" {where(send.place, send.offset)}, and was never read",
            )


def _unseen(index: _Index) -> Found:
    """Yield acknowledged records that no consumer has read, nor any later one: a reader may be
    late."""
    for send in index.history.sends.values():
        if send.outcome is not SendOutcome.OK or index.found(send):
            continue
        if send.place not in index.final and index.highest.get(send.place, -1) <= send.offset:
            yield Anomaly(
                AnomalyKind.UNSEEN,
                f"{short(send.value)} was acknowledged at {where(send.place, send.offset)}, and"
                " has not been read so far",
            )


def _inconsistent_offsets(index: _Index) -> Found:
    for (place, offset), values in index.conflicts.items():
        shown = ", ".join(short(value) for value in values)
        yield Anomaly(AnomalyKind.INCONSISTENT_OFFSET, f"{where(place, offset)} was {shown}")


def _vanished(index: _Index) -> Found:
    """Yield records that a consumer read and the complete read lacks."""
    final = {place: dict(records) for place, records in index.final.items()}
    for value, places in index.offsets.items():
        for place, offset in places:
            if place in final and final[place].get(offset) != value:
                yield Anomaly(
                    AnomalyKind.VANISHED,
                    f"{short(value)} was read at {where(place, offset)}, which is not there",
                )


def _aborted_reads(index: _Index) -> Found:
    for send in index.history.sends.values():
        if send.outcome is SendOutcome.FAILED and (found := index.found(send)):
            yield Anomaly(
                AnomalyKind.ABORTED_READ,
                f"{short(send.value)} of {send.producer} failed definitely and was read at"
                f" {where(send.place, found[0])}",
            )


def _phantoms(index: _Index) -> Found:
    for value, places in index.offsets.items():
        send = index.history.sends.get(value)
        for place, offset in places:
            if send is None or send.place != place:
                said = "was never sent" if send is None else f"was sent to {where(send.place)}"
                yield Anomaly(
                    AnomalyKind.PHANTOM,
                    f"{where(place, offset)} holds {short(value)}, which {said}",
                )


def _duplicates(index: _Index) -> Found:
    for value, places in index.offsets.items():
        if len(places) > 1:
            shown = ", ".join(where(place, offset) for place, offset in sorted(places))
            yield Anomaly(AnomalyKind.DUPLICATE, f"{short(value)} is at {shown}")


def _gaps(index: _Index) -> Found:
    for place, records in index.final.items():
        offsets = [offset for offset, _ in records]
        for before, after in pairwise(offsets):
            if after != before + 1:
                yield Anomaly(
                    AnomalyKind.GAP, f"{where(place, before)} is followed by offset {after}"
                )
                break


# --- order ---------------------------------------------------------------------------------------


def _reordered(index: _Index) -> Found:
    """Yield acknowledged records of a producer and partition that are not in the order of sending,
    by the first copy of each."""
    last: dict[tuple[str, Place], tuple[int, bytes]] = {}
    for send in index.history.sends.values():  # in the order of sending
        if send.offset < 0 and send.outcome is not SendOutcome.OK:
            continue
        found = index.found(send)
        offset = min([*found, send.offset] if send.offset >= 0 else found, default=-1)
        if offset < 0:
            continue
        before = last.get((send.producer, send.place))
        if before is not None and offset < before[0]:
            yield Anomaly(
                AnomalyKind.REORDERED,
                f"{send.producer} sent {short(before[1])} before {short(send.value)}, which is at"
                f" {where(send.place, offset)}, {before[0] - offset} before it",
            )
        if before is None or offset > before[0]:
            last[send.producer, send.place] = (offset, send.value)


def _poll_order(index: _Index) -> Found:
    """Yield records that a consumer was returned twice, out of order, or skipped."""
    known: dict[Place, set[int]] = defaultdict(set)
    for place, offset in chain.from_iterable(index.offsets.values()):
        known[place].add(offset)
    for send in index.history.sends.values():
        if send.outcome is SendOutcome.OK and send.offset >= 0:
            known[send.place].add(send.offset)
    offsets = {place: sorted(found) for place, found in known.items()}
    last: dict[tuple[str, Place], int] = {}
    for poll in index.history.polls:
        yield from _order_of(poll, last, offsets.get(poll.place, []))


def _order_of(poll: Poll, last: dict[tuple[str, Place], int], known: Sequence[int]) -> Found:
    reader = (poll.consumer, poll.place)
    before = None if poll.is_first else last.get(reader)
    for offset, value in poll.records:
        if before is not None and offset <= before:
            yield Anomaly(
                AnomalyKind.NONMONOTONIC_POLL,
                f"{poll.consumer} was returned {short(value)} at {where(poll.place, offset)} after"
                f" offset {before}",
            )
        elif before is not None and (skipped := _between(known, before, offset)):
            yield Anomaly(
                AnomalyKind.SKIPPED_POLL,
                f"{poll.consumer} was returned {where(poll.place, offset)} after offset {before}:"
                f" {skipped} records were skipped",
            )
        before = offset
    if before is not None:
        last[reader] = before


def _between(known: Sequence[int], low: int, high: int) -> int:
    """Return the number of known offsets between two, exclusive of both."""
    if high == low + 1:
        return 0
    return bisect_left(known, high) - bisect_right(known, low)
