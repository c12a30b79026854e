"""The service `Log`: produce and fetch records.

A Produce stream has a bounded number of requests in flight and is answered in request order. A
failed partition has an `Error` in its result. An invalid request ends its stream or call with a
typed status. Batches are passed on unchanged, without a copy.

Records of a Publish request with different keys may go to different partitions; each partition
gets one batch. Records without a key go to one of the partitions that this broker leads, the next
one with each request. So small batches of one caller are not split, and a caller without metadata
always reaches a leader.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, cast

from ...api import validation as check
from ...api.authorizer import Authorizer
from ...broker import Acks, FetchOutcome, FetchSpec, OffsetOutcome, OffsetSpec
from ...broker.config import RequestConfig
from ...broker.shell.produce import DelayedProduce
from ...broker.shell.replica_manager import ReplicaManager
from ...broker.verification import TransactionalWrite
from ...errors import (
    InvalidRequest,
    Overloaded,
    PartlyStored,
    QuorumlogError,
    Stopping,
    TimedOut,
)
from ...metadata import check_topic_name
from ...metadata.acls import AclOperation, AclResourceType
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import log_pb2
from ...records import partition_for_key
from ...records.batch import BATCHES_A_STEP, count_batches
from ...runtime import CallContext, ClientIdentity, Handler, Method, Runtime
from ...runtime.client_bounds import UNREAD_BYTES, ClientBytes, ClientEntries
from ...runtime.protobuf_fields import EncodedMessage
from ...runtime.steps import step_counter
from ...services import LOG_FETCH, LOG_LIST_OFFSETS, LOG_PRODUCE, LOG_PUBLISH, LOG_SUBSCRIBE
from .envelopes import ProduceBatches, encode_fetch
from .pipeline import Pipeline
from .subscription import SubscribeStream, SubscriptionStream, is_committed_only, read_request
from .translation import built_batch, fill_error, offset_result

TOPICS_MAX: Final = 10_000  # with a stored round-robin position; beyond it the oldest is dropped


class PartitionLayout(Protocol):
    """The part of `HostedReplicas` that partitioning uses."""

    def partition_count(self, topic: str) -> int: ...
    def led_here(self, topic: str, start: int) -> int: ...


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """The records of a request that go to one partition."""

    partition: int
    indexes: list[int]  # into the request's records, ascending


class PublishPartitioner:
    """The partitioner of Publish requests, with its round-robin positions."""

    def __init__(self, layout: PartitionLayout) -> None:
        self._layout = layout
        # round-robin positions by topic, the latest used at the end
        self._turns: dict[str, int] = {}

    def shares(self, request: log_pb2.PublishRequest) -> list[PartitionShare]:
        """Return one share for each partition, in the order of their first records.

        Raises InvalidRequest, UnknownTopicOrPartition, and NotLeaderOrFollower for records without
        a key if this broker leads no partition of the topic.
        """
        topic = request.topic
        if request.HasField("partition"):
            check.check_partition(topic, request.partition)
            return [PartitionShare(request.partition, list(range(len(request.records))))]
        count = self._layout.partition_count(topic)
        keyless: int | None = None
        shares: dict[int, PartitionShare] = {}
        for index, record in enumerate(request.records):
            if record.HasField("key"):
                partition = partition_for_key(record.key, count)
            else:
                if keyless is None:
                    keyless = self._next(topic)
                partition = keyless
            share = shares.get(partition)
            if share is None:
                share = shares[partition] = PartitionShare(partition, [])
            share.indexes.append(index)
        return list(shares.values())

    def _next(self, topic: str) -> int:
        """Return the topic's next partition that this broker leads."""
        partition = self._layout.led_here(topic, self._turns.pop(topic, 0))
        self._turns[topic] = partition + 1
        if len(self._turns) > TOPICS_MAX:
            del self._turns[next(iter(self._turns))]
        return partition


def failure_of(
    topic: str, shares: Sequence[PartitionShare], errors: Sequence[QuorumlogError | None]
) -> QuorumlogError | None:
    """Return the error of a call from those of its shares, None if all are stored.

    If none is stored: the first error, but an error with unknown outcome takes precedence.
    """
    ends = zip(shares, errors, strict=True)
    failed = [(share, error) for share, error in ends if error is not None]
    if not failed:
        return None
    share, first = failed[0]
    if len(failed) == len(shares):
        return next((error for _, error in failed if isinstance(error, TimedOut)), first)
    count = sum(len(share.indexes) for share in shares)
    missing = sum(len(share.indexes) for share, _ in failed)
    return PartlyStored(
        f"{count - missing} of {count} records are stored; the others failed with {first.name}:"
        f" {first.message}; a retry of the whole request duplicates records; set errors_in_results"
        " to get the error of each partition",
        topic=topic,
        partition=share.partition,
    )


_ACKS: Final[dict[int, Acks]] = {
    log_pb2.ACKS_ALL: Acks.ALL,
    log_pb2.ACKS_NONE: Acks.NONE,
    log_pb2.ACKS_LEADER: Acks.LEADER,
}


def _read_acks(value: int) -> Acks:
    """Translate the enum; raises InvalidRequest for an unknown number."""
    acks = _ACKS.get(value)
    if acks is None:
        raise InvalidRequest(f"acks: {value}; give ACKS_ALL, ACKS_LEADER or ACKS_NONE")
    return acks


RECORDS_MAX: Final = 10_000  # in one Publish: encoding the batch must not block the event loop


def _check_publish(request: log_pb2.PublishRequest) -> None:
    """Raise InvalidRequest unless batches can be built of the records."""
    count = len(request.records)
    if not 1 <= count <= RECORDS_MAX:
        raise InvalidRequest(
            f"records: {count} entries; give 1..{RECORDS_MAX}, and the rest in further requests",
            topic=request.topic,
        )
    if request.compression not in log_pb2.Compression.values():
        raise InvalidRequest(
            f"compression: {request.compression}; give 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or"
            " 4 (zstd)",
            topic=request.topic,
        )
    _check_producer(request)
    for index, record in enumerate(request.records):
        if record.HasField("timestamp_ms") and record.timestamp_ms < 0:
            raise InvalidRequest(
                f"records[{index}].timestamp_ms: {record.timestamp_ms}; give 0 or more",
                topic=request.topic,
            )


def _check_producer(request: log_pb2.PublishRequest) -> None:
    """Raise InvalidRequest unless the fields of a producer fit together."""
    if not request.HasField("producer"):
        if request.transactional_id or request.base_sequence:
            raise InvalidRequest(
                "transactional_id and base_sequence: given without producer; give the identity from"
                " InitProducerId",
                topic=request.topic,
            )
        return
    if not request.HasField("partition"):
        raise InvalidRequest(
            "partition: missing; a producer numbers the records of each partition",
            topic=request.topic,
        )
    producer = request.producer
    if producer.producer_id < 0 or not 0 <= producer.producer_epoch < 1 << 15:
        raise InvalidRequest(
            f"producer: id {producer.producer_id}, epoch {producer.producer_epoch}; give the"
            " identity from InitProducerId",
            topic=request.topic,
        )
    if request.base_sequence < 0:
        raise InvalidRequest(
            f"base_sequence: {request.base_sequence}; give 0 or more", topic=request.topic
        )


_READ_TOPIC: Final = (AclOperation.READ, AclResourceType.TOPIC)
_WRITE_TOPIC: Final = (AclOperation.WRITE, AclResourceType.TOPIC)
_DESCRIBE_TOPIC: Final = (AclOperation.DESCRIBE, AclResourceType.TOPIC)
_WRITE_ID: Final = (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)

BUILD_BYTES_MAX: Final = 64 << 10  # a larger Publish request is encoded in a thread


class ProduceStream(Protocol):
    """The part of a stream that `produce` uses."""

    async def send(self, message: log_pb2.ProduceResponse) -> None: ...
    async def receive(self) -> ProduceBatches | None: ...


# The method LOG_PRODUCE with a request class that has batches as views.
_PRODUCE: Method[Any, Any] = Method(
    LOG_PRODUCE.path,
    cast("Any", ProduceBatches),
    LOG_PRODUCE.response,
    streaming=True,
    request_bytes_max=LOG_PRODUCE.request_bytes_max,
)


@dataclass(slots=True)
class _Inflight:
    """A produce request between its arrival and its response."""

    request: ProduceBatches
    began_ms: int
    deadline_ms: int
    parts: list[DelayedProduce | QuorumlogError]


class LogService:
    """Handlers of `quorumlog.v1.Log`."""

    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        metadata: MetadataPublisher,
        limits: RequestConfig,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._authorizer = authorizer
        self._replicas = replicas
        self._hosted = replicas.hosted
        self._writer = replicas.writer
        self._reader = replicas.reader
        self._metadata = metadata
        self._limits = limits
        self._spread = PublishPartitioner(replicas.hosted)
        self._stopping = False
        self._figures = replicas.writer.figures
        self._large = ClientBytes(*UNREAD_BYTES)  # of the Subscribe streams
        self._subscriptions: ClientEntries[SubscriptionStream] = ClientEntries()  # in progress
        self._receiving: dict[asyncio.Task[Any], None] = {}  # Produce streams waiting for a request
        self._pipelines: dict[Pipeline[_Inflight], None] = {}  # of the Produce streams
        self._take_turn = step_counter(BATCHES_A_STEP)  # of all Produce streams

    async def stop(self) -> None:
        """Reject new requests: streams end after their requests in flight, long polls return
        now."""
        self._stopping = True
        for subscription in self._subscriptions:
            subscription.stop(_stopping())
        self._replicas.stop_waiting()
        for reader in list(self._receiving):
            reader.cancel()

    @property
    def produces_waiting(self) -> int:
        """Produce requests between their arrival and their response."""
        return sum(pipeline.count for pipeline in self._pipelines)

    @property
    def subscriptions(self) -> int:
        """Open Subscribe streams."""
        return len(self._subscriptions)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(_PRODUCE, self.produce),
            Handler(LOG_PUBLISH, self.publish),
            Handler(LOG_FETCH, self.fetch),
            Handler(LOG_SUBSCRIBE, self.subscribe),
            Handler(LOG_LIST_OFFSETS, self.list_offsets),
        )
        return {handler.method.path: handler for handler in table}

    # --- produce ------------------------------------------------------------------------------

    async def produce(self, stream: ProduceStream, context: CallContext) -> None:
        """Append requests in order and answer in order, up to `produce_inflight_max` in flight.

        Requests that were read are answered before an error or the node's shutdown ends the stream.
        """
        limits = self._limits
        pipeline: Pipeline[_Inflight] = Pipeline(
            count_max=limits.produce_inflight_max, bytes_max=limits.produce_inflight_bytes_max
        )
        self._pipelines[pipeline] = None
        try:
            end = await self._serve_produce(stream, pipeline, context)
        finally:
            del self._pipelines[pipeline]
        if end is not None:
            raise end

    async def _serve_produce(
        self, stream: ProduceStream, pipeline: Pipeline[_Inflight], context: CallContext
    ) -> QuorumlogError | None:
        """Read and answer until the end of the stream; return the error that ends it, or None."""
        async with self._runtime.tasks.scope("wire.produce") as scope:
            scope.spawn(self._answer_in_order(stream, pipeline), name="answers")
            reader = scope.spawn(self._read_requests(stream, pipeline, context), name="requests")
            try:
                end = await reader
            except asyncio.CancelledError:
                if not (self._stopping and reader.cancelled()):
                    raise
                end = _stopping()
            pipeline.close()
        return end

    async def _read_requests(
        self, stream: ProduceStream, pipeline: Pipeline[_Inflight], context: CallContext
    ) -> QuorumlogError | None:
        """Start each request; return the error of an invalid one, or None at the end of the stream.

        `stop` cancels it only while it waits for the next request.
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
                inflight = await self._begin(request, context)
            except QuorumlogError as error:
                return error
            pipeline.put(inflight, size)
        return _stopping()

    async def _begin(self, request: ProduceBatches, context: CallContext) -> _Inflight:
        """Queue each partition's batches in its log, without waiting for the disk."""
        acks = _read_acks(request.acks)
        timeout_ms = check.read_timeout_ms(request.timeout_ms)
        check.check_place_count("partitions", len(request.partitions))
        places = [(part.topic, part.partition) for part in request.partitions]
        check.check_places("partitions", places)
        transaction = self._transaction(request.transactional_id, context)
        began_ms = self._runtime.clock.now_ms()
        parts: list[DelayedProduce | QuorumlogError] = []
        for part in request.partitions:
            try:
                check.check_partition(part.topic, part.partition)
                check.check_topic_id(part.topic_id)
                self._check_write(context.client, part.topic, request.transactional_id)
                await self._take_turn(count_batches(part.records))
                self._check_write(context.client, part.topic, request.transactional_id)
                parts.append(
                    await self._writer.submit(
                        part.topic,
                        part.partition,
                        part.records,
                        acks=acks,
                        leader_epoch=part.leader_epoch,
                        topic_id=part.topic_id,
                        transaction=transaction,
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
            self._figures.took_ms[_read_acks(request.acks)].observe(took_ms)

    async def _settle(
        self,
        pending: DelayedProduce | QuorumlogError,
        deadline_ms: int,
        result: log_pb2.ProduceResult,
    ) -> None:
        try:
            if isinstance(pending, QuorumlogError):
                raise pending
            outcome = await pending.wait_until(self._runtime.clock, deadline_ms)
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
        """Append plain records as one batch for each partition.

        Everything that can be checked is checked before anything is stored. If only a part is
        stored nevertheless, raises PartlyStored; with `errors_in_results`, each partition's error
        is in its result instead.
        """
        if self._stopping:
            raise _stopping()
        acks = _read_acks(request.acks)
        timeout_ms = check.read_timeout_ms(request.timeout_ms)
        check_topic_name(request.topic)
        _check_publish(request)
        self._check_write(context.client, request.topic, request.transactional_id)
        began_ms = self._runtime.clock.now_ms()
        deadline_ms = began_ms + timeout_ms
        shares = self._spread.shares(request)
        pending = await self._submit_shares(request, shares, acks, context)
        response = log_pb2.PublishResponse()
        errors: list[QuorumlogError | None] = []
        for share, append in zip(shares, pending, strict=True):
            result = response.results.add(
                partition=share.partition, base_offset=-1, records=share.indexes
            )
            try:
                if isinstance(append, QuorumlogError):
                    raise append
                outcome = await append.wait_until(self._runtime.clock, deadline_ms)
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
        self,
        request: log_pb2.PublishRequest,
        shares: Sequence[PartitionShare],
        acks: Acks,
        context: CallContext,
    ) -> list[DelayedProduce | QuorumlogError]:
        """Queue each share in its log; raises the error of a share before any is queued. Session
        and rights are checked again, as large batches wait for their compression."""
        topic = request.topic
        # a new topic of the same name may have other partitions
        topic_id = self._hosted.topic_id(topic)
        batches = await self._build(request, shares)
        context.check_session()
        self._check_write(context.client, topic, request.transactional_id)
        if len(shares) > 1 and not request.errors_in_results:
            for share, batch in zip(shares, batches, strict=True):
                await self._writer.check_append(
                    topic, share.partition, size=len(batch), acks=acks, topic_id=topic_id
                )
        pending: list[DelayedProduce | QuorumlogError] = []
        for share, batch in zip(shares, batches, strict=True):
            try:
                pending.append(
                    await self._writer.submit(
                        topic,
                        share.partition,
                        batch,
                        acks=acks,
                        leader_epoch=None,
                        topic_id=topic_id,
                        transaction=self._transaction(request.transactional_id, context),
                    )
                )
                self._figures.bytes += len(batch)
            except QuorumlogError as error:
                pending.append(error)
        return pending

    async def _build(
        self, request: log_pb2.PublishRequest, shares: Sequence[PartitionShare]
    ) -> list[bytes]:
        """Build the batches of the shares, large ones in a thread because of compression."""
        wall_ms = self._runtime.clock.wall_ms()

        def build() -> list[bytes]:
            return [built_batch(request, share.indexes, wall_ms=wall_ms) for share in shares]

        size = request.ByteSize()
        if size <= BUILD_BYTES_MAX:
            return build()
        return await self._runtime.tasks.offload("cpu", build, cost_bytes=size)

    # --- fetch --------------------------------------------------------------------------------

    async def fetch(
        self, request: log_pb2.FetchRequest, context: CallContext
    ) -> EncodedMessage[log_pb2.FetchResponse]:
        """Read partitions, and wait for `min_bytes` up to `max_wait_ms`, but return before the
        caller's deadline."""
        max_wait_ms = check.read_max_wait_ms(request.max_wait_ms)
        min_bytes = check.read_min_bytes(request.min_bytes)
        limit = self._limits.fetch_bytes_max
        max_bytes = check.read_max_bytes(
            "max_bytes", request.max_bytes, default=50 << 20, limit=limit
        )
        committed_only = is_committed_only(request.isolation)
        check.check_place_count("partitions", len(request.partitions))
        places = [(part.topic, part.partition) for part in request.partitions]
        check.check_places("partitions", places)
        specs = [
            self._fetch_spec(part, committed_only=committed_only) for part in request.partitions
        ]
        await self._reach(request.min_metadata_offset, context)
        denials = self._denials(context.client, _READ_TOPIC, specs)
        if denials:
            max_wait_ms = 0  # errors are answered at once
        found = await self._reader.fetch(
            [spec for spec in specs if spec.topic not in denials],
            max_wait_ms=check.wait_within(
                max_wait_ms, context.deadline_ms, self._runtime.clock.now_ms()
            ),
            min_bytes=min(min_bytes, max_bytes),  # more could never be returned
            max_bytes=max_bytes,
            principal=context.client.principal,
        )
        context.check_session()  # again, after the wait
        if self._authorizer.is_enabled:
            denials |= self._denials(context.client, _READ_TOPIC, specs)  # again, after the wait
            found = _with_denials(specs, found, denials)
        return encode_fetch(found, metadata_offset=self._metadata.image.offset)

    def _fetch_spec(self, part: log_pb2.FetchPartition, *, committed_only: bool) -> FetchSpec:
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
            committed_only=committed_only,
        )

    async def subscribe(self, stream: SubscribeStream, context: CallContext) -> None:
        """Send one partition's records from an offset on, until `end_offset` if one is given.

        An idle stream sends a response without records every `subscribe_heartbeat_ms`. An error
        ends the stream with its type.
        """
        request = await stream.receive()
        if request is None:
            raise InvalidRequest("stream: it ended without a SubscribeRequest; send one first")
        if self._stopping:
            raise _stopping()
        wanted = read_request(request, bytes_max=self._limits.fetch_bytes_max)
        self._authorizer.check(context.client, *_READ_TOPIC, wanted.topic)
        if len(self._subscriptions) >= self._limits.subscribe_streams_max:
            self._end_subscription(context.client.principal)
        subscription = SubscriptionStream(
            self._runtime,
            self._hosted,
            self._reader,
            self._metadata,
            wanted=wanted,
            check=partial(self._authorizer.check, context.client, *_READ_TOPIC, wanted.topic),
            principal=context.client.principal,
            large=self._large,
            heartbeat_ms=self._limits.subscribe_heartbeat_ms,
        )
        self._subscriptions.add(subscription, context.client.principal)
        try:
            await subscription.run(stream)
        finally:
            self._subscriptions.discard(subscription)

    def _end_subscription(self, principal: str) -> None:
        """End the oldest stream of the principal with the most of them. Raise Overloaded if this
        principal has as many. A stream with unread responses counts until its client reads them."""
        error = Overloaded(
            f"subscriptions: {len(self._subscriptions)} are open; the limit is"
            f" subscribe.streams.max={self._limits.subscribe_streams_max}; close some, or retry"
        )
        most = self._subscriptions.of_most(principal)
        if most is None:
            raise error
        for subscription in most:
            if not subscription.is_stopped:
                subscription.stop(error)
                return

    async def list_offsets(
        self, request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> log_pb2.ListOffsetsResponse:
        """Return the offsets of timestamps or special positions."""
        committed_only = is_committed_only(request.isolation)
        check.check_place_count("partitions", len(request.partitions))
        places = [(part.topic, part.partition) for part in request.partitions]
        check.check_places("partitions", places)
        specs = []
        for part in request.partitions:
            check.check_partition(part.topic, part.partition)
            check.check_timestamp(part.timestamp_ms)
            check.check_topic_id(part.topic_id)
            specs.append(
                OffsetSpec(
                    part.topic,
                    part.partition,
                    part.timestamp_ms,
                    part.topic_id,
                    committed_only=committed_only,
                )
            )
        await self._reach(request.min_metadata_offset, context)
        denials = self._denials(context.client, _DESCRIBE_TOPIC, specs)
        found = iter(
            await self._reader.list_offsets([each for each in specs if each.topic not in denials])
        )
        outcomes = [
            OffsetOutcome(spec, -1, -1, -1, denials[spec.topic])
            if spec.topic in denials
            else next(found)
            for spec in specs
        ]
        return log_pb2.ListOffsetsResponse(
            results=[offset_result(outcome) for outcome in outcomes],
            metadata_offset=self._metadata.image.offset,
        )

    # --- authorization ------------------------------------------------------------------------

    def _transaction(
        self, transactional_id: str, context: CallContext
    ) -> TransactionalWrite | None:
        """Return the transaction of a request; None for an empty id."""
        if not transactional_id:
            return None

        def authorize(topic: str) -> None:
            context.check_session()
            self._check_write(context.client, topic, transactional_id)

        return TransactionalWrite(
            transactional_id, adds=True, knows_abortable=True, authorize=authorize
        )

    def _check_write(self, client: ClientIdentity, topic: str, transactional_id: str) -> None:
        if transactional_id:
            self._authorizer.check(client, *_WRITE_ID, transactional_id)
        self._authorizer.check(client, *_WRITE_TOPIC, topic)

    def _denials(
        self,
        client: ClientIdentity,
        need: tuple[AclOperation, AclResourceType],
        specs: Iterable[FetchSpec | OffsetSpec],
    ) -> dict[str, QuorumlogError]:
        """Return the errors of the topics for which the client has no right."""
        if not self._authorizer.is_enabled:
            return {}
        denials: dict[str, QuorumlogError] = {}
        for topic in {spec.topic for spec in specs}:
            denial = self._authorizer.denial(client, *need, topic)
            if denial is not None:
                denials[topic] = denial
        return denials

    async def _reach(self, offset: int, context: CallContext) -> None:
        """Wait for the metadata that a read requires. Raise SaslAuthenticationFailed if the session
        ended in the meantime."""
        await self._metadata.wait_applied(
            offset, timeout_ms=self._left_ms(context), principal=context.client.principal
        )
        context.check_session()

    def _left_ms(self, context: CallContext) -> int:
        return check.left_ms(context.deadline_ms, self._runtime.clock.now_ms())


def _with_denials(
    specs: Sequence[FetchSpec],
    found: Sequence[FetchOutcome],
    denials: Mapping[str, QuorumlogError],
) -> list[FetchOutcome]:
    """Return the outcomes in the order of the specs, errors for denied topics."""
    by_place = {(each.spec.topic, each.spec.partition): each for each in found}
    return [
        FetchOutcome(spec, -1, -1, -1, b"", spec.offset, denials[spec.topic])
        if spec.topic in denials
        else by_place[spec.topic, spec.partition]
        for spec in specs
    ]


def _stopping() -> Stopping:
    return Stopping("the node is stopping; use another broker, or retry after its restart")
