"""Records on their way: a partition's queue of batches, and the handle of one record in one.

A batch gathers plain columns (no object a record) and has one outcome, which every record's handle
reads; only a batch that was split because it was too large has an outcome for each part. Completing
is safe against waiters that register on other threads: the outcome is set before the waiters are
drained, a waiter is added before the outcome is looked at, and taking a waiter out of the deque is
atomic, so each runs exactly once.

Pure: what a waiter does (resolve a future of a loop, or of a thread) is its owner's business.
"""

import asyncio
import logging
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, TypeAlias

from ...errors import QuorumlogError
from ...runtime import Entropy
from .numbering import IN_FLIGHT_MAX, Number, Numbering

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

RECORD_OVERHEAD = 12  # bytes of the encoded record besides key, value and headers: length varints
OBJECT_OVERHEAD = 64  # bytes that a record's objects and columns take here besides its content
RUN_MIN = 16  # so many records in a row, or more, are noted as one run
ENCODED_OVERHEAD = 8  # bytes it takes beside its encoded batch: its time, or its row's number

# What a callback may raise without ending more than itself; a cancellation would end our own task.
CALLBACK_ERRORS = (Exception, SystemExit, asyncio.CancelledError)

_log = logging.getLogger(__name__)


class Delivered(NamedTuple):
    """Where a record is now; `offset` is -1 where no answer was asked for (acks="none")."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int = -1  # ms since 1970 as stored: the record's, or the broker's append time


class DeliveredRange(NamedTuple):
    """Offsets [first, end) of a partition, all of them of what was sent, in its order; -1 and -1
    where no answer was asked for (acks="none")."""

    topic: str
    partition: int
    first: int
    end: int


OnDelivery: TypeAlias = Callable[[Delivered | None, QuorumlogError | None], object]
"""A record's callback: exactly one of the two is None. Called once, on the loop's (I/O) thread, in
the order of the offsets within a partition, but where an attempt failed and a later one did not. It
must be quick. What it raises is logged, no more."""


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
        self.linger_end_ms = 0  # closed at the latest then; stamped by the accumulator
        self.deadline_ms = 0  # not delivered by then: fails; stamped with it
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps = array("q")  # kept for the outcome; empty when it came encoded
        self.headers: dict[int, Headers] = {}  # by index, of the records that have any
        self.callbacks: dict[int, OnDelivery] = {}  # by index, of the records that have one
        self.size = 0  # bytes that it has, or will have before compression, in a request
        self.count = 0
        self.encoded: bytes | None = None  # kept for a repeat; the columns are gone then
        self.goes_alone = (
            False  # a request with it was refused: find out which batch is the bad one
        )
        self.is_encoded = False  # and the columns are gone
        self.is_done = False
        self.part: Part | None = None  # taken to be sent, or sent and not answered
        self.is_sent = False  # in a request that has no answer yet
        self.order = 0  # rises within a partition; that of its halves is its own
        self.number: Number | None = None  # from its first taking on, of an idempotent producer
        self.sealed: Number | None = None  # the number that `encoded` has
        self.may_be_stored = False  # an attempt ended without an answer
        self.observed: set[int] = set()  # records whose outcome somebody looks at, and
        self.observed_runs: set[tuple[int, int]] = set()  # more of them, as [first, end)
        self.base_offset = -1
        self.append_time_ms = -1  # the broker's, where the topic has it
        self.error: QuorumlogError | None = None
        self.waiters: deque[Callable[[], None]] = deque()
        self.parts: tuple[tuple[int, Batch], ...] = ()  # (first index, batch): it was split
        self.whole: tuple[Batch, int] | None = None  # of which it is a part, from that index on

    # --- the outcome -----------------------------------------------------------------------

    def delivered(self, index: int) -> Delivered:
        """Return where record `index` is; raises its error. Only when is_done."""
        assert self.is_done, f"outcome of record {index} asked for before it is known"
        if self.parts:
            part, within = self._part(index)
            return part.delivered(within)
        if self.error is not None:
            self.observe(index)
            raise self.error.with_traceback(None)
        return self._place(index)

    def error_of(self, index: int) -> QuorumlogError | None:
        """Return why record `index` is not delivered, None when it is. Only when is_done."""
        if self.parts:
            part, within = self._part(index)
            return part.error_of(within)
        self.observe(index)
        return self.error

    def observe(self, index: int) -> None:
        """Somebody looks at a record's outcome: `flush` need not tell of it."""
        self.observed.add(index)

    def observe_run(self, first: int, end: int) -> None:
        """Somebody looks at the outcomes of records [first, end)."""
        if end - first < RUN_MIN:
            self.observed.update(range(first, end))
        else:
            self.observed_runs.add((first, end))

    def unobserved(self) -> list[int]:
        """Return the records whose outcome nobody has looked at, rising."""
        seen = bytearray(self.count)
        self._mark_observed(seen, 0)
        if self.whole is not None:
            whole, first = self.whole
            whole._mark_observed(seen, first)
        return [index for index, is_seen in enumerate(seen) if not is_seen]

    def has_failed(self) -> bool:
        """Whether any of its records has failed. Only when is_done."""
        return self.error is not None or any(part.has_failed() for _, part in self.parts)

    def add_waiter(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` once when the outcome is known: now, if it is."""
        self.waiters.append(waiter)
        if self.is_done:
            self._drain()

    # --- the life --------------------------------------------------------------------------

    def complete(self, base_offset: int, append_time_ms: int = -1) -> None:
        """The records are stored from `base_offset` on (-1: nobody will say)."""
        assert not self.is_done, "a batch has one outcome"
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.drop_content()
        self._finish()

    def fail(self, error: QuorumlogError) -> None:
        """The records were not stored, or whether they were is unknown (`may_be_stored`). What
        they are is kept for `failures`, which drops it."""
        assert not self.is_done, "a batch has one outcome"
        self.may_be_stored = self.may_be_stored or self.is_sent
        self.error = error
        self._finish()

    def become(self, parts: "tuple[tuple[int, Batch], ...]") -> None:
        """It was split: its outcome is that of its parts, whose callbacks they take over."""
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
        """Bytes that it takes of the buffer."""
        each = ENCODED_OVERHEAD if self.is_encoded else OBJECT_OVERHEAD
        return self.size + self.count * each

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among the batches of its partition."""
        return self.order, 0 if self.whole is None else self.whole[1]

    def become_encoded(self, encoded: bytes, number: Number | None = None) -> None:
        """Keep the encoded form, which has this number, alone from now on."""
        self.encoded, self.size, self.is_encoded = encoded, len(encoded), True
        self.sealed = number
        self.drop_columns()

    def cut(self) -> None:
        """Leave what is behind its last record: one was taken by half."""
        count = self.count
        del self.values[count:], self.keys[count:], self.timestamps[count:]
        for each in (self.headers, self.callbacks):
            for index in [index for index in each if index >= count]:
                del each[index]

    def drop_columns(self) -> None:
        """Free what the records came in."""
        self.values, self.keys, self.headers = [], [], {}

    def drop_content(self) -> None:
        """Free what the records are."""
        self.encoded = None
        self.drop_columns()

    # --- within ----------------------------------------------------------------------------

    def _mark_observed(self, seen: bytearray, first: int) -> None:
        """Mark which of the records from `first` on are observed. Other threads may add to the
        sets meanwhile: copying one is a single step."""
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
            except CALLBACK_ERRORS:  # another's fault must not stop the delivery of the rest
                _log.exception("producer.callback_failed callback=%r", callback)

    def _drain(self) -> None:
        while True:
            try:
                waiter = self.waiters.popleft()
            except IndexError:
                return
            waiter()


class Part:
    """Batches of one partition that are in one request together; one alone where they have
    numbers."""

    __slots__ = ("batches", "queue")

    def __init__(self, queue: "PartitionQueue", batches: tuple[Batch, ...]) -> None:
        self.queue = queue
        self.batches = batches


class PartitionQueue:
    """The batches of one partition, oldest first: in flight, then closed, then the open one."""

    __slots__ = (
        "address",
        "closed",
        "failures",
        "is_due",
        "is_listed",
        "is_parked",
        "is_recovering",
        "last_error",
        "numbering",
        "open",
        "partition",
        "parts",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes = b"",
        *,
        numbering: Numbering | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id  # its records are meant for this topic, for no other of the name
        self.partition = partition
        self.numbering = numbering  # None: its producer is not idempotent
        self.open: Batch | None = None
        self.is_due = False  # the open batch has lingered: it goes as soon as there is a turn
        self.closed: deque[Batch] = deque()
        self.parts: deque[Part] = deque()  # in flight, oldest first
        self.address = ""  # where those went
        self.is_recovering = False  # one of them failed: the others are waited for
        self.is_listed = False  # in `ready`, or handed to a leader's link
        self.is_parked = False  # waits for a back-off or for a leader
        self.failures = 0  # in a row
        self.last_error: QuorumlogError | None = None

    @property
    def in_flight(self) -> tuple[Batch, ...]:
        """The batches in flight, oldest first."""
        return tuple(batch for part in self.parts for batch in part.batches)

    @property
    def next_size(self) -> int:
        """The bytes of the batch that is sent next."""
        batch = self.closed[0] if self.closed else self.open
        return batch.size if batch is not None else 0

    @property
    def has_turn(self) -> bool:
        """Whether more of it may be sent now: with numbers several batches at a time, see
        `numbering`, without them one request."""
        if not self.parts:
            return True
        numbering = self.numbering
        return (
            numbering is not None
            and numbering.is_trusted
            and not numbering.has_gap
            and not self.is_recovering
            and len(self.parts) < IN_FLIGHT_MAX
        )


class TopicQueues:
    """A topic that this producer writes to."""

    __slots__ = ("batch_size", "led", "left", "name", "queues", "sticky", "topic_id")

    def __init__(self, name: str, topic_id: bytes, batch_size: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.batch_size = batch_size  # the producer's, or less where the topic takes less
        self.queues: list[PartitionQueue] = []  # by partition index
        self.led: list[PartitionQueue] = []  # those that somebody leads; all of them if none is
        self.sticky: PartitionQueue | None = (
            None  # takes records without a key, until its batch closes
        )
        self.left: PartitionQueue | None = None  # was sticky before

    def grow(self, partitions: int, *, is_idempotent: bool) -> None:
        """Have so many partitions, or more."""
        for partition in range(len(self.queues), partitions):
            numbering = Numbering() if is_idempotent else None
            self.queues.append(
                PartitionQueue(self.name, partition, self.topic_id, numbering=numbering)
            )

    def lead(self, leaderless: Iterable[int]) -> None:
        """Nobody leads these partitions now, as far as the metadata says."""
        without = frozenset(leaderless)
        self.led = [queue for queue in self.queues if queue.partition not in without] or self.queues
        if self.sticky is not None and self.sticky not in self.led:
            self.unstick(self.sticky)

    def unstick(self, queue: PartitionQueue) -> None:
        """Records without a key go to another partition than this one from now on."""
        if self.sticky is queue:
            self.left, self.sticky = queue, None

    def stick(self, entropy: Entropy) -> PartitionQueue:
        """Move on to another partition, drawn among the others that somebody leads."""
        old, led = self.sticky or self.left, self.led
        place = entropy.below(len(led))
        if led[place] is old and len(led) > 1:
            place = (place + 1 + entropy.below(len(led) - 1)) % len(led)
        self.sticky = led[place]
        return self.sticky


def ranges_of(stored: "Iterable[tuple[Batch, int, int]]") -> list[DeliveredRange]:
    """Return where records [first, end) of batches are, adjacent ranges joined; they are stored."""
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
        return self._batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[["Delivery"], None]) -> None:
        """Call `callback(self)` on the loop when the outcome is known; now, if it is. What it
        raises is logged, no more."""

        def call() -> None:
            try:
                callback(self)
            except CALLBACK_ERRORS:  # another's fault must not stop the delivery of the rest
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
