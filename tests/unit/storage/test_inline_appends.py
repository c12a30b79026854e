"""Appends of several batches by one write, without the queue: refusals and disk faults."""

import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import DiskFailed, DiskFull
from quorumlog.ids import Offset, TopicId
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, LogConfig
from quorumlog.storage.shell.append_queue import NO_APPEND_TIME, Appended, PendingAppend
from quorumlog.storage.shell.data_directory import DataDirectory
from quorumlog.storage.shell.writer import InlineAppend

from .conftest import Kit

TOPIC = TopicId(b"t" * 16)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)


def simulated(main: Callable[[Runtime, SimNode], Coroutine[Any, Any, None]]) -> None:
    with SimWorld(0) as world:
        node = world.node("n")

        async def process(runtime: Runtime) -> None:
            await main(runtime, node)

        task = node.spawn(process)
        world.run_until(task, virtual_ms=600_000)
        task.result()


def numbered(sequence: int, value: bytes) -> bytes:
    return encode_batch(
        [Record(0, 1_000, None, value)], producer_id=7, producer_epoch=0, base_sequence=sequence
    )


def pending(directory: DataDirectory) -> PendingAppend:
    return PendingAppend(directory.completed, b"", 0, AppendOrigin.CLIENT, True)


def appended(base_offset: int, next_offset: int) -> Appended:
    return Appended(Offset(base_offset), Offset(next_offset), NO_APPEND_TIME, Offset(0))


def test_batches_that_must_be_queued_are_not_added(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, b"a"))
            append = InlineAppend(directory.inline, log, 0)
            assert append.add(numbered(0, b"a"), 0) is None  # a retry
            assert append.add(numbered(5, b"x"), 0) is None  # a gap
            assert append.add(numbered(1, b"x")[:-1] + b"\xff", 0) is None
            assert (append.add(numbered(1, b"b"), 0), append.next_offset) == (1, 2)
            assert (append.add(numbered(2, b"c"), 0), append.next_offset) == (2, 3)
            assert append.add(numbered(2, b"c"), 0) is None  # a retry within the same write
            assert log.log_end_offset == 1
            append.write()
            assert (append.error, log.log_end_offset) == (None, 3)
            assert await kit.values(directory, log) == [b"a", b"b", b"c"]
            log.check_invariants()

    simulated(main)


def test_an_fsync_log_calls_back_after_the_flush(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(write_group_bytes_max=1_000)
        async with kit.opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("f-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, b"a"))
            append = InlineAppend(directory.inline, log, 0)
            assert append.add(numbered(1, bytes(500)), 0) == 1
            assert append.add(numbered(2, bytes(500)), 0) is None  # no room in the group
            append.write()
            assert InlineAppend(directory.inline, log, 0).add(numbered(2, bytes(500)), 0) is None
            assert (append.error, log.log_end_offset, log.flushed_end_offset) == (None, 2, 1)
            flushed = pending(directory)
            append.resolve_when_flushed(flushed, appended(1, 2))
            assert (await flushed, log.flushed_end_offset) == (appended(1, 2), 2)

            append = InlineAppend(directory.inline, log, 0)
            assert append.add(numbered(2, b"b"), 0) == 2
            append.write()
            failed = pending(directory)
            append.resolve_when_flushed(failed, appended(2, 3))
            node.device.fail("sync", errno.EIO)
            with pytest.raises(DiskFailed):
                await failed

    simulated(main)


def test_a_full_disk_stores_no_batch_of_the_write(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, b"a"))
            append = InlineAppend(directory.inline, log, 0)
            for sequence in (1, 2):
                assert append.add(numbered(sequence, bytes(2_000)), 0) is not None
            node.device.disk.capacity_bytes = 2_500  # the first batch fits
            append.write()
            assert isinstance(append.error, DiskFull)
            assert (log.log_end_offset, log.failure) == (1, None)
            node.device.disk.capacity_bytes = None
            again = InlineAppend(directory.inline, log, 0)
            assert again.add(numbered(1, b"b"), 0) is not None  # the sequence was given back
            again.write()
            assert again.error is None
            assert await kit.values(directory, log) == [b"a", b"b"]
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert await kit.values(directory, log) == [b"a", b"b"]

    simulated(main)


def test_a_failing_disk_fails_the_log(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, b"a"))
            append = InlineAppend(directory.inline, log, 0)
            assert append.add(numbered(1, b"b"), 0) is not None
            node.device.fail("write", errno.EIO)
            append.write()
            assert isinstance(append.error, DiskFailed)
            assert log.failure is not None
            assert directory.figures.failed_logs == 1
            assert InlineAppend(directory.inline, log, 0).add(numbered(1, b"b"), 0) is None
            with pytest.raises(DiskFailed):
                await kit.append(directory, log, numbered(1, b"b"))

    simulated(main)
