"""The blocking face: the asyncio clients on one I/O thread, for programs without a loop.

One daemon thread with one loop serves every blocking client of the process (several loops with
grpc in one process misbehave); it starts with the first client and ends with the last. A record
does not cross threads by itself: `Producer.send` puts it into the shared accumulator under a lock,
and only a new batch or a full one wakes the loop.

Everything here may be used from several threads, except that one `Consumer` has one reader at a
time. Callbacks of deliveries run on the I/O thread: they must not block, and may not call a
blocking method (that raises).

Forks: gRPC survives a fork only at rest. So a fork first lets the producers deliver what they have
(`FORK_WAIT_S` at most) and ends the thread with its connections; in the parent and in the child the
next use of a client makes them anew, a consumer going on where it was. Where gRPC is kept busy by
others, the child's clients refuse to work instead of hanging.

The one home of `threading` and `concurrent.futures` among the clients.
"""

import asyncio
import atexit
import gc
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ..errors import InvalidRequest, QuorumlogError, Stopping
from ..runtime import Runtime
from ..runtime.files import at_fork
from ..runtime.real import run
from .arrow_producer import DeliveredRange
from .batches import Batch, Delivered
from .blocking_admin import Admin
from .blocking_consumer import Consumer
from .config import ClientConfig, ClientSettings, ConsumerSettings, ProducerSettings, config_of
from .log import READ_ARROW_COLUMNS, Assignment, AsyncLog
from .offsets import Position
from .partitioner import Partitioner
from .producer import AsyncProducer, Content, HeadersIn, Threading, size_bound

if TYPE_CHECKING:
    import pyarrow as pa

    from .arrow_producer import ArrowSource

T = TypeVar("T")

EXIT_WAIT_S = 5.0  # how long clients that were left open may take to flush at the process's end
THREAD_CHECK_S = 1.0  # a caller that waits looks so often whether the thread still lives
FORK_WAIT_S = 5.0  # how long each client may take to flush before a fork
GRPC_REST_S = 1.0  # how long its thread may take to end then
GRPC_THREAD = "_poll_wrapper"  # in the name of the thread that gRPC has while a channel is open

_log = logging.getLogger(__name__)


def connect(bootstrap: str = "127.0.0.1:9094", **settings: Unpack[ClientSettings]) -> "Log":
    """Return a client of the cluster behind "host:port", or several of those by commas.

    Use it in `with`, or close it. `settings` are the fields of `ClientConfig`. Raises Lost when no
    broker answers within `connect_timeout_ms`.
    """
    log = Log(bootstrap, config_of(ClientConfig, settings))
    log.call(_nothing)
    return log


async def _nothing(log: AsyncLog) -> None:
    """The first use of a client connects it."""


class Log:
    """A client of one cluster; see `connect`."""

    def __init__(self, bootstrap: str, config: ClientConfig) -> None:
        self.admin = Admin(self)
        self._bootstrap = bootstrap
        self._config = config
        self._io: IoThread | None = None
        self._log: AsyncLog | None = None
        self._is_closed = False

    def producer(
        self, *, partitioner: Partitioner | None = None, **settings: Unpack[ProducerSettings]
    ) -> "Producer":
        """Return a producer; `settings` are the fields of `ProducerConfig` (acks, linger_ms,
        batch_size, compression, ...). Use it in `with`, or close it."""
        return Producer(self, partitioner, settings)

    def consumer(
        self,
        topics: str | Sequence[str] = (),
        *,
        assign: Assignment | None = None,
        start: Position = "earliest",
        until_end: bool = False,
        **settings: Unpack[ConsumerSettings],
    ) -> "Consumer":
        """Return a consumer; see `AsyncLog.consumer` for the arguments."""
        return Consumer(
            self,
            lambda log: log.consumer(
                topics, assign=assign, start=start, until_end=until_end, **settings
            ),
        )

    def read_arrow(
        self,
        topic: str,
        *,
        partition: int = 0,
        start: Position = "earliest",
        end: Position | None = None,
        columns: Sequence[str] = READ_ARROW_COLUMNS,
    ) -> "pa.Table":
        """Return the records of [start, end) of a partition; see `AsyncLog.read_arrow`."""
        return self.call(
            lambda log: log.read_arrow(
                topic, partition=partition, start=start, end=end, columns=columns
            )
        )

    def partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions; raises UnknownTopicOrPartition."""
        return self.call(lambda log: log.partitions(topic))

    def list_offsets(
        self, topic: str, *, at: Position = "latest", partitions: Sequence[int] | None = None
    ) -> dict[int, int]:
        """Return the offset of a position in each partition; see `AsyncLog.list_offsets`."""
        return self.call(lambda log: log.list_offsets(topic, at=at, partitions=partitions))

    def close(self) -> None:
        """Close what came from it, then the connections. Repeating is fine.

        Raises the first failure of a record that nobody has looked at.
        """
        if self._io is not None:
            self._io.refuse_callbacks()
        with _STATE.lock:
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
            self.close()
        except QuorumlogError as failure:
            if error is None:
                raise
            error.add_note(f"records were not delivered either: {failure}")

    def call(self, work: Callable[[AsyncLog], Coroutine[Any, Any, T]]) -> T:
        """Run an asyncio method of this process's client on the I/O thread and wait for it."""
        io, log = self.opened()
        return io.wait(work(log))

    def opened(self) -> "tuple[IoThread, AsyncLog]":
        """Return the living thread and client, connecting if there are none."""
        io, log = self._io, self._log
        if io is not None and log is not None and not (io.is_ended or self._is_closed):
            return io, log
        with _STATE.lock:
            if self._is_closed:
                raise Stopping("the client is closed")
            if self._io is None or self._log is None or self._io.is_ended:
                io, log = IoThread.hold(self), None
                try:
                    log = io.wait(_open(io, self._bootstrap, self._config))
                finally:
                    if log is None:
                        io.release(self)
                self._io, self._log = io, log
            return self._io, self._log

    def wind_down(self) -> None:
        """Close this process's client for a while: the next use opens it again."""
        io, log = self._io, self._log
        if io is None or log is None:
            return
        self._log = None
        try:
            io.wait(_close_soon(log))
        except (QuorumlogError, TimeoutError) as error:
            _log.error("clients.not_delivered_before_fork error=%s", error)


async def _close_soon(log: AsyncLog) -> None:
    async with asyncio.timeout(FORK_WAIT_S):
        await log.close()


async def _open(io: "IoThread", bootstrap: str, config: ClientConfig) -> AsyncLog:
    log = AsyncLog(io.runtime, bootstrap, config)
    await log.start()
    return log


# --- the thread --------------------------------------------------------------------------------


class IoThread:
    """The one I/O thread of a process."""

    def __init__(self) -> None:
        self.runtime: Runtime
        self.loop: asyncio.AbstractEventLoop
        self.is_ended = False  # or about to end: whoever used it makes everything anew
        self.users: dict[Log, None] = {}
        self._stop: asyncio.Event
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="quorumlog-io", daemon=True)

    @classmethod
    def hold(cls, user: Log) -> "IoThread":
        """Return the process's thread, starting it if need be; it lives until `release`."""
        with _STATE.lock:
            _STATE.refuse_broken_fork()
            if _STATE.io is None:
                _STATE.install()
                io = cls()
                io._thread.start()
                io._ready.result()
                _STATE.io = io
            _STATE.io.users[user] = None
            return _STATE.io

    def release(self, user: Log) -> None:
        """A client is closed; the thread ends with the last one."""
        with _STATE.lock:
            self.users.pop(user, None)
            if not self.users and not self.is_ended:
                self.end()

    def end(self) -> None:
        """End the thread, under the state's lock; its clients are closed."""
        self.is_ended = True
        _STATE.io = None
        self.loop.call_soon_threadsafe(self._stop.set)
        if not self.is_current():
            self._thread.join(EXIT_WAIT_S)

    def is_current(self) -> bool:
        """Whether the caller runs on this thread, in a callback."""
        return threading.current_thread() is self._thread

    def refuse_callbacks(self) -> None:
        """Raise InvalidRequest when the caller runs on this thread."""
        if self.is_current():
            raise InvalidRequest(
                "a blocking call inside a callback would wait for itself: hand the work to "
                "another thread"
            )

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; an interrupted wait cancels it."""
        if self.is_current():
            work.close()
            self.refuse_callbacks()
        if self.loop.is_closed():
            work.close()
            raise _ended()
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            while True:
                try:
                    return future.result(THREAD_CHECK_S)
                except TimeoutError:
                    if future.done():  # by its own time-out, or just now
                        return future.result()
                    if not self._thread.is_alive():
                        raise _ended() from None
                except CancelledError:
                    raise _ended() from None
        finally:
            future.cancel()  # of no effect unless the wait was interrupted

    def _main(self) -> None:
        try:
            run(self._live, name="quorumlog-client", on_stop=_ignore)
        except Exception as error:
            _log.exception("clients.io_thread_failed")
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _live(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set_result(None)
        await self._stop.wait()


def _ended() -> Stopping:
    return Stopping("the client's I/O thread has ended")


def _ignore(reason: str) -> None:
    """A client never ends its process."""


class _State:
    """What a process has of this module."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # around opening and ending, and held across a fork
        self.delivery_lock = (
            threading.Lock()
        )  # around making a delivery's state; never while waiting
        self.io: IoThread | None = None
        self._was_busy = False  # gRPC, at the last fork
        self._is_broken = False  # this process was forked while gRPC was busy
        self._is_installed = False

    def install(self) -> None:
        """Hear of forks and of the process's end; once."""
        if not self._is_installed:
            self._is_installed = True
            at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork_in_parent,
                after_in_child=self._after_fork_in_child,
            )
            atexit.register(self._on_exit)

    def refuse_broken_fork(self) -> None:
        """Raise InvalidRequest in a child that cannot use gRPC."""
        if self._is_broken:
            raise InvalidRequest(
                "this process was forked while gRPC was in use elsewhere in its parent, and gRPC "
                "does not survive that: use the start method 'spawn', or fork before connecting"
            )

    def _before_fork(self) -> None:
        self.lock.acquire()
        io = self.io
        if io is not None and not io.is_current():  # a callback cannot wait for its own thread
            io.is_ended = True  # from here on other threads wait for the lock
            for user in list(io.users):
                user.wind_down()
            io.end()
        if _grpc_threads():
            gc.collect()  # it rests when its last channel is freed
        for thread in _grpc_threads():
            thread.join(GRPC_REST_S)
        self._was_busy = bool(_grpc_threads())

    def _after_fork_in_parent(self) -> None:
        self.lock.release()

    def _after_fork_in_child(self) -> None:
        self.lock = threading.RLock()
        self.delivery_lock = threading.Lock()
        self._is_broken = self._is_broken or self._was_busy
        if self.io is not None:
            self.io.is_ended = True
            self.io = None

    def _on_exit(self) -> None:
        """Flush what was left open; a daemon thread must not run into the interpreter's end."""
        io = self.io
        if io is None:
            return
        closer = threading.Thread(target=_close_all, args=(list(io.users),), daemon=True)
        closer.start()
        closer.join(EXIT_WAIT_S)


def _grpc_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if GRPC_THREAD in thread.name]


def _close_all(users: Sequence[Log]) -> None:
    for user in users:
        try:
            user.close()
        except QuorumlogError as error:
            _log.error("clients.left_open error=%s", error)


_STATE = _State()


# --- producer ------------------------------------------------------------------------------------


class Delivery(Future[Delivered]):
    """The outcome of one record: a `concurrent.futures.Future` of `Delivered`.

    As cheap as two fields until somebody waits for it: the state of a Future is made at its first
    use, and the outcome is read from the batch. It cannot be cancelled: the record is on its way.
    """

    def __init__(self, batch: Batch, index: int) -> None:
        # Deliberately without super().__init__(), see __getattr__.
        self._batch = batch
        self._index = index

    def __getattr__(self, name: str) -> Any:
        """Make the Future's own state, which was not there."""
        if name.startswith("__") or name in ("_batch", "_index"):
            raise AttributeError(name)
        with _STATE.delivery_lock:
            is_new = "_condition" not in self.__dict__
            if is_new:
                super().__init__()
        if is_new:
            self._batch.is_observed = True
            self._batch.add_waiter(self._resolve)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.is_done

    def result(self, timeout: float | None = None) -> Delivered:
        """Wait up to `timeout` seconds and return where the record is, or raise why it is not;
        raises TimeoutError when the outcome is not known by then."""
        if not self._batch.is_done:
            super().exception(timeout)
        return self._batch.delivered(self._index)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait up to `timeout` seconds and return why the record is not delivered, None when it
        is; raises TimeoutError."""
        if not self._batch.is_done:
            super().exception(timeout)
        self._batch.is_observed = True
        return self._batch.error

    def cancel(self) -> bool:
        """Do nothing: the record was accepted."""
        return False

    def _resolve(self) -> None:
        try:
            self.set_result(self._batch.delivered(self._index))
        except QuorumlogError as error:
            self.set_exception(error)


class Producer:
    """Sends records; made by `Log.producer()`. For any number of threads.

    Leaving its `with` block flushes; a failure that nobody looked at is raised by `flush` and
    `close`, so that no record is lost in silence.
    """

    def __init__(
        self, log: Log, partitioner: Partitioner | None, settings: ProducerSettings
    ) -> None:
        self._log = log
        self._partitioner = partitioner
        self._settings = settings
        self._io: IoThread
        self._lock: threading.Lock
        self._producer: AsyncProducer
        self._is_closed = False
        self._make()

    def send(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: HeadersIn = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Take one record, waiting for room if need be, and return the future of its outcome.

        See `AsyncProducer.send` for the arguments and errors.
        """
        while True:
            try:
                with self._lock:
                    batch = self._producer.accept(
                        topic, value, key, headers, timestamp_ms, partition
                    )
                    if batch is not None:
                        return Delivery(batch, batch.count - 1)
                size = size_bound(value, key, headers)
                self._io.wait(self._producer.wait_acceptable(topic, size))
            except Stopping:
                if self._is_closed or not self._io.is_ended:
                    raise
                self._make()  # it was ended for a fork

    def send_arrow(
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
        """Send a whole Arrow table and return where its rows are; see
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
        """Return when everything sent so far has its outcome; see `AsyncProducer.flush`."""
        if not self._is_closed:
            self._wait(lambda producer: producer.flush(timeout_ms=timeout_ms))

    def close(self, *, flush: bool = True) -> None:
        """Flush, then stop. Repeating is fine."""
        if not self._is_closed:
            self._io.refuse_callbacks()
            self._is_closed = True
            if not self._io.is_ended:
                self._io.wait(self._producer.close(flush=flush))

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
            error.add_note(f"records were not delivered either: {failure}")

    def _wait(self, work: Callable[[AsyncProducer], Coroutine[Any, Any, T]]) -> T:
        if self._is_closed:
            raise Stopping("the producer is closed")
        if self._io.is_ended:
            self._make()
        return self._io.wait(work(self._producer))

    def _make(self) -> None:
        """Make the producer, or a new one after a fork."""
        io, log = self._log.opened()
        lock = threading.Lock()

        async def make() -> AsyncProducer:
            return log.producer(
                partitioner=self._partitioner,
                threading=Threading(lock, io.loop.call_soon_threadsafe),
                **self._settings,
            )

        self._producer = io.wait(make())
        self._lock = lock
        self._io = io  # last: what other threads look at first
