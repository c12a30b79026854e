"""Reads of a directory's logs: from the page cache on the loop, otherwise in the read lane."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from ...errors import CorruptionError, DiskFailed, Overloaded, QuorumlogError
from ...runtime.ports import Runtime, Scope
from ..index import IndexCache
from ..log import Log
from ..read import SegmentRange
from ..time_lookup import TimedOffset
from .append_queue import AppendQueue
from .writer import LogWriter

T = TypeVar("T")
LOOKUPS_MAX: Final = 10
"""Attempts of a lookup by time while segments are concurrently removed or replaced."""


class LogReader:
    """The reader of a data directory."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        path: str,
        indexes: IndexCache,
        writer: LogWriter,
        queue_of: Callable[[Log], AppendQueue],
    ) -> None:
        self._runtime = runtime
        self._scope = scope
        self._path = path
        self._indexes = indexes
        self._writer = writer
        self._queue_of = queue_of

    async def read(self, found: SegmentRange) -> bytes:
        """Return a range's bytes and release it. Raises DiskFailed, CorruptionError, Overloaded.

        Bytes in the page cache are read at once, others in the read lane.
        """
        content = self.read_cached(found)
        if content is not None:
            return content
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        work = self._in_lane(found, found.read, waiter, releases=True)
        self._scope.spawn(work, name="storage.read")
        return await waiter

    def read_cached(self, found: SegmentRange) -> bytes | None:
        """Return a range's bytes and release it, or None if reading would wait for the device: the
        range is kept then. Raises DiskFailed, CorruptionError."""
        try:
            content = found.read_cached()
        except OSError as error:
            found.release()
            raise DiskFailed(f"{found.file.path}: {error}") from error
        except QuorumlogError:
            found.release()
            raise
        if content is not None:
            found.release()
        return content

    async def locate(self, found: SegmentRange) -> None:
        """Make a range exact, in the read lane if that would wait for the device. The caller still
        releases it. Raises DiskFailed, CorruptionError, Overloaded."""
        if found.is_located:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = self._in_lane(found, found.locate, waiter, releases=False)
        self._scope.spawn(work, name="storage.locate")
        await waiter

    async def offset_for_time(
        self, log: Log, timestamp_ms: int | None, *, end_offset: int | None = None
    ) -> TimedOffset | None:
        """Return the first record below `end_offset` at or after a time; without a time, the first
        one with the largest timestamp. Raises DiskFailed, CorruptionError, Overloaded."""
        queue = self._queue_of(log)
        for _ in range(LOOKUPS_MAX):
            before = log.segment_version
            if not log.is_changing:
                lookup = log.time_lookup(timestamp_ms, end_offset=end_offset)
                try:
                    found = await self._offload(partial(lookup.run, self._runtime.files))
                except (DiskFailed, CorruptionError):
                    if before == log.segment_version:
                        raise
                else:
                    if before == log.segment_version:
                        return found
            # The lookup opens files by name, and the names get other contents: wait for that, then
            # retry.
            await self._writer.exclusive(queue, lambda: None, lambda _: None, changes=False)
        raise DiskFailed(f"{log.folder}: its segments changed during {LOOKUPS_MAX} lookups by time")

    async def _in_lane(
        self,
        found: SegmentRange,
        job: Callable[[], T],
        waiter: "asyncio.Future[T]",
        *,
        releases: bool,
    ) -> None:
        """Work on a range in the lane; its file stays open until the lane is done, even if the
        caller was cancelled."""
        lease = found.file.lease()
        try:
            result = await self._offload(job, cost_bytes=found.size)
        except (DiskFailed, CorruptionError, Overloaded) as error:
            if not waiter.done():
                waiter.set_exception(error)
        else:
            if found.cacheable_index is not None:
                self._indexes.put(found.file.path, found.cacheable_index)
            if not waiter.done():
                waiter.set_result(result)
        finally:
            lease.release()
            if releases:
                found.release()

    async def _offload(self, job: Callable[[], T], *, cost_bytes: int = 0) -> T:
        try:
            return await self._runtime.tasks.offload("read", job, cost_bytes=cost_bytes)
        except OSError as error:
            raise DiskFailed(f"{self._path}: {error}") from error
