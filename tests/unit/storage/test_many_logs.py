"""Work on many logs runs concurrently, and only on the logs that need it."""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from quorumlog.errors import DiskFailed, Stopping
from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.checkpoints import decode_offsets
from quorumlog.storage.layout import RECOVERY_POINTS
from quorumlog.storage.shell.lane_worker import LaneWorker
from quorumlog.storage.small_files import read_file

MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit

TOPIC = TopicId(b"t" * 16)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)
QUIET = DirectoryConfig(checkpoint_interval_ms=3_600_000)


def simulated(main: Callable[[Runtime, SimNode], Coroutine[Any, Any, Any]]) -> Any:
    with SimWorld(0) as world:
        node = world.node("n")
        task = node.spawn(lambda runtime: main(runtime, node))
        world.run_until(task, virtual_ms=3_600_000)
        return task.result()


def nothing() -> None:
    return


@pytest.mark.parametrize("width", [1, 4])
def test_jobs_in_flight_are_bounded_by_the_width(width: int) -> None:
    async def main(runtime: Runtime, _: SimNode) -> None:
        under_way, most, begun = 0, 0, []

        async def job(number: int) -> None:
            nonlocal under_way, most
            begun.append(number)
            under_way += 1
            most = max(most, under_way)
            await owner.offload(nothing)
            under_way -= 1

        async with runtime.tasks.scope("life") as scope:
            owner = LaneWorker(runtime, scope, "flush:/data", width=width)
            for turn in range(3):
                for number in range(10):
                    owner.submit(partial(job, 10 * turn + number))
                await runtime.tasks.offload("read", nothing)
            await owner.stop()
        assert begun == list(range(30))
        assert most == width
        assert under_way == 0

    simulated(main)


def test_first_error_of_concurrent_jobs_is_raised_after_all_ended() -> None:
    async def main(runtime: Runtime, _: SimNode) -> None:
        ended = []

        def work(number: int) -> None:
            if number == 1:
                raise OSError(errno.EIO, "one")
            ended.append(number)

        async with runtime.tasks.scope("life") as scope:
            owner = LaneWorker(runtime, scope, "flush:/data", width=3)
            await owner.offload_all([])
            with pytest.raises(OSError, match="one"):
                await owner.offload_all([partial(work, number) for number in range(7)])
            await owner.stop()
        assert sorted(ended) == [0, 2, 3, 5, 6], "later jobs of the same turn did not start"

    simulated(main)


@pytest.mark.parametrize("what", ["close", "checkpoint"])
def test_many_logs_are_flushed_concurrently(kit: Kit, batch: MakeBatch, what: str) -> None:
    async def main(runtime: Runtime, _: SimNode) -> None:
        took = {}
        for count in (1, 160):
            path = f"/{count}"
            async with kit.opened(runtime, path, config=QUIET, close=False) as directory:
                for number in range(count):
                    log = await directory.open_log(f"t-{number}", FAST, topic_id=TOPIC)
                    await kit.append(directory, log, batch(1), flush=False)
                began = asyncio.get_running_loop().time()
                await (
                    directory.checkpoints.checkpoint()
                    if what == "checkpoint"
                    else directory.close()
                )
                took[count] = asyncio.get_running_loop().time() - began
        assert took[160] < 30 * took[1]

    simulated(main)


def test_unwritten_log_costs_nothing_at_close(kit: Kit, batch: MakeBatch) -> None:
    """The directory was closed cleanly: its other logs have their files already."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        for life in range(2):
            async with kit.opened(runtime, "/data", config=QUIET) as directory:
                logs = [
                    await directory.open_log(f"t-{number}", FAST, topic_id=TOPIC)
                    for number in range(3)
                ]
                if life == 1:
                    node.device.fail("create", errno.EIO, path_part="t-1")
                    node.device.fail("sync", errno.EIO, path_part="t-1")
                for log in logs[:: 1 + life]:
                    await kit.append(directory, log, batch(1), epoch=life)
        async with kit.opened(runtime, "/data") as directory:
            assert directory.was_clean
            for number in range(3):
                log = await directory.open_log(f"t-{number}", FAST, topic_id=TOPIC)
                entries = [(0, 0)] if number == 1 else [(0, 0), (1, 1)]
                assert log.epochs.entries() == entries

    simulated(main)


def test_failed_checkpoint_is_retried_without_another_append(
    kit: Kit, batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(checkpoint_interval_ms=100)
        async with kit.opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            node.device.fail("create", errno.ENOSPC, path_part=RECOVERY_POINTS, times=3)
            await kit.append(directory, log, batch(2), flush=False)
            await asyncio.sleep(1)
            points = decode_offsets(read_file(runtime.files, f"/data/{RECOVERY_POINTS}"), "")
            assert points == {"t-0": 2}

    with caplog.at_level(logging.WARNING, "quorumlog.storage"):
        simulated(main)
    assert len(caplog.messages) == 1, "the failure is logged once"
    assert "storage.checkpoint_failed" in caplog.messages[0]


def test_a_closed_directory_refuses_work_instead_of_waiting_for_ever(
    kit: Kit, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, _: SimNode) -> None:
        async with kit.opened(runtime, "/data", close=False) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(4))
            await directory.close()
            await directory.close()
            log.note_high_watermark(log.log_end_offset)
            for refused in (
                directory.truncation.truncate(log, 1),
                directory.truncation.delete_records(log, 1),
                directory.folders.delete_log(log),
                directory.flush(log),
                directory.open_log("t-1", FAST, topic_id=TOPIC),
                kit.append(directory, log, batch(1)),
            ):
                with pytest.raises((Stopping, DiskFailed)):
                    await asyncio.wait_for(refused, 10)
        async with kit.opened(runtime, "/data") as directory:
            assert directory.was_clean
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert log.log_end_offset == 4

    simulated(main)


def test_logs_opened_during_a_close_are_opened_or_rejected(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, _: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(1), flush=False)
            opening = [
                asyncio.ensure_future(directory.open_log(f"t-{n}", FAST, topic_id=TOPIC))
                for n in range(1, 30)
            ]
            await asyncio.sleep(0)
            opening[3].cancel()
            closing = asyncio.ensure_future(directory.close())
            late = await asyncio.gather(
                directory.open_log("t-99", FAST, topic_id=TOPIC), *opening, return_exceptions=True
            )
            await closing
            for found in late:
                if not isinstance(found, (Stopping, asyncio.CancelledError)):
                    assert isinstance(found, Log)
                    assert found.failure is not None, "closed with the directory"
        async with kit.opened(runtime, "/data") as directory:
            assert directory.was_clean

    simulated(main)
