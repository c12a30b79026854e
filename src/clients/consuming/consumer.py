"""The consumer by assignment: the partitions it is given, from where it is told, in offset order.

Records come in the partition's order; partitions take turns, a fetched chunk at a time. A position
is the offset of the next record that the application gets: it moves when records are handed out,
not when they are read ahead. What goes wrong with one partition is raised by a poll, after what was
read before it, and stops none of the others:

- an offset out of range, a batch that cannot be read: raised again as long as it is so; `seek`
  goes on elsewhere (an offset out of range may be answered by `on_out_of_range` instead);
- a topic or partition that does not exist any more: raised once; it is looked for now and then;
- a topic that was deleted and made anew: no record of it is taken for one of the topic before.
  Offsets of the one before count as out of range. With `on_out_of_range` "earliest" or "latest"
  UnknownTopicId is raised once, unless the deletion was, and reading goes on in the new topic;
- a leader that does not answer, moves, or restarts: never raised, reading goes on at the same
  position when it is back. `statistics()` tells of it. Only reading that was promised an end
  (`until_end`) is given up, after `call_timeout_ms`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ...errors import (
    InvalidRequest,
)
from ...runtime import Scope
from ..config import ConsumerConfig
from ..connection import Connection
from ..offsets import Place, Position, check_position, look_up
from .assigned_partitions import AssignedPartitions
from .assignment import Wanted, parse_assignment
from .fetcher import Fetcher
from .partition_reader import PartitionReader
from .record import ConsumerRecord
from .record_iterator import AsyncRecords
from .statistics import ConsumerStatistics, PartitionLag, partition_statistics

if TYPE_CHECKING:
    import pyarrow as pa

    from .arrow_turn import ArrowTurn

T = TypeVar("T")

POLL_ARROW_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


class AsyncConsumer:
    """Reads assigned partitions; made by `AsyncLog.consumer()`. For one loop's thread.

    ```python
    async with log.consumer("flights", start="earliest") as consumer:
        async for record in consumer:
            ...
    ```
    Entering finds the positions to begin at, or raises what prevents it; without entering, the
    first poll does. One task reads at a time: a second poll meanwhile raises InvalidRequest. The
    other methods may be called while a poll waits.
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ConsumerConfig,
        wanted: Wanted,
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
        parse_assignment(wanted)  # a mistake is told before anything is begun
        check_position(start)
        self._fetcher = Fetcher(connection, config, scope)
        self._parts = AssignedPartitions(
            connection,
            scope,
            self._fetcher,
            wanted,
            start=start,
            until_end=until_end,
            repeat_ms=config.fetch_wait_ms_max,
        )
        self._current: PartitionReader | None = None  # whose decoded records come next
        self._on_close = on_close
        self._is_reading = False  # a task waits for records
        self._records = 0  # handed out

    # --- reading -----------------------------------------------------------------------------

    async def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return what is there, at most `max_records` (default: `poll_records_max`), waiting up to
        `timeout_ms` (None: as long as it takes) for the first; [] then, and when a consumer made
        with `until_end` is done.

        The time-out holds for everything, look-ups too; they go on meanwhile, for the next poll.
        Cancelling a poll loses no record. Raises what a partition's reading met, see the module.
        """
        limit = self.config.poll_records_max if max_records is None else max_records
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
        """Return what is there as an Arrow table, waiting like `poll` for the first row.

        At most `max_records` rows, and about `max_bytes` (default: `fetch_bytes_max`) of batches as
        they are stored, one batch at least; no Python object is made for a record. Each partition's
        rows are in order, and follow each other. Columns: those of `AsyncLog.read_arrow`.
        """
        turn = await self.poll_turn(max_records, max_bytes, timeout_ms, columns)
        return turn.table()

    async def poll_turn(
        self,
        max_records: int | None,
        max_bytes: int | None,
        timeout_ms: int | None,
        columns: Sequence[str],
    ) -> "ArrowTurn":
        """Do what `poll_arrow` does; the result knows besides where each partition's rows begin."""
        from .arrow_turn import ArrowTurn

        check_limit("max_records", max_records)
        check_limit("max_bytes", max_bytes)
        size = self.config.fetch_bytes_max if max_bytes is None else max_bytes
        turn = ArrowTurn(columns, max_records=max_records, max_bytes=size)
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
        """Return an iterator that ends `timeout_ms` from now, or when nothing has come for
        `idle_ms`, or behind `max_records`, whichever is first; None: no such end.

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
        """Wait for the next record as long as it takes; ends only with `until_end`."""
        reader = self._current
        if reader is not None and reader.records and not reader.is_paused:
            self._records += 1
            return reader.take_one()
        record = await self.next()
        if record is None:
            raise StopAsyncIteration
        return record

    # --- assignment --------------------------------------------------------------------------

    async def assignment(self) -> list[Place]:
        """Return the (topic, partition) pairs that are read."""
        await self._parts.ready()
        return list(self._fetcher.readers)

    async def assign(self, wanted: Wanted, *, start: Position | None = None) -> None:
        """Read these topics (by name) or partitions (by topic) instead of what is read now.

        What is read already goes on where it is; what is new begins at `start` (default: that of
        the consumer). Raises UnknownTopicOrPartition for a topic that does not exist, and changes
        nothing then.
        """
        await self._parts.change(wanted, start, is_whole=True)

    async def assign_more(self, wanted: Wanted, *, start: Position | None = None) -> None:
        """Read these besides, from `start` on; see `assign`."""
        await self._parts.change(wanted, start, is_whole=False)

    async def unassign(self, wanted: Wanted) -> None:
        """Read these no more; what was read ahead of them is dropped. Raises InvalidRequest for
        what is not read, and changes nothing then."""
        await self._parts.ready()
        readers = [
            reader
            for topic, partitions in parse_assignment(wanted).items()
            for reader in self._parts.chosen(topic, partitions)
        ]
        for reader in readers:
            self._parts.remove(reader)

    # --- positions ---------------------------------------------------------------------------

    def positions(self) -> dict[Place, int]:
        """Return the offsets of the next records that the application gets, of the partitions where
        they are known: {} before the first use."""
        readers = self._fetcher.readers.items()
        return {place: reader.position for place, reader in readers if reader.position >= 0}

    async def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that the application gets."""
        await self._parts.ready()
        while (reader := self._parts.reader(topic, partition)).is_unlocated:
            await self._parts.located([reader])
        return reader.position

    async def seek(self, topic: str, partition: int, position: Position) -> None:
        """Go on reading a partition from a position; what was read ahead of it is dropped, and so
        is what is under way.

        An offset is taken as it is: one out of range is told by the next poll, or answered as
        `on_out_of_range` says.
        """
        await self._parts.ready()
        await self._seek_all({self._parts.reader(topic, partition): position})

    async def seek_to_beginning(
        self, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Go to the first offset that is left, of one partition, of a topic's, or of all."""
        await self._parts.ready()
        await self._seek_all(dict.fromkeys(self._parts.named(topic, partition), "earliest"))

    async def seek_to_end(self, topic: str | None = None, partition: int | None = None) -> None:
        """Go behind the last committed record, of one partition, of a topic's, or of all."""
        await self._parts.ready()
        await self._seek_all(dict.fromkeys(self._parts.named(topic, partition), "latest"))

    async def pause(self, topic: str | None = None, partition: int | None = None) -> None:
        """Hand out nothing of a partition, of a topic's, or of any, until it is resumed."""
        await self._parts.ready()
        for reader in self._parts.named(topic, partition):
            reader.is_paused = True
        self._fetcher.wake()  # what they have read ahead may be given up for others

    async def resume(self, topic: str | None = None, partition: int | None = None) -> None:
        """Read what is paused again: a partition, a topic's, or all."""
        await self._parts.ready()
        for reader in self._parts.named(topic, partition):
            reader.is_paused = False
        self._fetcher.wake()
        self._fetcher.announce()  # what was read ahead can be handed out

    def paused(self) -> list[Place]:
        """Return the (topic, partition) pairs that are paused."""
        return [place for place, reader in self._fetcher.readers.items() if reader.is_paused]

    async def beginning_offsets(self) -> dict[Place, int]:
        """Ask for the first offset that is left, by assigned partition."""
        return await self._offsets("earliest")

    async def end_offsets(self) -> dict[Place, int]:
        """Ask for the high watermark, by assigned partition."""
        return await self._offsets("latest")

    async def high_watermark(self, topic: str, partition: int) -> int:
        """Return the end of what is committed, as the last answer said; asks when there was
        none."""
        await self._parts.ready()
        reader = self._parts.reader(topic, partition)
        if reader.high_watermark < 0:
            found = await look_up(self._connection, {(topic, partition): "latest"})
            reader.high_watermark = found[topic, partition]
        return reader.high_watermark

    async def lag(self) -> dict[Place, PartitionLag]:
        """Ask how far each partition's position is behind its end; `statistics()` has the same as
        of the last answers, without asking."""
        await self._parts.ready()
        await self._parts.located(self._fetcher.readers.values())
        ends = await self._offsets("latest")
        positions = self.positions()
        return {
            place: PartitionLag(position=positions[place], high_watermark=end)
            for place, end in ends.items()
            if place in positions
        }

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot; asks nobody, and is there after `close` too."""
        readers = self._fetcher.readers
        return ConsumerStatistics(
            records=self._records,
            fetches=self._fetcher.fetches,
            fetched_bytes=self._fetcher.fetched_bytes,
            failures=self._fetcher.failures,
            buffered_bytes=self._fetcher.buffered_bytes,
            partitions={place: partition_statistics(reader) for place, reader in readers.items()},
        )

    # --- for the blocking face ---------------------------------------------------------------

    def rewind(self, positions: Mapping[Place, int]) -> None:
        """Hand out again what was handed out from these offsets on."""
        for place, offset in positions.items():
            reader = self._fetcher.readers.get(place)
            if reader is not None:
                reader.rewind(offset)
        self._fetcher.wake()

    def go_on_from(self, before: "AsyncConsumer") -> None:
        """Take over what another consumer, which ended with its loop, was reading."""
        self._parts.go_on_from(before._parts)

    # --- life --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop reading, and end a poll that waits by Stopping. Repeating is fine."""
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
        """Wait until `ready` gives something; None on time-out and at the end."""
        self._parts.check_open()
        if self._is_reading:
            raise InvalidRequest(
                "another poll of this consumer is under way: one task or thread reads at a time; "
                "make a consumer for each"
            )
        self._is_reading = True
        try:
            await asyncio.sleep(0)  # what was read ahead must not keep the loop from others
            async with asyncio.timeout(None if timeout_ms is None else max(0, timeout_ms) / 1000):
                await self._parts.ready()
                self._check_assigned()
                while True:
                    self._raise_error()
                    found = ready()
                    if found is not None:
                        return found
                    self._raise_error()  # what could not be decoded was found just now
                    if self._is_done():
                        return None
                    self._parts.check_open()
                    await self._fetcher.wait_arrival()
        except TimeoutError:
            return None
        finally:
            self._is_reading = False

    def _check_assigned(self) -> None:
        """Raise InvalidRequest when a poll would wait for ever."""
        if not self._fetcher.readers:
            raise InvalidRequest("nothing is assigned to this consumer: see assign()")

    def _next_reader(self) -> PartitionReader | None:
        """Return the reader in turn that has decoded records."""
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

    def _next_chunks(self, turn: "ArrowTurn") -> PartitionReader | None:
        """Take rows of the reader in turn that has any."""
        for _ in range(len(self._parts.turns)):
            reader = self._parts.turns[0]
            self._parts.turns.rotate(-1)
            if reader.is_paused:
                continue
            if reader.records:  # decoded for poll(): fetched again
                reader.void()
            if reader.chunks:
                self._fetcher.wake()
                found = turn.take(reader)
                self._fetcher.has_errors |= reader.error is not None
                if found:
                    return reader
        return None

    def _raise_error(self) -> None:
        """Raise what a partition met whose records before it are handed out."""
        if not self._fetcher.has_errors:
            return
        told = None
        for reader in self._parts.turns:
            error = reader.error
            if error is None or reader.has_ahead or reader.is_paused:
                continue
            if told is None or error is told:
                told = error
                self._parts.told(reader)
        if told is None:
            self._fetcher.has_errors = any(reader.error is not None for reader in self._parts.turns)
            return
        self._fetcher.wake()
        raise told.with_traceback(None)

    def _is_done(self) -> bool:
        """Whether everything up to the ends has been handed out; raises the failure of a partition
        that keeps it from ending, after `call_timeout_ms`."""
        if not self._until_end:
            return False
        waits = [reader for reader in self._parts.turns if not reader.is_at_end]
        now_ms = self._clock.now_ms()
        for reader in waits:
            if reader.failure is not None and not (reader.has_ahead or reader.is_paused):
                failing_ms = now_ms - reader.failing_since_ms
                if failing_ms >= self._connection.config.call_timeout_ms:
                    reader.failing_since_ms = now_ms  # the next poll gives it as long again
                    raise reader.failure.with_traceback(None)
        return not waits

    # --- within ------------------------------------------------------------------------------

    async def _seek_all(self, targets: Mapping[PartitionReader, Position]) -> None:
        """Seek in all, or in none when a position cannot be found."""
        wanted = {(reader.topic, reader.partition): to for reader, to in targets.items()}
        found = await look_up(self._connection, wanted)
        for reader in targets:
            place = (reader.topic, reader.partition)
            if self._fetcher.readers.get(place) is reader:  # not unassigned meanwhile
                reader.seek(found[place])
        self._fetcher.wake()
        self._fetcher.announce()

    async def _offsets(self, position: Position) -> dict[Place, int]:
        await self._parts.ready()
        return await look_up(self._connection, dict.fromkeys(self._fetcher.readers, position))


def check_limit(name: str, limit: int | None) -> None:
    """Raise InvalidRequest unless the limit is None or at least 1."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidRequest(f"{name} is {limit!r}: give a whole number, 1 or more")
