"""The controller's part of the scenarios of a replicated log.

Each scenario is a sequence of commands: the requests of brokers in the order of their arrival. The
tests of replicas and nodes cover the data.
"""

import pytest
from msgspec.structs import replace
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    NotController,
    StaleBrokerEpoch,
)
from quorumlog.ids import NO_NODE, NodeId, Offset
from quorumlog.metadata import (
    AlteredPartition,
    AlterPartitions,
    AlterReassignments,
    PartitionsAltered,
    Reassignment,
)


@pytest.fixture
def cluster() -> Cluster:
    """Create topic a on brokers 1, 2, 3 with min ISR 2; records count once they are in memory."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3))
    return cluster


def move(cluster: Cluster, *target: int) -> None:
    replicas = tuple(NodeId(node) for node in target)
    wanted = Reassignment(topic="a", partition=0, replicas=replicas)
    cluster.do(AlterReassignments(reassignments=(wanted,)))


# --- replicas that lost records (KIP-966) --------------------------------------------------------


def test_r05_the_last_in_sync_replica_loses_power_and_is_not_elected(cluster: Cluster) -> None:
    """The ISR shrinks to {2}, 2 loses records that it had not flushed: were it elected, all others
    would truncate acknowledged records. A replica that left while the high watermark was frozen has
    all of them."""
    cluster.fence(1)
    cluster.set_isr("a", 2)
    assert cluster.standing("a") == (2, (2,), (3,))
    cluster.register(2, incarnation=1, boot="after the power cut")
    assert cluster.standing("a") == (3, (3,), ())
    cluster.unfence(2)
    assert cluster.standing("a") == (3, (3,), ()), "2 joins once it has caught up"
    assert not cluster.partition("a").recovering


def test_r05_no_replica_is_elected_while_only_those_with_lost_records_are_back(
    cluster: Cluster,
) -> None:
    cluster.fence(1)
    cluster.fence(3)
    cluster.register(2, incarnation=1, boot="after the power cut")
    cluster.unfence(2)
    cluster.unfence(1)
    assert cluster.standing("a") == (NO_NODE, (), (3,))
    cluster.unfence(3)
    assert cluster.standing("a") == (3, (3,), ())


def test_one_less_than_the_min_isr_may_lose_power_and_nothing_is_lost(cluster: Cluster) -> None:
    for order in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        again = Cluster(image=cluster.image)
        for node in order:
            again.fence(node)
        *_, elr = again.standing("a")
        assert len(elr) == 2
        again.register(elr[0], incarnation=1, boot="after the power cut")
        for node in order:
            again.unfence(node)
        assert again.standing("a") == (elr[1], (elr[1],), ())


def test_when_all_lose_power_the_last_known_one_leads_with_a_notice(cluster: Cluster) -> None:
    for node in (1, 2, 3):
        cluster.register(node, incarnation=1, boot="after the power cut")
    assert cluster.standing("a") == (NO_NODE, (), ())
    assert cluster.partition("a").last_known_elr == (3,)
    for node in (1, 2, 3):
        cluster.unfence(node)
    assert cluster.standing("a") == (3, (3,), ())
    assert cluster.partition("a").recovering


# --- joining replicas (KIP-903) ------------------------------------------------------------------


def test_r06_a_broker_with_a_new_disk_does_not_join_by_an_old_request(cluster: Cluster) -> None:
    """The leader requests 3; before the request arrives 3 restarts with another disk."""
    cluster.set_isr("a", 1, 2)
    request = cluster.change("a", (1, 2, 3))
    cluster.register(3, incarnation=1, disk=1)
    cluster.unfence(3)
    [result] = cluster.ask(1, request)
    assert isinstance(result, IneligibleReplica)
    assert cluster.standing("a") == (1, (1, 2), ())
    [result] = cluster.ask(1, cluster.change("a", (1, 2, 3)))
    assert isinstance(result, AlteredPartition), "with its new broker epoch it may"


def test_r06_a_member_that_has_restarted_makes_the_request_stale(cluster: Cluster) -> None:
    cluster.set_isr("a", 1, 2)
    request = cluster.change("a", (1, 2, 3))
    cluster.register(2, incarnation=1, disk=1)
    [result] = cluster.ask(1, request)
    assert isinstance(result, InvalidUpdateVersion)
    assert cluster.standing("a") == (1, (1,), ())


@pytest.mark.parametrize("what", ["fenced", "stopping"])
def test_r08_a_broker_that_is_fenced_or_stopping_does_not_join(cluster: Cluster, what: str) -> None:
    """It may still fetch; in the ISR it could be elected, or hold back the high watermark."""
    cluster.set_isr("a", 1, 2)
    if what == "fenced":
        cluster.fence(3)
    else:
        cluster.stop(3)
    [result] = cluster.ask(1, cluster.change("a", (1, 2, 3)))
    assert isinstance(result, IneligibleReplica)
    assert what in str(result)
    assert cluster.standing("a") == (1, (1, 2), ())


def test_r09_a_replaced_leader_is_notified_after_its_accepted_request(
    cluster: Cluster,
) -> None:
    """It must count the new member until then, which may be the leader now."""
    cluster.set_isr("a", 1, 2)
    request = cluster.change("a", (1, 2, 3))
    cluster.ask(1, request)
    cluster.fence(2)
    epoch = cluster.epoch(1)
    cluster.fence(1)
    assert cluster.standing("a") == (3, (3,), (1,))
    late = AlterPartitions(broker_id=NodeId(1), broker_epoch=epoch, changes=(request,))
    reply = cluster.do(late).reply
    assert isinstance(reply, PartitionsAltered)
    assert isinstance(reply.results[0], FencedLeaderEpoch)


def test_r11_a_replica_that_was_removed_and_added_again_is_distinguished(cluster: Cluster) -> None:
    """By the leader epoch: offsets fetched before the removal do not count."""
    epoch = cluster.partition("a").leader_epoch
    move(cluster, 1, 2)
    removed = cluster.partition("a")
    assert (removed.replicas, removed.leader, removed.is_moving) == ((1, 2), 1, False)
    assert removed.leader_epoch == epoch + 1
    request = replace(cluster.change("a", (1, 2)), leader_epoch=epoch)
    move(cluster, 1, 2, 3)
    [result] = cluster.ask(1, request)
    assert isinstance(result, FencedLeaderEpoch)


# --- stale controllers ---------------------------------------------------------------------------


def test_r28_a_stale_controller_redirects_the_leader(cluster: Cluster) -> None:
    """After "fenced" from a stale controller, a leader would wait for metadata that it already
    has."""
    behind = Cluster(image=cluster.image)
    cluster.fence(1)
    cluster.unfence(1)
    [result] = behind.ask(2, cluster.change("a", (2, 3)))
    assert isinstance(result, NotController)
    [result] = cluster.ask(2, cluster.change("a", (1, 2, 3)))
    assert isinstance(result, AlteredPartition)


def test_r28_the_same_leader_with_a_later_isr_is_redirected_too(cluster: Cluster) -> None:
    behind = Cluster(image=cluster.image)
    cluster.set_isr("a", 1, 2)
    [result] = behind.ask(1, cluster.change("a", (1, 2, 3)))
    assert isinstance(result, NotController)


# --- registrations -------------------------------------------------------------------------------


def test_r30_a_repeated_registration_keeps_its_epoch_and_its_isr(cluster: Cluster) -> None:
    """A repeat after a lost response, or a new stream: the broker has not changed."""
    epoch = cluster.epoch(1)
    before = cluster.image
    for boot in ("boot", "another word for it"):
        assert cluster.register(1, boot=boot).records == ()
    assert cluster.image is before
    assert cluster.epoch(1) == epoch
    assert cluster.standing("a") == (1, (1, 2, 3), ())


def test_a_registration_fences_the_earlier_incarnations(cluster: Cluster) -> None:
    epoch = cluster.epoch(1)
    cluster.register(1, incarnation=1)
    assert cluster.image.brokers[NodeId(1)].fenced
    assert cluster.epoch(1) > epoch
    past = AlterPartitions(broker_id=NodeId(1), broker_epoch=epoch, changes=())
    with pytest.raises(StaleBrokerEpoch):
        cluster.do(past)
    future = AlterPartitions(
        broker_id=NodeId(1), broker_epoch=Offset(cluster.epoch(1) + 1), changes=()
    )
    with pytest.raises(StaleBrokerEpoch):
        cluster.do(future)


# --- reassignments -------------------------------------------------------------------------------


def test_a_move_adds_no_replica_to_an_isr_and_keeps_enough_in_it(cluster: Cluster) -> None:
    for node in (4, 5, 6):
        cluster.start(node)
    move(cluster, 4, 5, 6)
    assert cluster.standing("a") == (1, (1, 2, 3), ())
    cluster.set_isr("a", 1, 2, 3, 4)
    assert cluster.partition("a").is_moving
    cluster.set_isr("a", 1, 4)
    cluster.set_isr("a", 1, 4, 5)
    assert cluster.partition("a").is_moving, "6 is not in sync"
    cluster.fence(5)
    assert cluster.standing("a")[1] == (4, 1)
    cluster.unfence(5)
    [result] = cluster.ask(1, cluster.change("a", (1, 4, 5, 6)))
    assert not isinstance(result, AlteredPartition), "1 does not lead it any more"
    assert cluster.standing("a") == (4, (4, 5, 6), ())
    assert cluster.partition("a").replicas == (4, 5, 6)
