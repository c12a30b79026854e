"""The producer: records in, batches out, a typed outcome for each record.

Records wait in the accumulator, at most `buffer_size` bytes of them, until their batch is full or
has lingered; the sender brings batches to the partitions' leaders, one request at a time for each
partition, and repeats what may be repeated until the delivery deadline.

What repeats mean: a request whose outcome is unknown (a broken stream, a time-out) is sent again,
and if the first one had been stored after all, its records are stored twice, in order. Within one
partition nothing overtakes: a repeated batch goes before everything younger.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias

from ..errors import Overloaded, QuorumlogError, Stopping, TimedOut
from ..runtime import Scope
from .accumulator import Accumulator, headers_size
from .arrow_producer import Columns, DeliveredRange, send_arrow
from .batches import RECORD_OVERHEAD, Batch, Delivered, Delivery, Headers, settled
from .config import ProducerConfig
from .connection import Connection
from .partitioner import KeyPartitioner, Partitioner
from .sender import Sender

if TYPE_CHECKING:
    from .arrow_producer import ArrowSource

Content: TypeAlias = bytes | bytearray | memoryview | str | None
"""What a key or a value may be; text is sent as UTF-8."""

HeadersIn: TypeAlias = Mapping[str, Content] | Sequence[tuple[str, Content]] | None


class Threading(NamedTuple):
    """What a producer needs when other threads than the loop's give it records."""

    lock: AbstractContextManager[object]  # held around every use of the accumulator
    on_loop: Callable[[Callable[[], None]], object]  # runs a callback on the loop's thread, soon


class AsyncProducer:
    """Sends records; made by `AsyncLog.producer()`. For one loop's thread.

    ```python
    async with log.producer() as producer:
        delivery = await producer.send("flights", key=b"UA", value=b"...")
        topic, partition, offset = await delivery
    ```
    Leaving the block flushes. A failure that nobody looked at is raised by `flush` and `close`, so
    that no record is lost in silence.
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ProducerConfig,
        *,
        partitioner: Partitioner | None = None,
        threading: Threading | None = None,
        on_close: Callable[["AsyncProducer"], None] | None = None,
    ) -> None:
        self.config = config
        self.connection = connection
        self.lock: AbstractContextManager[object] = threading.lock if threading else nullcontext()
        self.is_closed = False
        self._clock = connection.runtime.clock
        self.accumulator = Accumulator(
            config,
            entropy=connection.runtime.entropy.stream("sticky partitions"),
            partitioner=partitioner or KeyPartitioner(),
            on_work=self._wake if threading is None else lambda: threading.on_loop(self._wake),
        )
        self._on_close = on_close
        self._sender = Sender(connection, self.accumulator, config, scope=scope, lock=self.lock)
        self._is_ending = False  # close() gives what is left its outcome
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
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Take one record, waiting for room and for the topic's metadata if need be, and return
        the handle of its outcome: await that to know that it is stored.

        Without a partition the key decides (murmur2); without a key a partition is kept until its
        batch is full. `timestamp_ms` is milliseconds since 1970, now by default. Raises
        UnknownTopicOrPartition, MessageTooLarge, and Overloaded when the buffer is still full
        after `block_ms_max`.
        """
        batch = self.accept(topic, value, key, headers, timestamp_ms, partition)
        while batch is None:
            await self.wait_acceptable(topic, size_bound(value, key, headers))
            batch = self.accept(topic, value, key, headers, timestamp_ms, partition)
        return Delivery(batch, batch.count - 1)

    def send_nowait(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: HeadersIn = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Like `send`, without waiting: raises Overloaded when the buffer is full or the topic's
        partitions are not known yet (`await producer.wait_acceptable(topic)` first)."""
        batch = self.accept(topic, value, key, headers, timestamp_ms, partition)
        if batch is None:
            raise self._overloaded(topic)
        return Delivery(batch, batch.count - 1)

    async def send_and_wait(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: HeadersIn = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivered:
        """Send one record and return where it is stored."""
        delivery = await self.send(
            topic,
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            partition=partition,
        )
        return await delivery

    async def send_arrow(
        self,
        topic: str,
        data: "ArrowSource",
        *,
        key: str | None = None,
        value: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        partition: int | None = None,
    ) -> list[DeliveredRange]:
        """Send the rows of an Arrow table, batch or reader, and return where they are stored.

        The arguments name columns. `key` and `value` are binary or text (other types are sent as
        their text); without `value` each row becomes one JSON object of the columns that are not
        named. `timestamp` is an Arrow timestamp or milliseconds since 1970; `headers` a list of
        structs {key: string, value: binary}. Rows with equal keys go to one partition in order;
        without `key` (or with a null key) rows are spread in runs. The result has one entry for
        each run of offsets, by partition.

        Returns when all are stored; raises the first error otherwise.
        """
        columns = Columns(key, value, timestamp, headers)
        return await send_arrow(self, topic, data, columns=columns, partition=partition)

    async def flush(self, *, timeout_ms: int | None = None) -> None:
        """Send what waits and return when everything sent so far has its outcome.

        Raises the first failure that nobody has looked at, and TimedOut after `timeout_ms`; without
        one the records' delivery deadlines bound the wait.
        """
        with self.lock:
            batches = self.accumulator.close_all()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                for batch in batches:
                    await settled(batch)
        except TimeoutError:
            waiting = sum(batch.count for batch in batches if not batch.is_done)
            raise TimedOut(f"{waiting} records have no outcome after {timeout_ms} ms") from None
        self._raise_unobserved()

    async def close(self, *, flush: bool = True) -> None:
        """Flush, then stop; without `flush` what waits fails with Stopping. Repeating is fine."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            if flush:
                await self.flush()
        finally:
            self._is_ending = True
            self._coordinator.cancel()
            await self._sender.close()
            self._give_up("the producer was closed before the record was delivered")
            if self._on_close is not None:
                self._on_close(self)

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
            error.add_note(f"records were not delivered either: {failure}")

    # --- shared with the blocking face and with send_arrow -----------------------------------

    def accept(
        self,
        topic: str,
        value: Content,
        key: Content,
        headers: HeadersIn,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> Batch | None:
        """Take one record and return its batch, the record being the last of it; None when
        `wait_acceptable` is needed first. The caller holds the lock, if there is one."""
        if self.is_closed:
            raise Stopping("the producer is closed")
        if value is not None and type(value) is not bytes:
            value = as_bytes(value, "value")
        if key is not None and type(key) is not bytes:
            key = as_bytes(key, "key")
        if timestamp_ms is None:
            timestamp_ms = self._clock.wall_ms()
        elif type(timestamp_ms) is not int:
            timestamp_ms = as_int(timestamp_ms, "timestamp_ms is milliseconds since 1970,")
        if partition is not None and type(partition) is not int:
            partition = as_int(partition, "a partition is")
        taken = () if headers is None else as_headers(headers)
        return self.accumulator.accept(topic, key, value, timestamp_ms, taken, partition)

    async def wait_acceptable(self, topic: str, size: int = 1) -> None:
        """Return when what kept `accept` from taking a record of `size` bytes may have passed.

        Raises UnknownTopicOrPartition, and Overloaded when the buffer stays full for
        `block_ms_max`.
        """
        if self.accumulator.knows(topic):
            await self._wait_room(topic, size)
        else:
            await self.know(topic)

    async def know(self, topic: str) -> None:
        """Look the topic's partitions up unless they are known; raises UnknownTopicOrPartition."""
        if not isinstance(topic, str):
            raise TypeError(f"a topic's name is a str, not {type(topic).__name__}")
        if not self.accumulator.knows(topic):
            deadline_ms = self._clock.now_ms() + self.config.block_ms_max
            layout = await self.connection.layout(topic, deadline_ms=deadline_ms)
            with self.lock:
                self.accumulator.admit(
                    topic,
                    len(layout.partitions),
                    message_bytes_max=layout.message_bytes_max,
                )

    async def send_encoded(self, topic: str, partition: int, encoded: bytes, count: int) -> Batch:
        """Queue a record batch of `count` records, waiting for room."""
        while True:
            if self.is_closed:
                raise Stopping("the producer is closed")
            with self.lock:
                if self.accumulator.has_room(len(encoded)):
                    return self.accumulator.add_encoded(topic, partition, encoded, count)
            await self._wait_room(topic, len(encoded))

    async def deliver(self, batches: Sequence[Batch]) -> None:
        """Return when all are stored; raises the first error of any of them."""
        for batch in batches:
            batch.is_observed = True
        for batch in batches:
            await settled(batch)
        for batch in batches:
            if batch.error is not None:
                raise batch.error

    async def _wait_room(self, topic: str, size: int) -> None:
        with self.lock:
            if self.accumulator.has_room(size):
                return
            self.accumulator.close_all()  # what lingers goes now: its room is needed
        try:
            async with asyncio.timeout(self.config.block_ms_max / 1000):
                await self._sender.wait_change()
        except TimeoutError:
            raise self._overloaded(topic) from None

    def _on_interrupted(self, coordinator: "asyncio.Task[None]") -> None:
        """The client's tasks end without close(): the loop does, or one of them has failed."""
        if not self._is_ending:
            self.is_closed = True
            self._give_up("the client ended before the record was delivered")

    def _give_up(self, reason: str) -> None:
        """Nobody will send what is left: give it that outcome, and end the waits for room."""
        with self.lock:
            left = self.accumulator.take_all()
        for batch in left:
            batch.fail(Stopping(reason))
        self._sender.announce()

    def _wake(self) -> None:
        self._sender.wake()

    def _overloaded(self, topic: str) -> Overloaded:
        if not self.accumulator.knows(topic):
            return Overloaded("the topic's partitions are not known yet", topic=topic)
        return Overloaded(
            f"{self.accumulator.buffered} bytes of records wait for their acknowledgement, "
            f"buffer_size is {self.config.buffer_size}: send slower or raise it",
            topic=topic,
        )

    def _raise_unobserved(self) -> None:
        with self.lock:
            failures = self.accumulator.unobserved_failures()
        if not failures:
            return
        first = failures[0].error
        assert first is not None, "a failed batch without its error"
        records = sum(batch.count for batch in failures)
        first.add_note(f"{records} records were not delivered")
        raise first


def as_bytes(content: Content, what: str) -> bytes:
    """Return content as bytes, text as UTF-8; raises TypeError for anything else."""
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"a {what} is bytes or str, not {type(content).__name__}")


def as_int(number: object, what: str) -> int:
    """Return any kind of whole number as an int; raises TypeError for anything else."""
    if not isinstance(number, SupportsIndex):
        raise TypeError(f"{what} an int, not {type(number).__name__}")
    return index(number)


def size_bound(value: Content, key: Content, headers: HeadersIn) -> int:
    """Return how much room a record takes at most."""
    size = RECORD_OVERHEAD
    for content in (value, key):
        if content is not None:
            size += len(as_bytes(content, "key or value"))
    return size if headers is None else size + headers_size(as_headers(headers))


def as_headers(headers: Mapping[str, Content] | Sequence[tuple[str, Content]]) -> Headers:
    """Return headers in order, as (name, value or None) pairs."""
    taken: list[tuple[str, bytes | None]] = []
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TypeError(f"headers are a mapping, or pairs of a str and its value, not {pair!r}")
        name, value = pair
        taken.append((name, None if value is None else as_bytes(value, "header's value")))
    return tuple(taken)
