"""Writers that use our Python client over gRPC, as an application does.

The client repeats requests by itself, and a writer records the results that it reports. They must
hold: after a commit every record is committed, after an abortable error none is.
"""

import asyncio
from typing import Final

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.transactional_producer import AsyncTransactionalProducer
from quorumlog.errors import (
    ClientClosed,
    OutcomeUnknown,
    ProducerUnusable,
    QuorumlogError,
    TransactionAbortable,
)
from quorumlog.testing.checkers import Place, Transaction, TransactionOutcome

from .plan import COMPACTED, DELETED, KEYS
from .python_application import PythonApplication

COMMITS_MAX: Final = 3  # requests of a commit with an unknown outcome
LINGER_MS: Final = 5


class PythonWriter(PythonApplication):
    """One process of a writing application."""

    async def _run(self, log: AsyncLog) -> None:
        """Run transactions until the application is over, or the producer is closed."""
        producer = await self._enter(lambda: self._make_producer(log))
        while not self._state.is_over and not producer.is_closed:
            await self._transact(producer)
            pause_ms = self._entropy.uniform(*self._state.behaviour.think_ms)
            await asyncio.sleep(pause_ms / 1000)

    def _make_producer(self, log: AsyncLog) -> AsyncTransactionalProducer:
        plan, behaviour = self._state.plan, self._state.behaviour
        return log.producer(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=plan.timeout_ms,
            delivery_timeout_ms=behaviour.delivery_timeout_ms,
            max_block_ms=behaviour.delivery_timeout_ms,
            linger_ms=LINGER_MS,
        )

    async def _transact(self, producer: AsyncTransactionalProducer) -> None:
        """Run one transaction; after an abortable error, abort it."""
        try:
            await producer.begin_transaction()
        except ProducerUnusable:
            raise
        except QuorumlogError as error:  # of the abort before, which is repeated
            self._note(error)
            return
        transaction = self._begin("python")
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
