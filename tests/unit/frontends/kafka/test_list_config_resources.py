"""ListConfigResources lists the resources with configs by type, in every version."""

from collections.abc import Collection
from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, run_on_kafka_node

from .admin_calls import NODE, create_topic

LIST_CONFIG_RESOURCES = 74
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
UNSUPPORTED_VERSION = 35


async def named(kafka: KafkaNode, *kinds: int) -> list[tuple[int, str]]:
    answer = await kafka.client.ask(LIST_CONFIG_RESOURCES, 1, resource_types=kinds)
    assert not answer.error_code
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


def run_with_topics(main: Any, folder: str, topics: Collection[str]) -> None:
    async def create_and_run(kafka: KafkaNode) -> None:
        for name in topics:
            await create_topic(kafka.channel, name)
        await main(kafka)

    run_on_kafka_node(create_and_run, folder)


def test_topics_and_brokers_are_named_by_kind(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        topics, broker = [(TOPIC, "a"), (TOPIC, "b")], (BROKER, str(NODE))
        assert await named(kafka) == [*topics, broker]
        assert await named(kafka, BROKER, TOPIC) == [*topics, broker]
        assert await named(kafka, BROKER) == [broker]
        assert await named(kafka, TOPIC) == topics

    run_with_topics(main, folder, "ba")


@pytest.mark.parametrize("kind", [LOGGER, CLIENT_METRICS])
def test_resource_types_without_configs_are_empty(folder: str, kind: int) -> None:
    async def main(kafka: KafkaNode) -> None:
        assert await named(kafka, kind) == []
        assert await named(kafka, kind, TOPIC) == [(TOPIC, "a")]

    run_with_topics(main, folder, "a")


def test_groups_with_configs_are_named(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        assert await named(kafka, GROUP) == []
        for group in ("h", "g"):
            change = {"name": "consumer.assignor", "value": "range", "config_operation": 0}
            resource = {"resource_type": GROUP, "resource_name": group, "configs": [change]}
            answer = await kafka.client.ask(44, 1, resources=[resource], validate_only=False)
            assert not answer.responses[0].error_code
        assert await named(kafka, GROUP) == [(GROUP, "g"), (GROUP, "h")]
        assert await named(kafka) == [(TOPIC, "a"), (BROKER, str(NODE)), (GROUP, "g"), (GROUP, "h")]

    run_with_topics(main, folder, "a")


def test_the_oldest_version_asks_for_client_metrics(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        answer = await kafka.client.ask(LIST_CONFIG_RESOURCES, 0)
        assert not answer.error_code
        assert answer.config_resources == ()

    run_with_topics(main, folder, "a")


def test_unknown_resource_type_is_refused(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        for kind in (0, 3, 64, -1):
            answer = await kafka.client.ask(LIST_CONFIG_RESOURCES, 1, resource_types=(TOPIC, kind))
            assert int(answer.error_code) == UNSUPPORTED_VERSION
            assert answer.config_resources == ()

    run_with_topics(main, folder, "a")
