"""The read replica that a leader names to readers in another rack (KIP-392)."""

import pytest

from quorumlog.broker.isr import BrokerFacts
from quorumlog.broker.partition_follower import FollowerState
from quorumlog.errors import FencedLeaderEpoch, NotLeaderOrFollower
from quorumlog.ids import NO_NODE, Epoch, NodeId, Offset

from .isr_leader import ME, OTHER, THIRD, IsrLeader


def leader_in_racks(mine: str, other: str, third: str) -> IsrLeader:
    leader = IsrLeader(isr=(ME, OTHER, THIRD), end=9)
    racks = {ME: mine, OTHER: other, THIRD: third}
    leader.facts = {n: BrokerFacts(Offset(n), True, rack) for n, rack in racks.items()}
    leader.fetch(OTHER, 7)
    leader.fetch(THIRD, 9)
    return leader


@pytest.mark.parametrize(
    ("racks", "offset", "found"),
    [
        (("a", "b", "c"), 7, OTHER),
        (("a", "b", "c"), 8, None),  # it lacks that offset
        (("a", "b", "b"), 7, THIRD),  # it has more records
        (("b", "b", "b"), 7, None),  # the leader is as near
        (("a", "a", "c"), 7, None),  # no replica is in that rack
    ],
)
def test_a_leader_names_the_replica_in_the_readers_rack_that_has_most(
    racks: tuple[str, str, str], offset: int, found: NodeId | None
) -> None:
    assert leader_in_racks(*racks).leader.preferred_replica("b", offset) == found


def test_reader_without_a_rack_stays_at_the_leader() -> None:
    assert leader_in_racks("a", "", "").leader.preferred_replica("", 0) is None


def test_fenced_or_reregistered_replica_is_not_named() -> None:
    leader = leader_in_racks("a", "b", "c")
    for facts in (BrokerFacts(Offset(OTHER), False, "b"), BrokerFacts(Offset(99), True, "b")):
        leader.facts[OTHER] = facts
        assert leader.leader.preferred_replica("b", 0) is None


def test_replica_outside_of_the_isr_is_not_named() -> None:
    leader = IsrLeader(isr=(ME, THIRD), end=9)
    leader.facts[OTHER] = BrokerFacts(Offset(OTHER), True, "b")
    leader.fetch(OTHER, 9)
    assert leader.leader.preferred_replica("b", 0) is None


def test_only_a_replica_that_follows_a_leader_serves_reads() -> None:
    partition = IsrLeader().partition
    elsewhere = NotLeaderOrFollower("another one leads")

    def follow(leader: NodeId, epoch: int) -> None:
        state = FollowerState(leader_id=leader, leader_epoch=Epoch(epoch), partition_epoch=epoch)
        partition.become_follower(state, elsewhere)

    follow(OTHER, 2)
    partition.check_readable(2)
    partition.check_readable(None)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_readable(1)
    follow(NO_NODE, 3)
    with pytest.raises(NotLeaderOrFollower, match="another one leads"):
        partition.check_readable(3)
