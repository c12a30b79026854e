"""The blocking producer; see `blocking`.

`Producer.send` appends a record to the shared accumulator under a lock, without a switch of
threads. Only a new or a full batch wakes the loop.

CPU time of one record (100 B, calling thread, one quiet core of a server, CPython 3.11, compiled
codec): about 1.2 us without a key, 1.5 us with one:

| part | us | calls | |---|---|---| | `Accumulator.accept`: size, buffer space, queue, five columns
and counts | 0.38 (key: 0.63) | 1 (2) | | `Delivery`, the handle: one object, two fields | 0.19 | 1
| | the lock | 0.2 | 0 | | the wall clock | 0.14 | 1 | | `send`: arguments, and the check for
conversions | 0.3 | 1 |

`send_many` without keys needs 0.15 us a record: no handle, no clock, and columns grow by slices.
On the I/O thread a record costs its share of `encode_columns` (0.1 us) and of a request.

Thread-safe. Records of one thread keep their order within a partition; records of several threads
have no order among each other.
"""

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import (
    ClientClosed,
    InvalidRequest,
    QuorumlogError,
    TimedOut,
)
from ..config import ProducerConfig, make_config
from ..producer.batches import Batch, Delivered, DeliveredRange, OnDelivery
from ..producer.bulk import BulkOutcome, Span
from ..producer.partitioner import Partitioner
from ..producer.producer import AsyncProducer, ProducerStatistics, Threading
from ..producer.record_input import Bulk, Content, HeadersIn, make_bulk, size_bound
from .io_thread import STATE, IoThread, refuse_callbacks

if TYPE_CHECKING:
    from ..log import AsyncLog
    from ..producer.arrow_producer import ArrowSource
    from .log import Log

T = TypeVar("T")


class Delivery(Future[Delivered]):
    """The outcome of one record: a `concurrent.futures.Future` of `Delivered`.

    Cheap until a caller waits for it: two fields, without the state of a Future, which is created
    at its first use; the outcome is read from the batch. It cannot be cancelled.
    """

    def __init__(self, batch: Batch, index: int) -> None:
        # Without super().__init__(): its condition and lock would cost more than the rest of
        # `send`. __getattr__ calls it at the first use of the Future's state.
        self._batch = batch
        self._index = index

    def __getattr__(self, name: str) -> Any:
        """Initialise the Future's state at its first use."""
        if name.startswith("__") or name in ("_batch", "_index"):
            raise AttributeError(name)
        with STATE.delivery_lock:
            is_new = "_condition" not in self.__dict__
            if is_new:
                super().__init__()
        if is_new:
            self._batch.observe(self._index)
            self._batch.add_waiter(self._resolve)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None

    def done(self) -> bool:
        """Return True if the outcome is known."""
        return self._batch.is_done

    def result(self, timeout: float | None = None, *, timeout_ms: int | None = None) -> Delivered:
        """Wait up to `timeout_ms`; return the record's position, or raise its delivery error.

        Raises TimedOut if there is no outcome by then. A record that was not stored within
        `delivery_timeout_ms` raises TimedOut too, as its outcome: then `done()` is True. `timeout`,
        in seconds, is for code that takes any `concurrent.futures.Future`.
        """
        self._wait(timeout, timeout_ms)
        return self._batch.delivered(self._index)

    def exception(
        self, timeout: float | None = None, *, timeout_ms: int | None = None
    ) -> BaseException | None:
        """Wait like `result`; return the delivery error, or None if the record is stored."""
        self._wait(timeout, timeout_ms)
        return self._batch.error_of(self._index)

    def _wait(self, timeout_s: float | None, timeout_ms: int | None) -> None:
        if timeout_ms is not None:
            if timeout_s is not None:
                raise InvalidRequest("give timeout_ms, or timeout in seconds, not both")
            timeout_s = timeout_ms / 1000
        if not self._batch.is_done:
            refuse_callbacks()
            try:
                super().exception(timeout_s)
            except TimeoutError:
                limit = f"{timeout_s} s" if timeout_ms is None else f"{timeout_ms} ms"
                raise TimedOut(
                    f"the record has no outcome after {limit}; wait longer, or lower "
                    "delivery_timeout_ms",
                    topic=self._batch.queue.topic,
                ) from None

    def cancel(self) -> bool:
        """Return False: an accepted record cannot be cancelled."""
        return False

    def _resolve(self) -> None:
        try:
            self.set_result(self._batch.delivered(self._index))
        except QuorumlogError as error:
            self.set_exception(error)


class BulkDelivery(BulkOutcome[Delivery]):
    """The outcomes of records of `Producer.send_many`."""

    def result(self, *, timeout_ms: int | None = None) -> list[DeliveredRange]:
        """Wait up to `timeout_ms` for every outcome; return or raise as `ranges` does.

        Raises TimedOut if an outcome is not known by then.
        """
        self.observe()
        if not self.done():
            refuse_callbacks()
            ended = threading.Event()
            pending = deque(self.batches())

            def next_one() -> None:  # a waiter of one batch at a time
                while pending and pending[0].is_done:
                    pending.popleft()
                if pending:
                    pending[0].add_waiter(next_one)
                else:
                    ended.set()

            next_one()
            if not ended.wait(None if timeout_ms is None else timeout_ms / 1000):
                raise TimedOut(
                    f"some records have no outcome after {timeout_ms} ms; wait longer, or lower "
                    "delivery_timeout_ms"
                )
        return self.ranges()


class Producer:
    """Sends records; created by `Log.producer()`. Thread-safe.

    Leaving its `with` block flushes. `flush` and `close` raise a delivery failure that the
    application did not retrieve.
    """

    def __init__(
        self, log: "Log", partitioner: str | Partitioner, settings: Mapping[str, Any]
    ) -> None:
        self._log = log
        self._partitioner = partitioner
        self._config = make_config(ProducerConfig, settings)
        self._io: IoThread
        self._producer: AsyncProducer
        # The fast path: the lock, `Accumulator.accept`, the wall clock. One field, since other
        # threads send while it is replaced.
        self._fast_path: tuple[threading.Lock, Callable[..., Batch | None], Callable[[], int]]
        self._is_closed = False
        self._make()

    def send(
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
        """Append one record to the buffer, waiting for space if it is full; return a future.

        See `AsyncProducer.send` for the arguments and errors.
        """
        if (
            type(value) is bytes
            and (key is None or type(key) is bytes)
            and headers is None
            and timestamp_ms is None
            and (partition is None or type(partition) is int)
        ):  # fast path: nothing to convert
            lock, accept, wall_ms = self._fast_path
            try:
                with lock:
                    batch = accept(topic, key, value, wall_ms(), (), partition, on_delivery)
                    if batch is not None:
                        return Delivery(batch, batch.count - 1)
            except QuorumlogError:
                pass  # `_send` raises it again, and records it for a transaction
        return self._send(topic, value, key, headers, timestamp_ms, partition, on_delivery)

    def _send(
        self,
        topic: str,
        value: Content,
        key: Content,
        headers: HeadersIn,
        timestamp_ms: int | datetime | None,
        partition: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        """Convert the arguments to bytes, and wait for buffer space."""
        until_ms: int | None = None
        transaction: int | None = None
        while True:
            io, producer = self._io, self._producer
            try:
                with producer.lock:
                    transaction = producer.transactions.check(transaction, topic)
                    batch = producer.accept(
                        topic, value, key, headers, timestamp_ms, partition, on_delivery
                    )
                    if batch is not None:
                        return Delivery(batch, batch.count - 1)
                size = size_bound(value, key, headers)
                until_ms = io.wait(
                    producer.wait_acceptable(topic, size, partition, until_ms=until_ms)
                )
            except ClientClosed:
                if self._is_closed or not io.is_ended:
                    raise
                self._make()  # the thread ended for a fork
                until_ms = transaction = None

    def send_many(
        self,
        topic: str,
        values: Sequence[Content],
        *,
        keys: Sequence[Content] | None = None,
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
    ) -> "BulkDelivery":
        """Append many records and return the handle of their outcomes; see
        `AsyncProducer.send_many`."""
        bulk: Bulk | None = None
        spans: list[Span] = []
        transaction: int | None = None
        while True:
            io, producer = self._io, self._producer
            try:
                if bulk is None:
                    bulk = make_bulk(topic, values, keys, size_max=producer.config.max_request_size)
                    timestamp = producer.stamp(timestamp_ms)
                taken = spans[-1].end if spans else 0
                if taken == len(bulk.values):
                    return BulkDelivery(spans, taken, Delivery)
                with producer.lock:
                    transaction = producer.transactions.check(transaction, topic)
                    more = producer.accept_many(topic, bulk, taken, timestamp, partition)
                spans.extend(more)
                if not more:
                    io.wait(producer.make_room(topic, bulk, spans, timestamp, partition))
            except ClientClosed:
                if self._is_closed or not io.is_ended:
                    raise
                self._make()  # the thread ended for a fork
                transaction = None

    def send_arrow(
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
        """Send an Arrow source and return the offsets of its rows; see
        `AsyncProducer.send_arrow`."""
        return self._wait(
            lambda producer: producer.send_arrow(
                topic,
                data,
                key=key,
                value=value,
                timestamp=timestamp,
                headers=headers,
                partition=partition,
            )
        )

    def flush(self, *, timeout_ms: int | None = None) -> None:
        """Wait until every record sent so far has its outcome; see `AsyncProducer.flush`."""
        if not self._is_closed:
            self._wait(lambda producer: producer.flush(timeout_ms=timeout_ms))

    def statistics(self) -> ProducerStatistics:
        """Return a snapshot of the producer's counters."""
        return self._producer.statistics()

    def close(self, *, flush: bool = True, timeout_ms: int | None = None) -> None:
        """Flush, then stop; see `AsyncProducer.close`. Idempotent."""
        if not self._is_closed:
            self._io.refuse_callbacks()
            self._is_closed = True
            if not self._io.is_ended:
                self._io.wait(self._producer.close(flush=flush, timeout_ms=timeout_ms))

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close(flush=error is None or isinstance(error, Exception))
        except QuorumlogError as failure:
            if error is None:
                raise
            error.add_note(f"records were also not delivered: {failure}")

    def _wait(self, work: Callable[[AsyncProducer], Coroutine[Any, Any, T]]) -> T:
        if self._is_closed:
            raise ClientClosed("the producer is closed")
        if self._io.is_ended:
            self._make()
        return self._io.wait(work(self._producer))

    def _make(self) -> None:
        """Create the producer, or a new one after a fork; concurrent callers create one."""
        with STATE.lock:
            if not hasattr(self, "_io") or self._io.is_ended:
                self._make_one()

    def _make_one(self) -> None:
        io, log = self._log.opened()
        lock = STATE.fork_safe_lock()

        async def make() -> AsyncProducer:
            return self._open(log, Threading(lock, io.loop.call_soon_threadsafe))

        self._producer = producer = io.wait(make())
        self._fast_path = lock, producer.accumulator.accept, producer.wall_ms
        self._io = io  # last: other threads check it first

    def _open(self, log: "AsyncLog", threading: Threading) -> AsyncProducer:
        return log.add_producer(self._config, self._partitioner, threading)
