"""A member with a full, slow or failed disk in a quorum with working disks."""

import errno
from collections.abc import Awaitable

import pytest
from tests.kit.raft_node import propose

from quorumlog.errors import QuorumlogError
from quorumlog.raftlog.shell import RaftNode, RaftNodeConfig
from quorumlog.simulation import Faults, SimWorld

from .quorum import Quorum

LOG = "__cluster_metadata-0"


def test_leader_with_a_full_disk_resigns_and_follows_once_there_is_space() -> None:
    with SimWorld(1) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        first = quorum.wait_leader()
        quorum.propose(b"a")
        first.machine.device.fail("write", errno.ENOSPC, path_part=LOG, times=20)
        pending = first.machine.attach(
            lambda _: _quiet(propose(first.raft, [b"b"])), name="pending"
        )
        second = quorum.wait_leader(besides=first.voter.node_id)
        assert not first.raft.status().is_leader
        quorum.propose(b"c", at=second)
        assert first.machine.alive
        world.run_until(pending, virtual_ms=30_000)
        values = quorum.converge(1, 2, 3)  # it has space by then
        assert [value for value in values if value != b"b"] == [b"a", b"c"]
        assert first.machine.stops == []


async def _quiet(work: Awaitable[int]) -> None:
    try:
        await work
    except QuorumlogError:
        return


def test_follower_with_a_full_disk_delays_no_commit_and_catches_up() -> None:
    with SimWorld(2) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        full = next(each for each in quorum.members.values() if each is not leader)
        full.machine.device.fail("write", errno.ENOSPC, path_part=LOG, times=10)
        for number in range(20):
            quorum.propose(b"%d" % number, at=leader)
        assert quorum.wait_leader() is leader
        assert quorum.converge(1, 2, 3) == [b"%d" % number for number in range(20)]


@pytest.mark.slow
def test_a_follower_with_a_slow_disk_costs_no_election_and_no_latency() -> None:
    """Heartbeats are answered during slow writes; the other follower completes the majority."""
    with SimWorld(3) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        quorum.converge()
        epoch = leader.raft.status().epoch
        slow = next(each for each in quorum.members.values() if each is not leader)
        slow.machine.machine.device_slow_ms = 3_000
        before_ms = world.now_ms()
        for number in range(100):
            quorum.propose(b"%d" % number, at=leader)
        assert world.now_ms() - before_ms < 3_000
        world.run_for(20_000)
        assert leader.raft.status().is_leader
        assert leader.raft.status().epoch == epoch
        slow.machine.machine.device_slow_ms = 0
        assert len(quorum.converge(1, 2, 3)) == 100


def test_leader_with_a_slow_disk_keeps_leading_in_bounded_memory() -> None:
    with SimWorld(4) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        quorum.converge()
        epoch = leader.raft.status().epoch
        leader.machine.machine.device_slow_ms = 3_000
        quorum.propose(b"a", at=leader)
        world.run_for(10_000)
        assert (leader.raft.status().is_leader, leader.raft.status().epoch) == (True, epoch)


@pytest.mark.parametrize("victim_leads", [True, False])
def test_a_member_whose_disk_fails_stops_and_the_others_go_on(victim_leads: bool) -> None:
    with SimWorld(5) as world:
        quorum = Quorum(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        quorum.propose(b"a")
        victim = leader
        if not victim_leads:
            victim = next(each for each in quorum.members.values() if each is not leader)
        victim.machine.device.fail("sync", errno.EIO, path_part=LOG, times=1000)
        leader.machine.attach(lambda _: _quiet(propose(leader.raft, [b"b"])), name="pending")
        quorum.wait(lambda: not victim.machine.alive)
        assert ["metadata log" in reason for reason in victim.machine.stops] == [True]
        second = quorum.wait_leader(besides=victim.voter.node_id)
        quorum.propose(b"c", at=second)


def test_a_snapshot_that_the_disk_refuses_ends_the_node_with_a_reason() -> None:
    """A snapshot is not part of the log's writes, but the disk failed all the same."""
    with SimWorld(6) as world:
        quorum = Quorum(world, voters=1, node_config=RaftNodeConfig(snapshot_every_bytes=2_000))
        quorum.start()
        leader = quorum.wait_leader()
        leader.machine.device.fail("sync", errno.EIO, path_part="checkpoint", times=1000)
        task = leader.machine.attach(
            lambda _: _quiet(propose_all(leader.raft, 40)), name="proposals"
        )
        quorum.wait(lambda: not leader.machine.alive)
        assert ["metadata log" in reason for reason in leader.machine.stops] == [True]
        assert task.done() or not leader.machine.alive


async def propose_all(node: RaftNode, count: int) -> int:
    for number in range(count):
        await propose(node, [b"%d" % number * 100])
    return count


@pytest.mark.parametrize("consumer", ["reader", "delivery"])
def test_failed_read_for_a_peer_or_the_state_machine_stops_the_node_with_a_reason(
    consumer: str,
) -> None:
    with SimWorld(7, faults=Faults(cache_miss=1.0)) as world:
        quorum = Quorum(world, voters=3, node_config=RaftNodeConfig(tail_bytes_max=1))
        quorum.start()
        leader = quorum.wait_leader()
        lagging = next(each for each in quorum.members.values() if each is not leader)
        lagging.machine.crash()
        for number in range(10):
            quorum.propose(b"%d" % number * 100, at=leader)
        victim = leader
        if consumer == "delivery":
            victim = lagging
        quorum.start(lagging.voter.node_id)
        quorum.wait_open(lagging)
        victim.machine.device.fail("read", errno.EIO, path_part=LOG, times=1000)
        leader.machine.attach(lambda _: _quiet(propose(leader.raft, [b"b"])), name="pending")
        quorum.wait(lambda: not victim.machine.alive)
        assert ["metadata log" in reason for reason in victim.machine.stops] == [True]
