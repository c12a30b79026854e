"""Changes of voters and leaders with whole members: disks, network, shell and core."""

import asyncio

import pytest
from tests.kit.raft_node import propose

from quorumlog.errors import (
    DuplicateVoter,
    NotController,
    OutcomeUnknown,
    QuorumlogError,
    VoterLagging,
    VoterNotFound,
)
from quorumlog.ids import NodeId
from quorumlog.raftlog.voters import VoterAddition, VoterRemoval, VoterSet
from quorumlog.simulation import SimWorld

from .quorum import Member, Quorum, refused


def add(quorum: Quorum, newcomer: Member) -> None:
    """Add an observer as a voter through the leader, once it has caught up."""
    leader = quorum.wait_leader()
    quorum.wait(
        lambda: (
            newcomer.lives
            and newcomer.raft.leader_id == leader.voter.node_id
            and newcomer.raft.status().applied_end == leader.raft.status().applied_end
        )
    )
    quorum.run(leader, leader.raft.change_voters(VoterAddition(newcomer.voter, newcomer.address)))


def ids(voters: VoterSet) -> list[int]:
    return [voter.node_id for voter in voters]


def test_a_lone_voter_grows_to_three_while_it_works() -> None:
    with SimWorld(1) as world:
        quorum = Quorum(world, voters=1)
        quorum.start(1)
        quorum.propose(b"a")
        for number in (2, 3):
            newcomer = quorum.member(number)
            quorum.start(number)
            add(quorum, newcomer)
            quorum.propose(b"%d" % number)
        assert quorum.converge(1, 2, 3) == [b"a", b"2", b"3"]
        assert ids(quorum[3].raft.voters) == [1, 2, 3]
        quorum[1].machine.crash()
        quorum.propose(b"b", at=quorum.wait_leader(besides=1))
        quorum.start(1)
        quorum.wait(lambda: quorum[1].lives)
        assert quorum.converge(1, 2, 3)[-1] == b"b"


def test_only_a_following_observer_is_added_as_voter() -> None:
    with SimWorld(2) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        quorum.propose(b"a")
        stranger = quorum.member(4)
        for voter, error in ((stranger.voter, VoterLagging), (quorum[2].voter, DuplicateVoter)):
            change = VoterAddition(voter, "n4:9093")
            raised = refused(quorum, leader, leader.raft.change_voters(change))
            assert isinstance(raised, error)
        raised = refused(quorum, leader, leader.raft.change_voters(VoterRemoval(stranger.voter)))
        assert isinstance(raised, VoterNotFound)


def test_a_leader_that_removes_itself_commits_that_and_another_leads() -> None:
    with SimWorld(3) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        quorum.propose(b"a")
        quorum.run(leader, leader.raft.change_voters(VoterRemoval(leader.voter)))
        second = quorum.wait_leader(besides=leader.voter.node_id)
        quorum.propose(b"b", at=second)
        assert leader.voter not in second.raft.voters
        assert len(second.raft.voters) == 2
        # As an observer it keeps following and never campaigns.
        assert quorum.converge(1, 2, 3) == [b"a", b"b"]


def test_node_with_a_wiped_disk_rejoins_as_a_new_voter() -> None:
    with SimWorld(4) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        quorum.propose(b"a")
        wiped = next(each for each in quorum.members.values() if each is not leader)
        before = wiped.voter
        wiped.machine.power_cut()
        quorum.wipe(before.node_id)
        quorum.start(before.node_id)
        leader = quorum.wait_leader(besides=before.node_id)
        quorum.run(leader, leader.raft.change_voters(VoterRemoval(before)))
        add(quorum, wiped)
        quorum.propose(b"b")
        assert quorum.converge(1, 2, 3) == [b"a", b"b"]
        assert wiped.voter in leader.raft.voters
        assert before not in leader.raft.voters


def test_leadership_is_transferred_to_the_given_voter() -> None:
    with SimWorld(5) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        first = quorum.wait_leader()
        quorum.propose(b"a")
        to = NodeId(first.voter.node_id % 3 + 1)
        before_ms = world.now_ms()
        quorum.run(first, first.raft.transfer(to))
        second = quorum.wait_leader(besides=first.voter.node_id)
        assert second.voter.node_id == to
        assert world.now_ms() - before_ms < 300, "the transfer waited for an election timeout"
        assert isinstance(refused(quorum, first, first.raft.transfer()), NotController)
        quorum.propose(b"b", at=second)
        assert quorum.converge() == [b"a", b"b"]


def test_a_leader_that_stops_is_replaced_at_once() -> None:
    with SimWorld(6) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        first = quorum.wait_leader()
        quorum.propose(b"a")
        assert first.stop is not None
        before_ms = world.now_ms()
        first.stop.set()
        quorum.wait_leader(besides=first.voter.node_id)
        assert world.now_ms() - before_ms < 300
        quorum.wait(lambda: not first.machine.alive)
        assert first.machine.exit_error is None


@pytest.mark.parametrize("seed", range(3))
def test_proposal_of_a_partitioned_leader_has_an_unknown_outcome_or_is_refused(seed: int) -> None:
    """OutcomeUnknown: it may be committed. NotController: it is certainly not committed."""
    with SimWorld(seed) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        outcomes: dict[bytes, QuorumlogError | None] = {}

        async def propose_one(value: bytes) -> None:
            outcomes[value] = None
            try:
                await propose(leader.raft, [value])
            except QuorumlogError as error:
                outcomes[value] = error

        async def propose_all(_: object) -> None:
            async with asyncio.timeout(20):
                for number in range(200):
                    await propose_one(b"%d" % number)

        others = [each.machine.name for each in quorum.members.values() if each is not leader]
        directions = [
            direction
            for other in others
            for direction in ((leader.machine.name, other), (other, leader.machine.name))
        ]
        task = leader.machine.attach(propose_all, name="proposals")
        world.run_for(20)
        world.fabric.barriers.close(directions)
        second = quorum.wait_leader(besides=leader.voter.node_id)
        world.run_until(task, virtual_ms=30_000)
        quorum.propose(b"after", at=second)
        world.fabric.barriers.open_all()
        values = quorum.converge()
        for value, error in outcomes.items():
            if error is None:
                assert value in values
            elif not isinstance(error, OutcomeUnknown):
                assert isinstance(error, NotController)
                assert value not in values
        assert any(isinstance(error, OutcomeUnknown) for error in outcomes.values())
