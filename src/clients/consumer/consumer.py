"""The asyncio consumer of assigned partitions.

Records of a partition come in offset order; partitions take turns, one fetched chunk each. A
position is the offset of the next record to be delivered; it moves at delivery, not at prefetch. A
poll raises the error of a partition after the records before it were delivered; the other
partitions continue:

- An offset out of range, or a batch that cannot be decoded, is raised again at each attempt until
  `seek` (or `on_out_of_range`) moves the position.
- A topic or partition that no longer exists is raised once; the metadata is checked for it
  periodically.
- If a topic is deleted and created again, offsets of the old topic count as out of range. With
  `on_out_of_range` "earliest" or "latest" UnknownTopicId is raised once, unless the deletion was
  raised before, and reading continues in the new topic.
- A leader that does not answer, moves, or restarts is never raised: reading resumes at the same
  position. `statistics()` counts the failures. Only with `until_end` the error is raised, after
  `call_timeout_ms`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ...errors import InvalidRequest, TimedOut
from ...ids import TopicPartition
from ...runtime import Scope
from ..config import ConsumerConfig
from ..connection import Connection
from ..coordination import Changes
from ..offsets import (
    PartitionLike,
    Partitions,
    Position,
    by_partition,
    check_position,
    look_up,
    parse_partition,
)
from .assigned_partitions import AssignedPartitions, Topics, parse_assignment
from .fetcher import ConsumerFetcher
from .partition_reader import PartitionReader
from .record import AsyncRecords, ConsumerRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The application's lag in one partition."""

    position: int  # offset of the next record to be delivered
    high_watermark: int  # or the last stable offset, at isolation level "read_committed"

    @property
    def lag(self) -> int:
        """Offsets from the position to the end of the readable records, >= 0.

        It is an upper bound of the number of records: compaction leaves gaps.
        """
        return max(0, self.high_watermark - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    """One partition, as of its leader's last response."""

    position: int  # -1 during its lookup
    high_watermark: int  # -1 before the first response
    log_start_offset: int  # -1 before the first response
    buffered_bytes: int  # prefetched and not decoded
    is_paused: bool
    failures: int  # consecutive failed attempts; 0 after a success
    failure: str  # the message of the last one; ""

    @property
    def lag(self) -> int:
        """Offsets from the position to the known high watermark; -1 if either is unknown."""
        if self.position < 0 or self.high_watermark < 0:
            return -1
        return max(0, self.high_watermark - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """Counters of a consumer since its creation; they only increase."""

    records: int  # delivered
    fetches: int  # fetch responses
    fetched_bytes: int  # of record batches, as stored
    failures: int  # failed calls, retried ones included
    buffered_bytes: int  # prefetched and not decoded at present, all partitions
    partitions: Mapping[TopicPartition, PartitionStatistics]


def partition_statistics(reader: PartitionReader) -> PartitionStatistics:
    """Return a snapshot of one partition."""
    return PartitionStatistics(
        position=reader.position,
        high_watermark=reader.high_watermark,
        log_start_offset=reader.log_start_offset,
        buffered_bytes=reader.chunks.size,
        is_paused=reader.is_paused,
        failures=reader.retry.failures,
        failure="" if reader.retry.failure is None else str(reader.retry.failure),
    )


if TYPE_CHECKING:
    import pyarrow as pa

    from .arrow_reader import ArrowPoll

T = TypeVar("T")

POLL_ARROW_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


class AsyncConsumer:
    """Reads assigned partitions; created by `AsyncLog.consumer()`. Not thread-safe: one event
    loop.

    ```python
    async with log.consumer("flights", start="earliest") as consumer:
        async for record in consumer:
            ...
    ```
    Entering resolves the starting positions, or raises the error that prevents it; without
    entering, the first poll does. One task polls at a time: a concurrent poll raises
    InvalidRequest. The other methods may be called while a poll waits.
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ConsumerConfig,
        wanted: Topics,
        *,
        start: Position,
        until_end: bool,
        on_close: Callable[["AsyncConsumer"], None] | None = None,
    ) -> None:
        self.config = config
        self._connection = connection
        self._scope = scope
        self._clock = connection.runtime.clock
        self._until_end = until_end
        parse_assignment(wanted)  # raises before any task is started
        check_position(start)
        self._arrivals = Changes()
        self._fetcher = ConsumerFetcher(connection, config, scope, self._arrivals)
        self._parts = AssignedPartitions(
            connection,
            scope,
            self._fetcher,
            self._arrivals,
            wanted,
            start=start,
            until_end=until_end,
            repeat_ms=config.fetch_max_wait_ms,
        )
        self._current: PartitionReader | None = None  # the reader being delivered from
        self._on_close = on_close
        self._is_reading = False  # a task waits for records
        self._records = 0  # delivered

    # --- reading -----------------------------------------------------------------------------

    async def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return prefetched records; wait up to `timeout_ms` (None: no limit) for the first.

        Returns at most `max_records` (default: `max_poll_records`), and [] after the timeout or,
        with `until_end`, at the end. The timeout includes metadata lookups, which continue in the
        background for the next poll. Cancelling a poll loses no record. Raises the errors of
        partitions, see the module.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        check_limit("max_records", limit)
        reader = await self._wait(self._next_reader, timeout_ms)
        records: list[ConsumerRecord] = []
        while reader is not None:
            records += reader.take(limit - len(records))
            if len(records) >= limit:
                break
            reader = self._next_reader()
        self._records += len(records)
        return records

    async def poll_arrow(
        self,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        timeout_ms: int | None = 1_000,
        columns: Sequence[str] = POLL_ARROW_COLUMNS,
    ) -> "pa.Table":
        """Return prefetched records as an Arrow table; wait like `poll` for the first row.

        Returns at most `max_records` rows, and about `max_bytes` (default: `fetch_max_bytes`) of
        stored batches, at least one batch. No Python object is created per record. Rows of a
        partition are contiguous and in order. Columns: those of `AsyncLog.read_arrow`.
        """
        turn = await self.run_arrow_poll(max_records, max_bytes, timeout_ms, columns)
        return turn.table()

    async def run_arrow_poll(
        self,
        max_records: int | None,
        max_bytes: int | None,
        timeout_ms: int | None,
        columns: Sequence[str],
    ) -> "ArrowPoll":
        """Run `poll_arrow`; the result also has the first offset of each partition's rows."""
        from .arrow_reader import ArrowPoll

        check_limit("max_records", max_records)
        check_limit("max_bytes", max_bytes)
        size = self.config.fetch_max_bytes if max_bytes is None else max_bytes
        turn = ArrowPoll(columns, max_records=max_records, max_bytes=size)
        reader = await self._wait(lambda: self._next_chunks(turn), timeout_ms)
        while reader is not None and not turn.is_full:
            reader = self._next_chunks(turn)
        self._records += turn.rows
        return turn

    async def next(self, *, timeout_ms: int | None = None) -> ConsumerRecord | None:
        """Return the next record; None after `timeout_ms`, or at the end with `until_end`."""
        reader = self._current
        if reader is None or not reader.records or reader.is_paused:
            reader = await self._wait(self._next_reader, timeout_ms)
            if reader is None:
                return None
        self._records += 1
        return reader.take_one()

    def records(
        self,
        *,
        timeout_ms: int | None = None,
        idle_ms: int | None = None,
        max_records: int | None = None,
    ) -> AsyncRecords:
        """Return an iterator that ends after `timeout_ms`, after `idle_ms` without a record, or
        after `max_records`, whichever is first; None means no such limit.

        ```python
        async for record in consumer.records(timeout_ms=5_000): ...
        ```
        """
        check_limit("max_records", max_records)
        return AsyncRecords(
            self.next, self._clock, timeout_ms=timeout_ms, idle_ms=idle_ms, max_records=max_records
        )

    def __aiter__(self) -> "AsyncConsumer":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Wait for the next record without a time limit; ends only with `until_end`."""
        reader = self._current
        if reader is not None and reader.records and not reader.is_paused:
            self._records += 1
            return reader.take_one()
        record = await self.next()
        if record is None:
            raise StopAsyncIteration
        return record

    # --- assignment --------------------------------------------------------------------------

    async def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        await self._parts.ready()
        return [TopicPartition(*each) for each in self._fetcher.readers]

    async def assign(self, topics: Topics, *, start: Position | None = None) -> None:
        """Replace the assignment by these topics (by name) or partitions.

        Partitions assigned before keep their positions; new ones begin at `start` (default: the
        consumer's). Raises UnknownTopicOrPartition if a topic does not exist, without any change.
        """
        await self._parts.change(topics, start, is_whole=True)

    async def assign_more(self, topics: Topics, *, start: Position | None = None) -> None:
        """Add topics or partitions to the assignment, from `start`; see `assign`."""
        await self._parts.change(topics, start, is_whole=False)

    async def unassign(self, topics: Topics) -> None:
        """Remove topics or partitions from the assignment; their prefetched records are dropped.

        Raises InvalidRequest if one is not assigned, without any change.
        """
        await self._parts.ready()
        readers = [
            reader
            for topic, partitions in parse_assignment(topics).items()
            for reader in self._parts.selected_of_topic(topic, partitions)
        ]
        for reader in readers:
            self._parts.remove(reader)

    # --- positions ---------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record to be delivered, by partition with a known
        position.

        Returns {} before the first use.
        """
        readers = self._fetcher.readers.items()
        return by_partition(
            {each: reader.position for each, reader in readers if reader.position >= 0}
        )

    async def position(self, partition: PartitionLike) -> int:
        """Return the offset of the next record to be delivered."""
        wanted = parse_partition(partition)
        await self._parts.ready()
        while (reader := self._parts.reader(*wanted)).is_unlocated:
            await self._parts.located([reader])
        return reader.position

    async def seek(self, partition: PartitionLike, position: Position) -> None:
        """Set the position of a partition; prefetched records and fetches in flight are dropped.

        An offset is not checked: if it is out of range, the next poll raises or applies
        `on_out_of_range`.
        """
        wanted = parse_partition(partition)
        await self._parts.ready()
        await self._seek_all({self._parts.reader(*wanted): position})

    async def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Seek to the log start of partitions or topics (default: all)."""
        await self._parts.ready()
        await self._seek_all(dict.fromkeys(self._parts.selected(partitions), "earliest"))

    async def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Seek to the end of the committed records of partitions or topics (default: all)."""
        await self._parts.ready()
        await self._seek_all(dict.fromkeys(self._parts.selected(partitions), "latest"))

    async def pause(self, partitions: Partitions | None = None) -> None:
        """Stop delivery from partitions or topics (default: all) until `resume`."""
        await self._parts.ready()
        for reader in self._parts.selected(partitions):
            reader.is_paused = True
        self._fetcher.wake()  # their prefetched data may be dropped for other partitions

    async def resume(self, partitions: Partitions | None = None) -> None:
        """Resume delivery from partitions or topics (default: all)."""
        await self._parts.ready()
        for reader in self._parts.selected(partitions):
            reader.is_paused = False
        self._fetcher.wake()
        self._arrivals.announce()  # prefetched records can be delivered

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        readers = self._fetcher.readers.items()
        return [TopicPartition(*each) for each, reader in readers if reader.is_paused]

    async def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Query the log start offset, by assigned partition."""
        return await self._offsets("earliest")

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Query the end of the readable records, by assigned partition: with "read_committed" the
        last stable offset, otherwise the high watermark."""
        return await self._offsets("latest")

    async def high_watermark(self, partition: PartitionLike) -> int:
        """Return the high watermark of the last fetch response; query it if there was none."""
        wanted = parse_partition(partition)
        await self._parts.ready()
        reader = self._parts.reader(*wanted)
        if reader.high_watermark < 0:
            found = await look_up(self._connection, {wanted: "latest"})
            reader.high_watermark = found[wanted]
        return reader.high_watermark

    async def lag(self) -> dict[TopicPartition, PartitionLag]:
        """Query each assigned partition's distance between position and end.

        `statistics()` has the distance to the high watermark, as of the last fetch responses,
        without a request.
        """
        await self._parts.ready()
        await self._parts.located(self._fetcher.readers.values())
        ends = await self._offsets("latest")
        positions = self.positions()
        return {
            each: PartitionLag(position=positions[each], high_watermark=end)
            for each, end in ends.items()
            if each in positions
        }

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot, without a request; also after `close`."""
        readers = self._fetcher.readers
        return ConsumerStatistics(
            records=self._records,
            fetches=self._fetcher.fetches,
            fetched_bytes=self._fetcher.fetched_bytes,
            failures=self._fetcher.failures,
            buffered_bytes=self._fetcher.buffered_bytes,
            partitions={
                TopicPartition(*each): partition_statistics(reader)
                for each, reader in readers.items()
            },
        )

    # --- for the blocking consumer -----------------------------------------------------------

    def rewind(self, positions: Mapping[PartitionLike, int]) -> None:
        """Set positions back to offsets that were delivered before."""
        for place, offset in positions.items():
            reader = self._fetcher.readers.get(place)
            if reader is not None:
                reader.seek(offset, keep_topic=True)
        self._fetcher.wake()

    def resume_from(self, before: "AsyncConsumer") -> None:
        """Continue at the assignment and positions of another consumer after its loop has ended."""
        self._parts.resume_from(before._parts)

    # --- opening and closing -----------------------------------------------------------------

    async def close(self) -> None:
        """Stop reading; a waiting poll raises ClientClosed. Idempotent."""
        if not self._parts.is_closed:
            self._parts.close()
            self._current = None
            await self._fetcher.close()
            if self._on_close is not None:
                self._on_close(self)

    async def __aenter__(self) -> "AsyncConsumer":
        is_entered = False
        try:
            await self._parts.ready()
            await self._parts.located(self._fetcher.readers.values())
            is_entered = True
        finally:
            if not is_entered:
                await self.close()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- waiting -----------------------------------------------------------------------------

    async def _wait(self, ready: Callable[[], T | None], timeout_ms: int | None) -> T | None:
        """Wait until `ready` returns a value and return it; None after the timeout and at the
        end."""
        self._parts.check_open()
        if self._is_reading:
            raise InvalidRequest(
                "another poll of this consumer is in progress: only one task or thread may poll at "
                "a time; create a consumer for each"
            )
        self._is_reading = True
        try:
            await asyncio.sleep(0)  # polls of prefetched records must not starve other tasks
            async with asyncio.timeout(None if timeout_ms is None else max(0, timeout_ms) / 1000):
                await self._parts.ready()
                self._check_assigned()
                while True:
                    self._raise_error()
                    found = ready()
                    if found is not None:
                        return found
                    self._raise_error()  # `ready` may have met a batch that cannot be decoded
                    if self._is_done():
                        return None
                    self._parts.check_open()
                    await self._arrivals.wait()
        except TimedOut:
            raise
        except TimeoutError:
            return None
        finally:
            self._is_reading = False

    def _check_assigned(self) -> None:
        """Raise InvalidRequest if a poll would wait forever."""
        if not self._fetcher.readers:
            raise InvalidRequest("nothing is assigned to this consumer: see assign()")

    def _next_reader(self) -> PartitionReader | None:
        """Return the next reader with decoded records, in turn."""
        reader = self._current
        if reader is not None and reader.records and not reader.is_paused:
            return reader
        for _ in range(len(self._parts.turns)):
            reader = self._parts.turns[0]
            self._parts.turns.rotate(-1)
            if not reader.is_paused and (reader.records or self._decode(reader)):
                self._current = reader
                return reader
        return None

    def _decode(self, reader: PartitionReader) -> bool:
        if not reader.chunks:
            return False
        self._fetcher.wake()
        found = reader.decode()
        self._fetcher.has_errors |= reader.error is not None
        return found

    def _next_chunks(self, turn: "ArrowPoll") -> PartitionReader | None:
        """Take rows of the next reader that has any, in turn."""
        for _ in range(len(self._parts.turns)):
            reader = self._parts.turns[0]
            self._parts.turns.rotate(-1)
            if reader.is_paused:
                continue
            if reader.records:  # decoded by poll(): fetch them again
                reader.drop_prefetched()
            if reader.chunks:
                self._fetcher.wake()
                found = turn.take(reader)
                self._fetcher.has_errors |= reader.error is not None
                if found:
                    return reader
        return None

    def _raise_error(self) -> None:
        """Raise a partition's error once the records before it were delivered."""
        if not self._fetcher.has_errors:
            return
        raised = None
        for reader in self._parts.turns:
            error = reader.error
            if error is None or reader.has_prefetched or reader.is_paused:
                continue
            if raised is None or error is raised:
                raised = error
                self._parts.error_raised(reader)
        if raised is None:
            self._fetcher.has_errors = any(reader.error is not None for reader in self._parts.turns)
            return
        self._fetcher.wake()
        raise raised.with_traceback(None)

    def _is_done(self) -> bool:
        """Return True if everything up to the end offsets was delivered (`until_end`).

        Raises the failure of a partition that has prevented it for `call_timeout_ms`.
        """
        if not self._until_end:
            return False
        waits = [reader for reader in self._parts.turns if not reader.is_at_end]
        now_ms = self._clock.now_ms()
        for reader in waits:
            if reader.retry.failure is not None and not (reader.has_prefetched or reader.is_paused):
                failing_ms = now_ms - reader.retry.failing_since_ms
                if failing_ms >= self._connection.config.call_timeout_ms:
                    reader.retry.failing_since_ms = now_ms  # the next poll waits as long again
                    raise reader.retry.failure.with_traceback(None)
        return not waits

    # --- internals ---------------------------------------------------------------------------

    async def _seek_all(self, targets: Mapping[PartitionReader, Position]) -> None:
        """Seek in all partitions, or in none if a position cannot be resolved."""
        wanted = {(reader.topic, reader.partition): to for reader, to in targets.items()}
        found = await look_up(self._connection, wanted, isolation_level=self.config.isolation_level)
        for reader in targets:
            place = (reader.topic, reader.partition)
            if self._fetcher.readers.get(place) is reader:  # not unassigned during the lookup
                reader.seek(found[place])
                reader.begin = reader.position
        self._fetcher.wake()
        self._arrivals.announce()

    async def _offsets(self, position: Position) -> dict[TopicPartition, int]:
        await self._parts.ready()
        wanted = dict.fromkeys(self._fetcher.readers, position)
        isolation_level = self.config.isolation_level
        return by_partition(
            await look_up(self._connection, wanted, isolation_level=isolation_level)
        )


def check_limit(name: str, limit: int | None) -> None:
    """Raise InvalidRequest unless the limit is None or at least 1."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidRequest(f"{name} is {limit!r}: give a whole number, 1 or more")
