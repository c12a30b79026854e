"""Commits of members inside transactions: one transaction for each commit.

Each process of a member has a producer with the transactional id of its machine, so it fences its
predecessor. Some transactions are aborted. Results say whether the offsets are in force.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quorumlog.clients.groups.coordinator import CommittedOffset
from quorumlog.clients.groups.group_consumer import AsyncGroupConsumer
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.transactional_producer import AsyncTransactionalProducer
from quorumlog.errors import (
    ClientClosed,
    OutcomeUnknown,
    ProducerUnusable,
    QuorumlogError,
    TransactionAbortable,
)
from quorumlog.runtime import Clock, Entropy, Runtime
from quorumlog.testing.checkers import Place, TransactionOutcome

from ..kafka.client import KafkaClient
from ..transactions.calls import Interference, Member, TransactionCalls
from ..transactions.plan import draw_generation, draw_timeout
from ..transactions.producer import (
    AbortableError,
    FatalError,
    Observations,
    TransactionalProducer,
)

ABORTED: Final = 0.2  # fraction of the transactions
PLAIN: Final = 0.2  # fraction of the commits without a transaction
DELAYED, REPEATED = 0.02, 0.1  # fractions of the requests of the new version
FATAL: Final = (OutcomeUnknown, ProducerUnusable, ClientClosed)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of one transaction."""

    is_stored: bool | None  # the offsets are in force; None: unknown
    is_accepted: bool = False  # the group coordinator accepted them from this member
    code: int = 0  # of the refusal
    asked_ns: int = -1  # time of the request to the group coordinator


class TransactionalCommits:
    """The commits of one process in the Kafka protocol."""

    def __init__(
        self,
        runtime: Runtime,
        client: KafkaClient,
        observed: Observations,
        *,
        name: str,
        transactional_id: str,
        group: str,
        timeout_ms: int,
    ) -> None:
        """Create the commits; `name` is unique, `client` finds the brokers."""
        self._entropy: Entropy = runtime.entropy.stream("transactional commits")
        self._observed = observed
        self._clock: Clock = runtime.clock
        self._name = name
        self._transactional_id = transactional_id
        self._group = group
        self._timeout_ms = timeout_ms
        self._transaction_timeout_ms = draw_timeout(self._entropy)
        self._producers = 0
        self._producer: TransactionalProducer | None = None
        self._calls = TransactionCalls(
            runtime,
            client,
            name,
            draw_generation(self._entropy),
            timeout_ms=timeout_ms,
            interference=Interference(
                runtime.entropy.stream("interference"), DELAYED, REPEATED, counts=observed.counts
            ),
        )

    def close(self) -> None:
        """Close every connection."""
        self._calls.close()

    async def commit(
        self, member: Member, offsets: Mapping[Place, tuple[int, str]], *, is_honest: bool
    ) -> CommitResult:
        """Commit offsets with metadata; without `is_honest` the transaction is always aborted."""
        producer = await self._ready()
        if producer is None:
            return CommitResult(is_stored=False)
        transaction = producer.begin()
        ranges = {place: (0, offset) for place, (offset, _) in offsets.items()}
        notes = {place: note for place, (_, note) in offsets.items()}
        asked_ns, is_accepted, code = self._observed.now_ns(), False, 0
        try:
            await producer.send_offsets(self._group, ranges, member, notes)
            is_accepted = True
            if not is_honest or self._entropy.uniform(0, 1) < ABORTED:
                await producer.abort()
            else:
                await producer.commit()
        except AbortableError as error:
            code = error.code
            await self._abort(producer)
        except FatalError:
            self._producer = None
        is_stored = None if not transaction.is_aborted else False
        if transaction.outcome is TransactionOutcome.COMMITTED:
            is_stored = True
        return CommitResult(is_stored, is_accepted, code, asked_ns)

    async def _ready(self) -> TransactionalProducer | None:
        """Return the producer, or a new one that fences the one before; None without an answer."""
        if self._producer is not None:
            return self._producer
        self._producers += 1
        producer = TransactionalProducer(
            self._calls,
            self._observed,
            self._clock,
            name=f"{self._name}/{self._producers}",
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            delivery_timeout_ms=self._timeout_ms,
            topics=[],
        )
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await producer.init()
        except (TimeoutError, AbortableError, FatalError):
            return None
        self._producer = producer
        return producer

    async def _abort(self, producer: TransactionalProducer) -> None:
        try:
            await producer.abort()
        except FatalError:
            self._producer = None


class ClientCommits:
    """The commits of one process of the Python client."""

    def __init__(
        self, log: AsyncLog, entropy: Entropy, *, transactional_id: str, timeout_ms: int
    ) -> None:
        """Create the commits of a member that uses `log`."""
        self._log = log
        self._entropy = entropy
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._transaction_timeout_ms = draw_timeout(entropy)
        self._producer: AsyncTransactionalProducer | None = None

    async def commit(
        self, consumer: AsyncGroupConsumer, offsets: Mapping[Place, CommittedOffset]
    ) -> CommitResult:
        """Commit offsets with notes."""
        if self._producer is None:
            self._producer = self._log.producer(
                transactional_id=self._transactional_id,
                transaction_timeout_ms=self._transaction_timeout_ms,
            )
        producer, is_requested = self._producer, False
        try:
            await producer.begin_transaction()
            await producer.send_offsets(consumer, offsets)
            if self._entropy.uniform(0, 1) < ABORTED:
                await producer.abort_transaction(timeout_ms=self._timeout_ms)
                return CommitResult(is_stored=False)
            is_requested = True
            await producer.commit_transaction(timeout_ms=self._timeout_ms)
        except FATAL:
            self._producer = None
            await producer.close()
            return CommitResult(is_stored=None if is_requested else False)
        except TransactionAbortable:
            is_requested = False  # the commit was refused
            await self._abort(producer)
        except QuorumlogError:
            await self._abort(producer)
        else:
            return CommitResult(is_stored=True)
        return CommitResult(is_stored=None if is_requested else False)

    async def _abort(self, producer: AsyncTransactionalProducer) -> None:
        """Abort; the next transaction repeats an abort without an answer."""
        try:
            await producer.abort_transaction(timeout_ms=self._timeout_ms)
        except FATAL:
            self._producer = None
            await producer.close()
        except QuorumlogError:
            pass
