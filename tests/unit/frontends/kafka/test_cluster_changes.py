"""UpdateFeatures, UnregisterBroker and partition reassignments on one node."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka

from quorumlog import simulation
from quorumlog.runtime import Runtime

from .admin_calls import NODE, create_topic, timed

ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, UPDATE_FEATURES, UNREGISTER_BROKER = 45, 46, 57, 64
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


async def updated(
    kafka: KafkaNode,
    name: str,
    level: int,
    *,
    version: int = 2,
    kind: int = UPGRADE,
    validate_only: bool = False,
) -> Any:
    update: dict[str, Any] = {"feature": name, "max_version_level": level}
    if version == 0:
        update["allow_downgrade"] = kind != UPGRADE
    else:
        update["upgrade_type"] = kind
    fields = {"feature_updates": (update,), "validate_only": validate_only}
    return await timed(kafka.client, UPDATE_FEATURES, version, **fields)


@pytest.mark.parametrize("version", range(3))
def test_level_that_all_nodes_support_is_accepted_in_every_version(
    folder: str, version: int
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await updated(kafka, "metadata.version", 1, version=version)
            assert (answer.error_code, answer.error_message) == (0, None)
            if version <= 1:
                assert [(each.feature, each.error_code) for each in answer.results] == [
                    ("metadata.version", 0)
                ]

    simulation.run(main)


@pytest.mark.parametrize(
    ("name", "level", "kind", "code", "message"),
    [
        ("metadata.version", 99, UPGRADE, 96, "99"),
        ("metadata.version", 0, UPGRADE, 96, "downgrade"),
        ("metadata.version", 0, SAFE_DOWNGRADE, 96, "1..1"),
        ("metadata.version", 0, UNSAFE_DOWNGRADE, 96, "1..1"),
        ("metadata.version", -1, UPGRADE, 42, "give 0 or more"),
        ("metadata.version", 1, 0, 42, "give 1 (upgrade)"),
        ("metadata.versions", 1, UPGRADE, 96, "did you mean metadata.version"),
    ],
)
def test_invalid_level_is_refused_with_its_code(
    folder: str, name: str, level: int, kind: int, code: int, message: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await updated(kafka, name, level, kind=kind)
            assert answer.error_code == code
            assert message in answer.error_message

    simulation.run(main)


def test_a_refused_update_has_no_results_of_features(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await updated(kafka, "metadata.version", 99, version=0)
            assert (answer.error_code, answer.results) == (96, ())

    simulation.run(main)


@pytest.mark.parametrize(
    ("broker", "code"),
    [(77, 102), (-1, 42)],
)
def test_unknown_broker_cannot_be_unregistered(folder: str, broker: int, code: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await kafka.client.ask(UNREGISTER_BROKER, 0, broker_id=broker)
            assert answer.error_code == code
            assert answer.error_message

    simulation.run(main)


def test_live_broker_is_not_unregistered(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await kafka.client.ask(UNREGISTER_BROKER, 0, broker_id=NODE)
            assert answer.error_code != 0

    simulation.run(main)


@pytest.mark.parametrize(
    "topics", [None, (), ({"name": "t", "partition_indexes": (0, 9)},), ({"name": "nope"},)]
)
def test_idle_cluster_lists_no_reassignment(folder: str, topics: Any) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create_topic(kafka.channel, "t")
            answer = await timed(kafka.client, LIST_REASSIGNMENTS, 0, topics=topics)
            assert (answer.error_code, answer.error_message, answer.topics) == (0, None, ())

    simulation.run(main)


@pytest.mark.parametrize("may_change", [False, True])
def test_response_repeats_the_flag_for_changes_of_the_replication_factor(
    folder: str, may_change: bool
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            moves = [{"partition_index": 0, "replicas": (NODE,)}]
            answer = await timed(
                kafka.client,
                ALTER_REASSIGNMENTS,
                1,
                allow_replication_factor_change=may_change,
                topics=[{"name": "nope", "partitions": moves}],
            )
            assert answer.error_code == 0
            assert answer.allow_replication_factor_change is may_change

    simulation.run(main)
