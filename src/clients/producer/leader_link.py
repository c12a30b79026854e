"""The Produce stream to one broker, and its requests in flight.

A writer task builds requests from the offered queues; a reader task matches the responses, which
arrive in request order. If the stream breaks, or a response is overdue, all requests in flight are
returned with an unknown outcome, and the next request opens a new stream. A leader recognises a
repeated batch of an idempotent producer by its sequence number; another producer's may be stored
twice.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

from ...errors import (
    ConnectionFailed,
    QuorumlogError,
    StreamBroken,
)
from ...proto import log_pb2
from ...records.compression import Codec
from ...runtime import Method, Scope, Stream
from ...runtime.error_detail import decode_error
from ...runtime.protobuf_fields import EncodedMessage, Parts
from ...services import LOG_PRODUCE
from ..config import ProducerConfig
from ..connection import Connection
from .batch_encoder import encode_records, renumbered
from .batches import Batch
from .incomplete_batches import IncompleteBatches
from .outcomes import BatchOutcomes
from .partition_queue import Part, PartitionQueue
from .ready_queues import ReadyQueues
from .retry import UNKNOWN_OUTCOMES, BatchRetries, as_retriable, record_attempt

ProduceStream: TypeAlias = Stream[Any, log_pb2.ProduceResponse]  # sends EncodedMessage

REQUESTS_IN_FLIGHT_MAX = 5  # max.in.flight.requests.per.connection; further batches wait
REQUEST_BYTES = 2 << 20  # target size of a request: larger messages cost more in page faults
INLINE_BYTES_MAX = 64 * 1024  # larger batches are compressed on the cpu lane
CLOSE_WAIT_MS = 2_000
SLOW_MS = 2_000  # time without a response after which the leader is looked up, repeatedly
ANSWER_GRACE_MS = 5_000  # beyond the broker's timeout; also the minimum wait for a response

_PRODUCE: Final[Method[Any, log_pb2.ProduceResponse]] = Method(
    LOG_PRODUCE.path, cast("Any", EncodedMessage), LOG_PRODUCE.response, streaming=True
)
_PARTITIONS: Final = Parts(
    log_pb2.ProduceRequest, "partitions", log_pb2.PartitionRecords, "records"
)

ACKS: dict[str, log_pb2.Acks] = {
    "all": log_pb2.ACKS_ALL,
    "leader": log_pb2.ACKS_LEADER,
    "none": log_pb2.ACKS_NONE,
}


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request without a response."""

    correlation_id: int
    parts: tuple[Part, ...]  # in the order of the request's partitions
    sent_ms: int  # on now_ms(), like the next
    overdue_ms: int  # deadline of the response


class LinkOwner(Protocol):
    """The callbacks of a link, implemented by the sender."""

    def wake(self) -> None:
        """Check deadlines again: there is a new one."""

    def on_slow(self, link: "LeaderLink", topics: Sequence[str]) -> None:
        """Handle a late response that concerns these topics."""


class LeaderLink:
    """The link to one broker; see the module. Created by the sender for the first queue of an
    address."""

    def __init__(
        self,
        owner: LinkOwner,
        connection: Connection,
        config: ProducerConfig,
        address: str,
        *,
        ready: ReadyQueues,
        incomplete: IncompleteBatches,
        outcomes: BatchOutcomes,
        retries: BatchRetries,
        lock: AbstractContextManager[object],
    ) -> None:
        """`lock` guards `ready` and `incomplete`."""
        self._owner = owner
        self._connection = connection
        self._runtime = connection.runtime
        self._ready = ready
        self._incomplete = incomplete
        self._outcomes = outcomes
        self._retries = retries
        self._lock = lock
        self._config = config
        self._acks = ACKS[config.acks_name]
        self._address = address
        self._offered: deque[PartitionQueue] = deque()
        self._in_flight: deque[InFlight] = deque()
        self._wake = asyncio.Event()
        self._stream: ProduceStream | None = None
        self._reader: asyncio.Task[None] | None = None
        self._correlation_id = 0
        self._looked_ms = 0  # time of the last leader lookup because of a late response

    def start(self, scope: Scope) -> None:
        """Start the writer task in a scope."""
        self._scope = scope
        self._writer = scope.spawn(self._write(), name=f"produce to {self._address}")

    def offer(self, queue: PartitionQueue) -> None:
        """Take over a listed queue; its batches are taken when a request is built."""
        self._offered.append(queue)
        self._wake.set()

    def check_deadline(self, now_ms: int) -> int | None:
        """Abort the stream if a response is overdue; report a late one; return the time of the
        next check."""
        if not self._in_flight:
            return None
        overdue_ms = min(flight.overdue_ms for flight in self._in_flight)
        if overdue_ms <= now_ms:
            if self._stream is not None:
                self._stream_broken(self._stream, StreamBroken(f"{self._address} does not answer"))
            return None
        oldest = self._in_flight[0]
        slow_ms = max(oldest.sent_ms, self._looked_ms) + SLOW_MS
        if slow_ms <= now_ms:
            self._looked_ms = now_ms
            slow_ms = now_ms + SLOW_MS
            topics = dict.fromkeys(part.queue.topic for part in oldest.parts)
            self._owner.on_slow(self, list(topics))
        return min(slow_ms, overdue_ms)

    def abort_if_deposed(self) -> None:
        """Abort the stream if another broker leads a partition in flight.

        Only for batches with sequence numbers: others could be stored twice.
        """
        if self._stream is None:
            return
        for part in [part for flight in self._in_flight for part in flight.parts]:
            leader = self._connection.leader_now(part.queue.topic, part.queue.partition)
            has_moved = leader is not None and leader.address != self._address
            if has_moved and part.queue.numbering is not None:
                reason = f"{self._address} does not answer and is no longer the leader"
                self._stream_broken(self._stream, StreamBroken(reason))
                return

    async def close(self) -> None:
        """End both tasks and the stream.

        With acks="none" requests in flight are completed first, within `CLOSE_WAIT_MS`.
        """
        stream, reader = self._stream, self._reader
        if self._acks == log_pb2.ACKS_NONE and stream is not None and reader is not None:
            await self._finish(stream, reader)
        await asyncio.gather(*self.abort(), return_exceptions=True)

    def abort(self) -> "list[asyncio.Task[None]]":
        """End both tasks and the stream at once; return the tasks, which may run one more step."""
        stream, self._stream = self._stream, None
        reader, self._reader = self._reader, None  # an ended task keeps the stream in memory
        tasks = [self._writer] if reader is None else [self._writer, reader]
        for task in tasks:
            task.cancel()
        if stream is not None:
            stream.abort("the producer is closed")
        return tasks

    async def _finish(self, stream: ProduceStream, reader: "asyncio.Task[None]") -> None:
        """Half-close the stream and wait for the broker to end it."""
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
            encoded = [await self._encode(part) for part in parts]
            sendable = [
                (part, records)
                for part, records in zip(parts, encoded, strict=True)
                if records is not None and self._is_in_time(part)
            ]
            if sendable:
                await self._send(sendable)

    def _take(self) -> list[Part]:
        """Take batches of the offered queues in turn, up to the size of one request.

        A single batch may exceed `REQUEST_BYTES`, but not the producer's `max_request_size`.
        """
        parts: list[Part] = []
        room = min(self._config.max_request_size, REQUEST_BYTES)
        now_ms = self._runtime.clock.now_ms()
        for _ in range(len(self._offered)):  # queues offered later are for the next request
            queue = self._offered[0]
            with self._lock:
                if parts and queue.next_size > room:
                    break  # it is the first of the next request
                self._offered.popleft()
                queue.address = self._address
                part = self._ready.take(queue, room, now_ms)
            if part is not None:
                parts.append(part)
                room -= sum(batch.size for batch in part.batches)
        return parts

    def _is_in_time(self, part: Part) -> bool:
        """Return True if a part may still be delivered; otherwise hand it back as late."""
        if self._last_deadline_ms((part,)) > self._runtime.clock.now_ms():
            return True
        self._retries.late(
            part, ConnectionFailed("the deadline passed before the batch was encoded")
        )
        return False

    async def _encode(self, part: Part) -> list[bytes] | None:
        """Return the bytes of each batch; None if one cannot be encoded.

        In that case the part is refused: a single batch fails, several are sent alone to find the
        bad one.
        """
        try:
            for batch in part.batches:
                if batch.encoded is None:
                    encoded = await self._encode_batch(batch)
                elif batch.sealed != batch.number:
                    encoded = renumbered(batch.encoded, batch.number)
                else:
                    continue
                with self._lock:
                    self._incomplete.encoded(batch, encoded)
        except QuorumlogError as error:
            self._retries.refused(part, error)
            return None
        return [batch.encoded or b"" for batch in part.batches]

    async def _encode_batch(self, batch: Batch) -> bytes:
        config = self._config

        def encode() -> bytes:
            return encode_records(
                batch,
                config.codec,
                config.compression_level,
                is_transactional=config.transactional_id is not None,
            )

        if config.codec is Codec.NONE or batch.size <= INLINE_BYTES_MAX:
            return encode()
        return await self._runtime.tasks.offload("cpu", encode, cost_bytes=batch.size)

    async def _send(self, encoded: list[tuple[Part, list[bytes]]]) -> None:
        until_ms = self._last_deadline_ms([part for part, _ in encoded])
        try:
            stream = await self._open(until_ms)
        except QuorumlogError as error:
            is_late = error.retriable and self._runtime.clock.now_ms() >= until_ms
            for part, _ in encoded:
                (self._retries.late if is_late else self._retries.refused)(part, error)
            return
        encoded = self._still_due(encoded)
        if not encoded:
            return
        timeout_ms = self._connection.config.request_timeout_ms
        request = self._request(encoded, timeout_ms)
        parts = tuple(part for part, _ in encoded)
        now_ms = self._runtime.clock.now_ms()
        overdue_ms = self._overdue_ms(parts, timeout_ms)
        flight = InFlight(self._correlation_id, parts, now_ms, overdue_ms)
        self._in_flight.append(flight)
        for part in parts:
            for batch in part.batches:
                batch.is_sent = True
        self._owner.wake()  # the coordinator watches the deadline
        try:
            await stream.send(request)
        except QuorumlogError as error:
            self._stream_broken(stream, error)
            return
        if self._acks == log_pb2.ACKS_NONE and self._in_flight and self._in_flight[-1] is flight:
            self._in_flight.pop()
            for part in parts:
                self._outcomes.stored(part, -1)

    def _still_due(self, encoded: list[tuple[Part, list[bytes]]]) -> list[tuple[Part, list[bytes]]]:
        """Drop cancelled parts. Return the parts that may be sent.

        Parts queued behind a failed one of their partition are handed back.
        """
        for part, _ in encoded:
            if part.queue.is_recovering:
                self._retries.unsent(part)
        return [(part, records) for part, records in encoded if part in part.queue.parts]

    def _request(
        self, encoded: list[tuple[Part, list[bytes]]], timeout_ms: int
    ) -> EncodedMessage[log_pb2.ProduceRequest]:
        self._correlation_id += 1
        request = log_pb2.ProduceRequest(
            correlation_id=self._correlation_id,
            acks=self._acks,
            timeout_ms=timeout_ms,
            transactional_id=self._config.transactional_id or "",
        )
        partitions = []
        for part, batches in encoded:
            queue = part.queue
            leader = self._connection.leader_now(queue.topic, queue.partition)
            partition = log_pb2.PartitionRecords(
                topic=queue.topic,
                partition=queue.partition,
                leader_epoch=leader.epoch if leader is not None else None,
                topic_id=queue.topic_id,
            )
            partitions.append((partition, batches))
        return _PARTITIONS.join(request, partitions)

    def _overdue_ms(self, parts: Sequence[Part], timeout_ms: int) -> int:
        """Return the deadline of the response to `parts`.

        It is the end of the broker's timeout, or the last delivery deadline of a batch, but at
        least `ANSWER_GRACE_MS` from now, so that a healthy broker is not given up.
        """
        now_ms = self._runtime.clock.now_ms()
        useless_ms = self._last_deadline_ms(parts)
        return min(now_ms + timeout_ms + ANSWER_GRACE_MS, max(useless_ms, now_ms + ANSWER_GRACE_MS))

    def _last_deadline_ms(self, parts: Sequence[Part]) -> int:
        """Return the last delivery deadline of a batch in `parts`."""
        now_ms = self._runtime.clock.now_ms()
        unstamped_ms = now_ms + self._config.delivery_timeout_ms  # closed before its first stamp
        deadlines = (batch.deadline_ms for part in parts for batch in part.batches)
        return max((deadline_ms or unstamped_ms for deadline_ms in deadlines), default=now_ms)

    async def _open(self, until_ms: int) -> ProduceStream:
        """Return the stream; open it if there is none.

        Raises ConnectionFailed if the broker is not reached before `until_ms` or within
        connect_timeout_ms.
        """
        if self._stream is None:
            channel = self._connection.channel(self._address)
            left_ms = max(1, until_ms - self._runtime.clock.now_ms())
            config = self._connection.config
            wait_ms = min(left_ms, config.connect_timeout_ms, config.request_timeout_ms)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    stream = await channel.stream(_PRODUCE, timeout_ms=0)
            except TimeoutError:
                raise ConnectionFailed(
                    f"{self._address} was not reached within {wait_ms} ms"
                ) from None
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
            self._stream_broken(stream, error)

    def _answered(self, response: log_pb2.ProduceResponse) -> None:
        if not self._in_flight or self._in_flight[0].correlation_id != response.correlation_id:
            raise StreamBroken(f"{self._address} answered {response.correlation_id} out of order")
        flight = self._in_flight[0]
        if len(response.results) != len(flight.parts):
            raise StreamBroken(
                f"{self._address} answered {len(response.results)} of {len(flight.parts)} parts"
            )
        for part, result in zip(flight.parts, response.results, strict=True):
            self._check(part.queue, result)
        self._in_flight.popleft()
        self._connection.topology.record_offset(response.metadata_offset)
        for part, result in zip(flight.parts, response.results, strict=True):
            if result.HasField("error"):
                error = decode_error(result.error)
                record_attempt(part, is_unknown=isinstance(error, UNKNOWN_OUTCOMES))
                self._retries.refused(part, error)
            else:
                append_time_ms = result.log_append_time_ms or -1  # 0: not set by the broker
                self._outcomes.stored(part, result.base_offset, append_time_ms)
        self._wake.set()

    def _check(self, queue: PartitionQueue, result: log_pb2.ProduceResult) -> None:
        """Raise StreamBroken if a result is inconsistent with the request."""
        if (result.topic, result.partition) != (queue.topic, queue.partition):
            raise StreamBroken(
                f"{self._address} answered for {result.topic}-{result.partition} instead of "
                f"{queue.topic}-{queue.partition}"
            )
        if result.base_offset < 0 and not result.HasField("error"):
            raise StreamBroken(
                f"{self._address} answered for {queue.topic}-{queue.partition} with base offset "
                f"{result.base_offset}"
            )

    def _stream_broken(self, stream: ProduceStream, error: QuorumlogError) -> None:
        """Abort a stream; the outcome of its requests in flight is unknown."""
        if self._stream is not stream:
            return  # both tasks report the same break
        self._stream = None
        stream.abort(error.message)
        lost, self._in_flight = self._in_flight, deque()
        for flight in lost:
            for part in flight.parts:
                record_attempt(part, is_unknown=not isinstance(error, ConnectionFailed))
                self._retries.refused(part, as_retriable(error))
        self._wake.set()
