"""One data directory on both runtimes: who owns it, what it acknowledges, how it stops."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quorumlog.errors import (
    DirectoryInUse,
    DirectoryMismatch,
    DirectoryNotFormatted,
    DirectoryUnusable,
    DiskFull,
    InvalidRecord,
    Overloaded,
    QuorumlogError,
    Stopping,
    StorageError,
)
from quorumlog.ids import ClusterId, DirectoryId, NodeId, TopicId
from quorumlog.records.codec import decode_all
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.simulation import Faults, SimNode, SimWorld
from quorumlog.storage import DirectoryConfig, FlushPolicy, Log, LogConfig, Origin
from quorumlog.storage.shell import Appended, Directory

Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
Run = Callable[[Main], Any]
MakeBatch = Callable[..., bytes]

CLUSTER, ONE, TOPIC = ClusterId("c" * 22), NodeId(1), TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)


@asynccontextmanager
async def opened(
    runtime: Runtime, path: str, *, config: DirectoryConfig | None = None, close: bool = True
) -> AsyncIterator[Directory]:
    """Open (formatting it first when needed), and close at the end unless it is to be left."""
    await Directory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
    async with runtime.tasks.scope("life") as scope:
        directory = await Directory.open(runtime, scope, path, config=config)
        try:
            yield directory
            if close:
                await directory.close()
        finally:
            scope.cancel()


async def append(
    directory: Directory, log: Log, batches: bytes, *, epoch: int = 0, flush: bool = True
) -> Appended:
    return await directory.append(
        log, batches, leader_epoch=epoch, origin=Origin.CLIENT, flush=flush
    )


async def values(directory: Directory, log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=5_000)
        assert taken is not None
        found += [record.value for record in decode_all(await directory.read(taken))]
        offset = taken.next_offset
    return found


# --- whose it is -------------------------------------------------------------------------------


def test_a_directory_is_formatted_once_for_a_cluster_and_a_node(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        meta = await Directory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        assert (meta.cluster_id, meta.node_id, len(meta.directory_id)) == (CLUSTER, ONE, 16)
        again = await Directory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        assert again == meta, "the directory id stays"
        with pytest.raises(DirectoryMismatch, match="node 1, not 2"):
            await Directory.format(runtime, path, cluster_id=CLUSTER, node_id=NodeId(2))
        with pytest.raises(DirectoryMismatch, match="cluster"):
            await Directory.format(runtime, path, cluster_id=ClusterId("other"), node_id=ONE)
        async with opened(runtime, path) as directory:
            assert directory.meta == meta

    run(main)


def test_a_directory_id_may_be_given(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        given = DirectoryId(b"d" * 16)
        meta = await Directory.format(
            runtime, path, cluster_id=CLUSTER, node_id=ONE, directory_id=given
        )
        assert meta.directory_id == given

    run(main)


def test_an_unformatted_directory_is_not_opened(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with runtime.tasks.scope("t") as scope:
            with pytest.raises(DirectoryNotFormatted):
                await Directory.open(runtime, scope, path)

    run(main)


def test_logs_without_meta_properties_are_not_adopted(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        runtime.files.make_folder(f"{path}/orders-0")
        with pytest.raises(DirectoryMismatch, match="orders-0"):
            await Directory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)

    run(main)


def test_a_directory_of_another_cluster_or_node_is_not_opened(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await Directory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        async with runtime.tasks.scope("t") as scope:
            with pytest.raises(DirectoryMismatch):
                await Directory.open(runtime, scope, path, cluster_id=ClusterId("other"))
            with pytest.raises(DirectoryMismatch):
                await Directory.open(runtime, scope, path, node_id=NodeId(2))
            directory = await Directory.open(
                runtime, scope, path, cluster_id=CLUSTER, node_id=ONE
            )  # the refused ones gave the lock back
            await directory.close()

    run(main)


def test_the_lock_refuses_a_second_owner(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path), runtime.tasks.scope("t") as scope:
            with pytest.raises(DirectoryInUse):
                await Directory.open(runtime, scope, path)
            with pytest.raises(DirectoryInUse):
                await Directory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        async with opened(runtime, path):
            pass  # close() gave it back

    run(main)


def test_a_path_that_cannot_be_a_folder_is_unusable(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        runtime.files.open(path, create=True).close()
        with pytest.raises(DirectoryUnusable, match=path):
            await Directory.format(runtime, f"{path}/below", cluster_id=CLUSTER, node_id=ONE)

    run(main)


# --- append and read ---------------------------------------------------------------------------


def test_the_order_of_calls_is_the_order_in_the_log(run: Run, batch: MakeBatch) -> None:
    """Small and large, compressed and not: each takes another way to the file."""
    kinds = [
        {"size": 10},
        {"size": 90_000},
        {"size": 200_000, "codec": Codec.ZSTD},
        {"size": 70_000, "codec": Codec.LZ4},
        {"size": 20},
    ]

    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            for name, config in (("a-0", FAST), ("b-0", FSYNC)):
                log = await directory.open_log(name, config, topic_id=TOPIC)
                contents = [
                    batch(1 + i % 3, value=b"%d" % i, **kinds[i % len(kinds)]) for i in range(30)
                ]
                futures = [
                    directory.append_nowait(
                        log, content, leader_epoch=0, origin=Origin.CLIENT, flush=i % 2 == 0
                    )
                    for i, content in enumerate(contents)
                ]
                answers = await asyncio.gather(*futures)
                offset = 0
                for answer, content in zip(answers, contents, strict=True):
                    assert answer.base_offset == offset
                    offset += len(decode_all(content))
                    assert answer.next_offset == offset
                assert await values(directory, log) == [
                    record.value for content in contents for record in decode_all(content)
                ]

    run(main)


def test_flushed_appends_return_after_the_flush(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            for config in (FSYNC, FAST):
                log = await directory.open_log(f"{config.flush_policy}-0", config, topic_id=None)
                for _ in range(3):
                    appended = await append(directory, log, batch(2), flush=True)
                    assert log.flushed_end_offset >= appended.next_offset

    run(main)


def test_a_replicated_append_returns_before_any_flush(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(2), flush=False)
            assert (log.log_end_offset, log.flushed_end_offset) == (2, 0)
            await directory.flush(log)
            assert log.flushed_end_offset == 2

    run(main)


def test_an_fsync_log_is_flushed_without_being_asked(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            flushed = asyncio.Event()

            def moved() -> None:
                if log.flushed_end_offset == 2:
                    flushed.set()

            directory.on_appended(log, moved)
            await append(directory, log, batch(2), flush=False)
            await flushed.wait()

    run(main)


def test_progress_is_told_for_the_end_and_for_the_flushed_end(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            seen: list[tuple[int, int]] = []
            directory.on_appended(
                log, lambda: seen.append((log.log_end_offset, log.flushed_end_offset))
            )
            await append(directory, log, batch(2))
            assert seen == [(2, 0), (2, 2)]

    run(main)


def test_an_invalid_append_fails_alone(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            bad = bytearray(batch(1, size=100_000, codec=Codec.GZIP))
            bad[-1] ^= 1
            contents = [batch(1), b"", bytes(bad), batch(2)]
            answers = await asyncio.gather(
                *[append(directory, log, content) for content in contents], return_exceptions=True
            )
            first, empty, torn, last = answers
            assert isinstance(empty, InvalidRecord)
            assert isinstance(torn, QuorumlogError)
            assert isinstance(first, Appended)
            assert isinstance(last, Appended)
            assert (first.base_offset, last.base_offset, log.log_end_offset) == (0, 1, 3)

    run(main)


def test_a_cancelled_caller_loses_its_answer_and_nothing_else(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await append(directory, log, batch(1, value=b"a"))
            async with runtime.tasks.scope("callers") as scope:
                tasks = [
                    scope.spawn(append(directory, log, batch(1, value=v, size=9_000)), name="c")
                    for v in (b"b", b"c", b"d")
                ]
                await asyncio.sleep(0)
                tasks[1].cancel()
            await append(directory, log, batch(1, value=b"e"))
            found = [value[:1] for value in await values(directory, log) if value is not None]
            assert found == [b"a", b"b", b"c", b"d", b"e"]

    run(main)


def test_a_full_queue_is_overloaded_and_takes_nothing(run: Run, batch: MakeBatch) -> None:
    config = DirectoryConfig(queue_bytes_max=300, inline_write_bytes_max=10)

    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path, config=config) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            accepted = [
                directory.append_nowait(
                    log, batch(1), leader_epoch=0, origin=Origin.CLIENT, flush=False
                )
                for _ in range(300 // len(batch(1)))
            ]
            with pytest.raises(Overloaded):
                await append(directory, log, batch(1))
            await asyncio.gather(*accepted)
            assert log.log_end_offset == len(accepted)
            await append(directory, log, batch(5, size=100))  # alone, it may exceed the bound

    run(main)


def test_offsets_by_time_are_found_on_the_read_lane(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        config = LogConfig(segment_bytes=1_000, index_interval_bytes=100)
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            for number in range(60):
                await append(directory, log, batch(1, timestamp=10 * number), epoch=2, flush=False)
            found = await directory.offset_for_time(log, 295)
            assert found is not None
            assert (found.offset, found.timestamp, found.leader_epoch) == (30, 300, 2)
            assert await directory.offset_for_time(log, 295, end_offset=30) is None
            assert await directory.offset_for_time(log, 591) is None
            largest = await directory.offset_for_time(log, None)
            assert largest is not None
            assert largest.offset == 59

    run(main)


# --- truncate and delete -----------------------------------------------------------------------


def test_a_truncation_comes_after_what_was_queued_before(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            before = [append(directory, log, batch(1, value=b"x")) for _ in range(5)]
            await asyncio.gather(*before, directory.truncate(log, 2))
            assert log.log_end_offset == 2
            assert (await append(directory, log, batch(1, value=b"y"))).base_offset == 2
            await directory.truncate(log, 9)
            assert await values(directory, log) == [b"x-0", b"x-0", b"y-0"]

    run(main)


def test_a_deleted_log_is_gone_and_may_be_made_anew(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await append(directory, log, batch(3))
            await directory.checkpoint()
            taken = log.read(0, max_bytes=100)
            assert taken is not None
            await directory.delete_log(log)
            assert directory.log_names() == []
            assert len(decode_all(await directory.read(taken))) == 3, "a lease keeps it readable"
            with pytest.raises(StorageError):
                await append(directory, log, batch(1))
            again = await directory.open_log("t-0", FSYNC, topic_id=TopicId(b"u" * 16))
            assert again.log_end_offset == 0
            await append(directory, again, batch(1))
        async with opened(runtime, path) as directory:
            assert directory.load_file("recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"

    run(main)


def test_a_log_that_was_never_written_can_be_deleted(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            await directory.delete_log(await directory.open_log("t-0", FAST, topic_id=TOPIC))
            assert directory.log_names() == []

    run(main)


def test_folders_of_unfinished_deletions_are_swept_away(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path):
            pass
        runtime.files.make_folder(f"{path}/t-0.abc-delete/deep")
        async with opened(runtime, path):
            assert not runtime.files.exists(f"{path}/t-0.abc-delete")

    run(main)


# --- stop and start ----------------------------------------------------------------------------


def test_a_clean_stop_leaves_a_marker_that_the_next_append_takes_away(
    run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        marker = f"{path}/.kafka_cleanshutdown"
        async with opened(runtime, path) as directory:
            assert not directory.was_clean
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(3), epoch=5, flush=False)
        for _ in range(2):
            async with opened(runtime, path) as directory:
                assert directory.was_clean
                log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
                assert (log.log_end_offset, log.flushed_end_offset) == (3, 3)
                assert log.epochs.entries() == [(5, 0)]
                assert runtime.files.exists(marker), "nothing has changed so far"
        async with opened(runtime, path, close=False) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(1), epoch=5, flush=False)
            assert not runtime.files.exists(marker)

    run(main)


def test_no_marker_while_a_log_of_an_unclean_stop_was_not_recovered(
    run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            for name in ("a-0", "b-0"):
                log = await directory.open_log(name, FAST, topic_id=TOPIC)
                await append(directory, log, batch(1))
        runtime.files.remove(f"{path}/.kafka_cleanshutdown")
        async with opened(runtime, path) as directory:
            await directory.open_log("a-0", FAST, topic_id=TOPIC)
        async with opened(runtime, path) as directory:
            assert not directory.was_clean
            for name in ("a-0", "b-0"):
                await directory.open_log(name, FAST, topic_id=TOPIC)
        async with opened(runtime, path) as directory:
            assert directory.was_clean

    run(main)


def test_closing_takes_no_new_appends_and_ends_the_queued_ones(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path, close=False) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            queued = [
                directory.append_nowait(
                    log, batch(1, size=100_000), leader_epoch=0, origin=Origin.CLIENT, flush=True
                )
                for _ in range(5)
            ]
            closing = asyncio.gather(directory.close())
            await asyncio.sleep(0)
            with pytest.raises(Stopping):
                await append(directory, log, batch(1))
            await closing
            assert [(await answer).base_offset for answer in queued] == [0, 1, 2, 3, 4]
        async with opened(runtime, path) as directory:
            assert directory.was_clean
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            assert log.log_end_offset == 5

    run(main)


def test_opening_a_log_twice_gives_the_same_log(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            logs = await asyncio.gather(
                *[directory.open_log("t-0", FAST, topic_id=TOPIC) for _ in range(3)]
            )
            assert logs[0] is logs[1] is logs[2]

    run(main)


def test_a_folder_of_another_topic_id_is_refused(run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(1))
        async with opened(runtime, path) as directory:
            with pytest.raises(StorageError, match="another topic"):
                await directory.open_log("t-0", FAST, topic_id=TopicId(b"u" * 16))
            assert directory.log_names() == ["t-0"]
            await directory.open_log("t-0", FAST, topic_id=TOPIC)

    run(main)


def test_a_stored_file_is_there_after_a_restart(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with opened(runtime, path) as directory:
            assert directory.load_file("quorum-state") is None
            await directory.store_file("quorum-state", b"one")
            await directory.store_file("quorum-state", b"two")
            assert directory.load_file("quorum-state") == b"two"
        async with opened(runtime, path) as directory:
            assert directory.load_file("quorum-state") == b"two"

    run(main)


def test_under_load_recovery_points_and_epochs_are_stored_every_interval(
    run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        config = DirectoryConfig(checkpoint_interval_ms=1)
        async with opened(runtime, path, config=config) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(3), epoch=4, flush=False)
            stored = f"{path}/recovery-point-offset-checkpoint"
            async with asyncio.timeout(30):
                while not runtime.files.exists(stored):  # noqa: ASYNC110 - a file tells nobody
                    await asyncio.sleep(0.001)
            assert log.recovery_point == 3
            assert runtime.files.exists(f"{path}/t-0/leader-epoch-checkpoint")

    run(main)


# --- disks that fail (simulated: a real one cannot be asked to) --------------------------------


def simulated(
    main: Callable[[Runtime, SimNode], Coroutine[Any, Any, Any]], *, faults: Faults | None = None
) -> None:
    with SimWorld(0, faults=faults) as world:
        node = world.node("n")
        task = node.spawn(lambda runtime: main(runtime, node))
        world.run_until(task, virtual_ms=600_000)
        task.result()


def test_a_full_disk_refuses_appends_until_there_is_room(batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(inline_write_bytes_max=2_000)
        async with opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await append(directory, log, batch(1, value=b"a"))
            disk = node.device.disk
            disk.capacity_bytes = 500
            for size in (1_000, 5_000):  # inline and in the lane
                with pytest.raises(DiskFull):
                    await append(directory, log, batch(1, size=size))
            with pytest.raises(DiskFull):
                await directory.store_file("quorum-state", bytes(1_000))
            disk.capacity_bytes = None
            await append(directory, log, batch(1, value=b"b"))
            assert await values(directory, log) == [b"a-0", b"b-0"]
        async with opened(runtime, "/data") as directory:
            assert directory.was_clean

    simulated(main)


def test_no_room_for_a_first_segment_is_a_full_disk_too(batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            node.device.fail("create", errno.ENOSPC)
            with pytest.raises(DiskFull):
                await append(directory, log, batch(1))
            assert (await append(directory, log, batch(1))).base_offset == 0

    simulated(main)


@pytest.mark.parametrize(
    ("operation", "number", "size"),
    [
        ("write", errno.EIO, 100),
        ("write", errno.EIO, 5_000),
        ("sync", errno.EIO, 100),
        ("sync", errno.ENOSPC, 100),  # of a sync, even a full disk is final
    ],
)
def test_a_broken_disk_ends_the_log_and_only_that(
    batch: MakeBatch, operation: str, number: int, size: int
) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(inline_write_bytes_max=2_000)
        async with opened(runtime, "/data", config=config) as directory:
            bad = await directory.open_log("bad-0", FSYNC, topic_id=TOPIC)
            good = await directory.open_log("good-0", FSYNC, topic_id=TOPIC)
            await append(directory, bad, batch(1, value=b"a"))
            told: list[StorageError] = []
            directory.on_failed(bad, told.append)
            node.device.fail(operation, number, path_part="bad-0")
            answers = await asyncio.gather(
                *[append(directory, bad, batch(1, size=size)) for _ in range(3)],
                return_exceptions=True,
            )
            assert [type(answer) for answer in answers] == [StorageError] * 3
            with pytest.raises(StorageError):
                await append(directory, bad, batch(1))
            with pytest.raises(StorageError):
                await directory.flush(bad)
            with pytest.raises(StorageError):
                await directory.truncate(bad, 0)
            assert len(told) == 1
            assert (await values(directory, bad))[0] == b"a-0", "reads go on"
            await append(directory, good, batch(1))
            assert good.flushed_end_offset == 1
        async with opened(runtime, "/data") as directory:
            assert not directory.was_clean
            bad = await directory.open_log("bad-0", FSYNC, topic_id=TOPIC)
            assert (await values(directory, bad))[0] == b"a-0"

    simulated(main)


def test_an_fsync_that_failed_is_never_repeated(batch: MakeBatch) -> None:
    """The kernel counts the pages as clean: a second fsync would acknowledge what is lost."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(1, value=b"a"), flush=True)
            await append(directory, log, batch(1, value=b"b"), flush=False)
            node.device.fail("sync", errno.EIO, path_part="t-0")
            with pytest.raises(StorageError):
                await directory.flush(log)
            await directory.checkpoint()
            assert log.flushed_end_offset == 1
        stored = "/data/recovery-point-offset-checkpoint"
        if runtime.files.exists(stored):
            assert runtime.files.open_readonly(stored).read(0, 99) == b"0\n1\nt 0 1\n"

    simulated(main)


def test_a_checkpoint_that_fails_is_tried_again_later(batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(1), epoch=3, flush=True)
            node.device.fail("rename", errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                await directory.checkpoint()
            assert not runtime.files.exists("/data/recovery-point-offset-checkpoint")
            await append(directory, log, batch(1), epoch=3, flush=True)
            await directory.checkpoint()
            assert runtime.files.exists("/data/t-0/leader-epoch-checkpoint")
            assert runtime.files.exists("/data/recovery-point-offset-checkpoint")

    simulated(main)


def test_a_marker_that_cannot_be_removed_stops_the_first_append(batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with opened(runtime, "/data"):
            pass
        async with opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            node.device.fail("remove", errno.EROFS)
            with pytest.raises(StorageError):
                await append(directory, log, batch(1))
            await append(directory, log, batch(1))

    simulated(main)


def test_a_cold_read_that_fails_is_a_storage_error(batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with opened(runtime, "/data") as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(1))
            for operation in ("read", "read_cached"):
                taken = log.read(0, max_bytes=1_000)
                assert taken is not None
                node.device.fail(operation, errno.EIO)
                if operation == "read":
                    node.device.fail("read_cached", errno.EAGAIN)
                with pytest.raises(StorageError):
                    await directory.read(taken)
                node.device.faults.clear()
            assert await values(directory, log) == [b"v-0"]

    simulated(main)


def test_a_cancelled_cold_read_keeps_its_lease_until_the_lane_is_done(batch: MakeBatch) -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        config = DirectoryConfig(open_files_max=1)
        async with opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await append(directory, log, batch(1))
            taken = log.read(0, max_bytes=1_000)
            assert taken is not None
            async with runtime.tasks.scope("reader") as scope:
                reader = scope.spawn(directory.read(taken), name="reader")
                await asyncio.sleep(0)
                reader.cancel()
            other = await directory.open_log("u-0", FAST, topic_id=TOPIC)
            await append(directory, other, batch(1))  # evicts the first log's file
            await runtime.tasks.drain("read")
            assert await values(directory, log) == [b"v-0"]

    simulated(main, faults=Faults(cache_miss=1.0))


def test_an_fsync_log_never_has_more_than_two_groups_unsynced(batch: MakeBatch) -> None:
    """Written in any order by the device, only they can be torn: recovery counts on it."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        group = 3_000
        config = DirectoryConfig(write_group_bytes_max=group, inline_write_bytes_max=1_000)
        async with opened(runtime, "/data", config=config) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            path = "/data/t-0/00000000000000000000.log"
            waiting, most = [], 0
            for number in range(600):
                content = batch(1, size=200 + 37 * (number % 9))
                waiting.append(
                    directory.append_nowait(
                        log, content, leader_epoch=0, origin=Origin.CLIENT, flush=True
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
