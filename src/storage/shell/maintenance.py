"""Housekeeping of one data directory: retention, compaction, unlinking.

Two tasks, each with one log at a time. Every `retention_check_interval_ms` the first one checks
every log: open ones by their state, closed ones by names and sizes in the lane `clean:<dir>`. A
closed log with deletable segments is opened, one after the other. Removals are exclusive work of
their log, a few segments each. Renamed files are unlinked in the lane, one file per job, after
`file.delete.delay.ms` and within the throttle; at once when space is short and at the close. At the
same interval, and after each check, the second task compacts the dirtiest log, then the next one,
until none is due. Neither task works on the log of the other.

After a failure a log is skipped for a while, longer each time, with a warning in the log
output; a failure never stops the node. Removal needs no space, but compaction does: it waits while
free space is low.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...errors import DiskFull, QuorumlogError
from ...runtime.ports import Clock, Runtime, Scope
from ...runtime.rate_limit import Throttle
from ..config import DirectoryConfig, LogConfig
from ..idle_log_check import IdleLogCheck, check_idle_log, read_times
from ..layout import LOG_SUFFIX, join, segment_file
from ..log import Log
from ..log_to_clean import LogToClean, find_log_to_clean
from ..retention import LogHold, RetentionDecision, deletable_segments
from ..segment import SegmentAge
from ..segment_files import REMOVED_AT_ONCE, Removal, perform_removal, unlink
from ..small_files import OUT_OF_SPACE
from .append_queue import AppendQueue
from .checkpointer import Checkpointer
from .free_space import FreeSpace
from .log_cleaner import LogCleaner, StalePlan
from .writer import LogWriter

_LOG: Final = logging.getLogger("quorumlog.storage")

LOGS_AT_ONCE: Final = 64
"""Open logs checked before other tasks run on the loop: under a millisecond."""

SET_ASIDE_MS_MIN: Final = 60_000
SET_ASIDE_MS_MAX: Final = 3_600_000
"""Time for which a log is skipped after a failure, doubled each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLog:
    """A log of this node that is not open."""

    name: str
    config: LogConfig
    open: Callable[[], Awaitable[object]]  # raises QuorumlogError


@dataclass(slots=True, kw_only=True)
class _SetAside:
    until_ms: int  # monotonic
    times: int


class FailureBackoff:
    """Runs maintenance of open logs; after a failure it skips that work of the log for a while."""

    def __init__(self, clock: Clock, queues: Mapping[str, AppendQueue]) -> None:
        self.is_stopping = False
        self._clock = clock
        self._queues = queues
        self._aside: dict[tuple[str, str], _SetAside] = {}  # by log name and failed work

    async def run(
        self, log: Log, what: str, work: Callable[[], Awaitable[None]], *, cures: bool = True
    ) -> None:
        """Run work on a log, unless it is skipped because of an earlier failure; skip it after a
        failure.

        `cures`: a success resets the count of failures.
        """
        is_gone = log.failure is not None or log.name not in self._queues
        if self.is_stopping or is_gone or self.is_skipped(log.name, what):
            return
        try:
            await work()
        except StalePlan:
            return
        except (OSError, QuorumlogError) as error:
            if log.failure is None:  # otherwise it was reported, and the log accepts no work
                self.skip(log.name, what, error)
        else:
            if cures:
                self._aside.pop((log.name, what), None)

    def is_skipped(self, name: str, what: str) -> bool:
        """Return True if this work on a log is skipped now."""
        aside = self._aside.get((name, what))
        return aside is not None and self._clock.now_ms() < aside.until_ms

    def skip(self, name: str, what: str, error: Exception) -> None:
        """Skip this work on a log for a while, longer after each failure."""
        aside = self._aside.get((name, what))
        times = 0 if aside is None else aside.times
        wait_ms = min(SET_ASIDE_MS_MIN << min(times, 10), SET_ASIDE_MS_MAX)
        until_ms = self._clock.now_ms() + wait_ms
        self._aside[name, what] = _SetAside(until_ms=until_ms, times=times + 1)
        _LOG.warning(
            "storage.set_aside log=%s what=%s for_ms=%d error=%s", name, what, wait_ms, error
        )

    def forget_old(self, now_ms: int) -> None:
        """Forget the failures of logs that were not tried again for long."""
        forget_ms = now_ms - SET_ASIDE_MS_MAX
        self._aside = {key: a for key, a in self._aside.items() if a.until_ms > forget_ms}


class FileUnlinker:
    """Unlinks renamed files in the lane: after a delay and within a throttle, or at once when space
    is short."""

    def __init__(
        self, runtime: Runtime, *, lane: str, config: DirectoryConfig, space: FreeSpace
    ) -> None:
        self._runtime = runtime
        self._lane = lane
        self._space = space
        # path -> due time (monotonic ms), in the order of renames
        self._unlinks: dict[str, int] = {}
        self._throttle = Throttle(config.unlink_bytes_per_second)
        self._from_ms = 0  # monotonic: the bytes unlinked so far are paid for then

    @property
    def next_ms(self) -> int | None:
        """Monotonic time of the next unlink, None without one."""
        return max(min(self._unlinks.values()), self._from_ms) if self._unlinks else None

    def add(self, log: Log, paths: list[str]) -> None:
        """Schedule renamed files of a log to be unlinked after its delay."""
        until_ms = self._runtime.clock.now_ms() + log.config.file_delete_delay_ms
        for path in paths:
            self._unlinks[path] = until_ms

    async def unlink_due(self, *, everything: bool = False) -> None:
        """Unlink the files that are due, within the throttle; at once when space is short."""
        now_ms = self._runtime.clock.now_ms()
        due = [
            path
            for path, at_ms in self._unlinks.items()
            if everything or at_ms <= now_ms or self._space.is_low
        ]
        for path in due:
            now_ms = self._runtime.clock.now_ms()
            if not everything and not self._space.is_low and now_ms < self._from_ms:
                return
            self._unlinks.pop(path, None)
            try:
                size = await self._runtime.tasks.offload(
                    self._lane, partial(unlink, self._runtime.files, path)
                )
            except OSError as error:  # the next opening of the log removes it
                _LOG.warning("storage.unlink_failed path=%s error=%s", path, error)
            else:
                now_ms = self._runtime.clock.now_ms()
                self._from_ms = now_ms + self._throttle.spend(size, now_ms)


class LogRetention:
    """Deletes the deletable segments of logs, one log at a time."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        lane: str,
        backoff: FailureBackoff,
        queues: Mapping[str, AppendQueue],
        writer: LogWriter,
        checkpoints: Checkpointer,
        cleaner: LogCleaner,
        unlinker: FileUnlinker,
        committed: Callable[[str, str], Awaitable[int | None]],
    ) -> None:
        self._runtime = runtime
        self._lane = lane
        self._backoff = backoff
        self._queues = queues
        self._writer = writer
        self._checkpoints = checkpoints
        self._cleaner = cleaner
        self._unlinker = unlinker
        self._committed = committed
        # log name -> segment of the last warning about a future timestamp
        self._warned: dict[str, int] = {}
        self._retained: Log | None = None  # log with a removal of segments in progress
        self._is_let_go = asyncio.Event()  # set when there is none any more

    async def retain(self, queue: AppendQueue) -> None:
        """Delete the deletable segments of a log, while it is not being compacted."""
        self._retained = queue.log
        try:
            await self._remove_oldest(queue)
        finally:
            self._retained = None
            self._is_let_go.set()

    async def until_let_go(self, log: Log) -> None:
        """Wait until no segment of a log is being removed."""
        while self._retained is log:
            self._is_let_go.clear()
            await self._is_let_go.wait()

    async def _remove_oldest(self, queue: AppendQueue) -> None:
        """Delete the deletable segments below the current log end. A log that grows as fast as it
        shrinks so does not block the others."""
        log = queue.log
        end_offset = log.log_end_offset
        while not self._backoff.is_stopping and not self._cleaner.is_cleaning(log):
            if log.log_start_offset >= end_offset > 0:
                return
            verdict = await self._verdict(log)
            if verdict.is_from_future:
                self._warn_of_future(log, verdict.count)
            count = verdict.count
            if verdict.rolls and not await _roll(self._runtime.clock, self._writer, queue):
                count -= 1
            if count > 0 and log.producers.has_unstored:
                # otherwise producers with removed batches only are lost
                await self._writer.flush(queue)
            if count <= 0 or not await self._remove(queue, count):
                return
            _LOG.info(
                "storage.removed log=%s segments=%d start_offset=%d reason=%s",
                log.name,
                count,
                log.log_start_offset,
                ",".join(sorted(set(verdict.reasons[:count]))),
            )

    async def _verdict(self, log: Log) -> RetentionDecision:
        """Decide which segments are deletable, after loading the timestamps needed, and the
        committed offsets of groups that hold records."""
        config, held = log.config, None
        while True:
            verdict = deletable_segments(
                log.cleanup.ages(),
                log.config,
                count=len(log.segment_bases),
                size_bytes=log.size_bytes,
                now_ms=self._runtime.clock.wall_ms(),
                limit_offset=_limit(log),
                log_start_offset=log.log_start_offset,
                most=REMOVED_AT_ONCE,
                held=held or (),
            )
            if verdict.unknown is not None:
                await _load_timestamps(
                    self._runtime, self._lane, log, log.cleanup.age(verdict.unknown)
                )
            elif verdict.count and log.config.holds and (held is None or config is not log.config):
                config = log.config
                held = await self._held(log)
            else:
                return verdict

    async def _held(self, log: Log) -> list[LogHold]:
        """Return the holds of a log with committed offsets. If an offset is unknown, everything is
        held: deletion cannot be undone."""
        now_ms, held = self._runtime.clock.wall_ms(), []
        for hold in log.config.holds:
            if hold.counts(now_ms):
                offset = None
                with suppress(QuorumlogError):
                    offset = await self._committed(log.name, hold.group)
                held.append(LogHold(offset or 0, hold.bytes_max))
                if self._backoff.is_stopping:
                    raise StalePlan
        if log.failure is not None or log.name not in self._queues:
            raise StalePlan
        return held

    def _warn_of_future(self, log: Log, place: int) -> None:
        segment = log.cleanup.age(place)
        if self._warned.get(log.name) != segment.base_offset:
            self._warned[log.name] = segment.base_offset
            _LOG.warning(
                "storage.future_timestamp log=%s segment=%d timestamp_ms=%s",
                log.name,
                segment.base_offset,
                segment.max_timestamp,
            )

    async def _remove(self, queue: AppendQueue, count: int) -> bool:
        """Remove a log's oldest segments, if still deletable in its turn; return True if
        removed."""
        log = queue.log
        if count < len(log.segment_bases) and log.segment_bases[count] == log.log_end_offset:
            await self._store_epochs(log)
        begun: list[Removal] = []

        def begin() -> Callable[[], list[str]] | None:
            bases = log.segment_bases
            if log.failure is not None or count >= len(bases) or bases[count] > _limit(log):
                return None
            begun.append(log.cleanup.begin_remove(count))
            return partial(perform_removal, self._runtime.files, begun[0])

        def end(renamed: list[str] | None) -> None:
            if renamed is not None:
                log.cleanup.complete_remove(begun[0])
                self._unlinker.add(log, renamed)
                self._writer.dirty[queue] = None  # its log start must be stored
                self._writer.dirtied.set()

        await self._writer.exclusive(queue, begin, end, repeats=True)
        return bool(begun)

    async def _store_epochs(self, log: Log) -> None:
        """Store the leader epochs before the last batch is removed, if there is space."""
        try:
            await self._checkpoints.store([log])
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise


@dataclass(slots=True, kw_only=True)
class _Looked:
    config: LogConfig
    due_ms: int | None  # UTC; None: not before its config changes


class ClosedLogRetention:
    """Finds the closed logs with deletable segments, opens them and deletes the segments."""

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        lane: str,
        backoff: FailureBackoff,
        queues: Mapping[str, AppendQueue],
        checkpoints: Checkpointer,
        retention: LogRetention,
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._lane = lane
        self._backoff = backoff
        self._queues = queues
        self._checkpoints = checkpoints
        self._retention = retention
        self._since_ms = runtime.clock.wall_ms()
        self._looked: dict[str, _Looked] = {}

    async def check(self, closed_logs: Iterable[ClosedLog]) -> None:
        """Check closed logs one after the other."""
        there: dict[str, _Looked] = {}
        for number, closed in enumerate(closed_logs):
            if number % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._backoff.is_stopping:
                return
            looked = self._looked.get(closed.name)
            wall_ms = self._runtime.clock.wall_ms()
            is_due = looked is None or looked.config != closed.config or _is_past(looked, wall_ms)
            if is_due and closed.name not in self._queues:
                looked = await self._look_at(closed, wall_ms)
            if looked is not None:
                there[closed.name] = looked
        self._looked = there

    async def _look_at(self, closed: ClosedLog, wall_ms: int) -> _Looked | None:
        if self._backoff.is_skipped(closed.name, "look"):
            return None
        stored = self._checkpoints.stored
        job = partial(
            check_idle_log,
            self._runtime.files,
            join(self._path, closed.name),
            closed.config,
            now_ms=wall_ms,
            log_start_offset=stored.log_starts.get(closed.name, 0),
            cleaned_to=stored.cleaner_offsets.get(closed.name, 0),
            since_ms=self._since_ms,
        )
        try:
            found: IdleLogCheck = await self._runtime.tasks.offload(self._lane, job)
            if not found.is_due:
                return _Looked(config=closed.config, due_ms=found.due_ms)
            await closed.open()
        except FileNotFoundError:
            return None  # deleted in between
        except (OSError, QuorumlogError) as error:
            self._backoff.skip(closed.name, "look", error)
            return None
        queue = self._queues.get(closed.name)
        if queue is not None:
            await self._backoff.run(queue.log, "retention", partial(self._retention.retain, queue))
        return None


class LogCompaction:
    """Compacts the dirtiest log of one directory, then the next one."""

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        *,
        lane: str,
        backoff: FailureBackoff,
        queues: Mapping[str, AppendQueue],
        writer: LogWriter,
        checkpoints: Checkpointer,
        cleaner: LogCleaner,
        retention: LogRetention,
        space: FreeSpace,
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._lane = lane
        self._backoff = backoff
        self._queues = queues
        self._writer = writer
        self._checkpoints = checkpoints
        self._cleaner = cleaner
        self._retention = retention
        self._space = space

    async def dirtiest(self) -> tuple[AppendQueue | None, LogToClean]:
        """Return the log to compact next, if any, and its cleanable part."""
        best: AppendQueue | None = None
        most = LogToClean()
        for number, queue in enumerate(list(self._queues.values())):
            if number % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not queue.log.config.compacted:
                continue
            found: list[LogToClean] = []
            look = partial(self._find_dirt, queue, found)
            await self._backoff.run(queue.log, "compaction", look, cures=False)
            if found and found[0].is_due and (best is None or found[0].urgency > most.urgency):
                best, most = queue, found[0]
        return best, most

    async def clean(self, queue: AppendQueue, dirt: LogToClean) -> None:
        """Compact a log, once no segment of it is being removed."""

        async def run() -> None:
            await self._retention.until_let_go(queue.log)
            if self._backoff.is_stopping:
                return
            self._check_space(queue.log, dirt)
            await self._cleaner.clean(queue, dirt)

        await self._backoff.run(queue.log, "compaction", run)

    async def _find_dirt(self, queue: AppendQueue, found: list[LogToClean]) -> None:
        """Append the cleanable part of a log, after loading timestamps and rolling as needed."""
        log, settled = queue.log, 0
        while True:
            dirt = find_log_to_clean(
                log.cleanup.outline(),
                log.config,
                now_ms=self._runtime.clock.wall_ms(),
                limit_offset=_limit(log),
                cleaned_to=self._checkpoints.stored.cleaner_offsets.get(log.name, 0),
                settled=settled,
            )
            if dirt.unknown is not None:
                settled = dirt.unknown
                await _load_timestamps(self._runtime, self._lane, log, log.cleanup.age(settled))
            elif not dirt.rolls or not await _roll(self._runtime.clock, self._writer, queue):
                found.append(dirt)
                return

    def _check_space(self, log: Log, dirt: LogToClean) -> None:
        """Raise DiskFull if the largest segment that a cleaning run may write would use the
        reserve."""
        free = self._runtime.files.free_bytes(self._path)
        needed = min(log.size_bytes, log.config.segment_bytes)
        reserve = self._space.reserve.bytes
        if self._space.is_low or free < needed + reserve:
            raise DiskFull(
                f"cleaning {dirt.dirty_bytes} bytes of {log.name} may take {needed} bytes; {free}"
                f" are free and {reserve} are reserved; cleaning resumes when space is free"
            )


class LogMaintenance:
    """The housekeeping of one directory; its tasks run in `scope`. Created by `DataDirectory`."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        path: str,
        *,
        config: DirectoryConfig,
        queues: Mapping[str, AppendQueue],
        writer: LogWriter,
        checkpoints: Checkpointer,
        space: FreeSpace,
    ) -> None:
        # Set by the owner of the logs. The iterable may be consumed in pieces, with changes in
        # between.
        self.closed_logs: Callable[[], Iterable[ClosedLog]] = tuple
        # Likewise: the committed offset of a group in a log; None: unknown. Raises QuorumlogError.
        self.committed: Callable[[str, str], Awaitable[int | None]] = _unknown
        self._runtime = runtime
        self._config = config
        self._queues = queues
        self._space = space
        space.on_low = self.check_soon
        lane = f"clean:{path}"
        self._next_look_ms = runtime.clock.now_ms() + self._first_wait_ms()
        self._wake = asyncio.Event()
        self._looked_once_more = asyncio.Event()
        self._backoff = FailureBackoff(runtime.clock, queues)
        self._unlinker = FileUnlinker(runtime, lane=lane, config=config, space=space)
        self._cleaner = LogCleaner(
            runtime,
            lane=lane,
            config=config,
            writer=writer,
            checkpoints=checkpoints,
            set_aside=self._unlinker.add,
        )
        self._retention = LogRetention(
            runtime,
            lane=lane,
            backoff=self._backoff,
            queues=queues,
            writer=writer,
            checkpoints=checkpoints,
            cleaner=self._cleaner,
            unlinker=self._unlinker,
            committed=lambda log, group: self.committed(log, group),
        )
        self._closed = ClosedLogRetention(
            runtime, path, lane, self._backoff, queues, checkpoints, self._retention
        )
        self._compaction = LogCompaction(
            runtime,
            path,
            lane=lane,
            backoff=self._backoff,
            queues=queues,
            writer=writer,
            checkpoints=checkpoints,
            cleaner=self._cleaner,
            retention=self._retention,
            space=space,
        )
        self._tasks = [
            scope.spawn(self._work(), name=f"storage.housekeeping {path}"),
            scope.spawn(self._compact(), name=f"storage.compaction {path}"),
        ]

    def _first_wait_ms(self) -> int:
        drawn = self._runtime.entropy.stream("storage.housekeeping")
        # a start has more urgent work
        half_ms = (self._config.retention_check_interval_ms + 1) // 2
        return half_ms + drawn.below(half_ms)

    # --- start and stop ------------------------------------------------------------------------

    async def stop(self) -> None:
        """End running work and unlink all renamed files. Called before the logs are closed."""
        self._backoff.is_stopping = True
        self._wake.set()
        self._looked_once_more.set()
        await self._cleaner.stop()
        for task in self._tasks:
            await task

    def cancel_cleaning(self, log: Log) -> None:
        """Cancel the cleaning run of a log that will be truncated."""
        self._cleaner.cancel(log)

    async def stop_cleaning(self, log: Log) -> None:
        """Return when no work uses the files of a log that will be deleted."""
        await self._cleaner.stop(log)

    def check_soon(self) -> None:
        """Check every log now, or as soon as the running work has ended."""
        self._next_look_ms = self._runtime.clock.now_ms()
        self._wake.set()

    def check_if_low(self) -> None:
        """Check every log soon if space is short: records became deletable."""
        if self._space.is_low:
            self.check_soon()

    async def _work(self) -> None:
        while not self._backoff.is_stopping:
            await self._look_if_due()
            await self._unlinker.unlink_due()
            if not self._backoff.is_stopping:
                await self._sleep()
        await self._tasks[1]  # it may rename files until it ends
        await self._unlinker.unlink_due(everything=True)

    async def _compact(self) -> None:
        while not self._backoff.is_stopping:
            self._looked_once_more.clear()
            queue, dirt = await self._compaction.dirtiest()
            if queue is None:
                await self._until_looked()
            elif not self._backoff.is_stopping:
                await self._compaction.clean(queue, dirt)

    async def _until_looked(self) -> None:
        """Wait for the end of the next check, which may have opened logs; at most until its planned
        start, since it may take long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.retention_check_interval_ms / 1000):
                await self._looked_once_more.wait()

    async def _sleep(self) -> None:
        """Wait for the next check, or for a file to be unlinked."""
        until_ms = self._next_look_ms
        next_unlink_ms = self._unlinker.next_ms
        if next_unlink_ms is not None:
            until_ms = min(until_ms, next_unlink_ms)
        wait_ms = until_ms - self._runtime.clock.now_ms()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(wait_ms, 1) / 1000):
                await self._wake.wait()
        self._wake.clear()

    async def _look_if_due(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        if now_ms < self._next_look_ms:
            return
        interval_ms = self._config.retention_check_interval_ms
        planned_ms = self._next_look_ms = now_ms + interval_ms
        for number, queue in enumerate(list(self._queues.values())):
            if number % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            queue.log.producers.states.expire(self._runtime.clock.wall_ms())
            await self._backoff.run(queue.log, "retention", partial(self._retention.retain, queue))
        await self._closed.check(self.closed_logs())
        if self._next_look_ms == planned_ms:
            self._next_look_ms = self._runtime.clock.now_ms() + interval_ms
        self._looked_once_more.set()
        self._backoff.forget_old(now_ms)


async def _load_timestamps(runtime: Runtime, lane: str, log: Log, segment: SegmentAge) -> None:
    """Load the timestamps of an inactive segment. Raises StalePlan if the log has changed."""
    segment_version = log.segment_version
    job = partial(
        read_times,
        runtime.files,
        join(log.folder, segment_file(segment.base_offset, LOG_SUFFIX)),
        base_offset=segment.base_offset,
        size=segment.size,
        interval_bytes=log.config.index_interval_bytes,
    )
    first_ms, largest_ms = await runtime.tasks.offload(lane, job)
    if log.failure is not None or log.segment_version != segment_version:
        raise StalePlan
    log.cleanup.set_timestamps(segment.base_offset, first_ms, largest_ms)


async def _roll(clock: Clock, writer: LogWriter, queue: AppendQueue) -> bool:
    """Start a new segment and make it durable; return True if the former active one is
    deletable."""
    log = queue.log
    rolled: list[bool] = []

    def begin() -> None:
        try:
            rolled.append(log.appender.roll(clock.wall_ms()))
        except DiskFull:
            rolled.append(False)

    await writer.exclusive(queue, begin, _nothing)
    if not rolled or not rolled[0]:
        return False
    await writer.flush(queue)
    return True


def _limit(log: Log) -> int:
    """Return the offset above which nothing is removed or cleaned."""
    return min(log.last_stable_offset, log.recovery_point)


def _is_past(looked: _Looked, wall_ms: int) -> bool:
    return looked.due_ms is not None and looked.due_ms <= wall_ms


async def _unknown(_log: str, _group: str) -> None:
    """Return None: the committed offset of a group is unknown."""


def _nothing(_: object) -> None:
    """End work that has no result to apply."""
