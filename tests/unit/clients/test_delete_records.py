"""DeleteRecords with both clients and a whole node."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest

from quorumlog import simulation
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.clients.offsets import Position, TimestampMs
from quorumlog.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2
from quorumlog.runtime import Handler, Runtime
from quorumlog.services import ADMIN_DELETE_RECORDS, ADMIN_DESCRIBE_CLUSTER, ADMIN_DESCRIBE_TOPICS

Body: TypeAlias = Callable[[AsyncLog], Coroutine[Any, Any, None]]
With: TypeAlias = Callable[[Body], None]


async def fill(log: AsyncLog, *, partitions: int = 1, count: int = 5) -> None:
    await log.admin.create_topic("t", partitions=partitions)
    async with log.producer(linger_ms=0) as producer:
        for partition in range(partitions):
            for index in range(count):
                time = 1_000 * (index + 1)
                await (await producer.send("t", b"v", partition=partition, timestamp_ms=time))


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "start"),
    [
        (3, 3),
        (0, 0),
        ("latest", 5),
        ("earliest", 0),
        (TimestampMs(2_000), 1),
        (datetime.fromtimestamp(4, UTC), 3),
        (datetime.fromtimestamp(9, UTC), 5),
    ],
)
def test_records_before_a_position_are_deleted(
    with_log: With, before: Position, start: int
) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log)
        assert await log.admin.delete_records("t", before) == {0: start}
        assert await log.list_offsets("t", at="earliest") == {0: start}
        records = [record async for record in log.consumer("t", until_end=True)]
        assert [record.offset for record in records] == list(range(start, 5))

    with_log(body)


def test_some_partitions_can_be_named(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, partitions=3, count=2)
        assert await log.admin.delete_records("t", {2: 1, 0: "latest"}) == {2: 1, 0: 2}
        assert await log.list_offsets("t", at="earliest") == {0: 2, 1: 0, 2: 1}

    with_log(body)


def test_nothing_above_the_high_watermark_is_deleted(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, partitions=2, count=2)
        with pytest.raises(OffsetOutOfRange, match="the high watermark is 2") as caught:
            await log.admin.delete_records("t", {0: 3, 1: 1})
        assert (caught.value.topic, caught.value.partition) == ("t", 0)
        assert await log.list_offsets("t", at="earliest") == {0: 0, 1: 1}, (
            "the other partitions are done"
        )

    with_log(body)


def test_a_consumer_below_the_new_log_start_gets_an_error(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log)
        await log.admin.delete_records("t", 3)
        async with log.consumer("t", start=1, until_end=True) as consumer:
            with pytest.raises(OffsetOutOfRange):
                await anext(aiter(consumer))

    with_log(body)


def test_invalid_arguments_are_refused_by_the_client(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        for before in ({}, {-1: 3}, {"0": 3}, -1, 1.5, {0: -2}):
            with pytest.raises(InvalidRequest):
                await log.admin.delete_records("t", before)  # type: ignore[arg-type]
        with pytest.raises(UnknownTopicOrPartition):
            await log.admin.delete_records("nope", 0)
        async with asyncio.timeout(60):
            with pytest.raises(UnknownTopicOrPartition):
                await log.admin.delete_records("t", {7: 0})

    with_log(body)


def test_recreated_topic_is_not_changed() -> None:
    """The topic is deleted and recreated between its lookup and the deletion."""
    asked: list[bytes] = []

    async def main(runtime: Runtime) -> None:
        address = "127.0.0.1:7000"

        async def cluster(request: Any, context: object) -> admin_pb2.DescribeClusterResponse:
            return admin_pb2.DescribeClusterResponse(
                cluster_id="c", brokers=[admin_pb2.BrokerDescription(id=1, grpc_address=address)]
            )

        async def topics(request: Any, context: object) -> admin_pb2.DescribeTopicsResponse:
            topic_id = b"new" if asked else b"old"
            topic = admin_pb2.TopicDescription(name="t", topic_id=topic_id.ljust(16))
            topic.partitions.add(partition=0, leader=1, replicas=[1], isr=[1])
            broker = admin_pb2.BrokerDescription(id=1, grpc_address=address)
            response = admin_pb2.DescribeTopicsResponse(brokers=[broker])
            response.results.add(name="t").topic.CopyFrom(topic)
            return response

        async def delete(
            request: admin_pb2.DeleteRecordsRequest, context: object
        ) -> admin_pb2.DeleteRecordsResponse:
            asked.append(request.partitions[0].topic_id)
            raise UnknownTopicId("another one", topic="t")

        table = (
            Handler(ADMIN_DESCRIBE_CLUSTER, cluster),
            Handler(ADMIN_DESCRIBE_TOPICS, topics),
            Handler(ADMIN_DELETE_RECORDS, delete),
        )
        handlers = {handler.method.path: handler for handler in table}
        listener = await runtime.network.serve(address, handlers)
        async with make_log(runtime, listener.address) as log:
            with pytest.raises(UnknownTopicId):
                await log.admin.delete_records("t", 5)
        assert asked == [b"old".ljust(16)]
        await listener.close(0)

    simulation.run(main)
