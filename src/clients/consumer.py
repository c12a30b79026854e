"""The consumer by assignment: the partitions it is given, from where it is told, in offset order.

Records come in the partition's order; partitions take turns, a fetched chunk at a time. A position
is the offset of the next record that the application gets: it moves when records are handed out,
not when they are read ahead.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from ..errors import CorruptionError, InvalidRequest, Stopping
from ..records.codec import decode_all
from ..runtime import Scope
from .batches import Headers
from .config import ConsumerConfig
from .connection import Connection
from .fetcher import Fetcher, PartitionReader
from .offsets import Position, check_position, resolve


@dataclass(slots=True)
class ConsumerRecord:
    """One record and where it was."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int  # milliseconds since 1970 (UTC); -1 none
    key: bytes | None
    value: bytes | None
    headers: Headers


class AsyncConsumer:
    """Reads assigned partitions; made by `AsyncLog.consumer()`. For one loop's thread, one reader.

    ```python
    async with log.consumer("flights", start="earliest") as consumer:
        async for record in consumer:
            ...
    ```
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ConsumerConfig,
        assignment: Mapping[str, Sequence[int] | None],
        *,
        start: Position,
        until_end: bool,
        on_close: Callable[["AsyncConsumer"], None] | None = None,
    ) -> None:
        check_position(start)
        self.config = config
        self._connection = connection
        self._clock = connection.runtime.clock
        self._assignment = dict(assignment)
        self._start = start
        self._until_end = until_end
        self._fetcher = Fetcher(connection, config, scope)
        self._turns: deque[PartitionReader] = deque()
        self._records: deque[ConsumerRecord] = deque()  # decoded, of one chunk, not handed out
        self._source: PartitionReader | None = None  # where _records came from
        self._source_generation = 0  # its generation then: a seek since has moved the position
        self._source_end = 0  # offset behind the chunk that _records came from
        self._on_close = on_close
        self._is_assigned = False
        self._is_closed = False

    # --- reading -----------------------------------------------------------------------------

    async def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return what is there, at most `max_records` (default: `poll_records_max`), waiting up to
        `timeout_ms` (None: as long as it takes) for the first; [] then, and when a consumer made
        with `until_end` is done.

        Raises what a partition's reading met, e.g. OffsetOutOfRange.
        """
        limit = self.config.poll_records_max if max_records is None else max_records
        records: list[ConsumerRecord] = []
        if await self._fill(timeout_ms):
            while len(records) < limit and (self._records or self._decode_next()):
                records.append(self._hand_out())
        return records

    async def next(self, *, timeout_ms: int | None = None) -> ConsumerRecord | None:
        """Return the next record; None after `timeout_ms`, or at the end with `until_end`."""
        return self._hand_out() if await self._fill(timeout_ms) else None

    def __aiter__(self) -> "AsyncConsumer":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Wait for the next record as long as it takes; ends only with `until_end`."""
        if not self._records and not await self._fill(None):
            raise StopAsyncIteration
        return self._hand_out()

    # --- positions ---------------------------------------------------------------------------

    async def assignment(self) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs that are read."""
        await self._assign()
        return list(self._fetcher.readers)

    def positions(self) -> dict[tuple[str, int], int]:
        """Return the offsets of the next records that the application gets, by partition; {}
        before the first use."""
        return {place: reader.position for place, reader in self._fetcher.readers.items()}

    async def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record that the application gets."""
        return (await self._reader(topic, partition)).position

    async def high_watermark(self, topic: str, partition: int) -> int:
        """Return the end of what is committed, as the last answer said; asks when there was
        none."""
        reader = await self._reader(topic, partition)
        if reader.high_watermark < 0:
            found = await resolve(self._connection, topic, [partition], "latest")
            reader.high_watermark = found[partition]
        return reader.high_watermark

    async def seek(self, topic: str, partition: int, position: Position) -> None:
        """Go on reading a partition from a position; what was read ahead of it is dropped."""
        reader = await self._reader(topic, partition)
        offset = (await resolve(self._connection, topic, [partition], position))[partition]
        if self._source is reader:
            self._records.clear()
        reader.seek(offset)
        self._fetcher.wake()

    async def pause(self, topic: str, partition: int) -> None:
        """Hand out nothing of a partition until it is resumed."""
        reader = await self._reader(topic, partition)
        if self._source is reader and self._records:
            reader.seek(self._records[0].offset)  # read again what was decoded and not handed out
            self._records.clear()
        reader.is_paused = True

    async def resume(self, topic: str, partition: int) -> None:
        """Read a paused partition again."""
        (await self._reader(topic, partition)).is_paused = False
        self._fetcher.wake()

    # --- life --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop reading. Repeating is fine."""
        if not self._is_closed:
            self._is_closed = True
            await self._fetcher.close()
            if self._on_close is not None:
                self._on_close(self)

    async def __aenter__(self) -> "AsyncConsumer":
        await self._assign()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- within ------------------------------------------------------------------------------

    async def _assign(self) -> None:
        """Find the partitions and where to begin, once."""
        if self._is_closed:
            raise Stopping("the consumer is closed")
        if self._is_assigned:
            return
        readers: dict[tuple[str, int], PartitionReader] = {}
        for topic, wanted in self._assignment.items():
            layout = await self._connection.layout(topic)
            partitions = range(len(layout.partitions)) if wanted is None else wanted
            begins = await resolve(self._connection, topic, list(partitions), self._start)
            ends: Mapping[int, int] = {}
            if self._until_end:
                ends = await resolve(self._connection, topic, list(partitions), "latest")
            for partition, offset in begins.items():
                reader = readers[topic, partition] = PartitionReader(topic, partition)
                reader.seek(offset)
                reader.end_offset = ends.get(partition)
        if not self._is_assigned:
            self._is_assigned = True
            self._fetcher.readers.update(readers)
            self._turns.extend(readers.values())
            self._fetcher.wake()

    async def _reader(self, topic: str, partition: int) -> PartitionReader:
        await self._assign()
        reader = self._fetcher.readers.get((topic, partition))
        if reader is None:
            raise InvalidRequest("not assigned to this consumer", topic=topic, partition=partition)
        return reader

    async def _fill(self, timeout_ms: int | None) -> bool:
        """Wait until a record can be handed out; False on time-out and at the end."""
        if self._records:
            return True
        await self._assign()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while not self._decode_next():
                    if all(reader.is_at_end for reader in self._turns):
                        return False
                    if self._fetcher.is_ended:
                        raise Stopping("the consumer is closed")
                    await self._fetcher.wait_arrival()
        except TimeoutError:
            return False
        return True

    def _decode_next(self) -> bool:
        """Decode the next chunk of the next partition in turn; whether there are records now."""
        self._raise_error()
        for _ in range(len(self._turns)):
            reader = self._turns[0]
            self._turns.rotate(-1)
            while reader.chunks and not reader.is_paused:
                if self._decode_chunk(reader):
                    return True
        return False

    def _raise_error(self) -> None:
        for reader in self._turns:
            if reader.error is not None and not (reader.chunks or reader.is_paused):
                error, reader.error = reader.error, None
                reader.retry_ms = self._clock.now_ms() + self.config.fetch_wait_ms_max
                self._fetcher.wake()
                raise error.with_traceback(None)

    def _decode_chunk(self, reader: PartitionReader) -> bool:
        """Decode a reader's oldest chunk; whether it had records that are wanted. A chunk that
        cannot be decoded is an error for as long as it is fetched so: it is never skipped."""
        chunk = reader.chunks.popleft()
        reader.buffered_bytes -= len(chunk.batches)
        self._fetcher.wake()
        topic, partition = reader.topic, reader.partition
        try:
            records = decode_all(
                chunk.batches, start_offset=reader.position, end_offset=reader.end_offset
            )
        except CorruptionError:
            reader.seek(reader.position)
            raise
        self._records.extend(
            ConsumerRecord(
                topic,
                partition,
                record.offset,
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
            )
            for record in records
        )
        if not self._records:  # control batches, or nothing at or behind the position
            reader.position = max(reader.position, chunk.next_offset)
        self._source, self._source_end = reader, chunk.next_offset
        self._source_generation = reader.generation
        return bool(self._records)

    def _hand_out(self) -> ConsumerRecord:
        record = self._records.popleft()
        source = self._source
        assert source is not None, "decoded records belong to a partition"
        if source.generation == self._source_generation:
            source.position = record.offset + 1
            if not self._records:  # over what follows the last record: control batches, gaps
                source.position = max(source.position, self._behind_chunk(source))
        return record

    def _behind_chunk(self, source: PartitionReader) -> int:
        end = source.end_offset
        return self._source_end if end is None else min(self._source_end, end)
