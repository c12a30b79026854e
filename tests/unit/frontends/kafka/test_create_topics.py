"""CreateTopics: the result of each topic, in every version."""

from dataclasses import replace
from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import Run

from quorumlog import simulation
from quorumlog.frontends.kafka.encoding_offload import ELEMENTS_ON_THE_LOOP_MAX
from quorumlog.frontends.kafka.item_results import PARTS_AT_ONCE, PARTS_MAX
from quorumlog.runtime import Runtime

from .admin_calls import NODE, described, timed

CREATE_TOPICS = 19


def wanted(name: str, **fields: Any) -> dict[str, Any]:
    """Return a topic with one replica of one partition, overridden by `fields`."""
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
        **fields,
    }


async def created(
    kafka: KafkaNode, *topics: dict[str, Any], version: int = 7, validate_only: bool = False
) -> list[Any]:
    answer = await timed(
        kafka.client, CREATE_TOPICS, version, topics=topics, validate_only=validate_only
    )
    return list(answer.topics)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_by_every_version(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic = wanted("t", num_partitions=3)
            (result,) = await created(kafka, topic, version=version)
            assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
            topic_there = (await described(kafka.channel, "t")).topic
            assert len(topic_there.partitions) == 3
            if version >= 5:
                assert (result.num_partitions, result.replication_factor) == (3, 1)
            if version >= 7:
                assert result.topic_id.bytes == topic_there.topic_id

    run(main)


def test_response_has_every_config_with_its_source(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            configs = ({"name": "retention.ms", "value": "7d"},)
            (result,) = await created(kafka, wanted("t", configs=configs))
            values = {each.name: (each.value, each.config_source) for each in result.configs}
            assert values["retention.ms"] == ("604800000", 1)
            assert values["segment.bytes"] == (str(1 << 30), 5)

    simulation.run(main)


def test_minus_one_means_the_defaults_of_the_cluster(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic = wanted("t", num_partitions=-1, replication_factor=-1)
            (result,) = await created(kafka, topic)
            assert result.error_code == 0
            assert (result.num_partitions, result.replication_factor) == (1, 1)

    simulation.run(main)


def test_assigned_partitions_are_where_they_were_assigned(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic = wanted(
                "t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=(
                    {"partition_index": 1, "broker_ids": (NODE,)},
                    {"partition_index": 0, "broker_ids": (NODE,)},
                ),
            )
            (result,) = await created(kafka, topic)
            assert (result.error_code, result.num_partitions) == (0, 2)

    simulation.run(main)


def assigned(*indexes: int, **fields: Any) -> dict[str, Any]:
    places = tuple({"partition_index": index, "broker_ids": (NODE,)} for index in indexes)
    return wanted("t", assignments=places, **fields)


DEFAULTS = {"num_partitions": -1, "replication_factor": -1}


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (wanted("t", num_partitions=0), 37, "or -1 for the default"),
        (wanted("t", num_partitions=-2), 37, "-2"),
        (wanted("t", num_partitions=2**31 - 1), 37, "partitions"),
        (wanted("t", replication_factor=0), 38, "or -1 for the default"),
        (wanted("t", replication_factor=-2), 38, "-2"),
        (wanted("t", replication_factor=9), 38, "9"),
        (wanted("t/"), 17, "illegal characters"),
        (wanted(""), 17, "must not be empty"),
        (wanted("t", configs=({"name": "retention.mx", "value": "1"},)), 40, "retention.ms"),
        (wanted("t", configs=({"name": "retention.ms", "value": None},)), 40, "no value"),
        (wanted("t", configs=({"name": "x", "value": ""},) * (PARTS_MAX + 1)), 42, "the limit is"),
        (assigned(*range(PARTS_MAX + 1), **DEFAULTS), 42, "the limit is"),
        (assigned(0), 42, "give -1 for both"),
        (assigned(1, **DEFAULTS), 39, "not partitions 0, 1, 2"),
        (assigned(0, 0, **DEFAULTS), 39, "each partition once"),
        (wanted("t", assignments=({"partition_index": 0, "broker_ids": ()},), **DEFAULTS), 39, "0"),
        (
            wanted("t", assignments=({"partition_index": 0, "broker_ids": (77,)},), **DEFAULTS),
            39,
            "77",
        ),
    ],
)
def test_invalid_topic_is_refused_with_its_code(
    folder: str, topic: dict[str, Any], code: int, message: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            refused, other = await created(kafka, topic, wanted("other"))
            assert (refused.name, refused.error_code) == (topic["name"], code)
            assert message in refused.error_message
            assert (other.name, other.error_code) == ("other", 0)

    simulation.run(main)


def test_a_topic_that_exists_is_refused(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await created(kafka, wanted("t"))
            (result,) = await created(kafka, wanted("t"), version=2)
            assert result.error_code == 36
            assert "exists" in result.error_message

    simulation.run(main)


def test_duplicate_name_is_refused_once_and_creates_nothing(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            results = await created(kafka, wanted("t"), wanted("other"), wanted("t"))
            assert [(each.name, each.error_code) for each in results] == [("other", 0), ("t", 42)]
            assert (await described(kafka.channel, "t")).HasField("error")

    simulation.run(main)


def test_validation_creates_nothing_and_returns_the_result(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic = wanted("t", num_partitions=4)
            (result,) = await created(kafka, topic, validate_only=True)
            assert (result.error_code, result.num_partitions) == (0, 4)
            assert result.topic_id is None
            assert (await described(kafka.channel, "t")).HasField("error")

    simulation.run(main)


def test_empty_request_gets_an_empty_response(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            assert await created(kafka) == []

    simulation.run(main)


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 2**31 - 1])
def test_extreme_timeout_is_answered_at_once(folder: str, timeout_ms: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            began_ms = runtime.clock.now_ms()
            answer = await kafka.client.ask(
                CREATE_TOPICS, 7, topics=[wanted("t")], timeout=timeout_ms, validate_only=False
            )
            assert answer.topics[0].error_code == (7 if timeout_ms <= 0 else 0)
            assert runtime.clock.now_ms() - began_ms < 1_000

    simulation.run(main)


@pytest.mark.parametrize("version", [4, 7])
def test_many_topics_have_the_same_results_as_few(folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topics = [wanted(f"t{index}") for index in range(ELEMENTS_ON_THE_LOOP_MAX // 20)]
            (one,) = await created(kafka, wanted("t"), version=version, validate_only=True)
            many = await created(kafka, *topics, wanted("t/"), version=version, validate_only=True)
            assert [replace(each, name="t") for each in many[:-1]] == [one] * len(topics)
            assert many[-1].error_code == 17

    simulation.run(main)


@pytest.mark.slow
def test_too_many_topics_are_all_refused_with_a_reason(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topics = [wanted(f"t{index}") for index in range(PARTS_MAX + 1)]
            results = await created(kafka, *topics)
            assert len(results) == len(topics)
            assert {each.error_code for each in results} == {42}
            assert f"the limit is {PARTS_MAX}" in results[-1].error_message
            assert (await described(kafka.channel, "t0")).HasField("error")

    simulation.run(main)


def test_creation_that_did_not_start_before_the_timeout_never_starts(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topics = [wanted(f"t{index}") for index in range(2 * PARTS_AT_ONCE)]
            answer = await kafka.client.ask(
                CREATE_TOPICS, 4, topics=topics, timeout=1, validate_only=False
            )
            late = [
                each.name
                for each in answer.topics
                if "before it was started" in (each.error_message or "")
            ]
            assert "t0" not in late
            assert f"t{2 * PARTS_AT_ONCE - 1}" in late
            assert all(each.error_code == 7 for each in answer.topics if each.name in late)
            await created(kafka, wanted("another"))  # behind all requests in flight
            for name in late:
                assert (await described(kafka.channel, name)).HasField("error")

    simulation.run(main)
