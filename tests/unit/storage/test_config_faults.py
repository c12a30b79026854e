"""A config change during a full disk, a deletion, a power cut or a conversion."""

import errno
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.checkpoints import decode_partition_metadata
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.small_files import read_file

DATA = "/data"
TOPIC, LATER = TopicId(b"t" * 16), TopicId(b"l" * 16)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED, message_bytes_max=500)
SURE = LogConfig(flush_policy=FlushPolicy.FSYNC, message_bytes_max=500)
WIDE = LogConfig(flush_policy=FlushPolicy.FSYNC, message_bytes_max=4_000)
META = f"{DATA}/t-0/partition.metadata"

Body = Callable[[DataDirectory], Awaitable[Any]]


def one(*, size: int = 100, codec: Codec = Codec.NONE) -> bytes:
    """Build a batch of one record that does not compress."""
    value = random.Random(size).randbytes(size)
    record = Record(offset=0, timestamp_ms=1, key=None, value=value, headers=())
    return encode_batch([record], codec=codec)


async def append(directory: DataDirectory, log: Log, batch: bytes, *, flush: bool = False) -> int:
    appended = await directory.append(
        log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=flush
    )
    return appended.base_offset


def bound(runtime: Runtime) -> int | None:
    return decode_partition_metadata(read_file(runtime.files, META)).unsynced_bytes_max


async def opened(runtime: Runtime, body: Body, *, checkpoint_ms: int = 60_000) -> None:
    config = DirectoryConfig(
        write_group_bytes_max=500, checkpoint_interval_ms=checkpoint_ms, cpu_lane_bytes_min=100
    )
    await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))
    async with runtime.tasks.scope("life") as scope:
        await body(await DataDirectory.open(runtime, scope, DATA, config=config))
        scope.cancel()


def simulated(
    *lives: Callable[[Runtime, SimNode], Awaitable[None]], seed: int = 0, killed: int = -1
) -> None:
    """Run one process after another, each until a power cut or, for number `killed`, a kill."""
    with SimWorld(seed) as world:
        node = world.node("n")
        for number, live in enumerate(lives):

            async def main(runtime: Runtime, live: Any = live) -> None:
                await live(runtime, node)

            task = node.spawn(main)
            world.run_until(task, virtual_ms=600_000)
            task.result()
            if number == killed:
                node.crash()
            else:
                node.power_cut()


def test_larger_compressed_batch_is_accepted_as_soon_as_the_config_allows_it() -> None:
    """Its records are validated in another lane, ahead of the queued change."""

    async def live(runtime: Runtime, _: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", SURE, topic_id=TOPIC)
            await append(directory, log, one(), flush=True)
            directory.configure(log, WIDE)
            large = one(size=2_000, codec=Codec.GZIP)
            assert await append(directory, log, large, flush=True) == 1
            assert log.config == WIDE
            await directory.close()

        await opened(runtime, body)

    simulated(live)


def test_two_changes_before_a_deletion_write_to_no_folder_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def live(runtime: Runtime, _: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, one())
            directory.configure(log, SURE)
            directory.configure(log, FAST)
            await directory.folders.delete_log(log)
            again = await directory.open_log("t-0", FAST, topic_id=LATER)
            await append(directory, again, one(), flush=True)
            assert await directory.folders.topic_of("t-0") == LATER
            await directory.close()

        await opened(runtime, body)

    with caplog.at_level(logging.WARNING, "quorumlog.storage"):
        simulated(live)
    assert caplog.messages == []


def test_folder_without_a_segment_does_not_bound_its_first_segment() -> None:
    """The power failed before the first segment's name was durable. partition.metadata was durable,
    with the bound of the old config."""

    async def live(runtime: Runtime, _: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", SURE, topic_id=TOPIC)
            await append(directory, log, one(), flush=True)
            await directory.close()

        await opened(runtime, body)
        files = runtime.files
        files.remove(f"{DATA}/recovery-point-offset-checkpoint")
        for name in files.names(f"{DATA}/t-0"):
            if name != "partition.metadata":
                files.remove(f"{DATA}/t-0/{name}")
        files.sync_folder(f"{DATA}/t-0")
        files.sync_folder(DATA)
        assert bound(runtime) == 1_000

    async def look(runtime: Runtime, _: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            await directory.open_log("t-0", FAST, topic_id=TOPIC)

        await opened(runtime, body)

    async def look_again(runtime: Runtime, _: SimNode) -> None:
        assert bound(runtime) is None, "appends under this config have no bound"

    simulated(live, look, look_again)


def test_change_delayed_by_a_full_disk_applies_once_there_is_space() -> None:
    async def live(runtime: Runtime, node: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", SURE, topic_id=TOPIC)
            await append(directory, log, one(), flush=True)
            node.device.fail("", errno.ENOSPC, path_part="partition.metadata.tmp", times=1)
            directory.configure(log, FAST)
            await append(directory, log, one())
            assert (bound(runtime), log.config) == (1_000, SURE), (
                "partition.metadata could not be written"
            )
            await directory.checkpoints.checkpoint()
            await append(directory, log, one())
            assert (bound(runtime), log.config) == (None, FAST)
            await directory.close()

        await opened(runtime, body)

    simulated(live)


def test_partition_metadata_becomes_durable_on_a_full_disk() -> None:
    """The last process died without a sync, and the new bound cannot be stored now."""

    async def first(runtime: Runtime, _: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, one())

        await opened(runtime, body)

    async def second(runtime: Runtime, node: SimNode) -> None:
        node.device.fail("", errno.ENOSPC, path_part="partition.metadata.tmp", times=1)

        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", SURE, topic_id=TOPIC)
            assert await append(directory, log, one(), flush=True) == 1

        await opened(runtime, body)

    async def look(runtime: Runtime, _: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", SURE, topic_id=TOPIC)
            assert log.log_end_offset == 2
            await directory.close()

        await opened(runtime, body)

    for seed in range(8):
        simulated(first, second, look, seed=seed, killed=0)


def test_a_sync_that_fails_under_a_change_keeps_no_file_open() -> None:
    async def live(runtime: Runtime, node: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, one())
            found = log.read(0, max_bytes=1_000)
            assert found is not None
            found.release()
            file: Any = found.file
            assert file.leases == 1, "the change waits for its sync"
            node.device.fail("sync", errno.EIO, path_part=".log")
            directory.configure(log, SURE)
            failed: list[Exception] = []
            directory.on_failed(log, failed.append)
            while not failed:
                await runtime.tasks.offload("read", lambda: None)
            assert file.leases == 0
            await directory.close()

        await opened(runtime, body)

    simulated(live)


def test_lasting_full_disk_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def live(runtime: Runtime, node: SimNode) -> None:
        async def body(directory: DataDirectory) -> None:
            log = await directory.open_log("t-0", SURE, topic_id=TOPIC)
            await append(directory, log, one(), flush=True)
            node.device.fail("write", errno.ENOSPC, path_part="partition.metadata", times=5)
            directory.configure(log, WIDE)
            for _ in range(4):
                await append(directory, log, one(), flush=True)
                await directory.checkpoints.checkpoint()
            assert log.config == SURE
            node.device.faults.clear()
            await append(directory, log, one(), flush=True)
            await directory.checkpoints.checkpoint()
            await append(directory, log, one(), flush=True)
            assert log.config == WIDE
            await directory.close()

        await opened(runtime, body)

    simulated(live)
    said = [each for each in caplog.messages if each.startswith("storage.config_waits")]
    assert said == ["storage.config_waits log=t-0 reason=disk_full"]
