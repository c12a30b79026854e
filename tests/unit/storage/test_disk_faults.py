"""Full, failing and slow disks, simulated."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import (
    DiskFailed,
    DiskFull,
)
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.runtime import Runtime
from quorumlog.simulation import Faults, SimNode, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, LogConfig

Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
Run = Callable[[Main], Any]
MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit

CLUSTER, ONE, TOPIC = ClusterId("c" * 22), NodeId(1), TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)


def simulated(
    *mains: Callable[[Runtime, SimNode], Coroutine[Any, Any, Any]], faults: Faults | None = None
) -> None:
    """Run each `main` in its own process, which is killed at the end."""
    with SimWorld(0, faults=faults) as world:
        node = world.node("n")
        for main in mains:

            async def process(runtime: Runtime, main: Any = main) -> None:
                await main(runtime, node)

            task = node.spawn(process)
            world.run_until(task, virtual_ms=600_000)
            task.result()
            if node.alive:
                node.crash()


def test_a_full_disk_refuses_appends_until_there_is_room(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(inline_write_bytes_max=2_000)
        async with kit.opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(1, value=b"a"))
            disk = node.device.disk
            disk.capacity_bytes = 500
            for size in (1_000, 5_000):  # inline and in the lane
                with pytest.raises(DiskFull):
                    await kit.append(directory, log, batch(1, size=size))
            with pytest.raises(DiskFull):
                await directory.small_files.store("quorum-state", bytes(1_000))
            disk.capacity_bytes = None
            await kit.append(directory, log, batch(1, value=b"b"))
            assert await kit.values(directory, log) == [b"a-0", b"b-0"]
        async with kit.opened(runtime, "/data") as directory:
            assert directory.was_clean

    simulated(main)


def test_no_room_for_a_first_segment_is_a_full_disk_too(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            node.device.fail("create", errno.ENOSPC)
            with pytest.raises(DiskFull):
                await kit.append(directory, log, batch(1))
            assert (await kit.append(directory, log, batch(1))).base_offset == 0

    simulated(main)


@pytest.mark.parametrize(
    ("operation", "number", "size"),
    [
        ("write", errno.EIO, 100),
        ("write", errno.EIO, 5_000),
        ("sync", errno.EIO, 100),
        ("sync", errno.ENOSPC, 100),  # of a sync, even ENOSPC is final
    ],
)
def test_disk_error_fails_only_its_log(
    kit: Kit, batch: MakeBatch, operation: str, number: int, size: int
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(inline_write_bytes_max=2_000)
        async with kit.opened(runtime, "/data", config=config) as directory:
            bad = await directory.open_log("bad-0", FSYNC, topic_id=TOPIC)
            good = await directory.open_log("good-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, bad, batch(1, value=b"a"))
            reported: list[DiskFailed] = []
            directory.on_failed(bad, reported.append)
            node.device.fail(operation, number, path_part="bad-0")
            answers = await asyncio.gather(
                *[kit.append(directory, bad, batch(1, size=size)) for _ in range(3)],
                return_exceptions=True,
            )
            assert [type(answer) for answer in answers] == [DiskFailed] * 3
            with pytest.raises(DiskFailed):
                await kit.append(directory, bad, batch(1))
            with pytest.raises(DiskFailed):
                await directory.flush(bad)
            with pytest.raises(DiskFailed):
                await directory.truncation.truncate(bad, 0)
            assert len(reported) == 1
            assert (await kit.values(directory, bad))[0] == b"a-0", "reads still succeed"
            await kit.append(directory, good, batch(1))
            assert good.flushed_end_offset == 1
        async with kit.opened(runtime, "/data") as directory:
            assert not directory.was_clean
            bad = await directory.open_log("bad-0", FSYNC, topic_id=TOPIC)
            assert (await kit.values(directory, bad))[0] == b"a-0"

    simulated(main)


def test_failed_fsync_is_not_retried(kit: Kit, batch: MakeBatch) -> None:
    """The kernel marks the pages clean: a second fsync would acknowledge lost records."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(1, value=b"a"), flush=True)
            await kit.append(directory, log, batch(1, value=b"b"), flush=False)
            node.device.fail("sync", errno.EIO, path_part="t-0")
            with pytest.raises(DiskFailed):
                await directory.flush(log)
            await directory.checkpoints.checkpoint()
            assert log.flushed_end_offset == 1
        stored = "/data/recovery-point-offset-checkpoint"
        if runtime.files.exists(stored):
            assert runtime.files.open_readonly(stored).read(0, 99) == b"0\n1\nt 0 1\n"

    simulated(main)


def test_failed_checkpoint_is_retried(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(1), epoch=3, flush=True)
            node.device.fail("rename", errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                await directory.checkpoints.checkpoint()
            assert not runtime.files.exists("/data/recovery-point-offset-checkpoint")
            await kit.append(directory, log, batch(1), epoch=3, flush=True)
            await directory.checkpoints.checkpoint()
            assert runtime.files.exists("/data/t-0/leader-epoch-checkpoint")
            assert runtime.files.exists("/data/recovery-point-offset-checkpoint")

    simulated(main)


def test_append_fails_if_the_clean_marker_cannot_be_removed(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data"):
            pass
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            node.device.fail("remove", errno.EROFS)
            with pytest.raises(DiskFailed):
                await kit.append(directory, log, batch(1))
            await kit.append(directory, log, batch(1))

    simulated(main)


def test_a_cold_read_that_fails_is_a_storage_error(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(1))
            for operation in ("read", "read_cached"):
                taken = log.read(0, max_bytes=1_000)
                assert taken is not None
                node.device.fail(operation, errno.EIO)
                if operation == "read":
                    node.device.fail("read_cached", errno.EAGAIN)
                with pytest.raises(DiskFailed):
                    await directory.reader.read(taken)
                node.device.faults.clear()
            assert await kit.values(directory, log) == [b"v-0"]

    simulated(main)


def test_a_cancelled_cold_read_keeps_its_lease_until_the_lane_is_done(
    kit: Kit, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(open_files_max=1)
        async with kit.opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(1))
            taken = log.read(0, max_bytes=1_000)
            assert taken is not None
            async with runtime.tasks.scope("reader") as scope:
                reader = scope.spawn(directory.reader.read(taken), name="reader")
                await asyncio.sleep(0)
                reader.cancel()
            other = await directory.open_log("u-0", FAST, topic_id=TOPIC)
            await kit.append(directory, other, batch(1))  # evicts the first log's file
            await runtime.tasks.drain("read")
            assert await kit.values(directory, log) == [b"v-0"]

    simulated(main, faults=Faults(cache_miss=1.0))


def test_an_fsync_log_never_has_more_than_two_groups_unsynced(kit: Kit, batch: MakeBatch) -> None:
    """The device writes them in any order, so only they can be torn. Recovery relies on that."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        group = 3_000
        config = DirectoryConfig(write_group_bytes_max=group, inline_write_bytes_max=1_000)
        async with kit.opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            path = "/data/t-0/00000000000000000000.log"
            waiting, most = [], 0
            for number in range(600):
                content = batch(1, size=200 + 37 * (number % 9))
                waiting.append(
                    directory.append_nowait(
                        log, content, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
                    )
                )
                if number >= 200:  # in a burst, then one by one while the device is busy
                    await asyncio.sleep(0.000_02)
                if number >= 200 and number % 15 == 0:
                    await asyncio.gather(*waiting)
                if node.device.disk.exists(path):
                    body = node.device.disk.file(path)
                    most = max(most, len(body.content) - len(body.durable))
            await asyncio.gather(*waiting)
            assert group < most <= 2 * group, "pipelined, and bounded"

    simulated(main, faults=Faults(lane_stall=0.3, lane_stall_ms=(5, 20)))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_repeated_truncation_lowers_the_recovery_point(
    kit: Kit, batch: MakeBatch, number: int
) -> None:
    """The first attempt cannot store the recovery point and changes nothing. If the second one left
    it above the log end, the log would count as corrupt after a crash."""

    async def first(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", close=False) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            for value in (b"a", b"b", b"c"):
                await kit.append(directory, log, batch(1, value=value))
            await directory.checkpoints.checkpoint()
            node.device.fail("create", number, path_part="recovery-point", times=1)
            if number == errno.ENOSPC:  # the directory retries when descriptors run out
                with pytest.raises(DiskFull):
                    await directory.truncation.truncate(log, 1)
                assert await kit.values(directory, log) == [b"a-0", b"b-0", b"c-0"]
            await directory.truncation.truncate(log, 1)

    async def second(runtime: Runtime, _: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            assert await kit.values(directory, log) == [b"a-0"]

    simulated(first, second)
