"""One Subscribe stream: reads a partition continuously, one response ahead of the one being sent.

Reading ahead overlaps disk and network; at most two reads are in memory. An error follows
everything that was read before it.

A client may stop reading at any time, so nothing large is kept for it: a compressed batch is
inflated again for each DECODED_BYTES of responses. A larger read or response counts against a bound
for each principal and for all, and is dropped and made again if there is no room for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from ...api import validation as check
from ...broker import LATEST, FetchOutcome, FetchSpec, OffsetSpec
from ...broker.shell.hosted_replicas import HostedReplicas
from ...broker.shell.reads import ReplicaReader
from ...errors import InvalidRequest, QuorumlogError
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import log_pb2
from ...records import iterate_batches
from ...runtime import Runtime
from ...runtime.client_bounds import ClientBytes
from ...runtime.protobuf_fields import EncodedMessage
from .envelopes import encode_batches
from .pipeline import Pipeline
from .translation import decoded_responses

T = TypeVar("T")

ANSWERS_MAX: Final = 2  # one being sent, one read ahead
RESPONSE_BYTES_MAX: Final = 4 << 20  # of one read or response; a single larger batch is still sent
DECODED_BYTES: Final = 4 << 20  # of the responses that are decoded at a time
LARGE_BYTES: Final = RESPONSE_BYTES_MAX + (64 << 10)  # more counts against the bound
ROOM_WAIT_MS: Final = 30_000
ROOM_CHECK_S: Final = 0.05


class SubscribeStream(Protocol):
    """The part of a stream that a subscription uses."""

    async def send(
        self, message: log_pb2.SubscribeResponse | EncodedMessage[log_pb2.SubscribeResponse]
    ) -> None: ...
    async def receive(self) -> log_pb2.SubscribeRequest | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeSpec:
    """A validated SubscribeRequest."""

    topic: str
    partition: int
    topic_id: bytes  # empty: the topic that has the name when the stream begins
    offset: int  # or -1 latest, -2 earliest
    start_time_ms: int | None  # in place of `offset`: the first record at or after it
    end_offset: int | None  # exclusive; None: unbounded
    max_bytes: int  # of one response; a single larger batch is still sent
    decoded: bool  # records instead of batches
    committed_only: bool  # below the last stable offset, without aborted ones


def read_request(request: log_pb2.SubscribeRequest, *, bytes_max: int) -> SubscribeSpec:
    """Validate a request; raises InvalidTopic or InvalidRequest naming the field."""
    check.check_partition(request.topic, request.partition)
    check.check_topic_id(request.topic_id)
    check.check_offset("offset", request.offset, lowest=-2)
    committed_only = is_committed_only(request.isolation)
    time = request.start_time_ms if request.HasField("start_time_ms") else None
    if time is not None:
        if request.offset:
            raise InvalidRequest(
                f"offset and start_time_ms: both are given ({request.offset} and {time}); give one"
            )
        if time < 0:
            raise InvalidRequest(f"start_time_ms: {time}; give milliseconds since 1970")
    end = request.end_offset if request.HasField("end_offset") else None
    if end is not None:
        check.check_offset("end_offset", end)
    return SubscribeSpec(
        topic=request.topic,
        partition=request.partition,
        topic_id=request.topic_id,
        offset=request.offset,
        start_time_ms=time,
        end_offset=end,
        max_bytes=check.read_max_bytes(
            "max_bytes",
            request.max_bytes,
            default=check.PARTITION_BYTES_DEFAULT,
            limit=min(bytes_max, RESPONSE_BYTES_MAX),
        ),
        decoded=request.decoded,
        committed_only=committed_only,
    )


def is_committed_only(value: int) -> bool:
    """Return True if only committed records are to be read; raise InvalidRequest for an unknown
    isolation level."""
    if value not in (log_pb2.ISOLATION_READ_UNCOMMITTED, log_pb2.ISOLATION_READ_COMMITTED):
        raise InvalidRequest(
            f"isolation: {value}; give ISOLATION_READ_UNCOMMITTED or ISOLATION_READ_COMMITTED"
        )
    return value == log_pb2.ISOLATION_READ_COMMITTED


class _DecodedPart(NamedTuple):
    """Some of the responses with the records of a read."""

    responses: list[bytes]
    next_offset: int


class SubscriptionStream:
    """A stream with its request; `run` serves it."""

    def __init__(
        self,
        runtime: Runtime,
        hosted: HostedReplicas,
        reader: ReplicaReader,
        metadata: MetadataPublisher,
        *,
        wanted: SubscribeSpec,
        check: Callable[[], None],
        principal: str,
        large: ClientBytes,
        heartbeat_ms: int,
    ) -> None:
        """`check` raises TopicAuthorizationFailed; called at the start and before each answer.
        `large` bounds the large reads and responses of all streams."""
        self._runtime = runtime
        self._hosted = hosted
        self._reader = reader
        self._metadata = metadata
        self._wanted = wanted
        self._check = check
        self._principal = principal
        self._large = large
        self._large_bytes = 0  # those of this stream
        self._heartbeat_ms = heartbeat_ms  # interval of messages while idle
        self._topic_id = wanted.topic_id  # fixed once the stream has begun
        self._end: QuorumlogError | None = None  # the error of an early end
        self._fetching: asyncio.Task[object] | None = None  # waits for records

    def stop(self, error: QuorumlogError) -> None:
        """End with `error` after the responses that were read are sent."""
        self._end = error
        if self._fetching is not None:
            self._fetching.cancel()

    @property
    def is_stopped(self) -> bool:
        """True after `stop`."""
        return self._end is not None

    async def run(self, stream: SubscribeStream) -> None:
        """Send until the end offset; raises the partition's error, or the one passed to `stop`."""
        self._check()
        pipeline: Pipeline[FetchOutcome] = Pipeline(
            count_max=ANSWERS_MAX, bytes_max=ANSWERS_MAX * self._wanted.max_bytes
        )
        try:
            async with self._runtime.tasks.scope("wire.subscribe") as scope:
                reader = scope.spawn(self._read_on(pipeline), name="reads")
                while (taken := await pipeline.take()) is not None:
                    outcome, size = taken
                    self._check()
                    await self._send(stream, outcome)
                    pipeline.answered(size)
                    del taken, outcome
                    self._drop(size)
                try:
                    failure = await reader
                except asyncio.CancelledError:
                    if self._end is None or not reader.cancelled():
                        raise
                    failure = self._end
        finally:
            self._large.remove(self._principal, self._large_bytes)
        if failure is not None:
            raise failure

    async def _read_on(self, pipeline: Pipeline[FetchOutcome]) -> QuorumlogError | None:
        """Read responses while there is room; return the error that ended it, or None."""
        try:
            return await self._read_to_end(pipeline)
        except QuorumlogError as error:
            return error
        finally:
            pipeline.close()

    async def _read_to_end(self, pipeline: Pipeline[FetchOutcome]) -> QuorumlogError | None:
        wanted = self._wanted
        self._topic_id = wanted.topic_id or self._hosted.topic_id(wanted.topic)
        offset = await self._first_offset()
        while wanted.end_offset is None or offset < wanted.end_offset:
            spec = FetchSpec(
                wanted.topic,
                wanted.partition,
                offset,
                wanted.max_bytes,
                None,
                self._topic_id,
                committed_only=wanted.committed_only,
            )
            outcome = await self._with_room(partial(self._fetch, spec), _size_of_read)
            if outcome.error is not None:
                return outcome.error
            pipeline.put(outcome, len(outcome.records))
            await pipeline.room(0)
            offset = outcome.next_offset
            if self._end is not None:
                return self._end
        return None

    async def _fetch(self, spec: FetchSpec) -> FetchOutcome:
        if self._end is not None:
            raise self._end
        self._fetching = asyncio.current_task()
        try:
            (outcome,) = await self._reader.fetch(
                [spec],
                max_wait_ms=self._heartbeat_ms,
                min_bytes=1,
                max_bytes=spec.max_bytes,
                principal=self._principal,
            )
        finally:
            self._fetching = None
        return outcome

    async def _with_room(self, make: Callable[[], Awaitable[T]], size_of: Callable[[T], int]) -> T:
        """Return the result of `make`, once there is room for it. Raise Overloaded if there is none
        in time. `_drop` frees the room."""
        while True:
            made = await make()
            size = size_of(made)
            if size <= LARGE_BYTES:
                return made
            if self._large.has_room(self._principal, size):
                self._large.add(self._principal, size)
                self._large_bytes += size
                return made
            del made
            await self._wait_for_room(size)

    async def _wait_for_room(self, size: int) -> None:
        deadline_ms = self._runtime.clock.now_ms() + ROOM_WAIT_MS
        while not self._large.has_room(self._principal, size):
            if self._end is not None:
                raise self._end
            if self._runtime.clock.now_ms() >= deadline_ms:
                self._large.check(self._principal, size)
            await asyncio.sleep(ROOM_CHECK_S)

    def _drop(self, size: int) -> None:
        """Free the room of a large read or response."""
        if size > LARGE_BYTES:
            self._large.remove(self._principal, size)
            self._large_bytes -= size

    async def _first_offset(self) -> int:
        wanted = self._wanted
        if wanted.start_time_ms is not None:
            # The latest offset first: records appended in between are then read, not skipped.
            latest = await self._look_up(LATEST)
            found = await self._look_up(wanted.start_time_ms)
            return found if found >= 0 else latest
        if wanted.offset >= 0:
            return wanted.offset
        return await self._look_up(wanted.offset)

    async def _look_up(self, position: int) -> int:
        """Return the offset of a timestamp or special position, -1 if there is none."""
        wanted = self._wanted
        spec = OffsetSpec(
            wanted.topic,
            wanted.partition,
            position,
            self._topic_id,
            committed_only=wanted.committed_only,
        )
        (outcome,) = await self._reader.list_offsets([spec])
        if outcome.error is not None:
            raise outcome.error
        return outcome.offset

    async def _send(self, stream: SubscribeStream, outcome: FetchOutcome) -> None:
        end = self._wanted.end_offset
        last = log_pb2.SubscribeResponse(
            next_offset=outcome.next_offset if end is None else min(outcome.next_offset, end),
            high_watermark=outcome.high_watermark,
            metadata_offset=self._metadata.image.offset,
        )
        if not outcome.records:
            await stream.send(last)
        elif self._wanted.decoded:
            if any(header.codec for _, header in iterate_batches(outcome.records)):
                await self._send_inflated(stream, outcome, last)
                return
            for response in decoded_responses(
                outcome, last, start_offset=outcome.spec.offset, bytes_max=self._wanted.max_bytes
            ):
                self._check()
                await stream.send(response)
        else:
            await stream.send(encode_batches(last, outcome.records))

    async def _send_inflated(
        self, stream: SubscribeStream, outcome: FetchOutcome, last: log_pb2.SubscribeResponse
    ) -> None:
        """Decode and send in parts; between them no inflated batch is in memory. Their size is up
        to the producer, so a thread inflates them."""
        bytes_max = self._wanted.max_bytes
        offset = outcome.spec.offset
        while True:
            decode = partial(_decode_part, outcome, last, start_offset=offset, bytes_max=bytes_max)
            part = await self._with_room(
                partial(self._runtime.tasks.offload, "cpu", decode, cost_bytes=bytes_max),
                _size_of_part,
            )
            size, offset = _size_of_part(part), part.next_offset
            part.responses.reverse()
            while part.responses:
                self._check()
                await stream.send(EncodedMessage((part.responses.pop(),)))
            self._drop(size)
            if offset >= last.next_offset:
                return


def _decode_part(
    outcome: FetchOutcome, last: log_pb2.SubscribeResponse, *, start_offset: int, bytes_max: int
) -> _DecodedPart:
    """Decode responses of DECODED_BYTES, or one larger one."""
    part, size = _DecodedPart([], start_offset), 0
    for response in decoded_responses(
        outcome, last, start_offset=start_offset, bytes_max=bytes_max
    ):
        encoded = response.SerializeToString(deterministic=True)
        if part.responses and size + len(encoded) > DECODED_BYTES:
            return part
        size += len(encoded)
        part.responses.append(encoded)
        part = part._replace(next_offset=response.next_offset)
    return part


def _size_of_read(outcome: FetchOutcome) -> int:
    return len(outcome.records)


def _size_of_part(part: _DecodedPart) -> int:
    return sum(map(len, part.responses))
