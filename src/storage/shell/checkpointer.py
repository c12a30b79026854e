"""The checkpoints of one data directory: stored every second under load, and at the close.

Recovery points, log start offsets, high watermarks, cleaner offsets, and each log's leader epochs.
Logs are flushed for their recovery points only: acknowledgements that wait for a disk request their
own flushes. Logs that are written faster than a disk should be are flushed less often.
A recovery point is stored only after its fsync and after the leader epochs below it. The content is
determined when its turn in the write lane comes, so that no truncation or deletion can intervene.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

from ...errors import DiskFailed, DiskFull, QuorumlogError
from ...runtime.ports import Runtime, Scope
from ..checkpoints import Checkpoints, encode_epochs, encode_partition_metadata
from ..config import DirectoryConfig
from ..data_directory_state import replace_offsets
from ..layout import CLEANER_OFFSETS, LEADER_EPOCHS, LOG_START_OFFSETS, PARTITION_METADATA, join
from ..log import Log
from ..small_files import OUT_OF_SPACE, replace_file
from .append_queue import AppendQueue
from .config_changes import ConfigChanges
from .writer import LogWriter

_Start: TypeAlias = "tuple[Log, int, asyncio.Future[None]]"
"""(log, new log start offset, waiter for its durability)."""

_LOG: Final = logging.getLogger("quorumlog.storage")


class Checkpointer:
    """Keeps the checkpoint files close to the state of the logs; its task runs in `scope`.

    `stored` is the content of the files, or will be once the work in the write lane has ended:
    change it only there.
    """

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        path: str,
        *,
        stored: Checkpoints,
        writer: LogWriter,
        changes: ConfigChanges,
        config: DirectoryConfig,
    ) -> None:
        self.stored = stored
        self._path = path
        self._runtime = runtime
        self._writer = writer
        self._changes = changes
        self._config = config
        self._starting: list[_Start] = []
        self._behind: dict[AppendQueue, None] = {}  # their high watermark will still move
        self._unflushed: dict[AppendQueue, int] = {}  # since this Clock.now_ms()
        self._ticker = scope.spawn(self._under_load(), name="storage.checkpoints")

    def stop(self) -> None:
        """Stop periodic checkpoints; explicit ones remain possible."""
        self._ticker.cancel()

    async def checkpoint(self, *, flush_bytes_max: int | None = None) -> None:
        """Flush every log with appends, then store the checkpoints. With `flush_bytes_max`, leave
        logs with more unflushed bytes until they have waited for long.

        Raises OSError; the next checkpoint then stores it.
        """
        self._writer.dirtied.clear()
        queues = self._behind | dict.fromkeys(self._unflushed) | self._writer.dirty
        self._writer.dirty = {}
        for queue in queues:
            self._changes.apply(queue)  # changes delayed by a full disk
        self._unflushed = {} if flush_bytes_max is None else self._left(queues, flush_bytes_max)
        flushed = [self._writer.flush(queue) for queue in queues if queue not in self._unflushed]
        await asyncio.gather(*flushed, return_exceptions=True)
        if self._unflushed:
            self._writer.dirtied.set()
        try:
            has_changed = await self.store([queue.log for queue in queues])
        except OSError:
            self._behind = queues
            self._writer.dirtied.set()
            raise
        self._behind = {queue: None for queue in queues if _is_behind(queue.log)}
        if self._behind and has_changed:
            self._writer.dirtied.set()  # repeat until their high watermarks are stable

    def _left(self, queues: Iterable[AppendQueue], flush_bytes_max: int) -> dict[AppendQueue, int]:
        """Return the logs that are left unflushed, and since when."""
        config, now_ms = self._config, self._runtime.clock.now_ms()
        since_ms_min = now_ms - config.checkpoint_flush_ms_max
        left: dict[AppendQueue, int] = {}
        for queue in sorted(queues, key=lambda each: each.unflushed_bytes):
            flush_bytes_max -= queue.unflushed_bytes
            since_ms = self._unflushed.get(queue, now_ms)
            if flush_bytes_max >= 0 or queue.unflushed_bytes > config.unflushed_bytes_max:
                continue
            if since_ms > since_ms_min and queue.log.failure is None:
                left[queue] = since_ms
        return left

    async def _under_load(self) -> None:
        said = ""
        while True:
            await self._writer.dirtied.wait()
            await asyncio.sleep(self._config.checkpoint_interval_ms / 1000)
            try:
                await self.checkpoint(flush_bytes_max=self._config.checkpoint_flush_bytes_max)
            except OSError as error:  # older checkpoints only make a recovery longer
                if str(error) != said:  # logged once, though retried
                    _LOG.warning("storage.checkpoint_failed path=%s error=%s", self._path, error)
                said = str(error)
            else:
                said = ""

    async def store(self, logs: Iterable[Log]) -> bool:
        """Store the checkpoints of these logs in the write lane; return True if anything changed.
        Raises OSError."""
        planned: list[tuple[Checkpoints, bool]] = []
        epochs: list[Callable[[], None]] = []
        files = self._runtime.files

        def begin() -> Callable[[], None]:
            stored = self.stored.copy()
            for log in stored.update(logs):
                content = encode_epochs(stored.epochs[log.name])
                epochs.append(partial(replace_file, files, log.folder, LEADER_EPOCHS, content))
            offsets = stored.changed_files(self.stored)
            planned.append((stored, bool(epochs or offsets)))
            return partial(replace_offsets, files, self._path, offsets)

        def end(_: None) -> None:
            self.stored = planned[0][0]

        await self._writer.run(begin, end, before=epochs)
        return planned[0][1]

    async def store_cleaned(self, log: Log, offset: int) -> None:
        """Store the end offset of a log's last cleaning run, unless the log failed or was deleted;
        durable at the return. Raises OSError."""
        planned: list[dict[str, int]] = []

        def begin() -> Callable[[], None] | None:
            if log.failure is not None:
                return None
            planned.append({**self.stored.cleaner_offsets, log.name: offset})
            files = {CLEANER_OFFSETS: planned[0]}
            return partial(replace_offsets, self._runtime.files, self._path, files)

        def end(_: None) -> None:
            if planned:
                self.stored.cleaner_offsets = planned[0]

        await self._writer.run(begin, end)

    async def store_gaps(self, log: Log, offset: int) -> None:
        """Store in a log's folder that offsets may be missing between segments below `offset`,
        unless the log failed or was deleted; durable at the return. Raises OSError."""
        begun: list[int] = []

        def begin() -> Callable[[], None] | None:
            if log.failure is not None:
                return None
            begun.append(offset)
            if log.topic_id is None:
                return None
            content = encode_partition_metadata(log.topic_id, log.unsynced_bytes_max, offset)
            return partial(
                replace_file, self._runtime.files, log.folder, PARTITION_METADATA, content
            )

        def end(_: None) -> None:
            if begun:
                log.gaps_below = offset

        await self._writer.run(begin, end)

    async def lower_cleaned(self, log: Log) -> None:
        """Lower the cleaned offsets of a truncated log: batches appended after its end are not
        clean."""
        end = log.log_end_offset
        try:
            if self.stored.cleaner_offsets.get(log.name, 0) > end:
                await self.store_cleaned(log, end)
            if (log.gaps_below or 0) > end:
                await self.store_gaps(log, end)
        except OSError as error:  # some records are compacted later than possible
            _LOG.warning("storage.checkpoint_failed path=%s error=%s", self._path, error)

    async def store_log_start(self, queue: AppendQueue, offset: int) -> None:
        """Store a log start offset, unless the log starts above it already; durable at the return.

        Everything below must be flushed. Requests that arrive during a store are stored together.
        Raises OffsetOutOfRange if the log was truncated in between, DiskFull, DiskFailed.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._starting.append((queue.log, offset, waiter))
        begun: list[_Start] = []

        def begin() -> Callable[[], OSError | None] | None:
            begun.extend(start for start in self._starting if _is_due(start))
            self._starting.clear()
            if not begun:
                return None
            starts = dict(self.stored.log_starts)
            for log, offset, _ in begun:
                starts[log.name] = max(starts.get(log.name, 0), offset)
            files = {LOG_START_OFFSETS: starts}
            return partial(_try_to_replace, self._runtime, self._path, files)

        def end(error: OSError | None) -> None:
            for log, offset, waiter in begun:
                if error is None:
                    log.cleanup.advance_log_start(offset)
                    self.stored.log_starts[log.name] = log.log_start_offset
                _answer(waiter, None if error is None else self._not_stored(error))

        await self._writer.run(begin, end)
        await waiter

    def _not_stored(self, error: OSError) -> DiskFull | DiskFailed:
        path = join(self._path, LOG_START_OFFSETS)
        if error.errno in OUT_OF_SPACE:
            return DiskFull(f"{path}: no space is left; free some space, then retry")
        return DiskFailed(f"{path}: {error.strerror or error}")


def _is_due(start: _Start) -> bool:
    """Return True if a log start must be stored; otherwise complete its waiter."""
    log, offset, waiter = start
    try:
        log.cleanup.check_deletion(offset, is_replicated=True)  # the caller checked the rest
    except QuorumlogError as error:
        _answer(waiter, error)
        return False
    if offset <= log.log_start_offset:
        _answer(waiter, None)
        return False
    return True


def _answer(waiter: "asyncio.Future[None]", error: QuorumlogError | None) -> None:
    if waiter.done():
        return  # its caller was cancelled
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)


def _try_to_replace(
    runtime: Runtime, path: str, offsets: dict[str, dict[str, int]]
) -> OSError | None:
    try:
        replace_offsets(runtime.files, path, offsets)
    except OSError as error:
        return error
    return None


def _is_behind(log: Log) -> bool:
    return log.failure is None and log.high_watermark < log.log_end_offset
