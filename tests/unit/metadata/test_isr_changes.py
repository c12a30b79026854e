"""ISR changes that leaders request: every refusal and every success."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    QuorumlogError,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.ids import Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import (
    AlteredPartition,
    AlterPartitions,
    AlterReassignments,
    IsrChange,
    Reassignment,
)


@pytest.fixture
def led(cluster: Cluster) -> Cluster:
    """Return topic a with replicas 1, 2, 3; broker 4 has no replica.

    Broker 2 leads in epoch 1, 1 and 2 are in sync, the partition epoch is 3.
    """
    cluster.start(1, 2, 3, 4)
    cluster.assign("a", (1, 2, 3))
    cluster.fence(1)
    cluster.unfence(1)
    cluster.set_isr("a", 1, 2, 3)
    cluster.set_isr("a", 1, 2)
    partition = cluster.partition("a")
    assert cluster.standing("a") == (2, (1, 2), ())
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 3)
    return cluster


Bend = Callable[[Cluster, IsrChange], IsrChange]


def with_isr(*members: tuple[int, int]) -> Bend:
    """Return an ISR of (node, change of its epoch)."""
    return lambda cluster, change: structs.replace(
        change, isr=tuple((NodeId(n), Offset(cluster.epoch(n) + off)) for n, off in members)
    )


def because(**fields: object) -> Bend:
    return lambda _, change: structs.replace(change, **fields)


def fenced(node: int) -> Bend:
    def bend(cluster: Cluster, change: IsrChange) -> IsrChange:
        cluster.fence(node)
        return change

    return bend


def stopping(node: int) -> Bend:
    def bend(cluster: Cluster, change: IsrChange) -> IsrChange:
        cluster.stop(node)
        return change

    return bend


REFUSALS: dict[str, tuple[Bend, type[QuorumlogError], str]] = {
    "unknown topic": (because(topic_id=TopicId(b"?" * 16)), UnknownTopicId, "it was deleted"),
    "unknown partition": (because(partition=7), UnknownTopicOrPartition, "has 1 partitions"),
    "later leader epoch": (
        because(leader_epoch=Epoch(2)),
        NotController,
        "leader epoch 2 and partition epoch 3",
    ),
    "later partition epoch": (
        because(partition_epoch=4),
        NotController,
        "leader epoch 1 and partition epoch 4",
    ),
    "earlier leader epoch": (because(leader_epoch=Epoch(0)), FencedLeaderEpoch, "current one is 1"),
    "earlier both": (
        because(leader_epoch=Epoch(0), partition_epoch=1),
        FencedLeaderEpoch,
        "epoch 0 is old",
    ),
    "earlier leader epoch, later partition epoch": (
        because(leader_epoch=Epoch(0), partition_epoch=9),
        NotController,
        "retry at the active controller",
    ),
    "earlier partition epoch": (
        because(partition_epoch=2),
        InvalidUpdateVersion,
        "apply the metadata",
    ),
    "no replica": (with_isr((1, 0), (2, 0), (4, 0)), InvalidRequest, "a subset of the replicas"),
    "twice": (with_isr((2, 0), (1, 0), (1, 0)), InvalidRequest, "without duplicates"),
    "without the leader": (with_isr((1, 0), (3, 0)), InvalidRequest, "does not include the leader"),
    "empty": (with_isr(), InvalidRequest, "does not include the leader"),
    "past life": (with_isr((1, 0), (2, 0), (3, -1)), IneligibleReplica, "broker 3 is registered"),
    "life to come": (with_isr((1, 0), (2, 0), (3, 1)), IneligibleReplica, "broker 3 is registered"),
    "fenced": (fenced(3), IneligibleReplica, "broker 3 is fenced"),
    "stopping": (stopping(3), IneligibleReplica, "broker 3 is stopping"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(led: Cluster, name: str) -> None:
    bend, error, words = REFUSALS[name]
    change = bend(led, led.change("a", (1, 2, 3)))
    before = led.image
    [result] = led.ask(2, change)
    assert type(result) is error
    assert words in str(result)
    assert led.image is before


def test_request_of_a_broker_that_does_not_lead_is_refused(led: Cluster) -> None:
    [result] = led.ask(1, led.change("a", (1, 2, 3)))
    assert isinstance(result, InvalidRequest)
    assert str(result) == "a-0: broker 1 is not the leader; the leader is broker 2"


def test_refusal_without_a_leader_says_so(led: Cluster) -> None:
    led.fence(2)
    led.fence(1)
    [result] = led.ask(3, led.change("a", (3,)))
    assert isinstance(result, InvalidRequest)
    assert str(result) == "a-0: broker 3 is not the leader; the leader is none"


def test_an_unregistered_broker_does_not_join(led: Cluster) -> None:
    change = led.change("a", (1, 2, 3))
    image = led.image
    led.image = replace(image, brokers=image.brokers.delete(NodeId(3)))
    [result] = led.ask(2, change)
    assert isinstance(result, IneligibleReplica)
    assert "broker 3 is not registered" in str(result)


def test_old_epoch_of_the_requesting_broker_is_refused_as_a_whole(led: Cluster) -> None:
    change = led.change("a", (1, 2, 3))
    stale = AlterPartitions(
        broker_id=NodeId(2), broker_epoch=Offset(led.epoch(2) - 1), changes=(change,)
    )
    before = led.image
    with pytest.raises(StaleBrokerEpoch):
        led.do(stale)
    assert led.image is before


def test_controller_without_the_registration_of_the_broker_is_not_the_active_one(
    led: Cluster,
) -> None:
    later = AlterPartitions(
        broker_id=NodeId(2),
        broker_epoch=Offset(led.image.offset + 1),
        changes=(led.change("a", (1, 2, 3)),),
    )
    with pytest.raises(NotController, match="retry at the active controller"):
        led.do(later)


def test_refusals_name_the_partition(led: Cluster) -> None:
    [result] = led.ask(2, structs.replace(led.change("a", (1, 2, 3)), partition_epoch=0))
    assert isinstance(result, InvalidUpdateVersion)
    assert (result.topic, result.partition) == ("a", 0)


def test_granted_in_the_order_of_the_assignment(led: Cluster) -> None:
    [result] = led.ask(2, led.change("a", (3, 2, 1)))
    assert isinstance(result, AlteredPartition)
    assert (result.isr, result.partition_epoch, result.leader_epoch) == ((1, 2, 3), 4, 1)
    assert led.partition("a").as_altered == result


def test_leader_may_shrink_the_isr_to_itself(led: Cluster) -> None:
    led.set_isr("a", 2)
    assert led.standing("a") == (2, (2,), (1,))


def test_unchanged_isr_is_granted_without_a_record(led: Cluster) -> None:
    before = led.image
    [result] = led.ask(2, led.change("a", (1, 2)))
    assert result == led.partition("a").as_altered
    assert led.image is before


def test_retry_after_a_lost_response_gets_a_stale_epoch_error(led: Cluster) -> None:
    change = led.change("a", (1, 2, 3))
    led.ask(2, change)
    [result] = led.ask(2, change)
    assert isinstance(result, InvalidUpdateVersion)


def test_each_change_of_a_request_has_its_own_result(led: Cluster) -> None:
    led.assign("b", (2, 3), (2, 3), (2, 3))
    for index in range(3):
        led.set_isr("b", 2, index=index)
    changes = [led.change("b", (2, 3), index=index) for index in range(3)]
    changes[1] = structs.replace(changes[1], partition_epoch=0)
    results = led.ask(2, *changes, changes[0])
    assert [type(result) for result in results] == [
        AlteredPartition,
        InvalidUpdateVersion,
        AlteredPartition,
        InvalidRequest,
    ]
    assert "more than once" in str(results[3])
    assert [led.standing("b", index)[1] for index in range(3)] == [(2, 3), (2,), (2, 3)]


def test_many_changes_are_made_in_steps_and_answered_in_order(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", *[(1, 2)] * 450)
    changes = [cluster.change("a", (1,), index=index) for index in reversed(range(450))]
    changes[7] = structs.replace(changes[7], partition_epoch=1)
    results = cluster.ask(1, *changes)
    assert cluster.slices == 3
    assert isinstance(results.pop(7), NotController)
    expected = [cluster.partition("a", index) for index in reversed(range(450)) if index != 442]
    assert results == [partition.as_altered for partition in expected]
    assert {partition.isr for partition in expected} == {(1,)}


# --- a leader that may have lost records ----------------------------------------------------------


def recovering(cluster: Cluster) -> Cluster:
    """Return an image with broker 3 leading a after an unclean election, and live replica 4."""
    cluster.start(1, 3, 4)
    cluster.assign("a", (1, 3, 4), unclean_leader_election_enable="true")
    cluster.set_isr("a", 1, 4)
    cluster.fence(4)
    cluster.fence(1)
    cluster.unfence(4)
    assert cluster.standing("a") == (3, (3,), (1, 4))
    assert cluster.partition("a").recovering
    return cluster


def test_no_replica_joins_a_recovering_leader(cluster: Cluster) -> None:
    recovering(cluster)
    [result] = cluster.ask(3, structs.replace(cluster.change("a", (3, 4)), recovered=False))
    assert isinstance(result, InvalidRequest)
    assert "recovering" in str(result)
    cluster.set_isr("a", 3, 4)
    assert cluster.standing("a") == (3, (3, 4), ())
    assert not cluster.partition("a").recovering


def test_recovering_leader_may_only_report_its_recovery(cluster: Cluster) -> None:
    recovering(cluster)
    epoch = cluster.partition("a").leader_epoch
    cluster.set_isr("a", 3)
    assert not cluster.partition("a").recovering
    assert cluster.partition("a").leader_epoch == epoch
    assert cluster.standing("a") == (3, (3,), (1, 4))


# --- the end of a reassignment -------------------------------------------------------------------


def move(cluster: Cluster, *target: int) -> None:
    wanted = Reassignment(topic="a", partition=0, replicas=tuple(NodeId(n) for n in target))
    cluster.do(AlterReassignments(reassignments=(wanted,)))


def test_the_last_added_replica_in_sync_ends_the_move(cluster: Cluster) -> None:
    cluster.start(1, 2, 3, 4)
    cluster.assign("a", (1, 2, 3))
    move(cluster, 1, 2, 4)
    assert cluster.partition("a").is_moving
    epoch = cluster.partition("a").leader_epoch
    cluster.set_isr("a", 1, 2, 3, 4)
    partition = cluster.partition("a")
    assert not partition.is_moving
    assert (partition.replicas, partition.isr) == ((1, 2, 4), (1, 2, 4))
    assert partition.leader_epoch == epoch + 1, "requests of broker 3 are fenced from now on"


def test_leader_that_a_reassignment_removes_gets_the_new_leader(cluster: Cluster) -> None:
    cluster.start(1, 2, 3, 4)
    cluster.assign("a", (1, 2, 3))
    move(cluster, 4, 2, 3)
    [result] = cluster.ask(1, cluster.change("a", (1, 2, 3, 4)))
    assert isinstance(result, NewLeaderElected)
    assert "broker 4 is the new leader" in str(result)
    assert cluster.standing("a") == (4, (4, 2, 3), ())
