"""Reads ahead for a consumer: long polls in the background, bounded bytes for each partition.

One coordinator task groups the partitions that may be fetched by leader and spawns a call for each
group; a partition is in at most one call, and a leader has at most `CALLS_PER_LEADER_MAX` of them,
so that a partition that was just read empty does not wait for another one's long poll. A seek bumps
the partition's generation, which voids what is under way for it.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, NamedTuple

from ..errors import CorruptionError, OffsetOutOfRange, QuorumlogError, UnknownTopicOrPartition
from ..proto import log_pb2
from ..records.batch import iterate_batches
from ..runtime import Scope
from ..runtime.error_detail import decode_error
from ..services import LOG_FETCH
from .config import ConsumerConfig
from .connection import Connection
from .offsets import Position, resolve
from .topology import Leader

CALLS_PER_LEADER_MAX = 4
FETCH_GRACE_MS = 5_000  # an answer may take so much longer than the long poll
IDLE_WAIT_MS = 60_000


class Chunk(NamedTuple):
    """What one answer had of one partition."""

    batches: bytes  # whole record batches; the first may begin below the position
    next_offset: int  # behind the last of them


class PartitionReader:
    """Where a partition's reading is: what was fetched and not delivered, and what comes next."""

    __slots__ = (
        "buffered_bytes",
        "chunks",
        "end_offset",
        "error",
        "failures",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_fetching",
        "is_paused",
        "partition",
        "position",
        "retry_ms",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.position = 0  # offset of the next record that the application gets
        self.fetch_offset = 0  # offset that the next fetch asks for
        self.chunks: deque[Chunk] = deque()  # not decoded
        self.buffered_bytes = 0
        self.generation = 0  # counts seeks
        self.high_watermark = -1  # -1 until the first answer
        self.end_offset: int | None = None  # the application wants no more from here on
        self.is_fetching = False
        self.is_paused = False
        self.failures = 0  # in a row
        self.retry_ms = 0  # not fetched before, on now_ms()
        self.error: QuorumlogError | None = None  # raised by the next poll

    def seek(self, offset: int) -> None:
        """Go on from `offset`; what was read ahead is dropped."""
        self.position = self.fetch_offset = offset
        self.chunks.clear()
        self.buffered_bytes = 0
        self.generation += 1
        self.is_fetching = False  # what is under way counts for nothing any more
        self.failures = 0
        self.retry_ms = 0
        self.error = None

    @property
    def is_at_end(self) -> bool:
        """Whether all that was wanted has been delivered."""
        return self.end_offset is not None and self.position >= self.end_offset


class Fetcher:
    """See the module."""

    def __init__(self, connection: Connection, config: ConsumerConfig, scope: Scope) -> None:
        self._connection = connection
        self._clock = connection.runtime.clock
        self._config = config
        self._scope = scope
        self.readers: dict[tuple[str, int], PartitionReader] = {}  # in the order of assignment
        self._calls: dict[str, int] = {}  # under way, by address
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._work = asyncio.Event()
        self._arrivals: dict[asyncio.Future[None], None] = {}
        self.is_ended = False  # nothing will arrive any more
        self._coordinator = scope.spawn(self._run(), name="fetcher")
        self._coordinator.add_done_callback(self._on_end)

    def wake(self) -> None:
        """Something may be fetched now that could not before."""
        self._work.set()

    async def wait_arrival(self) -> None:
        """Return when records or an error have arrived after this call, or none will."""
        waiter = asyncio.get_running_loop().create_future()
        self._arrivals[waiter] = None
        try:
            await waiter
        finally:
            self._arrivals.pop(waiter, None)

    async def close(self) -> None:
        """End all calls."""
        tasks = [self._coordinator, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_end(self, coordinator: "asyncio.Task[None]") -> None:
        self.is_ended = True
        self._announce()

    # --- coordination ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._work.clear()
            wake_ms = self._step(self._clock.now_ms())
            wait_ms = max(1, wake_ms - self._clock.now_ms())
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._work.wait()
            except TimeoutError:
                pass

    def _step(self, now_ms: int) -> int:
        """Start every call that may be started; return when to look again."""
        wake_ms = now_ms + IDLE_WAIT_MS
        groups: dict[str, list[tuple[PartitionReader, Leader]]] = {}
        for reader in self.readers.values():
            if not self._is_wanted(reader):
                continue
            if reader.retry_ms > now_ms:
                wake_ms = min(wake_ms, reader.retry_ms)
                continue
            leader = self._connection.leader_now(reader.topic, reader.partition)
            if leader is None:
                reader.is_fetching = True
                self._spawn(self._look_up(reader), name=f"look-up {reader.topic}")
            elif self._calls.get(leader.address, 0) < CALLS_PER_LEADER_MAX:
                groups.setdefault(leader.address, []).append((reader, leader))
        for address, group in groups.items():
            self._calls[address] = self._calls.get(address, 0) + 1
            for reader, _ in group:
                reader.is_fetching = True
            self._spawn(self._fetch(address, group), name=f"fetch from {address}")
        return wake_ms

    def _is_wanted(self, reader: PartitionReader) -> bool:
        return not (
            reader.is_fetching
            or reader.is_paused
            or reader.error is not None
            or reader.buffered_bytes >= self._config.prefetch_bytes_max
            or (reader.end_offset is not None and reader.fetch_offset >= reader.end_offset)
        )

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        task = self._scope.spawn(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _look_up(self, reader: PartitionReader) -> None:
        generation = reader.generation
        try:
            await self._connection.leader(reader.topic, reader.partition)
        except UnknownTopicOrPartition as error:
            self._tell(reader, generation, error)  # the metadata says so: it is not on its way
        except QuorumlogError as error:
            self._failed(reader, generation, error)
        finally:
            self._finished(reader, generation)

    # --- one call ----------------------------------------------------------------------------

    async def _fetch(self, address: str, group: list[tuple[PartitionReader, Leader]]) -> None:
        generations = [reader.generation for reader, _ in group]
        try:
            response = await self._call(address, group)
        except QuorumlogError as error:
            for (reader, _), generation in zip(group, generations, strict=True):
                self._failed(reader, generation, error)
        else:
            self._connection.topology.saw_offset(response.metadata_offset)
            for (reader, _), generation, result in zip(
                group, generations, response.results, strict=True
            ):
                if result.HasField("error"):
                    await self._refused(reader, generation, decode_error(result.error))
                else:
                    self._arrived(reader, generation, result)
        finally:
            self._calls[address] -= 1
            for (reader, _), generation in zip(group, generations, strict=True):
                self._finished(reader, generation)

    async def _call(
        self, address: str, group: list[tuple[PartitionReader, Leader]]
    ) -> log_pb2.FetchResponse:
        request = log_pb2.FetchRequest(
            max_wait_ms=self._config.fetch_wait_ms_max,
            min_bytes=self._config.fetch_bytes_min,
            max_bytes=self._config.fetch_bytes_max,
            partitions=[
                log_pb2.FetchPartition(
                    topic=reader.topic,
                    partition=reader.partition,
                    offset=reader.fetch_offset,
                    max_bytes=self._config.partition_bytes_max,
                    leader_epoch=leader.epoch,
                )
                for reader, leader in group
            ],
        )
        timeout_ms = self._config.fetch_wait_ms_max + FETCH_GRACE_MS
        channel = self._connection.channel(address)
        response = await channel.call(LOG_FETCH, request, timeout_ms=timeout_ms)
        if len(response.results) != len(group):
            raise UnknownTopicOrPartition(
                f"{address} answers {len(response.results)} of {len(group)} parts"
            )
        return response

    def _arrived(
        self, reader: PartitionReader, generation: int, result: log_pb2.FetchResult
    ) -> None:
        if reader.generation != generation:
            return
        reader.failures = 0
        reader.high_watermark = result.high_watermark
        records = result.records
        if records:
            try:
                reader.fetch_offset = next_offset(records)
            except CorruptionError as error:
                self._tell(reader, generation, error)
                return
            reader.chunks.append(Chunk(records, reader.fetch_offset))
            reader.buffered_bytes += len(records)
        self._announce()

    async def _refused(
        self, reader: PartitionReader, generation: int, error: QuorumlogError
    ) -> None:
        """An offset out of range is reset where the application asked for that."""
        policy = self._config.on_out_of_range
        if not isinstance(error, OffsetOutOfRange) or policy == "raise":
            self._failed(reader, generation, error)
            return
        try:
            position: Position = "earliest" if policy == "earliest" else "latest"
            found = await resolve(self._connection, reader.topic, [reader.partition], position)
        except QuorumlogError as failure:
            self._failed(reader, generation, failure)
            return
        if reader.generation != generation:
            return
        if reader.chunks:  # handed out first
            reader.retry_ms = self._clock.now_ms() + self._config.fetch_wait_ms_max
        else:
            reader.seek(found[reader.partition])

    def _failed(self, reader: PartitionReader, generation: int, error: QuorumlogError) -> None:
        """Try again later, or tell the application."""
        if not error.retriable:
            self._tell(reader, generation, error)
        elif reader.generation == generation:
            self._connection.doubt(reader.topic)
            reader.failures += 1
            wait_ms = self._connection.backoff.wait_ms(reader.failures)
            reader.retry_ms = self._clock.now_ms() + wait_ms

    def _tell(self, reader: PartitionReader, generation: int, error: QuorumlogError) -> None:
        if reader.generation == generation:
            reader.error = error
            self._announce()

    def _finished(self, reader: PartitionReader, generation: int) -> None:
        if reader.generation == generation:
            reader.is_fetching = False
        self._work.set()

    def _announce(self) -> None:
        arrivals, self._arrivals = self._arrivals, {}
        for waiter in arrivals:
            if not waiter.done():
                waiter.set_result(None)


def next_offset(records: bytes) -> int:
    """Return the offset behind the last of one or more whole batches."""
    end = -1
    for _, header in iterate_batches(records):
        end = header.next_offset
    return end
