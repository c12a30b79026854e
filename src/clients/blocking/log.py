"""The blocking client of a cluster: the asyncio client on one I/O thread.

Thread-safe, except that one `Consumer` is read by one thread at a time. Delivery callbacks run on
the I/O thread: they must not block and may not call a blocking method (it raises).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ...errors import ClientClosed, QuorumlogError
from ...staged_names import STAGE_TIMEOUT_MS_DEFAULT
from ..config import ClientConfig, ClientSettings, ConsumerSettings, ProducerSettings, make_config
from ..consumer.arrow_reader import ArrowScan
from ..consumer.assigned_partitions import Topics, parse_assignment
from ..groups.group_consumer import AsyncGroupConsumer
from ..groups.membership import Callbacks, GroupStart, OnPartitions
from ..log import READ_ARROW_COLUMNS, AsyncLog
from ..offsets import Bound, Position
from ..producer.partitioner import Partitioner
from ..producer.staged_producer import make_task_attempt
from ..staged_commits import COMMIT_TIMEOUT_MS, CommittedWrite, StagedWrite, TaskResult
from .admin import Admin
from .consumer import Consumer
from .group_consumer import GroupConsumer
from .io_thread import FORK_WAIT_S, STATE, IoThread
from .producer import Producer
from .staged_producer import StagedProducer
from .transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_log = logging.getLogger(__name__)


def connect(bootstrap: str = "127.0.0.1:9094", **settings: Unpack[ClientSettings]) -> "Log":
    """Connect to the cluster at "host:port", or several separated by commas; return a client.

    ```python
    with quorumlog.connect("127.0.0.1:9094") as log:
        print([topic.name for topic in log.admin.list_topics()])
    ```
    Use it in `with`, or close it. Thread-safe. `settings` are the fields of `ClientConfig`, all in
    milliseconds: connect_timeout_ms, request_timeout_ms, call_timeout_ms, retry_backoff_ms,
    retry_backoff_max_ms, metadata_max_age_ms. Raises ConnectionFailed if no broker answers within
    `connect_timeout_ms`, InvalidConfig if the address is malformed.
    """
    log = Log(bootstrap, make_config(ClientConfig, settings))
    log.call(_nothing)
    return log


async def _nothing(log: AsyncLog) -> None:
    """Do nothing: the first call of a client connects it."""


class Log:
    """A client of one cluster, returned by `connect`. Thread-safe.

    `producer()` sends records; `consumer()` reads topics or partitions, `group_consumer()` those
    that a consumer group assigns. `admin` administers topics, `read_arrow` returns a range of a
    topic as a table. Closing it closes its producers and consumers, newest first.
    """

    def __init__(self, bootstrap: str, config: ClientConfig) -> None:
        self.admin = Admin(self)
        self._bootstrap = bootstrap
        self._config = config
        self._io: IoThread | None = None
        self._log: AsyncLog | None = None
        self._is_closed = False
        self._groups: dict[GroupConsumer, None] = {}  # closed first: their callbacks run here

    @overload
    def producer(
        self,
        *,
        transactional_id: str,
        partitioner: str | Partitioner = "murmur2",
        **settings: Unpack[ProducerSettings],
    ) -> TransactionalProducer: ...
    @overload
    def producer(
        self,
        *,
        transactional_id: None = None,
        partitioner: str | Partitioner = "murmur2",
        **settings: Unpack[ProducerSettings],
    ) -> Producer: ...
    def producer(
        self,
        *,
        transactional_id: str | None = None,
        partitioner: str | Partitioner = "murmur2",
        **settings: Unpack[ProducerSettings],
    ) -> Producer:
        """Return a producer. Use it in `with`, or close it.

        With a `transactional_id` it sends in transactions; see `TransactionalProducer`. `settings`
        are the fields of `ProducerConfig` (acks, linger_ms, batch_size, compression, ...);
        `partitioner` as in `AsyncLog.producer`.
        """
        if transactional_id is not None:
            return TransactionalProducer(self, partitioner, settings, transactional_id)
        return Producer(self, partitioner, settings)

    def consumer(
        self,
        topics: Topics,
        *,
        start: Position = "earliest",
        until_end: bool = False,
        **settings: Unpack[ConsumerSettings],
    ) -> Consumer:
        """Return a consumer of topics (by name), or of partitions (by topic, or each as
        `TopicPartition`).

        It starts at "earliest" by default; Kafka's consumers start at "latest". See
        `AsyncLog.consumer` for the arguments.
        """
        wanted = parse_assignment(topics)  # once: a fork makes the consumer again
        return Consumer(
            self,
            lambda log: log.consumer(wanted, start=start, until_end=until_end, **settings),
        )

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
    ) -> GroupConsumer:
        """Return a consumer of the partitions of `topics` that the group assigns to it.

        Without a committed offset it starts at "earliest" by default; Kafka's consumers start at
        "latest". See `AsyncLog.group_consumer` for the arguments. The callbacks run on the thread
        that polls and may call the consumer's methods.
        """

        wanted = parse_assignment(topics)  # once: a fork makes the consumer again

        def make(log: AsyncLog, callbacks: Callbacks) -> AsyncGroupConsumer:
            return log.group_consumer(
                group,
                wanted,
                pattern=pattern,
                start=start,
                instance_id=instance_id,
                on_assigned=callbacks.on_assigned,
                on_revoked=callbacks.on_revoked,
                on_lost=callbacks.on_lost,
                **settings,
            )

        callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        consumer = GroupConsumer(self, make, callbacks, lambda it: self._groups.pop(it, None))
        self._groups[consumer] = None
        return consumer

    def open_write(
        self,
        name: str | None = None,
        number: int = 0,
        *,
        stage_timeout_ms: int = STAGE_TIMEOUT_MS_DEFAULT,
    ) -> StagedWrite:
        """Return a write of a batch, for the driver of a parallel job; see `AsyncLog.open_write`.

        ```python
        def run_task(write: StagedWrite, task: int) -> TaskResult:  # in any process
            with quorumlog.connect() as log, log.staged_producer(write, task) as producer:
                producer.send("out", b"...")
                return producer.seal()

        write = log.open_write("daily-report", number=17)
        with ProcessPoolExecutor() as pool:
            results = list(pool.map(run_task, repeat(write), range(8)))
        log.commit_write(write, results)
        ```
        """
        return self.call(
            lambda log: log.open_write(name, number, stage_timeout_ms=stage_timeout_ms)
        )

    def staged_producer(
        self,
        write: StagedWrite,
        task: int,
        *,
        attempt: int | None = None,
        partitioner: str | Partitioner = "murmur2",
        **settings: Unpack[ProducerSettings],
    ) -> StagedProducer:
        """Return the producer of one attempt of a task, in any process. Use it in `with`, or close
        it; see `AsyncLog.staged_producer`."""
        io, _ = self.opened()
        found = make_task_attempt(write, task, attempt, io.runtime.entropy)
        return StagedProducer(self, partitioner, settings, found)

    def commit_write(
        self,
        write: StagedWrite,
        results: Sequence[TaskResult],
        *,
        timeout_ms: int = COMMIT_TIMEOUT_MS,
        on_different: str = "raise",
    ) -> CommittedWrite | None:
        """Commit one result of each task; see `AsyncLog.commit_write`."""
        return self.call(
            lambda log: log.commit_write(
                write, results, timeout_ms=timeout_ms, on_different=on_different
            )
        )

    def abort_write(self, write: StagedWrite) -> CommittedWrite | None:
        """Abort a write; see `AsyncLog.abort_write`."""
        return self.call(lambda log: log.abort_write(write))

    def read_arrow(
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

        See `AsyncLog.read_arrow`.
        """
        return self.call(
            lambda log: log.read_arrow(
                topic,
                partitions=partitions,
                start=start,
                end=end,
                columns=columns,
                max_records=max_records,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
            )
        )

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
    ) -> "pa.RecordBatchReader":
        """Return the records of `read_arrow` as a reader of batches, in bounded memory.

        The reader is for one thread. It is closed when its last reference is dropped.
        """
        return open_reader(
            self,
            lambda log: log.scan_arrow(
                topic,
                partitions=partitions,
                start=start,
                end=end,
                columns=columns,
                max_records=max_records,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
            ),
        )

    def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions; raises UnknownTopicOrPartition."""
        return self.call(lambda log: log.partition_count(topic))

    def list_offsets(
        self,
        topic: str,
        *,
        at: Position = "latest",
        partitions: int | Sequence[int] | None = None,
        isolation_level: str = "read_uncommitted",
        timeout_ms: int | None = None,
    ) -> dict[int, int]:
        """Return the offset of a position in each partition; see `AsyncLog.list_offsets`."""
        return self.call(
            lambda log: log.list_offsets(
                topic,
                at=at,
                partitions=partitions,
                isolation_level=isolation_level,
                timeout_ms=timeout_ms,
            )
        )

    def close(self) -> None:
        """Close the producers and consumers, then the connections. Idempotent.

        Raises the first delivery failure that the application did not retrieve, or an error of a
        consumer's callback.
        """
        self._close_all(commit=not STATE.is_exiting)  # the last records may be unprocessed then

    def _close_all(self, *, commit: bool) -> None:
        if self._io is not None:
            self._io.refuse_callbacks()
        failure: Exception | None = None  # of a callback
        for consumer in list(self._groups):
            try:
                consumer.close(commit=commit)
            except Exception as error:  # of a callback: close the others too
                failure = failure or error
        self._close()
        if failure is not None:
            raise failure

    def _close(self) -> None:
        with STATE.lock:
            if self._is_closed:
                return
            self._is_closed = True
            io, log = self._io, self._log
            if io is None or log is None or io.is_ended:
                return
        try:
            io.wait(log.close())
        finally:
            io.release(self)

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._close_all(commit=error is None and not STATE.is_exiting)
        except QuorumlogError as failure:
            if error is None:
                raise
            error.add_note(f"records were also not delivered: {failure}")

    def call(self, work: Callable[[AsyncLog], Coroutine[Any, Any, T]]) -> T:
        """Run an asyncio method of the client on the I/O thread and wait for its result."""
        io, log = self.opened()
        return io.wait(work(log))

    def opened(self) -> tuple[IoThread, AsyncLog]:
        """Return the running I/O thread and the client; connect if there is none."""
        io, log = self._io, self._log
        if io is not None and log is not None and not (io.is_ended or self._is_closed):
            return io, log
        with STATE.lock:
            if self._is_closed:
                raise ClientClosed("the client is closed")
            if self._io is None or self._log is None or self._io.is_ended:
                io, log = IoThread.hold(self), None
                try:
                    log = io.wait(_open(io, self._bootstrap, self._config))
                finally:
                    if log is None:
                        io.release(self)
                self._io, self._log = io, log
            return self._io, self._log

    def suspend(self) -> None:
        """Close the connections before a fork; the next call opens them again."""
        io, log = self._io, self._log
        if io is None or log is None:
            return
        self._log = None
        for consumer in self._groups:
            consumer.suspend()
        try:
            io.wait(_close_soon(log))
        except (QuorumlogError, TimeoutError) as error:
            _log.error("clients.not_delivered_before_fork error=%s", error)


async def _close_soon(log: AsyncLog) -> None:
    async with asyncio.timeout(FORK_WAIT_S):
        await log.close()


async def _open(io: IoThread, bootstrap: str, config: ClientConfig) -> AsyncLog:
    log = AsyncLog(io.runtime, bootstrap, config)
    await log.start()
    return log


def open_reader(log: "Log", make: Callable[[AsyncLog], ArrowScan]) -> "pa.RecordBatchReader":
    """Return a reader of a scan's batches; each batch is fetched when it is read."""
    import pyarrow as pa

    async def begin(client: AsyncLog) -> ArrowScan:
        return make(client)

    scan = log.call(begin)
    return pa.RecordBatchReader.from_batches(scan.schema, _batches(log, scan))


def _batches(log: "Log", scan: ArrowScan) -> Iterator["pa.RecordBatch"]:
    io, _ = log.opened()
    try:
        while (batch := io.wait(scan.next_batch())) is not None:
            yield batch
    finally:  # may run in the garbage collector on any thread: must not wait
        if not io.loop.is_closed():
            io.loop.call_soon_threadsafe(scan.close)
