"""A transactional producer of the Python client, as one process of an application.

It commits, aborts, sleeps while its successor fences it, or ends with its machine. Its history has
the transactions and the results that the client reported.
"""

import asyncio
from typing import Final

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.transactional_producer import AsyncTransactionalProducer
from quorumlog.errors import (
    OutcomeUnknown,
    ProducerUnusable,
    QuorumlogError,
    TransactionAbortable,
    UnknownServerError,
)
from quorumlog.runtime import Runtime
from quorumlog.testing.checkers import Place, Transaction, TransactionOutcome

from ...checkers.violation import Violation
from ...cluster.options import Workload
from ..transactions.application import ApplicationState

RETRY_S: Final = 0.3
COMMITS: Final = 3  # requests of one commit, until its result is given up
FATAL: Final = (OutcomeUnknown, ProducerUnusable)
"""Errors after which the process creates another producer."""


class ClientIncarnation:
    """One process of an application."""

    def __init__(
        self, workload: Workload, state: ApplicationState, runtime: Runtime, number: int
    ) -> None:
        self.name = f"{state.plan.name}/{number}"
        self.is_replaced = False
        self.has_crashed = False
        self._workload = workload
        self._state = state
        self._runtime = runtime
        self._entropy = runtime.entropy.stream(f"application/{self.name}")
        self._transactions = 0

    async def run(self) -> None:
        """Run transactions until the application is over, or the producer cannot continue."""
        log = await self._connect()
        try:
            await self._produce(log)
        except FATAL as error:
            self._note(error)
        finally:
            self.is_replaced = True
            await log.close()

    async def _connect(self) -> AsyncLog:
        while True:
            log = make_log(
                self._runtime,
                ",".join(self._state.bootstrap),
                request_timeout_ms=self._workload.request_timeout_ms,
                call_timeout_ms=self._state.behaviour.delivery_timeout_ms,
            )
            try:
                await log.start()
            except QuorumlogError as error:
                self._note(error)
                await asyncio.sleep(RETRY_S)
            else:
                return log

    async def _produce(self, log: AsyncLog) -> None:
        workload, behaviour, plan = self._workload, self._state.behaviour, self._state.plan
        producer = log.producer(
            transactional_id=plan.transactional_id,
            transaction_timeout_ms=plan.timeout_ms,
            linger_ms=workload.linger_ms,
            batch_size=workload.batch_size,
            compression=workload.compression,
            delivery_timeout_ms=behaviour.delivery_timeout_ms,
        )
        while not self._state.is_over:
            try:
                await producer.begin_transaction()
            except FATAL:
                raise
            except QuorumlogError as error:
                self._note(error)
                await asyncio.sleep(RETRY_S)
                continue
            await self._transact(producer)
            await asyncio.sleep(self._entropy.uniform(*behaviour.think_ms) / 1000)
        await producer.close()

    # --- transactions --------------------------------------------------------------------------

    async def _transact(self, producer: AsyncTransactionalProducer) -> None:
        """Run one transaction; abort it after an error that is not fatal."""
        self._transactions += 1
        observed = self._state.observed
        transaction = observed.history.begin(
            f"{self.name}#{self._transactions}", self.name, at=observed.now_ns()
        )
        observed.counts["transactions"] += 1
        try:
            await self._write(producer, transaction)
            if self._entropy.uniform(0, 1) < self._state.behaviour.aborts:
                await self._abort(producer, transaction)
            else:
                await self._commit(producer, transaction)
        except FATAL:
            if transaction.commit_requested_at < 0:
                self._end(transaction, TransactionOutcome.ABORTED)
            raise
        except QuorumlogError as error:
            self._note(error)
            await self._abort(producer, transaction)

    async def _write(self, producer: AsyncTransactionalProducer, transaction: Transaction) -> None:
        drawn, state = self._entropy, self._state
        for _ in range(1 + drawn.below(3)):
            await self._step()
            sent: list[Delivery] = []
            for _ in range(1 + drawn.below(state.behaviour.records_max)):
                place = state.targets[drawn.below(len(state.targets))]
                sent.append(await self._send(producer, transaction, place))
            if drawn.below(2):  # otherwise the commit flushes
                for delivery in sent:
                    await delivery
        await self._step()

    async def _send(
        self, producer: AsyncTransactionalProducer, transaction: Transaction, place: Place
    ) -> Delivery:
        observed = self._state.observed
        value = observed.next_value(self.name, self._entropy.below(60))
        observed.history.send(transaction, place, value, at=observed.now_ns())
        topic, index = place
        delivery = await producer.send(topic, value, partition=index)

        def settle(delivery: Delivery) -> None:
            records, error = observed.history.records, delivery.exception()
            if error is None:
                records.acknowledge(value, delivery.result().offset, at=observed.now_ns())
            else:
                observed.errors[type(error).__name__] += 1
                records.fail(value, at=observed.now_ns(), is_certain=False)

        delivery.add_done_callback(settle)
        return delivery

    async def _commit(self, producer: AsyncTransactionalProducer, transaction: Transaction) -> None:
        """Commit; repeat a commit without an answer."""
        observed = self._state.observed
        for left in reversed(range(COMMITS)):
            observed.history.request_commit(transaction, at=observed.now_ns())
            try:
                await producer.commit_transaction()
            except TransactionAbortable:
                raise
            except OutcomeUnknown as error:
                self._note(error)
                if not left:
                    raise
            else:
                self._end(transaction, TransactionOutcome.COMMITTED)
                return

    async def _abort(self, producer: AsyncTransactionalProducer, transaction: Transaction) -> None:
        """Abort; the next transaction repeats an abort without an answer."""
        self._end(transaction, TransactionOutcome.ABORTED)
        try:
            await producer.abort_transaction()
        except FATAL:
            raise
        except QuorumlogError as error:
            self._note(error)

    def _end(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        observed = self._state.observed
        observed.history.end(transaction, outcome, at=observed.now_ns())
        observed.counts[outcome] += 1

    async def _step(self) -> None:
        """Sleep or crash, by drawn chances."""
        behaviour = self._state.behaviour
        drawn = self._entropy.uniform(0, 1)
        if self._state.is_calm:
            return
        if drawn < behaviour.sleeps:
            self._state.observed.counts["zombies"] += 1
            self.is_replaced = True
            await asyncio.sleep(self._entropy.uniform(*behaviour.sleep_ms) / 1000)
        elif drawn < behaviour.sleeps + behaviour.dies and not self.is_replaced:
            self._state.observed.counts["dead"] += 1
            self.has_crashed = True
            await asyncio.Event().wait()

    def _note(self, error: QuorumlogError) -> None:
        self._state.observed.errors[type(error).__name__] += 1
        if isinstance(error, UnknownServerError):
            raise Violation("NoFault", f"no fault explains {error!r}") from error
