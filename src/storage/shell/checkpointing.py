"""The checkpoints of one data directory: stored every second under load, and at the close.

Recovery points, log start offsets, high watermarks, what the cleaner reached, and each log's leader
epochs. A recovery point is stored only after the fsync it speaks of and after the leader epochs
below it. What to store is planned when it is its turn in the write lane, so that no truncation or
deletion comes between.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

from ...errors import DiskFull, QuorumlogError, StorageError
from ...runtime.ports import Runtime, Scope
from ..disk.checkpoints import encode_epochs, encode_partition_metadata
from ..disk.contents import replace_file
from ..disk.layout import (
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    join,
)
from ..log import Log
from ..opening.premises import replace_offsets
from ..segments.flushes import OUT_OF_SPACE
from ..stored import Stored
from .channel import Channel
from .config_changes import ConfigChanges
from .writer import Writer

_Start: TypeAlias = "tuple[Log, int, asyncio.Future[None]]"
"""A log, where it is to start, and who waits until it does, durably."""

_LOG: Final = logging.getLogger("quorumlog.storage")


class Checkpointing:
    """Keeps the checkpoint files near what the logs have come to; its task lives in `scope`.

    `stored` is what the files say, or will say once what is under way in the write lane has ended:
    change it there alone.
    """

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        path: str,
        *,
        stored: Stored,
        writer: Writer,
        changes: ConfigChanges,
        interval_ms: int,
    ) -> None:
        self.stored = stored
        self._path = path
        self._runtime = runtime
        self._writer = writer
        self._changes = changes
        self._interval_ms = interval_ms
        self._starting: list[_Start] = []
        self._behind: dict[Channel, None] = {}  # with a high watermark that will still move
        self._ticker = scope.spawn(self._under_load(), name="storage.checkpoints")

    def stop(self) -> None:
        """No more checkpoints but those that are asked for."""
        self._ticker.cancel()

    async def checkpoint(self) -> None:
        """Flush every log that was appended to, then store what the logs came to.

        Raises OSError; the next one stores it then.
        """
        self._writer.dirtied.clear()
        channels, self._writer.dirty = self._behind | self._writer.dirty, {}
        for channel in channels:
            self._changes.take(channel)  # what a full disk held up
        flushed = [self._writer.flush(channel) for channel in channels]
        await asyncio.gather(*flushed, return_exceptions=True)
        try:
            has_changed = await self.store([channel.log for channel in channels])
        except OSError:
            self._behind = channels
            self._writer.dirtied.set()
            raise
        self._behind = {channel: None for channel in channels if _is_behind(channel.log)}
        if self._behind and has_changed:
            self._writer.dirtied.set()  # once more, until their high watermarks stand still

    async def _under_load(self) -> None:
        said = ""
        while True:
            await self._writer.dirtied.wait()
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self.checkpoint()
            except OSError as error:  # the older checkpoints only make a recovery longer
                if str(error) != said:  # said once, though it is tried again and again
                    _LOG.warning("storage.checkpoint_failed path=%s error=%s", self._path, error)
                said = str(error)
            else:
                said = ""

    async def store(self, logs: Iterable[Log]) -> bool:
        """Store what these logs' checkpoints should say, when it is their turn; returns whether
        that is anything new. Raises OSError."""
        planned: list[tuple[Stored, bool]] = []
        epochs: list[Callable[[], None]] = []
        files = self._runtime.files

        def begin() -> Callable[[], None]:
            stored = self.stored.copy()
            for log in stored.take(logs):
                content = encode_epochs(stored.epochs[log.name])
                epochs.append(partial(replace_file, files, log.folder, LEADER_EPOCHS, content))
            offsets = stored.files_beside(self.stored)
            planned.append((stored, bool(epochs or offsets)))
            return partial(replace_offsets, files, self._path, offsets)

        def end(_: None) -> None:
            self.stored = planned[0][0]

        await self._writer.run(begin, end, before=epochs)
        return planned[0][1]

    async def store_cleaned(self, log: Log, offset: int) -> None:
        """Have it be known that a log was compacted up to `offset`, unless it failed, or was
        deleted; durable at the return. Raises OSError."""
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
        """Have a log's folder say that between segments offsets may be missing below `offset`,
        unless it failed, or was deleted; durable at the return. Raises OSError."""
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
        """A log was cut: what is appended behind its end is not clean."""
        end = log.log_end_offset
        try:
            if self.stored.cleaner_offsets.get(log.name, 0) > end:
                await self.store_cleaned(log, end)
            if (log.gaps_below or 0) > end:
                await self.store_gaps(log, end)
        except OSError as error:  # some records are compacted later than they could be
            _LOG.warning("storage.checkpoint_failed path=%s error=%s", self._path, error)

    async def store_log_start(self, channel: Channel, offset: int) -> None:
        """Have a log start at `offset`, unless it starts behind it already; durable at the return.

        What lies below it must be flushed. Those that come while one is stored are stored together.
        Raises OffsetOutOfRange when the log was truncated meanwhile, DiskFull, StorageError.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._starting.append((channel.log, offset, waiter))
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
                    log.advance_log_start(offset)
                    self.stored.log_starts[log.name] = log.log_start_offset
                _answer(waiter, None if error is None else self._not_stored(error))

        await self._writer.run(begin, end)
        await waiter

    def _not_stored(self, error: OSError) -> DiskFull | StorageError:
        path = join(self._path, LOG_START_OFFSETS)
        if error.errno in OUT_OF_SPACE:
            return DiskFull(f"no space is left for {path}; free some, then repeat")
        return StorageError(f"{path}: {error.strerror or error}")


def _is_due(start: _Start) -> bool:
    """Whether a log start is to be stored; else it is answered here."""
    log, offset, waiter = start
    try:
        log.check_deletion(offset)
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
