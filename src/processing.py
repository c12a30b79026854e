"""Read-process-write loops with results that count exactly once.

A processor reads topics as a member of a consumer group. Each batch of records is one transaction:
the records that it sends and the group's offsets commit together. After a crash the next processor
with the same transactional id ends the open transaction, and continues at the committed offsets.

```python
from quorumlog.processing import Processor

with quorumlog.connect() as log:
    with Processor(log, "enrich-1", group="enrich", topics="in") as processor:
        for batch in processor:
            for record in batch:
                batch.send("out", record.value.upper(), key=record.key)
            batch.commit()
```
Run several processors of one group in parallel, each with a transactional id of its own. Results of
aborted transactions are not visible to readers with the isolation level "read_committed", the
default of this library's clients. Effects outside of the cluster are not part of the transaction.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from .clients.blocking import GroupConsumer, Log, TransactionalProducer
from .clients.blocking.producer import Delivery as BlockingDelivery
from .clients.consumer.assigned_partitions import Topics
from .clients.consumer.record import ConsumerRecord
from .clients.groups.group_consumer import AsyncGroupConsumer
from .clients.groups.membership import GroupStart
from .clients.log import AsyncLog
from .clients.producer.batches import Delivery
from .clients.producer.record_input import Content, HeadersIn
from .clients.producer.transactional_producer import AsyncTransactionalProducer
from .errors import InvalidRequest, InvalidTxnState, TransactionAbortable

ATTEMPTS_MAX: Final = 10
"""Default of `attempts_max`."""

_log = logging.getLogger(__name__)


class AbortLimit:
    """The limit of aborted transactions in a row."""

    def __init__(self, attempts_max: int) -> None:
        if attempts_max < 1:
            raise InvalidRequest(f"attempts_max is {attempts_max}: give 1 or more")
        self._max = attempts_max
        self._aborts = 0

    def committed(self) -> None:
        """Record a committed transaction."""
        self._aborts = 0

    def aborted(self, error: TransactionAbortable) -> None:
        """Record an aborted transaction; raise its error after too many in a row."""
        self._aborts += 1
        if self._aborts >= self._max:
            raise error
        _log.warning("processing.aborted attempt=%d error=%s", self._aborts, error)


def dead_letter_headers(record: ConsumerRecord, error: BaseException) -> list[tuple[str, Content]]:
    """Return the headers of a dead letter: those of the record, its place and the error."""
    return [
        *record.headers,
        ("dead_letter.topic", record.topic),
        ("dead_letter.partition", str(record.partition)),
        ("dead_letter.offset", str(record.offset)),
        ("dead_letter.error", f"{type(error).__name__}: {error}"),
    ]


def _not_ended() -> InvalidTxnState:
    return InvalidTxnState("the batch before was neither committed nor aborted; end each batch")


def _ended_before() -> InvalidTxnState:
    return InvalidTxnState(
        "the batch was committed or aborted before; if abort() raised, repeat it"
    )


def _no_dead_letter_topic() -> InvalidRequest:
    return InvalidRequest("reject: the processor has no dead letter topic; give dead_letter=TOPIC")


class ProcessorBatch:
    """The records of one transaction; returned by a `Processor`."""

    def __init__(self, processor: "Processor", records: Sequence[ConsumerRecord]) -> None:
        self.records = records
        self.is_ended = False
        self._is_aborted = False
        """The transaction is aborted; the batch ends once the consumer has sought to its committed
        offsets."""
        self._processor = processor

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def send(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: HeadersIn = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> BlockingDelivery:
        """Send a record in the transaction; see `Producer.send`."""
        return self._processor.producer.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
        )

    def reject(self, record: ConsumerRecord, error: BaseException) -> None:
        """Send a record that cannot be processed to the dead letter topic, in the transaction.

        Its headers name the record's place and the error. Raises InvalidRequest without the option
        `dead_letter`.
        """
        topic = self._processor.dead_letter
        if topic is None:
            raise _no_dead_letter_topic() from error
        self._processor.producer.send(
            topic,
            record.value,
            key=record.key,
            headers=dead_letter_headers(record, error),
            timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
        )

    def commit(self) -> bool:
        """Commit the results and the offsets; return True if they are committed.

        False: the transaction was aborted, for example because the group was rebalanced, and the
        next batch begins at the committed offsets. Raises TransactionAbortable after
        `attempts_max` aborts in a row, ProducerUnusable, and OutcomeUnknown without an answer:
        create another processor then.
        """
        self._check_open()
        processor = self._processor
        try:
            processor.producer.send_offsets(processor.consumer)
            processor.producer.commit_transaction()
        except TransactionAbortable as error:
            self.abort()
            processor.limit.aborted(error)
            return False
        self.is_ended = True
        processor.limit.committed()
        return True

    def abort(self) -> None:
        """Abort; the next batch begins at the committed offsets again. Repeat it after an error."""
        if self.is_ended:
            raise _ended_before()
        if not self._is_aborted:
            self._processor.producer.abort_transaction()
            self._is_aborted = True
        self._processor.consumer.seek_to_committed()
        self.is_ended = True

    def _check_open(self) -> None:
        if self.is_ended or self._is_aborted:
            raise _ended_before()


class Processor:
    """A read-process-write loop; see the module. For one thread."""

    def __init__(
        self,
        log: Log,
        transactional_id: str,
        *,
        group: str,
        topics: Topics,
        start: GroupStart = "earliest",
        dead_letter: str | None = None,
        idle_ms: int | None = None,
        attempts_max: int = ATTEMPTS_MAX,
        producer_settings: Mapping[str, Any] | None = None,
        consumer_settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`transactional_id` is of this processor alone, and the same after a restart. `start`
        applies to partitions without a committed offset. Iteration ends after `idle_ms` without a
        record (None: never). The settings are the fields of `ProducerConfig` and `ConsumerConfig`;
        a batch has at most `max_poll_records`."""
        self.dead_letter = dead_letter
        self.producer: TransactionalProducer = log.producer(
            transactional_id=transactional_id, **(producer_settings or {})
        )
        self.consumer: GroupConsumer = log.group_consumer(
            group, topics, start=start, **{**(consumer_settings or {}), "auto_commit": False}
        )
        self._idle_ms = idle_ms
        self.limit = AbortLimit(attempts_max)
        self._batch: ProcessorBatch | None = None  # the last one

    def __iter__(self) -> "Processor":
        return self

    def __next__(self) -> ProcessorBatch:
        """Wait for records and begin a transaction; raise InvalidTxnState if the batch before was
        not ended."""
        if self._batch is not None and not self._batch.is_ended:
            raise _not_ended()
        records = self.consumer.poll(timeout_ms=self._idle_ms)
        if not records:
            raise StopIteration
        self.producer.begin_transaction()
        self._batch = ProcessorBatch(self, records)
        return self._batch

    def close(self) -> None:
        """Abort an open transaction and leave the group. Idempotent."""
        try:
            self.producer.close()
        finally:
            self.consumer.close(commit=False)

    def __enter__(self) -> "Processor":
        is_entered = False
        try:
            self.producer.__enter__()  # ends the transaction before, with its pending offsets
            self.consumer.__enter__()
            is_entered = True
        finally:
            if not is_entered:
                self.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncProcessorBatch:
    """The records of one transaction; returned by an `AsyncProcessor`."""

    def __init__(self, processor: "AsyncProcessor", records: Sequence[ConsumerRecord]) -> None:
        self.records = records
        self.is_ended = False
        self._is_aborted = False
        """The transaction is aborted; the batch ends once the consumer has sought to its committed
        offsets."""
        self._processor = processor

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    async def send(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: HeadersIn = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Send a record in the transaction; see `AsyncProducer.send`."""
        return await self._processor.producer.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
        )

    async def reject(self, record: ConsumerRecord, error: BaseException) -> None:
        """Send a record that cannot be processed to the dead letter topic; see
        `ProcessorBatch.reject`."""
        topic = self._processor.dead_letter
        if topic is None:
            raise _no_dead_letter_topic() from error
        await self._processor.producer.send(
            topic,
            record.value,
            key=record.key,
            headers=dead_letter_headers(record, error),
            timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
        )

    async def commit(self) -> bool:
        """Commit the results and the offsets; see `ProcessorBatch.commit`."""
        self._check_open()
        processor = self._processor
        try:
            await processor.producer.send_offsets(processor.consumer)
            await processor.producer.commit_transaction()
        except TransactionAbortable as error:
            await self.abort()
            processor.limit.aborted(error)
            return False
        self.is_ended = True
        processor.limit.committed()
        return True

    async def abort(self) -> None:
        """Abort; the next batch begins at the committed offsets again. Repeat it after an error."""
        if self.is_ended:
            raise _ended_before()
        if not self._is_aborted:
            await self._processor.producer.abort_transaction()
            self._is_aborted = True
        await self._processor.consumer.seek_to_committed()
        self.is_ended = True

    def _check_open(self) -> None:
        if self.is_ended or self._is_aborted:
            raise _ended_before()


class AsyncProcessor:
    """A read-process-write loop on asyncio: `async for batch in processor`; see `Processor`."""

    def __init__(
        self,
        log: AsyncLog,
        transactional_id: str,
        *,
        group: str,
        topics: Topics,
        start: GroupStart = "earliest",
        dead_letter: str | None = None,
        idle_ms: int | None = None,
        attempts_max: int = ATTEMPTS_MAX,
        producer_settings: Mapping[str, Any] | None = None,
        consumer_settings: Mapping[str, Any] | None = None,
    ) -> None:
        """See `Processor` for the arguments."""
        self.dead_letter = dead_letter
        self.producer: AsyncTransactionalProducer = log.producer(
            transactional_id=transactional_id, **(producer_settings or {})
        )
        self.consumer: AsyncGroupConsumer = log.group_consumer(
            group, topics, start=start, **{**(consumer_settings or {}), "auto_commit": False}
        )
        self._idle_ms = idle_ms
        self.limit = AbortLimit(attempts_max)
        self._batch: AsyncProcessorBatch | None = None  # the last one

    def __aiter__(self) -> "AsyncProcessor":
        return self

    async def __anext__(self) -> AsyncProcessorBatch:
        """Wait for records and begin a transaction; raise InvalidTxnState if the batch before was
        not ended."""
        if self._batch is not None and not self._batch.is_ended:
            raise _not_ended()
        records = await self.consumer.poll(timeout_ms=self._idle_ms)
        if not records:
            raise StopAsyncIteration
        await self.producer.begin_transaction()
        self._batch = AsyncProcessorBatch(self, records)
        return self._batch

    async def close(self) -> None:
        """Abort an open transaction and leave the group. Idempotent."""
        try:
            await self.producer.close()
        finally:
            await self.consumer.close(commit=False)

    async def __aenter__(self) -> "AsyncProcessor":
        is_entered = False
        try:
            await self.producer.__aenter__()  # ends the transaction before
            await self.consumer.__aenter__()
            is_entered = True
        finally:
            if not is_entered:
                await self.close()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
