"""Configs and features of the whole cluster, by raw calls."""

from typing import Any

import pytest
from tests.kit.node import WAIT_MS, serving

from quorumlog import simulation
from quorumlog.errors import (
    BrokerIdNotRegistered,
    FeatureUpdateFailed,
    InvalidConfig,
    InvalidRequest,
)
from quorumlog.metadata.cluster_configs import CLUSTER_CONFIGS
from quorumlog.proto import admin_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.services import (
    ADMIN_ALTER_CLUSTER_CONFIGS,
    ADMIN_ALTER_CONFIGS,
    ADMIN_CREATE_TOPIC,
    ADMIN_DESCRIBE_CONFIGS,
    ADMIN_DESCRIBE_FEATURES,
    ADMIN_UNREGISTER_BROKER,
    ADMIN_UPDATE_FEATURES,
)

UNCLEAN = "unclean.leader.election.enable"


def test_every_config_of_the_cluster_is_described(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            request = pb.DescribeConfigsRequest(resources=[pb.ConfigResource(cluster=True)])
            answer = await channel.call(ADMIN_DESCRIBE_CONFIGS, request, timeout_ms=WAIT_MS)
            (result,) = answer.results
            assert result.resource.cluster
            assert [entry.name for entry in result.configs] == list(CLUSTER_CONFIGS)
            for entry in result.configs:
                assert entry.value == entry.default_value == CLUSTER_CONFIGS[entry.name].default
                assert entry.source == pb.CONFIG_SOURCE_DEFAULT
                assert entry.doc
                assert entry.changes

    simulation.run(main)


def test_cluster_config_applies_to_topics_without_an_own_value(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            for name, configs in (("said", [{"name": UNCLEAN, "value": "false"}]), ("unsaid", [])):
                create = pb.CreateTopicRequest(name=name, configs=configs)
                await channel.call(ADMIN_CREATE_TOPIC, create, timeout_ms=WAIT_MS)
            alter = pb.AlterClusterConfigsRequest(changes=[{"name": UNCLEAN, "value": "true"}])
            altered = await channel.call(ADMIN_ALTER_CLUSTER_CONFIGS, alter, timeout_ms=WAIT_MS)
            assert [(each.name, each.value) for each in altered.configs] == [(UNCLEAN, "true")]
            request = pb.DescribeConfigsRequest(
                resources=[{"cluster": True}, {"topic": "said"}, {"topic": "unsaid"}],
                min_metadata_offset=altered.metadata_offset,
            )
            answer = await channel.call(ADMIN_DESCRIBE_CONFIGS, request, timeout_ms=WAIT_MS)
            found = [
                (entry.value, entry.source)
                for result in answer.results
                for entry in result.configs
                if entry.name == UNCLEAN
            ]
            assert found == [
                ("true", pb.CONFIG_SOURCE_CLUSTER),
                ("false", pb.CONFIG_SOURCE_TOPIC),
                ("true", pb.CONFIG_SOURCE_CLUSTER),
            ]

    simulation.run(main)


def test_configs_are_replaced_and_lists_changed(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            configs: Any = [{"name": "retention.ms", "value": "7"}]
            create = pb.CreateTopicRequest(name="t", configs=configs)
            await channel.call(ADMIN_CREATE_TOPIC, create, timeout_ms=WAIT_MS)
            add: Any = {
                "name": "cleanup.policy",
                "value": "compact",
                "operation": pb.CONFIG_OPERATION_APPEND,
            }
            alter = pb.AlterConfigsRequest(topic="t", changes=[add], replace=True)
            answer = await channel.call(ADMIN_ALTER_CONFIGS, alter, timeout_ms=WAIT_MS)
            assert [(each.name, each.value) for each in answer.configs] == [
                ("cleanup.policy", "delete,compact")
            ]
            keep: Any = {"name": "cleanup.policy", "value": ""}
            alter = pb.AlterConfigsRequest(topic="t", changes=[keep])
            answer = await channel.call(ADMIN_ALTER_CONFIGS, alter, timeout_ms=WAIT_MS)
            assert [(each.name, each.value) for each in answer.configs] == [("cleanup.policy", "")]
            alter = pb.AlterConfigsRequest(topic="t", replace=True)
            answer = await channel.call(ADMIN_ALTER_CONFIGS, alter, timeout_ms=WAIT_MS)
            assert list(answer.configs) == []
            cluster = pb.AlterClusterConfigsRequest(replace=True)
            changed = await channel.call(ADMIN_ALTER_CLUSTER_CONFIGS, cluster, timeout_ms=WAIT_MS)
            assert list(changed.configs) == []

    simulation.run(main)


def test_a_bad_config_of_the_cluster_changes_nothing(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            changes = [
                {"name": UNCLEAN, "value": "true"},
                {"name": "replication.throttle", "value": "1"},
            ]
            request = pb.AlterClusterConfigsRequest(changes=changes)
            with pytest.raises(InvalidConfig, match=r"did you mean replication.throttled.rate\?"):
                await channel.call(ADMIN_ALTER_CLUSTER_CONFIGS, request, timeout_ms=WAIT_MS)
            ask = pb.DescribeConfigsRequest(resources=[{"cluster": True}])
            answer = await channel.call(ADMIN_DESCRIBE_CONFIGS, ask, timeout_ms=WAIT_MS)
            sources = {entry.source for entry in answer.results[0].configs}
            assert sources == {pb.CONFIG_SOURCE_DEFAULT}

    simulation.run(main)


def test_features_are_described_and_an_unknown_level_is_refused(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            described = await channel.call(
                ADMIN_DESCRIBE_FEATURES, pb.DescribeFeaturesRequest(), timeout_ms=WAIT_MS
            )
            (feature,) = [each for each in described.features if each.name == "metadata.version"]
            assert feature.level_min <= feature.level <= feature.level_max
            assert feature.doc
            same = pb.UpdateFeaturesRequest(
                updates=[{"name": feature.name, "level": feature.level}]
            )
            updated = await channel.call(ADMIN_UPDATE_FEATURES, same, timeout_ms=WAIT_MS)
            assert feature in updated.features
            newer = pb.UpdateFeaturesRequest(updates=[{"name": feature.name, "level": 99}])
            with pytest.raises(FeatureUpdateFailed, match="not 99"):
                await channel.call(ADMIN_UPDATE_FEATURES, newer, timeout_ms=WAIT_MS)

    simulation.run(main)


def test_only_a_broker_that_is_down_can_be_unregistered(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            for broker, kind in ((1, InvalidRequest), (2, BrokerIdNotRegistered)):
                request = pb.UnregisterBrokerRequest(broker=broker)
                with pytest.raises(kind):
                    await channel.call(ADMIN_UNREGISTER_BROKER, request, timeout_ms=WAIT_MS)

    simulation.run(main)
