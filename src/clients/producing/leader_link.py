"""The Produce stream to one broker, and the requests in flight on it.

A writer task gathers what is offered into requests of several partitions; a reader task matches the
answers, which come in request order. When the stream breaks, or an answer is overdue, everything in
flight is handed back as "outcome unknown" and the next request opens a new stream. Until producers
are idempotent such a repeat may store records twice.
"""

import asyncio
from collections import deque
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ...errors import Lost, NotSent, QuorumlogError, StreamBroken, TimedOut
from ...proto import log_pb2
from ...records.compression import Codec
from ...runtime import Scope, Stream
from ...runtime.error_detail import decode_error
from ...services import LOG_PRODUCE
from ..config import ProducerConfig
from ..connection import Connection
from .accumulator import Accumulator
from .batch_encoding import encode_records
from .batches import Batch, PartitionQueue

ProduceStream: TypeAlias = Stream[log_pb2.ProduceRequest, log_pb2.ProduceResponse]

REQUESTS_IN_FLIGHT_MAX = 5  # max.in.flight.requests.per.connection; beyond it requests grow instead
REQUEST_BYTES = 2 << 20  # gathered into one request: larger messages cost more in page faults
INLINE_BYTES_MAX = 64 * 1024  # larger batches are compressed in the cpu lane
CLOSE_WAIT_MS = 2_000
ANSWER_GRACE_MS = 5_000  # after the broker's own time-out; no stream is given up sooner

ACKS: dict[str, log_pb2.Acks] = {
    "all": log_pb2.ACKS_ALL,
    "leader": log_pb2.ACKS_LEADER,
    "none": log_pb2.ACKS_NONE,
}


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request that was given to the stream and not answered."""

    correlation_id: int
    queues: tuple[PartitionQueue, ...]  # in the order of the request's partitions
    overdue_ms: int  # given up then, on now_ms()


class Owner(Protocol):
    """What a link tells: the sender."""

    def wake(self) -> None:
        """A deadline is new."""

    def on_stored(self, queue: PartitionQueue, base_offset: int, append_time_ms: int = -1) -> None:
        """A queue's request was stored from `base_offset` on; -1: nobody will say."""

    def on_refused(self, queue: PartitionQueue, error: QuorumlogError) -> None:
        """A queue's request failed, or its outcome is unknown."""


class LeaderLink:
    """See the module. Made by the sender at the first queue for an address."""

    def __init__(
        self,
        owner: Owner,
        connection: Connection,
        accumulator: Accumulator,
        config: ProducerConfig,
        address: str,
    ) -> None:
        self._owner = owner
        self._connection = connection
        self._runtime = connection.runtime
        self._accumulator = accumulator
        self._config = config
        self._acks = ACKS[config.acks_name]
        self._address = address
        self._offered: deque[PartitionQueue] = deque()
        self._in_flight: deque[InFlight] = deque()
        self._wake = asyncio.Event()
        self._stream: ProduceStream | None = None
        self._reader: asyncio.Task[None] | None = None
        self._correlation_id = 0

    def start(self, scope: Scope, lock: AbstractContextManager[object]) -> None:
        """Start the writer."""
        self._scope = scope
        self._lock = lock
        self._writer = scope.spawn(self._write(), name=f"produce to {self._address}")

    def offer(self, queue: PartitionQueue) -> None:
        """Take over a listed queue; its batches are taken when a request is built."""
        self._offered.append(queue)
        self._wake.set()

    def check_deadline(self, now_ms: int) -> int | None:
        """Give the stream up when an answer is overdue; return when one will be."""
        if not self._in_flight:
            return None
        overdue_ms = min(flight.overdue_ms for flight in self._in_flight)
        if overdue_ms > now_ms:
            return overdue_ms
        if self._stream is not None:
            self._lose(self._stream, StreamBroken(f"{self._address} does not answer"))
        return None

    async def close(self) -> None:
        """End both tasks and the stream; what was given to it without acknowledgements
        (acks="none") is let through first, `CLOSE_WAIT_MS` at most."""
        stream, reader = self._stream, self._reader
        if self._acks == log_pb2.ACKS_NONE and stream is not None and reader is not None:
            await self._finish(stream, reader)
        await asyncio.gather(*self.abort(), return_exceptions=True)

    def abort(self) -> "list[asyncio.Task[None]]":
        """End both tasks and the stream at once; return the tasks, which may have a step to go."""
        stream, self._stream = self._stream, None
        reader, self._reader = self._reader, None  # an ended task keeps the stream in memory
        tasks = [self._writer] if reader is None else [self._writer, reader]
        for task in tasks:
            task.cancel()
        if stream is not None:
            stream.abort("the producer is closed")
        return tasks

    async def _finish(self, stream: ProduceStream, reader: "asyncio.Task[None]") -> None:
        """Say that nothing more will come and wait for the broker to end the stream."""
        with suppress(QuorumlogError, TimeoutError):
            async with asyncio.timeout(CLOSE_WAIT_MS / 1000):
                await stream.finish()
                await asyncio.shield(reader)

    # --- writing -----------------------------------------------------------------------------

    async def _write(self) -> None:
        while True:
            while not self._offered or len(self._in_flight) >= REQUESTS_IN_FLIGHT_MAX:
                self._wake.clear()
                await self._wake.wait()
            parts = self._take()
            encoded = [await self._encode(queue, batches) for queue, batches in parts]
            sendable = [
                (queue, records)
                for (queue, _), records in zip(parts, encoded, strict=True)
                if records is not None and self._is_in_time(queue)
            ]
            if sendable:
                await self._send(sendable)

    def _take(self) -> list[tuple[PartitionQueue, tuple[Batch, ...]]]:
        """Take batches of the offered queues in turn, up to the size of one request; a batch alone
        may be larger than `REQUEST_BYTES`, never than the producer's `request_size_max`."""
        parts: list[tuple[PartitionQueue, tuple[Batch, ...]]] = []
        room = min(self._config.request_size_max, REQUEST_BYTES)
        while self._offered:
            queue = self._offered[0]
            with self._lock:
                if parts and queue.closed and queue.closed[0].size > room:
                    break  # the first of the next request
                batches = self._accumulator.take(queue, room)
            self._offered.popleft()
            if batches:
                parts.append((queue, batches))
                room -= sum(batch.size for batch in batches)
        return parts

    def _is_in_time(self, queue: PartitionQueue) -> bool:
        """Whether what was encoded may still be delivered; if not, it goes back to be failed."""
        if self._useless_ms((queue,)) > self._runtime.clock.now_ms():
            return True
        self._owner.on_refused(queue, NotSent("it was encoded too late to be sent"))
        return False

    async def _encode(self, queue: PartitionQueue, batches: tuple[Batch, ...]) -> bytes | None:
        """Return the batches' bytes back to back; None when they cannot be encoded, which ends
        them (or sends each alone, to find the bad one)."""
        try:
            for batch in batches:
                if batch.encoded is None:
                    encoded = await self._encode_batch(batch)
                    with self._lock:
                        self._accumulator.encoded(batch, encoded)
        except QuorumlogError as error:
            self._owner.on_refused(queue, error)
            return None
        if len(batches) == 1:
            return batches[0].encoded
        return b"".join([batch.encoded or b"" for batch in batches])

    async def _encode_batch(self, batch: Batch) -> bytes:
        codec, level = self._config.codec, self._config.compression_level
        if codec is Codec.NONE or batch.size <= INLINE_BYTES_MAX:
            return encode_records(batch, codec, level)
        return await self._runtime.tasks.offload(
            "cpu", lambda: encode_records(batch, codec, level), cost_bytes=batch.size
        )

    async def _send(self, parts: list[tuple[PartitionQueue, bytes]]) -> None:
        queues = tuple(queue for queue, _ in parts)
        try:
            stream = await self._open(self._useless_ms(queues))
        except QuorumlogError as error:
            for queue in queues:
                self._owner.on_refused(queue, error)
            return
        self._correlation_id += 1
        timeout_ms = self._connection.config.request_timeout_ms
        request = log_pb2.ProduceRequest(
            correlation_id=self._correlation_id, acks=self._acks, timeout_ms=timeout_ms
        )
        for queue, records in parts:
            leader = self._connection.leader_now(queue.topic, queue.partition)
            request.partitions.add(
                topic=queue.topic,
                partition=queue.partition,
                leader_epoch=leader.epoch if leader is not None else None,
                records=records,
                topic_id=queue.topic_id,
            )
        overdue_ms = self._overdue_ms(queues, timeout_ms)
        flight = InFlight(self._correlation_id, queues, overdue_ms)
        self._in_flight.append(flight)
        for queue in queues:
            for batch in queue.in_flight:
                batch.is_sent = True
        self._owner.wake()  # the coordinator watches the deadline
        try:
            await stream.send(request)
        except QuorumlogError as error:
            self._lose(stream, error)
            return
        if self._acks == log_pb2.ACKS_NONE and self._in_flight and self._in_flight[-1] is flight:
            self._in_flight.pop()
            for queue in queues:
                self._owner.on_stored(queue, -1)

    def _overdue_ms(self, queues: tuple[PartitionQueue, ...], timeout_ms: int) -> int:
        """Return when to give up waiting for the answer to what is in flight of `queues`: behind
        the broker's own time-out, or when no batch of it may be delivered any more, which is
        never so soon that a broker that is well would be given up."""
        now_ms = self._runtime.clock.now_ms()
        useless_ms = self._useless_ms(queues)
        return min(now_ms + timeout_ms + ANSWER_GRACE_MS, max(useless_ms, now_ms + ANSWER_GRACE_MS))

    def _useless_ms(self, queues: tuple[PartitionQueue, ...]) -> int:
        """Return when no batch in flight of `queues` may be delivered any more."""
        now_ms = self._runtime.clock.now_ms()
        unstamped_ms = now_ms + self._config.delivery_timeout_ms  # closed a moment ago
        deadlines = (batch.deadline_ms for queue in queues for batch in queue.in_flight)
        return max((deadline_ms or unstamped_ms for deadline_ms in deadlines), default=now_ms)

    async def _open(self, until_ms: int) -> ProduceStream:
        """Return the stream; raises NotSent when the broker is not reached until then, or within
        the time of a request."""
        if self._stream is None:
            channel = self._connection.channel(self._address)
            left_ms = max(1, until_ms - self._runtime.clock.now_ms())
            wait_ms = min(left_ms, self._connection.config.request_timeout_ms)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    stream = await channel.stream(LOG_PRODUCE, timeout_ms=0)
            except TimeoutError:
                raise NotSent(f"{self._address} was not reached within {wait_ms} ms") from None
            self._stream = stream
            self._reader = self._scope.spawn(
                self._read(stream), name=f"acknowledgements of {self._address}"
            )
        return self._stream

    # --- reading -----------------------------------------------------------------------------

    async def _read(self, stream: ProduceStream) -> None:
        try:
            while (response := await stream.receive()) is not None:
                self._answered(response)
            raise StreamBroken(f"{self._address} ended the stream")
        except QuorumlogError as error:
            self._lose(stream, error)

    def _answered(self, response: log_pb2.ProduceResponse) -> None:
        if not self._in_flight or self._in_flight[0].correlation_id != response.correlation_id:
            raise StreamBroken(f"{self._address} answers {response.correlation_id} out of order")
        flight = self._in_flight[0]
        if len(response.results) != len(flight.queues):
            raise StreamBroken(
                f"{self._address} answers {len(response.results)} of {len(flight.queues)} parts"
            )
        for queue, result in zip(flight.queues, response.results, strict=True):
            self._check(queue, result)
        self._in_flight.popleft()
        self._connection.topology.saw_offset(response.metadata_offset)
        for queue, result in zip(flight.queues, response.results, strict=True):
            if result.HasField("error"):
                error = decode_error(result.error)
                _note_attempt(queue.in_flight, is_unknown=is_unknown(error))
                self._owner.on_refused(queue, error)
            else:
                append_time_ms = result.log_append_time_ms or -1  # 0: a broker that left it out
                self._owner.on_stored(queue, result.base_offset, append_time_ms)
        self._wake.set()

    def _check(self, queue: PartitionQueue, result: log_pb2.ProduceResult) -> None:
        """Raise StreamBroken for an answer that makes no sense: nothing of it is believed."""
        if (result.topic, result.partition) != (queue.topic, queue.partition):
            raise StreamBroken(
                f"{self._address} answers for {result.topic}-{result.partition} where "
                f"{queue.topic}-{queue.partition} was asked"
            )
        if result.base_offset < 0 and not result.HasField("error"):
            raise StreamBroken(
                f"{self._address} says that {queue.topic}-{queue.partition} is stored at offset "
                f"{result.base_offset}"
            )

    def _lose(self, stream: ProduceStream, error: QuorumlogError) -> None:
        """A stream is of no use any more: what was in flight on it has an unknown outcome."""
        if self._stream is not stream:
            return  # both tasks notice the same break
        self._stream = None
        stream.abort(error.message)
        lost, self._in_flight = self._in_flight, deque()
        for flight in lost:
            for queue in flight.queues:
                _note_attempt(queue.in_flight, is_unknown=not isinstance(error, NotSent))
                self._owner.on_refused(queue, as_retriable(error))
        self._wake.set()


def as_retriable(error: QuorumlogError) -> QuorumlogError:
    """Return what a broken stream means for a batch: repeat it, whatever ended the stream."""
    if error.retriable:
        return error
    broken = StreamBroken(f"the stream ended: {error.message}")
    broken.__cause__ = error
    return broken


def is_unknown(error: QuorumlogError) -> bool:
    """Whether a request that ended so may have been executed."""
    return isinstance(error, Lost | StreamBroken | TimedOut) and not isinstance(error, NotSent)


def _note_attempt(batches: tuple[Batch, ...], *, is_unknown: bool) -> None:
    """An attempt is over without an acknowledgement."""
    for batch in batches:
        batch.is_sent = False
        batch.may_be_stored = batch.may_be_stored or is_unknown
