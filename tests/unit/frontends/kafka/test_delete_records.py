"""DeleteRecords raises the log start offset of each partition by itself."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS, Run

from quorumlog import simulation
from quorumlog.frontends.kafka.item_results import PARTS_MAX
from quorumlog.proto import log_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import LOG_PUBLISH

from .admin_calls import create_topic, timed

DELETE_RECORDS = 21
FIND_COORDINATOR = 10
INVALID_TOPIC = 17
RECORDS = 5


async def filled(kafka: KafkaNode, name: str, *, partitions: int = 1) -> None:
    """Create a topic with records in partition 0."""
    await create_topic(kafka.channel, name, partitions=partitions)
    records = [log_pb2.Record(value=b"v") for _ in range(RECORDS)]
    request = log_pb2.PublishRequest(topic=name, partition=0, records=records)
    await kafka.channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)


def below(*places: tuple[int, int]) -> list[dict[str, int]]:
    return [{"partition_index": index, "offset": offset} for index, offset in places]


async def deleted(kafka: KafkaNode, version: int = 2, **topics: Any) -> dict[tuple[str, int], Any]:
    """Delete records. Return error code and new log start of each partition."""
    wanted = [{"name": name, "partitions": parts} for name, parts in topics.items()]
    answer = await timed(kafka.client, DELETE_RECORDS, version, topics=wanted)
    return {
        (topic.name, part.partition_index): (part.error_code, part.low_watermark)
        for topic in answer.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(3))
def test_records_below_an_offset_go_by_every_version(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await filled(kafka, "t")
            assert await deleted(kafka, version, t=below((0, 3))) == {("t", 0): (0, 3)}
            assert await deleted(kafka, version, t=below((0, -1))) == {("t", 0): (0, RECORDS)}

    run(main)


def test_records_of_internal_topics_stay(folder: str) -> None:
    """They are the state of groups and transactions."""

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            for key_type, topic in ((0, "__consumer_offsets"), (1, "__transaction_state")):
                await kafka.client.ask(FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys="g")
                results = await deleted(kafka, 2, **{topic: below((0, 0))})
                assert results == {(topic, 0): (INVALID_TOPIC, -1)}

    simulation.run(main)


def test_invalid_partition_does_not_stop_the_others(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await filled(kafka, "t", partitions=4)
            await filled(kafka, "u")
            results = await deleted(
                kafka,
                t=below((0, 2), (1, 1), (2, -2), (3, 0), (3, 0), (9, 0), (-1, 0)),
                u=below((0, RECORDS)),
                nope=below((0, 0)),
            )
            assert results == {
                ("t", 0): (0, 2),
                ("t", 1): (1, -1),  # it has no records
                ("t", 2): (1, -1),  # an invalid offset
                ("t", 3): (42, -1),
                ("t", 9): (3, -1),
                ("t", -1): (42, -1),
                ("u", 0): (0, RECORDS),
                ("nope", 0): (3, -1),
            }

    simulation.run(main)


def test_empty_request_gets_an_empty_response(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            assert await deleted(kafka) == {}
            assert await deleted(kafka, t=()) == {}

    simulation.run(main)


def test_too_many_partitions_are_all_refused_and_keep_their_records(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await filled(kafka, "t")
            many = below(*((index, -1) for index in range(PARTS_MAX)))
            results = await deleted(kafka, t=many, u=below((0, -1)))
            assert len(results) == PARTS_MAX + 1
            assert set(results.values()) == {(42, -1)}
            assert await deleted(kafka, t=below((0, 0))) == {("t", 0): (0, 0)}

    simulation.run(main)
