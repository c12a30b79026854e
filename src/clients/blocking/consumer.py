"""The blocking consumer; see `blocking`.

It polls many records with one switch of threads and delivers them one by one; positions count
delivered records. Polled records wait in a deque until the caller's thread takes them, so neither
Ctrl-C nor a timeout between the two threads loses a record.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...errors import ClientClosed
from ...ids import TopicPartition
from ..consumer.assigned_partitions import Topics, parse_partitions
from ..consumer.consumer import (
    POLL_ARROW_COLUMNS,
    AsyncConsumer,
    ConsumerStatistics,
    PartitionLag,
    check_limit,
)
from ..consumer.record import ConsumerRecord, IterationBounds
from ..log import AsyncLog
from ..offsets import PartitionLike, Partitions, Position, by_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from .io_thread import IoThread
    from .log import Log

T = TypeVar("T")


class Consumer:
    """Reads assigned partitions; created by `Log.consumer()`.

    Iteration waits for the next record without a time limit; it ends only with `until_end`.

    One thread reads at a time: a second one that would have to wait gets InvalidRequest; buffered
    records go to any caller. Every other method is thread-safe. `close` makes a waiting poll raise
    ClientClosed.
    """

    def __init__(self, log: "Log", make: Callable[[AsyncLog], AsyncConsumer]) -> None:
        self._log = log
        self._make_consumer = make
        self._io: IoThread
        self._consumer: AsyncConsumer
        self._ahead: deque[ConsumerRecord] = deque()  # polled, not delivered
        self._undelivered: dict[
            PartitionLike, int
        ] = {}  # first offsets of rows polled, not delivered
        self._is_closed = False
        self._make()

    # --- reading -----------------------------------------------------------------------------

    def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return buffered records; wait up to `timeout_ms` for the first. See
        `AsyncConsumer.poll`."""
        limit = self._consumer.config.max_poll_records if max_records is None else max_records
        check_limit("max_records", limit)
        if not self._ahead:
            self._read_ahead(limit, timeout_ms)
            if self._is_closed:  # during the read; the records are discarded
                raise ClientClosed("the consumer is closed")
        return self._taken(limit)

    def poll_arrow(
        self,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        timeout_ms: int | None = 1_000,
        columns: Sequence[str] = POLL_ARROW_COLUMNS,
    ) -> "pa.Table":
        """Return buffered records as an Arrow table; see `AsyncConsumer.poll_arrow`."""

        async def poll(consumer: AsyncConsumer) -> "pa.Table":
            self._rewind_buffered(consumer, lambda _: True)
            self._rewind(consumer)
            turn = await consumer.run_arrow_poll(max_records, max_bytes, timeout_ms, columns)
            self._undelivered = turn.starts
            return turn.table()

        table = self._read(poll)
        self._undelivered = {}
        return table

    def records(
        self,
        *,
        timeout_ms: int | None = None,
        idle_ms: int | None = None,
        max_records: int | None = None,
    ) -> Iterator[ConsumerRecord]:
        """Return an iterator that ends after `timeout_ms`, after `idle_ms` without a record, or
        after `max_records`, whichever is first; None means no such limit."""
        check_limit("max_records", max_records)
        bounds = IterationBounds(
            self._io.runtime.clock, timeout_ms=timeout_ms, idle_ms=idle_ms, max_records=max_records
        )
        return self._bounded(bounds)

    def __iter__(self) -> "Consumer":
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record; StopIteration at the end with `until_end`."""
        try:
            return self._ahead.popleft()
        except IndexError:
            record = self._next(None)
        if record is None:
            raise StopIteration
        return record

    # --- assignment and positions --------------------------------------------------------------

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._wait(lambda consumer: consumer.assignment())

    def assign(self, topics: Topics, *, start: Position | None = None) -> None:
        """Replace the assignment; see `AsyncConsumer.assign`."""

        async def assign(consumer: AsyncConsumer) -> None:
            await consumer.assign(topics, start=start)
            self._keep_assigned(consumer)

        self._wait(assign)

    def assign_more(self, topics: Topics, *, start: Position | None = None) -> None:
        """Add topics or partitions to the assignment; see `AsyncConsumer.assign_more`."""

        async def assign(consumer: AsyncConsumer) -> None:
            await consumer.assign_more(topics, start=start)
            self._keep_assigned(consumer)

        self._wait(assign)

    def unassign(self, topics: Topics) -> None:
        """Remove topics or partitions from the assignment; see `AsyncConsumer.unassign`."""

        async def unassign(consumer: AsyncConsumer) -> None:
            await consumer.unassign(topics)
            self._keep_assigned(consumer)

        self._wait(unassign)

    def position(self, partition: PartitionLike) -> int:
        """Return the offset of the next record to be delivered."""

        async def position(consumer: AsyncConsumer) -> int:
            found = await consumer.position(partition)
            return self._ahead_positions().get(partition, found)

        return self._wait(position)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record to be delivered, by partition with a known
        position."""

        async def positions(consumer: AsyncConsumer) -> dict[TopicPartition, int]:
            return consumer.positions() | by_partition(self._ahead_positions())

        return self._wait(positions)

    def seek(self, partition: PartitionLike, position: Position) -> None:
        """Set the position of a partition; see `AsyncConsumer.seek`."""

        async def seek(consumer: AsyncConsumer) -> None:
            await consumer.seek(partition, position)
            self._discard_buffered(partition.__eq__)

        self._wait(seek)

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Seek to the log start of partitions or topics (default: all)."""
        wanted = _selection(partitions)

        async def seek(consumer: AsyncConsumer) -> None:
            await consumer.seek_to_beginning(wanted)
            self._discard_selected(wanted)

        self._wait(seek)

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Seek to the end of the committed records of partitions or topics (default: all)."""
        wanted = _selection(partitions)

        async def seek(consumer: AsyncConsumer) -> None:
            await consumer.seek_to_end(wanted)
            self._discard_selected(wanted)

        self._wait(seek)

    def pause(self, partitions: Partitions | None = None) -> None:
        """Stop delivery from partitions or topics (default: all) until `resume`."""

        async def pause(consumer: AsyncConsumer) -> None:
            await consumer.pause(partitions)
            paused: set[PartitionLike] = set(consumer.paused())
            self._rewind_buffered(consumer, paused.__contains__)

        self._wait(pause)

    def resume(self, partitions: Partitions | None = None) -> None:
        """Resume delivery from partitions or topics (default: all)."""
        self._wait(lambda consumer: consumer.resume(partitions))

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""

        async def paused(consumer: AsyncConsumer) -> list[TopicPartition]:
            return consumer.paused()

        return self._wait(paused)

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Query the log start offset, by assigned partition."""
        return self._wait(lambda consumer: consumer.beginning_offsets())

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Query the high watermark, by assigned partition."""
        return self._wait(lambda consumer: consumer.end_offsets())

    def high_watermark(self, partition: PartitionLike) -> int:
        """Return the high watermark of the last fetch response."""
        return self._wait(lambda consumer: consumer.high_watermark(partition))

    def lag(self) -> dict[TopicPartition, PartitionLag]:
        """Query each assigned partition's distance between position and end."""

        async def lag(consumer: AsyncConsumer) -> dict[TopicPartition, PartitionLag]:
            lags = await consumer.lag()
            ahead = self._ahead_positions()
            return {
                each: PartitionLag(
                    position=ahead.get(each, lag.position), high_watermark=lag.high_watermark
                )
                for each, lag in lags.items()
            }

        return self._wait(lag)

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot, without a request; `records` includes polled records not delivered
        yet."""
        found, ahead = self._consumer.statistics(), self._ahead_positions()
        return replace(
            found,
            partitions={
                each: replace(part, position=ahead.get(each, part.position))
                for each, part in found.partitions.items()
            },
        )

    # --- opening and closing -------------------------------------------------------------------

    def close(self) -> None:
        """Stop reading; a waiting poll raises ClientClosed. Idempotent."""
        if not self._is_closed:
            self._io.refuse_callbacks()
            self._is_closed = True
            self._ahead.clear()
            if not self._io.is_ended:
                self._io.wait(self._consumer.close())

    def __enter__(self) -> Self:
        """Resolve the starting positions; raise the error that prevents it."""

        async def enter(consumer: AsyncConsumer) -> None:
            await consumer.__aenter__()

        self._read(enter)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- internals -----------------------------------------------------------------------------

    def _bounded(self, bounds: IterationBounds) -> Iterator[ConsumerRecord]:
        while bounds.is_open():
            record = self._next(bounds.wait_ms)
            if record is None:
                return
            bounds.count()
            yield record

    def _next(self, wait_ms: Callable[[], int | None] | None) -> ConsumerRecord | None:
        """Return the next record; None if none came in time, or at the end."""
        while True:
            if self._is_closed:
                raise ClientClosed("the consumer is closed")
            try:
                return self._ahead.popleft()
            except IndexError:
                is_any = self._read_ahead(None, None if wait_ms is None else wait_ms())
            if not (is_any or self._ahead):  # another thread's call may have rewound some
                return None

    def _read_ahead(self, max_records: int | None, timeout_ms: int | None) -> bool:
        """Poll into the deque; return True if records came."""

        async def read(consumer: AsyncConsumer) -> bool:
            self._rewind(consumer)
            records = await consumer.poll(max_records=max_records, timeout_ms=timeout_ms)
            self._ahead.extend(records)
            return bool(records)

        return self._read(read)

    def _taken(self, limit: int) -> list[ConsumerRecord]:
        """Remove up to `limit` records from the deque; an interruption leaves all of them in it."""
        taken: list[ConsumerRecord] = []
        try:
            with suppress(IndexError):  # there may be fewer
                # One C call: a signal handler runs before or after it.
                taken.extend(islice(iter(self._ahead.popleft, None), limit))
            return taken
        except BaseException:
            self._ahead.extendleft(reversed(taken))
            raise

    def _ahead_positions(self) -> dict[PartitionLike, int]:
        """Return the first offset of each partition with buffered records."""
        positions: dict[PartitionLike, int] = {}
        for record in list(self._ahead):
            positions.setdefault((record.topic, record.partition), record.offset)
        return positions

    def _rewind(self, consumer: AsyncConsumer) -> None:
        """Rewind to the rows of an interrupted Arrow poll."""
        undelivered, self._undelivered = self._undelivered, {}
        consumer.rewind(undelivered)

    def _rewind_buffered(
        self, consumer: AsyncConsumer, of: Callable[[PartitionLike], bool]
    ) -> None:
        """Discard the buffered records of matching partitions and rewind the consumer to them."""
        consumer.rewind(self._discard_buffered(of))

    def _discard_buffered(self, of: Callable[[PartitionLike], bool]) -> dict[PartitionLike, int]:
        """Discard the buffered records of matching partitions; return their first offsets.

        Runs on the I/O thread; the reading thread may take from the other end concurrently.
        """
        kept: list[ConsumerRecord] = []
        taken: dict[PartitionLike, int] = {}
        with suppress(IndexError):
            while True:
                record = self._ahead.pop()
                place = (record.topic, record.partition)
                if of(place):
                    taken[place] = record.offset
                else:
                    kept.append(record)
        self._ahead.extendleft(kept)
        return taken

    def _discard_selected(self, wanted: list[str | PartitionLike] | None) -> None:
        self._discard_buffered(lambda each: wanted is None or each in wanted or each[0] in wanted)

    def _keep_assigned(self, consumer: AsyncConsumer) -> None:
        """Discard buffered records of partitions that are no longer assigned."""
        assigned = consumer.positions()
        self._discard_buffered(lambda place: place not in assigned)

    def _read(self, work: Callable[[AsyncConsumer], Coroutine[Any, Any, T]]) -> T:
        """Run a reading call."""
        return self._wait(work)

    def _wait(self, work: Callable[[AsyncConsumer], Coroutine[Any, Any, T]]) -> T:
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
        if self._io.is_ended:
            self._make()
        return self._io.wait(work(self._consumer))

    def _make(self) -> None:
        """Create the consumer; after a fork it continues at the positions of the one before."""
        io, log = self._log.opened()
        before = getattr(self, "_consumer", None)

        async def make() -> AsyncConsumer:
            consumer = self._make_consumer(log)
            if before is not None:
                consumer.resume_from(before)
            return consumer

        self._consumer = io.wait(make())
        self._io = io


def _selection(partitions: Partitions | None) -> list[str | PartitionLike] | None:
    """Return the topics and partitions of an argument, which may be an iterator; None: all."""
    return None if partitions is None else parse_partitions(partitions)
