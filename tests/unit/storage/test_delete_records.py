"""DeleteRecords moves the log start offset durably, and never above the high watermark."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import DiskFailed, DiskFull, OffsetOutOfRange
from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import DirectoryConfig, FlushPolicy, LogConfig

from .simulated_node import run_on_node

Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
Run = Callable[[Main], Any]
MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit
Bench = Any
MakeBench = Callable[..., Bench]

TOPIC = TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)
NEVER = DirectoryConfig(checkpoint_interval_ms=10_000_000)


def test_deleted_records_cannot_be_read(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            for value in (b"a", b"b", b"c"):
                await kit.append(directory, log, batch(1, value=value), flush=False)
            log.note_high_watermark(3)
            assert await directory.truncation.delete_records(log, 2) == 2
            assert log.log_start_offset == 2
            with pytest.raises(OffsetOutOfRange, match=r"outside \[2, 3\]"):
                log.read(1, max_bytes=100)
            assert await kit.values(directory, log) == [b"c-0"]
            assert await directory.truncation.delete_records(log, 1) == 2, (
                "the log start never decreases"
            )

    run(main)


def test_minus_one_deletes_up_to_the_high_watermark_at_most(
    kit: Kit, run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(5))
            log.note_high_watermark(3)
            for offset in (4, 5, 6, -2):
                with pytest.raises(OffsetOutOfRange, match="the high watermark is 3"):
                    await directory.truncation.delete_records(log, offset)
            assert log.log_start_offset == 0
            assert await directory.truncation.delete_records(log, -1) == 3

    run(main)


@pytest.mark.parametrize("config", [FAST, FSYNC])
def test_delete_records_completes_after_the_log_start_is_durable(
    kit: Kit, batch: MakeBatch, config: LogConfig
) -> None:
    with SimWorld(0) as world:
        node = world.node("n")

        async def first(runtime: Runtime) -> None:
            async with kit.opened(runtime, "/data", config=NEVER, close=False) as directory:
                log = await directory.open_log("t-0", config, topic_id=TOPIC)
                for _ in range(4):
                    await kit.append(directory, log, batch(1), flush=False)
                log.note_high_watermark(4)
                await directory.truncation.delete_records(log, 3)
                node.power_cut()

        async def second(runtime: Runtime) -> None:
            async with kit.opened(runtime, "/data", config=NEVER) as directory:
                log = await directory.open_log("t-0", config, topic_id=TOPIC)
                assert (log.log_start_offset, log.log_end_offset) == (3, 4)
                with pytest.raises(OffsetOutOfRange):
                    log.read(2, max_bytes=100)

        node.spawn(first)
        world.run_for(virtual_ms=60_000)
        task = node.spawn(second)
        world.run_until(task, virtual_ms=60_000)
        task.result()


def test_log_that_ends_below_its_start_continues_at_its_start(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=100)
    for _ in range(3):
        b.append(batch(1))
    b.flush()
    b.log.close("crash")
    for is_clean in (False, True):
        log = b.open(is_clean=is_clean, log_start_offset=10)
        assert (log.log_start_offset, log.log_end_offset, log.segment_bases) == (10, 10, [])
    assert b.append(batch(1)) == 10
    assert b.log.segment_bases == [10]


def test_torn_log_below_its_start_continues_at_its_start(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=100)
    for _ in range(3):
        b.append(batch(1))
    b.log.close("crash")
    file = b.place.files.open(f"{b.folder}/{1:020d}.log")
    file.truncate(10)
    file.close()
    log = b.open(is_clean=False, log_start_offset=2)
    assert (log.log_start_offset, log.log_end_offset, log.segment_bases) == (2, 2, [])


def test_deletion_refused_by_a_full_disk_can_be_retried(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", config=NEVER) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(3))
            log.note_high_watermark(3)
            for number, error in ((errno.ENOSPC, DiskFull), (errno.EIO, DiskFailed)):
                node.device.fail("write", number, path_part="log-start")
                with pytest.raises(error, match="log-start-offset-checkpoint"):
                    await directory.truncation.delete_records(log, 2)
                assert log.log_start_offset == 0
            assert await directory.truncation.delete_records(log, 2) == 2
            assert (await kit.append(directory, log, batch(1))).log_start_offset == 2

    run_on_node(main)


def test_records_of_a_log_that_failed_or_was_deleted_are_not_deleted(
    kit: Kit, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", config=NEVER) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(3))
            node.device.fail("sync", errno.EIO)
            with pytest.raises(DiskFailed):
                await kit.append(directory, log, batch(3))
            with pytest.raises(DiskFailed):
                await directory.truncation.delete_records(log, 0)
            other = await directory.open_log("t-1", FSYNC, topic_id=TOPIC)
            await directory.folders.delete_log(other)
            with pytest.raises(DiskFailed):
                await directory.truncation.delete_records(other, 0)

    run_on_node(main)


# --- high watermarks ---------------------------------------------------------------------------


def test_high_watermarks_are_stored_and_restored(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(5))
            log.note_high_watermark(3)
            log.note_high_watermark(2)
            assert log.high_watermark == 3, "the high watermark does not decrease"
        async with kit.opened(runtime, path) as directory:
            assert directory.small_files.load("replication-offset-checkpoint") == b"0\n1\nt 0 3\n"
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert log.high_watermark == 3
            await directory.truncation.truncate(log, 1)
            assert log.high_watermark == log.log_end_offset == 0, (
                "the batch of five records is truncated"
            )

    run(main)


def test_high_watermark_of_a_log_truncated_to_its_start_is_not_restored(
    kit: Kit, run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(5))
            log.note_high_watermark(3)
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await directory.truncation.truncate(log, 1)
            await kit.append(directory, log, batch(5))
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert log.high_watermark == 0, "the new records are not committed"

    run(main)


@pytest.mark.parametrize(("stored", "found"), [(9, 5), (1, 2)])
def test_a_restored_high_watermark_lies_within_the_log(
    kit: Kit, run: Run, batch: MakeBatch, stored: int, found: int
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(5))
            log.note_high_watermark(5)
            await directory.truncation.delete_records(log, 2)
        file = runtime.files.open(f"{path}/replication-offset-checkpoint")
        file.write(0, [b"0\n1\nt 0 %d\n" % stored])
        file.close()
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert log.high_watermark == found

    run(main)


def test_a_high_watermark_that_moves_late_is_stored_without_another_append(
    kit: Kit, batch: MakeBatch
) -> None:
    with SimWorld(0) as world:
        node = world.node("n")
        stored: list[bytes] = []

        async def main(runtime: Runtime) -> None:
            config = DirectoryConfig(checkpoint_interval_ms=1_000)
            async with kit.opened(runtime, "/data", config=config) as directory:
                log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
                await kit.append(directory, log, batch(5))
                log.note_high_watermark(3)
                await directory.checkpoints.checkpoint()
                log.note_high_watermark(5)
                await asyncio.sleep(3)
                file = runtime.files.open_readonly("/data/replication-offset-checkpoint")
                stored.append(file.read(0, 100))
                file.close()

        task = node.spawn(main)
        world.run_until(task, virtual_ms=60_000)
        task.result()
        assert stored == [b"0\n1\nt 0 5\n"]


def test_checkpoints_drop_a_deleted_log(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(5))
            log.note_high_watermark(5)
            await directory.truncation.delete_records(log, 4)
            await directory.checkpoints.checkpoint()
            await directory.folders.delete_log(log)
            again = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert (again.log_start_offset, again.high_watermark) == (0, 0)
        async with kit.opened(runtime, path) as directory:
            again = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert (again.log_start_offset, again.log_end_offset) == (0, 0)

    run(main)
