"""Leaders on demand, and leaderships given back to preferred replicas."""

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
    """Ten partitions of topic a prefer broker 1, ten 2; all are led by 2, and all are in sync."""
    cluster.start(1, 2)
    cluster.assign("a", *[(1, 2)] * 10, *[(2, 1)] * 10)
    cluster.fence(1)
    cluster.unfence(1)
    for index in range(20):
        cluster.set_isr("a", 1, 2, index=index)
    assert set(led_by(cluster, "a", 20)) == {2}
    return cluster


# --- on demand -----------------------------------------------------------------------------------


def test_preferred_leaders_are_elected_where_they_are_named(moved: Cluster) -> None:
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
    assert decision.brokers == (1, 2), "both must know who leads"


def test_preferred_leaders_are_elected_wherever_others_lead(moved: Cluster) -> None:
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


def test_a_partition_is_named_once(moved: Cluster) -> None:
    decision = moved.do(ElectLeaders(partitions=(("a", 0), ("a", 0))))
    assert errors(decision) == [None, InvalidRequest]
    assert moved.partition("a").leader_epoch == 2


def test_an_unclean_election_takes_whoever_is_alive(cluster: Cluster) -> None:
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
    assert cluster.standing("a", 0) == (NO_NODE, (), (1, 2)), "it was not named"


def test_an_unclean_election_is_not_needed_where_somebody_leads(moved: Cluster) -> None:
    decision = moved.do(ElectLeaders(unclean=True, partitions=(("a", 0),)))
    assert errors(decision) == [ElectionNotNeeded]
    assert str(outcomes(decision)[0].error) == "a-0: broker 2 is the leader already"


def test_an_unclean_election_among_the_dead_elects_nobody(moved: Cluster) -> None:
    moved.fence(2)
    moved.fence(1)
    decision = moved.do(ElectLeaders(unclean=True, partitions=(("a", 0),)))
    assert errors(decision) == [EligibleLeadersNotAvailable]
    assert decision.records == ()


def test_unclean_elections_are_never_asked_for_wholesale(moved: Cluster) -> None:
    with pytest.raises(InvalidRequest, match="name its partitions"):
        moved.do(ElectLeaders(unclean=True))


# --- balance -------------------------------------------------------------------------------------


def test_leaderships_go_back_where_too_many_are_elsewhere(moved: Cluster) -> None:
    decision = moved.do(BalanceLeaders())
    assert changed(decision) == [("a", index) for index in range(10)]
    assert led_by(moved, "a", 20) == [1] * 10 + [2] * 10
    assert moved.do(BalanceLeaders()).records == ()


@pytest.mark.parametrize(("elsewhere", "moves"), [(1, 0), (2, 2)])
def test_a_tenth_elsewhere_is_borne(moved: Cluster, elsewhere: int, moves: int) -> None:
    back = tuple(("a", index) for index in range(elsewhere, 10))
    moved.do(ElectLeaders(partitions=back))
    assert len(moved.do(BalanceLeaders()).records) == moves


def test_what_is_borne_is_a_config(moved: Cluster) -> None:
    moved.do(ElectLeaders(partitions=tuple(("a", index) for index in range(1, 10))))
    name = "leader.imbalance.per.broker.percentage"
    moved.do(AlterClusterConfigs(changes=((name, "0"),)))
    assert changed(moved.do(BalanceLeaders())) == [("a", 0)]


def test_balance_may_be_switched_off(moved: Cluster) -> None:
    moved.do(AlterClusterConfigs(changes=(("auto.leader.rebalance.enable", "false"),)))
    assert moved.do(BalanceLeaders()).records == ()


def test_a_preferred_replica_that_is_not_in_sync_is_left_alone(moved: Cluster) -> None:
    for index in range(9):
        moved.set_isr("a", 2, index=index)
    assert moved.do(BalanceLeaders()).records == (), "one of ten could go back, no more"


def test_a_round_elects_where_a_leader_has_become_possible(cluster: Cluster) -> None:
    """As after a change of which nothing but the configs tells."""
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
