"""ElectLeaders on one node: refusals, and elections that are not needed."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka

from quorumlog import simulation
from quorumlog.api.validation import PARTITIONS_MAX
from quorumlog.runtime import Runtime

from .admin_calls import create_topic, timed

ELECT_LEADERS = 43
PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED = 84
INVALID_REQUEST = 42


async def elected(
    kafka: KafkaNode, kind: int = PREFERRED, version: int = 2, **topics: tuple[int, ...]
) -> list[tuple[str, int, int]]:
    """Elect leaders. Return topic, partition and error code of each result."""
    wanted: Any = [{"topic": name, "partitions": parts} for name, parts in topics.items()]
    fields = {"election_type": kind, "topic_partitions": wanted or None}
    answer = await timed(kafka.client, ELECT_LEADERS, version, **fields)
    if version >= 1:
        assert answer.error_code == 0
    return [
        (topic.topic, part.partition_id, part.error_code)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    ]


@pytest.mark.parametrize("version", range(3))
def test_election_of_the_current_leader_is_not_needed_in_every_version(
    folder: str, version: int
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", partitions=2)
            assert await elected(kafka, version=version, t=(0, 1)) == [
                ("t", 0, NOT_NEEDED),
                ("t", 1, NOT_NEEDED),
            ]

    simulation.run(main)


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_election_of_all_partitions_omits_those_that_need_none(folder: str, kind: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", partitions=2)
            assert await elected(kafka, kind) == []

    simulation.run(main)


def test_invalid_partition_does_not_stop_the_others(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", partitions=2)
            results = await elected(kafka, t=(0, 1, 1, 9, -1), nope=(0,))
            assert sorted(results) == [
                ("nope", 0, 3),
                ("t", -1, 42),
                ("t", 0, NOT_NEEDED),
                ("t", 1, 42),
                ("t", 9, 3),
            ]

    simulation.run(main)


def test_unknown_election_type_is_refused_as_a_whole(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            fields = {"election_type": 2, "topic_partitions": None}
            answer = await timed(kafka.client, ELECT_LEADERS, 2, **fields)
            assert (answer.error_code, answer.replica_election_results) == (42, ())

    simulation.run(main)


def test_empty_list_of_partitions_does_not_mean_all(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            fields = {"election_type": PREFERRED, "topic_partitions": ()}
            answer = await timed(kafka.client, ELECT_LEADERS, 2, **fields)
            assert (answer.error_code, answer.replica_election_results) == (0, ())

    simulation.run(main)


@pytest.mark.parametrize("version", [0, 2])
def test_error_of_the_request_is_repeated_for_each_partition(folder: str, version: int) -> None:
    """Version 0 has no other field for it: its response would look like a success."""

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            too_many = ({"topic": "t", "partitions": range(PARTITIONS_MAX + 1)},)
            fields = {"election_type": PREFERRED, "topic_partitions": too_many}
            answer = await timed(kafka.client, ELECT_LEADERS, version, **fields)
            if version >= 1:
                assert answer.error_code == INVALID_REQUEST
            (topic,) = answer.replica_election_results
            assert len(topic.partition_result) == PARTITIONS_MAX + 1
            assert {part.error_code for part in topic.partition_result} == {INVALID_REQUEST}

    simulation.run(main)
