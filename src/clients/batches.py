"""Records on their way: a batch of one partition, and the handle of one record in it.

A batch gathers plain columns (no object a record) and has one outcome, which every record's handle
reads. Completing is safe against waiters that register on other threads: the outcome is set before
the waiters are drained, a waiter is added before the outcome is looked at, and taking a waiter out
of the deque is atomic, so each runs exactly once.

Pure: what a waiter does (resolve a future of a loop, or of a thread) is its owner's business.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import QuorumlogError

if TYPE_CHECKING:
    from .accumulator import PartitionQueue

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

RECORD_OVERHEAD = 12  # bytes counted for a record besides key, value and headers: length varints


class Delivered(NamedTuple):
    """Where a record is now; `offset` is -1 where no answer was asked for (acks="none")."""

    topic: str
    partition: int
    offset: int


class Batch:
    """Records of one partition that are stored together, and their common outcome."""

    __slots__ = (
        "base_offset",
        "count",
        "deadline_ms",
        "encoded",
        "error",
        "goes_alone",
        "headers",
        "is_done",
        "is_observed",
        "keys",
        "linger_end_ms",
        "queue",
        "size",
        "timestamps",
        "values",
        "waiters",
    )

    def __init__(self, queue: "PartitionQueue") -> None:
        self.queue = queue
        self.linger_end_ms = 0  # closed at the latest then; stamped by the accumulator
        self.deadline_ms = 0  # not delivered by then: fails; stamped with it
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Headers] = {}  # by index, of the records that have any
        self.size = 0  # estimate before compression; what it takes of the buffer
        self.count = 0
        self.encoded: bytes | None = None  # kept for a repeat; the columns are gone then
        self.goes_alone = (
            False  # a request with it was refused: find out which batch is the bad one
        )
        self.is_done = False
        self.is_observed = False  # somebody looks at the outcome
        self.base_offset = -1
        self.error: QuorumlogError | None = None
        self.waiters: deque[Callable[[], None]] = deque()

    def delivered(self, index: int) -> Delivered:
        """Return where record `index` is; raises the batch's error. Only when is_done."""
        assert self.is_done, f"outcome of record {index} asked for before it is known"
        self.is_observed = True
        if self.error is not None:
            raise self.error.with_traceback(None)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return Delivered(self.queue.topic, self.queue.partition, offset)

    def complete(self, base_offset: int) -> None:
        """The records are stored from `base_offset` on (-1: nobody will say)."""
        assert not self.is_done, "a batch has one outcome"
        self.base_offset = base_offset
        self._finish()

    def fail(self, error: QuorumlogError) -> None:
        """The records were not stored, or whether they were is unknown (Lost, TimedOut)."""
        assert not self.is_done, "a batch has one outcome"
        self.error = error
        self._finish()

    def add_waiter(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` once when the outcome is known: now, if it is."""
        self.waiters.append(waiter)
        if self.is_done:
            self._drain()

    def drop_columns(self) -> None:
        """Free what the records came in; their encoded form is all that is needed now."""
        self.values, self.keys, self.timestamps, self.headers = [], [], [], {}

    def _finish(self) -> None:
        self.is_done = True
        self.encoded = None
        self.drop_columns()
        self._drain()

    def _drain(self) -> None:
        while True:
            try:
                waiter = self.waiters.popleft()
            except IndexError:
                return
            waiter()


class Delivery:
    """The outcome of one record, as an awaitable: `Delivered`, or the typed error is raised.

    Cheap on purpose (two fields); the outcome lives in the batch. Awaiting it twice is fine.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.is_done

    def result(self) -> Delivered:
        """Return where the record is, or raise why it is not; only when done()."""
        if not self._batch.is_done:
            raise asyncio.InvalidStateError("the record's outcome is not known yet: await it")
        return self._batch.delivered(self._index)

    def exception(self) -> QuorumlogError | None:
        """Return why the record is not delivered, None when it is; only when done()."""
        if not self._batch.is_done:
            raise asyncio.InvalidStateError("the record's outcome is not known yet: await it")
        self._batch.is_observed = True
        return self._batch.error

    def add_done_callback(self, callback: Callable[["Delivery"], None]) -> None:
        """Call `callback(self)` on the loop when the outcome is known; now, if it is. What it
        raises goes to the loop's exception handler."""

        def call() -> None:
            try:
                callback(self)
            except Exception as error:  # another's fault must not stop the delivery of the rest
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a delivery's callback failed: {callback!r}", "exception": error}
                )

        self._batch.is_observed = True
        self._batch.add_waiter(call)

    def __await__(self) -> Generator[Any, None, Delivered]:
        batch = self._batch
        batch.is_observed = True
        if not batch.is_done:
            yield from settled(batch)
        return batch.delivered(self._index)


def settled(batch: Batch) -> "asyncio.Future[None]":
    """Return a future of the running loop that is done when the batch is."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    batch.add_waiter(resolve)
    return future
