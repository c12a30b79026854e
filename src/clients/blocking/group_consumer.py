"""The blocking consumer of a group; see `blocking`.

Heartbeats and commits run on the I/O thread. Rebalance callbacks run on the application's thread,
within a reading call or `close`; they may commit, seek, and block.

A polled record that waits here is not delivered. When partitions are revoked, all waiting records
are set aside, so that the application's next step enters this module instead of taking a record.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ClientClosed, InvalidRequest
from ...ids import TopicPartition
from ..consumer.assigned_partitions import Topics
from ..consumer.consumer import AsyncConsumer
from ..consumer.record import ConsumerRecord
from ..coordination import Changes
from ..groups.commits import DeliveredPositions, first_offsets
from ..groups.coordinator import CommittedOffset
from ..groups.group_consumer import AsyncGroupConsumer, Offsets, OnCommitted
from ..groups.membership import Callbacks, OnPartitions
from ..log import AsyncLog
from ..offsets import PartitionLike
from .consumer import Consumer
from .io_thread import thread_id

if TYPE_CHECKING:
    from .log import Log

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _PendingCallback:
    """A callback to be run by the application's thread."""

    callback: OnPartitions
    places: list[TopicPartition]
    done: "asyncio.Future[None]"
    taker: object = None  # the call that runs it on its thread; None: not taken


class BlockingDeliveredPositions(DeliveredPositions):
    """Delivered positions of a blocking consumer.

    Everything runs on the I/O thread, except taking records from the front of `waiting` and
    setting `is_by_one`. The number of taken records follows from the length of `waiting`, which is
    one atomic read.
    """

    __slots__ = ("_aside", "_batch", "_rewind", "_rows", "is_by_one", "waiting")

    def __init__(
        self,
        waiting: deque[ConsumerRecord],
        rewind: Callable[[Mapping[PartitionLike, int]], None],
    ) -> None:
        super().__init__()
        self.waiting = waiting  # polled, not delivered
        self.is_by_one = False  # delivered one by one: taking a record completes the one before
        self._rewind = rewind  # rewinds the consumer to these offsets
        self._batch: list[ConsumerRecord] = []  # the last poll: taken records, then waiting ones
        self._aside: list[ConsumerRecord] = []  # removed from `waiting` by a revocation
        self._rows: dict[PartitionLike, int] = {}  # first offsets of delivered rows

    def record(self, last: Sequence[ConsumerRecord] | Mapping[PartitionLike, int]) -> None:
        """Record what a reading call of the asyncio consumer returns."""
        super().record(())
        if isinstance(last, Mapping):
            self._rows = dict(last)
        else:
            self._batch = list(last)

    def finish_delivered(self) -> None:
        """Record that the application finished all delivered records: it called again."""
        self._rows = {}
        self._batch = list(self.waiting)

    def restore(self) -> bool:
        """Move the records that were set aside back to `waiting`; return True if records wait."""
        if not self.waiting and self._aside:
            self._batch, self._aside = self._aside, []
            self.waiting.extend(self._batch)
        return bool(self.waiting)

    def pending(self) -> dict[PartitionLike, int]:
        """Return the first offset of each partition with unfinished records."""
        waiting = len(self.waiting)  # read once, and before `is_by_one`
        taken = len(self._batch) - waiting
        done = max(0, taken - 1) if self.is_by_one else 0
        return first_offsets(self._batch[done:] + self._aside) | self._rows

    def undelivered(self) -> dict[PartitionLike, int]:
        """Return the first offset of each partition with records that were not delivered."""
        return first_offsets(list(self.waiting) + self._aside)

    def mark(self) -> object:
        """Return a value that changes whenever the application makes progress."""
        return super().mark(), len(self.waiting)

    def recall(self, places: Collection[PartitionLike]) -> None:
        """Set all waiting records aside; drop those of these partitions and rewind to them."""
        dropped, self._aside = self._drained(set(places).__contains__)
        self._rewind(dropped)

    def take_out(self, of: Callable[[PartitionLike], bool]) -> dict[PartitionLike, int]:
        """Discard the waiting records of matching partitions; return their first offsets."""
        taken, kept = self._drained(of)
        self._batch += kept
        self.waiting.extend(kept)
        return taken

    def _drained(
        self, of: Callable[[PartitionLike], bool]
    ) -> tuple[dict[PartitionLike, int], list[ConsumerRecord]]:
        """Remove all waiting records, from the end that the application does not take from.

        Returns the first offsets of matching partitions, and the records of the others.
        """
        drained: list[ConsumerRecord] = []
        with suppress(IndexError):
            while True:
                drained.append(self.waiting.pop())
        self._batch = self._batch[: len(self._batch) - len(drained)]
        drained.reverse()
        drained += self._aside
        self._aside = []
        taken = [record for record in drained if of((record.topic, record.partition))]
        kept = [record for record in drained if not of((record.topic, record.partition))]
        return first_offsets(taken), kept


class GroupConsumer(Consumer):
    """Reads the partitions that its group assigns; created by `Log.group_consumer()`.

    ```python
    with log.group_consumer("billing", "flights") as consumer:
        for record in consumer:
            ...
    ```
    See `AsyncGroupConsumer`, and `Consumer` for thread safety. Callbacks run on the reading
    thread.
    """

    def __init__(
        self,
        log: "Log",
        make: Callable[[AsyncLog, Callbacks], AsyncGroupConsumer],
        callbacks: Callbacks,
        on_close: Callable[["GroupConsumer"], None],
    ) -> None:
        self._delivered: BlockingDeliveredPositions
        self._member: AsyncGroupConsumer
        self._busy_us: Callable[[], int]
        self._due: deque[_PendingCallback] = deque()
        self._turn = Changes()
        self._running: tuple[int, _PendingCallback] | None = (
            None  # the running callback and its thread's id
        )
        self._is_suspended = False  # before a fork: no thread may run callbacks
        self._on_close = on_close
        wrapped = Callbacks(
            self._on_reader_thread(callbacks.on_assigned),
            self._on_reader_thread(callbacks.on_revoked),
            self._on_reader_thread(callbacks.on_lost),
        )
        super().__init__(log, lambda log: make(log, wrapped))

    @property
    def group(self) -> str:
        """The group's name."""
        return self._member.group

    @property
    def member_id(self) -> str:
        """The member id in the group."""
        return self._member.member_id

    # --- reading -----------------------------------------------------------------------------

    def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return buffered records; see `AsyncGroupConsumer.poll`."""
        self._check_session()
        self._delivered.is_by_one = False
        return super().poll(max_records=max_records, timeout_ms=timeout_ms)

    def __next__(self) -> ConsumerRecord:
        """Return the next record."""
        if self._busy_us() >= self._member.membership.member.holds_until_us:
            self._check_session()
        try:
            return self._ahead.popleft()
        except IndexError:
            record = self._next(None)
        if record is None:
            raise StopIteration
        return record

    def _next(self, wait_ms: Callable[[], int | None] | None) -> ConsumerRecord | None:
        self._check_session()
        if not self._ahead:
            self._delivered.is_by_one = True  # for the records of the following poll
        return super()._next(wait_ms)

    def _check_session(self) -> None:
        """Check the session before a buffered record is delivered.

        If the whole process was stopped, the session may have expired without the I/O thread
        having noticed yet; another member may own the partitions.
        """
        if self._busy_us() >= self._member.membership.member.holds_until_us and not self._is_closed:

            async def check_deadlines(consumer: AsyncConsumer) -> None:
                self._member.membership.check_deadlines()

            self._wait(check_deadlines)

    def _read_ahead(self, max_records: int | None, timeout_ms: int | None) -> bool:

        async def read(consumer: AsyncConsumer) -> bool:
            if self._ahead:
                return True  # restored by another call
            membership = self._member.membership
            if self._delivered.restore():
                membership.start_poll()
                membership.end_poll()
                return True
            self._rewind(consumer)
            records = await consumer.poll(max_records=max_records, timeout_ms=timeout_ms)
            self._ahead.extend(records)
            return bool(records)

        return self._read(read)

    def _discard_buffered(self, of: Callable[[PartitionLike], bool]) -> dict[PartitionLike, int]:
        return self._delivered.take_out(of)

    def _ahead_positions(self) -> dict[PartitionLike, int]:
        return self._delivered.undelivered()

    # --- the group -----------------------------------------------------------------------------

    def subscribe(self, topics: Topics = (), *, pattern: str | None = None) -> None:
        """Replace the subscription by these topics, or by those that match a pattern (RE2).

        See `AsyncGroupConsumer.subscribe`.
        """
        self._ask(lambda member: member.subscribe(topics, pattern=pattern))

    def commit(self, offsets: Offsets | None = None, *, timeout_ms: int | None = None) -> None:
        """Commit offsets and wait until they are stored.

        By default commits the positions: the offsets after all delivered records, those of the last
        `poll` included. See `AsyncGroupConsumer.commit`.
        """
        self._ask(lambda member: member.commit(offsets, timeout_ms=timeout_ms))

    def commit_nowait(
        self, offsets: Offsets | None = None, *, on_done: OnCommitted | None = None
    ) -> None:
        """Queue a commit and return; `on_done` is called on the I/O thread and must not block."""

        async def commit(member: AsyncGroupConsumer) -> None:
            member.commit_nowait(offsets, on_done=on_done)

        self._ask(commit)

    def committed(
        self,
        partitions: PartitionLike | Iterable[PartitionLike] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Query the committed offsets of partitions, by default the assigned ones.

        None: no offset is stored.
        """
        return self._ask(lambda member: member.committed(partitions, timeout_ms=timeout_ms))

    def seek_to_committed(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Seek the assigned partitions to their committed offsets and return these; see
        `AsyncGroupConsumer.seek_to_committed`."""

        async def seek(member: AsyncGroupConsumer) -> dict[TopicPartition, int]:
            positions = await member.seek_to_committed(timeout_ms=timeout_ms)
            self._discard_buffered(positions.__contains__)
            return positions

        return self._ask(seek)

    def add_to_transaction(
        self, send: Callable[[AsyncGroupConsumer], Coroutine[Any, Any, None]]
    ) -> None:
        """Run the asyncio `send_offsets` of a producer with this consumer."""
        self._ask(send)

    # --- closing -------------------------------------------------------------------------------

    def close(self, *, commit: bool = True) -> None:
        """Commit delivered records (with `auto_commit`), revoke the partitions and leave the
        group.

        With `commit=False` the records of the last reading call are not committed. A waiting poll
        raises ClientClosed. Idempotent.
        """
        if self._is_closed:
            return
        self._io.refuse_callbacks()
        self._on_close(self)
        try:
            if self._running is not None and self._running[0] == thread_id():
                self._io.wait(self._ran(self._running[1]))  # else close would wait for its caller
            if not self._io.is_ended:
                self._run_with_callbacks(
                    lambda _: self._member.close(commit=commit), run_to_end=True
                )
        finally:
            self._is_closed = True
            self._ahead.clear()

    def suspend(self) -> None:
        """Run no more callbacks: the I/O thread ends for a fork."""
        self._is_suspended = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(commit=error is None)

    # --- callbacks -----------------------------------------------------------------------------

    def _on_reader_thread(self, callback: OnPartitions | None) -> OnPartitions | None:
        """Return a callback for the I/O thread that runs `callback` on the application's thread."""
        if callback is None:
            return None
        if asyncio.iscoroutinefunction(callback):
            raise InvalidRequest(
                "a callback is async: give a plain function; it may call the consumer's methods"
            )

        async def ask(places: list[TopicPartition]) -> None:
            if self._is_suspended:
                return
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._due.append(_PendingCallback(callback, places, done))
            self._delivered.recall(())  # the application's next step calls `_run_with_callbacks`
            self._turn.announce()
            await done

        return ask

    def _read(self, work: Callable[[AsyncConsumer], Coroutine[Any, Any, T]]) -> T:
        return self._run_with_callbacks(work)

    def _ask(self, work: Callable[[AsyncGroupConsumer], Coroutine[Any, Any, T]]) -> T:
        return self._wait(lambda _: work(self._member))

    def _run_with_callbacks(
        self,
        work: Callable[[AsyncConsumer], Coroutine[Any, Any, T]],
        *,
        run_to_end: bool = False,
    ) -> T:
        """Run an asyncio method on the I/O thread, and due callbacks on this thread until it ends.

        An error of a callback cancels the method; with `run_to_end` it is raised at the end.
        """
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
        if self._io.is_ended:
            self._make()
        io, failure = self._io, None
        io.refuse_callbacks()
        future = asyncio.run_coroutine_threadsafe(work(self._consumer), io.loop)
        future.add_done_callback(lambda _: io.loop.call_soon_threadsafe(self._turn.announce))
        me = object()
        try:
            while (due := io.wait(self._next_due(future, me))) is not None:
                try:
                    self._run(due)
                except Exception as error:  # raised by the callback
                    failure = failure or error
                    if not run_to_end:
                        raise
            outcome = future.result()
        finally:
            future.cancel()  # of no effect unless the wait was interrupted
            with suppress(RuntimeError):  # the loop has ended
                io.loop.call_soon_threadsafe(self._release_callbacks, me)
        if failure is not None:
            raise failure
        return outcome

    async def _next_due(self, future: Any, me: object) -> _PendingCallback | None:
        """Wait for a callback that no other thread runs; None if the method has ended."""
        while True:
            for due in self._due:
                if due.taker in (None, me):
                    due.taker = me
                    return due
            if future.done():
                return None
            await self._turn.wait()

    def _release_callbacks(self, taker: object) -> None:
        """Release the callbacks that an ended call took and did not run."""
        for due in self._due:
            if due.taker is taker:
                due.taker = None
        self._turn.announce()

    def _run(self, due: _PendingCallback) -> None:
        """Run a callback on this thread; after an interruption it is run again."""
        before, self._running = self._running, (thread_id(), due)
        try:
            due.callback(due.places)
        except Exception:
            self._io.wait(self._ran(due))
            raise
        finally:
            self._running = before
        self._io.wait(self._ran(due))

    async def _ran(self, due: _PendingCallback) -> None:
        if due in self._due:
            self._due.remove(due)
        if not due.done.done():
            due.done.set_result(None)

    def _make(self) -> None:
        self._is_suspended = False
        self._due.clear()
        self._ahead.clear()  # a new member starts at the committed offsets
        super()._make()
        assert isinstance(self._consumer, AsyncGroupConsumer)
        self._member = self._consumer
        self._busy_us = self._io.runtime.clock.busy_us
        self._delivered = BlockingDeliveredPositions(self._ahead, self._member.rewind)
        self._member.membership.delivered = self._delivered
