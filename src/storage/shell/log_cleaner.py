"""Performs cleaning runs over one log at a time: in slices, throttled, swapping each group in
order.

A run reads and writes in the lane `clean:<dir>`. Each group is swapped in as exclusive work of the
log as soon as it is complete, so that at most one lies beside its sources. The cleaned part is
flushed, and the stored recovery point is above it: a recovery never reads the gaps left by
compaction. `cleaner-offset-checkpoint` is stored at the end. A deletion, truncation or close of the
log stops the run first. However a run ends, none of its files remain.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ...errors import QuorumlogError
from ...records.compression import INFLATE_LIMIT
from ...runtime.ports import Runtime
from ...runtime.rate_limit import Throttle
from ..config import DirectoryConfig
from ..layout import LOG_SUFFIX, join, segment_file
from ..log import Log
from ..log_to_clean import LogToClean
from ..segment_files import CleanedGroup, SourceSegment, Swap, perform_swap
from .append_queue import AppendQueue
from .checkpointer import Checkpointer
from .writer import LogWriter

if TYPE_CHECKING:
    from ..cleaner import CleaningPlan, CleaningRun

_LOG: Final = logging.getLogger("quorumlog.storage")


SOURCES_AT_ONCE: Final = 256
"""Segments listed before other tasks run on the loop: under a millisecond."""


class StalePlan(Exception):
    """The log changed since the run was planned: it was truncated, deleted or reconfigured, or will
    be. Not an error."""


class LogCleaner:
    """Cleans the logs of one directory, one at a time. A run can be stopped."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        lane: str,
        config: DirectoryConfig,
        writer: LogWriter,
        checkpoints: Checkpointer,
        set_aside: Callable[[Log, list[str]], None],
    ) -> None:
        self._runtime = runtime
        self._lane = lane
        self._config = config
        self._writer = writer
        self._checkpoints = checkpoints
        self._set_aside = set_aside  # called with files to be unlinked later
        self._throttle = Throttle(config.clean_bytes_per_second)
        self._seeds = runtime.entropy.stream("storage.cleaning")
        self._queue: AppendQueue | None = None  # of the log being cleaned
        self._stopped = asyncio.Event()  # the run must end
        self._ended = asyncio.Event()  # no run is active
        self._ended.set()

    def is_cleaning(self, log: Log) -> bool:
        """Return True if this log is being cleaned."""
        return self._queue is not None and self._queue.log is log

    def cancel(self, log: Log | None = None) -> None:
        """Request the end of the run over this log, or of any run."""
        if self._queue is not None and (log is None or self._queue.log is log):
            self._stopped.set()

    async def stop(self, log: Log | None = None) -> None:
        """End the run over this log, or any run; return when none of its files are left."""
        self.cancel(log)
        if self._stopped.is_set():
            await self._ended.wait()

    async def clean(self, queue: AppendQueue, dirt: LogToClean) -> None:
        """Run one cleaning of the dirty part of a log. Raises the errors of the log or its disk,
        and StalePlan if the run was stopped or the log was truncated since the plan."""
        from ..cleaner import CleaningRun  # most directories have no compacted log

        assert self._queue is None, "two cleaning runs at once"
        self._queue = queue
        self._stopped.clear()
        self._ended.clear()
        try:
            sources = await self._sources(queue, dirt)
            cleaning = CleaningRun(self._plan(queue.log, dirt, sources))
            await self._run_and_discard(queue, cleaning)
        finally:
            self._queue = None
            self._ended.set()

    async def _run_and_discard(self, queue: AppendQueue, cleaning: "CleaningRun") -> None:
        try:
            await self._run(queue, cleaning)
        except (OSError, QuorumlogError):
            self._check(queue)  # its error may be caused by the end of the run
            raise
        finally:
            # When a scope ends, it cancels its tasks; the next opening removes the remaining files.
            discard = partial(cleaning.discard, self._runtime.files)
            try:
                await self._runtime.tasks.offload(self._lane, discard)
            except OSError as error:
                _LOG.warning("storage.litter log=%s error=%s", queue.log.name, error)

    async def _sources(self, queue: AppendQueue, dirt: LogToClean) -> tuple[SourceSegment, ...]:
        """List the segments to read; a log may have 10,000, so the loop yields in between.

        Raises StalePlan if the log was truncated since the plan.
        """
        log = queue.log
        sources: list[SourceSegment] = []
        while True:
            self._check(queue)
            bases = log.segment_bases
            if log.recovery_point < dirt.end_offset or dirt.end_offset not in bases:
                raise StalePlan
            ends = bases.index(dirt.end_offset)
            for place in range(len(sources), min(ends, len(sources) + SOURCES_AT_ONCE)):
                segment = log.cleanup.age(place)
                source = SourceSegment(
                    path=join(log.folder, segment_file(segment.base_offset, LOG_SUFFIX)),
                    base_offset=segment.base_offset,
                    end_offset=segment.end_offset,
                    size=segment.size,
                )
                sources.append(source)
            if len(sources) == ends:
                return tuple(sources)
            await asyncio.sleep(0)

    def _plan(
        self, log: Log, dirt: LogToClean, segments: tuple[SourceSegment, ...]
    ) -> "CleaningPlan":
        from ..cleaner import CleaningPlan

        config = log.config
        return CleaningPlan(
            segments=segments,
            first_dirty_offset=dirt.first_dirty_offset,
            end_offset=dirt.end_offset,
            wall_ms=self._runtime.clock.wall_ms(),
            seed=self._seeds.token(16),
            map_bytes=self._config.clean_buffer_bytes,
            segment_bytes=config.segment_bytes,
            index_bytes_max=config.index_bytes_max,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
            inflate_bytes_max=max(INFLATE_LIMIT, config.inflate_bytes_max),  # the limit of readers
            aborted=tuple(
                log.aborted_transactions(segments[0].base_offset, segments[-1].end_offset)
            ),
            live_producers=log.producers.states.last_records(),
        )

    async def _run(self, queue: AppendQueue, cleaning: "CleaningRun") -> None:
        log, plan = queue.log, cleaning.plan
        await self._make_safe(queue, plan)
        swapped = 0
        while not cleaning.finished:
            step = partial(
                cleaning.step, self._runtime.files, budget_bytes=self._config.clean_slice_bytes
            )
            size = await self._runtime.tasks.offload(self._lane, step)
            for group in cleaning.groups[swapped:]:
                self._check(queue)
                await self._swap(queue, group)
                swapped += 1
            pause = self._throttle.spend(size, self._runtime.clock.now_ms())
            await self._pause(pause)
            self._check(queue)
        await self._checkpoints.store_cleaned(log, cleaning.cleaned_to)
        stats = cleaning.stats
        _LOG.info(
            "storage.cleaned log=%s from=%d to=%d bytes_read=%d bytes_written=%d records_read=%d"
            " records_kept=%d keys=%d",
            log.name,
            plan.first_dirty_offset,
            cleaning.cleaned_to,
            stats.bytes_read,
            stats.bytes_written,
            stats.records_read,
            stats.records_kept,
            stats.keys,
        )
        if stats.batches_unread:
            _LOG.warning(
                "storage.not_compacted log=%s batches=%d reason=%s",
                log.name,
                stats.batches_unread,
                stats.unread_reason,
            )

    async def _make_safe(self, queue: AppendQueue, plan: "CleaningPlan") -> None:
        """Store the gaps and the recovery point that a recovery needs, before the log is
        changed."""
        log, stored = queue.log, self._checkpoints.stored
        if stored.recovery_points.get(log.name, 0) < plan.end_offset:
            await self._checkpoints.store([log])
        if log.name not in stored.cleaner_offsets:
            await self._checkpoints.store_cleaned(log, plan.first_dirty_offset)
        if (log.gaps_below or 0) < plan.end_offset:
            await self._checkpoints.store_gaps(log, plan.end_offset)
        self._check(queue)

    def _check(self, queue: AppendQueue) -> None:
        log = queue.log
        if self._stopped.is_set() or log.failure is not None or not log.config.compacted:
            raise StalePlan

    async def _pause(self, wait_ms: int) -> None:
        """Wait for the throttle, or until the run must end."""
        if wait_ms <= 0:
            return
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._stopped.wait()
        except TimeoutError:
            return

    async def _swap(self, queue: AppendQueue, group: CleanedGroup) -> None:
        """Replace the sources of a group. Raises OSError with the log unchanged, DiskFailed if
        the log failed, StalePlan."""
        log = queue.log
        begun: list[Swap] = []
        refused: list[Exception] = []

        def begin() -> Callable[[], list[str] | OSError] | None:
            try:
                self._check(queue)
                swap = log.cleanup.begin_replace(group)
            except StalePlan as stale:
                refused.append(stale)
                return None
            except OSError as error:  # out of descriptors, for example
                refused.append(error)
                return None
            if swap is None:
                refused.append(StalePlan())
                return None
            begun.append(swap)
            return partial(perform_swap, self._runtime.files, swap)

        def end(result: list[str] | OSError | None) -> None:
            if not begun:
                return
            is_done = isinstance(result, list)
            log.cleanup.complete_replace(begun[0], is_done=is_done)
            if isinstance(result, list):
                self._set_aside(log, result)
            elif result is not None:
                refused.append(result)

        await self._writer.exclusive(queue, begin, end)
        if refused:
            raise refused[0]
