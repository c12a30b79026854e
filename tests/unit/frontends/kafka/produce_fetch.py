"""Produce, Fetch and ListOffsets with plain arguments, over the raw client."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.kit.kafka_client import RawClient
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS

from quorumlog import simulation
from quorumlog.proto import admin_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import ADMIN_CREATE_TOPIC

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_PRODUCERS = 0, 1, 2, 23, 61
DELETE_RECORDS = 21
NO_ID = bytes(16)


async def create(kafka: KafkaNode, name: str, partitions: int = 1, **configs: str) -> bytes:
    """Create a topic. Return its id."""
    request = admin_pb2.CreateTopicRequest(name=name, partitions=partitions)
    for key, value in configs.items():
        request.configs.add(name=key.replace("_", "."), value=value)
    response = await kafka.channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
    assert response.usable
    topic: bytes = response.topic.topic_id
    return topic


def _title(version: int, topic: str, topic_id: bytes, *, name: str) -> dict[str, Any]:
    """Return the field that identifies a topic in Produce and Fetch: its id since version 13."""
    return {"topic_id": topic_id} if version >= 13 else {name: topic}


def produce_fields(
    version: int,
    *parts: tuple[int, bytes | None],
    topic: str = "t",
    topic_id: bytes = NO_ID,
    acks: int = -1,
    **fields: Any,
) -> dict[str, Any]:
    """Return a Produce request for some partitions of one topic."""
    data = [{"index": index, "records": records} for index, records in parts]
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{**_title(version, topic, topic_id, name="name"), "partition_data": data}],
        **fields,
    }


async def produced(
    client: RawClient, *parts: tuple[int, bytes | None], version: int = 9, **fields: Any
) -> list[Any]:
    """Produce to one topic. Return the results of the partitions."""
    answer = await client.ask(PRODUCE, version, **produce_fields(version, *parts, **fields))
    (topic,) = answer.responses
    return list(topic.partition_responses)


async def produce(client: RawClient, records: bytes, index: int = 0, **fields: Any) -> int:
    """Produce one batch successfully. Return its base offset."""
    (result,) = await produced(client, (index, records), **fields)
    assert (result.index, result.error_code) == (index, 0), result
    return int(result.base_offset)


def fetch_fields(
    version: int,
    *parts: tuple[int, int],
    topic: str = "t",
    topic_id: bytes = NO_ID,
    part: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return a Fetch request for (partition, offset) of one topic. `part` is added to each
    partition."""
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
            **(part or {}),
        }
        for index, offset in parts
    ]
    asker = {"replica_id": -1} if version < 15 else {}
    return {
        **asker,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**_title(version, topic, topic_id, name="topic"), "partitions": partitions}],
        "forgotten_topics_data": (),
        "rack_id": "",
        **fields,
    }


async def fetched(
    client: RawClient, *parts: tuple[int, int], version: int = 12, **fields: Any
) -> list[Any]:
    """Fetch from one topic. Return the results of the partitions."""
    answer = await client.ask(FETCH, version, **fetch_fields(version, *parts, **fields))
    (topic,) = answer.responses
    return list(topic.partitions)


async def fetch(client: RawClient, offset: int, index: int = 0, **fields: Any) -> bytes:
    """Fetch from one partition successfully. Return its records."""
    (result,) = await fetched(client, (index, offset), **fields)
    assert (result.partition_index, result.error_code) == (index, 0), result
    return bytes(result.records or b"")


async def listed(
    client: RawClient, *parts: tuple[int, int], version: int = 7, topic: str = "t", **fields: Any
) -> list[Any]:
    """List offsets of (partition, timestamp). Return the results."""
    partitions = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        for index, timestamp in parts
    ]
    answer = await client.ask(
        LIST_OFFSETS,
        version,
        **{
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": partitions}],
            "timeout": 1_000,
            **fields,
        },
    )
    (found,) = answer.topics
    return list(found.partitions)


async def epoch_ends(
    client: RawClient,
    *parts: tuple[int, int],
    version: int = 4,
    topic: str = "t",
    current: int = -1,
) -> list[Any]:
    """Query the ends of (partition, leader epoch). Return the results."""
    partitions = [
        {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
        for index, epoch in parts
    ]
    fields = {"replica_id": -1} if version >= 3 else {}
    answer = await client.ask(
        OFFSET_FOR_LEADER_EPOCH,
        version,
        **fields,
        topics=[{"topic": topic, "partitions": partitions}],
    )
    (found,) = answer.topics
    return list(found.partitions)


def stamped(records: Sequence[bytes]) -> list[int]:
    """Return the base offsets in the stored batches."""
    return [int.from_bytes(each[:8], "big") for each in records]


FOLDER = "/data"


def run_with_topic(work: Callable[[KafkaNode], Awaitable[None]], **settings: Any) -> None:
    """Run `work` with a simulated node that has a topic "t" of three partitions."""

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, FOLDER, **settings) as kafka:
            await create(kafka, "t", partitions=3)
            await work(kafka)

    simulation.run(main)
