"""The consumer of a group for programs without a loop; see `blocking`.

Heartbeats and commits go on on the I/O thread, whatever the application does. What it is told of
partitions it is told on its own thread, within a reading call or `close`: its callbacks may commit,
seek, and take their time.

A record that was polled and waits here was not handed out; when partitions are given back, all that
waits is put aside, so that the application's next step comes here and not to the next record.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import InvalidRequest, Stopping
from ..consuming.assignment import Wanted
from ..consuming.consumer import AsyncConsumer
from ..consuming.grouping.callbacks import Callbacks, OnPartitions
from ..consuming.grouping.calls import CommittedOffset
from ..consuming.grouping.group_consumer import AsyncGroupConsumer, Offsets, OnCommitted
from ..consuming.grouping.handed import Handed, first_offsets
from ..consuming.record import ConsumerRecord
from ..coordination import Changes
from ..log import AsyncLog
from ..offsets import Place
from .consumer import Consumer
from .io_thread import thread_id

if TYPE_CHECKING:
    from .log import Log

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Due:
    """A callback that waits for the application's thread."""

    callback: OnPartitions
    places: list[Place]
    over: "asyncio.Future[None]"
    taker: object = None  # the call whose thread runs it; None: none has taken it


class HandedOn(Handed):
    """What the application's thread has of the records that were polled for it.

    All is done on the I/O thread but taking records from the front of `waiting`, and `is_by_one`.
    How many were taken is told by how many still wait, which is one look at one number.
    """

    __slots__ = ("_aside", "_batch", "_rewind", "_rows", "is_by_one", "waiting")

    def __init__(
        self,
        waiting: deque[ConsumerRecord],
        rewind: Callable[[Mapping[Place, int]], None],
    ) -> None:
        super().__init__()
        self.waiting = waiting  # polled, not handed out
        self.is_by_one = False  # handed out one by one: with the next one the last is done with
        self._rewind = rewind  # has the consumer read again from these offsets on
        self._batch: list[ConsumerRecord] = []  # those that wait, with those handed out before them
        self._aside: list[ConsumerRecord] = []  # waited, until partitions were given back
        self._rows: dict[Place, int] = {}  # first offsets of rows

    def out(self, last: Sequence[ConsumerRecord] | Mapping[Place, int]) -> None:
        """A reading call of the asyncio face returns these."""
        super().out(())
        if isinstance(last, Mapping):
            self._rows = dict(last)
        else:
            self._batch = list(last)

    def over(self) -> None:
        """The application has come back: it is done with all that it was handed."""
        self._rows = {}
        self._batch = list(self.waiting)

    def restore(self) -> bool:
        """Have those wait again that were put aside; whether any do."""
        if not self.waiting and self._aside:
            self._batch, self._aside = self._aside, []
            self.waiting.extend(self._batch)
        return bool(self.waiting)

    def pending(self) -> dict[Place, int]:
        """Return the first offset of each partition that the application is not done with."""
        waiting = len(self.waiting)  # at once, and before the look at how they are taken
        taken = len(self._batch) - waiting
        done = max(0, taken - 1) if self.is_by_one else 0
        return first_offsets(self._batch[done:] + self._aside) | self._rows

    def ahead(self) -> dict[Place, int]:
        """Return the first offset of each partition that it was not given."""
        return first_offsets(list(self.waiting) + self._aside)

    def mark(self) -> object:
        """Return something that is another whenever the application has got on."""
        return super().mark(), len(self.waiting)

    def recall(self, places: Collection[Place]) -> None:
        """Put all aside that waits; what is of these partitions is not handed out at all."""
        dropped, self._aside = self._drained(set(places).__contains__)
        self._rewind(dropped)

    def take_out(self, of: Callable[[Place], bool]) -> dict[Place, int]:
        """Forget what waits, of these places; return its first offsets."""
        taken, kept = self._drained(of)
        self._batch += kept
        self.waiting.extend(kept)
        return taken

    def _drained(
        self, of: Callable[[Place], bool]
    ) -> tuple[dict[Place, int], list[ConsumerRecord]]:
        """Take out all that waits, from the end that the application does not take from."""
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
    """Reads what its group gives it; made by `Log.consumer(group=...)`.

    ```python
    with log.consumer("flights", group="g") as consumer:
        for record in consumer:
            ...
    ```
    See `AsyncGroupConsumer`, and `Consumer` for threads. Callbacks run on the thread that reads.
    """

    def __init__(
        self,
        log: "Log",
        make: Callable[[AsyncLog, Callbacks], AsyncGroupConsumer],
        callbacks: Callbacks,
        on_close: Callable[["GroupConsumer"], None],
    ) -> None:
        self._handed: HandedOn
        self._member: AsyncGroupConsumer
        self._busy_us: Callable[[], int]
        self._due: deque[_Due] = deque()
        self._turn = Changes()
        self._running: tuple[int, _Due] | None = None  # a callback, and on which thread
        self._is_deaf = False  # nobody is there to run callbacks
        self._is_in_error = False
        self._on_close = on_close
        wrapped = Callbacks(
            self._asking(callbacks.on_assigned),
            self._asking(callbacks.on_revoked),
            self._asking(callbacks.on_lost),
        )
        super().__init__(log, lambda log: make(log, wrapped))

    @property
    def group(self) -> str:
        """The group's name."""
        return self._member.group

    @property
    def member_id(self) -> str:
        """What the group knows this consumer by."""
        return self._member.member_id

    # --- reading -----------------------------------------------------------------------------

    def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return what is there; see `AsyncGroupConsumer.poll`."""
        self._look()
        self._handed.is_by_one = False
        return super().poll(max_records=max_records, timeout_ms=timeout_ms)

    def __next__(self) -> ConsumerRecord:
        """Return the next record."""
        if self._busy_us() >= self._member.membership.member.holds_until_us:
            self._look()
        try:
            return self._ahead.popleft()
        except IndexError:
            record = self._next(None)
        if record is None:
            raise StopIteration
        return record

    def _next(self, wait_ms: Callable[[], int | None] | None) -> ConsumerRecord | None:
        self._look()
        if not self._ahead:
            self._handed.is_by_one = True  # of what is polled for it now
        return super()._next(wait_ms)

    def _look(self) -> None:
        """What waits here may be others' by now: the I/O thread may not have noticed yet, where the
        whole process was stopped."""
        if self._busy_us() >= self._member.membership.member.holds_until_us and not self._is_closed:

            async def look(consumer: AsyncConsumer) -> None:
                self._member.membership.look()

            self._wait(look)

    def _read_ahead(self, max_records: int | None, timeout_ms: int | None) -> bool:

        async def read(consumer: AsyncConsumer) -> bool:
            if self._ahead:
                return True  # put back meanwhile
            membership = self._member.membership
            if self._handed.restore():
                membership.came_back()
                membership.went()
                return True
            self._rewind(consumer)
            records = await consumer.poll(max_records=max_records, timeout_ms=timeout_ms)
            self._ahead.extend(records)
            return bool(records)

        return self._read(read)

    def _take_out(self, of: Callable[[Place], bool]) -> dict[Place, int]:
        return self._handed.take_out(of)

    def _ahead_positions(self) -> dict[Place, int]:
        return self._handed.ahead()

    # --- the group -----------------------------------------------------------------------------

    def subscribe(self, topics: Wanted = (), *, pattern: str = "") -> None:
        """Want these topics, or those whose names match a pattern (RE2), instead of what was wanted
        before; see `AsyncGroupConsumer.subscribe`."""
        self._ask(lambda member: member.subscribe(topics, pattern=pattern))

    def commit(self, offsets: Offsets | None = None, *, timeout_ms: int | None = None) -> None:
        """Store how far the group has read, by default behind everything that was handed out, and
        return when that is so; see `AsyncGroupConsumer.commit`."""
        self._ask(lambda member: member.commit(offsets, timeout_ms=timeout_ms))

    def commit_nowait(
        self, offsets: Offsets | None = None, *, on_done: OnCommitted | None = None
    ) -> None:
        """Do as `commit` does, in its turn, and do not wait; `on_done` is called on the I/O thread
        and must not block."""

        async def commit(member: AsyncGroupConsumer) -> None:
            member.commit_nowait(offsets, on_done=on_done)

        self._ask(commit)

    def committed(
        self, partitions: Iterable[Place] | None = None, *, timeout_ms: int | None = None
    ) -> dict[Place, CommittedOffset | None]:
        """Ask what the group has stored, of some (topic, partition) pairs, or of those that are
        assigned; None: nothing."""
        return self._ask(lambda member: member.committed(partitions, timeout_ms=timeout_ms))

    # --- life --------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit what was handed out (with `auto_commit`), give the partitions back and leave the
        group; a poll that waits ends by Stopping. Repeating is fine."""
        if self._is_closed:
            return
        self._io.refuse_callbacks()
        self._on_close(self)
        try:
            if self._running is not None and self._running[0] == thread_id():
                self._io.wait(self._ran(self._running[1]))  # or it would wait for its caller
            if not self._io.is_ended:
                self._attend(self._closing, goes_on=True)
        finally:
            self._is_closed = True
            self._ahead.clear()

    async def _closing(self, consumer: AsyncConsumer) -> None:
        self._member.is_in_error |= self._is_in_error
        await consumer.close()

    def in_error(self) -> None:
        """The application ends by an error: what it was handed last it has not seen to."""
        self._is_in_error = True

    def wind_down(self) -> None:
        """The I/O thread ends for a while; no callback can be run then."""
        self._is_deaf = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_in_error |= error is not None
        self.close()

    # --- callbacks -----------------------------------------------------------------------------

    def _asking(self, callback: OnPartitions | None) -> OnPartitions | None:
        """Return a callback for the I/O thread that has the application's thread run this one."""
        if callback is None:
            return None
        if asyncio.iscoroutinefunction(callback):
            raise InvalidRequest(
                "a callback is async: give a plain function, which may call the consumer's methods"
            )

        async def ask(places: list[Place]) -> None:
            if self._is_deaf:
                return
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._due.append(_Due(callback, places, over))
            self._handed.recall(())  # the application's next step comes to `_attend`
            self._turn.announce()
            await over

        return ask

    def _read(self, work: Callable[[AsyncConsumer], Coroutine[Any, Any, T]]) -> T:
        return self._attend(work)

    def _ask(self, work: Callable[[AsyncGroupConsumer], Coroutine[Any, Any, T]]) -> T:
        return self._wait(lambda _: work(self._member))

    def _attend(
        self,
        work: Callable[[AsyncConsumer], Coroutine[Any, Any, T]],
        *,
        goes_on: bool = False,
    ) -> T:
        """Run an asyncio method on the I/O thread, and on this one the callbacks that are due
        meanwhile. What a callback raises ends the method, or with `goes_on` comes after it."""
        if self._is_closed:
            raise Stopping("the consumer is closed")
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
                except Exception as error:  # the application's own
                    failure = failure or error
                    if not goes_on:
                        raise
            outcome = future.result()
        finally:
            future.cancel()  # of no effect unless the wait was interrupted
            with suppress(RuntimeError):  # the loop has ended
                io.loop.call_soon_threadsafe(self._put_back, me)
        if failure is not None:
            raise failure
        return outcome

    async def _next_due(self, future: Any, me: object) -> _Due | None:
        """Wait for a callback that no other thread runs; None when the method has ended."""
        while True:
            for due in self._due:
                if due.taker in (None, me):
                    due.taker = me
                    return due
            if future.done():
                return None
            await self._turn.wait()

    def _put_back(self, taker: object) -> None:
        """A call is over: what it took and has not run is another one's to run."""
        for due in self._due:
            if due.taker is taker:
                due.taker = None
        self._turn.announce()

    def _run(self, due: _Due) -> None:
        """Run a callback on this thread; Ctrl-C in it leaves it to be run again."""
        before, self._running = self._running, (thread_id(), due)
        try:
            due.callback(due.places)
        except Exception:
            self._io.wait(self._ran(due))
            raise
        finally:
            self._running = before
        self._io.wait(self._ran(due))

    async def _ran(self, due: _Due) -> None:
        if due in self._due:
            self._due.remove(due)
        if not due.over.done():
            due.over.set_result(None)

    def _make(self) -> None:
        self._is_deaf = False
        self._due.clear()
        self._ahead.clear()  # a member that joins anew begins where the group is
        super()._make()
        assert isinstance(self._consumer, AsyncGroupConsumer)
        self._member = self._consumer
        self._busy_us = self._io.runtime.clock.busy_us
        self._handed = HandedOn(self._ahead, self._member.rewind)
        self._member.membership.handed = self._handed
