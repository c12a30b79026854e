"""A transactional producer of one incarnation of an application.

It repeats requests as Kafka's clients do, and records all operations and results. A commit with an
unknown result ends the incarnation: the next one fences it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from quorumlog.errors import QuorumlogError
from quorumlog.ids import ProducerIdentity
from quorumlog.runtime import Clock
from quorumlog.testing.checkers import (
    Place,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)

from ...checkers.violation import Violation
from . import calls
from .calls import NO_MEMBER, NO_NOTES, NO_PRODUCER, Generation, Member, TransactionCalls
from .plan import DELETED

RETRY_S: Final = 0.15
NEVER: Final = frozenset({-1, 2, 35, 42, 43, 76})  # no fault explains these
REFUSED_END: Final = frozenset(
    {calls.INVALID_EPOCH, calls.INVALID_TXN_STATE, calls.INVALID_MAPPING, calls.FENCED}
)
"""Answers to a first EndTxn that exclude its outcome."""


class AbortableError(Exception):
    """The transaction must be aborted; the producer continues."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code  # of the refusal, 0: without an answer


class NotMemberError(AbortableError):
    """The transaction must be aborted, and the group joined again."""


class FatalError(Exception):
    """The incarnation ends."""


@dataclass(slots=True)
class Observations:
    """The shared records of a run's applications."""

    now_ns: Callable[[], int]
    history: TransactionHistory
    next_value: Callable[[str, int], bytes]
    acknowledged: Callable[[], int] = lambda: 0  # plain records, so far
    errors: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    ended: int = 0  # transactions
    # transactional ids that an operator requested to abort, also without a result
    operator_aborts: set[str] = field(default_factory=set)
    # by producer id; OLD if any producer with it was
    generations: dict[int, Generation] = field(default_factory=dict)

    @property
    def shares_epochs(self) -> set[int]:
        """The producer ids with one epoch for many transactions."""
        return {one for one, found in self.generations.items() if found is Generation.OLD}

    @property
    def changes(self) -> int:
        """The number of events so far that may have added committed records."""
        return self.ended + self.acknowledged()


class TransactionalProducer:
    """The protocol of one producer; raises AbortableError and FatalError."""

    def __init__(
        self,
        sender: TransactionCalls,
        observed: Observations,
        clock: Clock,
        *,
        name: str,
        transactional_id: str,
        transaction_timeout_ms: int,
        delivery_timeout_ms: int,
        topics: list[str],
    ) -> None:
        """Create the producer; `name` is unique, `topics` are those that it uses."""
        self.identity = NO_PRODUCER
        self.transaction: Transaction | None = None
        self._calls = sender
        self._observed = observed
        self._clock = clock
        self._name = name
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._topics = topics
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()  # in this transaction; version OLD
        self._added_groups: set[str] = set()
        self._needs_bump = False  # a batch has no known result; version OLD
        self._number = 0

    @property
    def is_new(self) -> bool:
        """True for the version with an epoch for each transaction."""
        return self._calls.generation is Generation.NEW

    async def init(self) -> None:
        """Get an identity, with retries; the previous incarnation is fenced."""

        async def ask() -> int:
            code, identity = await self._calls.init_producer_id(
                self._transactional_id, self._transaction_timeout_ms
            )
            if not code:
                self._adopt(identity)
            return code

        await self._until_done("init", ask, calls.RETRIABLE, None)

    def begin(self) -> Transaction:
        """Begin a transaction; no request is sent."""
        self._number += 1
        self._added.clear()
        self._added_groups.clear()
        name = f"{self._name}#{self._number}"
        self.transaction = self._observed.history.begin(
            name, self._name, at=self._observed.now_ns()
        )
        self._observed.counts["transactions"] += 1
        return self.transaction

    async def send(self, place: Place, values: list[tuple[bytes | None, bytes]]) -> None:
        """Send a batch of (key, value), with retries of the same batch until it is acknowledged."""
        transaction = self._open()
        for _, value in values:
            self._observed.history.send(transaction, place, value, at=self._observed.now_ns())
        if not self.is_new and place not in self._added:
            await self._add_partition(place)
        sequence = self._sequences.get(place, 0)
        offsets: list[int] = []

        async def ask() -> int:
            code, offset = await self._calls.produce(
                place,
                values,
                transactional_id=self._transactional_id,
                producer=self.identity,
                sequence=sequence,
            )
            offsets.append(offset)
            if code == calls.DUPLICATE_SEQUENCE:
                offsets[-1] = -1
                return calls.NONE
            return code

        try:
            await self._until_done("produce", ask, calls.RETRIABLE, self._delivery_timeout_ms)
        except AbortableError:
            self._needs_bump = True
            raise
        self._sequences[place] = sequence + len(values)
        for number, (_, value) in enumerate(values):
            is_kept = offsets[-1] >= 0 and place[0] != DELETED
            offset = offsets[-1] + number if is_kept else -1
            self._observed.history.records.acknowledge(value, offset, at=self._observed.now_ns())

    async def send_all(self, batches: Mapping[Place, list[tuple[bytes | None, bytes]]]) -> None:
        """Send batches to several partitions at once, and wait for every result."""
        results = await asyncio.gather(
            *(self.send(place, values) for place, values in batches.items()),
            return_exceptions=True,
        )
        errors = [result for result in results if result is not None]
        for error in sorted(errors, key=lambda one: isinstance(one, AbortableError)):
            raise error

    async def send_offsets(
        self,
        group: str,
        ranges: Mapping[Place, tuple[int, int]],
        member: Member = NO_MEMBER,
        notes: Mapping[Place, str] = NO_NOTES,
    ) -> None:
        """Commit the ends of input ranges [first, end) with the transaction, with metadata."""
        transaction = self._open()
        for place, found in ranges.items():
            transaction.offsets[group, place] = found
        if not self.is_new and group not in self._added_groups:
            await self._until_done(
                "add offsets",
                lambda: self._calls.add_offsets(self._transactional_id, self.identity, group),
                calls.RETRIABLE,
                self._delivery_timeout_ms,
            )
            self._added_groups.add(group)
        offsets = {place: end for place, (_, end) in ranges.items()}
        await self._until_done(
            "commit offsets",
            lambda: self._calls.commit_offsets(
                self._transactional_id, self.identity, group, offsets, member, notes
            ),
            calls.RETRIABLE,
            self._delivery_timeout_ms,
        )

    async def commit(self) -> None:
        """Commit; raises FatalError with an unknown result, AbortableError if it was refused."""
        transaction = self._open()
        self._observed.history.request_commit(transaction, at=self._observed.now_ns())
        may_be_committed = False
        end_ms = self._clock.now_ms() + self._delivery_timeout_ms
        while self._clock.now_ms() < end_ms:
            try:
                code, following = await self._calls.end(
                    self._transactional_id, self.identity, is_commit=True
                )
            except QuorumlogError as error:
                self._observed.errors[type(error).__name__] += 1
                may_be_committed = True
                await self._look()
                continue
            self._note("end", code)
            if not code:
                self._ended(TransactionOutcome.COMMITTED, following)
                return
            if code == calls.ABORTABLE and not may_be_committed:
                raise AbortableError(f"commit: error {code}")
            if code in REFUSED_END or code == calls.ABORTABLE:
                if not may_be_committed:
                    self._close(TransactionOutcome.ABORTED)
                raise FatalError(f"commit: error {code}")
            may_be_committed = True  # the record may be replicated without an acknowledgement
            await self._look()
        raise FatalError("commit: no answer")

    async def abort(self) -> None:
        """Abort; raises FatalError if this producer cannot continue."""
        transaction = self._open()
        if not self.is_new and not self._added and not self._added_groups:
            self._close(TransactionOutcome.ABORTED)  # the coordinator has no transaction
            return
        self._close(TransactionOutcome.ABORTED)
        identities: list[ProducerIdentity] = []

        async def ask() -> int:
            code, following = await self._calls.end(
                self._transactional_id, self.identity, is_commit=False
            )
            identities.append(following)
            return code

        try:
            await self._until_done("end", ask, calls.RETRIABLE, self._delivery_timeout_ms)
        except AbortableError as error:
            raise FatalError(str(error)) from error
        self._decided(transaction, self.identity, is_commit=False)
        self._continue(identities[-1])
        if self._needs_bump and not self.is_new:
            await self._bump()

    async def abort_hurriedly(self, sending: Coroutine[Any, Any, None], wait_s: float) -> None:
        """Send something, give its connections up, and abort: the request may still wait at a
        partition's leader or at the group's coordinator."""
        try:
            async with asyncio.timeout(wait_s):
                await sending
        except (TimeoutError, AbortableError):
            pass
        self._calls.drop_connections()
        self._needs_bump = True
        await self.abort()

    async def repeat_marker(self, delay_s: float, coordinator_epoch: int) -> None:
        """Send the marker of the last transaction once more, later, to one of its partitions;
        version NEW."""
        transaction, identity = self._last
        places = [place for place in transaction.sends.values() if place[0] != DELETED]
        if not places or not self._is_last_answered:
            return
        marker = identity._replace(producer_epoch=identity.producer_epoch + 1)
        is_commit = transaction.outcome is TransactionOutcome.COMMITTED
        await asyncio.sleep(delay_s)
        try:
            code = await self._calls.write_marker(
                places[0], marker, is_commit=is_commit, coordinator_epoch=coordinator_epoch
            )
        except QuorumlogError as error:
            self._observed.errors[type(error).__name__] += 1
        else:
            self._observed.counts["repeated markers"] += 1
            self._note("marker", code)

    async def end_again(self, *, is_commit: bool) -> None:
        """Repeat the end of the last transaction with any outcome, as a faulty program does; the
        history has a conflict if another outcome is acknowledged."""
        transaction, identity = self._last
        code, following = await self._calls.end(
            self._transactional_id, identity, is_commit=is_commit
        )
        self._note("end again", code)
        if not code:
            self._decided(transaction, identity, is_commit=is_commit)
            if is_commit is (transaction.outcome is TransactionOutcome.COMMITTED):
                assert following == self.identity, f"{following} in place of {self.identity}"

    # --- inside --------------------------------------------------------------------------------

    _last: tuple[Transaction, ProducerIdentity]  # with the identity that it had
    _is_last_answered = False  # its end was acknowledged

    def _open(self) -> Transaction:
        assert self.transaction is not None, f"{self._name} has no transaction"
        return self.transaction

    def _adopt(self, identity: ProducerIdentity) -> None:
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity
        self._needs_bump = False
        if self._observed.generations.get(identity.producer_id) is not Generation.OLD:
            self._observed.generations[identity.producer_id] = self._calls.generation

    def _ended(self, outcome: TransactionOutcome, following: ProducerIdentity) -> None:
        transaction, identity = self._open(), self.identity
        self._close(outcome)
        self._decided(transaction, identity, is_commit=outcome is TransactionOutcome.COMMITTED)
        self._continue(following)

    def _close(self, outcome: TransactionOutcome) -> None:
        transaction = self._open()
        self._last, self._is_last_answered = (transaction, self.identity), False
        self._observed.history.end(transaction, outcome, at=self._observed.now_ns())
        self._observed.ended += 1
        self._observed.counts[outcome] += 1
        self.transaction = None

    def _continue(self, following: ProducerIdentity) -> None:
        if self.is_new:
            if following.producer_id == self.identity.producer_id and (
                following.producer_epoch <= self.identity.producer_epoch
            ):
                raise Violation("EpochNotRaised", f"{following} follows {self.identity}")
            self._adopt(following)

    def _decided(
        self, transaction: Transaction, identity: ProducerIdentity, *, is_commit: bool
    ) -> None:
        self._is_last_answered = True
        key = f"producer {identity.producer_id} epoch {identity.producer_epoch}"
        if not self.is_new:
            key += f" of {transaction.name}"
        self._observed.history.decided(key, is_commit=is_commit)

    async def _add_partition(self, place: Place) -> None:
        # The coordinator may add it even if its answer is lost.
        self._added.add(place)
        await self._until_done(
            "add partitions",
            lambda: self._calls.add_partitions(self._transactional_id, self.identity, [place]),
            calls.RETRIABLE,
            self._delivery_timeout_ms,
        )

    async def _bump(self) -> None:
        """Raise the epoch after a batch without a known result (KIP-360)."""

        async def ask() -> int:
            code, identity = await self._calls.init_producer_id(
                self._transactional_id, self._transaction_timeout_ms, self.identity
            )
            if not code:
                self._adopt(identity)
            return code

        try:
            await self._until_done("bump", ask, calls.RETRIABLE, self._delivery_timeout_ms)
        except AbortableError as error:
            raise FatalError(str(error)) from error

    async def _until_done(
        self,
        what: str,
        ask: Callable[[], Awaitable[int]],
        retriable: frozenset[int],
        timeout_ms: int | None,
    ) -> None:
        """Repeat a request until it succeeds; raises AbortableError and FatalError."""
        end_ms = self._clock.now_ms() + (timeout_ms or 1 << 40)
        while self._clock.now_ms() < end_ms:
            try:
                code = await ask()
            except QuorumlogError as error:
                self._observed.errors[type(error).__name__] += 1
                await self._look()
                continue
            self._note(what, code)
            if not code:
                return
            if code in calls.FATAL:
                raise FatalError(f"{what}: error {code}")
            if code in calls.NO_LONGER_MEMBER:
                raise NotMemberError(f"{what}: error {code}", code)
            if code not in retriable:
                raise AbortableError(f"{what}: error {code}", code)
            await self._look()
        raise AbortableError(f"{what}: no answer")

    def _note(self, what: str, code: int) -> None:
        if code:
            self._observed.errors[f"{what} {code}"] += 1
        if code in NEVER:
            raise Violation("KafkaError", f"no fault explains error {code} of {what}")

    async def _look(self) -> None:
        await asyncio.sleep(RETRY_S)
        try:
            await self._calls.client.look(self._topics)
        except QuorumlogError as error:
            self._observed.errors[type(error).__name__] += 1
