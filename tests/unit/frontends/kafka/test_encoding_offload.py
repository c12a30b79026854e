"""Responses encoded in a thread equal those encoded on the loop."""

from typing import Any

import pytest
from tests.kit.kafka_node import serving_kafka
from tests.kit.node import Run

from quorumlog import simulation
from quorumlog.frontends.kafka import messages
from quorumlog.frontends.kafka.api import FileRange
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.encoding_offload import ELEMENTS_ON_THE_LOOP_MAX, EncodedResponse
from quorumlog.runtime import Runtime

from .admin_calls import create_topic

METADATA, DESCRIBE_CONFIGS = 3, 32
MANY = ELEMENTS_ON_THE_LOOP_MAX + 1
API = {api.key: api for api in APIS}


@pytest.mark.parametrize(
    ("key", "version"),
    [(METADATA, version) for version in range(14)] + [(DESCRIBE_CONFIGS, v) for v in range(1, 5)],
)
@pytest.mark.parametrize("throttle_ms", [0, 1, 2**31 - 1])
def test_throttle_time_is_at_its_position_of_the_schema(
    key: int, version: int, throttle_ms: int
) -> None:
    api = API[key]
    answer: dict[str, Any] = {"results": []}
    if key == METADATA:
        answer = {"brokers": (), "cluster_id": "c", "controller_id": 1, "topics": ()}
    body = messages.encode(api, version, answer)
    made = EncodedResponse(body, (), messages.begins_with_throttle_time(api, version))
    expected = messages.encode(api, version, answer, throttle_ms=throttle_ms)
    parts = [part for part in made.parts(throttle_ms) if not isinstance(part, FileRange)]
    assert b"".join(parts) == expected
    assert made.size == 0


def test_many_partitions_are_encoded_like_few(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "few", partitions=2)
            await create_topic(kafka.channel, "many", partitions=MANY)
            few, many = [
                await kafka.client.ask(
                    METADATA,
                    13,
                    topics=[{"name": name, "topic_id": b""}],
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=False,
                )
                for name in ("few", "many")
            ]
            assert many.brokers == few.brokers
            assert [part.partition_index for part in many.topics[0].partitions] == list(range(MANY))
            assert many.topics[0].partitions[:2] == few.topics[0].partitions

    run(main)


def test_many_configs_are_encoded_like_few(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            names = [f"t{number}" for number in range(50)]
            for name in names:
                await create_topic(kafka.channel, name, configs={"retention.ms": "7"})
            resources = [
                {"resource_type": 2, "resource_name": name, "configuration_keys": None}
                for name in names
            ]
            (few,) = (await kafka.client.ask(DESCRIBE_CONFIGS, 4, resources=resources[:1])).results
            many = await kafka.client.ask(DESCRIBE_CONFIGS, 4, resources=resources)
            assert 50 * len(few.configs) > MANY
            assert [each.resource_name for each in many.results] == names
            assert all(each.configs == few.configs for each in many.results)

    simulation.run(main)
