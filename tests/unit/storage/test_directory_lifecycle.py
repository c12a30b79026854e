"""Logs of a data directory are created and deleted; the directory stops and starts again."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.errors import CorruptionError, DiskFailed, Stopping
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import decode_all
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, LogConfig
from quorumlog.storage.small_files import read_file, write_file

Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
Run = Callable[[Main], Any]
MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit

CLUSTER, ONE, TOPIC = ClusterId("c" * 22), NodeId(1), TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)


# --- truncate and delete -----------------------------------------------------------------------


def test_truncation_follows_earlier_queued_appends(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            before = [kit.append(directory, log, batch(1, value=b"x")) for _ in range(5)]
            await asyncio.gather(*before, directory.truncation.truncate(log, 2))
            assert log.log_end_offset == 2
            assert (await kit.append(directory, log, batch(1, value=b"y"))).base_offset == 2
            await directory.truncation.truncate(log, 9)
            assert await kit.values(directory, log) == [b"x-0", b"x-0", b"y-0"]

    run(main)


def test_truncation_that_finds_damage_leaves_the_log_readable(
    kit: Kit, run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, close=False) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            sizes = [len(batch(1, value=value)) for value in (b"x", b"y", b"z")]
            for value in (b"x", b"y", b"z"):
                await kit.append(directory, log, batch(1, value=value))
            file = runtime.files.open(f"{path}/t-0/00000000000000000000.log")
            magic = file.read(sizes[0] + 16, 1)
            file.write(sizes[0] + 16, [b"\x07"])
            with pytest.raises(CorruptionError):
                await directory.truncation.truncate(log, 2)
            file.write(sizes[0] + 16, [magic])
            file.close()
            assert await kit.values(directory, log) == [b"x-0", b"y-0", b"z-0"]
            await directory.truncation.truncate(log, 2)
            assert await kit.values(directory, log) == [b"x-0", b"y-0"]

    run(main)


def test_deleted_log_can_be_created_again(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(3))
            await directory.checkpoints.checkpoint()
            taken = log.read(0, max_bytes=100)
            assert taken is not None
            await directory.folders.delete_log(log)
            assert directory.folders.names() == []
            assert len(decode_all(await directory.reader.read(taken))) == 3, (
                "a lease keeps it readable"
            )
            with pytest.raises(DiskFailed):
                await kit.append(directory, log, batch(1))
            again = await directory.open_log("t-0", FSYNC, topic_id=TopicId(b"u" * 16))
            assert again.log_end_offset == 0
            await kit.append(directory, again, batch(1))
        async with kit.opened(runtime, path) as directory:
            assert (
                directory.small_files.load("recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"
            )

    run(main)


def test_a_log_that_was_never_written_can_be_deleted(kit: Kit, run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            await directory.folders.delete_log(
                await directory.open_log("t-0", FAST, topic_id=TOPIC)
            )
            assert directory.folders.names() == []

    run(main)


def test_folders_of_unfinished_deletions_are_removed(kit: Kit, run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path):
            pass
        runtime.files.make_folder(f"{path}/t-0.abc-delete/deep")
        async with kit.opened(runtime, path):
            assert not runtime.files.exists(f"{path}/t-0.abc-delete")

    run(main)


# --- stop and start ----------------------------------------------------------------------------


def test_clean_stop_writes_a_marker_that_the_next_append_removes(
    kit: Kit, run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        marker = f"{path}/.kafka_cleanshutdown"
        async with kit.opened(runtime, path) as directory:
            assert not directory.was_clean
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(3), epoch=5, flush=False)
        for _ in range(2):
            async with kit.opened(runtime, path) as directory:
                assert directory.was_clean
                log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
                assert (log.log_end_offset, log.flushed_end_offset) == (3, 3)
                assert log.epochs.entries() == [(5, 0)]
                assert runtime.files.exists(marker), "no log has changed so far"
        async with kit.opened(runtime, path, close=False) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(1), epoch=5, flush=False)
            assert not runtime.files.exists(marker)

    run(main)


def test_no_marker_while_a_log_of_an_unclean_stop_was_not_recovered(
    kit: Kit, run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            for name in ("a-0", "b-0"):
                log = await directory.open_log(name, FAST, topic_id=TOPIC)
                await kit.append(directory, log, batch(1))
        runtime.files.remove(f"{path}/.kafka_cleanshutdown")
        async with kit.opened(runtime, path) as directory:
            await directory.open_log("a-0", FAST, topic_id=TOPIC)
        async with kit.opened(runtime, path) as directory:
            assert not directory.was_clean
            for name in ("a-0", "b-0"):
                await directory.open_log(name, FAST, topic_id=TOPIC)
        async with kit.opened(runtime, path) as directory:
            assert directory.was_clean

    run(main)


def test_close_rejects_new_appends_and_completes_queued_ones(
    kit: Kit, run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, close=False) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            queued = [
                directory.append_nowait(
                    log,
                    batch(1, size=100_000),
                    leader_epoch=0,
                    origin=AppendOrigin.CLIENT,
                    flush=True,
                )
                for _ in range(5)
            ]
            closing = asyncio.gather(directory.close())
            await asyncio.sleep(0)
            with pytest.raises(Stopping):
                await kit.append(directory, log, batch(1))
            await closing
            assert [(await answer).base_offset for answer in queued] == [0, 1, 2, 3, 4]
        async with kit.opened(runtime, path) as directory:
            assert directory.was_clean
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            assert log.log_end_offset == 5

    run(main)


def test_opening_a_log_twice_gives_the_same_log(kit: Kit, run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            logs = await asyncio.gather(
                *[directory.open_log("t-0", FAST, topic_id=TOPIC) for _ in range(3)]
            )
            assert logs[0] is logs[1] is logs[2]

    run(main)


def test_a_folder_of_another_topic_id_is_refused(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(1))
        async with kit.opened(runtime, path) as directory:
            with pytest.raises(DiskFailed, match="another topic"):
                await directory.open_log("t-0", FAST, topic_id=TopicId(b"u" * 16))
            assert directory.folders.names() == ["t-0"]
            await directory.open_log("t-0", FAST, topic_id=TOPIC)

    run(main)


def test_foreign_folder_is_rejected_and_kept(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(3))
        files, name = runtime.files, "00000000000000000000.log"
        files.make_folder(f"{path}/foreign-0")
        write_file(files, f"{path}/foreign-0/{name}", read_file(files, f"{path}/t-0/{name}"))
        async with kit.opened(runtime, path) as directory:
            with pytest.raises(DiskFailed, match="has no topic id"):
                await directory.open_log("foreign-0", FSYNC, topic_id=TOPIC)
        kept = read_file(files, f"{path}/foreign-0/{name}")
        assert kept == read_file(files, f"{path}/t-0/{name}")

    run(main)


def test_a_stored_file_is_there_after_a_restart(kit: Kit, run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            assert directory.small_files.load("quorum-state") is None
            await directory.small_files.store("quorum-state", b"one")
            await directory.small_files.store("quorum-state", b"two")
            assert directory.small_files.load("quorum-state") == b"two"
        async with kit.opened(runtime, path) as directory:
            assert directory.small_files.load("quorum-state") == b"two"

    run(main)


def test_under_load_recovery_points_and_epochs_are_stored_every_interval(
    kit: Kit, run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        config = DirectoryConfig(checkpoint_interval_ms=1)
        async with kit.opened(runtime, path, config=config) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(3), epoch=4, flush=False)
            stored = f"{path}/recovery-point-offset-checkpoint"
            async with asyncio.timeout(60):
                while not runtime.files.exists(stored):  # noqa: ASYNC110 - a file sends no event
                    await asyncio.sleep(0.001)
            assert log.recovery_point == 3
            assert runtime.files.exists(f"{path}/t-0/leader-epoch-checkpoint")

    run(main)


def test_logs_that_are_written_fast_are_flushed_less_often(kit: Kit, batch: MakeBatch) -> None:
    config = DirectoryConfig(
        checkpoint_flush_bytes_max=1_000, checkpoint_flush_ms_max=5_000, unflushed_bytes_max=8_000
    )

    async def main(runtime: Runtime) -> None:
        async with kit.opened(runtime, "/data", config=config) as directory:
            slow = await directory.open_log("slow-0", FAST, topic_id=TOPIC)
            fast = await directory.open_log("fast-0", FAST, topic_id=TopicId(b"f" * 16))
            for second in range(12):
                await kit.append(directory, fast, batch(1, size=900), flush=False)
                await kit.append(directory, slow, batch(1, size=50), flush=False)
                await asyncio.sleep(1.5)
                assert slow.recovery_point == second + 1, "a checkpoint follows within a second"
                assert fast.log_end_offset - fast.recovery_point <= 5, "for at most 5 seconds"
                if second == 2:
                    assert fast.recovery_point == 0, "more than 1,000 bytes of both"
            await asyncio.sleep(5)
            assert fast.recovery_point == 12, "also without a further append"
            await kit.append(directory, fast, batch(1, size=2_000), flush=False)
            await directory.checkpoints.checkpoint()
            assert fast.recovery_point == 13, "a checkpoint on demand flushes all"
            await kit.append(directory, fast, batch(1, size=9_000), flush=False)
            await asyncio.sleep(1.5)
            assert fast.recovery_point == 14, "more than the recovery may check after a crash"

    simulation.run(main)


def test_deleted_log_leaves_the_queue_of_flushes(kit: Kit, batch: MakeBatch) -> None:
    config = DirectoryConfig(checkpoint_flush_bytes_max=0, checkpoint_flush_ms_max=1_000_000)

    async def main(runtime: Runtime) -> None:
        async with kit.opened(runtime, "/data", config=config) as directory:
            gone = await directory.open_log("gone-0", FAST, topic_id=TOPIC)
            await kit.append(directory, gone, batch(1), flush=False)
            await asyncio.sleep(3)
            assert gone.recovery_point == 0
            await directory.folders.delete_log(gone)
            again = await directory.open_log("gone-0", FAST, topic_id=TopicId(b"u" * 16))
            await kit.append(directory, again, batch(2), flush=False)
            await asyncio.sleep(3)
            await directory.checkpoints.checkpoint()
            stored = read_file(runtime.files, "/data/recovery-point-offset-checkpoint")
            assert stored == b"0\n1\ngone 0 2\n"

    simulation.run(main)
