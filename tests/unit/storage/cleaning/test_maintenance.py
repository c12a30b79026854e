"""Retention, compaction and delayed unlinks of a data directory on the simulated runtime."""

import asyncio
import errno
from dataclasses import replace
from typing import Any

import pytest

from quorumlog.records.batch import parse_header
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.record import Record
from quorumlog.records.validate import ValidationMode
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld
from quorumlog.storage import AppendOrigin, Log
from quorumlog.storage.compaction import seal
from quorumlog.storage.log_to_clean import LogToClean
from quorumlog.storage.shell.log_cleaner import StalePlan
from quorumlog.storage.shell.maintenance import ClosedLog
from quorumlog.storage.small_files import write_file

from .maintained_directory import (
    COMPACT,
    CONFIG,
    DATA,
    INTERVAL_MS,
    SMALL,
    TOPIC,
    fill,
    opened,
    run,
    until,
    values,
)


def names(runtime: Runtime, ending: str, log: str = "t-0") -> list[str]:
    return [name for name in runtime.files.names(f"{DATA}/{log}") if name.endswith(ending)]


# --- retention ---------------------------------------------------------------------------------


def test_retention_deletes_old_segments_and_empties_an_idle_log() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            config = replace(SMALL, retention_ms=60_000, file_delete_delay_ms=5_000)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 8, age_ms=120_000)
            await fill(runtime, directory, log, 2)
            await until(lambda: log.log_start_offset > 0)
            assert (await values(directory, log))[9] == b"v1"
            assert names(runtime, ".deleted"), "files stay until file.delete.delay.ms has passed"
            await until(lambda: not names(runtime, ".deleted"))
            await until(lambda: log.log_start_offset == 10, within_ms=90_000)
            assert log.size_bytes == 0
            assert log.segment_bases == [10]
            await fill(runtime, directory, log, 1)
            assert await values(directory, log) == {10: b"v0"}
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            assert (log.log_start_offset, log.log_end_offset) == (10, 11)

    run(main)


def test_retention_bytes_can_change_while_the_log_is_open() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
            await fill(runtime, directory, log, 20)
            await asyncio.sleep(5 * INTERVAL_MS / 1000)
            assert log.log_start_offset == 0, "no limit is set"
            directory.configure(log, replace(SMALL, retention_bytes=900))
            await until(lambda: log.size_bytes < 1_200)
            assert log.size_bytes >= 900

    run(main)


def test_retention_deletes_nothing_above_the_high_watermark() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            config = replace(SMALL, retention_ms=0, retention_bytes=0)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 12, age_ms=10_000, commit=False)
            base = log.segment_bases[2]
            log.note_high_watermark(base + 1)
            await until(lambda: log.log_start_offset == base)
            await asyncio.sleep(5 * INTERVAL_MS / 1000)
            assert log.log_start_offset == base

    run(main)


def test_deleted_records_free_their_space_under_any_policy() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            config = replace(COMPACT, min_cleanable_dirty_ratio=1.0)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 9, keys=100)
            await directory.truncation.delete_records(log, log.segment_bases[2])
            await until(lambda: log.segment_bases[0] == log.log_start_offset)
            assert len(await values(directory, log)) == 9 - log.log_start_offset

    run(main)


def test_idle_log_is_opened_only_when_a_segment_expires() -> None:
    async def main(runtime: Runtime) -> None:
        config = replace(SMALL, retention_ms=60_000)
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 6)
        async with opened(runtime) as directory:
            logs: list[Log] = []

            async def open_it() -> None:
                log = await directory.open_log("t-0", config, topic_id=TOPIC)
                logs.append(log)
                log.note_high_watermark(log.log_end_offset)

            closed = ClosedLog(name="t-0", config=config, open=open_it)
            never = ClosedLog(name="never-0", config=config, open=open_it)
            directory.maintenance.closed_logs = lambda: [never] if logs else [never, closed]
            await asyncio.sleep(30)
            assert logs == []
            await until(lambda: bool(logs) and logs[0].log_start_offset == 6, within_ms=90_000)
            assert logs[0].size_bytes == 0

    run(main)


def test_future_timestamp_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            config = replace(SMALL, retention_ms=1_000, timestamp_after_max_ms=2**62)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 6, age_ms=-(10**9))
            await asyncio.sleep(10 * INTERVAL_MS / 1000)
            assert log.log_start_offset == 0

    run(main)
    assert sum("storage.future_timestamp" in line for line in caplog.messages) == 1


# --- compaction --------------------------------------------------------------------------------


def test_dirty_log_is_compacted_and_checkpointed() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", COMPACT, topic_id=TOPIC)
            await fill(runtime, directory, log, 24)
            before = await values(directory, log)
            active = log.segment_bases[-1]
            await until(lambda: log.size_bytes < 500)
            after = await values(directory, log)
            assert set(after) == {active - 2, active - 1, *range(active, 24)}
            assert all(before[offset] == value for offset, value in after.items())
            assert not names(runtime, ".cleaned")
        stored = runtime.files.open_readonly(f"{DATA}/cleaner-offset-checkpoint").read(0, 100)
        assert f"t 0 {active}".encode() in stored
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
            assert await values(directory, log) == after, "the gaps stay valid under any policy"
            assert names(runtime, ".deleted") == []

    run(main)


def test_undecompressible_batch_does_not_prevent_compaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A producer can store such a batch where only headers are validated."""

    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            config = replace(COMPACT, record_validation=ValidationMode.HEADER)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            record = Record(0, runtime.clock.wall_ms(), b"k0", b"v")
            header = parse_header(encode_batch([record], codec=Codec.ZSTD))
            await directory.append(
                log,
                seal(header, b"no records"),
                leader_epoch=0,
                origin=AppendOrigin.CLIENT,
                flush=True,
            )
            await fill(runtime, directory, log, 24)
            await until(lambda: log.size_bytes < 600)
            taken = log.read(0, max_bytes=300)
            assert taken is not None
            assert parse_header(await directory.reader.read(taken)).last_offset == 0
        assert "storage.not_compacted log=t-0 batches=1 reason=the batch at offset 0" in caplog.text
        assert "storage.set_aside" not in caplog.text

    run(main)


def test_compact_and_delete_policy_applies_both() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            config = replace(COMPACT, delete_enabled=True, retention_ms=5_000)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 12)
            await until(lambda: log.size_bytes < 500)
            assert log.log_start_offset == 0
            await until(lambda: log.log_start_offset == 12)

    run(main)


def test_idle_log_is_compacted_after_max_compaction_lag() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            config = replace(
                COMPACT,
                min_cleanable_dirty_ratio=1.0,
                max_compaction_lag_ms=4_000,
                segment_ms=10**9,
            )
            log = await directory.open_log(
                "t-0", replace(config, segment_bytes=10_000), topic_id=TOPIC
            )
            await fill(runtime, directory, log, 12)
            assert log.segment_bases == [0]
            await until(lambda: log.segment_bases[-1] == 12)
            await until(lambda: log.size_bytes < 300)
            assert await values(directory, log) == {10: b"v10", 11: b"v11"}

    run(main)


def test_log_with_a_failed_compaction_is_skipped_and_retention_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimWorld(0) as world:
        node = world.node("n")

        async def main(runtime: Runtime) -> None:
            async with opened(runtime) as directory:
                config = replace(COMPACT, delete_enabled=True, retention_ms=30_000)
                log = await directory.open_log("t-0", config, topic_id=TOPIC)
                await fill(runtime, directory, log, 12)
                node.device.fail("write", errno.EIO, path_part=".cleaned", times=1_000)
                await until(lambda: "storage.set_aside" in caplog.text)
                assert names(runtime, ".cleaned") == []
                assert len(await values(directory, log)) == 12
                await fill(runtime, directory, log, 1)
                assert log.failure is None
                await until(lambda: log.log_start_offset == 13, within_ms=60_000)
                assert log.size_bytes == 0

        node.spawn(main)
        world.run_until(lambda: not node.alive, virtual_ms=600_000)
        assert node.exit_error is None, node.exit_error


def test_full_disk_delays_compaction_but_not_retention(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimWorld(0) as world:
        node = world.node("n")

        async def main(runtime: Runtime) -> None:
            async with opened(runtime) as directory:
                log = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
                keyed = await directory.open_log("k-0", SMALL, topic_id=TOPIC)
                await fill(runtime, directory, log, 12)
                await fill(runtime, directory, keyed, 24)
                await directory.checkpoints.checkpoint()
                node.device.disk.capacity_bytes = 1
                directory.configure(log, replace(SMALL, retention_ms=5_000))
                directory.configure(keyed, COMPACT)
                await until(lambda: log.segment_bases[0] > 8)
                assert (log.failure, keyed.failure) == (None, None)
                assert names(runtime, ".cleaned", "k-0") == []
                assert len(await values(directory, keyed)) == 24
                assert "what=compaction" in caplog.text
                node.device.disk.capacity_bytes = None
                await until(lambda: keyed.size_bytes < 500, within_ms=4 * 3_600_000)

        node.spawn(main)
        world.run_until(lambda: not node.alive, virtual_ms=24 * 3_600_000)
        assert node.exit_error is None, node.exit_error


@pytest.mark.parametrize("what", ["delete", "truncate", "close", "policy"])
def test_deletion_of_a_log_ends_its_compaction(what: str) -> None:
    """The throttle keeps the round running until then."""
    slow = replace(CONFIG, clean_bytes_per_second=100, clean_slice_bytes=200)

    async def main(runtime: Runtime) -> None:
        async with opened(runtime, slow) as directory:
            log = await directory.open_log("t-0", COMPACT, topic_id=TOPIC)
            await fill(runtime, directory, log, 40)
            cleaner = directory.maintenance._cleaner
            await until(lambda: cleaner.is_cleaning(log))
            await until(lambda: bool(names(runtime, ".cleaned")), within_ms=120_000)
            match what:
                case "delete":
                    await directory.folders.delete_log(log)
                    again = await directory.open_log("t-0", COMPACT, topic_id=TOPIC)
                    await fill(runtime, directory, again, 1)
                case "truncate":
                    await directory.truncation.truncate(log, 2)
                case "policy":
                    directory.configure(log, replace(COMPACT, compacted=False))
                case _:
                    return
            await until(lambda: not cleaner.is_cleaning(log), within_ms=60_000)
            assert names(runtime, ".cleaned") == []
            assert names(runtime, ".swap") == []

    async def whole(runtime: Runtime) -> None:
        await main(runtime)
        assert [*names(runtime, ".cleaned"), *names(runtime, ".swap")] == []

    run(whole)


def test_cleaner_throttle_limits_bytes_per_second() -> None:
    async def main(runtime: Runtime) -> None:
        slow = replace(CONFIG, clean_bytes_per_second=1_000, clean_slice_bytes=200)
        async with opened(runtime, slow) as directory:
            log = await directory.open_log("t-0", COMPACT, topic_id=TOPIC)
            await fill(runtime, directory, log, 40)
            size = log.size_bytes
            cleaner = directory.maintenance._cleaner
            await until(lambda: cleaner.is_cleaning(log))
            began = runtime.clock.now_ms()
            await until(lambda: not cleaner.is_cleaning(log), within_ms=120_000)
            took_ms = runtime.clock.now_ms() - began
            assert took_ms > 2 * (size - 300) * 0.9, "compaction reads every byte twice"

    run(main)


def test_timestamp_lookup_succeeds_during_swaps_and_deletions() -> None:
    async def main(runtime: Runtime) -> None:
        config = replace(COMPACT, delete_enabled=True, retention_bytes=1_500)
        async with opened(runtime, replace(CONFIG, retention_check_interval_ms=20)) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            for _ in range(30):
                await fill(runtime, directory, log, 4, keys=50)
                found = await directory.reader.offset_for_time(log, 0)
                assert found is not None
                assert found.offset >= 0
            assert log.segment_version > 10

    run(main)


def test_round_does_not_start_if_its_segments_were_truncated() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
            await fill(runtime, directory, log, 12, commit=False)
            dirt = LogToClean(
                end_offset=log.segment_bases[-1], dirty_bytes=log.size_bytes, is_due=True
            )
            directory.configure(log, replace(COMPACT, min_cleanable_dirty_ratio=1.0))
            await directory.truncation.truncate(log, 1)
            housekeeping = directory.maintenance
            with pytest.raises(StalePlan):
                await housekeeping._cleaner.clean(directory._queue_of(log), dirt)
            assert not housekeeping._cleaner.is_cleaning(log)

    run(main)


def test_unlinks_obey_their_rate_limit_except_at_close() -> None:
    async def main(runtime: Runtime) -> None:
        slow = replace(CONFIG, unlink_bytes_per_second=100)
        async with opened(runtime, slow) as directory:
            config = replace(SMALL, retention_bytes=0, file_delete_delay_ms=0)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 40)
            size = log.size_bytes
            await until(lambda: len(log.segment_bases) == 1)
            began = runtime.clock.now_ms()
            logs = len(names(runtime, ".log.deleted"))
            assert logs > 6
            await asyncio.sleep(size / 100 / 2)
            left = len(names(runtime, ".log.deleted"))
            assert logs * 0.3 < left < logs * 0.8, "half of the bytes after half of the time"
            await until(lambda: len(names(runtime, ".log.deleted")) < 3, within_ms=10**6)
            assert runtime.clock.now_ms() - began > 0.9 * (size - 600) * 1000 / 100
            await fill(runtime, directory, log, 40)
            await until(lambda: len(log.segment_bases) == 1)
            assert len(names(runtime, ".log.deleted")) > 6
        assert names(runtime, ".deleted") == []

    run(main)


def test_low_free_space_unlinks_deleted_segments_immediately() -> None:
    with SimWorld(0) as world:
        node = world.node("n")

        async def main(runtime: Runtime) -> None:
            config = replace(
                CONFIG,
                unlink_bytes_per_second=1,
                reserve_bytes=1_000,
                retention_check_interval_ms=2_000,
            )
            async with opened(runtime, config) as directory:
                kept = replace(SMALL, retention_bytes=0)
                log = await directory.open_log("t-0", kept, topic_id=TOPIC)
                await fill(runtime, directory, log, 12)
                await until(lambda: len(log.segment_bases) == 1)
                assert len(names(runtime, ".log.deleted")) > 2
                write_file(runtime.files, "/data/ballast", b"0" * 100_000)
                node.device.disk.capacity_bytes = 10**9
                used = 10**9 - runtime.files.free_bytes("/data")
                node.device.disk.capacity_bytes = used + 500
                directory.space.check()
                assert directory.space.is_low
                await until(lambda: not names(runtime, ".deleted"), within_ms=200)

        node.spawn(main)
        world.run_until(lambda: not node.alive, virtual_ms=24 * 3_600_000)
        assert node.exit_error is None, node.exit_error


@pytest.mark.plain
def test_log_that_grows_during_retention_delays_no_other_log() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            config = replace(SMALL, retention_bytes=0)
            busy = await directory.open_log("busy-0", SMALL, topic_id=TOPIC)
            other = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
            for log in (busy, other):
                await fill(runtime, directory, log, 12)
                directory.configure(log, config)
            exclusive = directory._writer.exclusive

            def feed(queue: Any, *rest: Any, **named: Any) -> asyncio.Future[None]:
                """Append as many bytes as are deleted, just before each deletion."""
                if queue.log is busy:
                    for _ in range(12):
                        record = Record(0, runtime.clock.wall_ms(), None, b"v" * 50, ())
                        append = directory.append_nowait(
                            busy,
                            encode_batch([record]),
                            leader_epoch=0,
                            origin=AppendOrigin.CLIENT,
                            flush=False,
                        )
                        if append.outcome() is None:
                            append.call_when_done(
                                lambda _: busy.note_high_watermark(busy.log_end_offset)
                            )
                    busy.note_high_watermark(busy.log_end_offset)
                return exclusive(queue, *rest, **named)

            directory._writer.exclusive = feed  # type: ignore[method-assign]
            await until(lambda: len(other.segment_bases) == 1)
            del directory._writer.exclusive
            assert len(busy.segment_bases) > 3

    run(main)
