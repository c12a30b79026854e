"""Reassignments: growth, catch-up, shrink, new targets, cancellation, and every refusal."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.ids import NO_NODE, NodeId
from quorumlog.metadata import (
    AlterReassignments,
    PartitionOutcomes,
    Reassignment,
    moving_partitions,
)


@pytest.fixture
def placed(cluster: Cluster) -> Cluster:
    """Return topic a on brokers 1, 2, 3; brokers 4, 5, 6 have no replicas."""
    cluster.start(1, 2, 3, 4, 5, 6)
    cluster.assign("a", (1, 2, 3))
    return cluster


def wanted(name: str, index: int, target: tuple[int, ...] | None) -> Reassignment:
    replicas = None if target is None else tuple(NodeId(node) for node in target)
    return Reassignment(topic=name, partition=index, replicas=replicas)


def alter(cluster: Cluster, *moves: Reassignment) -> list[QuorumlogError | None]:
    reply = cluster.do(AlterReassignments(reassignments=moves)).reply
    assert isinstance(reply, PartitionOutcomes)
    assert [(o.topic, o.partition) for o in reply.outcomes] == [
        (move.topic, move.partition) for move in moves
    ]
    return [outcome.error for outcome in reply.outcomes]


def move(cluster: Cluster, *target: int) -> None:
    assert alter(cluster, wanted("a", 0, target)) == [None]


def cancel(cluster: Cluster) -> None:
    assert alter(cluster, wanted("a", 0, None)) == [None]


def lists(cluster: Cluster) -> tuple[tuple[NodeId, ...], ...]:
    partition = cluster.partition("a")
    return partition.replicas, partition.adding, partition.removing


# --- grow, catch up, shrink --------------------------------------------------------------------


def test_reassignment_adds_replicas_first_and_keeps_isr_and_leader(placed: Cluster) -> None:
    before = placed.partition("a")
    move(placed, 4, 5, 3)
    assert lists(placed) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    after = placed.partition("a")
    assert set(after.isr) == set(before.isr)
    assert (after.leader, after.leader_epoch) == (1, before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1


def test_isr_change_with_the_last_added_replica_completes_the_reassignment(placed: Cluster) -> None:
    move(placed, 4, 5, 3)
    placed.set_isr("a", 1, 2, 3, 4)
    assert placed.partition("a").is_moving
    epoch = placed.partition("a").leader_epoch
    placed.ask(1, placed.change("a", (1, 2, 3, 4, 5)))
    assert lists(placed) == ((4, 5, 3), (), ())
    assert placed.standing("a") == (4, (4, 5, 3), ())
    assert placed.partition("a").leader_epoch == epoch + 1


def test_remaining_leader_starts_a_new_epoch_when_replicas_are_removed(placed: Cluster) -> None:
    """It fences a removed replica that keeps fetching in the old epoch."""
    move(placed, 1, 2, 4)
    placed.ask(1, placed.change("a", (1, 2, 3, 4)))
    assert placed.standing("a") == (1, (1, 2, 4), ())
    assert placed.partition("a").leader_epoch == 1


def test_reassignment_completes_once_enough_remaining_replicas_are_in_sync(placed: Cluster) -> None:
    placed.set_isr("a", 1, 2)
    move(placed, 1, 3, 4)
    placed.ask(1, placed.change("a", (1, 2, 4)))
    assert lists(placed) == ((1, 3, 4), (), ())
    assert placed.standing("a") == (1, (1, 4), ())


def test_reassignment_does_not_complete_below_the_min_isr(placed: Cluster) -> None:
    """With broker 4 all added replicas are in sync, but it would be the only one of the target, and
    two are required."""
    placed.set_isr("a", 1, 2)
    move(placed, 2, 3, 4)
    placed.fence(2)
    placed.ask(1, placed.change("a", (1, 4)))
    assert placed.partition("a").is_moving
    placed.ask(1, placed.change("a", (1, 4, 3)))
    assert lists(placed) == ((2, 3, 4), (), ())
    assert placed.standing("a") == (3, (3, 4), ())


def test_reduction_completes_at_once_if_enough_are_in_sync(placed: Cluster) -> None:
    move(placed, 2, 3)
    assert lists(placed) == ((2, 3), (), ())
    assert placed.standing("a") == (2, (2, 3), ())


def test_reduction_waits_for_the_remaining_replicas(placed: Cluster) -> None:
    placed.set_isr("a", 1, 2)
    move(placed, 3)
    assert lists(placed) == ((3, 1, 2), (), (1, 2))
    placed.ask(1, placed.change("a", (1, 2, 3)))
    assert lists(placed) == ((3,), (), ())
    assert placed.standing("a") == (3, (3,), ())


def test_growth_adds_replicas_and_removes_none(placed: Cluster) -> None:
    move(placed, 1, 2, 3, 4)
    placed.set_isr("a", 1, 2, 3, 4)
    assert lists(placed) == ((1, 2, 3, 4), (), ())
    assert placed.partition("a").leader_epoch == 0, "no replica has to be fenced"


def test_min_isr_does_not_count_replicas_being_added(cluster: Cluster) -> None:
    """From one replica to three: writes continue with the existing one."""
    cluster.start(1, 2, 3)
    cluster.assign("a", (1,))
    move(cluster, 1, 2, 3)
    assert cluster.partition("a").replication_factor == 1
    cluster.set_isr("a", 1, 2, 3)
    assert cluster.partition("a").replication_factor == 3


def test_another_order_changes_the_preferred_leader_without_a_reassignment(placed: Cluster) -> None:
    move(placed, 3, 2, 1)
    assert lists(placed) == ((3, 2, 1), (), ())
    assert placed.partition("a").leader == 1
    assert list(placed.image.led_elsewhere) == [(placed.topic("a").id, 0)]


def test_current_replicas_as_a_target_change_nothing(placed: Cluster) -> None:
    before = placed.partition("a")
    move(placed, 1, 2, 3)
    assert placed.partition("a") is before


# --- cancelling and new targets ----------------------------------------------------------------


def test_cancellation_removes_added_replicas(placed: Cluster) -> None:
    move(placed, 4, 5, 6)
    cancel(placed)
    assert lists(placed) == ((1, 2, 3), (), ())
    assert placed.standing("a") == (1, (1, 2, 3), ())


def test_cancellation_removes_an_added_replica_from_the_isr_if_enough_remain(
    placed: Cluster,
) -> None:
    move(placed, 4, 5, 6)
    placed.set_isr("a", 1, 2, 3, 4)
    cancel(placed)
    assert lists(placed) == ((1, 2, 3), (), ())
    assert placed.standing("a") == (1, (1, 2, 3), ())


def test_cancellation_keeps_an_added_replica_that_is_the_only_one_in_sync(placed: Cluster) -> None:
    """Brokers 1, 2 and 3 failed after 4 caught up: without it no replica would be left."""
    move(placed, 4, 5, 6)
    placed.set_isr("a", 1, 2, 3, 4)
    for node in (1, 2, 3):
        placed.fence(node)
    leader = placed.partition("a").leader
    cancel(placed)
    assert placed.partition("a").is_moving
    assert placed.partition("a").leader == leader == 4
    assert set(placed.partition("a").isr) == {4}
    for node in (1, 2, 3):
        placed.unfence(node)
    placed.set_isr("a", 4, 1)
    assert placed.partition("a").is_moving, "one remaining replica is too few"
    placed.ask(4, placed.change("a", (4, 1, 2)))
    assert lists(placed)[0] == (1, 2, 3)
    assert placed.standing("a") == (1, (1, 2), ())


def test_new_target_replaces_the_old_one(placed: Cluster) -> None:
    move(placed, 4, 2, 3)
    move(placed, 5, 2, 3)
    assert lists(placed) == ((5, 2, 3, 1), (5,), (1,))


def test_an_added_replica_that_is_in_sync_stays_until_the_new_target_is_reached(
    placed: Cluster,
) -> None:
    placed.set_isr("a", 1)
    move(placed, 4, 5)
    placed.set_isr("a", 1, 4)
    move(placed, 5, 6)
    assert lists(placed) == ((5, 6, 1, 2, 3, 4), (5, 6, 4), (1, 2, 3, 4))
    placed.ask(1, placed.change("a", (1, 4, 5, 6)))
    assert lists(placed) == ((5, 6), (), ())


def test_original_replicas_as_a_target_cancel_the_reassignment(placed: Cluster) -> None:
    move(placed, 4, 5, 6)
    move(placed, 1, 2, 3)
    assert lists(placed) == ((1, 2, 3), (), ())


# --- outcomes ----------------------------------------------------------------------------------


def test_each_partition_has_its_own_result(placed: Cluster) -> None:
    errors = alter(
        placed,
        wanted("a", 0, (4, 2, 3)),
        wanted("a", 1, (4, 2, 3)),
        wanted("no", 0, (4,)),
    )
    assert errors[0] is None
    assert isinstance(errors[1], UnknownTopicOrPartition)
    assert isinstance(errors[2], UnknownTopicOrPartition)
    assert placed.partition("a").is_moving


@pytest.mark.parametrize(
    ("target", "error", "why"),
    [
        ((1, 9), InvalidReplicaAssignment, "broker 9 is not"),
        ((1, 1), InvalidReplicaAssignment, "each broker once"),
        ((), InvalidReplicaAssignment, "at least one"),
        (None, NoReassignmentInProgress, "no reassignment in progress"),
    ],
)
def test_invalid_reassignments_are_refused_without_effect(
    placed: Cluster, target: tuple[int, ...] | None, error: type[QuorumlogError], why: str
) -> None:
    before = placed.partition("a")
    [refusal] = alter(placed, wanted("a", 0, target))
    assert isinstance(refusal, error)
    assert why in str(refusal)
    assert placed.partition("a") is before


def test_brokers_with_old_or_new_replicas_are_awaited(placed: Cluster) -> None:
    decision = placed.do(AlterReassignments(reassignments=(wanted("a", 0, (4, 2, 3)),)))
    assert decision.brokers == (1, 2, 3, 4)


def test_moves_under_way_are_listed_by_topic_and_index(cluster: Cluster) -> None:
    cluster.start(1, 2)
    for name in ("b", "a"):
        cluster.assign(name, (1,), (1,), (1,))
    moves = [wanted(name, index, (2,)) for name in ("b", "a") for index in (2, 0)]
    alter(cluster, *moves)
    found = [(topic.name, index) for topic, index, _ in moving_partitions(cluster.image)]
    assert found == [("a", 0), ("a", 2), ("b", 0), ("b", 2)]
    cluster.set_isr("a", 1, index=1)
    cluster.ask(1, cluster.change("a", (1, 2), index=0))
    assert len(moving_partitions(cluster.image)) == 3


def test_reassignment_continues_without_a_leader(placed: Cluster) -> None:
    for node in (1, 2, 3):
        placed.fence(node)
    move(placed, 4, 5, 6)
    assert placed.partition("a").is_moving
    assert placed.partition("a").leader == NO_NODE
    placed.unfence(3)
    assert placed.partition("a").leader == 3


def test_very_many_moves_are_made_in_steps(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.create("a", assignments=((NodeId(1),),) * 600)
    assert alter(cluster, *(wanted("a", index, (2,)) for index in range(600))) == [None] * 600
    assert cluster.slices >= 3
    assert len(moving_partitions(cluster.image)) == 600


# --- constant replication factor (KIP-860) -----------------------------------------------------


def alter_keeping(cluster: Cluster, *target: int) -> QuorumlogError | None:
    moves = (wanted("a", 0, target),)
    command = AlterReassignments(reassignments=moves, keep_replication_factor=True)
    reply = cluster.do(command).reply
    assert isinstance(reply, PartitionOutcomes)
    return reply.outcomes[0].error


def test_change_of_the_replication_factor_is_refused_if_disallowed(placed: Cluster) -> None:
    for target in ((1, 2), (1, 2, 3, 4)):
        assert isinstance(alter_keeping(placed, *target), InvalidReplicationFactor)
    assert not placed.partition("a").is_moving
    assert alter_keeping(placed, 4, 5, 6) is None


def test_replication_factor_is_that_of_the_running_reassignments_target(
    placed: Cluster,
) -> None:
    move(placed, 4, 5)
    assert isinstance(alter_keeping(placed, 4, 5, 6), InvalidReplicationFactor)
    assert alter_keeping(placed, 5, 6) is None


def test_cancellation_may_change_the_replication_factor(placed: Cluster) -> None:
    move(placed, 4, 5)
    moves = (wanted("a", 0, None),)
    command = AlterReassignments(reassignments=moves, keep_replication_factor=True)
    reply = placed.do(command).reply
    assert isinstance(reply, PartitionOutcomes)
    assert reply.outcomes[0].error is None
