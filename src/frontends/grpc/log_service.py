"""The service `Log`: records in, records out.

Owns no state but its limits. A Produce stream keeps a bounded number of requests under way and
answers in request order; a failed part of a request is an `Error` inside its result, a request
that cannot be read at all ends its stream or call with a typed status. Batches pass through as
they came: no byte of them is copied here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from ...broker import Acks, FetchSpec, OffsetSpec
from ...broker.shell.appends import PendingAppend
from ...broker.shell.replicas import ReplicaManager
from ...errors import InvalidRequest, Overloaded, QuorumlogError, Stopping
from ...metadata import check_topic_name
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import log_pb2
from ...runtime import CallContext, Handler, Method, Runtime
from ...runtime.protobuf_fields import Encoded
from ...services import LOG_FETCH, LOG_LIST_OFFSETS, LOG_PRODUCE, LOG_PUBLISH, LOG_SUBSCRIBE
from . import validation as check
from .envelopes import ProduceBatches, encode_fetch
from .pipeline import Pipeline
from .publishing import Share, Spread, failure_of
from .subscription import SubscribeStream, Subscription, read_request
from .translation import built_batch, fill_error, offset_result

BUILD_BYTES_MAX: Final = 64 << 10  # of a Publish whose batches are built on the loop


class ProduceStream(Protocol):
    """What `produce` uses of its stream."""

    async def send(self, message: log_pb2.ProduceResponse) -> None: ...
    async def receive(self) -> ProduceBatches | None: ...


# The same call as LOG_PRODUCE, with a request class that leaves the batches where they arrived.
_PRODUCE: Method[Any, Any] = Method(
    LOG_PRODUCE.path, cast("Any", ProduceBatches), LOG_PRODUCE.response, streaming=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """The bounds of the service, all from the node's configuration."""

    produce_inflight_max: int  # requests of one stream under way at once
    produce_inflight_bytes_max: int  # the same in bytes of batches; one request may exceed it
    fetch_bytes_max: int  # of one answer
    subscribe_heartbeat_ms: int  # an idle subscription says so this often
    subscribe_streams_max: int  # subscriptions at once; reaching it is Overloaded


@dataclass(slots=True)
class _Inflight:
    """A produce request between its arrival and its answer."""

    request: ProduceBatches
    began_ms: int
    deadline_ms: int
    parts: list[PendingAppend | QuorumlogError]


class LogService:
    """Handlers of `quorumlog.v1.Log`."""

    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        metadata: MetadataPublisher,
        limits: LogLimits,
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._metadata = metadata
        self._limits = limits
        self._spread = Spread(replicas)
        self._stopping = False
        self._figures = replicas.producing
        self._subscriptions: dict[Subscription, None] = {}  # being served
        self._receiving: dict[asyncio.Task[Any], None] = {}  # Produce streams between two requests
        self._pipelines: dict[Pipeline[_Inflight], None] = {}  # of the Produce streams

    async def stop(self) -> None:
        """Take no new work: streams end after what they have under way, long polls answer now."""
        self._stopping = True
        for subscription in self._subscriptions:
            subscription.stop(_stopping())
        self._replicas.stop_waiting()
        for reader in list(self._receiving):
            reader.cancel()

    @property
    def produces_waiting(self) -> int:
        """Produce requests between their arrival and their answer."""
        return sum(pipeline.count for pipeline in self._pipelines)

    @property
    def subscriptions(self) -> int:
        """Subscribe streams that are served now."""
        return len(self._subscriptions)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the table that `Network.serve` takes."""
        table = (
            Handler(_PRODUCE, self.produce),
            Handler(LOG_PUBLISH, self.publish),
            Handler(LOG_FETCH, self.fetch),
            Handler(LOG_SUBSCRIBE, self.subscribe),
            Handler(LOG_LIST_OFFSETS, self.list_offsets),
        )
        return {handler.method.path: handler for handler in table}

    # --- in -----------------------------------------------------------------------------------

    async def produce(self, stream: ProduceStream, context: CallContext) -> None:
        """Append what arrives, in order; answer in order, `produce_inflight_max` under way.

        What was read is answered before a refusal or the node's stop ends the stream.
        """
        limits = self._limits
        pipeline: Pipeline[_Inflight] = Pipeline(
            count_max=limits.produce_inflight_max, bytes_max=limits.produce_inflight_bytes_max
        )
        self._pipelines[pipeline] = None
        try:
            end = await self._serve_produce(stream, pipeline)
        finally:
            del self._pipelines[pipeline]
        if end is not None:
            raise end

    async def _serve_produce(
        self, stream: ProduceStream, pipeline: Pipeline[_Inflight]
    ) -> QuorumlogError | None:
        """Read and answer to the stream's end; return what else ends it."""
        async with self._runtime.tasks.scope("wire.produce") as scope:
            scope.spawn(self._answer_in_order(stream, pipeline), name="answers")
            reader = scope.spawn(self._read_requests(stream, pipeline), name="requests")
            try:
                end = await reader
            except asyncio.CancelledError:
                if not (self._stopping and reader.cancelled()):
                    raise
                end = _stopping()
            pipeline.close()
        return end

    async def _read_requests(
        self, stream: ProduceStream, pipeline: Pipeline[_Inflight]
    ) -> QuorumlogError | None:
        """Begin every request; return what refused one, or None at the stream's end.

        `stop` may cancel it while it waits for the next request, and never in the middle of one.
        """
        me = asyncio.current_task()
        assert me is not None, "runs as a task"
        while not self._stopping:
            self._receiving[me] = None
            try:
                request = await stream.receive()
            finally:
                del self._receiving[me]
            if request is None:
                return None
            size = sum(len(part.records) for part in request.partitions)
            await pipeline.room(size)
            try:
                inflight = await self._begin(request)
            except QuorumlogError as error:
                return error
            pipeline.put(inflight, size)
        return _stopping()

    async def _begin(self, request: ProduceBatches) -> _Inflight:
        """Give each partition's batches their place in its log, without waiting for the disk."""
        acks = check.read_acks(request.acks)
        timeout_ms = check.read_timeout_ms(request.timeout_ms)
        check.check_places("partitions", request.partitions)
        began_ms = self._runtime.clock.now_ms()
        parts: list[PendingAppend | QuorumlogError] = []
        for part in request.partitions:
            try:
                check.check_partition(part.topic, part.partition)
                check.check_topic_id(part.topic_id)
                parts.append(
                    await self._replicas.submit(
                        part.topic,
                        part.partition,
                        part.records,
                        acks=acks,
                        leader_epoch=part.leader_epoch,
                        topic_id=part.topic_id,
                    )
                )
                self._figures.bytes += len(part.records)
            except QuorumlogError as error:
                parts.append(error)
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms
        return _Inflight(request, began_ms, deadline_ms, parts)

    async def _answer_in_order(self, stream: ProduceStream, pipeline: Pipeline[_Inflight]) -> None:
        while (taken := await pipeline.take()) is not None:
            inflight, size = taken
            request = inflight.request
            response = log_pb2.ProduceResponse(correlation_id=request.correlation_id)
            for part, pending in zip(request.partitions, inflight.parts, strict=True):
                result = response.results.add(topic=part.topic, partition=part.partition)
                await self._settle(pending, inflight.deadline_ms, result)
            if request.acks != log_pb2.ACKS_NONE:
                response.metadata_offset = self._metadata.image.offset
                await stream.send(response)
            pipeline.answered(size)
            took_ms = self._runtime.clock.now_ms() - inflight.began_ms
            self._figures.took_ms[check.read_acks(request.acks)].observe(took_ms)

    async def _settle(
        self,
        pending: PendingAppend | QuorumlogError,
        deadline_ms: int,
        result: log_pb2.ProduceResult,
    ) -> None:
        try:
            if isinstance(pending, QuorumlogError):
                raise pending
            outcome = await pending.settle(deadline_ms)
        except QuorumlogError as error:
            result.base_offset = result.log_append_time_ms = result.log_start_offset = -1
            self._figures.failures += 1
            fill_error(result.error, error, result.topic, result.partition)
            return
        self._figures.answered(outcome)
        result.base_offset = outcome.base_offset
        result.log_append_time_ms = outcome.log_append_time_ms
        result.log_start_offset = outcome.log_start_offset

    async def publish(
        self, request: log_pb2.PublishRequest, context: CallContext
    ) -> log_pb2.PublishResponse:
        """Build one batch of plain records for each partition concerned, and append them.

        What can be refused beforehand is refused before anything is stored. Where only some are
        stored all the same, raises PartlyStored. A caller with `errors_in_results` finds each
        partition's error there instead.
        """
        if self._stopping:
            raise _stopping()
        acks = check.read_acks(request.acks)
        timeout_ms = check.read_timeout_ms(request.timeout_ms)
        check_topic_name(request.topic)
        check.check_publish(request)
        began_ms = self._runtime.clock.now_ms()
        deadline_ms = began_ms + timeout_ms
        shares = self._spread.shares(request)
        pending = await self._submit_shares(request, shares, acks)
        response = log_pb2.PublishResponse()
        errors: list[QuorumlogError | None] = []
        for share, append in zip(shares, pending, strict=True):
            result = response.results.add(
                partition=share.partition, base_offset=-1, records=share.indexes
            )
            try:
                if isinstance(append, QuorumlogError):
                    raise append
                outcome = await append.settle(deadline_ms)
            except QuorumlogError as error:
                fill_error(result.error, error, request.topic, share.partition)
                errors.append(error)
                self._figures.failures += 1
                continue
            errors.append(None)
            self._figures.answered(outcome)
            if acks is not Acks.NONE:
                result.base_offset = outcome.base_offset
        self._figures.took_ms[acks].observe(self._runtime.clock.now_ms() - began_ms)
        if not request.errors_in_results:
            failure = failure_of(request.topic, shares, errors)
            if failure is not None:
                raise failure
        first = response.results[0]
        response.partition, response.base_offset = first.partition, first.base_offset
        response.metadata_offset = self._metadata.image.offset
        return response

    async def _submit_shares(
        self, request: log_pb2.PublishRequest, shares: Sequence[Share], acks: Acks
    ) -> list[PendingAppend | QuorumlogError]:
        """Give each share its place in its log; raises what stops one before any has it."""
        topic = request.topic
        topic_id = self._replicas.topic_id(topic)  # a namesake may have other partitions
        batches = await self._build(request, shares)
        if len(shares) > 1 and not request.errors_in_results:
            for share, batch in zip(shares, batches, strict=True):
                await self._replicas.check_append(
                    topic, share.partition, size=len(batch), acks=acks, topic_id=topic_id
                )
        pending: list[PendingAppend | QuorumlogError] = []
        for share, batch in zip(shares, batches, strict=True):
            try:
                pending.append(
                    await self._replicas.submit(
                        topic,
                        share.partition,
                        batch,
                        acks=acks,
                        leader_epoch=None,
                        topic_id=topic_id,
                    )
                )
                self._figures.bytes += len(batch)
            except QuorumlogError as error:
                pending.append(error)
        return pending

    async def _build(self, request: log_pb2.PublishRequest, shares: Sequence[Share]) -> list[bytes]:
        """Build the shares' batches, large ones beside the loop: compressing takes its time."""
        wall_ms = self._runtime.clock.wall_ms()

        def build() -> list[bytes]:
            return [built_batch(request, share.indexes, wall_ms=wall_ms) for share in shares]

        size = request.ByteSize()
        if size <= BUILD_BYTES_MAX:
            return build()
        return await self._runtime.tasks.offload("cpu", build, cost_bytes=size)

    # --- out ----------------------------------------------------------------------------------

    async def fetch(
        self, request: log_pb2.FetchRequest, context: CallContext
    ) -> Encoded[log_pb2.FetchResponse]:
        """Read many partitions, waiting for `min_bytes` up to `max_wait_ms`, and never so long that
        the answer would miss the caller's deadline."""
        max_wait_ms = check.read_max_wait_ms(request.max_wait_ms)
        min_bytes = check.read_min_bytes(request.min_bytes)
        limit = self._limits.fetch_bytes_max
        max_bytes = check.read_max_bytes(
            "max_bytes", request.max_bytes, default=50 << 20, limit=limit
        )
        check.check_isolation(request.isolation)
        check.check_places("partitions", request.partitions)
        specs = [self._fetch_spec(part) for part in request.partitions]
        await self._metadata.wait_applied(
            request.min_metadata_offset, timeout_ms=self._left_ms(context)
        )
        outcomes = await self._replicas.fetch(
            specs,
            max_wait_ms=check.wait_within(max_wait_ms, context, self._runtime.clock.now_ms()),
            min_bytes=min(min_bytes, max_bytes),  # more could never come
            max_bytes=max_bytes,
        )
        return encode_fetch(outcomes, metadata_offset=self._metadata.image.offset)

    def _fetch_spec(self, part: log_pb2.FetchPartition) -> FetchSpec:
        check.check_partition(part.topic, part.partition)
        check.check_offset("offset", part.offset)
        check.check_topic_id(part.topic_id)
        check.check_rack(part.rack)
        return FetchSpec(
            topic=part.topic,
            partition=part.partition,
            offset=part.offset,
            max_bytes=check.read_max_bytes(
                "partitions.max_bytes",
                part.max_bytes,
                default=check.PARTITION_BYTES_DEFAULT,
                limit=self._limits.fetch_bytes_max,
            ),
            leader_epoch=part.leader_epoch if part.HasField("leader_epoch") else None,
            topic_id=part.topic_id,
            rack=part.rack,
        )

    async def subscribe(self, stream: SubscribeStream, context: CallContext) -> None:
        """Send one partition's records from an offset on, until `end_offset` or for ever.

        An idle stream sends a response without records every `subscribe_heartbeat_ms`. An error
        ends the stream with its type.
        """
        request = await stream.receive()
        if request is None:
            raise InvalidRequest("the stream ended without a SubscribeRequest; send one first")
        if self._stopping:
            raise _stopping()
        if len(self._subscriptions) >= self._limits.subscribe_streams_max:
            raise Overloaded(
                f"{len(self._subscriptions)} subscriptions are served, subscribe.streams.max is "
                f"{self._limits.subscribe_streams_max}; end some, or repeat after a moment"
            )
        subscription = Subscription(
            self._runtime,
            self._replicas,
            self._metadata,
            wanted=read_request(request, bytes_max=self._limits.fetch_bytes_max),
            heartbeat_ms=self._limits.subscribe_heartbeat_ms,
        )
        self._subscriptions[subscription] = None
        try:
            await subscription.run(stream)
        finally:
            del self._subscriptions[subscription]

    async def list_offsets(
        self, request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> log_pb2.ListOffsetsResponse:
        """Translate positions into offsets."""
        check.check_isolation(request.isolation)
        check.check_places("partitions", request.partitions)
        specs = []
        for part in request.partitions:
            check.check_partition(part.topic, part.partition)
            check.check_timestamp(part.timestamp_ms)
            check.check_topic_id(part.topic_id)
            specs.append(OffsetSpec(part.topic, part.partition, part.timestamp_ms, part.topic_id))
        await self._metadata.wait_applied(
            request.min_metadata_offset, timeout_ms=self._left_ms(context)
        )
        outcomes = await self._replicas.list_offsets(specs)
        return log_pb2.ListOffsetsResponse(
            results=[offset_result(outcome) for outcome in outcomes],
            metadata_offset=self._metadata.image.offset,
        )

    def _left_ms(self, context: CallContext) -> int:
        return check.left_ms(context, self._runtime.clock.now_ms())


def _stopping() -> Stopping:
    return Stopping("the node is stopping; ask another one, or wait for its restart")
