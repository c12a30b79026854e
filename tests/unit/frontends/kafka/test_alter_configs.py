"""AlterConfigs and IncrementalAlterConfigs apply each resource atomically, by itself."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS, Run

from quorumlog import simulation
from quorumlog.frontends.kafka.item_results import PARTS_MAX
from quorumlog.proto import admin_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import ADMIN_DESCRIBE_CONFIGS

from .admin_calls import create_topic

ALTER_CONFIGS, INCREMENTAL = 33, 44
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
RATE = "replication.throttled.rate"


def resource(name: str, *configs: dict[str, Any], kind: int = TOPIC) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def to(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": operation}


def plain(name: str, value: str | None) -> dict[str, Any]:
    return {"name": name, "value": value}


async def altered(
    kafka: KafkaNode, key: int, *resources: dict[str, Any], version: int = 1, only: bool = False
) -> list[Any]:
    answer = await kafka.client.ask(key, version, resources=resources, validate_only=only)
    return list(answer.responses)


def codes(results: list[Any]) -> list[tuple[int, str, int]]:
    return [(each.resource_type, each.resource_name, each.error_code) for each in results]


async def set_configs(kafka: KafkaNode, topic: str = "") -> dict[str, str]:
    """Return the configs that are set for a topic or for the cluster."""
    which = {"topic": topic} if topic else {"cluster": True}
    request = admin_pb2.DescribeConfigsRequest(resources=[which])
    answer = await kafka.channel.call(ADMIN_DESCRIBE_CONFIGS, request, timeout_ms=WAIT_MS)
    of_resource = admin_pb2.CONFIG_SOURCE_TOPIC if topic else admin_pb2.CONFIG_SOURCE_CLUSTER
    return {
        config.name: config.value
        for config in answer.results[0].configs
        if config.source == of_resource
    }


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_configs_in_every_version(
    run: Run, folder: str, version: int
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", configs={"retention.ms": "7"})
            wanted = resource("t", plain("segment.bytes", "65536"))
            results = await altered(kafka, ALTER_CONFIGS, wanted, version=version)
            assert codes(results) == [(TOPIC, "t", 0)]
            assert await set_configs(kafka, "t") == {"segment.bytes": "65536"}

    run(main)


@pytest.mark.parametrize("version", range(2))
def test_single_configs_are_changed_in_every_version(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            configs = {"retention.ms": "7", "retention.bytes": "9"}
            await create_topic(kafka.channel, "t", configs=configs)
            wanted = resource(
                "t",
                to("segment.bytes", "65536"),
                to("retention.ms", None, DELETE),
                to("cleanup.policy", "compact", APPEND),
            )
            results = await altered(kafka, INCREMENTAL, wanted, version=version)
            assert codes(results) == [(TOPIC, "t", 0)]
            assert await set_configs(kafka, "t") == {
                "cleanup.policy": "delete,compact",
                "retention.bytes": "9",
                "segment.bytes": "65536",
            }
            wanted = resource("t", to("cleanup.policy", "delete", SUBTRACT))
            await altered(kafka, INCREMENTAL, wanted, version=version)
            assert (await set_configs(kafka, "t"))["cleanup.policy"] == "compact"

    run(main)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (INCREMENTAL, to("cleanup.policy", "delete", SUBTRACT)),
        (INCREMENTAL, to("cleanup.policy", "")),
        (ALTER_CONFIGS, plain("cleanup.policy", "")),
    ],
)
def test_an_empty_cleanup_policy_is_accepted(folder: str, key: int, change: dict[str, Any]) -> None:
    """KIP-1161: the topic keeps every record."""

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            assert codes(await altered(kafka, key, resource("t", change))) == [(TOPIC, "t", 0)]
            assert await set_configs(kafka, "t") == {"cleanup.policy": ""}
            wanted = resource("t", to("cleanup.policy", "compact", APPEND))
            await altered(kafka, INCREMENTAL, wanted)
            assert await set_configs(kafka, "t") == {"cleanup.policy": "compact"}

    simulation.run(main)


def test_a_broker_without_a_name_is_the_whole_cluster(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            wanted = resource("", to(RATE, "5"), kind=BROKER)
            assert codes(await altered(kafka, INCREMENTAL, wanted)) == [(BROKER, "", 0)]
            assert await set_configs(kafka) == {RATE: "5"}
            wanted = resource("", plain("leader.imbalance.per.broker.percentage", "5"), kind=BROKER)
            assert codes(await altered(kafka, ALTER_CONFIGS, wanted)) == [(BROKER, "", 0)]
            assert await set_configs(kafka) == {"leader.imbalance.per.broker.percentage": "5"}

    simulation.run(main)


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL])
def test_validation_alone_changes_nothing(folder: str, key: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", configs={"retention.ms": "7"})
            change = plain("segment.bytes", "65536")
            if key == INCREMENTAL:
                change["config_operation"] = SET
            assert codes(await altered(kafka, key, resource("t", change), only=True)) == [
                (TOPIC, "t", 0)
            ]
            assert await set_configs(kafka, "t") == {"retention.ms": "7"}

    simulation.run(main)


REFUSED: list[tuple[int, dict[str, Any], int, str]] = [
    (ALTER_CONFIGS, resource("t", plain("retention.mx", "1")), 40, "retention.ms"),
    (ALTER_CONFIGS, resource("t", plain("retention.ms", "x")), 40, "whole number"),
    (ALTER_CONFIGS, resource("t", plain("retention.ms", None)), 42, "no value"),
    (ALTER_CONFIGS, resource("t", plain("a", "1"), plain("a", "2")), 42, "given twice"),
    (ALTER_CONFIGS, resource("nope", plain("retention.ms", "1")), 3, "does not exist"),
    (ALTER_CONFIGS, resource("t/", plain("retention.ms", "1")), 17, "illegal"),
    (
        ALTER_CONFIGS,
        resource("1", plain("log.dir", "x"), kind=BROKER),
        42,
        "edit its configuration file",
    ),
    (ALTER_CONFIGS, resource("x", plain(RATE, "1"), kind=BROKER), 42, "give a node id"),
    (ALTER_CONFIGS, resource("", plain("retention.ms", "1"), kind=BROKER), 40, "is a topic config"),
    (ALTER_CONFIGS, resource("t", kind=8), 42, "loggers have no configs"),
    (ALTER_CONFIGS, resource("t", kind=16), 42, "client metrics have no configs"),
    (ALTER_CONFIGS, resource("t", kind=0), 42, "no such type"),
    (INCREMENTAL, resource("t", to("retention.ms", None)), 42, "no value"),
    (INCREMENTAL, resource("t", to("retention.ms", "1", 4)), 42, "operation 4 is unknown"),
    (INCREMENTAL, resource("t", to("retention.ms", "1", APPEND)), 40, "is not a list"),
    (INCREMENTAL, resource("t", to("cleanup.policy", "x", APPEND)), 40, "delete,x"),
    (INCREMENTAL, resource("t", to("retention.mx", None, DELETE)), 40, "retention.ms"),
    (INCREMENTAL, resource("t", to("a", "1"), to("a", None, DELETE)), 42, "given twice"),
    (INCREMENTAL, resource("nope", to("retention.ms", "1")), 3, "does not exist"),
    (INCREMENTAL, resource("nope"), 3, "does not exist"),
    (INCREMENTAL, resource("g", to("a", "1"), kind=32), 40, "unknown group config 'a'"),
    (INCREMENTAL, resource("", to("a", "1"), kind=32), 24, "0 characters"),
]


@pytest.mark.parametrize(("key", "wanted", "code", "message"), REFUSED)
def test_invalid_change_is_refused_and_does_not_stop_others(
    folder: str, key: int, wanted: dict[str, Any], code: int, message: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", configs={"retention.ms": "7"})
            await create_topic(kafka.channel, "other")
            other = resource("other", to("retention.ms", "5"))
            if key == ALTER_CONFIGS:
                other = resource("other", plain("retention.ms", "5"))
            refused, done = await altered(kafka, key, wanted, other)
            assert (refused.error_code, done.error_code) == (code, 0)
            assert message in refused.error_message
            assert await set_configs(kafka, "t") == {"retention.ms": "7"}
            assert await set_configs(kafka, "other") == {"retention.ms": "5"}

    simulation.run(main)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (resource("1", to("log.retention.ms", None, DELETE), kind=BROKER), 0),
        (resource("2", to("log.retention.ms", None, DELETE), kind=BROKER), 42),  # another broker
        (resource("", to("leader.replication.throttled.rate", None, DELETE), kind=BROKER), 0),
        (resource("", to("log.retention.ms", None, DELETE), kind=BROKER), 40),
        (resource("t", to("leader.replication.throttled.replicas", None, DELETE)), 0),
        (resource("t", to("leader.replication.throttled.replicas", "*")), 40),
        (resource("nope", to("leader.replication.throttled.replicas", None, DELETE)), 3),
    ],
)
def test_deleting_unset_throttle_configs_is_no_error(
    folder: str, wanted: dict[str, Any], code: int
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", configs={"retention.ms": "7"})
            (result,) = await altered(kafka, INCREMENTAL, wanted)
            assert result.error_code == code
            assert await set_configs(kafka, "t") == {"retention.ms": "7"}

    simulation.run(main)


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL])
def test_a_resource_that_is_named_twice_stays_as_it_is(folder: str, key: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", configs={"retention.ms": "7"})
            results = await altered(kafka, key, resource("t"), resource("t"))
            assert codes(results) == [(TOPIC, "t", 42)] * 2
            assert await set_configs(kafka, "t") == {"retention.ms": "7"}

    simulation.run(main)


def test_no_configs_at_all_delete_everything_or_change_nothing(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", configs={"retention.ms": "7"})
            assert codes(await altered(kafka, INCREMENTAL, resource("t"))) == [(TOPIC, "t", 0)]
            assert await set_configs(kafka, "t") == {"retention.ms": "7"}
            assert codes(await altered(kafka, ALTER_CONFIGS, resource("t"))) == [(TOPIC, "t", 0)]
            assert await set_configs(kafka, "t") == {}

    simulation.run(main)


def test_a_resource_with_too_many_configs_is_refused_and_the_others_are_changed(
    folder: str,
) -> None:
    """An AlterConfigs request has fewer elements."""

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            many = resource("", *[to("x", "")] * (PARTS_MAX + 1), kind=BROKER)
            large, small = await altered(
                kafka, INCREMENTAL, many, resource("t", to("retention.ms", "7"))
            )
            assert large.error_code == 42
            assert f"the limit is {PARTS_MAX}" in large.error_message
            assert small.error_code == 0
            assert await set_configs(kafka, "t") == {"retention.ms": "7"}

    simulation.run(main)
