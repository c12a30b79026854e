"""Whole members on simulated disks and network: election, replication, failover."""

import pytest
from tests.kit.raft_node import propose

from quorumlog.errors import NotController
from quorumlog.simulation import SimWorld

from .quorum import Quorum, refused


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_voters_elect_one_leader_and_replicate_in_order(voters: int) -> None:
    with SimWorld(1) as world:
        quorum = Quorum(world, voters=voters)
        quorum.start()
        for number in range(20):
            quorum.propose(b"%d" % number)
        assert quorum.converge() == [b"%d" % number for number in range(20)]


def test_a_follower_refuses_proposals_and_reads_and_names_the_leader() -> None:
    with SimWorld(2) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        quorum.converge()
        for member in quorum.members.values():
            if member is not leader:
                for work in (propose(member.raft, [b"a"]), member.raft.read_index()):
                    error = refused(quorum, member, work)
                    assert isinstance(error, NotController)
                    assert error.leader_id == leader.voter.node_id


@pytest.mark.parametrize("power", [False, True])
def test_others_continue_when_the_leader_dies_and_it_catches_up_later(power: bool) -> None:
    with SimWorld(3) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        first = quorum.wait_leader()
        quorum.propose(b"a")
        if power:
            first.machine.power_cut()
        else:
            first.machine.crash()
        second = quorum.wait_leader(besides=first.voter.node_id)
        assert second.raft.status().epoch > 1
        quorum.propose(b"b", at=second)
        quorum.start(first.voter.node_id)
        quorum.wait(lambda: first.lives)
        assert quorum.converge(1, 2, 3) == [b"a", b"b"]
