"""Snapshots of whole members: taken, cleaned behind, sent to lagging peers, loaded at a start."""

import errno

import pytest

from quorumlog.raftlog import LogView
from quorumlog.raftlog.shell import RaftNodeConfig
from quorumlog.raftlog.shell.snapshot_writer import grown_past
from quorumlog.simulation import SimWorld
from quorumlog.simulation.fault_options import Faults

from .entries import entry
from .quorum import Quorum

EVERY_BYTES = 2_000
VALUES = [b"%04d" % number * 50 for number in range(100)]


def snapshotting(world: SimWorld, *, voters: int, **config: int) -> Quorum:
    """A quorum that takes a snapshot every ten values and keeps few entries."""
    node_config = RaftNodeConfig(snapshot_every_bytes=EVERY_BYTES, tail_bytes_max=1_000)
    return Quorum(world, voters=voters, node_config=node_config, **config)


def test_snapshots_are_due_by_bytes_of_whole_batches() -> None:
    log = LogView()
    for base in range(10):
        log.append(entry(base).base_offset, entry(base).next_offset, entry(base).epoch, 100)
    start, end = entry(2).base_offset, entry(5).base_offset
    assert not grown_past(log, start, end, bytes_min=300)
    assert grown_past(log, start, end, bytes_min=299)
    assert not grown_past(log, start, start, bytes_min=1)


@pytest.mark.parametrize("power", [False, True])
def test_a_lone_voter_starts_from_its_snapshot(power: bool) -> None:
    with SimWorld(1) as world:
        quorum = snapshotting(world, voters=1)
        quorum.start()
        for value in VALUES:
            quorum.propose(value)
        member = quorum[1]
        quorum.wait(lambda: member.raft.status().log_start_offset > 0)
        if power:
            member.machine.power_cut()
        else:
            member.machine.crash()
        quorum.start()
        quorum.wait_leader()
        assert member.journal.restored == 1
        assert member.journal.values == VALUES
        assert quorum.propose(b"more") > len(VALUES)


def test_state_machine_that_declines_a_snapshot_is_asked_again_later() -> None:
    """A state machine declines between the records of one transaction."""
    with SimWorld(1) as world:
        quorum = snapshotting(world, voters=1)
        quorum.start()
        member = quorum[1]
        member.journal.gives_snapshots = False
        for value in VALUES[:50]:
            quorum.propose(value)
        assert member.raft.status().log_start_offset == 0
        member.journal.gives_snapshots = True
        for value in VALUES[50:]:
            quorum.propose(value)
        quorum.wait(lambda: member.raft.status().log_start_offset > 0)


@pytest.mark.slow
def test_a_follower_whose_entries_are_gone_is_sent_the_snapshot() -> None:
    with SimWorld(2) as world:
        quorum = snapshotting(world, voters=3, snapshot_chunk_bytes=500)
        quorum.start()
        leader = quorum.wait_leader()
        lagging = next(each for each in quorum.members.values() if each is not leader)
        lagging.machine.crash()
        for value in VALUES:
            quorum.propose(value)
        leader = quorum.wait_leader()
        quorum.wait(lambda: leader.raft.status().log_start_offset > 10)
        quorum.start(lagging.voter.node_id)
        quorum.wait(lambda: lagging.lives and lagging.journal.restored)
        quorum.propose(b"more")
        assert quorum.converge(1, 2, 3) == [*VALUES, b"more"]
        assert lagging.raft.status().log_start_offset > 10


@pytest.mark.slow
def test_new_member_gets_state_and_voters_from_the_snapshot() -> None:
    with SimWorld(3) as world:
        quorum = snapshotting(world, voters=3)
        quorum.start()
        for value in VALUES:
            quorum.propose(value)
        leader = quorum.wait_leader()
        quorum.wait(lambda: leader.raft.status().log_start_offset > 10)
        observer = quorum.member(4)
        quorum.start(4)
        quorum.wait(lambda: observer.lives and observer.raft.status().applied_end > 100)
        assert quorum.converge(1, 2, 3, 4) == VALUES
        assert observer.raft.voters == leader.raft.voters
        assert observer.journal.leaders[-1] == (leader.voter.node_id, leader.raft.status().epoch)


@pytest.mark.slow
def test_a_damaged_snapshot_is_refused_and_fetched_again() -> None:
    """The leader sends the bytes of its disk; the follower detects a flipped bit."""
    with SimWorld(4) as world:
        quorum = snapshotting(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        lagging = next(each for each in quorum.members.values() if each is not leader)
        lagging.machine.crash()
        for value in VALUES:
            quorum.propose(value)
        leader = quorum.wait_leader()
        quorum.wait(lambda: len(leader.raft.status().snapshots) == 2)
        newest = leader.raft.status().snapshots[-1]
        folder = "/data/__cluster_metadata-0"
        files = leader.machine.runtime().files
        name = next(n for n in files.names(folder) if n.startswith(f"{newest.end_offset:020}"))
        file = files.open(f"{folder}/{name}")
        good = file.read(300, 1)
        file.write(300, [bytes([good[0] ^ 1])])
        quorum.start(lagging.voter.node_id)
        world.run_for(3_000)
        assert lagging.lives
        assert lagging.journal.restored == 0
        file.write(300, [good])
        quorum.propose(b"more")
        assert quorum.converge(1, 2, 3) == [*VALUES, b"more"]
        assert lagging.journal.restored == 1


def test_snapshot_on_a_full_disk_is_retried_and_the_log_is_kept() -> None:
    with SimWorld(5) as world:
        quorum = snapshotting(world, voters=1)
        quorum.start()
        quorum.wait_leader()
        device = quorum[1].machine.device
        device.fail("write", errno.ENOSPC, path_part="checkpoint", times=1)
        for value in VALUES[:30]:
            quorum.propose(value)
        assert quorum[1].machine.stops == []
        for value in VALUES[30:]:
            quorum.propose(value)
        quorum.wait(lambda: quorum[1].raft.status().snapshots)


def test_a_follower_whose_disk_is_always_behind_takes_snapshots() -> None:
    """Entries are committed before this follower has written them: its snapshot waits for its own
    log."""
    with SimWorld(7) as world:
        quorum = snapshotting(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        slow = next(each for each in quorum.members.values() if each is not leader)
        slow.machine.machine.device_slow_ms = 500
        for value in VALUES[:30]:
            quorum.propose(value, at=leader)
        quorum.wait(lambda: slow.raft.status().snapshots)
        assert quorum.converge(1, 2, 3) == VALUES[:30]


@pytest.mark.slow
def test_members_that_crash_at_any_moment_of_snapshots_lose_nothing() -> None:
    with SimWorld(6) as world:
        quorum = snapshotting(world, voters=3)
        quorum.start()
        committed: list[bytes] = []
        for round_, value in enumerate(VALUES):
            quorum.propose(value)
            committed.append(value)
            if round_ % 7 == 6:
                victim = quorum[round_ % 3 + 1]
                if round_ % 2:
                    victim.machine.power_cut()
                else:
                    victim.machine.crash()
                world.run_for(round_ * 13 % 40)
                quorum.start(victim.voter.node_id)
                quorum.wait_open(victim)
        values = quorum.converge(1, 2, 3)
        assert [value for value in values if value in committed] == committed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_follower_catches_up_from_a_cold_disk_while_the_log_is_cleaned(seed: int) -> None:
    with SimWorld(seed, faults=Faults(cache_miss=1.0, lane_us=(5_000, 200_000))) as world:
        quorum = snapshotting(world, voters=3)
        quorum.start()
        leader = quorum.wait_leader()
        for value in VALUES[:15]:
            quorum.propose(value, at=leader)
        lagging = next(each for each in quorum.members.values() if each is not leader)
        lagging.machine.crash()
        for value in VALUES[15:30]:
            quorum.propose(value, at=leader)
        quorum.start(lagging.voter.node_id)
        for value in VALUES[30:]:
            quorum.propose(value, at=leader)
        assert leader.raft.status().is_leader
        assert quorum.converge(1, 2, 3) == VALUES
