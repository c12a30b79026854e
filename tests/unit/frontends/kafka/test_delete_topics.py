"""DeleteTopics deletes each topic by itself, by name or by id."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import Run

from quorumlog import simulation
from quorumlog.runtime import Runtime

from .admin_calls import codes, create_topic, described, timed

DELETE_TOPICS = 20


def by_name(name: str) -> dict[str, Any]:
    return {"name": name, "topic_id": b""}


def by_id(topic_id: bytes) -> dict[str, Any]:
    return {"name": None, "topic_id": topic_id}


async def deleted(kafka: KafkaNode, *topics: dict[str, Any]) -> list[Any]:
    return list((await timed(kafka.client, DELETE_TOPICS, 6, topics=topics)).responses)


async def is_there(kafka: KafkaNode, name: str) -> bool:
    return not (await described(kafka.channel, name)).HasField("error")


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name_in_every_version_with_names(
    run: Run, folder: str, version: int
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            for name in ("a", "b"):
                await create_topic(kafka.channel, name)
            names = ("a", "nope")
            answer = await timed(kafka.client, DELETE_TOPICS, version, topic_names=names)
            assert codes(answer.responses) == [("a", 0), ("nope", 3)]
            if version == 5:
                assert "does not exist" in answer.responses[1].error_message
            assert not await is_there(kafka, "a")
            assert await is_there(kafka, "b")

    run(main)


def test_topic_is_deleted_by_its_id_and_named_in_the_response(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic_id = await create_topic(kafka.channel, "t")
            (result,) = await deleted(kafka, by_id(topic_id))
            assert (result.name, result.topic_id.bytes, result.error_code) == ("t", topic_id, 0)
            assert not await is_there(kafka, "t")

    run(main)


def test_id_of_a_deleted_topic_is_unknown_although_its_name_exists(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            old_id = await create_topic(kafka.channel, "t")
            await deleted(kafka, by_name("t"))
            await create_topic(kafka.channel, "t")
            (result,) = await deleted(kafka, by_id(old_id))
            assert (result.name, result.topic_id.bytes, result.error_code) == (None, old_id, 100)
            assert await is_there(kafka, "t")

    simulation.run(main)


def test_topic_listed_twice_by_name_or_id_is_not_deleted(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            ids = {name: await create_topic(kafka.channel, name) for name in "abc"}
            results = await deleted(
                kafka,
                by_name("a"),
                by_name("a"),
                by_id(ids["b"]),
                by_name("b"),
                by_name("c"),
            )
            assert codes(results) == [("a", 42), (None, 42), ("b", 42), ("c", 0)]
            assert [await is_there(kafka, name) for name in "abc"] == [True, True, False]

    simulation.run(main)


def test_a_topic_without_name_and_id_or_with_both_is_refused(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic_id = await create_topic(kafka.channel, "t")
            both = {"name": "t", "topic_id": topic_id}
            results = await deleted(kafka, by_id(b""), both)
            assert codes(results) == [(None, 42), ("t", 42)]
            assert await is_there(kafka, "t")

    simulation.run(main)
