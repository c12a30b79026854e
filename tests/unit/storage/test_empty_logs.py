"""A log without records, after deletion or truncation, keeps its end offset and its leader
epoch."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import DiskFailed
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.simulation.files import CrashPoint
from quorumlog.storage import AppendOrigin, Log, LogConfig
from quorumlog.storage.inspect.directory_check import check
from quorumlog.storage.shell import DataDirectory

DATA = "/data"
TOPIC = TopicId(b"t" * 16)
PLAIN = LogConfig()
GAPS = LogConfig(compacted=True)

Work = Callable[[DataDirectory, Log], Coroutine[Any, Any, None]]


def batch(offset: int, *, epoch: int) -> bytes:
    record = Record(offset=0, timestamp_ms=0, key=b"k", value=b"v", headers=())
    return encode_batch([record], base_offset=offset, leader_epoch=epoch)


async def append(directory: DataDirectory, log: Log, offset: int, *, epoch: int) -> None:
    """Append one replicated record durably."""
    await directory.append(
        log,
        batch(offset, epoch=epoch),
        leader_epoch=epoch,
        origin=AppendOrigin.REPLICATED,
        flush=True,
    )


def run_process(
    world: SimWorld, node: SimNode, work: Work, *, config: LogConfig = PLAIN, closes: bool = True
) -> None:
    """Run work on the log in one process, then stop cleanly or cut the power."""

    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await work(directory, log)
            if closes:
                await directory.close()
            scope.cancel()

    node.spawn(main)
    world.run_until(lambda: not node.alive, virtual_ms=600_000)
    if node.exit_error is not None:
        raise node.exit_error
    if not closes and node.machine.powered:
        node.power_cut()


def problems(node: SimNode) -> list[object]:
    node.start_process()
    found: list[object] = [
        finding
        for finding in check(node.runtime().files, DATA).all_findings()
        if finding.severity == "problem"
    ]
    node.crash()
    return found


async def fill_and_delete(directory: DataDirectory, log: Log) -> None:
    for offset in range(5):
        await append(directory, log, offset, epoch=offset // 2)
    log.note_high_watermark(5)
    await directory.truncation.delete_records(log, -1)


@pytest.mark.parametrize("closes", [True, False], ids=["clean", "power cut"])
def test_log_with_all_records_deleted_keeps_its_newest_epoch(closes: bool) -> None:
    async def look(directory: DataDirectory, log: Log) -> None:
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        assert log.epochs.entries() == [(2, 5)]
        assert log.epochs.end_offset_for(2, log.log_end_offset) == (2, 5)

    with SimWorld(0) as world:
        node = world.node("node")
        run_process(world, node, fill_and_delete, closes=closes)
        for _ in range(3):
            run_process(world, node, look, closes=closes)
            assert not problems(node)


@pytest.mark.parametrize("closes", [True, False], ids=["clean", "power cut"])
def test_an_emptied_log_without_a_batch_on_the_disk_keeps_its_newest_epoch(closes: bool) -> None:
    """The epoch is then in the epoch checkpoint only."""

    async def empty(directory: DataDirectory, log: Log) -> None:
        await fill_and_delete(directory, log)
        log.appender.roll(0)
        await directory.flush(log)
        removal = log.cleanup.begin_remove(1)
        directory._runtime.files.remove(removal.log_paths[0])
        log.cleanup.complete_remove(removal)
        await directory.checkpoints.store([log])

    async def look(directory: DataDirectory, log: Log) -> None:
        assert (log.log_start_offset, log.log_end_offset, log.epochs.latest) == (5, 5, 2)

    with SimWorld(0) as world:
        node = world.node("node")
        run_process(world, node, empty, closes=closes)
        for _ in range(3):
            run_process(world, node, look, closes=closes)
            assert not problems(node)


def test_retention_that_takes_the_last_batch_leaves_its_epoch() -> None:
    """No checkpoint was stored between the appends and the power cut."""

    async def age(directory: DataDirectory, log: Log) -> None:
        for offset in range(5):
            await append(directory, log, offset, epoch=offset // 2)
        log.note_high_watermark(5)
        directory.maintenance.check_soon()
        await asyncio.sleep(0.1)
        assert (log.log_start_offset, log.size_bytes) == (5, 0)

    async def look(directory: DataDirectory, log: Log) -> None:
        assert (log.log_start_offset, log.log_end_offset, log.epochs.latest) == (5, 5, 2)

    old = LogConfig(retention_ms=1)
    for seed in range(5):
        with SimWorld(seed) as world:
            node = world.node("node")
            run_process(world, node, age, config=old, closes=False)
            run_process(world, node, look, config=old)


@pytest.mark.parametrize("closes", [True, False], ids=["clean", "power cut"])
def test_log_truncated_at_its_start_has_the_epoch_below_it(closes: bool) -> None:
    """Offset 5 of epoch 9 is truncated. The batches below the start stay on disk, in epoch 2."""

    async def cut(directory: DataDirectory, log: Log) -> None:
        await fill_and_delete(directory, log)
        await append(directory, log, 5, epoch=9)
        await directory.checkpoints.checkpoint()
        await directory.truncation.truncate(log, 5)
        assert log.epochs.entries() == [(2, 5)]

    async def look(directory: DataDirectory, log: Log) -> None:
        assert log.epochs.entries() == [(2, 5)]
        if log.log_end_offset == 5:
            await append(directory, log, 5, epoch=3)

    with SimWorld(0) as world:
        node = world.node("node")
        run_process(world, node, cut, closes=closes)
        assert not problems(node)
        run_process(world, node, look, closes=closes)
        assert not problems(node)


def test_epoch_of_unflushed_batches_is_not_stored() -> None:
    """The checkpoint omits the only epoch of an emptied log with unflushed appends."""

    async def half(directory: DataDirectory, log: Log) -> None:
        await fill_and_delete(directory, log)
        await directory.checkpoints.checkpoint()
        await directory.append(
            log, batch(5, epoch=9), leader_epoch=9, origin=AppendOrigin.REPLICATED, flush=False
        )
        await directory.checkpoints.store([log])

    async def look(directory: DataDirectory, log: Log) -> None:
        assert log.epochs.latest == (9 if log.log_end_offset == 6 else 2)

    for seed in range(6):
        with SimWorld(seed) as world:
            node = world.node("node")
            run_process(world, node, half, closes=False)
            run_process(world, node, look)


@pytest.mark.parametrize("closes", [True, False], ids=["clean", "power cut"])
def test_log_truncated_at_a_start_inside_a_gap_is_empty_and_continues_there(closes: bool) -> None:
    """Regression: the log ended with the batch before the gap, below its own start."""

    async def cut(directory: DataDirectory, log: Log) -> None:
        for offset in (0, 1, 7):
            await append(directory, log, offset, epoch=offset)
        log.note_high_watermark(4)
        await directory.truncation.delete_records(log, 4)
        await directory.truncation.truncate(log, 4)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (4, 4, 4)
        assert log.epochs.latest == 1
        assert log.size_bytes == 0

    async def look(directory: DataDirectory, log: Log) -> None:
        assert (log.log_start_offset, log.log_end_offset, log.epochs.latest) == (4, 4, 1)

    async def use(directory: DataDirectory, log: Log) -> None:
        await append(directory, log, 4, epoch=3)
        assert log.epochs.entries() == [(3, 4)]

    async def look_again(directory: DataDirectory, log: Log) -> None:
        assert (log.log_start_offset, log.log_end_offset, log.epochs.latest) == (4, 5, 3)

    with SimWorld(0) as world:
        node = world.node("node")
        for work in (cut, look, use, look_again):
            run_process(world, node, work, config=GAPS, closes=closes)
            assert not problems(node), work


def test_a_cut_in_a_gap_leaves_a_log_after_a_power_cut_at_any_operation() -> None:
    """With any remaining segments the log starts where it did, or all records are there."""

    async def fill(directory: DataDirectory, log: Log) -> None:
        for offset in (0, 1, 7):
            await append(directory, log, offset, epoch=0)
            log.appender.roll(0)
        log.note_high_watermark(4)
        await directory.truncation.delete_records(log, 4)
        await directory.checkpoints.checkpoint()

    async def look(directory: DataDirectory, log: Log) -> None:
        assert (log.log_start_offset, log.log_end_offset) in ((4, 4), (4, 8))

    async def cut(directory: DataDirectory, log: Log) -> None:
        node.device.arm(CrashPoint(operations=number, power=True, moment="after"))
        await directory.truncation.truncate(log, 4)

    for number in range(1, 24):
        with SimWorld(number) as world:
            node = world.node("node")
            run_process(world, node, fill, config=GAPS)
            run_process(world, node, cut, config=GAPS, closes=False)
            node.device.arm(None)
            run_process(world, node, look, config=GAPS)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_interrupted_deletion_leaves_only_records_of_the_deleted_topic(moment: str) -> None:
    """The checkpoints of the log are removed first, so deleted records may reappear. They belong to
    the deleted topic: a new topic of this name cannot open them."""

    async def delete(directory: DataDirectory, log: Log) -> None:
        await fill_and_delete(directory, log)
        node.device.arm(CrashPoint(operations=number, power=True, moment=moment))
        await directory.folders.delete_log(log)

    async def look(directory: DataDirectory, log: Log) -> None:
        assert log.log_end_offset in (0, 5)
        seen.add(log.log_end_offset)

    async def next_topic(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA)
            if "t-0" in directory.folders.names():
                with pytest.raises(DiskFailed, match="another topic"):
                    await directory.open_log("t-0", PLAIN, topic_id=TopicId(b"u" * 16))
            scope.cancel()

    seen: set[int] = set()
    for number in range(1, 24):
        with SimWorld(number) as world:
            node = world.node("node")
            run_process(world, node, delete, closes=False)
            node.device.arm(None)
            node.spawn(next_topic)
            world.run_until(lambda node=node: not node.alive, virtual_ms=600_000)  # type: ignore[misc]
            assert node.exit_error is None
            run_process(world, node, look)
    assert seen == {0, 5}
