"""Configs of the cluster: the table, refused changes, and their consequences."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import InvalidConfig, InvalidRequest
from quorumlog.metadata import (
    CLUSTER_CONFIGS,
    AlterClusterConfigs,
    ClusterConfigsAltered,
    ConfigType,
    Decision,
    ListChange,
    cluster_number,
    cluster_switch,
    effective_cluster_configs,
    effective_configs,
)
from quorumlog.metadata.cluster_configs import check_cluster_changes, may_elect_unclean

UNCLEAN = "unclean.leader.election.enable"
RATE = "replication.throttled.rate"


def alter(
    cluster: Cluster, *changes: tuple[str, str | None], validate_only: bool = False
) -> Decision:
    return cluster.do(AlterClusterConfigs(changes=changes, validate_only=validate_only))


@pytest.mark.parametrize("name", CLUSTER_CONFIGS)
def test_every_row_is_complete_and_its_default_is_legal(name: str) -> None:
    row = CLUSTER_CONFIGS[name]
    assert row.doc.endswith(".")
    assert row.type is not ConfigType.WHOLE or row.unit
    assert check_cluster_changes([(name, row.default)]) == {name: row.default}
    assert list(CLUSTER_CONFIGS) == sorted(CLUSTER_CONFIGS)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("replication.throttle.rate", "1")], r"did you mean replication.throttled.rate\?"),
        ([("retention.ms", "1")], "unknown cluster config 'retention.ms'"),
        ([(RATE, "fast")], "fast"),
        ([(RATE, "-2")], "0 or more, or -1 for no limit"),
        ([(UNCLEAN, "maybe")], "give true or false"),
        ([(RATE, "1"), (RATE, None)], "more than once"),
        ([("x" * 300, "1")], "300 characters"),
        ([("leader.imbalance.per.broker.percentage", "101")], "0..100"),
    ],
)
def test_bad_changes_are_refused_with_the_reason(
    changes: list[tuple[str, str | None]], why: str
) -> None:
    with pytest.raises(InvalidConfig, match=why):
        check_cluster_changes(changes)


def test_set_values_apply_and_others_have_their_default(cluster: Cluster) -> None:
    cluster.start(1, 2)
    decision = alter(cluster, (RATE, "10MiB"), (UNCLEAN, "TRUE"))
    assert decision.reply == ClusterConfigsAltered(
        configs=((RATE, str(10 << 20)), (UNCLEAN, "true"))
    )
    assert decision.brokers == (1, 2)
    configs = cluster.image.cluster_configs
    assert cluster_number(configs, RATE) == 10 << 20
    assert cluster_switch(configs, UNCLEAN)
    assert effective_cluster_configs(configs)["leader.imbalance.check.interval.seconds"] == "300"
    alter(cluster, (RATE, None))
    assert cluster_number(cluster.image.cluster_configs, RATE) == -1


def test_repeat_and_validation_change_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    alter(cluster, (RATE, "5"))
    assert alter(cluster, (RATE, "5")).records == ()
    looked = alter(cluster, (RATE, "6"), validate_only=True)
    assert looked.records == ()
    assert looked.reply == ClusterConfigsAltered(configs=((RATE, "6"),))
    assert cluster_number(cluster.image.cluster_configs, RATE) == 5
    with pytest.raises(InvalidRequest):
        alter(cluster)


def test_replacement_sets_the_given_configs_and_deletes_the_others(cluster: Cluster) -> None:
    cluster.start(1)
    alter(cluster, (RATE, "5"), (UNCLEAN, "true"))
    command = AlterClusterConfigs(changes=((RATE, "6"),), replace=True)
    assert cluster.do(command).reply == ClusterConfigsAltered(configs=((RATE, "6"),))
    command = AlterClusterConfigs(changes=(), replace=True)
    assert cluster.do(command).reply == ClusterConfigsAltered(configs=())


def test_no_config_of_the_cluster_is_a_list(cluster: Cluster) -> None:
    change = ListChange(name=UNCLEAN, parts=("true",))
    with pytest.raises(InvalidConfig, match=f"{UNCLEAN} is not a list"):
        cluster.do(AlterClusterConfigs(changes=(), lists=(change,)))


@pytest.mark.parametrize(
    ("topic", "cluster", "may"),
    [
        ({}, {}, False),
        ({}, {UNCLEAN: "true"}, True),
        ({UNCLEAN: "false"}, {UNCLEAN: "true"}, False),
        ({UNCLEAN: "true"}, {}, True),
    ],
)
def test_topic_config_overrides_the_cluster_in_unclean_elections(
    topic: dict[str, str], cluster: dict[str, str], may: bool
) -> None:
    assert may_elect_unclean(topic, cluster) is may
    effective = effective_configs(topic, replication_factor=1, cluster_configs=cluster)
    assert effective[UNCLEAN] == str(may).lower()


def test_allowing_unclean_elections_gives_leaders_to_partitions_without_one(
    cluster: Cluster,
) -> None:
    """Broker 2 left the ISR, then broker 1 died: no broker can lead without a possible loss."""
    cluster.start(1, 2)
    cluster.assign("a", (1, 2), min_insync_replicas="1")
    cluster.set_isr("a", 1)
    cluster.fence(1)
    assert cluster.partition("a").leader == -1
    alter(cluster, (UNCLEAN, "true"))
    assert cluster.partition("a").leader == 2
    assert cluster.partition("a").recovering
