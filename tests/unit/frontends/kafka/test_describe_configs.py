"""DescribeConfigs of topics, the cluster, brokers and groups, in every version."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS, Run

from quorumlog import simulation
from quorumlog.metadata import CLUSTER_CONFIGS, TOPIC_CONFIGS
from quorumlog.proto import admin_pb2
from quorumlog.runtime import Runtime
from quorumlog.server.config import settings
from quorumlog.services import ADMIN_ALTER_CLUSTER_CONFIGS

from .admin_calls import NODE, create_topic

DESCRIBE_CONFIGS = 32
TOPIC, BROKER, GROUP = 2, 4, 32
OF_TOPIC, OF_CLUSTER, OF_FILE, DEFAULT, OF_GROUP = 1, 3, 4, 5, 8
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
UNCLEAN = "unclean.leader.election.enable"


def resource(name: str, *names: str, kind: int = TOPIC) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": names or None}


async def described_configs(
    kafka: KafkaNode, *resources: dict[str, Any], version: int = 4, **fields: Any
) -> list[Any]:
    answer = await kafka.client.ask(DESCRIBE_CONFIGS, version, resources=resources, **fields)
    return list(answer.results)


async def configs_of(kafka: KafkaNode, wanted: dict[str, Any], **fields: Any) -> dict[str, Any]:
    (result,) = await described_configs(kafka, wanted, **fields)
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.resource_type, result.resource_name) == (
        wanted["resource_type"],
        wanted["resource_name"],
    )
    return {config.name: config for config in result.configs}


async def alter_cluster(kafka: KafkaNode, name: str, value: str) -> None:
    change = admin_pb2.ConfigChange(name=name, value=value)
    request = admin_pb2.AlterClusterConfigsRequest(changes=[change])
    await kafka.channel.call(ADMIN_ALTER_CLUSTER_CONFIGS, request, timeout_ms=WAIT_MS)


@pytest.mark.parametrize("version", range(1, 5))
def test_every_config_of_a_topic_is_described_in_every_version(
    run: Run, folder: str, version: int
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t", configs={"retention.ms": "7"})
            configs = await configs_of(kafka, resource("t"), version=version)
            assert list(configs) == list(TOPIC_CONFIGS)
            retention, segment = configs["retention.ms"], configs["segment.bytes"]
            assert (retention.value, retention.config_source) == ("7", OF_TOPIC)
            assert (segment.value, segment.config_source) == (str(1 << 30), DEFAULT)
            assert not any(each.read_only or each.is_sensitive for each in configs.values())
            assert not any(each.synonyms for each in configs.values())

    run(main)


def test_types_are_those_of_the_table(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            configs = await configs_of(kafka, resource("t"))
            expected = {
                "retention.ms": LONG,
                "segment.bytes": INT,
                "min.cleanable.dirty.ratio": DOUBLE,
                UNCLEAN: BOOLEAN,
                "compression.type": STRING,
                "cleanup.policy": LIST,
            }
            assert {name: configs[name].config_type for name in expected} == expected

    simulation.run(main)


def test_documentation_of_a_config_is_returned_on_request(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            wanted = resource("t", "retention.ms", "nope")
            quiet = await configs_of(kafka, wanted, version=3)
            assert [(each.name, each.documentation) for each in quiet.values()] == [
                ("retention.ms", None)
            ]
            asked = await configs_of(kafka, wanted, version=3, include_documentation=True)
            assert asked["retention.ms"].documentation == TOPIC_CONFIGS["retention.ms"].doc

    simulation.run(main)


def test_synonyms_have_every_configured_value(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "said", configs={UNCLEAN: "false", "segment.ms": "9"})
            await create_topic(kafka.channel, "unsaid")
            await alter_cluster(kafka, UNCLEAN, "true")

            async def synonyms(wanted: dict[str, Any], name: str) -> list[tuple[str, int]]:
                configs = await configs_of(kafka, wanted, include_synonyms=True)
                assert all(each.name == name for each in configs[name].synonyms)
                return [(each.value, each.source) for each in configs[name].synonyms]

            assert await synonyms(resource("said"), UNCLEAN) == [
                ("false", OF_TOPIC),
                ("true", OF_CLUSTER),
            ]
            assert await synonyms(resource("unsaid"), UNCLEAN) == [("true", OF_CLUSTER)]
            assert await synonyms(resource("", kind=BROKER), UNCLEAN) == [
                ("true", OF_CLUSTER),
                ("false", DEFAULT),
            ]
            week = str(7 * 24 * 3_600_000)
            assert await synonyms(resource("said"), "segment.ms") == [
                ("9", OF_TOPIC),
                (week, DEFAULT),
            ]
            assert await synonyms(resource("unsaid"), "segment.ms") == [(week, DEFAULT)]

    simulation.run(main)


def test_a_broker_without_a_name_is_the_whole_cluster(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await alter_cluster(kafka, UNCLEAN, "true")
            configs = await configs_of(kafka, resource("", kind=BROKER))
            assert list(configs) == list(CLUSTER_CONFIGS)
            assert (configs[UNCLEAN].value, configs[UNCLEAN].config_source) == ("true", OF_CLUSTER)
            assert not configs[UNCLEAN].read_only

    simulation.run(main)


def test_broker_describes_its_settings_and_those_of_the_cluster(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            configs = await configs_of(kafka, resource(str(NODE), kind=BROKER))
            assert set(configs) == {*(row.name for row in settings()), *CLUSTER_CONFIGS}
            assert list(configs) == sorted(configs)
            assert (configs["node.id"].value, configs["node.id"].config_source) == ("1", DEFAULT)
            assert configs["listeners.grpc"].value == "127.0.0.1:0"
            assert configs["listeners.grpc"].config_source == OF_FILE
            assert all(config.read_only for config in configs.values())

    simulation.run(main)


def test_configs_of_a_group_are_altered_and_described(folder: str) -> None:
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    async def main(runtime: Runtime) -> None:
        interval_ms: dict[str, Any] = {"group_consumer_heartbeat_interval_ms": 1_000}
        async with serving_kafka(runtime, folder, **interval_ms) as kafka:
            changes = [
                {"name": session, "value": "9000", "config_operation": 0},
                {"name": "consumer.assignor", "value": "range", "config_operation": 0},
            ]
            group = {"resource_type": GROUP, "resource_name": "g", "configs": changes}
            answer = await kafka.client.ask(44, 1, resources=[group], validate_only=False)
            assert not answer.responses[0].error_code
            configs = await configs_of(kafka, resource("g", kind=GROUP), include_synonyms=True)
            assert {name: each.value for name, each in configs.items()} == {
                "consumer.assignor": "range",
                interval: "1000",
                session: "9000",
            }
            assert configs[session].config_source == OF_GROUP
            assert configs[session].config_type == INT
            assert [(each.value, each.source) for each in configs[session].synonyms] == [
                ("9000", OF_GROUP),
                ("45000", DEFAULT),
            ]
            assert configs[interval].config_source == OF_FILE
            assert not any(each.read_only for each in configs.values())
            other = await configs_of(kafka, resource("other", session, kind=GROUP))
            assert [(each.value, each.config_source) for each in other.values()] == [
                ("45000", DEFAULT)
            ]

    simulation.run(main)


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (resource("nope"), 3, "does not exist"),
        (resource("t/"), 17, "illegal"),
        (resource("2", kind=BROKER), 42, "ask broker 2"),
        (resource("-1", kind=BROKER), 42, "give a node id"),
        (resource("99999999999", kind=BROKER), 42, "give a node id"),
        (resource("one", kind=BROKER), 42, "give a node id"),
        (resource("1", kind=8), 42, "loggers have no configs"),
        (resource("", kind=32), 24, "0 characters"),
        (resource("t", kind=99), 42, "no such type"),
    ],
)
def test_what_has_no_configs_is_refused_by_itself(
    folder: str, wanted: dict[str, Any], code: int, message: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            refused, other = await described_configs(kafka, wanted, resource("t"))
            assert (refused.error_code, refused.configs) == (code, ())
            assert message in refused.error_message
            assert (other.error_code, len(other.configs)) == (0, len(TOPIC_CONFIGS))

    simulation.run(main)


def test_too_many_resources_are_refused_each(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            results = await described_configs(kafka, *[resource("t")] * 1_001)
            assert {each.error_code for each in results} == {42}
            assert len(results) == 1_001

    simulation.run(main)
