"""Processors that use `quorumlog.processing` and our group consumer over gRPC.

Incarnations are members of one group: a zombie may still own partitions while its successor joins.
Each record counts exactly once, whatever the members own.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from quorumlog.clients.log import AsyncLog
from quorumlog.errors import ClientClosed, OutcomeUnknown, ProducerUnusable, QuorumlogError
from quorumlog.processing import AsyncProcessor, AsyncProcessorBatch
from quorumlog.testing.checkers import Place, Transaction, TransactionHistory, TransactionOutcome

from ...checkers.violation import Violation
from .python_application import PythonApplication

IDLE_MS: Final = 1_000
POLL_INTERVAL_MS: Final = 6_000  # then a sleeping member leaves its group


class PythonProcessor(PythonApplication):
    """One process of a processing application."""

    CLOSE_S = 60.0

    async def _run(self, log: AsyncLog) -> None:
        """Process until the application is over, or this process was replaced."""
        processor = await self._enter(lambda: self._make_processor(log))
        while not self._state.is_over and not self.is_replaced:
            await self._step(log, processor)

    def _make_processor(self, log: AsyncLog) -> AsyncProcessor:
        plan, behaviour = self._state.plan, self._state.behaviour
        return AsyncProcessor(
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
            await self._back_off(error)
        else:
            await self._process(batch)

    async def _process(self, batch: AsyncProcessorBatch) -> None:
        """Process a batch in one transaction: one result for each record."""
        observed, targets = self._state.observed, self._state.targets
        transaction = self._begin("python processed")
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
            raise ProducerUnusable(f"{transaction.name}: its commit has no answer") from error
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
                await self._back_off(error)

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
