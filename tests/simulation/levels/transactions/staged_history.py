"""The history of staged commits, and the rules of the sink. Pure.

Each task attempt is a transaction of the run's `TransactionHistory`, which has the rules of single
attempts. The rules here are those of batches: a number is committed once, by the attempts that one
write named, and each partition has the batches in the order of their numbers.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from quorumlog.ids import ProducerIdentity
from quorumlog.testing.checkers import (
    Place,
    Stored,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)

from ...checkers.violation import Violation

BatchKey: TypeAlias = tuple[str, int]
"""A name and the number of a batch."""


class StagedBatch(NamedTuple):
    """The facts of a committed number, as a broker returned them."""

    number: int
    write_id: int
    records: int
    is_visible: bool


@dataclass(slots=True)
class StagedAttemptNote:
    """A task attempt and its records."""

    key: BatchKey
    write_id: int
    task: int
    transaction: Transaction


@dataclass(slots=True)
class StagedHistory:
    """The staged commits of a run."""

    transactions: TransactionHistory
    attempts: dict[str, StagedAttemptNote] = field(default_factory=dict)  # by transaction name
    requested: dict[BatchKey, dict[int, list[frozenset[str]]]] = field(default_factory=dict)
    """The attempts that commits named, by the write that sent them."""
    decided: dict[BatchKey, StagedBatch] = field(default_factory=dict)  # as answered first
    refused: set[tuple[BatchKey, int]] = field(default_factory=set)  # writes that never commit
    producers: set[ProducerIdentity] = field(default_factory=set)  # of all attempts

    def begin(
        self, key: BatchKey, write_id: int, task: int, producer: ProducerIdentity, *, at: int
    ) -> Transaction:
        """Record the begin of a task attempt; raises Violation if another one had its identity."""
        if producer in self.producers:
            raise Violation("IdReused", f"{producer} was returned to an attempt before")
        self.producers.add(producer)
        name = f"{key[0]}{key[1]} write {write_id} task {task} #{len(self.attempts)}"
        transaction = self.transactions.begin(name, name, at=at)
        self.attempts[name] = StagedAttemptNote(key, write_id, task, transaction)
        return transaction

    def request_commit(
        self, key: BatchKey, write_id: int, winners: frozenset[str], *, at: int
    ) -> None:
        """Record the request of a commit; its records may be read from now on."""
        self.requested.setdefault(key, {}).setdefault(write_id, []).append(winners)
        for name in winners:
            self.transactions.request_commit(self.attempts[name].transaction, at=at)

    def answer(self, key: BatchKey, batch: StagedBatch, *, at: int) -> None:
        """Record that a broker returned a number as committed; raises Violation if it cannot be
        so."""
        name, number = key
        if batch.number != number:
            raise Violation("WrongBatch", f"{name}: batch {batch.number} in place of {number}")
        if (key, batch.write_id) in self.refused:
            raise Violation("CommitAfterRefusal", f"{name}: {batch} was refused before")
        sent = self.requested.get(key, {}).get(batch.write_id)
        if not sent:
            raise Violation("UnknownCommit", f"{name}: no request names {batch}")
        known = self.decided.setdefault(key, batch)
        if (known.write_id, known.records) != (batch.write_id, batch.records):
            raise Violation("DecidedTwice", f"{name}: {batch} was returned after {known}")
        if len(sent) == 1:
            self._settle(key, sent[0], at)

    def refuse(self, key: BatchKey, write_id: int) -> None:
        """Record that a write will never commit: it was refused or aborted before any commit of it
        was requested, or its only commit was refused."""
        found = self.decided.get(key)
        if found is not None and found.write_id == write_id:
            raise Violation("AbortOfCommit", f"{key[0]}: {found} was returned before")
        self.refused.add((key, write_id))

    def _settle(self, key: BatchKey, winners: frozenset[str], at: int) -> None:
        """Set the outcomes of all attempts of a number."""
        for name, note in self.attempts.items():
            if note.key == key and note.transaction.ended_at < 0:
                outcome = TransactionOutcome.ABORTED
                if name in winners:
                    outcome = TransactionOutcome.COMMITTED
                self.transactions.end(note.transaction, outcome, at=at)

    # --- the end -------------------------------------------------------------------------------

    def check(self, final: Stored) -> int:
        """Compare with a complete read of committed data; return the number of committed batches.
        Raises Violation."""
        visible: dict[BatchKey, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for _, note in self._records(final):
            visible[note.key][note.transaction.name] += 1
        for key in visible.keys() | self.decided.keys():
            self._check_batch(key, visible[key])
        for place in final:
            self._check_order(place, final)
        return len([key for key, found in visible.items() if found])

    def _records(self, final: Stored) -> Iterator[tuple[Place, StagedAttemptNote]]:
        for place, records in final.items():
            for _, value in records:
                transaction = self.transactions.transaction_of(value)
                note = None if transaction is None else self.attempts.get(transaction.name)
                if note is not None:
                    yield place, note

    def _check_batch(self, key: BatchKey, visible: dict[str, int]) -> None:
        """All or nothing, of one write."""
        shown = f"batch {key[1]} of {key[0]}"
        sent = [
            (write_id, winners)
            for write_id, some in self.requested.get(key, {}).items()
            for winners in some
        ]
        suitable = [
            (write_id, winners)
            for write_id, winners in sent
            if {name for name in winners if self.attempts[name].transaction.sends} == visible.keys()
        ]
        found = self.decided.get(key)
        if found is not None:
            suitable = [one for one in suitable if one[0] == found.write_id]
            if sum(visible.values()) != found.records:
                raise Violation(
                    "TornBatch",
                    f"{shown}: {sum(visible.values())} records are visible, {found} was returned",
                )
        if not suitable:
            raise Violation("TornBatch", f"{shown}: {sorted(visible)} are visible, of {sent}")

    def _check_order(self, place: Place, final: Stored) -> None:
        """Batches of a name are in the order of their numbers, and each is in one piece."""
        last: dict[str, int] = {}
        for _, note in self._records({place: final[place]}):
            name, number = note.key
            if number < last.setdefault(name, number):
                raise Violation(
                    "BatchOrder", f"{name}: batch {number} follows {last[name]} in {place}"
                )
            last[name] = number
