"""Calls of the gRPC service `Log`, with plain arguments."""

from collections.abc import Sequence
from typing import Any

from tests.kit.node import WAIT_MS

from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.runtime import Channel
from quorumlog.services import ADMIN_CREATE_TOPIC, LOG_FETCH, LOG_PRODUCE


async def create(channel: Channel, name: str, partitions: int = 1, **configs: str) -> None:
    request = admin_pb2.CreateTopicRequest(name=name, partitions=partitions)
    for key, value in configs.items():
        request.configs.add(name=key.replace("_", "."), value=value)
    response = await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
    assert response.usable


def produce_request(
    records: bytes, *, topic: str = "t", partition: int = 0, number: int = 0, acks: int = 0
) -> log_pb2.ProduceRequest:
    request = log_pb2.ProduceRequest(correlation_id=number, acks=log_pb2.Acks.Name(acks))
    request.partitions.add(topic=topic, partition=partition, records=records)
    return request


async def produce(
    channel: Channel, requests: Sequence[log_pb2.ProduceRequest]
) -> list[log_pb2.ProduceResponse]:
    """Send all requests, then collect every response until the end of the stream."""
    stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
    for request in requests:
        await stream.send(request)
    await stream.finish()
    responses = []
    while (response := await stream.receive()) is not None:
        responses.append(response)
    return responses


async def produce_one(channel: Channel, records: bytes, **where: Any) -> log_pb2.ProduceResult:
    (response,) = await produce(channel, [produce_request(records, **where)])
    return response.results[0]


async def fetch(
    channel: Channel,
    *specs: tuple[str, int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 0,
) -> list[log_pb2.FetchResult]:
    request = log_pb2.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes
    )
    for topic, partition, offset in specs:
        request.partitions.add(topic=topic, partition=partition, offset=offset)
    return list((await channel.call(LOG_FETCH, request, timeout_ms=WAIT_MS)).results)
