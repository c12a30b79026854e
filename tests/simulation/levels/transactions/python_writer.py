"""Writers that use our Python client over gRPC, as an application does.

The client repeats requests by itself, and a writer records the results that it reports. They must
hold: after a commit every record is committed, after an abortable error none is.
"""

import asyncio
from typing import Final

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.transactional_producer import AsyncTransactionalProducer
from quorumlog.errors import (
    ClientClosed,
    OutcomeUnknown,
    ProducerUnusable,
    QuorumlogError,
    TransactionAbortable,
)
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import Place, Transaction, TransactionOutcome

from .application import RETRY_S, ApplicationState
from .plan import COMPACTED, DELETED, KEYS

COMMITS_MAX: Final = 3  # requests of a commit with an unknown outcome
LINGER_MS: Final = 5
CLOSE_S: Final = 30.0  # bound for a client to close


class PythonWriter:
    """One process of a writing application."""

    has_crashed = False

    def __init__(self, state: ApplicationState, runtime: Runtime, number: int) -> None:
        self.name = f"{state.plan.name}/{number}"
        self.is_replaced = False  # it slept, or has ended: its successor starts
        self._state = state
        self._runtime = runtime
        self._entropy: Entropy = runtime.entropy.stream(f"application/{self.name}")
        self._numbers = 0
        state.transactional_ids.append(state.plan.transactional_id)

    async def run(self) -> None:
        """Run transactions until the application is over, or the producer is unusable."""
        log = await self._connect()
        try:
            producer = await self._start(log)
            while not self._state.is_over and not producer.is_closed:
                await self._transact(producer)
                pause_ms = self._entropy.uniform(*self._state.behaviour.think_ms)
                await asyncio.sleep(pause_ms / 1000)
        except (ProducerUnusable, ClientClosed) as error:
            self._state.observed.errors[f"fatal {type(error).__name__}"] += 1
        finally:
            self.is_replaced = True
            async with asyncio.timeout(CLOSE_S):
                await log.close()

    async def _connect(self) -> AsyncLog:
        """Connect, with retries; a client that failed to connect is closed."""
        while True:
            log = make_log(
                self._runtime,
                self._state.grpc_bootstrap,
                request_timeout_ms=self._state.behaviour.request_timeout_ms,
            )
            try:
                await log.start()
            except QuorumlogError as error:
                self._note(error)
                await asyncio.sleep(RETRY_S)
            else:
                return log

    async def _start(self, log: AsyncLog) -> AsyncTransactionalProducer:
        """Fence the previous incarnation, with retries."""
        plan, behaviour = self._state.plan, self._state.behaviour
        while True:
            try:
                producer = log.producer(
                    transactional_id=plan.transactional_id,
                    transaction_timeout_ms=plan.timeout_ms,
                    delivery_timeout_ms=behaviour.delivery_timeout_ms,
                    max_block_ms=behaviour.delivery_timeout_ms,
                    linger_ms=LINGER_MS,
                )
                return await producer.__aenter__()
            except ProducerUnusable:
                raise
            except QuorumlogError as error:
                self._note(error)
                await asyncio.sleep(RETRY_S)

    async def _transact(self, producer: AsyncTransactionalProducer) -> None:
        """Run one transaction; after an abortable error, abort it."""
        observed = self._state.observed
        self._numbers += 1
        try:
            await producer.begin_transaction()
        except ProducerUnusable:
            raise
        except QuorumlogError as error:  # of the abort before, which is repeated
            self._note(error)
            return
        name = f"{self.name}#{self._numbers}"
        transaction = observed.history.begin(name, self.name, at=observed.now_ns())
        observed.counts["transactions"] += 1
        observed.counts["python"] += 1
        try:
            await self._write(producer, transaction)
            await self._sleep()
            if self._entropy.uniform(0, 1) < self._state.behaviour.aborts:
                await self._abort(producer, transaction)
            else:
                await self._commit(producer, transaction)
        except TransactionAbortable as error:
            self._note(error)
            await self._abort(producer, transaction)

    async def _write(self, producer: AsyncTransactionalProducer, transaction: Transaction) -> None:
        """Send records to drawn partitions; wait for some of them."""
        observed, drawn = self._state.observed, self._entropy
        sent: list[tuple[Place, bytes, Delivery]] = []
        for _ in range(1 + drawn.below(3 * self._state.behaviour.records_max)):
            place = self._state.targets[drawn.below(len(self._state.targets))]
            key = b"k%d" % drawn.below(KEYS) if place[0] == COMPACTED else None
            value = observed.next_value(self.name, drawn.below(60))
            observed.history.send(transaction, place, value, at=observed.now_ns())
            try:
                delivery = await producer.send(place[0], value, key=key, partition=place[1])
            except (TransactionAbortable, ProducerUnusable, ClientClosed):
                raise
            except QuorumlogError as error:  # of this record, before it was accepted
                raise TransactionAbortable(f"a record was refused: {error!r}") from error
            sent.append((place, value, delivery))
        if drawn.below(2):
            return  # the commit waits for them
        await self._sleep()
        for place, value, delivery in sent:
            try:
                record = await delivery
            except QuorumlogError as error:
                self._note(error)
                continue
            offset = -1 if place[0] == DELETED else record.offset
            observed.history.records.acknowledge(value, offset, at=observed.now_ns())

    async def _commit(self, producer: AsyncTransactionalProducer, transaction: Transaction) -> None:
        observed = self._state.observed
        observed.history.request_commit(transaction, at=observed.now_ns())
        for _ in range(COMMITS_MAX):
            try:
                await producer.commit_transaction()
            except OutcomeUnknown as error:
                self._note(error)
            else:
                self._end(transaction, TransactionOutcome.COMMITTED)
                return
        raise ProducerUnusable(f"{transaction.name}: its commit has no answer")

    async def _abort(self, producer: AsyncTransactionalProducer, transaction: Transaction) -> None:
        self._end(transaction, TransactionOutcome.ABORTED)
        try:
            await producer.abort_transaction()
        except ProducerUnusable:
            raise
        except QuorumlogError as error:  # the next transaction repeats it
            self._note(error)

    async def _sleep(self) -> None:
        """Sleep as a zombie, by a drawn chance."""
        behaviour = self._state.behaviour
        if not self._state.is_calm and self._entropy.uniform(0, 1) < behaviour.sleeps:
            self._state.observed.counts["zombies"] += 1
            self.is_replaced = True
            await asyncio.sleep(self._entropy.uniform(*behaviour.sleep_ms) / 1000)

    def _end(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        observed = self._state.observed
        observed.history.end(transaction, outcome, at=observed.now_ns())
        observed.ended += 1
        observed.counts[outcome] += 1

    def _note(self, error: QuorumlogError) -> None:
        self._state.observed.errors[type(error).__name__] += 1
