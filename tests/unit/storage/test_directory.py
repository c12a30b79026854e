"""A data directory on both runtimes: identity, lock, appends, flushes and reads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import (
    DirectoryInUse,
    DirectoryMismatch,
    DirectoryNotFormatted,
    DirectoryUnusable,
    InvalidRecord,
    Overloaded,
    QuorumlogError,
)
from quorumlog.ids import ClusterId, DirectoryId, NodeId, TopicId
from quorumlog.records.codec import decode_all
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, LogConfig
from quorumlog.storage.shell import Appended, DataDirectory

Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
Run = Callable[[Main], Any]
MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit

CLUSTER, ONE, TOPIC = ClusterId("c" * 22), NodeId(1), TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)


# --- identity and lock -------------------------------------------------------------------------


def test_a_directory_is_formatted_once_for_a_cluster_and_a_node(kit: Kit, run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        meta = await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        assert (meta.cluster_id, meta.node_id, len(meta.directory_id)) == (CLUSTER, ONE, 16)
        again = await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        assert again == meta, "the directory id is unchanged"
        with pytest.raises(DirectoryMismatch, match="node 1, not 2"):
            await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=NodeId(2))
        with pytest.raises(DirectoryMismatch, match="cluster"):
            await DataDirectory.format(runtime, path, cluster_id=ClusterId("other"), node_id=ONE)
        async with kit.opened(runtime, path) as directory:
            assert directory.meta == meta

    run(main)


def test_a_directory_id_may_be_given(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        given = DirectoryId(b"d" * 16)
        meta = await DataDirectory.format(
            runtime, path, cluster_id=CLUSTER, node_id=ONE, directory_id=given
        )
        assert meta.directory_id == given

    run(main)


def test_an_unformatted_directory_is_not_opened(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with runtime.tasks.scope("t") as scope:
            with pytest.raises(DirectoryNotFormatted):
                await DataDirectory.open(runtime, scope, path)

    run(main)


def test_logs_without_meta_properties_are_not_adopted(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        runtime.files.make_folder(f"{path}/orders-0")
        with pytest.raises(DirectoryMismatch, match="orders-0"):
            await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)

    run(main)


def test_a_directory_of_another_cluster_or_node_is_not_opened(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        async with runtime.tasks.scope("t") as scope:
            with pytest.raises(DirectoryMismatch):
                await DataDirectory.open(runtime, scope, path, cluster_id=ClusterId("other"))
            with pytest.raises(DirectoryMismatch):
                await DataDirectory.open(runtime, scope, path, node_id=NodeId(2))
            directory = await DataDirectory.open(
                runtime, scope, path, cluster_id=CLUSTER, node_id=ONE
            )  # the rejected ones released the lock
            await directory.close()

    run(main)


def test_the_lock_refuses_a_second_owner(kit: Kit, run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path), runtime.tasks.scope("t") as scope:
            with pytest.raises(DirectoryInUse):
                await DataDirectory.open(runtime, scope, path)
            with pytest.raises(DirectoryInUse):
                await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
        async with kit.opened(runtime, path):
            pass  # close() released the lock

    run(main)


def test_a_path_that_cannot_be_a_folder_is_unusable(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        runtime.files.open(path, create=True).close()
        with pytest.raises(DirectoryUnusable, match=path):
            await DataDirectory.format(runtime, f"{path}/below", cluster_id=CLUSTER, node_id=ONE)

    run(main)


# --- append and read ---------------------------------------------------------------------------


def test_the_order_of_calls_is_the_order_in_the_log(kit: Kit, run: Run, batch: MakeBatch) -> None:
    """Small and large, compressed and uncompressed batches take different paths to the file."""
    kinds = [
        {"size": 10},
        {"size": 90_000},
        {"size": 200_000, "codec": Codec.ZSTD},
        {"size": 70_000, "codec": Codec.LZ4},
        {"size": 20},
    ]

    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            for name, config in (("a-0", FAST), ("b-0", FSYNC)):
                log = await directory.open_log(name, config, topic_id=TOPIC)
                contents = [
                    batch(1 + i % 3, value=b"%d" % i, **kinds[i % len(kinds)]) for i in range(30)
                ]
                futures = [
                    directory.append_nowait(
                        log, content, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=i % 2 == 0
                    )
                    for i, content in enumerate(contents)
                ]
                answers = await asyncio.gather(*futures)
                offset = 0
                for answer, content in zip(answers, contents, strict=True):
                    assert answer.base_offset == offset
                    offset += len(decode_all(content))
                    assert answer.next_offset == offset
                assert await kit.values(directory, log) == [
                    record.value for content in contents for record in decode_all(content)
                ]

    run(main)


def test_flushed_appends_return_after_the_flush(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            for config in (FSYNC, FAST):
                log = await directory.open_log(f"{config.flush_policy}-0", config, topic_id=None)
                for _ in range(3):
                    appended = await kit.append(directory, log, batch(2), flush=True)
                    assert log.flushed_end_offset >= appended.next_offset

    run(main)


def test_a_replicated_append_returns_before_any_flush(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await kit.append(directory, log, batch(2), flush=False)
            assert (log.log_end_offset, log.flushed_end_offset) == (2, 0)
            await directory.flush(log)
            assert log.flushed_end_offset == 2

    run(main)


def test_fsync_log_is_flushed_without_a_request(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            flushed = asyncio.Event()

            def moved() -> None:
                if log.flushed_end_offset == 2:
                    flushed.set()

            directory.on_appended(log, moved)
            await kit.append(directory, log, batch(2), flush=False)
            await flushed.wait()

    run(main)


def test_progress_callback_reports_the_log_end_and_the_flushed_end(
    kit: Kit, run: Run, batch: MakeBatch
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            seen: list[tuple[int, int]] = []
            directory.on_appended(
                log, lambda: seen.append((log.log_end_offset, log.flushed_end_offset))
            )
            await kit.append(directory, log, batch(2))
            assert seen == [(2, 0), (2, 2)]

    run(main)


def test_invalid_append_fails_only_itself(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            bad = bytearray(batch(1, size=100_000, codec=Codec.GZIP))
            bad[-1] ^= 1
            contents = [batch(1), b"", bytes(bad), batch(2)]
            answers = await asyncio.gather(
                *[kit.append(directory, log, content) for content in contents],
                return_exceptions=True,
            )
            first, empty, torn, last = answers
            assert isinstance(empty, InvalidRecord)
            assert isinstance(torn, QuorumlogError)
            assert isinstance(first, Appended)
            assert isinstance(last, Appended)
            assert (first.base_offset, last.base_offset, log.log_end_offset) == (0, 1, 3)

    run(main)


def test_cancelled_caller_does_not_cancel_its_append(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(1, value=b"a"))
            async with runtime.tasks.scope("callers") as scope:
                tasks = [
                    scope.spawn(kit.append(directory, log, batch(1, value=v, size=9_000)), name="c")
                    for v in (b"b", b"c", b"d")
                ]
                await asyncio.sleep(0)
                tasks[1].cancel()
            await kit.append(directory, log, batch(1, value=b"e"))
            found = [value[:1] for value in await kit.values(directory, log) if value is not None]
            assert found == [b"a", b"b", b"c", b"d", b"e"]

    run(main)


def test_full_append_queue_rejects_with_overloaded(kit: Kit, run: Run, batch: MakeBatch) -> None:
    config = DirectoryConfig(queue_bytes_max=300, inline_write_bytes_max=10)

    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=config) as directory:
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            accepted = [
                directory.append_nowait(
                    log, batch(1), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
                )
                for _ in range(300 // len(batch(1)))
            ]
            with pytest.raises(Overloaded):
                await kit.append(directory, log, batch(1))
            await asyncio.gather(*accepted)
            assert log.log_end_offset == len(accepted)
            await kit.append(
                directory, log, batch(5, size=100)
            )  # alone in the queue, it may exceed the bound

    run(main)


def test_offsets_by_time_are_found_on_the_read_lane(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        config = LogConfig(segment_bytes=1_000, index_interval_bytes=100)
        async with kit.opened(runtime, path) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            for number in range(60):
                await kit.append(
                    directory, log, batch(1, timestamp=10 * number), epoch=2, flush=False
                )
            found = await directory.reader.offset_for_time(log, 295)
            assert found is not None
            assert (found.offset, found.timestamp, found.leader_epoch) == (30, 300, 2)
            assert await directory.reader.offset_for_time(log, 295, end_offset=30) is None
            assert await directory.reader.offset_for_time(log, 591) is None
            largest = await directory.reader.offset_for_time(log, None)
            assert largest is not None
            assert largest.offset == 59

    run(main)
