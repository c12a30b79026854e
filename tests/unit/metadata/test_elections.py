"""Leaders, ISR and ELR as brokers fail and return (KIP-966)."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import BrokerIdNotRegistered, InvalidRequest
from quorumlog.ids import NO_NODE, NodeId
from quorumlog.metadata import (
    AlterClusterConfigs,
    AlterConfigs,
    UnregisterBroker,
    replay_batch,
)
from quorumlog.proto import metadata_records_pb2 as pb


@pytest.fixture
def three(cluster: Cluster) -> Cluster:
    """Return topic a with replicas 1, 2, 3 in this order, min ISR 2, flush.policy replicated."""
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3))
    return cluster


def down_to(cluster: Cluster, *nodes: int) -> None:
    """Fence the other brokers, in descending order."""
    for node in (3, 2, 1):
        if node not in nodes:
            cluster.fence(node)


# --- who leads -----------------------------------------------------------------------------------


def test_leader_stays_when_another_member_leaves(three: Cluster) -> None:
    three.fence(2)
    assert three.standing("a") == (1, (1, 3), ())
    assert three.partition("a").leader_epoch == 0
    assert three.partition("a").partition_epoch == 1


def test_the_first_in_sync_replica_of_the_assignment_takes_over(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (3, 1, 2))
    cluster.set_isr("a", 2, 3)
    cluster.fence(3)
    assert cluster.standing("a") == (2, (2,), (3,)), "1 comes first, but is not in sync"
    assert cluster.partition("a").leader_epoch == 1


def test_a_new_leader_keeps_leading_when_the_preferred_one_is_back(three: Cluster) -> None:
    three.fence(1)
    three.unfence(1)
    assert three.standing("a") == (2, (2, 3), ())
    three.set_isr("a", 1, 2, 3)
    assert three.standing("a") == (2, (1, 2, 3), ())
    assert three.partition("a").leader_epoch == 1


def test_no_replica_outside_isr_and_elr_is_elected(three: Cluster) -> None:
    three.set_isr("a", 1, 2)
    three.fence(1)
    three.fence(2)
    assert three.standing("a") == (NO_NODE, (), (1, 2))
    three.fence(3)
    three.unfence(3)
    assert three.standing("a") == (NO_NODE, (), (1, 2))


def test_loss_of_the_last_leader_starts_an_epoch_without_a_leader(three: Cluster) -> None:
    down_to(three, 1)
    assert three.partition("a").leader_epoch == 0
    three.fence(1)
    assert three.partition("a").leader_epoch == 1
    three.unfence(2)
    assert three.partition("a").leader_epoch == 2


# --- the ELR -------------------------------------------------------------------------------------


def test_replica_that_leaves_an_isr_above_the_minimum_is_in_no_elr(three: Cluster) -> None:
    three.fence(3)
    assert three.standing("a") == (1, (1, 2), ())


def test_replica_that_leaves_an_isr_below_the_minimum_is_in_the_elr(three: Cluster) -> None:
    three.fence(3)
    three.fence(2)
    assert three.standing("a") == (1, (1,), (2,))


def test_the_last_member_is_in_the_elr_like_any_other(three: Cluster) -> None:
    down_to(three)
    assert three.standing("a") == (NO_NODE, (), (1, 2))


def test_first_returning_elr_member_leads_alone_and_the_others_stay_in_the_elr(
    three: Cluster,
) -> None:
    down_to(three)
    three.unfence(2)
    assert three.standing("a") == (2, (2,), (1,))
    three.unfence(1)
    assert three.standing("a") == (2, (2,), (1,)), "it joins by catching up"
    assert not three.partition("a").recovering


def test_elr_members_are_elected_in_the_order_of_the_assignment(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (3, 2, 1))
    for node in (1, 3, 2):
        cluster.fence(node)
    assert cluster.standing("a") == (NO_NODE, (), (3, 2))
    # Both return while no election is possible: only the broker record changes; then comes an
    # election.
    changes = [
        pb.BrokerChangeRecord(id=n, broker_epoch=cluster.epoch(n), fenced=False) for n in (2, 3)
    ]
    cluster.replay(tuple(pb.MetadataRecord(broker_change=change) for change in changes))
    cluster.unfence(1)
    assert cluster.standing("a") == (3, (3,), (2,))


def test_isr_of_the_minimum_size_empties_the_elr(three: Cluster) -> None:
    down_to(three, 1)
    assert three.standing("a") == (1, (1,), (2,))
    three.unfence(3)
    three.set_isr("a", 1, 3)
    assert three.standing("a") == (1, (1, 3), ())


def test_an_elr_member_that_joins_leaves_the_elr(three: Cluster) -> None:
    three.do(AlterConfigs(topic="a", changes=(("min.insync.replicas", "3"),)))
    three.fence(2)
    three.fence(3)
    assert three.standing("a") == (1, (1,), (2, 3))
    three.unfence(2)
    three.set_isr("a", 1, 2)
    assert three.standing("a") == (1, (1, 2), (3,)), "two are fewer than three yet"


def test_one_in_sync_replica_is_enough_where_the_min_isr_is_one(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    cluster.fence(1)
    assert cluster.standing("a") == (2, (2,), ()), "2 may commit alone: 1 lacks it then"
    cluster.fence(2)
    assert cluster.standing("a") == (NO_NODE, (), (2,))
    cluster.unfence(1)
    assert cluster.standing("a") == (NO_NODE, (), (2,))
    cluster.unfence(2)
    assert cluster.standing("a") == (2, (2,), ())


def test_a_min_isr_above_the_replicas_counts_as_their_number(cluster: Cluster) -> None:
    """A reassignment to fewer replicas may leave a topic like this."""
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    config = pb.TopicConfigRecord(
        topic_id=cluster.topic("a").id, name="min.insync.replicas", value="5"
    )
    cluster.replay((pb.MetadataRecord(topic_config=config),))
    cluster.fence(2)
    assert cluster.standing("a") == (1, (1,), (2,))
    cluster.unfence(2)
    cluster.set_isr("a", 1, 2)
    assert cluster.standing("a") == (1, (1, 2), ())


def test_a_lower_min_isr_empties_the_elr_with_the_config(three: Cluster) -> None:
    """The leader may commit alone once it applies the config: no other replica may lead then."""
    down_to(three, 1)
    assert three.standing("a") == (1, (1,), (2,))
    decision = three.do(AlterConfigs(topic="a", changes=(("min.insync.replicas", "1"),)))
    assert three.standing("a") == (1, (1,), ())
    assert decision.records[0].WhichOneof("record") == "topic_config"


def test_change_of_min_isr_makes_earlier_isr_requests_stale(three: Cluster) -> None:
    """With the lower min ISR the leader may have committed records that an ELR member lacks."""
    three.do(AlterConfigs(topic="a", changes=(("min.insync.replicas", "1"),)))
    epoch = three.partition("a").partition_epoch
    three.do(AlterConfigs(topic="a", changes=(("min.insync.replicas", "2"),)))
    assert three.partition("a").partition_epoch == epoch + 1
    three.do(AlterConfigs(topic="a", changes=(("retention.ms", "7"),)))
    assert three.partition("a").partition_epoch == epoch + 1


# --- lost records --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("boot", "clean", "disk", "policy", "stays"),
    [
        ("boot", False, 0, "replicated", True),  # killed: the page cache is intact
        ("other", True, 0, "replicated", True),  # stopped in order
        ("other", False, 0, "replicated", False),  # power cut
        ("", False, 0, "replicated", False),  # unknown
        ("other", False, 0, "fsync", True),  # nothing was acknowledged before its flush
        ("boot", True, 1, "fsync", False),  # another disk, for any shutdown
    ],
)
def test_replica_that_may_have_lost_records_leaves_the_elr(
    cluster: Cluster, boot: str, clean: bool, disk: int, policy: str, stays: bool
) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3), flush_policy=policy)
    down_to(cluster)
    assert cluster.standing("a") == (NO_NODE, (), (1, 2))
    cluster.register(2, incarnation=1, boot=boot, clean=clean, disk=disk)
    assert cluster.standing("a") == (NO_NODE, (), (1, 2) if stays else (1,))
    cluster.unfence(2)
    assert cluster.standing("a") == ((2, (2,), (1,)) if stays else (NO_NODE, (), (1,)))


def test_an_empty_boot_id_is_never_the_same_boot(cluster: Cluster) -> None:
    for node in (1, 2, 3):
        cluster.register(node, boot="")
        cluster.unfence(node)
    cluster.assign("a", (1, 2, 3))
    cluster.register(1, incarnation=1, boot="")
    cluster.register(2, incarnation=1, boot="")
    assert cluster.standing("a") == (3, (3,), ())


def test_leader_that_lost_records_is_replaced_from_the_elr(three: Cluster) -> None:
    down_to(three, 2)
    three.unfence(1)
    assert three.standing("a") == (2, (2,), (1,))
    three.register(2, incarnation=1, boot="other")
    assert three.standing("a") == (1, (1,), ())
    assert not three.partition("a").recovering


def test_a_lone_replica_on_fsync_comes_back_by_itself_after_a_power_cut(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.assign("a", (1,))
    cluster.register(1, incarnation=1, boot="other")
    assert cluster.standing("a") == (NO_NODE, (), (1,))
    cluster.unfence(1)
    assert cluster.standing("a") == (1, (1,), ())
    assert not cluster.partition("a").recovering


# --- empty ISR and ELR ---------------------------------------------------------------------------


def all_lost(cluster: Cluster, *, disk: int = 0) -> None:
    """Cut the power of all three brokers. Broker 2 was the last member with all records, and has
    this disk now."""
    cluster.register(3, incarnation=1, boot="other")
    cluster.register(1, incarnation=1, boot="other")
    assert cluster.standing("a") == (2, (2,), ())
    cluster.register(2, incarnation=1, boot="other", disk=disk)
    assert cluster.standing("a") == (NO_NODE, (), ())


def test_last_member_that_lost_records_leads_after_its_return(three: Cluster) -> None:
    all_lost(three)
    assert three.partition("a").last_known_elr == (2,)
    three.unfence(1)
    three.unfence(3)
    assert three.standing("a") == (NO_NODE, (), ()), "they lack more records"
    three.unfence(2)
    assert three.standing("a") == (2, (2,), ())
    partition = three.partition("a")
    assert partition.recovering, "records may be lost, which must be recorded"
    assert partition.last_known_elr == ()


def test_the_last_member_may_lose_power_again_and_still_lead(three: Cluster) -> None:
    all_lost(three)
    three.register(2, incarnation=2, boot="third")
    three.unfence(2)
    assert three.standing("a") == (2, (2,), ())


def test_the_last_member_with_another_disk_does_not_lead(three: Cluster) -> None:
    all_lost(three, disk=1)
    for node in (1, 2, 3):
        three.unfence(node)
    assert three.standing("a") == (NO_NODE, (), ())
    assert three.partition("a").last_known_elr == ()


def test_disk_replaced_later_is_detected(three: Cluster) -> None:
    all_lost(three)
    three.register(2, incarnation=2, disk=1)
    three.unfence(2)
    assert three.standing("a") == (NO_NODE, (), ())


# --- unclean elections ---------------------------------------------------------------------------


def test_unclean_election_elects_any_live_replica(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3), unclean_leader_election_enable="true")
    cluster.set_isr("a", 1, 2)
    cluster.fence(1)
    assert cluster.standing("a") == (2, (2,), (1,)), "a clean replica comes first"
    cluster.fence(2)
    assert cluster.standing("a") == (3, (3,), (1, 2)), "these have more records if they lead again"
    assert cluster.partition("a").recovering


def test_last_known_elr_comes_before_other_live_replicas(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3))
    all_lost(cluster)
    cluster.unfence(2)
    assert cluster.standing("a") == (2, (2,), ())


def test_allowing_unclean_elections_elects_at_once(three: Cluster) -> None:
    three.set_isr("a", 1, 2)
    three.fence(1)
    three.fence(2)
    three.do(AlterConfigs(topic="a", changes=(("unclean.leader.election.enable", "true"),)))
    assert three.standing("a") == (3, (3,), (1, 2))


def test_cluster_config_allows_unclean_elections_of_topics_without_a_value(three: Cluster) -> None:
    three.assign("b", (1, 2, 3), unclean_leader_election_enable="false")
    for name in ("a", "b"):
        three.set_isr(name, 1, 2)
    three.fence(1)
    three.fence(2)
    three.do(AlterClusterConfigs(changes=(("unclean.leader.election.enable", "true"),)))
    assert three.standing("a") == (3, (3,), (1, 2))
    assert three.standing("b") == (NO_NODE, (), (1, 2))


# --- stopping, unregistering, older logs ----------------------------------------------------------


def test_a_stopping_broker_leads_nothing_and_is_in_no_isr(three: Cluster) -> None:
    three.stop(1)
    assert three.standing("a") == (2, (2, 3), ())
    assert three.stop(1).records == ()
    assert three.unfence(1).records == ()
    three.fence(1)
    assert three.standing("a") == (2, (2, 3), ())


def test_the_last_broker_stops_and_leads_again_after_its_restart(three: Cluster) -> None:
    for node in (3, 2, 1):
        three.stop(node)
    assert three.standing("a") == (NO_NODE, (), (1, 2))
    three.register(1, incarnation=1, boot="other", clean=True)
    three.unfence(1)
    assert three.standing("a") == (1, (1,), (2,))


def test_a_live_broker_is_not_unregistered(three: Cluster) -> None:
    with pytest.raises(InvalidRequest, match="is alive; stop it"):
        three.do(UnregisterBroker(broker_id=NodeId(1)))
    with pytest.raises(BrokerIdNotRegistered, match="broker 9 is not registered"):
        three.do(UnregisterBroker(broker_id=NodeId(9)))


def test_unregistered_broker_leaves_the_elr(three: Cluster) -> None:
    down_to(three)
    three.do(UnregisterBroker(broker_id=NodeId(2)))
    assert NodeId(2) not in three.image.brokers
    assert three.standing("a") == (NO_NODE, (), (1,))
    assert three.partition("a").replicas == (1, 2, 3)


def test_unregistered_broker_returns_as_one_without_records(three: Cluster) -> None:
    down_to(three)
    three.do(UnregisterBroker(broker_id=NodeId(1)))
    three.do(UnregisterBroker(broker_id=NodeId(2)))
    three.register(2, incarnation=1)
    three.unfence(2)
    assert three.standing("a") == (NO_NODE, (), ())


def test_the_brokers_own_change_comes_first(three: Cluster) -> None:
    kinds = [
        [record.WhichOneof("record") for record in decision.records]
        for decision in (three.fence(1), three.unfence(1), three.register(2, incarnation=1))
    ]
    assert kinds == [
        ["broker_change", "partition_change"],
        ["broker_change"],
        ["broker", "partition_change"],
    ]


def test_a_fenced_last_member_that_an_older_log_left_in_the_isr_leads_when_it_is_back(
    cluster: Cluster,
) -> None:
    """Before the ELR existed, the last member stayed in the ISR, fenced or not."""
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    topic_id = cluster.topic("a").id
    fenced = [
        pb.BrokerChangeRecord(id=n, broker_epoch=cluster.epoch(n), fenced=True) for n in (1, 2)
    ]
    left = pb.PartitionChangeRecord(
        topic_id=topic_id, partition=0, leader=-1, isr=pb.Nodes(ids=[2])
    )
    records = [pb.MetadataRecord(broker_change=change) for change in fenced]
    records.append(pb.MetadataRecord(partition_change=left))
    image = cluster.image
    cluster.image = replay_batch(image, records, base_offset=image.offset + 1, epoch=1)
    cluster.unfence(1)
    assert cluster.standing("a") == (NO_NODE, (), (2,))
    cluster.unfence(2)
    assert cluster.standing("a") == (2, (2,), ())
