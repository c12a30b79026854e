"""Topics with assigned replicas, more partitions, and large topics in steps."""

from collections import Counter

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.ids import NodeId, TopicId
from quorumlog.metadata import CreatePartitions, Decision, PartitionsCreated, TopicCreated

Assignments = tuple[tuple[NodeId, ...], ...]


def assigned(*replicas: tuple[int, ...]) -> Assignments:
    return tuple(tuple(NodeId(node) for node in each) for each in replicas)


def grow(cluster: Cluster, count: int, *assignments: tuple[int, ...], **more: object) -> Decision:
    command = CreatePartitions(
        **{"topic": "a", "count": count, "assignments": assigned(*assignments), **more}  # type: ignore[arg-type]
    )
    return cluster.do(command)


# --- assignments -------------------------------------------------------------------------------


def test_topic_gets_the_assigned_replicas(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.create("a", assignments=assigned((3, 1), (2, 3)))
    assert cluster.partition("a", 0).replicas == (3, 1)
    assert cluster.partition("a", 1).replicas == (2, 3)
    assert [cluster.partition("a", index).leader for index in (0, 1)] == [3, 2]


def test_assigned_broker_that_is_down_joins_the_isr_later(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.fence(1)
    cluster.create("a", assignments=assigned((1, 2, 3)))
    assert cluster.standing("a") == (2, (2, 3), ())


@pytest.mark.parametrize(
    ("fields", "error", "why"),
    [
        ({"assignments": assigned((1, 9))}, InvalidReplicaAssignment, "broker 9 is not"),
        ({"assignments": assigned((1, 1))}, InvalidReplicaAssignment, "each broker once"),
        ({"assignments": assigned(())}, InvalidReplicaAssignment, "at least one broker"),
        ({"assignments": assigned((1, 2), (1,))}, InvalidReplicaAssignment, "equally many"),
        ({"assignments": assigned((3,))}, InvalidReplicaAssignment, "is active"),
        ({"assignments": assigned((1,)), "partitions": 2}, InvalidPartitions, "omit the"),
        (
            {"assignments": assigned((1,)), "replication_factor": 2},
            InvalidReplicationFactor,
            "omit the",
        ),
    ],
)
def test_invalid_assignments_are_refused_without_effect(
    cluster: Cluster, fields: dict[str, object], error: type[QuorumlogError], why: str
) -> None:
    cluster.start(1, 2, 3)
    cluster.fence(3)
    before = cluster.image
    with pytest.raises(error, match=why):
        cluster.create("a", **fields)
    assert cluster.image is before


def test_counts_may_accompany_assignments_if_they_agree(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.create("a", assignments=assigned((1, 2)), partitions=1, replication_factor=2)
    assert cluster.partition("a").replicas == (1, 2)


# --- more partitions ---------------------------------------------------------------------------


def test_added_partitions_do_not_change_the_existing_ones(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.create("a", partitions=2, replication_factor=2)
    before = dict(cluster.topic("a").partitions)
    decision = grow(cluster, 6)
    after = dict(cluster.topic("a").partitions)
    assert {index: after[index] for index in before} == before
    assert sorted(after) == list(range(6))
    assert {len(partition.replicas) for partition in after.values()} == {2}
    assert set(Counter(partition.leader for partition in after.values()).values()) == {2}
    assert isinstance(decision.reply, PartitionsCreated)
    assert decision.reply.topic == cluster.topic("a")
    assert decision.brokers == (1, 2, 3)


def test_as_many_partitions_as_there_are_is_a_repeat(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a", partitions=2)
    decision = grow(cluster, 2)
    assert decision.records == ()
    assert isinstance(decision.reply, PartitionsCreated)


def test_added_partitions_get_the_assigned_replicas(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.create("a", partitions=1, replication_factor=2)
    grow(cluster, 3, (3, 2), (2, 1))
    assert cluster.partition("a", 1).replicas == (3, 2)
    assert cluster.partition("a", 2).replicas == (2, 1)


def test_validation_adds_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a")
    decision = grow(cluster, 3, validate_only=True)
    assert decision.records == ()
    assert isinstance(decision.reply, PartitionsCreated)
    assert len(decision.reply.topic.partitions) == 3
    assert len(cluster.topic("a").partitions) == 1


@pytest.mark.parametrize(
    ("count", "assignments", "more", "error", "why"),
    [
        (1, (), {}, InvalidPartitions, "can only grow"),
        (0, (), {}, InvalidPartitions, "2 partitions"),
        (10_001, (), {}, InvalidPartitions, "up to 10000"),
        (3, (), {"topic": "b"}, UnknownTopicOrPartition, "does not exist"),
        (3, (), {"topic_id": TopicId(b"z" * 16)}, UnknownTopicId, "another id"),
        (4, ((1, 2),), {}, InvalidReplicaAssignment, "1 of 2 new partitions"),
        (3, ((1,),), {}, InvalidReplicaAssignment, "assign as many"),
        (3, ((1, 7),), {}, InvalidReplicaAssignment, "broker 7 is not"),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    cluster: Cluster,
    count: int,
    assignments: tuple[tuple[int, ...], ...],
    more: dict[str, object],
    error: type[QuorumlogError],
    why: str,
) -> None:
    cluster.start(1, 2)
    cluster.create("a", partitions=2, replication_factor=2)
    before = cluster.image
    with pytest.raises(error, match=why):
        grow(cluster, count, *assignments, **more)
    assert cluster.image is before


def test_too_few_usable_brokers_for_the_topics_factor_are_refused(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.create("a", replication_factor=2)
    cluster.fence(1)
    with pytest.raises(InvalidReplicationFactor, match="start more brokers"):
        grow(cluster, 2)


# --- large topics ------------------------------------------------------------------------------


def test_a_large_topic_is_made_in_steps_and_is_the_same_in_the_end(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    decision = cluster.create("a", partitions=1_000, replication_factor=2)
    assert cluster.slices == 6
    assert isinstance(decision.reply, TopicCreated)
    assert decision.reply.topic == cluster.topic("a")
    assert decision.brokers == (1, 2, 3)
    assert sorted(cluster.topic("a").partitions) == list(range(1_000))
    assert len(decision.records) == 1_001


def test_validation_of_a_large_topic_creates_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    before = cluster.image
    decision = cluster.create("a", partitions=1_000, validate_only=True)
    assert decision.records == ()
    assert isinstance(decision.reply, TopicCreated)
    assert len(decision.reply.topic.partitions) == 1_000
    assert cluster.image.topics_by_id == before.topics_by_id


def test_many_partitions_are_added_in_steps(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a")
    decision = grow(cluster, 700)
    assert cluster.slices == 4
    assert isinstance(decision.reply, PartitionsCreated)
    assert len(decision.reply.topic.partitions) == 700
