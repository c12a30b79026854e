"""The asyncio producer: records are batched, and each has a typed outcome.

The accumulator buffers at most `buffer_size` bytes until a batch is full or has lingered. The
sender sends batches to the partition leaders and retries until the delivery deadline.

Retries: a request of unknown outcome (a broken stream, a timeout) is sent again. An idempotent
producer, the default, gives its batches sequence numbers, by which the leader recognises
duplicates: each batch is stored once, with up to five per partition in flight (see `sequences`).
Otherwise one request per partition is in flight, and a retry may store its records twice, in
order. Within a partition a retried batch is sent before newer ones.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from ...errors import (
    ClientClosed,
    InvalidTxnState,
    NotDelivered,
    Overloaded,
    QuorumlogError,
    TimedOut,
)
from ...runtime import Scope
from ..config import ProducerConfig
from ..connection import Connection
from .accumulator import Accumulator
from .arrow_producer import ArrowColumns, send_arrow
from .batches import (
    ENCODED_OVERHEAD,
    OBJECT_OVERHEAD,
    Batch,
    Delivered,
    DeliveredRange,
    Delivery,
    OnDelivery,
    settled,
)
from .bulk import AsyncBulkDelivery, Span, accept_many, refused
from .incomplete_batches import IncompleteBatches
from .outcomes import BatchOutcomes, Failures
from .partitioner import Partitioner, resolve_partitioner
from .ready_queues import ReadyQueues
from .record_input import (
    Bulk,
    Content,
    HeadersIn,
    as_bytes,
    as_headers,
    as_int,
    as_timestamp_ms,
    make_bulk,
    size_bound,
)
from .sender import Sender

if TYPE_CHECKING:
    from .arrow_producer import ArrowSource


class Threading(NamedTuple):
    """The lock and the scheduling for a producer that other threads append to."""

    lock: AbstractContextManager[object]  # guards the accumulator
    on_loop: Callable[[Callable[[], None]], object]  # schedules a callback on the loop's thread


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatistics:
    """A snapshot of a producer; counters are since its creation."""

    buffered_records: int  # accepted records without an outcome
    buffered_bytes: int  # their share of `buffer_size`
    in_flight_records: int  # those in a request without a response
    delivered_records: int
    failed_records: int
    retries: int  # batches put back for a retry
    splits: int  # batches split because they were too large
    requests: int  # acknowledged parts of requests, one per partition


class TransactionCount:
    """The transactions that a producer began: records that wait must not enter a later one."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = 0

    def check(self, number: int | None, topic: str) -> int:
        """Return the number of the transaction of waiting records; None: of the last one. Raise
        InvalidTxnState if a later one has begun."""
        if number not in (None, self.begun):
            raise InvalidTxnState(
                "the transaction of the records has ended; send them in one transaction",
                topic=topic,
            )
        return self.begun


class AsyncProducer:
    """Sends records; created by `AsyncLog.producer()`. Not thread-safe: one event loop.

    ```python
    async with log.producer() as producer:
        delivery = await producer.send("flights", key=b"UA", value=b"...")
        print((await delivery).offset)
    ```
    Leaving the block flushes. A delivery failure that the application did not retrieve (by
    awaiting, a callback, `result` or `exception`) is raised by `flush` and `close`, as one
    NotDelivered with the records.
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ProducerConfig,
        *,
        partitioner: str | Partitioner = "murmur2",
        threading: Threading | None = None,
        on_close: Callable[["AsyncProducer"], None] | None = None,
    ) -> None:
        self.config = config
        self.connection = connection
        self.lock: AbstractContextManager[object] = threading.lock if threading else nullcontext()
        self.is_closed = False
        self._clock = connection.runtime.clock
        self.wall_ms = self._clock.wall_ms
        on_work = self._wake if threading is None else lambda: threading.on_loop(self._wake)
        self._on_loop = _call_soon if threading is None else threading.on_loop
        self._failures = (
            Failures()
            if config.transactional_id is None
            else Failures(lambda: self._on_loop(self._fail_refused))
        )
        self._incomplete = IncompleteBatches(config, self._failures, on_work)
        self._ready = ready = ReadyQueues(self._incomplete, on_work)
        self.accumulator = Accumulator(
            config,
            self._incomplete,
            ready,
            entropy=connection.runtime.entropy.stream("sticky partitions"),
            partitioner=resolve_partitioner(partitioner),
        )
        self.transactions = TransactionCount()
        self._append: Callable[..., Batch | None] = self.accumulator.accept
        self._on_close = on_close
        self._outcomes = BatchOutcomes(ready, self._clock, self.lock)
        self._sender = Sender(
            connection,
            config,
            accumulator=self.accumulator,
            incomplete=self._incomplete,
            ready=ready,
            outcomes=self._outcomes,
            scope=scope,
            lock=self.lock,
        )
        self._is_ending = False  # close() fails the remaining records
        self._ended = asyncio.Event()  # all records have an outcome
        self._coordinator = scope.spawn(self._sender.run(), name="producer")
        self._coordinator.add_done_callback(self._on_interrupted)

    # --- sending -----------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: HeadersIn = None,
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Append one record to the buffer and return the handle of its outcome; await it to know
        that the record is stored.

        Waits for buffer space and for the topic's metadata if necessary. Without a partition the
        partitioner chooses, by default by the key (murmur2), or, without a key, one partition per
        batch. `timestamp_ms` is milliseconds since 1970 or an aware datetime (default: now).
        `on_delivery(delivered, error)` is called once, see `OnDelivery`.

        Raises UnknownTopicOrPartition, MessageTooLarge, InvalidTimestamp, PartitionerFailed.
        Raises Overloaded if the buffer stays full for `max_block_ms`, or at once with
        on_full="raise". After an error the record was not accepted; the end of a transaction, and
        `seal` of a staged write, raise the error too.
        """
        batch = self.accept(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        deadline_ms, transaction = None, self.transactions.begun
        while batch is None:
            size = size_bound(value, key, headers)
            deadline_ms = await self.wait_acceptable(topic, size, partition, until_ms=deadline_ms)
            self.transactions.check(transaction, topic)
            batch = self.accept(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        return Delivery(batch, batch.count - 1)

    def send_nowait(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: HeadersIn = None,
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send without waiting; see `send`.

        Raises Overloaded if the buffer is full or the topic's metadata is missing (`await
        producer.wait_acceptable(topic)` first).
        """
        batch = self.accept(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        if batch is None:
            if partition is not None and self.accumulator.has_topic(topic):
                self.accumulator.queue(topic, partition)  # raises for one that does not exist
            raise self._overloaded(topic)
        return Delivery(batch, batch.count - 1)

    async def send_and_wait(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: HeadersIn = None,
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
    ) -> Delivered:
        """Send one record and return its stored position."""
        delivery = await self.send(
            topic,
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            partition=partition,
        )
        return await delivery

    async def send_many(
        self,
        topic: str,
        values: Sequence[Content],
        *,
        keys: Sequence[Content] | None = None,
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
    ) -> AsyncBulkDelivery:
        """Append many records, one per value, and return the handle of their outcomes.

        Await the handle for the ranges of offsets, or index it for a record's own handle. Much
        cheaper per record than `send` if all go to one partition (no keys, or `partition` given).
        `keys`, if given, has one key per value. Invalid input is refused as a whole. If the buffer
        stays full after a part was accepted, the remaining records fail with Overloaded and
        nothing is raised here. In a transaction or a staged write, its end raises the error.
        """
        bulk = make_bulk(topic, values, keys, size_max=self.config.max_request_size)
        timestamp = self.stamp(timestamp_ms)
        spans: list[Span] = []
        transaction = self.transactions.begun
        while (taken := spans[-1].end if spans else 0) < len(bulk.values):
            self.transactions.check(transaction, topic)
            more = self.accept_many(topic, bulk, taken, timestamp, partition)
            spans.extend(more)
            if not more and not await self.make_room(topic, bulk, spans, timestamp, partition):
                break
        return AsyncBulkDelivery(spans, len(bulk.values), Delivery)

    async def send_arrow(
        self,
        topic: str,
        data: "ArrowSource",
        *,
        key: str | None = None,
        value: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        partition: int | str | None = None,
    ) -> list[DeliveredRange]:
        """Send the rows of an Arrow source; return their offset ranges, sorted by partition, once
        stored.

        `data` is a pyarrow Table, RecordBatch or RecordBatchReader, an iterable of RecordBatches,
        or an object with the Arrow C stream (a pandas or polars frame). It is read as buffer space
        permits, so an endless source takes bounded memory.

        The other arguments name columns:

        - `key` and `value` are binary or text; other types are converted to text. Without `value`
          each row becomes one JSON object of the unnamed columns. A null value is a record without
          a value.
        - `timestamp` is an Arrow timestamp or milliseconds since 1970; a null is now.
        - `headers` is a list of structs {key: string, value: binary}.
        - `partition` is a number for all rows, or the name of a column of numbers. Without it, and
          for a null, the partitioner chooses: by default rows with equal keys go to one partition
          in order, and rows without a key are spread in runs. A callable runs for each row, which
          is slow.

        An error before the first row is queued is raised as it is, later ones as RowsNotDelivered
        with the outcome of every row. Reading ends at the first failure.
        """
        column, number = (partition, None) if isinstance(partition, str) else (None, partition)
        columns = ArrowColumns(key, value, timestamp, headers, column)
        return await send_arrow(self, topic, data, columns=columns, partition=number)

    async def flush(self, *, timeout_ms: int | None = None) -> None:
        """Send all buffered records and wait until each has its outcome.

        Raises NotDelivered with the failures that the application did not retrieve, each once, and
        TimedOut after `timeout_ms`; without it the delivery deadlines bound the wait.
        """
        with self.lock:
            batches = self.accumulator.close_all()
        await self._wait_settled(
            batches, None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        )
        self._raise_unobserved()

    async def close(self, *, flush: bool = True, timeout_ms: int | None = None) -> None:
        """Flush, then stop. Idempotent.

        Without `flush`, and after `timeout_ms`, the remaining records fail with ClientClosed.
        Raises NotDelivered as `flush` does, also for records that the timeout cut off; without
        `flush` nothing is raised.
        """
        self._refuse()
        try:
            if flush:
                await self._flush_at_close(timeout_ms)
        finally:
            await self._end()
        failure = self._take_failures()
        if flush and failure is not None:
            raise failure

    async def _end(self) -> None:
        """End the tasks and fail the remaining records, also if this task is cancelled."""
        if self._is_ending:
            await self._ended.wait()  # a concurrent close
            return
        self._is_ending = True
        self._coordinator.cancel()
        try:
            await self._sender.close()
        finally:
            self._give_up("the producer was closed before the record was delivered")
            if self._on_close is not None:
                self._on_close(self)
            self._ended.set()

    async def _flush_at_close(self, timeout_ms: int | None) -> None:
        try:
            await self.flush(timeout_ms=timeout_ms)
        except TimedOut:
            return  # `close` fails the remaining records and raises for all

    def statistics(self) -> ProducerStatistics:
        """Return a snapshot of the producer's counters."""
        with self.lock:
            records, in_flight, held = self._incomplete.statistics()
        outcomes = self._outcomes
        return ProducerStatistics(
            buffered_records=records,
            buffered_bytes=held,
            in_flight_records=in_flight,
            delivered_records=outcomes.delivered,
            failed_records=outcomes.failed,
            retries=outcomes.retries,
            splits=outcomes.splits,
            requests=outcomes.requests,
        )

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close(flush=error is None or isinstance(error, Exception))
        except QuorumlogError as failure:
            if error is None:
                raise
            error.add_note(f"records were also not delivered: {failure}")

    # --- for the blocking producer and send_arrow --------------------------------------------

    def accept(
        self,
        topic: str,
        value: Content,
        key: Content,
        headers: HeadersIn,
        timestamp_ms: int | datetime | None,
        partition: int | None,
        on_delivery: OnDelivery | None = None,
    ) -> Batch | None:
        """Append one record and return its batch, of which it is the last record.

        Returns None if `wait_acceptable` is needed first. The caller holds the lock, if there is
        one. The cost of a record is listed in `blocking.producer`.
        """
        self._check_open()
        if value is not None and type(value) is not bytes:
            value = as_bytes(value, "value")
        if key is not None and type(key) is not bytes:
            key = as_bytes(key, "key")
        timestamp_ms = self.stamp(timestamp_ms)
        if partition is not None and type(partition) is not int:
            partition = as_int(partition, "a partition is")
        taken = () if headers is None else as_headers(headers)
        try:
            return self._append(topic, key, value, timestamp_ms, taken, partition, on_delivery)
        except QuorumlogError as error:
            self._failures.refuse(error)
            raise

    def stamp(self, timestamp_ms: int | datetime | None) -> int:
        """Return a record's timestamp, by default now."""
        return self.wall_ms() if timestamp_ms is None else as_timestamp_ms(timestamp_ms)

    def accept_many(
        self, topic: str, bulk: Bulk, first: int, timestamp_ms: int, partition: int | None
    ) -> list[Span]:
        """Append records of `bulk` from `first`, like `accept`."""
        self._check_open()
        if partition is not None:
            partition = as_int(partition, "a partition is")
        return accept_many(
            self.accumulator,
            self._failures,
            topic,
            bulk,
            first=first,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )

    async def make_room(
        self,
        topic: str,
        bulk: Bulk,
        spans: list[Span],
        timestamp_ms: int,
        partition: int | None,
    ) -> bool:
        """Wait until more records of `bulk` may be appended.

        On an error raise it if `spans` is empty; otherwise fail the remaining records and return
        False.
        """
        transaction = self.transactions.begun
        try:
            await self.wait_acceptable(topic, bulk.size_max + OBJECT_OVERHEAD, partition)
        except QuorumlogError as error:
            if not spans:
                raise
            end = len(bulk.values)
            rest = refused(topic, bulk, spans[-1].end, end, timestamp_ms, error)
            with self.lock:
                if transaction == self.transactions.begun:
                    self._failures.add_refused(rest.batch)
            spans.append(rest)
            return False
        return True

    def _fail_refused(self) -> None:
        """Handle the refusal of a record like a failed batch."""
        if self._failures.refusal is not None:
            self._outcomes.on_failure(self._failures.refusal)

    async def wait_acceptable(
        self,
        topic: str,
        size: int = 1,
        partition: int | None = None,
        *,
        until_ms: int | None = None,
    ) -> int:
        """Wait until `accept` may take a record of `size` bytes.

        Raises UnknownTopicOrPartition, and Overloaded if the buffer stays full for `max_block_ms`,
        or is full with on_full="raise". Returns the deadline: pass it as `until_ms` to a repeated
        wait for the same record.
        """
        if until_ms is None:
            until_ms = self._block_until_ms()
        transaction = self.transactions.begun
        try:
            await self.ensure_topic(topic, partition=partition, until_ms=until_ms)
            if partition is not None:
                self.accumulator.queue(topic, partition)  # raises
            await self._wait_room(topic, size, until_ms)
        except QuorumlogError as error:
            with self.lock:
                if transaction == self.transactions.begun:
                    self._failures.refuse(error)
            raise
        return until_ms

    async def ensure_topic(
        self, topic: str, *, partition: int | None = None, until_ms: int | None = None
    ) -> None:
        """Look up the topic's partitions unless they are known; raise UnknownTopicOrPartition.

        Look again for a `partition` that is unknown; it may not exist then either.
        """
        if not isinstance(topic, str):
            raise TypeError(f"a topic's name is a str, not {type(topic).__name__}")
        if until_ms is None:
            until_ms = self._block_until_ms()
        if not self.accumulator.has_topic(topic):
            self._sender.admit(await self.connection.layout(topic, deadline_ms=until_ms))
        count = self.accumulator.topic_queues(topic).partition_count
        if partition is not None and partition >= count:  # the topic may have grown
            self._sender.admit(await self.connection.refresh(topic, deadline_ms=until_ms))

    async def send_encoded(
        self,
        topic: str,
        partition: int,
        encoded: bytes,
        count: int,
        *,
        transaction: int,
    ) -> Batch:
        """Queue a record batch of `count` records, waiting for buffer space.

        Raises InvalidTxnState if the transaction with this number is not the last one.
        """
        size, until_ms = len(encoded) + count * ENCODED_OVERHEAD, self._block_until_ms()
        while True:
            with self.lock:
                self._check_open()
                self.transactions.check(transaction, topic)
                if self._incomplete.has_room(size):
                    return self.accumulator.add_encoded(topic, partition, encoded, count)
            await self._wait_room(topic, size, until_ms)

    def _block_until_ms(self) -> int:
        return self._clock.now_ms() + self.config.max_block_ms

    async def _wait_room(self, topic: str, size: int, until_ms: int) -> None:
        """Wait for buffer space, or until the producer is closed."""
        while not self.is_closed:
            with self.lock:
                if self._incomplete.has_room(size):
                    return
                self.accumulator.close_all()  # stop lingering: the space is needed
            if self.config.on_full == "raise":
                raise self._overloaded(topic)
            try:
                async with asyncio.timeout(max(0, until_ms - self._clock.now_ms()) / 1000):
                    await self._outcomes.wait_change()
            except TimeoutError:
                raise self._overloaded(topic) from None

    def _on_interrupted(self, coordinator: "asyncio.Task[None]") -> None:
        """Fail the remaining records if the client's tasks end without close().

        The loop ends, or a task of the client has failed.
        """
        if not self._is_ending:
            self._refuse()
            self._give_up("the client ended before the record was delivered")

    def _check_not_closed(self) -> None:
        if self.is_closed:
            raise ClientClosed("the producer is closed")

    _check_open = _check_not_closed
    """Raise unless records can be appended; an alias saves a call for each record."""

    def _refuse(self) -> None:
        with self.lock:
            self.is_closed = True
            self.accumulator.refuse()

    def _give_up(self, reason: str) -> None:
        """Fail the remaining records and end the waits for buffer space."""
        with self.lock:
            left = self._incomplete.take_all()
        self._outcomes.fail(left, ClientClosed(reason))

    def _drop_waiting(self, error: QuorumlogError) -> None:
        """Accept and send nothing more; fail the batches that are not in flight."""
        with self.lock:
            self.accumulator.refuse()
            self._ready.is_halted = True
            batches = self._incomplete.withdraw_waiting()
        if batches:
            self._outcomes.fail(batches, error)

    async def _wait_settled(self, batches: Sequence[Batch], deadline_ms: int | None) -> None:
        """Wait until all batches have an outcome; raise TimedOut at the deadline."""
        left_ms = None if deadline_ms is None else max(0, deadline_ms - self._clock.now_ms())
        try:
            async with asyncio.timeout(None if left_ms is None else left_ms / 1000):
                for batch in batches:
                    await settled(batch)
        except TimeoutError:
            waiting = sum(batch.count for batch in batches if not batch.is_done)
            name = self.config.transactional_id
            raise TimedOut(
                f"producer{'' if name is None else ' ' + name}: {waiting} records have no outcome"
                f" after {left_ms} ms; repeat the call"
            ) from None

    def _wake(self) -> None:
        self._sender.wake()

    def _overloaded(self, topic: str) -> Overloaded:
        if not self.accumulator.has_topic(topic):
            return Overloaded("the topic's partitions are not known yet", topic=topic)
        return Overloaded(
            f"{self._incomplete.buffered} bytes of records are not acknowledged, "
            f"buffer_size is {self.config.buffer_size}: send slower or raise it",
            topic=topic,
        )

    def _raise_unobserved(self) -> None:
        failure = self._take_failures()
        if failure is not None:
            raise failure

    def _take_failures(self) -> NotDelivered | None:
        with self.lock:
            return self._failures.take()


def _call_soon(call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(call)
