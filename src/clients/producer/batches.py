"""Batches of records, and the handle of one record.

A batch collects columns (no object per record) and has one outcome, read by every record's handle.
Only a batch that was split because it was too large has an outcome per part. Completion is safe
against waiters that other threads register: the outcome is set before the waiters are drained, a
waiter is added before the outcome is checked, and popping the deque is atomic. So each waiter runs
exactly once.

Pure: resolving a future, of a loop or of a thread, is the waiter's task.
"""

import asyncio
import logging
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...errors import QuorumlogError
from ...records.record import Headers
from .sequences import ProducerSequence

if TYPE_CHECKING:
    from .partition_queue import Part, PartitionQueue

RECORD_OVERHEAD = 12  # bytes of the encoded record besides key, value and headers: length varints
OBJECT_OVERHEAD = 64  # bytes of a record's objects and columns besides its content
RUN_MIN = 16  # minimum number of consecutive records stored as one run
ENCODED_OVERHEAD = 8  # bytes per record besides its encoded batch: its time, or its row's number

# Caught around a callback. A cancellation would end the client's own task.
CALLBACK_ERRORS = (Exception, SystemExit, asyncio.CancelledError)

_log = logging.getLogger(__name__)


class Delivered(NamedTuple):
    """The position of a stored record; `offset` is -1 with acks="none"."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int = -1  # stored, ms since 1970: the record's, or the broker's append time


class DeliveredRange(NamedTuple):
    """Offsets [first, end) of a partition with records in sending order; -1 and -1 with
    acks="none"."""

    topic: str
    partition: int
    first: int
    end: int


OnDelivery: TypeAlias = Callable[[Delivered | None, QuorumlogError | None], object]
"""A record's callback: exactly one of the two arguments is None.

Called once, on the loop's (I/O) thread. Within a partition calls are in offset order, except for
failures among successes. It must be quick. An error that it raises is logged."""


class Batch:
    """Records of one partition that are stored together, and their common outcome."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "callbacks",
        "count",
        "deadline_ms",
        "encoded",
        "error",
        "goes_alone",
        "headers",
        "is_done",
        "is_encoded",
        "is_sent",
        "keys",
        "linger_end_ms",
        "may_be_stored",
        "number",
        "observed",
        "observed_runs",
        "order",
        "part",
        "parts",
        "queue",
        "sealed",
        "size",
        "timestamps",
        "values",
        "waiters",
        "whole",
    )

    def __init__(self, queue: "PartitionQueue") -> None:
        self.queue = queue
        self.linger_end_ms = 0  # latest time of closing; set by the accumulator
        self.deadline_ms = 0  # delivery deadline; set with it
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps = array("q")  # kept for the outcome; empty if it was added encoded
        self.headers: dict[int, Headers] = {}  # by index, of the records with headers
        self.callbacks: dict[int, OnDelivery] = {}  # by index, of the records with a callback
        self.size = 0  # bytes in a request: encoded, or estimated before compression
        self.count = 0
        self.encoded: bytes | None = None  # kept for retries; replaces the columns
        self.goes_alone = False  # sent without other batches, to find the refused one
        self.is_encoded = False  # the columns were dropped
        self.is_done = False
        self.part: Part | None = None  # taken for sending, or sent without a response
        self.is_sent = False  # in a request without a response
        self.order = 0  # ascending within a partition; halves keep it
        self.number: ProducerSequence | None = (
            None  # of an idempotent producer, from the first sending
        )
        self.sealed: ProducerSequence | None = None  # the number in `encoded`
        self.may_be_stored = False  # an attempt ended without a response
        self.observed: set[int] = set()  # records with a retrieved outcome
        self.observed_runs: set[tuple[int, int]] = set()  # the same as ranges [first, end)
        self.base_offset = -1
        self.append_time_ms = -1  # the broker's, if the topic uses it
        self.error: QuorumlogError | None = None
        self.waiters: deque[Callable[[], None]] = deque()
        self.parts: tuple[tuple[int, Batch], ...] = ()  # (first index, batch) after a split
        self.whole: tuple[Batch, int] | None = None  # the batch split, and the first index in it

    # --- the outcome -----------------------------------------------------------------------

    def delivered(self, index: int) -> Delivered:
        """Return the position of record `index`, or raise its error; only if is_done."""
        assert self.is_done, f"the outcome of record {index} is not known yet"
        if self.parts:
            part, within = self._part(index)
            return part.delivered(within)
        if self.error is not None:
            self.observe(index)
            raise self.error.with_traceback(None)
        return self._place(index)

    def error_of(self, index: int) -> QuorumlogError | None:
        """Return the error of record `index`, None if it is stored; only if is_done."""
        if self.parts:
            part, within = self._part(index)
            return part.error_of(within)
        self.observe(index)
        return self.error

    def observe(self, index: int) -> None:
        """Mark a record's outcome as retrieved: `flush` does not raise it."""
        self.observed.add(index)

    def observe_run(self, first: int, end: int) -> None:
        """Mark the outcomes of records [first, end) as retrieved."""
        if end - first < RUN_MIN:
            self.observed.update(range(first, end))
        else:
            self.observed_runs.add((first, end))

    def unobserved(self) -> list[int]:
        """Return the ascending indices of the records without a retrieved outcome."""
        seen = bytearray(self.count)
        self._mark_observed(seen, 0)
        if self.whole is not None:
            whole, first = self.whole
            whole._mark_observed(seen, first)
        return [index for index, is_seen in enumerate(seen) if not is_seen]

    def has_failed(self) -> bool:
        """Return True if any of its records has failed; only if is_done."""
        return self.error is not None or any(part.has_failed() for _, part in self.parts)

    def add_waiter(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` once the outcome is known, which may be now."""
        self.waiters.append(waiter)
        if self.is_done:
            self._drain()

    # --- state changes ---------------------------------------------------------------------

    def complete(self, base_offset: int, append_time_ms: int = -1) -> None:
        """Record that the batch is stored at `base_offset` (-1: unknown)."""
        assert not self.is_done, "a batch has one outcome"
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.drop_content()
        self._finish()

    def fail(self, error: QuorumlogError) -> None:
        """Record the failure; whether the records are stored may be unknown (`may_be_stored`).

        The content is kept for `failures`, which drops it.
        """
        assert not self.is_done, "a batch has one outcome"
        self.may_be_stored = self.may_be_stored or self.is_sent
        self.error = error
        self._finish()

    def become(self, parts: "tuple[tuple[int, Batch], ...]") -> None:
        """Replace the batch by its parts, which take over its callbacks and determine its
        outcome."""
        self.parts = parts
        self.callbacks = {}
        self.drop_content()
        left = len(parts)

        def part_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._finish()

        for first, part in parts:
            part.whole = (self, first) if self.whole is None else self._above(first)
            part.waiters.append(part_done)

    @property
    def held(self) -> int:
        """The bytes that it takes of the buffer."""
        each = ENCODED_OVERHEAD if self.is_encoded else OBJECT_OVERHEAD
        return self.size + self.count * each

    @property
    def place(self) -> tuple[int, int]:
        """Its sort key among the batches of its partition."""
        return self.order, 0 if self.whole is None else self.whole[1]

    def become_encoded(self, encoded: bytes, number: ProducerSequence | None = None) -> None:
        """Keep only the encoded form, which has this number."""
        self.encoded, self.size, self.is_encoded = encoded, len(encoded), True
        self.sealed = number
        self._drop_columns()

    def cut(self) -> None:
        """Remove what belongs to a record that was appended in part."""
        count = self.count
        del self.values[count:], self.keys[count:], self.timestamps[count:]
        for each in (self.headers, self.callbacks):
            for index in [index for index in each if index >= count]:
                del each[index]

    def drop_content(self) -> None:
        """Free the columns and the encoded form."""
        self.encoded = None
        self._drop_columns()

    # --- internals -------------------------------------------------------------------------

    def _drop_columns(self) -> None:
        """Free the columns."""
        self.values, self.keys, self.headers = [], [], {}

    def _mark_observed(self, seen: bytearray, first: int) -> None:
        """Mark the retrieved ones among the records from `first`.

        Other threads may add to the sets concurrently; copying one is atomic.
        """
        count = len(seen)
        for index in self.observed.copy():
            if first <= index < first + count:
                seen[index - first] = 1
        for begin, end in self.observed_runs.copy():
            low, high = max(0, begin - first), min(count, end - first)
            if low < high:
                seen[low:high] = b"\1" * (high - low)

    def _above(self, first: int) -> "tuple[Batch, int]":
        assert self.whole is not None, "a part of nothing"
        whole, begin = self.whole
        return whole, begin + first

    def _part(self, index: int) -> "tuple[Batch, int]":
        first, part = next(pair for pair in reversed(self.parts) if pair[0] <= index)
        return part, index - first

    def _place(self, index: int) -> Delivered:
        timestamp_ms = self.append_time_ms
        if timestamp_ms < 0 and self.timestamps:
            timestamp_ms = self.timestamps[index]
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return Delivered(self.queue.topic, self.queue.partition, offset, timestamp_ms)

    def _finish(self) -> None:
        self.is_done = True
        if self.callbacks:
            self._call_back()
        self._drain()

    def _call_back(self) -> None:
        callbacks, self.callbacks = self.callbacks, {}
        for index, callback in callbacks.items():  # in the order of sending
            try:
                if self.error is not None:
                    self.observe(index)
                    callback(None, self.error)
                else:
                    callback(self._place(index), None)
            except CALLBACK_ERRORS:  # an error of a callback must not affect other records
                _log.exception("producer.callback_failed callback=%r", callback)

    def _drain(self) -> None:
        while True:
            try:
                waiter = self.waiters.popleft()
            except IndexError:
                return
            waiter()


def ranges_of(stored: "Iterable[tuple[Batch, int, int]]") -> list[DeliveredRange]:
    """Return the offset ranges of records [first, end) of stored batches, adjacent ones merged."""
    ranges: list[DeliveredRange] = []
    for batch, first, end in stored:
        if batch.parts:
            ends = [*(begin for begin, _ in batch.parts[1:]), batch.count]
            inner = [
                (part, max(first, begin) - begin, min(end, stop) - begin)
                for (begin, part), stop in zip(batch.parts, ends, strict=True)
                if max(first, begin) < min(end, stop)
            ]
            found = ranges_of(inner)
        else:
            base = batch.base_offset
            place = (base + first, base + end) if base >= 0 else (-1, -1)
            found = [DeliveredRange(batch.queue.topic, batch.queue.partition, *place)]
        for each in found:
            last = ranges[-1] if ranges else None
            if last is not None and last[:2] == each[:2] and last.end == each.first:
                ranges[-1] = last._replace(end=each.end)
            else:
                ranges.append(each)
    return ranges


class Delivery:
    """The outcome of one record, as an awaitable: returns `Delivered` or raises the typed error.

    It has only two fields, for speed; the outcome is in the batch. It may be awaited repeatedly.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Return True if the outcome is known."""
        return self._batch.is_done

    def result(self) -> Delivered:
        """Return the record's position, or raise its delivery error; only if done()."""
        if not self._batch.is_done:
            raise asyncio.InvalidStateError("the record's outcome is not known yet: await it")
        return self._batch.delivered(self._index)

    def exception(self) -> QuorumlogError | None:
        """Return the delivery error, None if the record is stored; only if done()."""
        if not self._batch.is_done:
            raise asyncio.InvalidStateError("the record's outcome is not known yet: await it")
        return self._batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[["Delivery"], None]) -> None:
        """Call `callback(self)` on the loop once the outcome is known, which may be now.

        An error that it raises is logged.
        """

        def call() -> None:
            try:
                callback(self)
            except CALLBACK_ERRORS:  # an error of a callback must not affect other records
                _log.exception("producer.callback_failed callback=%r", callback)

        self._batch.observe(self._index)
        self._batch.add_waiter(call)

    def __await__(self) -> Generator[Any, None, Delivered]:
        batch = self._batch
        if not batch.is_done:
            batch.observe(self._index)
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
