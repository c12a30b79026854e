"""One data directory: its lock, logs, checkpoints and clean-shutdown marker.

Opened once per process. All changes go through the `LogWriter` of the lane `write:<path>`. Reads
try the page cache on the loop and go to the read lane otherwise.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from ...errors import CorruptionError, DirectoryMismatch, DiskFailed, DiskFull
from ...ids import ClusterId, DirectoryId, NodeId, TopicId
from ...metrics import Histogram
from ...runtime.ports import Buffer, Files, Runtime, Scope
from ..append import AppendOrigin
from ..checkpoints import DirectoryMeta
from ..config import DirectoryConfig, LogConfig
from ..data_directory_state import (
    DataDirectoryState,
    check_owner,
    format_folder,
    load_state,
    remove_clean_marker,
    replace_offsets,
    reset_log,
    truncate_log,
    unusable,
    write_clean_marker,
)
from ..file_pool import FilePool
from ..flush import Flush, perform_flush
from ..index import IndexCache
from ..layout import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    join,
    lane_of,
    side_lane,
)
from ..log import Log
from ..producer_state import ProducerLimits
from ..recovery import LogState, Recovery
from ..small_files import OUT_OF_SPACE, replace_file
from ..truncation import TruncationPoint
from .append_queue import (
    Appended,
    AppendQueue,
    CompletedAppends,
    PendingAppend,
    release_after,
)
from .checkpointer import Checkpointer
from .config_changes import ConfigChanges, unsynced_bytes_max
from .free_space import FreeSpace
from .log_folders import LogFolders
from .log_opener import OPENED_AT_ONCE, LogOpener
from .maintenance import LogMaintenance
from .reader import LogReader
from .side_files import SideFiles
from .writer import InlineAppends, LogWriter


class SmallFileStore:
    """The small files of a directory's other components, in memory and on the disk."""

    def __init__(
        self, files: Files, path: str, contents: dict[str, bytes], writer: LogWriter
    ) -> None:
        self._files = files
        self._path = path
        self._contents = contents
        self._writer = writer

    def load(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        return self._contents.get(name)

    async def store(self, name: str, content: bytes) -> None:
        """Replace a file durably. Raises DiskFull, DiskFailed: the outcome is unknown then."""
        job = partial(replace_file, self._files, self._path, name, content)

        def end(_: None) -> None:  # also if the caller was cancelled
            self._contents[name] = content

        try:
            await self._writer.run(lambda: job, end)
        except OSError as error:
            if error.errno in OUT_OF_SPACE:
                raise DiskFull(f"no space is left for {join(self._path, name)}") from error
            raise DiskFailed(f"{join(self._path, name)}: {error}") from error


class LogTruncation:
    """Truncations, resets and deletions of records in the open logs of one directory, durable."""

    def __init__(
        self,
        files: Files,
        path: str,
        queue_of: Callable[[Log], AppendQueue],
        writer: LogWriter,
        checkpoints: Checkpointer,
        maintenance: LogMaintenance,
    ) -> None:
        self._files = files
        self._path = path
        self._queue_of = queue_of
        self._writer = writer
        self._checkpoints = checkpoints
        self._maintenance = maintenance

    async def truncate(self, log: Log, offset: int) -> None:
        """Truncate every batch that holds or follows `offset`, durably, after everything queued
        before.

        Raises DiskFailed, CorruptionError, DiskFull: nothing is changed then.
        """
        begun = []

        def begin() -> Callable[[], TruncationPoint | CorruptionError | DiskFull] | None:
            truncation = log.truncator.begin(offset)
            if truncation is None:
                return None
            stored = self._checkpoints.stored.recovery_points
            points = dict(stored)
            # Until the outcome is known, no checkpoint may store the former content again.
            begun.append((truncation, stored.pop(log.name, 0)))
            self._checkpoints.stored.epochs.pop(log.name, None)
            files = self._files
            return partial(truncate_log, files, self._path, points, log.name, truncation)

        def end(cut: TruncationPoint | CorruptionError | DiskFull | None) -> None:
            if cut is None:
                return
            truncation, recovery_point = begun[0]
            stored = self._checkpoints.stored.recovery_points
            if isinstance(cut, CorruptionError | DiskFull):
                log.truncator.cancel(truncation)
                stored[log.name] = recovery_point  # on the disk too: a retry must lower it
                raise cut
            log.truncator.complete(truncation, cut)
            stored[log.name] = min(recovery_point, cut.end_offset)
            queue.moved()

        queue = self._queue_of(log)
        self._maintenance.cancel_cleaning(log)
        await self._writer.exclusive(queue, begin, end, repeats=True)
        await self._checkpoints.lower_cleaned(log)

    async def reset(self, log: Log, offset: int) -> None:
        """Drop everything and continue at `offset` with an empty log, durably, after everything
        queued before.

        A crash leaves the log unchanged, a prefix of it, or the empty log; the caller must have
        recorded elsewhere that the reset is due. Raises DiskFailed, DiskFull: nothing is dropped
        then, but the log is unreadable until the call is repeated.
        """

        def begin() -> Callable[[], None]:
            paths = log.truncator.begin_reset()
            stored, files = self._checkpoints.stored, self._files
            starts = dict(stored.log_starts)
            stored.remove_log(log.name)
            stored.log_starts = starts  # the start is unchanged until all of it is removed
            points, starts = dict(stored.recovery_points), {**starts, log.name: offset}
            return partial(
                reset_log,
                files,
                log.folder,
                paths,
                before=partial(replace_offsets, files, self._path, {RECOVERY_POINTS: points}),
                after=partial(replace_offsets, files, self._path, {LOG_START_OFFSETS: starts}),
            )

        def end(_: None) -> None:
            self._checkpoints.stored.log_starts[log.name] = offset
            log.truncator.complete_reset(offset)
            queue.moved()

        queue = self._queue_of(log)
        self._maintenance.cancel_cleaning(log)
        await self._writer.exclusive(queue, begin, end, repeats=True)

    async def delete_records(self, log: Log, offset: int, *, is_replicated: bool = False) -> int:
        """Make the records below `offset` (-1: below the last stable offset) unreadable for good;
        return the log start offset, which is durable then. Retention frees the space.

        Raises OffsetOutOfRange above the last stable offset, or above the high watermark for a
        deletion that the leader has made (`is_replicated`); DiskFull, DiskFailed: the outcome is
        unknown then, and the call may be repeated.
        """
        queue = self._queue_of(log)
        before = log.cleanup.check_deletion(offset, is_replicated=is_replicated)
        if before > log.flushed_end_offset:
            await self._writer.flush(queue)
        await self._checkpoints.store_log_start(queue, before)
        self._maintenance.check_if_low()
        return log.log_start_offset


class FlushTimes(Protocol):
    """The part of the writer that the measurements use."""

    @property
    def flush_ms(self) -> tuple[Histogram, Histogram]: ...


class DataDirectoryMetrics:
    """Current measurements of one directory."""

    def __init__(
        self, queues: Mapping[str, AppendQueue], writing: FlushTimes, space: FreeSpace
    ) -> None:
        self._queues = queues
        self._writing = writing
        self._space = space

    def log(self, name: str) -> Log | None:
        """Return the open log of this name, None if it is not open."""
        queue = self._queues.get(name)
        return None if queue is None else queue.log

    @property
    def open_logs(self) -> int:
        """Number of open logs."""
        return len(self._queues)

    @property
    def failed_logs(self) -> int:
        """Number of open logs with a failed disk; iterates over all open logs."""
        return sum(1 for queue in self._queues.values() if queue.has_failed)

    @property
    def queued_bytes(self) -> int:
        """Bytes of queued appends; iterates over all open logs."""
        return sum(queue.queued_bytes for queue in self._queues.values())

    @property
    def written_bytes(self) -> int:
        """Bytes of batches written since the opening."""
        return self._space.written_bytes

    @property
    def flush_times(self) -> Mapping[str, Histogram]:
        """Durations of flushes in their lane, by the flush policy of their logs, in ms."""
        always, later = self._writing.flush_ms
        return {"fsync": always, "replicated": later}

    def disk_bytes(self) -> tuple[int, int]:
        """Measure (free bytes, size) of the disk now; raises OSError."""
        return self._space.measure()

    @property
    def is_reserve_used(self) -> bool:
        """True if client appends are rejected for lack of space."""
        return self._space.is_low


_LOG: Final = logging.getLogger("quorumlog.storage")


class DataDirectory:
    """A data directory owned by this process. Create it with `open`."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        path: str,
        *,
        config: DirectoryConfig,
        found: "DataDirectoryState",
    ) -> None:
        self.path = path
        self.meta = found.meta
        self.was_clean = found.is_clean
        self._runtime = runtime
        self._config = config
        self.producer_limits = ProducerLimits(
            expiration_ms=config.producer_expiration_ms, producers_max=config.producers_max
        )
        self._lock = found.lock
        self._pool = FilePool(runtime.files, open_files_max=config.open_files_max)
        self._indexes = IndexCache(config.index_cache_bytes)
        self._queues: dict[str, AppendQueue] = {}
        self.completed = CompletedAppends()
        self.space = FreeSpace(runtime, scope, path, reserve_bytes=config.reserve_bytes)
        start = partial(remove_clean_marker, runtime.files, path) if found.is_clean else None
        writer = self._writer = LogWriter(
            runtime,
            scope,
            lane=lane_of(path),
            config=config,
            start=start,
            space=self.space,
            pool=self._pool,
        )
        self.inline = InlineAppends(writer, self._queue_of)
        self.reader = LogReader(runtime, scope, path, self._indexes, writer, self._queue_of)
        self.small_files = SmallFileStore(runtime.files, path, found.small_files, self._writer)
        self.figures = DataDirectoryMetrics(self._queues, self._writer, self.space)
        self._openings = LogOpener(
            runtime.files,
            writer,
            queues=self._queues,
            recovery_of=self._recovery,
            adopt=self._adopt,
            at_once=OPENED_AT_ONCE if found.is_clean else 1,
        )
        self._changes = ConfigChanges(runtime.files, self._writer, config)
        self.checkpoints = Checkpointer(
            runtime,
            scope,
            path,
            stored=found.stored,
            writer=self._writer,
            changes=self._changes,
            config=config,
        )
        self.maintenance = LogMaintenance(
            runtime,
            scope,
            path,
            config=config,
            queues=self._queues,
            writer=self._writer,
            checkpoints=self.checkpoints,
            space=self.space,
        )
        self.folders = LogFolders(
            runtime, path, self._queues, self._queue_of, writer, self.checkpoints, self.maintenance
        )
        parts = (self._queue_of, writer, self.checkpoints, self.maintenance)
        self.truncation = LogTruncation(runtime.files, path, *parts)

    # --- open and close ------------------------------------------------------------------------

    @staticmethod
    async def format(
        runtime: Runtime,
        path: str,
        *,
        cluster_id: ClusterId,
        node_id: NodeId,
        directory_id: DirectoryId | None = None,
        first: Mapping[str, Mapping[str, bytes]] | None = None,
    ) -> DirectoryMeta:
        """Format a directory for this node; formatting it again for the same node has no effect.

        The directory id is random unless given. `first` (log name -> file name -> content) is
        stored durably before the directory counts as formatted. Raises DirectoryMismatch if it
        belongs to another cluster or node, DirectoryUnusable, DirectoryInUse.
        """
        drawn = directory_id or DirectoryId(runtime.entropy.token(16))  # unique
        meta = DirectoryMeta(cluster_id=cluster_id, node_id=node_id, directory_id=drawn)
        job = partial(format_folder, runtime.files, path, meta, first or {})
        try:
            return await runtime.tasks.offload(lane_of(path), job)
        except OSError as error:
            raise unusable(path, error) from error

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        scope: Scope,
        path: str,
        *,
        config: DirectoryConfig | None = None,
        cluster_id: ClusterId | None = None,
        node_id: NodeId | None = None,
    ) -> "DataDirectory":
        """Lock and open a formatted directory; its tasks run in `scope`.

        Raises DirectoryNotFormatted, DirectoryInUse, DirectoryUnusable, and DirectoryMismatch if it
        belongs to another cluster or node.
        """
        taken: list[DataDirectoryState] = []
        try:
            await runtime.tasks.offload(
                lane_of(path), lambda: taken.append(load_state(runtime.files, path))
            )
        except OSError as error:
            raise unusable(path, error) from error
        except asyncio.CancelledError:
            await runtime.tasks.drain(lane_of(path))  # the job still runs, and takes the lock
            for found in taken:
                found.lock.release()
            raise
        found = taken[0]
        try:
            check_owner(path, found.meta, cluster_id=cluster_id, node_id=node_id)
        except DirectoryMismatch:
            found.lock.release()
            raise
        return cls(runtime, scope, path, config=config or DirectoryConfig(), found=found)

    async def close(self) -> None:
        """Finish queued work, make everything durable, write the clean-shutdown marker, unlock.

        No marker is written if a log failed, or if a log of an unclean directory was never opened
        and so never recovered. A second call has no effect.
        """
        if self._writer.is_closing:
            return
        self._writer.is_closing = True
        await self._runtime.tasks.drain(side_lane(self.path))
        await self.maintenance.stop()
        self.checkpoints.stop()
        self.space.stop()
        closed = [self._closing(queue) for queue in list(self._queues.values())]
        await asyncio.gather(*closed, return_exceptions=True)
        self._pool.close()  # the following work may need their descriptors
        try:
            await self._last_checkpoint()
        except OSError as error:  # the next opening recovers from the older checkpoints
            _LOG.warning("storage.unclean_close path=%s error=%s", self.path, error)
        await self._writer.stop()
        for queue in self._queues.values():  # including those opened in between
            queue.log.close("the data directory is closed")
        self._pool.close()
        self._lock.release()

    def _closing(self, queue: AppendQueue) -> "asyncio.Future[None]":
        """Queue a log's last flush, with the index of its active segment."""
        log = queue.log
        begun: list[Flush] = []

        def begin() -> Callable[[], None] | None:
            if log.failure is not None or not self._writer.is_started:
                return None
            begun.append(log.flusher.begin(is_last=True))
            return partial(perform_flush, self._runtime.files, begun[0])

        def end(_: Any) -> None:
            for flush in begun:
                self._writer.flushed(queue, flush)

        closing = self._writer.exclusive(queue, begin, end, changes=False, repeats=True)
        release_after(closing, begun)
        return closing

    async def _last_checkpoint(self) -> None:
        """Store the checkpoints and, after a clean stop, the marker."""
        if not self._writer.is_started:
            return  # nothing changed: the marker still exists
        logs = [queue.log for queue in self._queues.values()]
        await self.checkpoints.store(logs)
        if all(log.failure is None for log in logs):
            opened = None if self.was_clean else frozenset(self._queues)
            job = partial(write_clean_marker, self._runtime.files, self.path, opened)
            await self._writer.run(lambda: job)

    # --- logs ----------------------------------------------------------------------------------

    async def open_log(self, name: str, config: LogConfig, *, topic_id: TopicId | None) -> Log:
        """Open the log of this name, after recovery if needed; a second call returns the same log.

        The first append creates its folder. Raises CorruptionError, DiskFailed for a failed disk
        or a folder of another topic id; Overloaded and DiskFull if files or space are temporarily
        lacking: it may be opened later.
        """
        return await self._openings.open(name, config, topic_id)

    def configure(self, log: Log, config: LogConfig) -> None:
        """Change the config of a log; see `config_changes`.

        Appends that requested a flush still get it.
        """
        queue = self._queue_of(log)
        queue.wanted = config
        self._changes.apply(queue)

    def _recovery(self, name: str, config: LogConfig) -> Recovery:
        stored = self.checkpoints.stored
        return Recovery(
            folder=join(self.path, name),
            config=config,
            is_clean=self.was_clean,
            recovery_point=stored.recovery_points.get(name, 0),
            log_start_offset=stored.log_starts.get(name, 0),
            torn_bytes_max=unsynced_bytes_max(config, self._config),
            wall_ms=self._runtime.clock.wall_ms(),
            cleaned_to=stored.cleaner_offsets.get(name),
            producer_limits=self.producer_limits,
        )

    def _adopt(
        self, name: str, config: LogConfig, topic_id: TopicId | None, state: LogState
    ) -> Log:
        log = Log(
            self._pool,
            self._indexes,
            name=name,
            folder=join(self.path, name),
            config=config,
            topic_id=topic_id,
            state=state,
        )
        stored = self.checkpoints.stored
        if self.was_clean:  # otherwise the file's content may not be durable
            stored.epochs[name] = log.epochs.loaded
        log.note_high_watermark(min(stored.high_watermarks.get(name, 0), log.log_end_offset))
        log.was_compacted = log.was_compacted or name in stored.cleaner_offsets
        log.check_invariants(is_complete=False)
        self._queues[name] = AppendQueue(log)
        for warning in log.producers.warnings:
            _LOG.warning("storage.producers_rebuilt log=%s reason=%s", name, warning)
        return log

    async def append(
        self, log: Log, batches: Buffer, *, leader_epoch: int, origin: AppendOrigin, flush: bool
    ) -> Appended:
        """Append whole batches; with `flush` return after they are durable.

        The order of calls is the order in the log. A cancelled call gives up the result, not the
        append. Raises Overloaded, Stopping, DiskFailed, DiskFull and the errors of
        `LogAppender.prepare`; nothing is stored then. `batches` must not change until the return.
        """
        return await self.append_nowait(
            log, batches, leader_epoch=leader_epoch, origin=origin, flush=flush
        )

    def append_nowait(
        self, log: Log, batches: Buffer, *, leader_epoch: int, origin: AppendOrigin, flush: bool
    ) -> PendingAppend:
        """Queue an append; small ones are written at once.

        Raises Overloaded, Stopping, DiskFailed, and DiskFull below the reserve; other errors are
        the outcome of the pending append.
        """
        append = PendingAppend(self.completed, batches, leader_epoch, origin, flush)
        self.submit(log, append)
        return append

    def check_capacity(self, size: int, held_back: int = 0) -> None:
        """Raise DiskFull or Overloaded if an append of `size` bytes would be rejected, with
        `held_back` bytes counted as queued."""
        self._writer.check_capacity(size, held_back)

    def submit(self, log: Log, append: PendingAppend) -> None:
        """Queue a caller's own pending append; otherwise like `append_nowait`."""
        self._writer.append(self._queue_of(log), append)

    def settle(self, log: Log) -> "asyncio.Future[None] | None":
        """Return a future that completes when everything queued before has ended, None if it has;
        it fails with the log."""
        queue = self._queue_of(log)
        return None if queue.is_settled else self._writer.barrier(queue)

    async def flush(self, log: Log) -> None:
        """Make everything completed before the call durable. Raises DiskFailed."""
        await self._writer.flush(self._queue_of(log))

    async def expect_gaps(self, log: Log) -> None:
        """Accept batches with gaps between their offsets: the leader's log was compacted. Raises
        OSError."""
        if log.gaps_below is None and log.segment_bases:
            await self.checkpoints.store_gaps(log, 0)
        log.was_compacted = True

    def side_files(self, log: Log) -> SideFiles:
        """Return access to files of other components in the log's folder."""
        return SideFiles(self._runtime, log.folder, lane=side_lane(self.path))

    def on_appended(self, log: Log, callback: Callable[[], None]) -> None:
        """Add a callback on the loop for moves of the log end or the flushed end."""
        self._queue_of(log).on_appended.append(callback)

    def on_failed(self, log: Log, callback: Callable[[DiskFailed], None]) -> None:
        """Add a callback on the loop for the final failure of the log's disk; it runs once."""
        self._queue_of(log).on_failed.append(callback)

    def _queue_of(self, log: Log) -> AppendQueue:
        queue = self._queues.get(log.name)
        if queue is not None and queue.log is log:
            return queue
        raise DiskFailed(f"{log.name} is not open in {self.path}")
