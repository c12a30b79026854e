"""DescribeLogDirs of all partitions, or of the given ones."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS, Run

from quorumlog import simulation
from quorumlog.proto import log_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import LOG_PUBLISH

from .admin_calls import create_topic

DESCRIBE_LOG_DIRS = 35
BYTES = 500


async def filled(kafka: KafkaNode) -> None:
    """Create topic a, and topic b with a record in partition 1."""
    await create_topic(kafka.channel, "b", partitions=2)
    await create_topic(kafka.channel, "a")
    records = [log_pb2.Record(value=b"v" * BYTES)]
    request = log_pb2.PublishRequest(topic="b", partition=1, records=records)
    await kafka.channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)


async def directory(kafka: KafkaNode, topics: Any, version: int = 5) -> Any:
    answer = await kafka.client.ask(DESCRIBE_LOG_DIRS, version, topics=topics)
    if version >= 3:
        assert answer.error_code == 0
    (found,) = answer.results
    assert found.error_code == 0
    return found


def places(found: Any) -> list[tuple[str, int]]:
    return [
        (topic.name, part.partition_index) for topic in found.topics for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(1, 6))
def test_all_partitions_are_described_in_every_version(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await filled(kafka)
            found = await directory(kafka, None, version)
            assert found.log_dir == folder
            assert places(found) == [("a", 0), ("b", 0), ("b", 1)]
            parts = [part for topic in found.topics for part in topic.partitions]
            assert [part.partition_size > BYTES for part in parts] == [False, False, True]
            assert not any(part.offset_lag or part.is_future_key for part in parts)
            if version >= 4:
                assert found.total_bytes >= found.usable_bytes > BYTES

    run(main)


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ([{"topic": "b", "partitions": (1, 9)}], [("b", 1)]),
        (
            [{"topic": "b", "partitions": (1,)}, {"topic": "b", "partitions": (0,)}],
            [("b", 0), ("b", 1)],
        ),
        ([{"topic": "nope", "partitions": (0,)}, {"topic": "a", "partitions": (0,)}], [("a", 0)]),
        ([{"topic": "nope/", "partitions": (0,)}], []),
        ([{"topic": "a", "partitions": ()}], []),
        ([], []),
    ],
)
def test_existing_partitions_of_the_request_are_described(
    folder: str, topics: Any, expected: list[tuple[str, int]]
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await filled(kafka)
            found = await directory(kafka, topics)
            assert places(found) == expected
            assert found.log_dir == folder

    simulation.run(main)
