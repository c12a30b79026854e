"""Elections on request, and the return of leaderships to preferred replicas."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.ids import NO_NODE
from quorumlog.metadata import (
    AlterClusterConfigs,
    BalanceLeaders,
    Decision,
    ElectLeaders,
    PartitionOutcome,
    PartitionOutcomes,
)
from quorumlog.proto import metadata_records_pb2 as pb


def outcomes(decision: Decision) -> tuple[PartitionOutcome, ...]:
    assert isinstance(decision.reply, PartitionOutcomes)
    return decision.reply.outcomes


def errors(decision: Decision) -> list[type[QuorumlogError] | None]:
    return [None if each.error is None else type(each.error) for each in outcomes(decision)]


def changed(decision: Decision) -> list[tuple[str, int]]:
    return [(each.topic, each.partition) for each in outcomes(decision) if each.error is None]


def led_by(cluster: Cluster, name: str, count: int) -> list[int]:
    return [cluster.partition(name, index).leader for index in range(count)]


@pytest.fixture
def moved(cluster: Cluster) -> Cluster:
    """Return an image in which broker 2 leads 20 partitions of topic a, all in sync.

    Ten of them prefer broker 1, ten broker 2.
    """
    cluster.start(1, 2)
    cluster.assign("a", *[(1, 2)] * 10, *[(2, 1)] * 10)
    cluster.fence(1)
    cluster.unfence(1)
    for index in range(20):
        cluster.set_isr("a", 1, 2, index=index)
    assert set(led_by(cluster, "a", 20)) == {2}
    return cluster


# --- on demand -----------------------------------------------------------------------------------


def test_preferred_leaders_are_elected_in_the_given_partitions(moved: Cluster) -> None:
    decision = moved.do(ElectLeaders(partitions=(("a", 3), ("a", 12), ("a", 99), ("b", 0))))
    assert errors(decision) == [
        None,
        ElectionNotNeeded,
        UnknownTopicOrPartition,
        UnknownTopicOrPartition,
    ]
    assert len(decision.records) == 1
    assert moved.standing("a", 3) == (1, (1, 2), ())
    assert moved.partition("a", 3).leader_epoch == 2
    assert decision.brokers == (1, 2), "both must have the new leader"


def test_preferred_leaders_are_elected_in_all_partitions(moved: Cluster) -> None:
    decision = moved.do(ElectLeaders())
    assert changed(decision) == [("a", index) for index in range(10)]
    assert led_by(moved, "a", 20) == [1] * 10 + [2] * 10
    assert moved.do(ElectLeaders()).records == ()


def test_a_preferred_leader_that_is_not_in_sync_does_not_lead(moved: Cluster) -> None:
    moved.set_isr("a", 2, index=0)
    decision = moved.do(ElectLeaders(partitions=(("a", 0),)))
    assert errors(decision) == [PreferredLeaderNotAvailable]
    assert "the ISR is [2]" in str(outcomes(decision)[0].error)
    assert ("a", 0) not in changed(moved.do(ElectLeaders()))


def test_duplicate_partition_is_refused(moved: Cluster) -> None:
    decision = moved.do(ElectLeaders(partitions=(("a", 0), ("a", 0))))
    assert errors(decision) == [None, InvalidRequest]
    assert moved.partition("a").leader_epoch == 2


def test_unclean_election_elects_a_live_replica(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3), (1, 2, 3))
    for index in range(2):
        cluster.set_isr("a", 1, 2, index=index)
    cluster.fence(1)
    cluster.fence(2)
    decision = cluster.do(ElectLeaders(unclean=True, partitions=(("a", 1),)))
    assert errors(decision) == [None]
    assert cluster.standing("a", 1) == (3, (3,), (1, 2))
    assert cluster.partition("a", 1).recovering
    assert cluster.standing("a", 0) == (NO_NODE, (), (1, 2)), "it was not in the request"


def test_unclean_election_is_not_needed_with_a_leader(moved: Cluster) -> None:
    decision = moved.do(ElectLeaders(unclean=True, partitions=(("a", 0),)))
    assert errors(decision) == [ElectionNotNeeded]
    assert str(outcomes(decision)[0].error) == "a-0: broker 2 is the leader already"


def test_unclean_election_without_a_live_replica_elects_none(moved: Cluster) -> None:
    moved.fence(2)
    moved.fence(1)
    decision = moved.do(ElectLeaders(unclean=True, partitions=(("a", 0),)))
    assert errors(decision) == [EligibleLeadersNotAvailable]
    assert decision.records == ()


def test_unclean_election_needs_a_list_of_partitions(moved: Cluster) -> None:
    with pytest.raises(InvalidRequest, match="name its partitions"):
        moved.do(ElectLeaders(unclean=True))


# --- balance -------------------------------------------------------------------------------------


def test_leaderships_return_above_the_imbalance_limit(moved: Cluster) -> None:
    decision = moved.do(BalanceLeaders())
    assert changed(decision) == [("a", index) for index in range(10)]
    assert led_by(moved, "a", 20) == [1] * 10 + [2] * 10
    assert moved.do(BalanceLeaders()).records == ()


@pytest.mark.parametrize(("elsewhere", "moves"), [(1, 0), (2, 2)])
def test_imbalance_of_a_tenth_is_accepted(moved: Cluster, elsewhere: int, moves: int) -> None:
    back = tuple(("a", index) for index in range(elsewhere, 10))
    moved.do(ElectLeaders(partitions=back))
    assert len(moved.do(BalanceLeaders()).records) == moves


def test_imbalance_limit_is_a_config(moved: Cluster) -> None:
    moved.do(ElectLeaders(partitions=tuple(("a", index) for index in range(1, 10))))
    name = "leader.imbalance.per.broker.percentage"
    moved.do(AlterClusterConfigs(changes=((name, "0"),)))
    assert changed(moved.do(BalanceLeaders())) == [("a", 0)]


def test_balance_can_be_disabled(moved: Cluster) -> None:
    moved.do(AlterClusterConfigs(changes=(("auto.leader.rebalance.enable", "false"),)))
    assert moved.do(BalanceLeaders()).records == ()


def test_a_preferred_replica_that_is_not_in_sync_is_left_alone(moved: Cluster) -> None:
    for index in range(9):
        moved.set_isr("a", 2, index=index)
    assert moved.do(BalanceLeaders()).records == (), "only one of ten could return"


def test_a_round_elects_where_a_leader_has_become_possible(cluster: Cluster) -> None:
    """After a config change, for example, which no other event reports."""
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    cluster.fence(1)
    cluster.fence(2)
    cluster.unfence(1)
    assert cluster.standing("a") == (NO_NODE, (), (2,))
    allowed = pb.TopicConfigRecord(
        topic_id=cluster.topic("a").id, name="unclean.leader.election.enable", value="true"
    )
    cluster.replay((pb.MetadataRecord(topic_config=allowed),))
    assert changed(cluster.do(BalanceLeaders())) == [("a", 0)]
    assert cluster.standing("a") == (1, (1,), ())
