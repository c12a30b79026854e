"""Snapshot installation while the same member does other work."""

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from quorumlog.raftlog.shell import RaftNodeConfig
from quorumlog.raftlog.shell.snapshot_writer import SnapshotWriter
from quorumlog.simulation import SimWorld

from .quorum import Journal, Member, Quorum

EVERY_BYTES = 2_000
VALUES = [b"%04d" % number * 50 for number in range(100)]


def snapshotting(world: SimWorld) -> Quorum:
    """Three voters that take a snapshot every ten values and keep few entries."""
    node_config = RaftNodeConfig(snapshot_every_bytes=EVERY_BYTES, tail_bytes_max=1_000)
    return Quorum(world, voters=3, node_config=node_config)


def follower_of(quorum: Quorum, leader: Member) -> Member:
    return next(each for each in quorum.members.values() if each is not leader)


def cut_off(world: SimWorld, quorum: Quorum, member: Member) -> None:
    """Drop all messages to and from a member."""
    name = member.machine.name
    others = [each.machine.name for each in quorum.members.values() if each is not member]
    world.fabric.barriers.close([(name, other) for other in others])
    world.fabric.barriers.close([(other, name) for other in others])


@pytest.mark.long
def test_a_cleaning_that_is_due_when_a_snapshot_is_installed_is_dropped() -> None:
    """The member's own snapshot completes while the received one waits for installation. Its
    cleaning offset is gone then."""
    with SimWorld(1) as world:
        quorum = snapshotting(world)
        quorum.start()
        leader = quorum.wait_leader()
        lagging = follower_of(quorum, leader)
        values = iter(VALUES)
        while not lagging.raft.status().snapshots:
            quorum.propose(next(values), at=leader)
            quorum.converge()
        before = lagging.raft.status().snapshots
        lagging.machine.machine.device_slow_ms = 10_000
        for _ in range(12):
            quorum.propose(next(values), at=leader)
        quorum.wait(lambda: has_file(lagging, ".checkpoint.tmp"), virtual_ms=900_000)
        cut_off(world, quorum, lagging)
        world.run_for(12_000)  # messages in flight to it are dropped
        for value in values:
            quorum.propose(value, at=leader)
        quorum.wait(
            lambda: leader.raft.status().log_start_offset > lagging.raft.status().log_end_offset
        )
        world.fabric.barriers.open_all()
        quorum.wait(lambda: has_file(lagging, ".checkpoint.part"), virtual_ms=120_000)
        assert lagging.raft.status().snapshots == before
        lagging.machine.machine.device_slow_ms = 0
        quorum.wait(lambda: lagging.journal.restored or not lagging.machine.alive, 300_000)
        assert quorum.converge(1, 2, 3) == VALUES
        assert lagging.machine.alive, lagging.machine.exit_error


def has_file(member: Member, suffix: str) -> bool:
    """Return True if there is such a file beside the log."""
    names = member.machine.runtime().files.names("/data/__cluster_metadata-0")
    return any(name.endswith(suffix) for name in names)


@dataclass
class Counts(Journal):
    """Records the turn of the loop in which each slice of a snapshot is taken."""

    turns: list[int] = field(default_factory=list)
    now: int = 0

    def snapshot(self) -> Iterator[list[bytes]]:
        return ([value] for value in list(self.values))

    def restore(self, values: list[bytes]) -> None:
        super().restore(values)
        self.turns.append(self.now)
        asyncio.get_running_loop().call_soon(self._turned)

    def _turned(self) -> None:
        self.now += 1


def test_state_is_restored_in_steps_that_yield_to_other_tasks() -> None:
    """One read of the disk has many slices, and each may take as long as a step of the loop may."""
    with SimWorld(1) as world:
        quorum = Quorum(
            world, voters=1, node_config=RaftNodeConfig(snapshot_every_bytes=EVERY_BYTES)
        )
        quorum.journal_type = Counts
        quorum.start()
        for value in VALUES[:30]:
            quorum.propose(value)
        member = quorum[1]
        quorum.wait(lambda: member.raft.status().log_start_offset > 0)
        member.machine.crash()
        quorum.start()
        quorum.wait_leader()
        assert isinstance(member.journal, Counts)
        assert len(member.journal.turns) > 10
        assert len(set(member.journal.turns)) == len(member.journal.turns)


def test_no_snapshot_begins_once_the_log_is_to_be_replaced() -> None:
    """The snapshot was due right before, but its task had not run yet."""
    with SimWorld(1) as world:
        quorum = Quorum(world, voters=1)
        quorum.start()
        quorum.propose(b"a")
        member = quorum.wait_leader()

        async def race() -> None:
            driver = member.raft._driver
            log = driver.sender._log
            taker = SnapshotWriter(driver.state, log, member.journal, 1, taken=lambda _: None)
            running = asyncio.ensure_future(taker.run())
            await asyncio.sleep(0)
            taker.applied(driver.state.applied_end)
            await taker.hold()
            await asyncio.sleep(1)
            assert log.snapshots == ()
            taker.close()
            await running

        quorum.run(member, race())


@pytest.mark.slow
def test_a_follower_whose_disk_is_full_takes_the_snapshot_once_there_is_room() -> None:
    with SimWorld(2) as world:
        quorum = snapshotting(world)
        quorum.start()
        leader = quorum.wait_leader()
        lagging = follower_of(quorum, leader)
        lagging.machine.crash()
        for value in VALUES:
            quorum.propose(value, at=leader)
        quorum.start(lagging.voter.node_id)
        quorum.wait_open(lagging)
        lagging.machine.device.fail("write", errno.ENOSPC, path_part="recovery-point", times=5)
        lagging.machine.device.fail("sync", errno.ENOSPC, path_part=".part", times=1)
        quorum.wait(lambda: lagging.journal.restored)
        assert quorum.converge(1, 2, 3) == VALUES
        assert lagging.machine.stops == []
