"""The config that makes a topic a mirror, and its removal."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import InvalidConfig
from quorumlog.metadata import AlterConfigs

SOURCE = "mirror.source"


@pytest.fixture
def mirror(cluster: Cluster) -> Cluster:
    cluster.start(1)
    cluster.create("t", replication_factor=1, configs=((SOURCE, "c-1/t-1"), ("retention.ms", "7")))
    return cluster


def alter(cluster: Cluster, *changes: tuple[str, str | None], replace: bool = False) -> None:
    cluster.do(AlterConfigs(topic="t", changes=changes, replace=replace))


def source(cluster: Cluster) -> str | None:
    return cluster.topic("t").configs.get(SOURCE)


def test_mirror_is_promoted_by_removing_its_source_for_good(
    mirror: Cluster,
) -> None:
    alter(mirror, (SOURCE, "c-1/t-1"))
    assert source(mirror) == "c-1/t-1", "a repeat changes nothing"
    alter(mirror, (SOURCE, None))
    assert source(mirror) is None
    with pytest.raises(InvalidConfig, match="set only when a topic is created"):
        alter(mirror, (SOURCE, "c-1/t-1"))


def test_mirror_cannot_change_its_source(mirror: Cluster) -> None:
    with pytest.raises(InvalidConfig, match="set only when a topic is created"):
        alter(mirror, (SOURCE, "c-2/t-1"))
    assert source(mirror) == "c-1/t-1"


def test_replacement_of_all_configs_keeps_an_omitted_source(
    mirror: Cluster,
) -> None:
    alter(mirror, ("segment.ms", "9"), replace=True)
    assert dict(mirror.topic("t").configs) == {SOURCE: "c-1/t-1", "segment.ms": "9"}


@pytest.mark.parametrize("text", ["", "two words", "a/b/c", "x" * 121, "c-1/"])
def test_invalid_cluster_id_is_refused(cluster: Cluster, text: str) -> None:
    cluster.start(1)
    with pytest.raises(InvalidConfig, match="give a cluster id"):
        cluster.create("t", replication_factor=1, configs=((SOURCE, text),))
