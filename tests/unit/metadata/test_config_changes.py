"""Changes of a topic's configs are atomic, and replay gives the decided values."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from quorumlog.metadata import AlterConfigs, ConfigsAltered, Decision, DeltaBuilder, ListChange


@pytest.fixture
def topic(cluster: Cluster) -> Cluster:
    cluster.start(1, 2)
    cluster.create("t", replication_factor=2, configs=(("retention.ms", "7"),))
    return cluster


def alter(cluster: Cluster, *changes: tuple[str, str | None], only: bool = False) -> Decision:
    return cluster.do(AlterConfigs(topic="t", changes=changes, validate_only=only))


def configs_of(decision: Decision) -> dict[str, str]:
    assert isinstance(decision.reply, ConfigsAltered)
    return dict(decision.reply.configs)


def test_configs_are_set_and_deleted_and_the_others_stay(topic: Cluster) -> None:
    alter(topic, ("segment.bytes", "1GiB"), ("max.message.bytes", " 070 "))
    decision = alter(topic, ("retention.ms", None), ("segment.bytes", "64KiB"))
    expected = {"max.message.bytes": "70", "segment.bytes": "65536"}
    assert dict(topic.topic("t").configs) == configs_of(decision) == expected
    assert decision.brokers == (1, 2)


def test_a_repeat_writes_nothing(topic: Cluster) -> None:
    changes = (("segment.bytes", "65536"), ("retention.ms", None))
    assert len(alter(topic, *changes).records) == 2
    repeated = alter(topic, *changes)
    assert repeated.records == ()
    assert configs_of(repeated) == {"segment.bytes": "65536"}


def test_deletion_of_an_unset_config_is_no_error(topic: Cluster) -> None:
    assert alter(topic, ("segment.bytes", None)).records == ()


def test_validation_returns_the_result_and_changes_nothing(topic: Cluster) -> None:
    decision = alter(topic, ("segment.bytes", "64KiB"), only=True)
    assert configs_of(decision) == {"retention.ms": "7", "segment.bytes": "65536"}
    assert (decision.records, decision.brokers) == ((), ())
    assert dict(topic.topic("t").configs) == {"retention.ms": "7"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ((("retention.mss", "1"),), "did you mean retention.ms"),
        ((("retention.mss", None),), "did you mean retention.ms"),
        ((("segment.bytes", "1"),), "segment.bytes is 1; give a whole number of bytes"),
        (
            (("segment.bytes", "2000"), ("segment.bytes", None)),
            "segment.bytes is given more than once",
        ),
        ((("min.insync.replicas", "3"),), r"above the replication factor 2; .*; give 1\.\.2"),
        ((("segment.bytes", "2000"), ("flush.policy", "maybe")), "flush.policy is 'maybe'"),
    ],
)
def test_one_bad_change_refuses_all(
    topic: Cluster, changes: tuple[tuple[str, str | None], ...], why: str
) -> None:
    before = topic.image
    with pytest.raises(InvalidConfig, match=why):
        alter(topic, *changes)
    assert topic.image is before


def test_a_change_of_nothing_is_refused(topic: Cluster) -> None:
    with pytest.raises(InvalidRequest, match="no changes"):
        alter(topic)


def test_a_topic_that_does_not_exist_is_named(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopicOrPartition) as caught:
        alter(cluster, ("segment.bytes", "2000"))
    assert caught.value.topic == "t"


def test_change_is_in_the_delta_of_its_topic_only(topic: Cluster) -> None:
    topic.create("other")
    before = topic.image
    decision = alter(topic, ("segment.bytes", "2000"), ("retention.ms", None))
    delta = DeltaBuilder(before)
    for offset, record in enumerate(decision.records, before.offset + 1):
        delta.replay(record, offset=offset, epoch=1)
    ((old, new),) = delta.build().changed_topics()
    assert (dict(old.configs), dict(new.configs)) == (
        {"retention.ms": "7"},
        {"segment.bytes": "2000"},
    )
    assert list(delta.build().changed_partitions()) == []


# --- replacing all, and changing lists ---------------------------------------------------------


def replace(cluster: Cluster, *changes: tuple[str, str | None]) -> Decision:
    return cluster.do(AlterConfigs(topic="t", changes=changes, replace=True))


def test_replacement_sets_the_given_configs_and_deletes_the_others(topic: Cluster) -> None:
    decision = replace(topic, ("segment.bytes", "64KiB"))
    assert dict(topic.topic("t").configs) == configs_of(decision) == {"segment.bytes": "65536"}
    assert replace(topic, ("segment.bytes", "65536")).records == ()
    assert configs_of(replace(topic)) == {}


def test_a_replacement_with_one_bad_change_keeps_everything(topic: Cluster) -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.ms is 'soon'"):
        replace(topic, ("segment.bytes", "64KiB"), ("retention.ms", "soon"))
    assert dict(topic.topic("t").configs) == {"retention.ms": "7"}


def change_list(cluster: Cluster, name: str, *parts: str, is_removal: bool = False) -> Decision:
    change = ListChange(name=name, parts=parts, is_removal=is_removal)
    return cluster.do(AlterConfigs(topic="t", changes=(), lists=(change,)))


def policy(decision: Decision) -> str:
    return configs_of(decision)["cleanup.policy"]


def test_list_gains_missing_and_loses_existing_elements(topic: Cluster) -> None:
    name = "cleanup.policy"
    assert policy(change_list(topic, name, "compact")) == "delete,compact"
    assert change_list(topic, name, "delete", "compact").records == ()
    assert policy(change_list(topic, name, "delete", is_removal=True)) == "compact"
    assert change_list(topic, name, "delete", is_removal=True).records == ()
    assert policy(change_list(topic, name, "delete")) == "compact,delete"
    assert configs_of(topic.do(AlterConfigs(topic="t", changes=(), replace=True))) == {}


def test_an_empty_cleanup_policy_is_set_and_extended(topic: Cluster) -> None:
    name = "cleanup.policy"
    assert policy(change_list(topic, name, "delete", is_removal=True)) == ""
    assert change_list(topic, name, "delete", is_removal=True).records == ()
    assert policy(change_list(topic, name, "compact")) == "compact"
    assert policy(alter(topic, (name, " "))) == ""
    assert policy(change_list(topic, name, "delete")) == "delete"
    topic.create("u", configs=((name, ""),))
    assert dict(topic.topic("u").configs) == {name: ""}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (ListChange(name="retention.ms", parts=("1",)), "retention.ms is not a list"),
        (ListChange(name="compression.type", parts=("lz4",)), "compression.type is not a list"),
        (ListChange(name="cleanup.policy", parts=("melt",)), "cleanup.policy is 'delete,melt'"),
        (
            ListChange(name="cleanup.policy", parts=("",)),
            "cleanup.policy is 'delete,'; give any of delete, compact, or an empty list",
        ),
        (ListChange(name="cleanup.polisy", parts=("compact",)), "did you mean cleanup.policy"),
    ],
)
def test_invalid_list_change_is_refused(topic: Cluster, change: ListChange, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        topic.do(AlterConfigs(topic="t", changes=(), lists=(change,)))


def test_a_config_is_not_set_and_extended_at_once(topic: Cluster) -> None:
    change = ListChange(name="cleanup.policy", parts=("compact",))
    with pytest.raises(InvalidConfig, match="more than once"):
        topic.do(AlterConfigs(topic="t", changes=(("cleanup.policy", "delete"),), lists=(change,)))


def holds(decision: Decision) -> str | None:
    return configs_of(decision).get("retention.holds")


def test_holds_are_a_list_to_which_each_group_adds_its_own(topic: Cluster) -> None:
    name = "retention.holds"
    assert holds(change_list(topic, name, "a@1/1")) == "a@1/1"
    assert holds(change_list(topic, name, "b@2/2")) == "a@1/1,b@2/2"
    assert holds(change_list(topic, name, "a@1/1", is_removal=True)) == "b@2/2"
    assert holds(change_list(topic, name, "b@2/2", is_removal=True)) == ""
    with pytest.raises(InvalidConfig, match=r"retention.holds: 'a' is not a hold"):
        change_list(topic, name, "a")


def test_replacement_of_all_configs_keeps_an_omitted_hold(topic: Cluster) -> None:
    alter(topic, ("retention.holds", "a@1/1"))
    assert holds(replace(topic, ("segment.bytes", "64KiB"))) == "a@1/1"
    assert holds(replace(topic, ("retention.holds", "b@2/2"))) == "b@2/2"
    assert holds(alter(topic, ("retention.holds", None))) is None
