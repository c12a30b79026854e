"""Consumer groups hold unread segments within the limits of their leases and bytes."""

import asyncio
from dataclasses import replace

from quorumlog.errors import CoordinatorNotAvailable
from quorumlog.runtime import Runtime
from quorumlog.settings.query_groups import HOLD_MS_MAX, Hold
from quorumlog.storage import Log, LogConfig
from quorumlog.storage.shell import DataDirectory

from .maintained_directory import INTERVAL_MS, SMALL, TOPIC, fill, opened, run, until

OLD = replace(SMALL, retention_ms=0)
LONG = 1 << 40


class CommittedGroup:
    """A group with a committed offset; its coordinator can be silent or slow."""

    def __init__(self) -> None:
        self.offset: int | None = 0
        self.is_silent = False
        self.answers_in_s = 0.01
        self.asked: list[tuple[str, str]] = []

    async def committed(self, log: str, group: str) -> int | None:
        self.asked.append((log, group))
        await asyncio.sleep(self.answers_in_s)
        if self.is_silent:
            raise CoordinatorNotAvailable("the partition has no leader")
        return self.offset


def held(runtime: Runtime, *, bytes_max: int = LONG, for_ms: int = HOLD_MS_MAX) -> LogConfig:
    hold = Hold("g", runtime.clock.wall_ms() + for_ms, bytes_max)
    return replace(OLD, holds=(hold,))


async def check_log_start_stays(log: Log, offset: int) -> None:
    """Let several retention checks pass. The log start offset must not change."""
    await asyncio.sleep(5 * INTERVAL_MS / 1000)
    assert log.log_start_offset == offset


async def old_log(
    runtime: Runtime, directory: DataDirectory, reader: CommittedGroup, config: LogConfig
) -> Log:
    """Return a log of twelve records that all exceed the retention time."""
    directory.maintenance.committed = reader.committed
    log = await directory.open_log("t-0", config, topic_id=TOPIC)
    await fill(runtime, directory, log, 12, age_ms=10_000)
    return log


def test_retention_deletes_only_segments_that_the_group_has_read() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            reader = CommittedGroup()
            log = await old_log(runtime, directory, reader, held(runtime))
            await check_log_start_stays(log, 0)
            third = log.segment_bases[2]
            reader.offset = third + 1
            await until(lambda: log.log_start_offset == third)
            await check_log_start_stays(log, third)
            reader.offset = 12
            await until(lambda: log.log_start_offset == 12)
            assert set(reader.asked) == {("t-0", "g")}

    run(main)


def test_unread_segments_are_held_if_the_committed_offset_is_unavailable() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            reader = CommittedGroup()
            reader.is_silent = True
            log = await old_log(runtime, directory, reader, held(runtime))
            await check_log_start_stays(log, 0)
            reader.is_silent, reader.offset = False, None  # nothing is committed
            await check_log_start_stays(log, 0)
            reader.offset = 12
            await until(lambda: log.log_start_offset == 12)

    run(main)


def test_hold_ends_when_its_lease_expires_or_is_removed() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            lease_ms = 20 * INTERVAL_MS
            log = await old_log(
                runtime, directory, CommittedGroup(), held(runtime, for_ms=lease_ms)
            )
            await check_log_start_stays(log, 0)
            await until(lambda: log.log_start_offset == 12, within_ms=2 * lease_ms)
        async with opened(runtime) as directory:
            log = await directory.open_log("u-0", held(runtime), topic_id=TOPIC)
            await fill(runtime, directory, log, 6, age_ms=10_000)
            await check_log_start_stays(log, 0)
            directory.configure(log, OLD)
            await until(lambda: log.log_start_offset == 6)

    run(main)


def test_hold_releases_segments_above_its_byte_limit() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            log = await old_log(runtime, directory, CommittedGroup(), held(runtime, bytes_max=500))
            await until(lambda: log.size_bytes <= 500)
            start = log.log_start_offset
            assert 0 < start < 12
            await check_log_start_stays(log, start)

    run(main)


def test_stop_does_not_wait_for_silent_coordinators() -> None:
    """Each silent coordinator delays retention by two seconds, and a stop by no more."""

    async def main(runtime: Runtime) -> None:
        reader = CommittedGroup()
        reader.answers_in_s = 2
        end_ms = runtime.clock.wall_ms() + HOLD_MS_MAX
        holds = tuple(Hold(f"g{number}", end_ms, LONG) for number in range(5))
        async with opened(runtime) as directory:
            await old_log(runtime, directory, reader, replace(OLD, holds=holds))
            await until(lambda: bool(reader.asked))
        assert len(reader.asked) == 1

    run(main)


def test_offsets_are_not_fetched_without_expired_segments() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            reader = CommittedGroup()
            config = replace(held(runtime), retention_ms=-1)
            log = await old_log(runtime, directory, reader, config)
            await check_log_start_stays(log, 0)
            assert reader.asked == []

    run(main)
