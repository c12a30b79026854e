"""A minimal broker that stores batches, with configurable responses."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from tests.kit.waits import AMPLE_MS

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import (
    MessageTooLarge,
    Overloaded,
    PartitionerFailed,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import decode_all, parse_header
from quorumlog.runtime import CallContext, Handler, Runtime, Stream
from quorumlog.runtime.error_detail import encode_error
from quorumlog.services import ADMIN_DESCRIBE_CLUSTER, ADMIN_DESCRIBE_TOPICS, LOG_PRODUCE

from .producer_table import LeaderMemory

ProduceStream: TypeAlias = Stream[log_pb2.ProduceResponse, log_pb2.ProduceRequest]
Spoil: TypeAlias = Callable[[log_pb2.ProduceResponse], None]


class Broker:
    """A broker that stores its batches unless configured otherwise."""

    def __init__(self, *, partitions: int = 1) -> None:
        self.partitions = partitions
        self.exists = True
        self.record_bytes_max = 1 << 30  # for one partition of a request
        self.refuse: dict[bytes, QuorumlogError] = {}  # for a partition with this value
        self.spoil: list[Spoil] = []  # changes of the next responses
        self.hold: asyncio.Event | None = None  # requests wait for it
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.parts: list[log_pb2.PartitionRecords] = []
        self.transactional_ids: list[str] = []  # of the requests that have one
        self.lookups = 0
        self.memory = LeaderMemory()
        self.address = ""

    def handlers(self) -> dict[str, Any]:
        table = [
            Handler(ADMIN_DESCRIBE_CLUSTER, self._describe_cluster),
            Handler(ADMIN_DESCRIBE_TOPICS, self._describe_topics),
            Handler(LOG_PRODUCE, self._produce),
            self.memory.handler(),
        ]
        return {handler.method.path: handler for handler in table}

    def _brokers(self) -> list[admin_pb2.BrokerDescription]:
        return [admin_pb2.BrokerDescription(id=1, grpc_address=self.address)]

    async def _describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(cluster_id="c", brokers=self._brokers())

    async def _describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        self.lookups += 1
        response = admin_pb2.DescribeTopicsResponse(brokers=self._brokers())
        for name in request.names:
            result = response.results.add(name=name)
            if not self.exists and name == "t":
                result.error.CopyFrom(encode_error(UnknownTopicOrPartition("gone", topic=name)))
                continue
            result.topic.name = name
            for partition in range(self.partitions):
                result.topic.partitions.add(partition=partition, leader=1)
        return response

    async def _produce(self, stream: ProduceStream, context: CallContext) -> None:
        while (request := await stream.receive()) is not None:
            if self.hold is not None:
                await self.hold.wait()
            response = log_pb2.ProduceResponse(correlation_id=request.correlation_id)
            if request.transactional_id:
                self.transactional_ids.append(request.transactional_id)
            for part in request.partitions:
                self.parts.append(part)
                result = response.results.add(topic=part.topic, partition=part.partition)
                error = self._store(part, result)
                if error is not None:
                    result.base_offset = -1
                    result.error.CopyFrom(encode_error(error))
            if self.spoil:
                self.spoil.pop(0)(response)
            await stream.send(response)

    def _store(
        self, part: log_pb2.PartitionRecords, result: log_pb2.ProduceResult
    ) -> QuorumlogError | None:
        if not self.exists or part.partition >= self.partitions:
            return UnknownTopicOrPartition("not here")
        if len(part.records) > self.record_bytes_max:
            return MessageTooLarge("too large for this topic")
        values = [record.value or b"" for record in decode_all(part.records)]
        for value in values:
            if value in self.refuse:
                return self.refuse[value]
        header = parse_header(part.records)
        try:
            known = self.memory.stored_at(part.partition, header)
        except QuorumlogError as error:
            return error
        if known is not None:
            result.base_offset = known
            return None
        result.base_offset = len(self.logs[part.partition])
        self.memory.note(part.partition, header, result.base_offset)
        self.logs[part.partition].extend(values)
        return None


@asynccontextmanager
async def cluster(runtime: Runtime, broker: Broker, **settings: Any) -> AsyncIterator[AsyncLog]:
    """A client of a cluster of this broker."""
    listener = await runtime.network.serve("127.0.0.1:0", broker.handlers())
    broker.address = listener.address
    settings.setdefault("connect_timeout_ms", AMPLE_MS)
    async with make_log(runtime, listener.address, **settings) as log:
        yield log
    await listener.close(0)


def fails_for_three(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """A partitioner that raises for one record."""
    if value == b"3":
        raise ValueError(topic)
    return 0


REFUSALS_OF_A_BULK: list[tuple[dict[str, Any], type[QuorumlogError]]] = [
    ({"buffer_size": 200, "max_block_ms": 100, "linger_ms": 0}, Overloaded),
    ({"buffer_size": 200, "on_full": "raise", "linger_ms": 1_000}, Overloaded),
    ({"partitioner": fails_for_three}, PartitionerFailed),
]
"""Settings of a producer that refuses a part of `EIGHT` while requests wait, and the error."""
EIGHT = [b"%d" % number for number in range(8)]
