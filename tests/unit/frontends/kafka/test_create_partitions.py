"""CreatePartitions grows each topic by itself."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import Run

from quorumlog import simulation
from quorumlog.runtime import Runtime

from .admin_calls import NODE, codes, create_topic, described, timed

CREATE_PARTITIONS = 37


def wanted(
    name: str, count: int, *assignments: tuple[int, ...], placed: bool = True
) -> dict[str, Any]:
    places = tuple({"broker_ids": nodes} for nodes in assignments)
    return {"name": name, "count": count, "assignments": None if placed else places}


async def grown(kafka: KafkaNode, *topics: dict[str, Any], validate_only: bool = False) -> Any:
    answer = await timed(
        kafka.client, CREATE_PARTITIONS, 3, topics=topics, validate_only=validate_only
    )
    return answer.results


async def count_of(kafka: KafkaNode, name: str) -> int:
    return len((await described(kafka.channel, name)).topic.partitions)


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_by_every_version(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            topics = (wanted("t", 3), wanted("nope", 3))
            answer = await timed(
                kafka.client, CREATE_PARTITIONS, version, topics=topics, validate_only=False
            )
            assert codes(answer.results) == [("t", 0), ("nope", 3)]
            assert await count_of(kafka, "t") == 3

    run(main)


def test_new_partitions_are_where_they_are_assigned(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            results = await grown(kafka, wanted("t", 3, (NODE,), (NODE,), placed=False))
            assert codes(results) == [("t", 0)]
            assert await count_of(kafka, "t") == 3

    simulation.run(main)


def test_validation_alone_changes_nothing(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            assert codes(await grown(kafka, wanted("t", 3), validate_only=True)) == [("t", 0)]
            assert await count_of(kafka, "t") == 1

    simulation.run(main)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (wanted("t", 2), 37, "has 2 partitions already"),
        (wanted("t", 1), 37, "can only grow"),
        (wanted("t", 0), 42, "give 1 or more"),
        (wanted("t", -1), 42, "give 1 or more"),
        (wanted("t", 2**31 - 1), 37, "can only grow"),
        (wanted("t/", 3), 17, "illegal characters"),
        (wanted("t", 3, placed=False), 39, "give null to have them placed"),
        (wanted("t", 4, (NODE,), placed=False), 39, "1 of 2 new partitions are assigned"),
        (wanted("t", 3, (77,), placed=False), 39, "broker 77 is not registered"),
        (wanted("t", 3, (), placed=False), 39, "0 brokers; give 1"),
    ],
)
def test_invalid_growth_is_refused_with_its_code(
    folder: str, topic: dict[str, Any], code: int, message: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", partitions=2)
            await create_topic(kafka.channel, "other")
            refused, other = await grown(kafka, topic, wanted("other", 2))
            assert (refused.name, refused.error_code) == (topic["name"], code)
            assert message in refused.error_message
            assert other.error_code == 0
            assert await count_of(kafka, "t") == 2

    simulation.run(main)


def test_a_topic_that_is_named_twice_stays_as_it_is(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            assert codes(await grown(kafka, wanted("t", 2), wanted("t", 3))) == [("t", 42)]
            assert await count_of(kafka, "t") == 1

    simulation.run(main)
