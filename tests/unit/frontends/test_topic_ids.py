"""Requests with the id of a deleted topic never reach a recreated topic of its name."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.kit.batches import values_of
from tests.kit.node import WAIT_MS, serving

from quorumlog import simulation
from quorumlog.errors import InvalidRequest, QuorumlogError, UnknownTopicId, UnknownTopicOrPartition
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Channel, Runtime
from quorumlog.runtime.error_detail import decode_error
from quorumlog.services import (
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_TOPIC,
    LOG_FETCH,
    LOG_LIST_OFFSETS,
    LOG_PRODUCE,
    LOG_SUBSCRIBE,
)

OLD, NEW = b"o" * 16, b"n" * 16
Body = Callable[[Channel], Coroutine[Any, Any, None]]


def simulate(body: Body) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, "/data", subscribe_heartbeat_ms=100) as channel:
            await create(channel, OLD)
            assert (await produce(channel, b"old", OLD)).base_offset == 0
            await body(channel)

    simulation.run(main)


async def create(channel: Channel, topic_id: bytes) -> None:
    request = admin_pb2.CreateTopicRequest(name="t", partitions=1, topic_id=topic_id)
    assert (await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)).usable


async def make_anew(channel: Channel) -> None:
    request = admin_pb2.DeleteTopicRequest(name="t")
    await channel.call(ADMIN_DELETE_TOPIC, request, timeout_ms=WAIT_MS)
    await create(channel, NEW)


async def produce(channel: Channel, value: bytes, topic_id: bytes) -> log_pb2.ProduceResult:
    request = log_pb2.ProduceRequest()
    records = encode_batch([Record(0, 1_000, None, value)])
    request.partitions.add(topic="t", records=records, topic_id=topic_id)
    stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
    await stream.send(request)
    await stream.finish()
    response = await stream.receive()
    assert response is not None
    return response.results[0]


async def fetch(channel: Channel, topic_id: bytes, *, wait_ms: int = 0) -> log_pb2.FetchResult:
    request = log_pb2.FetchRequest(max_wait_ms=wait_ms)
    request.partitions.add(topic="t", offset=1 if wait_ms else 0, topic_id=topic_id)
    return (await channel.call(LOG_FETCH, request, timeout_ms=WAIT_MS)).results[0]


async def latest(channel: Channel, topic_id: bytes) -> log_pb2.ListOffsetsResult:
    request = log_pb2.ListOffsetsRequest()
    request.partitions.add(topic="t", timestamp_ms=-1, topic_id=topic_id)
    return (await channel.call(LOG_LIST_OFFSETS, request, timeout_ms=WAIT_MS)).results[0]


async def subscribe(channel: Channel, topic_id: bytes) -> Any:
    stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
    await stream.send(log_pb2.SubscribeRequest(topic="t", topic_id=topic_id, max_bytes=1))
    await stream.finish()
    return stream


async def drained(stream: Any, value: bytes) -> None:
    """Read records of this value to the end."""
    while (response := await stream.receive()) is not None:
        assert set(values_of(response.batches)) <= {value}, "records of another topic"


def test_every_request_accepts_the_current_topic_id() -> None:
    async def body(channel: Channel) -> None:
        await make_anew(channel)
        for topic_id in (NEW, b""):
            assert not (await produce(channel, b"new", topic_id)).HasField("error")
            assert values_of((await fetch(channel, topic_id)).records)[0] == b"new"
            assert (await latest(channel, topic_id)).offset >= 1
            response = await (await subscribe(channel, topic_id)).receive()
            assert values_of(response.batches)[0] == b"new"

    simulate(body)


def test_id_of_the_deleted_topic_is_refused_and_nothing_is_stored() -> None:
    async def body(channel: Channel) -> None:
        await make_anew(channel)
        for result in (
            await produce(channel, b"late", OLD),
            await fetch(channel, OLD),
            await latest(channel, OLD),
        ):
            error = decode_error(result.error)
            assert isinstance(error, UnknownTopicId)
            assert (error.topic, error.partition) == ("t", 0)
        with pytest.raises(UnknownTopicId):
            await (await subscribe(channel, OLD)).receive()
        assert (await latest(channel, NEW)).offset == 0, "the late record is in neither topic"

    simulate(body)


def test_waiting_poll_is_not_answered_from_the_recreated_topic() -> None:
    async def body(channel: Channel) -> None:
        poll = asyncio.ensure_future(fetch(channel, OLD, wait_ms=10_000))
        await asyncio.sleep(0.1)
        await make_anew(channel)
        error = decode_error((await poll).error)
        assert isinstance(error, UnknownTopicOrPartition | UnknownTopicId)

    simulate(body)


@pytest.mark.parametrize("topic_id", [OLD, b""], ids=["with its id", "by name alone"])
def test_subscription_does_not_continue_in_the_recreated_topic(topic_id: bytes) -> None:
    """Its client is slow: the broker waits for buffer space while the topic is recreated."""

    async def body(channel: Channel) -> None:
        big = b"o" * 200_000
        for _ in range(20):
            await produce(channel, big, OLD)
        stream = await subscribe(channel, topic_id)
        assert values_of((await stream.receive()).batches) == [b"old"]
        await make_anew(channel)
        for _ in range(30):
            await produce(channel, b"new", NEW)
        with pytest.raises(QuorumlogError) as raised:
            await drained(stream, big)
        assert isinstance(raised.value, UnknownTopicOrPartition | UnknownTopicId)

    simulate(body)


def test_invalid_topic_id_is_named() -> None:
    async def body(channel: Channel) -> None:
        result = await produce(channel, b"x", b"short")
        assert isinstance(decode_error(result.error), InvalidRequest)
        for call in (fetch, latest):
            with pytest.raises(InvalidRequest, match="topic_id: 5 bytes; give 16, or none"):
                await call(channel, b"short")
        with pytest.raises(InvalidRequest, match="topic_id: 5 bytes"):
            await (await subscribe(channel, b"short")).receive()

    simulate(body)
