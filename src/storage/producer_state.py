"""The producer states of a log, by which a retried batch is stored once.

Per producer id: epoch, the last five batches (a producer has at most five requests in flight, and
may retry any of them), the open transaction, and the epoch of the coordinator that ended the last
one. Appends have two phases: `plan` checks a write and returns its changes, `reserve` makes them
visible to the checks of later writes, `complete` applies them, `failed` reverts them. Entries are
immutable values, so a lane may encode a list of them.

Rules (KIP-98, Kafka's ProducerAppendInfo; R22):

1. Only CLIENT batches are checked for their sequence; a leader's batches are applied unchecked.
2. An exact copy of one of the five is answered with the old offsets (`AlreadyStored`). A copy of an
   outstanding write must wait until that write ends, because it may still fail.
3. Otherwise the sequence continues the last one; 0 follows 2^31 - 1. A newer epoch starts at 0, an
   unknown producer at any sequence.
4. An older epoch is fenced, for data and for markers; a marker also by the coordinator's epoch.
   This rule and the next one also hold for the node's own writes. From transaction version 2 on,
   the epoch of a marker is above that of its data. An equal one without an open transaction
   repeats a marker (KAFKA-19999): it is answered like a stored batch and not appended. With an
   open transaction it belongs to an earlier one, and is refused. See `check_marker`.
5. While a transaction is open, its producer may write only transactional batches.
6. An idle producer is dropped after `expiration_ms`, and the longest idle one if there would be
   more than `producers_max`; never one with an open transaction or an outstanding write.
7. A client's new producer does not displace one that may still retry a batch, having written
   within `retry_window_ms`: the new one has to wait. A flood of invented ids so delays other new
   producers, but causes no duplicates. A leader's batches are always applied.

Idle time follows the wall clock of appends and housekeeping runs. A step back counts as no time,
and a jump ahead as at most one hour (`STEP_MS_MAX`), so that no jump drops a producer that is about
to retry. Downtime of the node does not count.

This module does not depend on files, segments or leadership.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from ..errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequence,
    Overloaded,
    TransactionCoordinatorFenced,
)
from ..records.batch import CONTROL_BIT, NO_PRODUCER, TRANSACTIONAL_BIT, BatchHeader
from ..records.control import EPOCH_BUMP_VERSION, MarkerType, TransactionMarker, parse_marker
from .append import AppendOrigin, Headers

if TYPE_CHECKING:
    from ..native import RunTail
    from ..runtime.ports import Buffer

BATCHES_KEPT: Final = 5
"""Number of batches kept per producer: the limit of a client's requests in flight."""

SEQUENCE_MASK: Final = 2**31 - 1
"""Sequences count modulo 2^31."""

_KINDS: Final = TRANSACTIONAL_BIT | CONTROL_BIT

NONE: Final = -1
"""No transaction, no coordinator, no known sequence."""

STEP_MS_MAX: Final = 3_600_000
"""Limit of one step of the wall clock, in ms."""

EXPIRY_INTERVAL_MS: Final = 60_000
"""Interval of the search for idle producers while producers write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLimits:
    """Limits of the producer states of one log."""

    expiration_ms: int = 24 * 3600 * 1000  # producer.id.expiration.ms
    producers_max: int = 10_000  # about 1 KiB each; above it the longest idle is dropped
    retry_window_ms: int = 120_000  # in which clients may retry; delivery.timeout.ms by default


class StoredBatch(NamedTuple):
    """One batch of a producer; sequences and offsets are inclusive."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int  # ms, the batch's largest


class ProducerEntry(NamedTuple):
    """The state of one producer. Immutable: a write makes a new entry."""

    epoch: int
    coordinator_epoch: int  # of the last marker, -1 none
    next_sequence: int  # expected first sequence of the next batch, -1: any
    transaction_start: int  # first offset of the open transaction, -1 none
    touched_ms: int  # on the clock of `ProducerStates`
    batches: tuple[StoredBatch, ...]  # oldest first, at most five, all of `epoch`


class CompletedTransaction(NamedTuple):
    """A transaction ended by a marker; offsets are inclusive, the last one is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    # at that time; the aborted records below it are in the transaction index
    last_stable_offset: int


class Change(NamedTuple):
    """The change that one batch makes to its producer."""

    producer_id: int
    # before this append, with outstanding writes applied; None: unknown
    before: ProducerEntry | None
    after: ProducerEntry
    last_offset: int
    marker: MarkerType | None  # None: a batch of data


Changes: TypeAlias = tuple[Change, ...]


class LastRecord(NamedTuple):
    """The last data batch of a live producer, which compaction keeps."""

    last_offset: int  # -1: only its markers are known
    epoch: int


class AlreadyStored(Exception):
    """The log already holds the batch: offsets [base_offset, next_offset), largest timestamp in ms.
    Not an error; the append is answered with these offsets."""

    def __init__(self, base_offset: int, next_offset: int, timestamp: int) -> None:
        super().__init__(base_offset, next_offset, timestamp)
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.timestamp = timestamp


class AppendPrecondition(Protocol):
    """A condition of an append, checked at its turn in the log."""

    def is_met(self, states: "ProducerStates") -> bool:
        """Return True if the append may be planned now, False to call again once the outstanding
        writes have ended. Raises AlreadyStored, and the errors with which the append is refused."""


class UndecidedTransactions:
    """The transactions of one log above its last stable offset (KIP-98): open ones, and ended ones
    with a marker that may be at or above the high watermark."""

    __slots__ = ("_open", "_unreplicated", "high_watermark")

    def __init__(self) -> None:
        self.high_watermark = 0  # the highest value reported by `replicated_to`
        self._open: dict[int, int] = {}  # first offset -> producer id, ascending
        self._unreplicated: dict[int, int] = {}  # first offset -> marker's; by marker, ascending

    @property
    def first_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        return next(iter(self._open), None)

    @property
    def open_count(self) -> int:
        """Number of open transactions."""
        return len(self._open)

    def unreplicated(self) -> list[tuple[int, int]]:
        """Return (first offset, marker's offset) of transactions with a marker that may be at or
        above the high watermark."""
        return list(self._unreplicated.items())

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every record is committed and decided: a transaction is
        decided once its marker is below the high watermark."""
        stable = high_watermark
        for first in self._open:
            stable = min(stable, first)
            break
        if self._unreplicated:
            stable = min(stable, min(self._unreplicated))
        return stable

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Add an open transaction; its first offset is above that of every other one."""
        self._open[first_offset] = producer_id

    def end(self, first_offset: int, marker_offset: int) -> None:
        """End an open transaction by its marker."""
        del self._open[first_offset]
        self._unreplicated[first_offset] = marker_offset

    def replicated_to(self, high_watermark: int) -> None:
        """Raise the high watermark; transactions with markers below it are decided for good."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
        while self._unreplicated:
            first, marker = next(iter(self._unreplicated.items()))
            if marker >= high_watermark:
                return
            del self._unreplicated[first]

    def keep_unreplicated(self, before: "UndecidedTransactions", end_offset: int) -> None:
        """Adopt the high watermark of `before`, after a rebuild for the log that now ends at
        `end_offset`: markers known to be below it stay below. A truncation goes below it after an
        unclean election only."""
        # sometimes if end_offset < before.high_watermark: decided transactions are truncated
        known = before._unreplicated
        self.high_watermark = min(before.high_watermark, end_offset)
        mine = self._unreplicated.items()
        self._unreplicated = {first: end for first, end in mine if known.get(first) == end}

    def load(self, opened: dict[int, int], unreplicated: Iterable[tuple[int, int]]) -> None:
        """Load a snapshot; `opened` is first offset -> producer id, ascending."""
        self._open = opened
        self._unreplicated = dict(sorted(unreplicated, key=lambda ends: ends[1]))

    def check_invariants(self, opened: dict[int, int]) -> None:
        """Raise AssertionError unless 12 and 13 of `ProducerStates` hold; `opened` are the open
        transactions of the producers."""
        # 12. Open transactions are those of the producers, ascending by first offset.
        assert list(self._open.items()) == list(opened.items()), (
            f"invariant 12: {self._open} are open, {opened} by the producers"
        )
        # 13. Ended transactions ascend by marker, and no marker is below the high watermark.
        markers = list(self._unreplicated.values())
        is_sound = markers == sorted([self.high_watermark, *markers])[1:]
        assert is_sound, f"invariant 13: markers at {markers}, high watermark {self.high_watermark}"


class ProducerStates:
    """The producers of one log."""

    __slots__ = (
        "_age_ms",
        "_entries",
        "_expire_at_ms",
        "_last_changed",
        "_limits",
        "_pending",
        "_wall_ms",
        "undecided",
    )

    def __init__(self, limits: ProducerLimits, *, wall_ms: int) -> None:
        self.undecided = UndecidedTransactions()
        self._limits = limits
        self._entries: OrderedDict[int, ProducerEntry] = OrderedDict()  # longest idle first
        self._pending: dict[int, ProducerEntry] = {}  # with outstanding writes applied
        self._last_changed = NONE  # no later batch changed a state
        self._age_ms = 0
        self._wall_ms = wall_ms
        self._expire_at_ms = EXPIRY_INTERVAL_MS

    # --- reading -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, producer_id: int, *, with_outstanding: bool = False) -> ProducerEntry | None:
        """Return the state of a producer, without outstanding writes unless they are asked for."""
        if with_outstanding and producer_id in self._pending:
            return self._pending[producer_id]
        return self._entries.get(producer_id)

    def entries(self) -> list[tuple[int, ProducerEntry]]:
        """Return (producer id, entry), longest idle first."""
        return list(self._entries.items())

    @property
    def age_ms(self) -> int:
        """The clock of `touched_ms`."""
        return self._age_ms

    @property
    def wall_ms(self) -> int:
        """The wall clock at the last update."""
        return self._wall_ms

    @property
    def last_changed(self) -> int:
        """Offset of the last batch that changed a state, -1 none."""
        return self._last_changed

    def last_records(self) -> dict[int, LastRecord]:
        """Return the last data batch of each producer."""
        return {
            producer_id: LastRecord(
                entry.batches[-1].last_offset if entry.batches else NONE, entry.epoch
            )
            for producer_id, entry in self._entries.items()
        }

    # --- appends -------------------------------------------------------------------------------

    def plan(
        self,
        batches: "Buffer",
        headers: Headers,
        *,
        next_offset: int,
        origin: AppendOrigin,
        wall_ms: int,
    ) -> Changes | None:
        """Check an append that will start at `next_offset`; return its changes.

        None: it is a retry of an outstanding write; wait for that write, then call again. Raises
        AlreadyStored, InvalidProducerEpoch, OutOfOrderSequence, InvalidTxnState,
        TransactionCoordinatorFenced, InvalidRecord for several batches of a client at once,
        Overloaded if `producers_max` is reached, CorruptionError for a torn marker.
        """
        age_ms = self._age_ms if wall_ms == self._wall_ms else self._observe(wall_ms)
        if origin is AppendOrigin.CLIENT and len(headers) == 1:
            change = self._continued(headers[0][1], next_offset, age_ms)
            if change is not None:
                return (change,)
        changes: list[Change] = []
        ahead: dict[int, ProducerEntry] = {}  # after earlier batches of this append
        for position, header in headers:
            if origin is AppendOrigin.REPLICATED:
                next_offset = header.base_offset
            producer_id = header.producer_id
            if producer_id != NO_PRODUCER:
                before = (
                    ahead.get(producer_id)
                    or self._pending.get(producer_id)
                    or self._entries.get(producer_id)
                )
                if header.is_control:
                    change = _mark(batches, position, header, before, next_offset, origin, age_ms)
                    if change is None:
                        next_offset += header.last_offset_delta + 1
                        continue
                else:
                    if origin is AppendOrigin.CLIENT and not self._is_new(
                        header, before, len(headers)
                    ):
                        # sometimes: a batch is repeated before its first write ends
                        return None
                    if origin is AppendOrigin.INTERNAL and before is not None:
                        _check_writer(header, before)
                    change = _write(header, before, next_offset, age_ms)
                ahead[producer_id] = change.after
                changes.append(change)
            next_offset += header.last_offset_delta + 1
        return tuple(changes)

    def check_marker(self, marker: TransactionMarker) -> bool:
        """Return True if a marker may be appended, False while a write of its producer is
        outstanding: the write may still fail.

        From transaction version 2 on, raises AlreadyStored for a repeat, with the end of the last
        change as offsets: the marker that it repeats is below. Raises InvalidProducerEpoch for the
        marker of an earlier transaction. An unknown producer accepts any marker: its delayed batch
        may still arrive, and is fenced then. Older versions are checked by `plan` alone.
        """
        if marker.transaction_version < EPOCH_BUMP_VERSION:
            return True
        producer_id, epoch = marker.producer
        if producer_id in self._pending:
            return False
        entry = self._entries.get(producer_id)
        if entry is None or epoch > entry.epoch:
            return True
        if epoch == entry.epoch and entry.transaction_start < 0:
            end_offset = self._last_changed + 1
            raise AlreadyStored(end_offset, end_offset, NONE)
        raise InvalidProducerEpoch(
            f"producer {producer_id} has epoch {entry.epoch} in this log, the marker has {epoch};"
            " it belongs to an earlier transaction"
        )

    def reserve(self, changes: Changes) -> None:
        """Reserve the changes of the write that was planned last."""
        for change in changes:
            self._pending[change.producer_id] = change.after

    def complete(self, changes: Changes) -> list[CompletedTransaction]:
        """Apply the oldest outstanding write; return the transactions it ended."""
        ended: list[CompletedTransaction] = []
        for change in changes:
            producer_id, after = change.producer_id, change.after
            if self._pending.get(producer_id) is after:
                del self._pending[producer_id]
            self._entries[producer_id] = after
            self._entries.move_to_end(producer_id)
            self._last_changed = change.last_offset
            start = NONE if change.before is None else change.before.transaction_start
            if change.marker is not None:
                if start >= 0:
                    ended.append(self._end(change, start, change.marker))
            elif start < 0 <= after.transaction_start:
                self.undecided.begin(after.transaction_start, producer_id)
        if len(self._entries) > self._limits.producers_max:
            self._make_room()
        return ended

    def begin_run(self, wall_ms: int) -> None:
        """Advance the clock for a run of batches; no write is outstanding until `complete_run`."""
        assert not self._pending, f"writes of producers {sorted(self._pending)} are outstanding"
        if wall_ms != self._wall_ms:
            self._observe(wall_ms)

    def complete_run(self, tail: "RunTail") -> None:
        """Apply the batches of a run: each continued a known producer without a transaction."""
        for last_offset, producer_id, next_sequence, stored in tail.producers():
            before = self._entries[producer_id]
            batches = (*before.batches, *(StoredBatch(*each) for each in stored))
            self._entries[producer_id] = ProducerEntry(
                before.epoch,
                before.coordinator_epoch,
                next_sequence,
                NONE,
                self._age_ms,
                batches[-BATCHES_KEPT:],
            )
            self._entries.move_to_end(producer_id)
            self._last_changed = last_offset

    def failed(self, changes: Changes) -> None:
        """Revert the newest outstanding write, which failed."""
        for change in reversed(changes):
            before = change.before
            if before is None or self._entries.get(change.producer_id) is before:
                self._pending.pop(change.producer_id, None)
            else:
                # sometimes: one of several outstanding batches of a producer fails
                self._pending[change.producer_id] = before

    def replay(self, batch: "Buffer", header: BatchHeader) -> list[CompletedTransaction]:
        """Apply a batch of the log itself; for a data batch the header suffices."""
        changes = self.plan(
            batch,
            [(0, header)],
            next_offset=header.base_offset,
            origin=AppendOrigin.REPLICATED,
            wall_ms=self._wall_ms,
        )
        assert changes is not None, "nothing is outstanding during a replay"
        return self.complete(changes)

    # --- expiry and snapshots ------------------------------------------------------------------

    def expire(self, wall_ms: int) -> int:
        """Drop producers that were idle too long; return their number."""
        before = len(self._entries)
        self._observe(wall_ms)
        self._expire()
        return before - len(self._entries)

    def load(
        self,
        entries: Iterable[tuple[int, ProducerEntry]],
        *,
        unreplicated: Sequence[tuple[int, int]],
        age_ms: int,
        end_offset: int,
    ) -> None:
        """Load a snapshot of all batches below `end_offset`."""
        self._entries = OrderedDict(entries)
        self._age_ms, self._expire_at_ms = age_ms, age_ms + EXPIRY_INTERVAL_MS
        self.undecided.load(_open_transactions(self._entries), unreplicated)
        self._last_changed = end_offset - 1
        self._make_room()

    def check_invariants(self, end_offset: int, outstanding: Iterable[Changes] = ()) -> None:
        """Raise AssertionError unless these hold, by number; the log ends at `end_offset`, and
        `outstanding` are the changes of its outstanding writes, oldest first. Cost O(producers).

        9. A producer keeps at most five batches, and their offsets never descend.
        10. No state refers to an offset at or above the log end.
        11. A reserved state is that of the newest outstanding write of its producer.
        12. Open transactions are those of the producers, ascending by first offset.
        13. Ended transactions ascend by marker, and no marker is below the high watermark.
        """
        changed = [("the last change", self._last_changed)]
        for producer_id, entry in self._entries.items():
            offsets = [batch.last_offset for batch in entry.batches]
            # 9. A producer keeps at most five batches, and their offsets never descend.
            is_sound = len(offsets) <= BATCHES_KEPT and offsets == sorted(offsets)
            assert is_sound, (
                f"invariant 9: producer {producer_id} has batches that end at {offsets}"
            )
            last = max(entry.transaction_start, *offsets[-1:], NONE)
            changed.append((f"producer {producer_id}", last))
        # 10. No state refers to an offset at or above the log end.
        for name, last in changed:
            assert last < end_offset, f"invariant 10: {name} is at {last}, the log end {end_offset}"
        # 11. A reserved state is that of the newest outstanding write of its producer.
        reserved = {change.producer_id: change.after for write in outstanding for change in write}
        assert reserved == self._pending, (
            f"invariant 11: states are reserved for producers {sorted(self._pending)}, writes of"
            f" {sorted(reserved)} are outstanding"
        )
        self.undecided.check_invariants(_open_transactions(self._entries))

    # --- inside --------------------------------------------------------------------------------

    def _continued(self, header: BatchHeader, base_offset: int, age_ms: int) -> Change | None:
        """Return the change of a client's batch in the usual case: the next sequence of a known
        producer, inside its open transaction or without one. None: the caller must apply all
        rules."""
        producer_id, first = header.producer_id, header.base_sequence
        before = self._pending.get(producer_id) or self._entries.get(producer_id)
        if before is None:
            return None
        start = before.transaction_start
        if (
            before.next_sequence != first
            or before.epoch != header.producer_epoch
            or first < 0
            or header.attributes & _KINDS != (TRANSACTIONAL_BIT if start >= 0 else 0)
        ):
            return None
        delta = header.last_offset_delta
        last, last_offset = (first + delta) & SEQUENCE_MASK, base_offset + delta
        batch = StoredBatch(first, last, base_offset, last_offset, header.max_timestamp)
        following, batches = (
            (last + 1) & SEQUENCE_MASK,
            (*before.batches[1 - BATCHES_KEPT :], batch),
        )
        after = ProducerEntry(before[0], before[1], following, start, age_ms, batches)
        return Change(producer_id, before, after, last_offset, None)

    def _is_new(self, header: BatchHeader, before: ProducerEntry | None, count: int) -> bool:
        """Check a client's batch; return False for a retry of an outstanding write."""
        if count > 1:
            raise InvalidRecord(
                f"{count} batches in one append, one of producer {header.producer_id}; append"
                " batches with a producer id one by one"
            )
        if before is None:
            self._check_capacity()
            return True
        found = _check(header, before)
        if found is None:
            return True
        stored = self._entries.get(header.producer_id)
        if stored is None or found not in stored.batches:
            return False
        # sometimes if found is not stored.batches[-1]: a batch is repeated behind later ones
        raise AlreadyStored(found.first_offset, found.last_offset + 1, found.timestamp)

    def _check_capacity(self) -> None:
        """Raise Overloaded unless one more producer fits (rules 6 and 7)."""
        entries, limits = self._entries, self._limits
        surplus = len(entries) + len(self._pending) + 1 - limits.producers_max
        if surplus <= 0:
            return
        surplus -= sum(producer_id in entries for producer_id in self._pending)
        idle_since_ms = self._age_ms - limits.retry_window_ms
        for producer_id, entry in entries.items():
            if surplus <= 0 or entry.touched_ms > idle_since_ms:
                break  # all later entries are more recent
            surplus -= self._may_go(producer_id, entry)
        if surplus > 0:
            raise Overloaded(
                f"{len(entries)} producers have a transaction open or wrote within the last "
                f"{limits.retry_window_ms} ms; the limit is {limits.producers_max}; wait until one "
                "is idle, or raise producer.ids.max"
            )

    def _end(self, change: Change, start: int, kind: MarkerType) -> CompletedTransaction:
        undecided = self.undecided
        # sometimes if undecided.first_offset != start: a transaction ends before an older one
        undecided.end(start, change.last_offset)
        first = undecided.first_offset
        return CompletedTransaction(
            change.producer_id,
            start,
            change.last_offset,
            kind is MarkerType.ABORT,
            change.last_offset + 1 if first is None else first,
        )

    def _observe(self, wall_ms: int) -> int:
        step = wall_ms - self._wall_ms
        self._wall_ms = wall_ms
        if step > 0:
            self._age_ms += min(step, STEP_MS_MAX)
            if self._age_ms >= self._expire_at_ms:
                self._expire()
        return self._age_ms

    def _expire(self) -> None:
        self._expire_at_ms = self._age_ms + EXPIRY_INTERVAL_MS
        oldest_ms = self._age_ms - self._limits.expiration_ms
        gone = []
        for producer_id, entry in self._entries.items():
            if entry.touched_ms > oldest_ms:
                break  # all later entries are more recent
            if self._may_go(producer_id, entry):
                gone.append(producer_id)
        for producer_id in gone:
            del self._entries[producer_id]

    def _make_room(self) -> None:
        """Drop the longest idle producers above `producers_max`, as far as rule 6 allows."""
        surplus = len(self._entries) - self._limits.producers_max
        gone: list[int] = []
        for producer_id, entry in self._entries.items():
            if len(gone) >= surplus:
                break
            if self._may_go(producer_id, entry):
                gone.append(producer_id)
        for producer_id in gone:
            # sometimes: an idle producer is evicted
            del self._entries[producer_id]

    def _may_go(self, producer_id: int, entry: ProducerEntry) -> bool:
        return entry.transaction_start < 0 and producer_id not in self._pending


def _open_transactions(entries: "OrderedDict[int, ProducerEntry]") -> dict[int, int]:
    """Return first offset -> producer id of each open transaction, ascending."""
    return dict(
        sorted(
            (entry.transaction_start, producer_id)
            for producer_id, entry in entries.items()
            if entry.transaction_start >= 0
        )
    )


def _check(header: BatchHeader, before: ProducerEntry) -> StoredBatch | None:
    """Check a client's batch against its producer; return the batch that it retries, None for a new
    one."""
    producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
    if epoch < before.epoch:
        _check_writer(header, before)
    expected = before.next_sequence if epoch == before.epoch else 0
    if first != expected and expected >= 0:
        if epoch == before.epoch:
            last = (first + header.last_offset_delta) & SEQUENCE_MASK
            for batch in before.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
        # sometimes if epoch == before.epoch: a batch of a producer is missing
        raise OutOfOrderSequence(
            f"producer {producer_id}, epoch {epoch}: the next sequence is {expected}, the batch "
            f"starts with {first}; an earlier batch is missing, or this one was sent twice"
        )
    _check_writer(header, before)
    return None


def _check_writer(header: BatchHeader, before: ProducerEntry) -> None:
    """Check the epoch and the transaction of a write (rules 4 and 5)."""
    producer_id, epoch = header.producer_id, header.producer_epoch
    # sometimes if epoch < before.epoch: a fenced producer writes
    if epoch < before.epoch:
        raise InvalidProducerEpoch(
            f"producer {producer_id} has epoch {before.epoch} in this log, the batch has {epoch};"
            " another producer took over; close this one"
        )
    if before.transaction_start >= 0 and not header.attributes & TRANSACTIONAL_BIT:
        raise InvalidTxnState(
            f"producer {producer_id} has a transaction open since offset "
            f"{before.transaction_start}; end it before writing outside of it"
        )


def _write(
    header: BatchHeader, before: ProducerEntry | None, base_offset: int, age_ms: int
) -> Change:
    """Return the change of a data batch."""
    first, epoch = header.base_sequence, header.producer_epoch
    last_offset = base_offset + header.last_offset_delta
    start = base_offset if header.attributes & TRANSACTIONAL_BIT else NONE
    coordinator = following = NONE
    batches: tuple[StoredBatch, ...] = ()
    if before is not None:
        coordinator = before.coordinator_epoch
        if before.transaction_start >= 0:
            start = before.transaction_start
        # sometimes if before.batches and before.epoch != epoch: a producer raises its epoch
        if before.epoch == epoch:
            following, batches = before.next_sequence, before.batches
    if first >= 0:  # the node's own transactional batches have no sequence
        last = (first + header.last_offset_delta) & SEQUENCE_MASK
        following = (last + 1) & SEQUENCE_MASK
        batch = StoredBatch(first, last, base_offset, last_offset, header.max_timestamp)
        batches = (*batches[1 - BATCHES_KEPT :], batch)
    after = ProducerEntry(epoch, coordinator, following, start, age_ms, batches)
    return Change(header.producer_id, before, after, last_offset, None)


def _mark(
    batches: "Buffer",
    position: int,
    header: BatchHeader,
    before: ProducerEntry | None,
    offset: int,
    origin: AppendOrigin,
    age_ms: int,
) -> Change | None:
    """Return the change of a marker; None for another control record."""
    marker = parse_marker(batches, position, header)
    if marker is None:
        return None
    producer_id, epoch = header.producer_id, header.producer_epoch
    following = NONE
    stored: tuple[StoredBatch, ...] = ()
    if before is not None:
        if origin is not AppendOrigin.REPLICATED:
            _check_marker(producer_id, epoch, marker.coordinator_epoch, before)
        following, stored = before.next_sequence, before.batches
        if before.epoch != epoch:
            # fenced: the next writer is a new incarnation of the producer
            following, stored = 0, ()
    # sometimes if before is None: a marker arrives for an unknown producer
    after = ProducerEntry(epoch, marker.coordinator_epoch, following, NONE, age_ms, stored)
    return Change(producer_id, before, after, offset, marker.kind)


def _check_marker(
    producer_id: int, epoch: int, coordinator_epoch: int, before: ProducerEntry
) -> None:
    if epoch < before.epoch:
        raise InvalidProducerEpoch(
            f"producer {producer_id} has epoch {before.epoch} in this log, the marker has {epoch}"
        )
    if coordinator_epoch < before.coordinator_epoch:
        # sometimes: a deposed transaction coordinator sends a marker
        raise TransactionCoordinatorFenced(
            f"the marker of producer {producer_id} has coordinator epoch {coordinator_epoch}, "
            f"below {before.coordinator_epoch} of an earlier marker; another coordinator took over"
        )
