"""`ProducerStates` compared with a slow, obvious model: a search of the whole history each time.

Every rule does the same to both: writes that stay pending, complete or fail; markers; idle time;
truncations and restarts, from a snapshot or from the log only.
"""

from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quorumlog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    QuorumlogError,
    TransactionCoordinatorFenced,
)
from quorumlog.ids import ProducerIdentity
from quorumlog.records import MarkerType, Record, encode_batch, encode_marker, parse_header
from quorumlog.records.control import TransactionMarker
from quorumlog.storage import AppendOrigin
from quorumlog.storage.producer_snapshot import ProducerSnapshot, decode_snapshot, encode_snapshot
from quorumlog.storage.producer_state import AlreadyStored, Changes, ProducerLimits, ProducerStates

LIMITS = ProducerLimits(expiration_ms=1_000_000)
TOP = 2**31
START_MS = 10**12


@dataclass(frozen=True)
class Entry:
    """One batch of the history."""

    content: bytes
    producer: int
    epoch: int
    first: int  # sequence
    last: int
    start: int  # offset
    end: int  # offset, inclusive
    is_transactional: bool = False
    kind: MarkerType | None = None
    coordinator: int = -1
    version: int = 0  # of the transaction, of a marker


@dataclass
class Model:
    """The written batches and the expired producers."""

    history: list[Entry] = field(default_factory=list)  # completed
    outstanding: list[Entry] = field(default_factory=list)
    age_ms: int = 0
    touched: dict[int, int] = field(default_factory=dict)  # producer -> age at its last write
    forgotten: dict[int, int] = field(default_factory=dict)  # batches below are not detected

    @property
    def end(self) -> int:
        everything = [*self.history, *self.outstanding]
        return everything[-1].end + 1 if everything else 0

    def known(self, producer: int, *, with_outstanding: bool = True) -> list[Entry]:
        everything = [*self.history, *(self.outstanding if with_outstanding else [])]
        floor = self.forgotten.get(producer, 0)
        return [e for e in everything if e.producer == producer and e.start >= floor]

    @staticmethod
    def open_since(entries: list[Entry]) -> int:
        start = -1
        for entry in entries:
            if entry.kind is not None:
                start = -1
            elif entry.is_transactional and start < 0:
                start = entry.start
        return start

    @staticmethod
    def current(entries: list[Entry]) -> list[Entry]:
        """Return the last five batches since the last change of the epoch. An older one may be
        accepted again after the producer expired; a log that is read from its start has both."""
        epoch = entries[-1].epoch
        run = list(takewhile(lambda e: e.epoch == epoch, reversed(entries)))
        return [e for e in reversed(run) if e.kind is None][-5:]

    def expected(self, entries: list[Entry]) -> int:
        if self.current(entries):
            return (self.current(entries)[-1].last + 1) % TOP
        is_new_epoch = any(e.epoch != entries[-1].epoch for e in entries)
        return 0 if is_new_epoch else -1

    def verdict(self, new: Entry) -> object:
        """Return None if accepted, an error's class, the offset of a repeat, or "wait"."""
        entries = self.known(new.producer)
        if not entries:
            return None
        epoch = entries[-1].epoch
        if new.kind is not None:
            return self.verdict_of_marker(new, entries, epoch)
        if new.epoch < epoch:
            return InvalidProducerEpoch
        for entry in self.current(entries) if new.epoch == epoch else []:
            if (entry.first, entry.last) == (new.first, new.last):
                return "wait" if entry in self.outstanding else entry.start
        expected = self.expected(entries) if new.epoch == epoch else 0
        if expected >= 0 and new.first != expected:
            return OutOfOrderSequence
        if self.open_since(entries) >= 0 and not new.is_transactional:
            return InvalidTxnState
        return None

    def verdict_of_marker(self, new: Entry, entries: list[Entry], epoch: int) -> object:
        if new.version >= 2:
            if any(e.producer == new.producer for e in self.outstanding):
                return "wait"
            if new.epoch == epoch:
                is_open = self.open_since(entries) >= 0
                return InvalidProducerEpoch if is_open else self.history[-1].end + 1
        if new.epoch < epoch:
            return InvalidProducerEpoch
        # As in Kafka, the epoch of the last marker counts: after an expiry it may be lower.
        last = [-1, *(e.coordinator for e in entries if e.kind is not None)][-1]
        return TransactionCoordinatorFenced if new.coordinator < last else None

    def expire(self) -> None:
        for producer, touched in list(self.touched.items()):
            entries = self.known(producer, with_outstanding=False)
            is_idle = touched <= self.age_ms - LIMITS.expiration_ms
            is_held = self.open_since(entries) >= 0 or any(
                e.producer == producer for e in self.outstanding
            )
            if is_idle and not is_held:
                del self.touched[producer]
                self.forgotten[producer] = self.history[-1].end + 1

    def aborted(self) -> list[tuple[int, int, int, int]]:
        """Return (producer, first, last, last stable offset) of aborted transactions."""
        found, opened = [], dict[int, int]()
        for entry in self.history:
            if entry.kind is None:
                if entry.is_transactional:
                    opened.setdefault(entry.producer, entry.start)
            elif (start := opened.pop(entry.producer, None)) is not None:
                stable = min(opened.values(), default=entry.end + 1)
                if entry.kind is MarkerType.ABORT:
                    found.append((entry.producer, start, entry.end, stable))
        return found


@dataclass(frozen=True)
class Saved:
    """A snapshot, and the state of the model at that time without the history."""

    content: bytes
    end: int
    age_ms: int
    touched: dict[int, int]
    forgotten: dict[int, int]


class StatesAgainstHistory(RuleBasedStateMachine):
    """The producer states and the model, with rules for both."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.states = ProducerStates(LIMITS, wall_ms=START_MS)
        self.now_ms = START_MS
        self.changes: list[Changes] = []  # of pending writes
        self.aborted: list[tuple[int, int, int, int]] = []
        self.saved: list[Saved] = []

    # --- writes --------------------------------------------------------------------------------

    @rule(
        producer=st.integers(1, 3),
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        aim=st.sampled_from(["next", "next", "next", "again", "zero", "top"]),
        back=st.integers(1, 7),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
        stays=st.booleans(),
    )
    def write(
        self,
        producer: int,
        epoch_step: int,
        aim: str,
        back: int,
        count: int,
        is_transactional: bool,
        stays: bool,
    ) -> None:
        entries = self.model.known(producer)
        epoch = max(0, (entries[-1].epoch if entries else 0) + epoch_step)
        first = {"zero": 0, "top": TOP - 2}.get(aim, 0)
        if entries and aim == "next":
            first = max(0, self.model.expected(entries)) if epoch_step == 0 else 0
        batches = [e for e in entries if e.kind is None]
        if batches and aim == "again":
            copied = batches[-min(back, len(batches))]
            first, epoch, count = copied.first, copied.epoch, copied.end - copied.start + 1
        content = encode_batch(
            [Record(0, 1_000, None, b"v")] * count,
            base_offset=self.model.end,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=first,
            is_transactional=is_transactional,
        )
        last = (first + count - 1) % TOP
        start = self.model.end
        new = Entry(
            content, producer, epoch, first, last, start, start + count - 1, is_transactional
        )
        self._append(new, AppendOrigin.CLIENT, stays=stays)

    @rule(
        producer=st.integers(1, 3),
        epoch_step=st.sampled_from([0, 0, 0, 1, -1]),
        kind=st.sampled_from(MarkerType),
        coordinator=st.integers(0, 1),
        version=st.sampled_from([0, 2]),
        stays=st.booleans(),
    )
    def mark(
        self,
        producer: int,
        epoch_step: int,
        kind: MarkerType,
        coordinator: int,
        version: int,
        stays: bool,
    ) -> None:
        entries = self.model.known(producer)
        epoch = max(0, (entries[-1].epoch if entries else 0) + epoch_step)
        at = self.model.end
        content = encode_marker(
            producer_id=producer,
            producer_epoch=epoch,
            kind=kind,
            coordinator_epoch=coordinator,
            timestamp_ms=1_000,
            base_offset=at,
        )
        new = Entry(content, producer, epoch, -1, -1, at, at, True, kind, coordinator, version)
        self._append(new, AppendOrigin.INTERNAL, stays=stays)

    def _append(self, new: Entry, origin: AppendOrigin, *, stays: bool) -> None:
        verdict = self.model.verdict(new)
        outcome, changes = self._plan(new, origin)
        assert outcome == verdict
        if changes is None:
            return
        self.states.reserve(changes)
        self.changes.append(changes)
        self.model.outstanding.append(new)
        if not stays:
            self.complete_all()

    def _plan(self, new: Entry, origin: AppendOrigin) -> tuple[object, Changes | None]:
        """Return the outcome in the terms of `Model.verdict`, and the changes if it is accepted."""
        try:
            if new.kind is not None:
                identity = ProducerIdentity(new.producer, new.epoch)
                is_commit = new.kind is MarkerType.COMMIT
                marker = TransactionMarker(identity, new.coordinator, is_commit, new.version)
                if not self.states.check_marker(marker):
                    return "wait", None
            changes = self.states.plan(
                new.content,
                [(0, parse_header(new.content))],
                next_offset=new.start,
                origin=origin,
                wall_ms=self.now_ms,
            )
        except AlreadyStored as stored:
            return stored.base_offset, None
        except QuorumlogError as error:
            return type(error), None
        return ("wait" if changes is None else None), changes

    @precondition(lambda self: self.changes)
    @rule()
    def complete(self) -> None:
        ended = self.states.complete(self.changes.pop(0))
        self.aborted += [
            (e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset)
            for e in ended
            if e.is_aborted
        ]
        entry = self.model.outstanding.pop(0)
        self.model.history.append(entry)
        self.model.touched[entry.producer] = self.model.age_ms

    @precondition(lambda self: self.changes)
    @rule()
    def fail(self) -> None:
        self.states.failed(self.changes.pop())
        self.model.outstanding.pop()

    def complete_all(self) -> None:
        while self.changes:
            self.complete()

    # --- time ----------------------------------------------------------------------------------

    @precondition(lambda self: not self.changes)
    @rule(step_ms=st.sampled_from([1, 100_000, 400_000, 999_999]))
    def wait(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.model.age_ms += step_ms
        self.states.expire(self.now_ms)
        self.model.expire()

    @rule(back_ms=st.integers(1, 10**9))
    def turn_the_clock_back(self, back_ms: int) -> None:
        self.now_ms -= back_ms
        self.states.expire(self.now_ms)
        self.model.expire()

    # --- truncations and restarts --------------------------------------------------------------

    @precondition(lambda self: not self.changes)
    @rule()
    def save(self) -> None:
        snapshot = ProducerSnapshot(
            end_offset=self.model.end,
            entries=tuple(self.states.entries()),
            unreplicated=tuple(self.states.undecided.unreplicated()),
            age_ms=self.states.age_ms,
        )
        self.saved.append(
            Saved(
                encode_snapshot(snapshot),
                self.model.end,
                self.model.age_ms,
                dict(self.model.touched),
                dict(self.model.forgotten),
            )
        )

    @precondition(lambda self: not self.changes and self.model.history)
    @rule(data=st.data(), with_snapshot=st.booleans())
    def truncate(self, data: Any, with_snapshot: bool) -> None:
        kept = data.draw(st.integers(0, len(self.model.history)))
        del self.model.history[kept:]
        self.saved = [saved for saved in self.saved if saved.end <= self.model.end]
        self._rebuild(with_snapshot)

    @precondition(lambda self: not self.changes)
    @rule(with_snapshot=st.booleans())
    def restart(self, with_snapshot: bool) -> None:
        self._rebuild(with_snapshot)

    def _rebuild(self, with_snapshot: bool) -> None:
        model, start = self.model, 0
        self.states = ProducerStates(LIMITS, wall_ms=self.now_ms)
        model.age_ms, model.touched, model.forgotten = 0, {}, {}
        if with_snapshot and self.saved:
            saved = self.saved[-1]
            snapshot = decode_snapshot(saved.content, end_offset=saved.end)
            self.states.load(
                snapshot.entries,
                unreplicated=snapshot.unreplicated,
                age_ms=snapshot.age_ms,
                end_offset=saved.end,
            )
            start, model.age_ms = saved.end, saved.age_ms
            model.touched, model.forgotten = dict(saved.touched), dict(saved.forgotten)
        else:
            self.saved = []  # their timestamps are of another clock
        self.aborted = [one for one in self.aborted if one[2] < start]
        for entry in model.history:
            if entry.start < start:
                continue
            ended = self.states.replay(entry.content, parse_header(entry.content))
            self.aborted += [
                (e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset)
                for e in ended
                if e.is_aborted
            ]
            model.touched[entry.producer] = model.age_ms

    # --- invariants ----------------------------------------------------------------------------

    @invariant()
    def the_same_is_known(self) -> None:
        self.states.check_invariants(self.model.end, self.changes)
        producers = [p for p in (1, 2, 3) if self.model.known(p, with_outstanding=False)]
        assert sorted(producer_id for producer_id, _ in self.states.entries()) == producers
        opened = []
        for producer in producers:
            entries = self.model.known(producer, with_outstanding=False)
            entry = self.states.entry(producer)
            assert entry is not None
            start = self.model.open_since(entries)
            opened += [start] if start >= 0 else []
            assert entry.epoch == entries[-1].epoch
            assert entry.next_sequence == self.model.expected(entries)
            assert entry.transaction_start == start
            assert [b[:4] for b in entry.batches] == [
                (e.first, e.last, e.start, e.end) for e in self.model.current(entries)
            ]
        assert self.states.undecided.first_offset == min(opened, default=None)

    @invariant()
    def the_same_was_aborted(self) -> None:
        assert self.aborted == self.model.aborted()


StatesAgainstHistory.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
test_producer_states_know_what_the_history_says = pytest.mark.slow(StatesAgainstHistory.TestCase)
