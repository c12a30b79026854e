"""Processors that use `quorumlog.processing` and our group consumer over gRPC.

Incarnations are members of one group: a zombie may still own partitions while its successor joins.
Each record counts exactly once, whatever the members own.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import (
    ClientClosed,
    OutcomeUnknown,
    ProducerUnusable,
    QuorumlogError,
    TransactionAbortable,
)
from quorumlog.processing import AsyncProcessor, AsyncProcessorBatch
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import Place, Transaction, TransactionHistory, TransactionOutcome

from ...checkers.violation import Violation
from .application import RETRY_S, ApplicationState

IDLE_MS: Final = 1_000
POLL_INTERVAL_MS: Final = 6_000  # then a sleeping member leaves its group
CLOSE_S: Final = 60.0  # bound for a client to close


class PythonProcessor:
    """One process of a processing application."""

    has_crashed = False

    def __init__(self, state: ApplicationState, runtime: Runtime, number: int) -> None:
        self.name = f"{state.plan.name}/{number}"
        self.is_replaced = False  # it slept, or has ended: its successor starts
        self._state = state
        self._runtime = runtime
        self._entropy: Entropy = runtime.entropy.stream(f"application/{self.name}")
        self._numbers = 0
        self._transactional_id = state.plan.transactional_id or f"{state.plan.name}-{number}"
        state.transactional_ids.append(self._transactional_id)

    async def run(self) -> None:
        """Process until the application is over, or this process was replaced or fails."""
        log = await self._connect()
        try:
            processor = await self._start(log)
            while not self._state.is_over and not self.is_replaced:
                await self._step(log, processor)
        except (ProducerUnusable, ClientClosed, TransactionAbortable) as error:
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

    async def _start(self, log: AsyncLog) -> AsyncProcessor:
        """Fence the previous incarnation and join the group, with retries."""
        plan, behaviour = self._state.plan, self._state.behaviour
        while True:
            try:
                processor = AsyncProcessor(
                    log,
                    self._transactional_id,
                    group=plan.group,
                    topics=[plan.source],
                    idle_ms=IDLE_MS,
                    producer_settings={
                        "transaction_timeout_ms": plan.timeout_ms,
                        "delivery_timeout_ms": behaviour.delivery_timeout_ms,
                        "max_block_ms": behaviour.delivery_timeout_ms,
                    },
                    consumer_settings={
                        "max_poll_records": behaviour.batch_max,
                        "max_poll_interval_ms": POLL_INTERVAL_MS,
                    },
                )
                return await processor.__aenter__()
            except ProducerUnusable:
                raise
            except QuorumlogError as error:
                self._note(error)
                await asyncio.sleep(RETRY_S)

    async def _step(self, log: AsyncLog, processor: AsyncProcessor) -> None:
        changes = self._state.observed.changes
        try:
            batch = await anext(processor)
        except StopAsyncIteration:
            if await self._is_at_end(log, processor):
                self._state.seen_changes = changes
        except (ProducerUnusable, ClientClosed):
            raise
        except QuorumlogError as error:
            self._note(error)
            await asyncio.sleep(RETRY_S)
        else:
            await self._process(batch)

    async def _process(self, batch: AsyncProcessorBatch) -> None:
        """Process a batch in one transaction: one result for each record."""
        observed, targets = self._state.observed, self._state.targets
        self._numbers += 1
        name = f"{self.name}#{self._numbers}"
        transaction = observed.history.begin(name, self.name, at=observed.now_ns())
        observed.counts["transactions"] += 1
        observed.counts["python processed"] += 1
        try:
            for record in batch:
                place = record.topic, record.partition
                transaction.reads.append((place, record.offset, record.value or b""))
                target = targets[self._entropy.below(len(targets))]
                value = observed.next_value(self.name, self._entropy.below(60))
                observed.history.send(transaction, target, value, at=observed.now_ns())
                await batch.send(target[0], value, partition=target[1])
            await self._sleep()
            if self._entropy.uniform(0, 1) < self._state.behaviour.aborts:
                await self._abort(batch, transaction)
                return
            observed.history.request_commit(transaction, at=observed.now_ns())
            if await batch.commit():
                self._end(transaction, TransactionOutcome.COMMITTED)
            else:
                self._end(transaction, TransactionOutcome.ABORTED)
        except (ProducerUnusable, ClientClosed):
            raise
        except OutcomeUnknown as error:
            raise ProducerUnusable(f"{name}: its commit has no answer") from error
        except QuorumlogError as error:
            self._note(error)
            await self._abort(batch, transaction)

    async def _abort(self, batch: AsyncProcessorBatch, transaction: Transaction) -> None:
        """Abort, with retries."""
        if transaction.outcome is TransactionOutcome.UNKNOWN:
            self._end(transaction, TransactionOutcome.ABORTED)
        while not batch.is_ended:
            try:
                await batch.abort()
            except (ProducerUnusable, ClientClosed):
                raise
            except QuorumlogError as error:
                self._note(error)
                await asyncio.sleep(RETRY_S)

    async def _sleep(self) -> None:
        """Sleep as a zombie, by a drawn chance."""
        behaviour = self._state.behaviour
        if not self._state.is_calm and self._entropy.uniform(0, 1) < behaviour.sleeps:
            self._state.observed.counts["zombies"] += 1
            self.is_replaced = True
            await asyncio.sleep(self._entropy.uniform(*behaviour.sleep_ms) / 1000)

    async def _is_at_end(self, log: AsyncLog, processor: AsyncProcessor) -> bool:
        """Return True if this member owns all input, and has processed it."""
        positions = processor.consumer.positions()
        try:
            ends = await log.list_offsets(self._state.plan.source)
        except QuorumlogError as error:
            self._note(error)
            return False
        found = {(place.topic, place.partition): offset for place, offset in positions.items()}
        return all(found.get(place, -1) >= ends[place[1]] for place in self._state.sources)

    def _end(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        observed = self._state.observed
        observed.history.end(transaction, outcome, at=observed.now_ns())
        observed.ended += 1
        observed.counts[outcome] += 1

    def _note(self, error: QuorumlogError) -> None:
        self._state.observed.errors[type(error).__name__] += 1


def check_processed(
    history: TransactionHistory,
    committed: Mapping[Place, list[tuple[int, bytes]]],
    application: str,
    sources: Iterable[Place],
) -> None:
    """Raise Violation unless each committed record of the input is in exactly one committed
    transaction of an application; its results are committed."""
    results = {value for found in committed.values() for _, value in found}
    by: dict[tuple[Place, int], str] = {}
    for one in history.transactions.values():
        if one.producer.startswith(f"{application}/") and not results.isdisjoint(one.sends):
            for place, offset, _ in one.reads:
                other = by.setdefault((place, offset), one.name)
                if other != one.name:
                    raise Violation(
                        "processed twice", f"{other} and {one.name} processed {place} at {offset}"
                    )
    for place in sources:
        for offset, _ in committed[place]:
            if (place, offset) not in by:
                raise Violation("not processed", f"{application} left {place} at {offset} out")
