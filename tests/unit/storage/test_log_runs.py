"""Runs of batches written at once, without the queue: rejections, rolls and disk faults."""

import errno
from collections.abc import Callable, Coroutine
from struct import pack
from typing import Any

import pytest

from quorumlog.errors import DiskFailed, DiskFull
from quorumlog.ids import Offset, TopicId
from quorumlog.native import ProduceRun, RunTail
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, LogConfig
from quorumlog.storage.log import Log
from quorumlog.storage.shell.append_queue import NO_APPEND_TIME, Appended, PendingAppend
from quorumlog.storage.shell.data_directory import DataDirectory

from .conftest import Kit

TOPIC = TopicId(b"t" * 16)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
OWNER = object()


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


def frame(batch: bytes) -> bytes:
    """Return a produce request of version 3 with its size: acks=1, topic "t", partition 0."""
    body = pack(">hhih", 0, 3, 0, -1) + pack(">hhi", -1, 1, 1_000)
    body += pack(">ih1sii", 1, 1, b"t", 1, 0) + pack(">i", len(batch)) + batch
    return pack(">i", len(body)) + body


def run(directory: DataDirectory, log: Log, *batches: bytes) -> tuple[int, RunTail | None]:
    """Write the batches that one run accepts. Return their number and the tail."""
    return run_from(bytearray(b"".join(map(frame, batches))), directory, log)


def run_from(memory: bytearray, directory: DataDirectory, log: Log) -> tuple[int, RunTail | None]:
    """Write the batches that one run accepts from requests in memory; see `run`."""

    def find(acks: int, by_id: bool, title: bytes, partition: int) -> RunTail | None:
        assert (acks, by_id, title, partition) == (1, False, b"t", 0)
        return directory.inline.begin_run(OWNER, log, 0, 0)

    taken = ProduceRun(find, 1 << 20, 100, 1 << 20)
    with memoryview(memory) as buffer:
        taken.take(buffer, 0, len(buffer))
    for tail in taken.tails:
        if tail.count:
            directory.inline.end_run(log, tail)
    assert sum(tail.count for tail in taken.tails) == taken.count
    return taken.count, taken.tails[0] if taken.tails else None


def pending(directory: DataDirectory) -> PendingAppend:
    return PendingAppend(directory.completed, b"", 0, AppendOrigin.CLIENT, True)


def appended(base_offset: int, next_offset: int) -> Appended:
    return Appended(Offset(base_offset), Offset(next_offset), NO_APPEND_TIME, Offset(0))


def test_a_run_ends_before_a_batch_that_must_be_queued(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert run(directory, log, numbered(0, b"a"))[0] == 0  # the first batch of a segment
            await kit.append(directory, log, numbered(0, b"a"))
            assert run(directory, log, numbered(0, b"a"))[0] == 0  # a retry
            assert run(directory, log, numbered(5, b"x"))[0] == 0  # a gap
            assert run(directory, log, numbered(1, b"x")[:-1] + b"\xff")[0] == 0
            taken = [numbered(1, b"b"), numbered(2, b"c"), numbered(2, b"c"), numbered(3, b"d")]
            count, tail = run(directory, log, *taken)  # a retry within the run
            assert tail is not None
            assert (count, tail.base_offset, tail.next_offset, tail.error) == (2, 1, 3, None)
            assert log.log_end_offset == 3
            assert await kit.values(directory, log) == [b"a", b"b", b"c"]
            log.check_invariants()
            entry = log.producers.states.entry(7)
            assert entry is not None
            assert [batch.first_sequence for batch in entry.batches] == [0, 1, 2]
            assert (entry.next_sequence, log.producers.states.last_changed) == (3, 2)
            await kit.append(directory, log, numbered(3, b"d"))

    simulated(main)


def test_tail_does_not_reference_the_buffer_of_a_finished_run(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, b"a"))
            memory = bytearray(frame(numbered(1, bytes(100_000))))
            assert run_from(memory, directory, log)[0] == 1
            memory.clear()  # raises BufferError while anything refers to it

    simulated(main)


def test_a_run_leaves_a_new_segment_to_the_queue(kit: Kit) -> None:
    config = LogConfig(flush_policy=FlushPolicy.REPLICATED, segment_bytes=500)

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, bytes(100)))
            batches = [numbered(sequence, bytes(100)) for sequence in (1, 2, 3)]
            count, tail = run(directory, log, *batches)
            assert tail is not None
            assert (count, tail.position + tail.size <= 500) == (1, True)
            assert len(log.segment_bases) == 1
            await kit.append(directory, log, batches[1])
            assert len(log.segment_bases) == 2
            assert run(directory, log, batches[2])[0] == 1
            log.check_invariants()

    simulated(main)


def test_a_run_waits_for_the_flush_of_an_fsync_log(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(write_group_bytes_max=1_000)
        async with kit.opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("f-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, b"a"))
            # no space in the group for the second batch, nor for another run
            assert run(directory, log, numbered(1, bytes(500)), numbered(2, bytes(500)))[0] == 1
            assert run(directory, log, numbered(2, bytes(500)))[0] == 0
            assert (log.log_end_offset, log.flushed_end_offset) == (2, 1)
            flushed = pending(directory)
            directory.inline.resolve_when_flushed(log, flushed, appended(1, 2))
            assert (await flushed, log.flushed_end_offset) == (appended(1, 2), 2)

            assert run(directory, log, numbered(2, b"b"))[0] == 1
            failed = pending(directory)
            directory.inline.resolve_when_flushed(log, failed, appended(2, 3))
            node.device.fail("sync", errno.EIO)
            with pytest.raises(DiskFailed):
                await failed

    simulated(main)


def test_a_full_disk_stores_no_batch_of_the_run(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, b"a"))
            node.device.disk.capacity_bytes = 2_500  # the first batch fits
            count, tail = run(directory, log, *(numbered(one, bytes(2_000)) for one in (1, 2)))
            assert tail is not None
            assert (count, type(tail.error)) == (2, DiskFull)
            assert (log.log_end_offset, log.failure) == (1, None)
            node.device.disk.capacity_bytes = None
            count, tail = run(directory, log, numbered(1, b"b"))  # the sequence was released
            assert tail is not None
            assert (count, tail.error) == (1, None)
            assert await kit.values(directory, log) == [b"a", b"b"]
            log.check_invariants()
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            assert await kit.values(directory, log) == [b"a", b"b"]

    simulated(main)


def test_a_failing_disk_fails_the_log(kit: Kit) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with kit.opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, numbered(0, b"a"))
            node.device.fail("write", errno.EIO)
            _, tail = run(directory, log, numbered(1, b"b"))
            assert tail is not None
            assert isinstance(tail.error, DiskFailed)
            assert log.failure is not None
            assert directory.figures.failed_logs == 1
            assert run(directory, log, numbered(1, b"b"))[0] == 0
            with pytest.raises(DiskFailed):
                await kit.append(directory, log, numbered(1, b"b"))

    simulated(main)
