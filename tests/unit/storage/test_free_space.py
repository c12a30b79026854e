"""The reserve of free space rejects producers before the disk is full; other writes continue."""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import DiskFull
from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, LogConfig
from quorumlog.storage.shell.free_space import SpaceReserve

MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit

TOPIC = TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
MIB = 1 << 20
RESERVED = DirectoryConfig(reserve_bytes=MIB)


def simulated(main: Callable[[Runtime, SimNode], Coroutine[Any, Any, Any]]) -> None:
    with SimWorld(0) as world:
        node = world.node("n")
        node.device.disk.capacity_bytes = 64 * MIB
        task = node.spawn(lambda runtime: main(runtime, node))
        world.run_until(task, virtual_ms=600_000)
        task.result()


# --- the rule ----------------------------------------------------------------------------------


def test_reserve_starts_below_its_limit_and_ends_above_a_margin() -> None:
    reserve = SpaceReserve("/data", 400)
    seen = []
    for free in (400, 399, 400, 499, 500, 400):
        changed = reserve.update(free_bytes=free, capacity_bytes=1 << 40)
        seen.append((changed, reserve.is_low))
    assert seen == [
        (False, False),
        (True, True),
        (False, True),
        (False, True),
        (True, False),
        (False, False),
    ]


def test_a_small_disk_keeps_three_percent_at_most() -> None:
    reserve = SpaceReserve("/data", 256 * MIB)
    reserve.update(free_bytes=4 * MIB, capacity_bytes=64 * MIB)
    assert (reserve.bytes, reserve.is_low) == (2 * MIB, False)
    reserve.update(free_bytes=300 * MIB, capacity_bytes=100 * 1024 * MIB)
    assert (reserve.bytes, reserve.is_low) == (256 * MIB, False)


def test_reserve_of_zero_rejects_nothing() -> None:
    reserve = SpaceReserve("/data", 0)
    assert not reserve.update(free_bytes=0, capacity_bytes=64 * MIB)


def test_rejection_states_free_bytes_and_reserve() -> None:
    reserve = SpaceReserve("/data", 256 * MIB)
    reserve.update(free_bytes=100 * MIB, capacity_bytes=1 << 40)
    refusal = reserve.rejection()
    assert (
        "100 MiB are free on the disk of /data, less than the reserve of 256 MiB" in refusal.message
    )
    assert refusal.retriable


def test_a_refusal_on_a_small_disk_compares_what_differs() -> None:
    """Rounded to whole MiB, the message would compare 2 MiB with 2 MiB."""
    reserve = SpaceReserve("/data", 256 * MIB)
    reserve.update(free_bytes=2 * MIB - 200_000, capacity_bytes=64 * MIB)
    message = reserve.rejection().message
    assert "1.8 MiB are free on the disk of /data, less than the reserve of 2.0 MiB" in message


def test_rejection_within_the_margin_states_the_bytes_to_free() -> None:
    reserve = SpaceReserve("/data", 256 * MIB)
    reserve.update(free_bytes=100 * MIB, capacity_bytes=1 << 40)
    reserve.update(free_bytes=300 * MIB, capacity_bytes=1 << 40)
    assert reserve.is_low
    message = reserve.rejection().message
    assert "300 MiB are free on the disk of /data, less than the 320 MiB" in message
    assert "256 MiB" in message


# --- a directory -------------------------------------------------------------------------------


def test_producers_are_rejected_while_other_writes_continue(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", config=RESERVED) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            other = await directory.open_log("t-1", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(4, value=b"a"))
            await kit.append(directory, other, batch(1))
            log.note_high_watermark(4)
            disk = node.device.disk
            filler = runtime.files.open("/filler", create=True)
            filler.write(0, [bytes(63 * MIB + MIB // 2)])
            directory.space.check()
            with pytest.raises(DiskFull, match=r"reserve of 1\.0 MiB"):
                await kit.append(directory, log, batch(1))
            assert await kit.values(directory, log) == [b"a-0", b"a-1", b"a-2", b"a-3"]
            for origin in (AppendOrigin.INTERNAL, AppendOrigin.REPLICATED):
                content = batch(1, base_offset=log.log_end_offset, leader_epoch=0)
                await directory.append(log, content, leader_epoch=0, origin=origin, flush=True)
            assert await directory.truncation.delete_records(log, 2) == 2
            await directory.truncation.truncate(log, 5)
            await directory.small_files.store("quorum-state", b"x")
            await directory.checkpoints.checkpoint()
            await directory.folders.delete_log(other)
            runtime.files.remove("/filler")
            await asyncio.sleep(1.1)
            await kit.append(directory, log, batch(1))
            assert disk.free_bytes() > MIB

    simulated(main)


def test_written_bytes_trigger_the_next_check(kit: Kit, batch: MakeBatch) -> None:
    """No append queries the disk, and the writes between two checks stay within a part of the
    reserve."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(reserve_bytes=64 * MIB)  # of the simulated disk: 2 MiB of 64
        async with kit.opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            content = batch(1, size=20_000)
            filler = runtime.files.open("/filler", create=True)
            filler.write(0, [bytes(60 * MIB)])  # without any check

            async def fill() -> None:
                while True:
                    await kit.append(directory, log, content)

            with pytest.raises(DiskFull, match="less than the reserve"):
                await fill()
            reserve, free = 2 * MIB, node.device.disk.free_bytes()
            assert reserve - reserve // 16 - 2 * len(content) < free < reserve

    simulated(main)


def test_disk_filled_by_other_programs_rejects_producers_after_one_check(
    kit: Kit, batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", config=RESERVED) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(1))
            disk = node.device.disk
            filler = runtime.files.open("/filler", create=True)
            filler.write(0, [bytes(disk.free_bytes() - 10)])
            with pytest.raises(DiskFull, match="no space is left"):
                await kit.append(directory, log, batch(1))
            with pytest.raises(DiskFull, match="less than the reserve"):
                await kit.append(directory, log, batch(1))
            filler.truncate(0)
            await asyncio.sleep(1.1)
            await kit.append(directory, log, batch(1))

    with caplog.at_level(logging.INFO, logger="quorumlog.storage"):
        simulated(main)
    said = [record.message.split(" ")[0] for record in caplog.records]
    assert said == ["storage.space_low", "storage.space_enough"]
    assert "path=/data free_bytes=10 reserve_bytes=1048576" in caplog.text


def test_node_started_on_a_full_disk_rejects_producers(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data", config=RESERVED):
            pass
        runtime.files.open("/filler", create=True).write(0, [bytes(63 * MIB + MIB // 2)])
        async with kit.opened(runtime, "/data", config=RESERVED) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            with pytest.raises(DiskFull):
                await kit.append(directory, log, batch(1))

    simulated(main)


def test_a_disk_whose_space_is_unknown_takes_appends(kit: Kit, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        node.device.fail("free_bytes", errno.EIO)
        async with kit.opened(runtime, "/data", config=RESERVED) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(1))

    simulated(main)
