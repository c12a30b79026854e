"""The asyncio client of a cluster; it creates producers, consumers and the admin client.

It owns the channels to the brokers and the scope of all background tasks. It runs on the given
runtime, real or simulated.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, overload

from ..errors import ClientClosed, InvalidRequest
from ..runtime import Runtime, Scope
from ..staged_names import STAGE_TIMEOUT_MS_DEFAULT
from .admin.admin import AsyncAdmin
from .config import (
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
    check_isolation_level,
    make_config,
    parse_bootstrap,
)
from .connection import Connection
from .consumer.assigned_partitions import Topics, parse_assignment
from .consumer.consumer import AsyncConsumer
from .groups.group_consumer import AsyncGroupConsumer
from .groups.membership import Callbacks, GroupStart, OnPartitions
from .offsets import Bound, Position, resolve
from .producer.partitioner import Partitioner
from .producer.producer import AsyncProducer, Threading
from .producer.staged_producer import AsyncStagedProducer, TaskAttempt, make_task_attempt
from .producer.transactional_producer import AsyncTransactionalProducer
from .staged_commits import (
    COMMIT_TIMEOUT_MS,
    CommittedWrite,
    StagedWrite,
    TaskResult,
    abort_write,
    commit_write,
    open_write,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from .consumer.arrow_reader import ArrowScan

READ_ARROW_COLUMNS = ("key", "value", "partition", "offset", "timestamp")
OTHER_ARGUMENTS = {
    "group": "use group_consumer()",
    "pattern": "use group_consumer()",
    "instance_id": "use group_consumer()",
    "assign": "pass partitions as topics",
}
"""The remedies for arguments that `AsyncLog.consumer` does not have."""


class AsyncLog:
    """A client of one cluster, returned by `aio.connect`. Not thread-safe: one event loop.

    ```python
    async with quorumlog.aio.connect("127.0.0.1:9094") as log: ...
    log = await quorumlog.aio.connect("127.0.0.1:9094")  # then: await log.close()
    ```
    Entering or awaiting it connects to a broker, or raises ConnectionFailed. Leaving it closes its
    producers and consumers, newest first.
    """

    def __init__(
        self,
        runtime: Runtime,
        bootstrap: str,
        config: ClientConfig,
        *,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.admin: AsyncAdmin
        self._runtime = runtime
        self._connection = Connection(runtime, parse_bootstrap(bootstrap), config)
        self.admin = AsyncAdmin(self._connection)
        self._on_close = on_close  # closes the runtime if it belongs to this client
        self._stack = AsyncExitStack()
        self._scope: Scope | None = None
        self._children: dict[AsyncProducer | AsyncConsumer, None] = {}

    # --- producers and consumers -------------------------------------------------------------

    @overload
    def producer(
        self,
        *,
        transactional_id: str,
        partitioner: str | Partitioner = "murmur2",
        **settings: Unpack[ProducerSettings],
    ) -> AsyncTransactionalProducer: ...
    @overload
    def producer(
        self,
        *,
        transactional_id: None = None,
        partitioner: str | Partitioner = "murmur2",
        **settings: Unpack[ProducerSettings],
    ) -> AsyncProducer: ...
    def producer(
        self,
        *,
        transactional_id: str | None = None,
        partitioner: str | Partitioner = "murmur2",
        **settings: Unpack[ProducerSettings],
    ) -> AsyncProducer:
        """Return a producer. Use it in `async with`, or close it.

        With a `transactional_id` it sends in transactions; see `AsyncTransactionalProducer`. An id
        is of one running producer: a new one fences the one before. `settings` are the fields of
        `ProducerConfig` (acks, linger_ms, batch_size, compression, ...). `partitioner` is "murmur2"
        (hash of the key; without a key, one partition per batch), "sticky", "round_robin", "crc32"
        (as librdkafka), or a callable, see `Partitioner`.
        """
        config = make_config(ProducerConfig, {**settings, "transactional_id": transactional_id})
        return self.add_producer(config, partitioner)

    def consumer(
        self,
        topics: Topics,
        *,
        start: Position = "earliest",
        until_end: bool = False,
        **settings: Unpack[ConsumerSettings],
    ) -> AsyncConsumer:
        """Return a consumer of topics (by name), or of partitions (by topic, or each as
        `TopicPartition`).

        `start` is "earliest" (the default; Kafka's consumers start at "latest"), "latest", an
        offset, a datetime or a TimestampMs. With `until_end` reading ends at the end offsets of
        the moment it began. Partitions added to `topics` later are found at the next metadata
        refresh and read from their beginning. `settings` are the fields of `ConsumerConfig`.
        """
        for name in settings:
            if name in OTHER_ARGUMENTS:
                raise TypeError(f"consumer() has no argument {name!r}: {OTHER_ARGUMENTS[name]}")
        assignment = parse_assignment(topics)
        if not assignment:
            raise InvalidRequest("a consumer needs topics or partitions")
        consumer = AsyncConsumer(
            self._connection,
            self._open_scope(),
            make_config(ConsumerConfig, settings),
            assignment,
            start=start,
            until_end=until_end,
            on_close=self._forget,
        )
        self._children[consumer] = None
        return consumer

    def group_consumer(
        self,
        group: str,
        topics: Topics = (),
        *,
        pattern: str | None = None,
        start: GroupStart = "earliest",
        instance_id: str | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> AsyncGroupConsumer:
        """Return a consumer of the partitions of `topics` that the group assigns to it.

        `pattern` (RE2) subscribes to every topic with a matching name. `start` applies to
        partitions without a committed offset: "earliest" (the default; Kafka's consumers start at
        "latest"), "latest", an offset, a datetime, a TimestampMs, or "error", which raises
        NoCommittedOffset. `instance_id` makes a static member, which keeps its partitions across
        a restart. `settings` are the fields of `ConsumerConfig`.

        The callbacks take a list of `TopicPartition` and may be async functions:

        - `on_assigned` runs before the first record is delivered; `seek` takes effect there.
        - `on_revoked` runs after the last record was committed, before another member owns it.
        - `on_lost` (default: `on_revoked`) runs if another member may own the partition already.
        """
        consumer = AsyncGroupConsumer(
            self._connection,
            self._open_scope(),
            make_config(ConsumerConfig, settings),
            topics,
            group=group,
            pattern=pattern,
            instance_id=instance_id,
            start=start,
            callbacks=Callbacks(on_assigned, on_revoked, on_lost),
            on_close=self._forget,
        )
        self._children[consumer] = None
        return consumer

    # --- staged commits ----------------------------------------------------------------------

    async def open_write(
        self,
        name: str | None = None,
        number: int = 0,
        *,
        stage_timeout_ms: int = STAGE_TIMEOUT_MS_DEFAULT,
    ) -> StagedWrite:
        """Return a write of a batch, for the driver of a parallel job. Send it to the tasks.

        The batches of a name have ascending numbers, and each number is committed once: a repeated
        job with the same name and number writes nothing. Without a name the write is atomic, but a
        repeated job writes again. Once a task of it has begun, earlier writes of the name are
        aborted and fenced.

        `stage_timeout_ms`, 2 minutes to 24 hours, is the time from the last Begin, KeepAlive or
        Seal of the write to its commit; the write is aborted after it.
        """
        return await open_write(self._connection, name, number, stage_timeout_ms=stage_timeout_ms)

    def staged_producer(
        self,
        write: StagedWrite,
        task: int,
        *,
        attempt: int | None = None,
        partitioner: str | Partitioner = "murmur2",
        **settings: Unpack[ProducerSettings],
    ) -> AsyncStagedProducer:
        """Return the producer of one attempt of a task, in any process. Use it in `async with`, or
        close it; see `AsyncStagedProducer`.

        `attempt` is a number that no other attempt of the write has, also no repetition of the same
        task (default: random). The other arguments are those of `producer`.
        """
        found = make_task_attempt(write, task, attempt, self._runtime.entropy)
        config = make_config(ProducerConfig, {**settings, "transactional_id": write.name})
        producer = self.add_producer(config, partitioner, attempt=found)
        assert isinstance(producer, AsyncStagedProducer), "made with an attempt"
        return producer

    async def commit_write(
        self,
        write: StagedWrite,
        results: Sequence[TaskResult],
        *,
        timeout_ms: int = COMMIT_TIMEOUT_MS,
        on_different: str = "raise",
    ) -> CommittedWrite | None:
        """Commit one result of each task: their records become visible, all others are aborted.

        Returns the committed batch; `is_mine` is False if another write had committed the number.
        Returns None if no task has a record and the number is not committed: it stays open, and the
        write is aborted. May be repeated, also by a later process. After the decision it waits up
        to 30 s until readers get all records (`is_visible`).

        Raises StageLost if a task must run again, FencedWrite if a later write exists, and
        NumberTooOld after a later batch. Raises OutcomeUnknown without an answer within
        `timeout_ms`: commit again. Raises CommittedBatchDiffers if another write committed another
        number of records; `on_different="warn"` logs it instead.
        """
        return await commit_write(
            self._connection,
            write,
            list(results),
            timeout_ms=timeout_ms,
            on_different=on_different,
        )

    async def abort_write(self, write: StagedWrite) -> CommittedWrite | None:
        """Abort the attempts of a write: their records never become visible.

        Returns the committed batch if its number is decided already, which does not change.
        """
        return await abort_write(self._connection, write)

    # --- reading -----------------------------------------------------------------------------

    async def read_arrow(
        self,
        topic: str,
        *,
        partitions: int | Sequence[int] | None = None,
        start: Bound = "earliest",
        end: Bound | None = None,
        columns: Sequence[str] = READ_ARROW_COLUMNS,
        max_records: int | None = None,
        max_bytes: int | None = None,
        isolation_level: str = "read_committed",
    ) -> "pa.Table":
        """Return the records of [start, end) of partitions (default: all) as one Arrow table.

        `start` and `end` are a position, or positions by partition. `end` is limited by the end of
        the readable records when the call begins, which is also its default. Rows are sorted by
        partition and offset. Reading stops at `max_records`, or after the batch that reaches
        `max_bytes` of Arrow data. `isolation_level` as in `ConsumerConfig`. Columns: key, value
        (binary), topic, partition, offset, timestamp (microseconds, UTC), timestamp_type, headers.
        Raises OffsetOutOfRange for a start below the log start offset or above the end.
        """
        from .consumer.arrow_reader import read_table

        scan = self.scan_arrow(
            topic,
            partitions=partitions,
            start=start,
            end=end,
            columns=columns,
            max_records=max_records,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
        )
        return await read_table(scan)

    def scan_arrow(
        self,
        topic: str,
        *,
        partitions: int | Sequence[int] | None = None,
        start: Bound = "earliest",
        end: Bound | None = None,
        columns: Sequence[str] = READ_ARROW_COLUMNS,
        max_records: int | None = None,
        max_bytes: int | None = None,
        isolation_level: str = "read_committed",
    ) -> "ArrowScan":
        """Return the records of `read_arrow` as an async iterator of batches, in bounded memory.

        ```python
        async with log.scan_arrow("flights") as scan:  # scan.schema is available at once
            async for batch in scan: ...
        ```
        """
        from .consumer.arrow_reader import ArrowScan, scan_request

        self._open_scope()
        request = scan_request(
            topic,
            partitions=partitions,
            start=start,
            end=end,
            columns=columns,
            max_records=max_records,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
        )
        return ArrowScan(self._connection, request)

    async def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions; raises UnknownTopicOrPartition."""
        return len((await self._connection.layout(topic)).partitions)

    async def list_offsets(
        self,
        topic: str,
        *,
        at: Position = "latest",
        partitions: int | Sequence[int] | None = None,
        isolation_level: str = "read_uncommitted",
        timeout_ms: int | None = None,
    ) -> dict[int, int]:
        """Return the offset of a position in each partition (default: all partitions).

        "earliest" is the log start offset, "latest" the high watermark, or the last stable offset
        with "read_committed". A datetime
        or TimestampMs is the first offset at or after it, or the end if there is none.
        `timeout_ms` defaults to the client's call_timeout_ms.
        """
        check_isolation_level(isolation_level)
        deadline_ms = None
        if timeout_ms is not None:
            deadline_ms = self._runtime.clock.now_ms() + timeout_ms
        if partitions is None:
            layout = await self._connection.layout(topic, deadline_ms=deadline_ms)
            partitions = range(len(layout.partitions))
        elif isinstance(partitions, int):
            partitions = [partitions]
        return await resolve(
            self._connection,
            topic,
            partitions,
            at,
            isolation_level=isolation_level,
            deadline_ms=deadline_ms,
        )

    # --- for the blocking client -------------------------------------------------------------

    def add_producer(
        self,
        config: ProducerConfig,
        partitioner: str | Partitioner,
        threading: Threading | None = None,
        attempt: TaskAttempt | None = None,
    ) -> AsyncProducer:
        """Return a producer, with `attempt` that of a task; with `threading` other threads may
        append to it."""
        make: Callable[..., AsyncProducer] = AsyncProducer
        if attempt is not None:
            make = partial(AsyncStagedProducer, attempt=attempt)
        elif config.transactional_id is not None:
            make = AsyncTransactionalProducer
        producer = make(
            self._connection,
            self._open_scope(),
            config,
            partitioner=partitioner,
            threading=threading,
            on_close=self._forget,
        )
        self._children[producer] = None
        return producer

    # --- opening and closing -----------------------------------------------------------------

    async def start(self) -> None:
        """Connect to a broker; raise ConnectionFailed if none answers within connect_timeout_ms."""
        if self._scope is not None:
            raise InvalidRequest("the client is open already: enter or await it once")
        async with AsyncExitStack() as stack:
            if self._on_close is not None:
                stack.push_async_callback(self._on_close)
            stack.push_async_callback(self._connection.close)
            scope = await stack.enter_async_context(self._runtime.tasks.scope("client"))
            await self._connection.open()
            self._scope = scope
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Close the producers and consumers, then the connections. Idempotent.

        Raises the first delivery failure that the application did not retrieve (see
        `AsyncProducer`).
        """
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> "AsyncLog":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._scope is None:
            return False
        scope, self._scope = self._scope, None
        async with self._stack:
            # Re-raise within the scope: the error may be the scope's own cancellation.
            try:
                await self._close_children(flush=error is None)
            finally:
                scope.cancel()
            if error is not None:
                raise error
        return True

    def __await__(self) -> Generator[Any, None, "AsyncLog"]:
        yield from self.start().__await__()
        return self

    def _open_scope(self) -> Scope:
        if self._scope is None:
            raise ClientClosed("the client is closed, or was never entered")
        return self._scope

    async def _close_children(self, *, flush: bool) -> None:
        """Close all children, newest first; then raise the first failure.

        Without `flush` no group consumer commits the last records delivered. After an interruption
        the remaining children are closed without flushing.
        """
        failure: Exception | None = None  # of a record, or of a callback of the application
        children = reversed(list(self._children))
        try:
            for child in children:
                try:
                    await _close_child(child, flush=flush, commit=flush)
                except Exception as error:
                    failure = failure or error
        finally:
            for child in children:
                await _close_child(child, flush=False, commit=flush)
        if failure is not None:
            raise failure

    def _forget(self, child: AsyncProducer | AsyncConsumer) -> None:
        self._children.pop(child, None)


def make_log(runtime: Runtime, bootstrap: str, **settings: Unpack[ClientSettings]) -> AsyncLog:
    """Return a client on the given runtime, real or simulated; enter it or await it.

    `settings` are the fields of `ClientConfig`. Programs use `quorumlog.aio.connect`.
    """
    return AsyncLog(runtime, bootstrap, make_config(ClientConfig, settings))


async def _close_child(child: AsyncProducer | AsyncConsumer, *, flush: bool, commit: bool) -> None:
    if isinstance(child, AsyncProducer):
        await child.close(flush=flush)
    elif isinstance(child, AsyncGroupConsumer):
        await child.close(commit=commit)
    else:
        await child.close()
