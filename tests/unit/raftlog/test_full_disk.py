"""A full disk during a rewrite of the log: the rewrite is retried, and no entry is lost."""

import errno

import pytest

from quorumlog.errors import DiskFailed, DiskFull, QuorumlogError, SnapshotDamaged
from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.shell.metadata_log import MetadataLog
from quorumlog.simulation import SimWorld

from .durable import PAIR, chunks, data, live, snapshot_bytes, snapshot_id

NEW = snapshot_id(3, epoch=5)
CONTENT = snapshot_bytes(NEW, [b"s"] * 30)


async def fill(log: MetadataLog) -> None:
    """Append three batches below the recovery point and receive a snapshot."""
    await log.store_hard_state(HardState(Epoch(7), None))
    await log.append((data(0, b"a"), data(1, b"b"), data(2, b"c"), data(3, b"d")))
    await log._directory.checkpoints.checkpoint()
    await receive(log)


async def receive(log: MetadataLog) -> None:
    for piece in chunks(NEW, CONTENT):
        await log.write_snapshot_chunk(piece)


async def look(log: MetadataLog) -> None:
    assert (log.snapshots, log.view.start, log.view.end_offset) == ((NEW,), NEW.log_end, 3)
    reader = await log.open_snapshot(NEW)
    assert await reader.next() == [b"s"] * 30


def test_installation_on_a_full_disk_is_retried() -> None:
    with SimWorld(0) as world:
        node = world.node("one")

        async def install(log: MetadataLog) -> None:
            await fill(log)
            node.device.fail("write", errno.ENOSPC, path_part="recovery-point-offset", times=2)
            for _ in range(2):
                with pytest.raises(DiskFull):
                    await log.install_snapshot(NEW, PAIR)
            await log.install_snapshot(NEW, PAIR)
            assert (log.snapshots, log.log.log_start_offset) == ((NEW,), 3)
            await log.append((data(3, b"e", epoch=6),))
            assert await log.read_entries(Offset(3), Offset(4)) == (data(3, b"e", epoch=6),)
            await log.truncate_to(Offset(3))

        live(world, node, install)
        live(world, node, look)


@pytest.mark.parametrize(
    ("name", "error"),
    [("recovery-point-offset", DiskFull), ("log-start-offset", DiskFailed)],
)
def test_installation_that_never_had_space_completes_at_the_next_start(
    name: str, error: type[QuorumlogError]
) -> None:
    with SimWorld(0) as world:
        node = world.node("one")

        async def install(log: MetadataLog) -> None:
            await fill(log)
            node.device.fail("write", errno.ENOSPC, path_part=name, times=1)
            with pytest.raises(error):
                await log.install_snapshot(NEW, PAIR)

        live(world, node, install)
        live(world, node, look)


def test_snapshot_that_could_not_be_synced_is_received_again() -> None:
    with SimWorld(0) as world:
        node = world.node("one")

        async def install(log: MetadataLog) -> None:
            await fill(log)
            node.device.fail("sync", errno.ENOSPC, path_part=".part", times=1)
            with pytest.raises(SnapshotDamaged, match="no space"):
                await log.install_snapshot(NEW, PAIR)
            assert (log.snapshots, log.log.log_end_offset) == ((), 4)
            await receive(log)
            await log.install_snapshot(NEW, PAIR)

        live(world, node, install)
        live(world, node, look)


def test_truncation_on_a_full_disk_changes_nothing_and_is_retried() -> None:
    with SimWorld(0) as world:
        node = world.node("one")

        async def cut(log: MetadataLog) -> None:
            await fill(log)
            node.device.fail("write", errno.ENOSPC, path_part="recovery-point-offset", times=1)
            with pytest.raises(DiskFull):
                await log.truncate_to(Offset(2))
            assert len(await log.read_entries(Offset(0), Offset(4))) == 4
            await log.truncate_to(Offset(2))
            assert log.log.log_end_offset == 2

        async def look_after(log: MetadataLog) -> None:
            assert log.view.end_offset == 2

        live(world, node, cut)
        live(world, node, look_after)
