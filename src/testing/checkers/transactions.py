"""Histories of transactions, and the anomalies of atomicity. Pure.

A `TransactionHistory` has the transactions of many producers, the records that readers of committed
data were returned (`records`), and the committed offsets that groups fetched.
`check_transactions` compares it with a complete read of committed data at the end, and with the
committed offsets at the end. The rules of `anomalies.check` hold as well: a record of a committed
transaction counts as acknowledged, one of an aborted transaction as failed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from ...errors import InvalidRequest
from .anomalies import Anomaly, AnomalyKind, check
from .history import History, Poll, SendOutcome
from .ledger import Place, Stored, short, where

GroupPlace: TypeAlias = tuple[str, Place]
"""A group and a partition of its input."""

NEVER: Final = 1 << 62

MISSING: Final = frozenset(
    {AnomalyKind.LOST_WRITE, AnomalyKind.VANISHED, AnomalyKind.UNSEEN, AnomalyKind.SKIPPED_POLL}
)
"""Anomalies that compaction and retention explain."""


class TransactionOutcome(StrEnum):
    """The result of a transaction, as far as its producer received it."""

    COMMITTED = "committed"  # the commit was acknowledged
    ABORTED = "aborted"  # it is not committed, now or later
    UNKNOWN = "unknown"  # a commit was requested, and its result was not received


@dataclass(slots=True)
class Transaction:
    """A transaction of one producer. Times in any growing unit, common to a history."""

    name: str  # unique in the history
    producer: str
    began_at: int
    sends: dict[bytes, Place] = field(default_factory=dict)
    # committed records that it read: partition, offset, value
    reads: list[tuple[Place, int, bytes]] = field(default_factory=list)
    # offsets [first, end) of the input that it processed; `end` is the offset that it commits
    offsets: dict[GroupPlace, tuple[int, int]] = field(default_factory=dict)
    commit_requested_at: int = -1  # -1: never
    ended_at: int = -1  # -1: no result yet
    outcome: TransactionOutcome = TransactionOutcome.UNKNOWN

    @property
    def is_aborted(self) -> bool:
        """True if it is certainly not committed: a commit was never requested, or was refused."""
        return self.outcome is TransactionOutcome.ABORTED or self.commit_requested_at < 0


@dataclass(frozen=True, slots=True)
class OffsetRead:
    """A committed offset that a group fetched; -1: none."""

    group: str
    place: Place
    offset: int
    asked_at: int
    answered_at: int


@dataclass(slots=True)
class TransactionHistory:
    """The transactions of a run in the order of their begin, and the reads of committed data."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    records: History = field(default_factory=History)  # all sends; polls of committed data
    offset_reads: list[OffsetRead] = field(default_factory=list)
    decisions: dict[str, bool] = field(default_factory=dict)
    """The acknowledged outcomes, True: committed; by a name that is unique for each decision."""
    conflicts: list[str] = field(default_factory=list)  # decisions that changed
    _of_value: dict[bytes, Transaction] = field(default_factory=dict)

    def begin(self, name: str, producer: str, *, at: int) -> Transaction:
        """Record the begin of a transaction."""
        if name in self.transactions:
            raise InvalidRequest(f"transaction {name} is not unique: give each one its own name")
        self.transactions[name] = Transaction(name, producer, at)
        return self.transactions[name]

    def send(self, transaction: Transaction, place: Place, value: bytes, *, at: int) -> None:
        """Record that a transaction sends a record."""
        self.records.invoke(transaction.producer, place, value, at=at)
        transaction.sends[value] = place
        self._of_value[value] = transaction

    def request_commit(self, transaction: Transaction, *, at: int) -> None:
        """Record the first request of the commit."""
        if transaction.commit_requested_at < 0:
            transaction.commit_requested_at = at

    def end(self, transaction: Transaction, outcome: TransactionOutcome, *, at: int) -> None:
        """Record the result of a transaction."""
        transaction.outcome = outcome
        transaction.ended_at = at

    def decided(self, key: str, *, is_commit: bool) -> None:
        """Record an acknowledged end; `key` names the decision, as by producer id and epoch."""
        before = self.decisions.setdefault(key, is_commit)
        if before != is_commit:
            self.conflicts.append(
                f"{key}: {_verb(before)} and {_verb(is_commit)} were acknowledged"
            )

    def transaction_of(self, value: bytes) -> Transaction | None:
        """Return the transaction that sent a record."""
        return self._of_value.get(value)


def check_transactions(
    history: TransactionHistory,
    final: Stored,
    committed: Mapping[GroupPlace, int],
    *,
    incomplete: Collection[Place] = (),
    processed: Mapping[str, Collection[Place]] | None = None,
) -> list[Anomaly]:
    """Return every anomaly, worst kinds first.

    `final` is a complete read of committed data, and `committed` has the committed offset of each
    group and partition (-1: none), both by new clients after all other operations. Records of
    `incomplete` partitions may be missing because of compaction, retention or a deleted topic.
    `processed` lists the partitions that a group must have processed to their end.
    """
    index = _Index.of(history, final, frozenset(incomplete))
    found = [
        *_of_records(index),
        *_torn(index),
        *_precommitted(index),
        *_cycles(index),
        *_ranges(index, committed, processed or {}),
        *_offset_reads(index),
    ]
    found += [Anomaly(AnomalyKind.CHANGED_OUTCOME, text) for text in history.conflicts]
    order = list(AnomalyKind)
    return sorted(found, key=lambda one: order.index(one.kind))


@dataclass(slots=True)
class _Index:
    history: TransactionHistory
    final: Stored
    incomplete: frozenset[Place]
    visible: set[bytes]  # values that readers of committed data were returned; membership only
    # transactions that took effect: acknowledged commits, and unknown ones with visible records
    effective: list[Transaction]
    # transactions of unknown outcome that may have taken effect: no reader must get their records
    possible: list[Transaction]

    @classmethod
    def of(
        cls, history: TransactionHistory, final: Stored, incomplete: frozenset[Place]
    ) -> "_Index":
        visible = {value for records in final.values() for _, value in records}
        visible |= {value for poll in history.records.polls for _, value in poll.records}
        visible |= {value for one in history.transactions.values() for _, _, value in one.reads}
        index = cls(history, final, incomplete, visible, [], [])
        for one in history.transactions.values():
            if one.is_aborted:
                continue
            if one.outcome is TransactionOutcome.COMMITTED or not visible.isdisjoint(one.sends):
                index.effective.append(one)
            elif not index.missing(one):
                index.possible.append(one)
        return index

    def missing(self, one: Transaction) -> list[bytes]:
        """Return the records that a committed transaction must show, and that no reader got."""
        return [
            value
            for value, place in one.sends.items()
            if value not in self.visible
            and place not in self.incomplete
            and place in self.final
            and self.history.records.sends[value].outcome is not SendOutcome.FAILED
        ]


# --- records -----------------------------------------------------------------------------------


def _of_records(index: _Index) -> Iterator[Anomaly]:
    """Yield the anomalies of single records."""
    records = _with_outcomes(index.history)
    whole = {place: found for place, found in index.final.items() if place not in index.incomplete}
    rest = {place: found for place, found in index.final.items() if place in index.incomplete}
    gaps = frozenset({AnomalyKind.GAP})
    yield from check(records.of_places(whole), whole, allowed=gaps)
    yield from check(records.of_places(index.incomplete), rest, allowed=gaps | MISSING)


def _with_outcomes(history: TransactionHistory) -> History:
    """Return the records with the outcomes of their transactions, except failed ones. What a
    transaction read is a poll of its own."""
    sends = {}
    for value, send in history.records.sends.items():
        transaction = history.transaction_of(value)
        if transaction is None or send.outcome is SendOutcome.FAILED:
            sends[value] = send
            continue
        outcome = SendOutcome.UNKNOWN
        if transaction.is_aborted:
            outcome = SendOutcome.FAILED
        elif transaction.outcome is TransactionOutcome.COMMITTED:
            outcome = SendOutcome.OK
        sends[value] = replace(send, outcome=outcome)
    reads = [
        Poll(one.name, place, [(offset, value)], at=-1, is_first=True)
        for one in history.transactions.values()
        for place, offset, value in one.reads
    ]
    return History(sends, [*history.records.polls, *reads])


def _torn(index: _Index) -> Iterator[Anomaly]:
    """Yield transactions of which one part is visible and another part is not."""
    for one in index.effective:
        missing = index.missing(one)
        if missing:
            place = one.sends[missing[0]]
            yield Anomaly(
                AnomalyKind.TORN_TRANSACTION,
                f"{one.name} ({one.outcome}): {len(missing)} of {len(one.sends)} records are not"
                f" visible, {short(missing[0])} of {where(place)} among them",
            )


def _precommitted(index: _Index) -> Iterator[Anomaly]:
    """Yield records that a reader was returned before their commit was requested."""
    for poll in index.history.records.polls:
        for offset, value in poll.records:
            one = index.history.transaction_of(value)
            if one is None:
                continue
            if one.commit_requested_at < 0 or poll.at < one.commit_requested_at:
                yield Anomaly(
                    AnomalyKind.PRECOMMITTED_READ,
                    f"{poll.consumer} was returned {short(value)} at {where(poll.place, offset)}"
                    f" before {one.name} requested its commit",
                )


def _cycles(index: _Index) -> Iterator[Anomaly]:
    """Yield a cycle of transactions that read each other's records."""
    history, colors = index.history, dict[str, int]()  # 1: on the path, 2: done
    read_from = {
        one.name: list(
            dict.fromkeys(
                writer.name
                for _, _, value in one.reads
                if (writer := history.transaction_of(value)) is not None
            )
        )
        for one in history.transactions.values()
    }
    for first in read_from:
        if first in colors:
            continue
        path, stack = [first], [iter(read_from[first])]
        colors[first] = 1
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                colors[path.pop()] = 2
            elif colors.get(following) == 1:
                cycle = [*path[path.index(following) :], following]
                yield Anomaly(AnomalyKind.READ_CYCLE, " read ".join(cycle))
            elif following not in colors:
                colors[following] = 1
                path.append(following)
                stack.append(iter(read_from[following]))


# --- offsets -----------------------------------------------------------------------------------

_Range: TypeAlias = tuple[int, int, Transaction]  # [first, end) and its transaction


def _ranges(
    index: _Index,
    committed: Mapping[GroupPlace, int],
    processed: Mapping[str, Collection[Place]],
) -> Iterator[Anomaly]:
    """Yield input that was processed twice or not at all, and final offsets that disagree."""
    ranges, possible = _ranges_of(index.effective), _ranges_of(index.possible)
    for key, found in ranges.items():
        yield from _processed_twice(key, found)
    for key, offset in committed.items():
        end = max((end for _, end, _ in ranges.get(key, ())), default=-1)
        if offset != end and offset not in {end for _, end, _ in possible.get(key, ())}:
            group, place = key
            yield Anomaly(
                AnomalyKind.WRONG_OFFSET,
                f"group {group} has offset {offset} of {where(place)}; its transactions processed"
                f" to {end}",
            )
    spans = {
        key: (min(first for first, _, _ in found), max(end for _, end, _ in found))
        for key, found in ranges.items()
    }
    spans |= {(group, place): (0, NEVER) for group, places in processed.items() for place in places}
    for key, span in spans.items():
        done = [*ranges.get(key, ()), *possible.get(key, ())]
        yield from _not_processed(index, key, span, done)


def _ranges_of(transactions: Iterable[Transaction]) -> dict[GroupPlace, list[_Range]]:
    ranges: dict[GroupPlace, list[_Range]] = defaultdict(list)
    for one in transactions:
        for key, (first, end) in one.offsets.items():
            ranges[key].append((first, end, one))
    return ranges


def _processed_twice(key: GroupPlace, ranges: Iterable[_Range]) -> Iterator[Anomaly]:
    group, place = key
    ordered = sorted((one for one in ranges if one[0] < one[1]), key=lambda one: one[:2])
    latest: _Range | None = None  # the range that ends last so far
    for one in ordered:
        if latest is not None and one[0] < latest[1]:
            yield Anomaly(
                AnomalyKind.PROCESSED_TWICE,
                f"group {group}: {latest[2].name} processed {where(place)} to {latest[1]}, and"
                f" {one[2].name} from {one[0]}",
            )
        if latest is None or one[1] > latest[1]:
            latest = one


def _not_processed(
    index: _Index, key: GroupPlace, span: tuple[int, int], ranges: Iterable[_Range]
) -> Iterator[Anomaly]:
    """Yield committed input of a span that no transaction was returned and has in its range."""
    group, place = key
    read = {
        offset
        for first, end, one in ranges
        for at, offset, _ in one.reads
        if at == place and first <= offset < end
    }
    stored = index.final.get(place, ())
    missing = [offset for offset, _ in _within(stored, *span) if offset not in read]
    if missing:
        yield Anomaly(
            AnomalyKind.NOT_PROCESSED,
            f"group {group}: {len(missing)} records of {where(place)} are in no committed"
            f" transaction, that at offset {missing[0]} among them",
        )


def _within(
    records: Iterable[tuple[int, bytes]], first: int, end: int
) -> Iterator[tuple[int, bytes]]:
    return ((offset, value) for offset, value in records if first <= offset < end)


def _offset_reads(index: _Index) -> Iterator[Anomaly]:
    """Yield fetched offsets that a commit had replaced, or that no commit explains."""
    commits: dict[GroupPlace, list[tuple[int, Transaction]]] = defaultdict(list)
    for one in index.history.transactions.values():
        for key, (_, end) in one.offsets.items():
            if not one.is_aborted:
                commits[key].append((end, one))
    for read in index.history.offset_reads:
        known = commits.get((read.group, read.place), [])
        before = [
            end
            for end, one in known
            if one.outcome is TransactionOutcome.COMMITTED and one.ended_at <= read.asked_at
        ]
        before += [
            one.offset
            for one in index.history.offset_reads
            if (one.group, one.place) == (read.group, read.place)
            and one.answered_at <= read.asked_at
        ]
        floor = max(before, default=-1)
        possible = {end for end, one in known if one.commit_requested_at <= read.answered_at}
        if read.offset < floor:
            yield Anomaly(
                AnomalyKind.LOST_OFFSET,
                f"group {read.group} was returned offset {read.offset} of {where(read.place)},"
                f" {floor} was committed or returned before",
            )
        if read.offset >= 0 and read.offset not in possible:
            yield Anomaly(
                AnomalyKind.UNCOMMITTED_OFFSET,
                f"group {read.group} was returned offset {read.offset} of {where(read.place)},"
                " which no transaction had committed",
            )


def _verb(is_commit: bool) -> str:
    return "a commit" if is_commit else "an abort"
