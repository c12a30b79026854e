"""A scripted broker: it sends the responses that a test sets, also invalid ones."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.kit.waits import AMPLE_MS

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.producer.batches import Delivered
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import (
    InvalidRecord,
    NotLeaderOrFollower,
    QuorumlogError,
    StreamBroken,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import decode_all, parse_header
from quorumlog.runtime import CallContext, Handler, Listener, Runtime, Stream
from quorumlog.runtime.error_detail import encode_error
from quorumlog.services import ADMIN_DESCRIBE_CLUSTER, ADMIN_DESCRIBE_TOPICS, LOG_PRODUCE

from .producer_table import LeaderMemory

Run: TypeAlias = Callable[[Callable[[Runtime], Coroutine[Any, Any, None]]], None]
ProduceStream: TypeAlias = Stream[log_pb2.ProduceResponse, log_pb2.ProduceRequest]

STORE = "store"
STORE_AND_BREAK = "store and break"  # the response is lost
BREAK = "break"
SILENCE = "silence"  # stored, never answered


@dataclass
class Script:
    """The planned responses of a broker, and the requests that it received."""

    partitions: int = 1
    leaders: dict[int, int] = field(default_factory=dict)  # by partition; default: node 1
    beliefs: dict[int, int] = field(
        default_factory=dict
    )  # by node: the leader of all partitions in its metadata
    produce: deque[str | QuorumlogError] = field(default_factory=deque)  # one step for each request
    exists: bool = True
    lookup: asyncio.Event | None = None  # metadata requests are answered when it is set
    lookup_error: QuorumlogError | None = None  # ... and fail with this error
    hold: asyncio.Event | None = None  # requests are answered when it is set
    logs: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    requests: list[log_pb2.ProduceRequest] = field(default_factory=list)
    streams: int = 0
    lookups: int = 0
    addresses: dict[int, str] = field(default_factory=dict)
    refusal: NotLeaderOrFollower | None = None  # of brokers that are not the leader
    memory: LeaderMemory = field(default_factory=LeaderMemory)  # the logs of the replicas

    def values(self, partition: int = 0) -> list[int]:
        """Return the stored values, in order."""
        return [int(value) for value in self.logs[partition]]


class Broker:
    """One node of the script's cluster."""

    def __init__(self, script: Script, node: int) -> None:
        self._script = script
        self._node = node

    async def serve(self, runtime: Runtime) -> Listener:
        table = [
            Handler(ADMIN_DESCRIBE_CLUSTER, self._describe_cluster),
            Handler(ADMIN_DESCRIBE_TOPICS, self._describe_topics),
            Handler(LOG_PRODUCE, self._produce),
            self._script.memory.handler(),
        ]
        handlers = {handler.method.path: handler for handler in table}
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        self._script.addresses[self._node] = listener.address
        return listener

    def _brokers(self) -> list[admin_pb2.BrokerDescription]:
        return [
            admin_pb2.BrokerDescription(id=node, grpc_address=address)
            for node, address in self._script.addresses.items()
        ]

    async def _describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(cluster_id="c", brokers=self._brokers())

    async def _describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        script = self._script
        script.lookups += 1
        if script.lookup is not None:
            await script.lookup.wait()
        if script.lookup_error is not None:
            raise script.lookup_error
        response = admin_pb2.DescribeTopicsResponse(brokers=self._brokers())
        for name in request.names:
            result = response.results.add(name=name)
            if not script.exists:
                result.error.CopyFrom(encode_error(UnknownTopicOrPartition("gone", topic=name)))
                continue
            result.topic.name = name
            for partition in range(script.partitions):
                leader = script.beliefs.get(self._node, script.leaders.get(partition, 1))
                result.topic.partitions.add(partition=partition, leader=leader)
        return response

    async def _produce(self, stream: ProduceStream, context: CallContext) -> None:
        script = self._script
        script.streams += 1
        while (request := await stream.receive()) is not None:
            script.requests.append(request)
            step = script.produce.popleft() if script.produce else STORE
            if script.hold is not None:
                await script.hold.wait()
            if step == BREAK:
                raise StreamBroken("scripted")
            response = log_pb2.ProduceResponse(correlation_id=request.correlation_id)
            for part in request.partitions:
                result = response.results.add(topic=part.topic, partition=part.partition)
                self._store(part, step, result)
            if step == STORE_AND_BREAK:
                raise StreamBroken("scripted")
            if step != SILENCE:
                await stream.send(response)

    def _store(
        self,
        part: log_pb2.PartitionRecords,
        step: str | QuorumlogError,
        result: log_pb2.ProduceResult,
    ) -> None:
        log = self._script.logs[part.partition]
        values = [record.value or b"" for record in decode_all(part.records)]
        leader = self._script.leaders.get(part.partition, 1)
        error = step if isinstance(step, QuorumlogError) else None
        if leader != self._node:
            error = self._script.refusal or NotLeaderOrFollower("ask another")
        elif b"-1" in values:
            error = InvalidRecord("a bad one")
        header, known = parse_header(part.records), None
        try:
            if error is not None:
                raise error
            known = self._script.memory.stored_at(part.partition, header)
        except QuorumlogError as refusal:
            result.base_offset = -1
            result.error.CopyFrom(encode_error(refusal))
            return
        if known is not None:
            result.base_offset = known
            return
        result.base_offset = len(log)
        self._script.memory.note(part.partition, header, len(log))
        log.extend(values)


@asynccontextmanager
async def scripted(
    runtime: Runtime, script: Script, *, nodes: int = 1, **settings: Any
) -> AsyncIterator[AsyncLog]:
    """A client of a scripted cluster."""
    listeners = [await Broker(script, node).serve(runtime) for node in range(1, nodes + 1)]
    settings.setdefault("retry_backoff_max_ms", 60)
    settings.setdefault("connect_timeout_ms", AMPLE_MS)
    async with make_log(runtime, listeners[0].address, **settings) as log:
        yield log
    for listener in listeners:
        await listener.close(0)


async def send_numbers(
    producer: AsyncProducer, count: int, *, partition: int = 0
) -> list[Delivered]:
    """Send 0..count-1 and wait for all outcomes."""
    deliveries = []
    for number in range(count):
        deliveries.append(await producer.send("t", b"%d" % number, partition=partition))
        await asyncio.sleep(0)
    return [await delivery for delivery in deliveries]
