"""A data directory across failures, deletions and restarts."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from quorumlog import simulation
from quorumlog.errors import DiskFailed, DiskFull, Overloaded, Stopping
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import File, Runtime, Scope, real
from quorumlog.runtime.files import RealFiles
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.index import IndexCache
from quorumlog.storage.leader_epochs import EpochCache
from quorumlog.storage.recovery import LogState
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.shell.append_queue import PendingAppend

DATA: Final = "/data"
CLUSTER: Final = ClusterId("c")
TOPIC: Final = TopicId(b"t" * 16)
FSYNC: Final = LogConfig(flush_policy=FlushPolicy.FSYNC)
REPLICATED: Final = LogConfig(flush_policy=FlushPolicy.REPLICATED)

Life = Callable[[Runtime], Coroutine[Any, Any, None]]


def batch(value: bytes = b"v", *, timestamp: int = 1, leader_epoch: int = -1) -> bytes:
    return encode_batch([Record(0, timestamp, None, value, ())], leader_epoch=leader_epoch)


async def open_directory(runtime: Runtime, scope: Scope, **config: int) -> DataDirectory:
    if not runtime.files.exists(f"{DATA}/meta.properties"):
        await DataDirectory.format(runtime, DATA, cluster_id=CLUSTER, node_id=NodeId(1))
    return await DataDirectory.open(runtime, scope, DATA, config=DirectoryConfig(**config))


async def append(
    directory: DataDirectory, log: Log, value: bytes = b"v", *, flush: bool = True, epoch: int = 0
) -> int:
    appended = await directory.append(
        log, batch(value), leader_epoch=epoch, origin=AppendOrigin.CLIENT, flush=flush
    )
    return appended.base_offset


def run_process(world: SimWorld, node: SimNode, life: Life) -> None:
    """Run one process to its end, clean or not."""
    node.spawn(life)
    world.run_until(lambda: not node.alive, virtual_ms=600_000)
    if node.exit_error is not None:
        raise node.exit_error


# --- identity ----------------------------------------------------------------------------------


def test_every_formatted_directory_gets_an_id_of_its_own() -> None:
    async def main(runtime: Runtime) -> None:
        ids = [
            (
                await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=NodeId(node))
            ).directory_id
            for node, path in enumerate(("/a", "/b", "/c"))
        ]
        runtime.files.remove("/c/meta.properties")  # a wiped disk under its old path
        wiped = await DataDirectory.format(runtime, "/c", cluster_id=CLUSTER, node_id=NodeId(2))
        assert len({*ids, wiped.directory_id}) == 4

    simulation.run(main)


# --- deletions ---------------------------------------------------------------------------------


def test_a_deletion_between_a_checkpoint_and_its_flush_stops_no_checkpoint() -> None:
    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            kept = await directory.open_log("kept-0", REPLICATED, topic_id=TOPIC)
            gone = await directory.open_log("gone-0", REPLICATED, topic_id=TOPIC)
            await append(directory, kept, flush=False)
            await append(directory, gone, flush=False)
            scope.spawn(directory.small_files.store("f", b""), name="keeps the lane busy")
            await asyncio.sleep(0)
            deletion = scope.spawn(directory.folders.delete_log(gone), name="deletion")
            await asyncio.sleep(0)
            await (
                directory.checkpoints.checkpoint()
            )  # asks for a flush that comes after the deletion
            await deletion
            assert (kept.flushed_end_offset, directory.folders.names()) == (1, ["kept-0"])
            await directory.close()

    simulation.run(main)


def test_a_log_whose_deletion_failed_refuses_to_be_deleted_and_ends_nothing_else() -> None:
    async def life(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await append(directory, log)
            node.device.fail("rename", errno.EIO, path_part="t-0")
            with pytest.raises(DiskFailed):
                await directory.folders.delete_log(log)
            with pytest.raises(DiskFailed, match="could not be deleted"):
                await directory.folders.delete("t-0")
            other = await directory.open_log("u-0", FSYNC, topic_id=TOPIC)
            assert await append(directory, other) == 0
            await directory.close()

    with SimWorld(0) as world:
        node = world.node("n")
        run_process(world, node, life)


def test_work_behind_a_deletion_is_rejected_without_a_disk_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            deletion = scope.spawn(directory.folders.delete_log(log), name="deletion")
            await asyncio.sleep(0)
            with pytest.raises(DiskFailed, match="deleted"):
                await append(directory, log)
            await deletion
            assert directory.figures.failed_logs == 0
            await directory.close()

    simulation.run(main)
    assert [each for each in caplog.messages if each.startswith("storage.log_failed")] == []


def test_failed_deletion_reports_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def life(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await append(directory, log)
            node.device.fail("rename", errno.EIO, path_part="t-0")
            with pytest.raises(DiskFailed, match=os.strerror(errno.EIO)):
                await directory.folders.delete_log(log)
            assert directory.figures.failed_logs == 1
            await directory.close()

    with SimWorld(0) as world:
        node = world.node("n")
        run_process(world, node, life)
    (said,) = [each for each in caplog.messages if each.startswith("storage.log_failed")]
    assert os.strerror(errno.EIO) in said


def test_a_log_of_the_longest_name_can_be_deleted(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        path = str(tmp_path / "data")
        await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=NodeId(1))
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, path)
            log = await directory.open_log("n" * 249 + "-9999", FSYNC, topic_id=TOPIC)
            await append(directory, log)
            await directory.folders.delete_log(log)
            assert directory.folders.names() == []
            await directory.close()

    real.run(main)


def test_a_log_can_be_deleted_from_a_full_disk() -> None:
    async def life(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope, reserve_bytes=0)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await append(directory, log, bytes(5_000))
            await directory.checkpoints.checkpoint()
            node.device.disk.capacity_bytes = 5_000
            with pytest.raises(DiskFull):
                await append(directory, log)
            await directory.folders.delete_log(log)
            assert directory.folders.names() == []
            again = await directory.open_log("t-0", FSYNC, topic_id=TopicId(b"u" * 16))
            assert await append(directory, again) == 0
            await directory.close()

    with SimWorld(0) as world:
        node = world.node("n")
        run_process(world, node, life)


# --- bounds ------------------------------------------------------------------------------------


def test_client_appends_do_not_crowd_out_quorum_appends() -> None:
    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(
                runtime, scope, queue_bytes_max=1_000, inline_write_bytes_max=10
            )
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            quorum = await directory.open_log("__cluster_metadata-0", FSYNC, topic_id=None)

            def flood() -> PendingAppend:
                return directory.append_nowait(
                    log, batch(bytes(400)), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
                )

            queued = [flood(), flood()]
            with pytest.raises(Overloaded):
                flood()
            stamped = batch(bytes(400), leader_epoch=1)
            appended = await directory.append(
                quorum, stamped, leader_epoch=1, origin=AppendOrigin.REPLICATED, flush=True
            )
            assert appended.base_offset == 0
            await asyncio.gather(*queued)
            await directory.close()

    simulation.run(main)


# --- exclusive work and flushes ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("work", ["close", "truncate", "delete"])
def test_exclusive_work_on_a_log_never_overlaps_a_flush(seed: int, work: str) -> None:
    async def main(runtime: Runtime) -> None:
        draw = runtime.entropy.stream("when")
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", REPLICATED, topic_id=TOPIC)
            for _ in range(2):
                await append(directory, log, flush=False)
            for _ in range(draw.below(3)):
                scope.spawn(directory.small_files.store("f", b""), name="keeps the lane busy")
            checkpoint = scope.spawn(
                after(draw.below(20) * 100e-6, directory.checkpoints.checkpoint), name="checkpoint"
            )
            await asyncio.sleep(draw.below(20) * 100e-6)
            if work == "truncate":
                await directory.truncation.truncate(log, 1)
                assert log.log_end_offset == 1
            if work == "delete":
                await directory.folders.delete_log(log)
                assert directory.folders.names() == []
            if work != "close":
                await checkpoint
            await directory.close()

    simulation.run(main, seed=seed)


async def after(delay_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await asyncio.sleep(delay_s)
    with suppress(Stopping):  # the directory may be closed by now
        await work()


@pytest.mark.parametrize("seed", range(24))
def test_a_log_that_is_being_opened_does_not_hold_up_the_close(seed: int) -> None:
    async def main(runtime: Runtime) -> None:
        async def open_one(directory: DataDirectory) -> None:
            with suppress(Stopping):
                await directory.folders.topic_of("t-0")
                await directory.open_log("t-0", FSYNC, topic_id=TOPIC)

        delay_s = runtime.entropy.stream("when").below(60) * 100e-6
        for _ in range(2):
            async with runtime.tasks.scope("life") as scope:
                directory = await open_directory(runtime, scope)
                scope.spawn(open_one(directory), name="opening")
                await asyncio.sleep(delay_s)
                await directory.close()

    simulation.run(main, seed=seed)


# --- a process that starts after a failure ------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_pages_left_by_a_failed_sync_do_not_count_as_durable(seed: int) -> None:
    """Otherwise a power cut would remove the acknowledged records behind them."""

    async def fails(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await append(directory, log)
            node.device.fail("sync", errno.EIO, path_part="/t-0/")
            with pytest.raises(DiskFailed):
                await append(directory, log, bytes(1_000))
            await directory.close()

    async def goes_on(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            acknowledged.append(await append(directory, log, bytes(1_000)))
            node.power_cut()

    async def looks(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            assert log.log_end_offset > acknowledged[0]
            await directory.close()

    acknowledged: list[int] = []
    with SimWorld(seed) as world:
        node = world.node("n")
        run_process(world, node, fails)
        run_process(world, node, goes_on)
        run_process(world, node, looks)


@pytest.mark.parametrize("seed", range(12))
def test_partition_metadata_is_durable_before_the_first_acknowledgement(seed: int) -> None:
    async def dies_early(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", REPLICATED, topic_id=TOPIC)
            await append(directory, log, flush=False)
            node.crash()

    async def acknowledges(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            assert await append(directory, log) == 1
            node.power_cut()

    async def looks(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            assert await directory.folders.topic_of("t-0") == TOPIC
            await directory.close()

    with SimWorld(seed) as world:
        node = world.node("n")
        run_process(world, node, dies_early)
        run_process(world, node, acknowledges)
        run_process(world, node, looks)


@pytest.mark.parametrize("seed", range(24))
def test_topic_never_reads_records_of_an_older_topic_of_its_name(seed: int) -> None:
    """Also if the power failed before partition.metadata was durable."""

    async def first(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", REPLICATED, topic_id=TOPIC)
            await append(directory, log, flush=False)
            runtime.files.sync_folder(DATA)
            runtime.files.sync_folder(f"{DATA}/t-0")
            node.power_cut()

    async def second(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            if await directory.folders.topic_of("t-0") == TOPIC:
                await directory.folders.delete(
                    "t-0"
                )  # the broker does this where it can detect the change
            log = await directory.open_log("t-0", FSYNC, topic_id=TopicId(b"u" * 16))
            assert log.log_end_offset == 0
            await append(directory, log)
            await directory.close()

    with SimWorld(seed) as world:
        node = world.node("n")
        run_process(world, node, first)
        run_process(world, node, second)


# --- descriptors -------------------------------------------------------------------------------


class NoSpaceForSegments(RealFiles):
    """A disk with space for a small file but for no other file."""

    def open(self, path: str, *, create: bool = False) -> File:
        if create and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "no space left", path)
        return super().open(path, create=create)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.plain
def test_a_refused_first_append_keeps_no_file_open(tmp_path: Path) -> None:
    config, indexes = LogConfig(), IndexCache(1 << 20)
    state = LogState(segments=[], epochs=EpochCache(), log_start_offset=0, log_end_offset=0)
    pool = FilePool(NoSpaceForSegments(), open_files_max=4)
    folder = str(tmp_path / "t-0")
    log = Log(pool, indexes, name="t-0", folder=folder, config=config, topic_id=TOPIC, state=state)
    before = open_descriptors()
    for _ in range(5):
        with pytest.raises(DiskFull):
            log.appender.prepare(batch(), leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT)
    assert open_descriptors() == before


def test_a_deleted_log_that_was_never_flushed_keeps_no_file_open(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        path = str(tmp_path / "data")
        await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=NodeId(1))
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, path)
            counts = []
            for _ in range(4):
                log = await directory.open_log("t-0", REPLICATED, topic_id=TOPIC)
                await append(directory, log, flush=False)
                await directory.folders.delete_log(log)
                counts.append(open_descriptors())
            assert counts[-1] == counts[0]
            await directory.close()

    real.run(main)


def test_a_failed_probe_of_a_read_is_a_storage_error_and_keeps_no_lease() -> None:
    async def life(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await append(directory, log)
            node.device.fail("read_cached", errno.EIO, path_part="/t-0/")
            with pytest.raises(DiskFailed):
                log.read(0, max_bytes=100)
            found = log.read(0, max_bytes=100)
            assert found is not None
            assert found.file.leases == 1  # type: ignore[attr-defined]  # of the simulated file
            found.release()
            await directory.close()

    with SimWorld(0) as world:
        node = world.node("n")
        run_process(world, node, life)


# --- truncations -------------------------------------------------------------------------------


def test_failed_truncation_leaves_no_recovery_point_above_its_offset() -> None:
    """Otherwise the next opening would report the truncation as damage."""
    small = LogConfig(segment_bytes=100)

    async def fails(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", small, topic_id=TOPIC)
            for _ in range(3):
                await append(directory, log)
            await directory.checkpoints.checkpoint()
            node.device.fail("truncate", errno.EIO, path_part="/t-0/")
            with pytest.raises(DiskFailed):
                await directory.truncation.truncate(log, 1)
            other = await directory.open_log("u-0", small, topic_id=TOPIC)
            await append(directory, other)
            await directory.close()

    async def looks(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            log = await directory.open_log("t-0", small, topic_id=TOPIC)
            assert log.log_end_offset < 3
            await directory.close()

    with SimWorld(0) as world:
        node = world.node("n")
        run_process(world, node, fails)
        run_process(world, node, looks)


def test_a_log_that_was_only_read_is_closed_without_a_write() -> None:
    async def life(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            logs = [await directory.open_log(name, FSYNC, topic_id=TOPIC) for name in names]
            if not logs[0].log_end_offset:
                for log in logs:
                    await append(directory, log)
            else:
                await append(directory, logs[0])
                node.device.fail("write", errno.EIO, path_part="/u-0/")
                node.device.fail("sync", errno.EIO, path_part="/u-0/")
            await directory.close()
            assert logs[1].failure is not None, "closed"
            assert "closed" in str(logs[1].failure), "and not because of a failed disk"

    names = ["t-0", "u-0"]
    with SimWorld(0) as world:
        node = world.node("n")
        run_process(world, node, life)
        run_process(world, node, life)


# --- cancelled callers -------------------------------------------------------------------------


def test_a_cancelled_opening_leaves_no_lock_behind() -> None:
    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, DATA, cluster_id=CLUSTER, node_id=NodeId(1))
        async with runtime.tasks.scope("life") as scope:
            opening = scope.spawn(DataDirectory.open(runtime, scope, DATA), name="opening")
            await asyncio.sleep(0)
            opening.cancel()
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA)
            await directory.close()

    simulation.run(main)


def test_file_of_a_cancelled_writer_is_read_from_disk() -> None:
    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            directory = await open_directory(runtime, scope)
            storing = scope.spawn(directory.small_files.store("f", b"new"), name="storing")
            await asyncio.sleep(0)
            storing.cancel()
            await directory.small_files.store("g", b"")  # runs after it in the lane
            assert directory.small_files.load("f") == b"new"
            await directory.close()

    simulation.run(main)
