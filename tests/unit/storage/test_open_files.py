"""Running out of file descriptors loses nothing, fails no log, and is temporary."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import DiskFull, Overloaded
from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import DirectoryConfig, FlushPolicy, LogConfig
from quorumlog.storage.file_pool import FilePool

from .simulated_node import run_on_node

MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit

TOPIC = TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)


def test_a_pool_that_can_open_no_file_closes_some() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        pool = FilePool(runtime.files, open_files_max=100)
        for number in range(8):
            pool.file(f"/{number}", create=True)
        node.device.fail("create", errno.EMFILE)
        pool.file("/8", create=True)
        assert len(pool) == 8 - 2 + 1
        node.device.fail("open", errno.EMFILE, times=2)
        with pytest.raises(OSError, match="/0"):
            pool.file("/0")
        pool.close()
        node.device.fail("open", errno.ENFILE)
        with pytest.raises(OSError, match="/0"):
            pool.file("/0")  # there is no file to close

    run_on_node(main)


@pytest.mark.parametrize("config", [FSYNC, FAST])
@pytest.mark.parametrize("operation", ["sync_folder", "create"])
def test_flush_without_a_descriptor_is_deferred(
    kit: Kit, batch: MakeBatch, config: LogConfig, operation: str
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            small = LogConfig(flush_policy=config.flush_policy, segment_bytes=100)
            log = await directory.open_log("t-0", small, topic_id=TOPIC)
            await kit.append(directory, log, batch(1))
            part = "" if operation == "sync_folder" else "index"
            node.device.fail(operation, errno.EMFILE, path_part=part, times=3)
            started = asyncio.get_running_loop().time()
            await asyncio.gather(*(kit.append(directory, log, batch(1)) for _ in range(2)))
            assert asyncio.get_running_loop().time() - started >= 0.3
            assert log.failure is None
            assert log.flushed_end_offset == 3
            assert (await kit.append(directory, log, batch(1))).base_offset == 3
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            assert log.log_end_offset == 4
            assert directory.was_clean

    run_on_node(main)


def test_deferred_flush_survives_a_power_cut_once_acknowledged(kit: Kit, batch: MakeBatch) -> None:
    with SimWorld(0) as world:
        node = world.node("n")

        async def first(runtime: Runtime) -> None:
            async with kit.opened(runtime, "/data", close=False) as directory:
                log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
                node.device.fail("sync_folder", errno.EMFILE, path_part="t-0", times=2)
                await kit.append(directory, log, batch(3))
                node.power_cut()

        async def second(runtime: Runtime) -> int:
            async with kit.opened(runtime, "/data") as directory:
                log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
                return int(log.log_end_offset)

        node.spawn(first)
        world.run_for(virtual_ms=60_000)
        task = node.spawn(second)
        world.run_until(task, virtual_ms=60_000)
        assert task.result() == 3


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.EMFILE, Overloaded), (errno.ENFILE, Overloaded), (errno.ENOSPC, DiskFull)],
)
def test_log_that_cannot_open_without_a_descriptor_opens_later(
    kit: Kit, batch: MakeBatch, number: int, error: type[Exception]
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(1))
        async with kit.opened(runtime, "/data") as directory:
            node.device.fail("open", number, path_part="t-0")
            with pytest.raises(error, match="t-0"):
                await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            assert log.log_end_offset == 1

    run_on_node(main)


def test_few_files_serve_many_logs_under_load(kit: Kit, batch: MakeBatch) -> None:
    """Sixty logs share four descriptors during writes, rolls, flushes, reads and truncations."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(open_files_max=4, checkpoint_interval_ms=5)
        small = LogConfig(segment_bytes=200)
        async with kit.opened(runtime, "/data", config=config) as directory:
            logs = [await directory.open_log(f"t-{n}", small, topic_id=TOPIC) for n in range(60)]
            assert directory.folders.names() == [], "folders are made at the first append"
            for turn in range(5):
                value = b"%d" % turn
                appends = [kit.append(directory, log, batch(1, value=value)) for log in logs]
                await asyncio.gather(*appends)
                assert len(directory._pool) <= 4
            await asyncio.gather(*(directory.truncation.truncate(log, 4) for log in logs[::2]))
            for number, log in enumerate(logs):
                expected = [b"%d-0" % turn for turn in range(4 + number % 2)]
                assert await kit.values(directory, log) == expected
                assert len(directory._pool) <= 4

    run_on_node(main)


def test_foreign_files_in_the_directory_are_not_read(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data"):
            pass
        runtime.files.open("/data/core.12345", create=True).close()
        node.device.fail("open", errno.EIO, path_part="core")
        async with kit.opened(runtime, "/data") as directory:
            assert directory.small_files.load("core.12345") is None

    run_on_node(main)


Work = Callable[[Any, Any], Coroutine[Any, Any, Any]]


async def truncated(directory: Any, log: Any) -> None:
    await directory.truncation.truncate(log, 2)
    assert log.log_end_offset == 2


async def given_another_config(directory: Any, log: Any) -> None:
    directory.configure(log, LogConfig(flush_policy=FlushPolicy.FSYNC, segment_bytes=100))
    await directory.truncation.truncate(log, 6)  # behind it
    assert log.config.flush_policy is FlushPolicy.FSYNC


@pytest.mark.parametrize("part", ["data/t-0", ".log", "index", ".snapshot", "point", ".metadata"])
@pytest.mark.parametrize("operation", ["open", "create", "sync_folder"])
@pytest.mark.parametrize("work", [truncated, given_another_config])
def test_work_on_a_log_without_a_descriptor_is_retried(
    kit: Kit, batch: MakeBatch, work: Work, operation: str, part: str
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        small = LogConfig(flush_policy=FlushPolicy.REPLICATED, segment_bytes=100)
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", small, topic_id=TOPIC)
            for _ in range(6):
                await kit.append(directory, log, batch(1))
            await directory.checkpoints.checkpoint()
            node.device.fail(operation, errno.EMFILE, path_part=part, times=2)
            await work(directory, log)
            node.device.faults.clear()
            assert log.failure is None
            await kit.append(directory, log, batch(1))
            end = log.log_end_offset
        async with kit.opened(runtime, "/data") as directory:
            assert directory.was_clean
            log = await directory.open_log("t-0", small, topic_id=TOPIC)
            assert log.log_end_offset == end == len(await kit.values(directory, log))

    run_on_node(main)


@pytest.mark.parametrize("operation", ["create", "sync_folder"])
def test_close_without_a_descriptor_completes_later(
    kit: Kit, batch: MakeBatch, operation: str
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            for number in range(3):
                log = await directory.open_log(f"t-{number}", FAST, topic_id=TOPIC)
                await kit.append(directory, log, batch(1), flush=False)
            node.device.fail(operation, errno.EMFILE, path_part="t-", times=7)
        async with kit.opened(runtime, "/data") as directory:
            assert directory.was_clean
            log = await directory.open_log("t-2", FAST, topic_id=TOPIC)
            assert log.log_end_offset == 1

    run_on_node(main)


def test_deletion_without_a_descriptor_completes_later_and_durably(
    kit: Kit, batch: MakeBatch
) -> None:
    with SimWorld(0) as world:
        node = world.node("n")

        async def first(runtime: Runtime) -> None:
            async with kit.opened(runtime, "/data", close=False) as directory:
                log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
                await kit.append(directory, log, batch(3))
                await directory.checkpoints.checkpoint()
                node.device.fail("sync_folder", errno.EMFILE, path_part="/data", times=4)
                await directory.folders.delete_log(log)
                node.power_cut()

        async def second(runtime: Runtime) -> list[str]:
            async with kit.opened(runtime, "/data") as directory:
                return list(directory.folders.names())

        node.spawn(first)
        world.run_for(virtual_ms=60_000)
        task = node.spawn(second)
        world.run_until(task, virtual_ms=60_000)
        assert task.result() == []


@pytest.mark.parametrize("what", ["flush", "truncate", "close"])
def test_deferred_work_closes_pooled_files_for_descriptors(
    kit: Kit, batch: MakeBatch, what: str
) -> None:
    """Otherwise a process that holds all descriptors itself would wait forever."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(checkpoint_interval_ms=3_600_000)
        async with kit.opened(runtime, "/data", config=config) as directory:
            logs = [await directory.open_log(f"t-{n}", FAST, topic_id=TOPIC) for n in range(40)]
            for log in logs:
                await kit.append(directory, log, batch(1), flush=False)
                await kit.append(directory, log, batch(1), flush=False)
            before = len(directory._pool)
            node.device.fail("sync_folder", errno.EMFILE, path_part="/data/t-0", times=2)
            if what == "flush":
                await directory.flush(logs[0])
            elif what == "truncate":
                await directory.truncation.truncate(logs[0], 1)
            else:
                await directory.close()
            assert logs[0].log_end_offset == (1 if what == "truncate" else 2)
            assert len(directory._pool) < before * 2 // 3

    run_on_node(main)
