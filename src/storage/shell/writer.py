"""The writer of a data directory: queues, groups and orders all changes, with a queue per log.

Appends enter their log's queue in the order of calls. Small groups are written on the loop at once.
Large ones, every sync and every change of names become jobs of the lane `write:<dir>`. Further
small appends in the same turn of the loop are gathered, and written at its end. Callers wait for
results, never for the lane: a cancelled caller loses only its result.

A run of batches (`native.ProduceRun`) and an `InlineAppend` are written at once to a log with an
empty and idle queue.

While the lane writes a group of a log that does not flush each append, the next group is prepared,
so that neither waits for the other. It goes to the lane only after the previous one is in the file:
a failed write also fails the groups prepared after it, newest first.

Group commit of an fsync log: the batches written during a sync are the next group, at most
`write_group_bytes_max`; when the sync ends, the next sync starts. Group n+1 is never written before
the sync of group n-1 has completed. Recovery relies on that to distinguish a torn tail from
corruption.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from ...errors import DiskFailed, DiskFull, Overloaded, QuorumlogError, Stopping
from ...ids import Offset
from ...native import RunTail
from ...runtime.ports import Buffer, Clock, File, Runtime, Scope
from ..append import AppendOrigin, LogWrite, WriteFailed, write_fully
from ..config import DirectoryConfig
from ..conversion import is_plain, stamp
from ..file_pool import OUT_OF_DESCRIPTORS, FilePool
from ..flush import Flush, perform_flush
from ..log import Log
from ..producer_state import AlreadyStored
from .append_queue import (
    NO_APPEND_TIME,
    AppendAdmission,
    Appended,
    AppendQueue,
    ExclusiveWork,
    PendingAppend,
    barrier,
    complete,
)
from .free_space import FreeSpace
from .lane_worker import Job, LaneWorker

SMALL_BYTES: Final = 128 << 10
"""Smaller writes are always done on the loop: handing them over takes longer."""

SLOW_US: Final = 20_000
"""A write on the loop that took longer has waited for the device or a processor."""

SLOW_SHARE: Final = 20
"""After a slow write, larger writes go to the lane for this many times its duration. The kernel
blocks writers that are faster than the device, and the loop may spend a twentieth of its time
so."""


class LoopWriter:
    """The writes of one directory on the loop, which return at once: they only copy into the cache.

    They are cheaper on the loop. The bytes of an append are in the cache of the processor that
    received and checked them. The thread of a lane may run on another one, which fetches them line
    by line and takes several times as long as the write.
    """

    __slots__ = ("_bytes_max", "_clock", "_slow_until_ms", "_small_bytes")

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        """`bytes_max` is `DirectoryConfig.inline_write_bytes_max`."""
        self._clock = clock
        self._bytes_max = bytes_max
        self._small_bytes = min(SMALL_BYTES, bytes_max)
        self._slow_until_ms = 0  # of the clock: the device counts as slow until then; 0: it is not

    def is_too_much(self, queue: AppendQueue) -> bool:
        """Return True if the queued bytes of a log should be written in the lane."""
        queued = queue.queued_bytes
        return queued > self._small_bytes and (
            queued > self._bytes_max
            or queue.always_flushes  # it waits for the device anyway
            or self._clock.now_ms() < self._slow_until_ms
        )

    def bytes_max(self) -> int:
        """Return the limit of one write on the loop now."""
        if not self._slow_until_ms:  # the usual case, without a look at the clock
            return self._bytes_max
        if self._clock.now_ms() < self._slow_until_ms:
            return self._small_bytes
        self._slow_until_ms = 0
        return self._bytes_max

    def write(self, file: File, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, and measure the time; raises WriteFailed."""
        clock = self._clock
        began_us = clock.busy_us()
        try:
            write_fully(file, position, buffers)
        finally:
            took_us = clock.busy_us() - began_us
            if took_us > SLOW_US:
                self._slow_until_ms = clock.now_ms() + took_us * SLOW_SHARE // 1_000


_LOG: Final = logging.getLogger("quorumlog.storage")

LATER_MS: Final = 100
"""Delay before work is retried for which no file could be opened."""

FLUSHES_AT_ONCE: Final = 16
"""Logs flushed concurrently if no caller waits for a single one: a file system commits its journal
for all of them at once, so that 16 take hardly longer than one."""

GROUPS_A_TURN: Final = 4
"""Groups that one log writes before other logs get the lane."""

Group: TypeAlias = list[tuple[PendingAppend, LogWrite]]


class LogWriter:
    """Queues, groups and orders all changes of a data directory."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        *,
        lane: str,
        config: DirectoryConfig,
        start: Callable[[], None] | None,
        space: FreeSpace,
        pool: FilePool,
    ) -> None:
        self.dirty: dict[AppendQueue, None] = {}  # appended to since the last checkpoint, in order
        self.is_closing = False
        self._is_stopped = False
        self._runtime = runtime
        self._on_loop = LoopWriter(runtime.clock, config.inline_write_bytes_max)
        self._scope = scope
        self._config = config
        self._space = space
        self._pool = pool
        self._start = start  # must run in the lane before the first append
        self._is_start_queued = False
        self._waiting_for_start: dict[AppendQueue, None] = {}
        self._admission = AppendAdmission(runtime, scope, config=config, on_admitted=self._advance)
        self.dirtied = asyncio.Event()
        self._worker = LaneWorker(runtime, scope, lane)
        flush_lane = f"flush:{lane.partition(':')[2]}"
        self._flusher = LaneWorker(runtime, scope, flush_lane, width=FLUSHES_AT_ONCE)
        self.flush_ms = (self._worker.flush_ms, self._flusher.flush_ms)  # of fsync logs, of others

    # --- appends -------------------------------------------------------------------------------

    def append(self, queue: AppendQueue, item: PendingAppend) -> None:
        """Queue an append; raise if it cannot be queued."""
        self._check(queue)
        if item.origin is AppendOrigin.CLIENT:
            self.check_capacity(len(item.batches))
        self._admission.enter(queue, item)
        if not queue.is_gathering or self._on_loop.is_too_much(queue):
            self._advance(queue)

    def check_capacity(self, size: int, held_back: int = 0) -> None:
        """Raise the reason to reject a client's append; `held_back` are bytes of other appends that
        the caller queues later. Consensus and replication limit their own appends: a flood of
        client appends must not fail the node's own logs."""
        if self._space.is_low:
            raise self._space.reserve.rejection()
        waiting_bytes = self._admission.held_bytes + held_back
        most = self._config.queue_bytes_max
        if waiting_bytes and waiting_bytes + size > most:
            raise Overloaded(f"{waiting_bytes} bytes are queued; the limit is {most}; retry later")

    def _advance(self, queue: AppendQueue) -> None:
        """Process a log's queue as far as possible: write small groups, submit jobs for larger
        work."""
        items = queue.items
        while items and not queue.is_busy:
            head = items[0]
            if isinstance(head, ExclusiveWork) and head.is_barrier:
                items.popleft()
                complete(head.waiter, None)
                continue
            is_close = isinstance(head, ExclusiveWork) and not head.changes
            if not is_close and not self._has_started(queue):
                return
            if isinstance(head, ExclusiveWork):
                if queue.is_flush_queued or queue.is_flushing:
                    return  # its end calls this method again
                items.popleft()
                queue.is_busy = queue.is_exclusive = True
                worker = self._worker if head.changes else self._flusher
                worker.submit(partial(self._run_exclusive, queue, head, worker))
                return
            if not self._admission.is_admitted(queue, head):
                return  # the lane's result calls this method again
            if self._must_wait_for_flush(queue, len(head.batches)):
                self._request_flush(queue)
                return
            if self._on_loop.is_too_much(queue):
                queue.is_busy = True
                self._worker.submit(partial(self._write_in_lane, queue))
                return
            self._write_inline(queue)
            self._gather(queue)

    def _gather(self, queue: AppendQueue) -> None:
        """Gather the appends of this turn of the loop into one write at its end; those of an fsync
        log gather during its syncs."""
        if not queue.is_gathering and not queue.always_flushes:
            queue.is_gathering = True
            asyncio.get_running_loop().call_soon(self._end_gathering, queue)

    def _end_gathering(self, queue: AppendQueue) -> None:
        queue.is_gathering = False
        self._advance(queue)

    def _must_wait_for_flush(self, queue: AppendQueue, size: int) -> bool:
        """Return True if a batch must wait for the next group of an fsync log."""
        group = queue.unflushed_bytes
        return (
            queue.always_flushes and group > 0 and group + size > self._config.write_group_bytes_max
        )

    def _take_group(self, queue: AppendQueue) -> Group:
        """Prepare queued appends for one write: same segment, limited bytes. Rejected ones are
        answered and change nothing."""
        log, items = queue.log, queue.items
        wall_ms = self._runtime.clock.wall_ms()
        room, may_exceed = self._config.write_bytes_max, True  # a large batch is a group of its own
        if queue.always_flushes:
            room = self._config.write_group_bytes_max - queue.unflushed_bytes
            may_exceed = not queue.unflushed_bytes
        group: Group = []
        size = 0
        while items:
            item = items[0]
            if isinstance(item, ExclusiveWork) or not self._admission.is_admitted(queue, item):
                break
            if size + len(item.batches) > room and (group or not may_exceed):
                break
            try:
                write = self._prepare(log, item, wall_ms)
            except QuorumlogError as error:
                self._dequeue(queue)
                item.fail(error)
                continue
            except AlreadyStored as stored:
                self._dequeue(queue)
                self._answer_stored(queue, item, stored)
                continue
            if write is None:
                break
            self._dequeue(queue)
            group.append((item, write))
            size += write.size
        if log.failure is not None:
            assert not group, f"{log.name} failed while it prepared a group"
            self._fail_queue(queue, DiskFailed(log.failure.message))
        return group

    @staticmethod
    def _prepare(log: Log, item: PendingAppend, wall_ms: int) -> LogWrite | None:
        if item.rejection is not None:
            # sometimes: an append is refused after it was queued
            raise item.rejection
        condition = item.precondition
        if condition is not None and not condition.is_met(log.producers.states):
            return None
        config = item.admitted_by or log.config
        batches = item.batches
        if config.log_append_time and item.origin is AppendOrigin.CLIENT:
            item.append_time_ms = wall_ms
            batches = stamp(batches, timestamp_ms=wall_ms)
        return log.appender.prepare(
            batches,
            leader_epoch=item.leader_epoch,
            wall_ms=wall_ms,
            origin=item.origin,
            is_validated=item.admitted_by is not None,
        )

    def _dequeue(self, queue: AppendQueue) -> None:
        item = queue.items.popleft()
        assert isinstance(item, PendingAppend), f"{item} is no append"
        self._admission.leave(queue, item)

    def _write_inline(self, queue: AppendQueue) -> None:
        group = self._take_group(queue)
        if not group:
            return
        first = group[0][1]
        try:
            self._on_loop.write(first.file, first.position, _buffers(group))
        except WriteFailed as failure:
            self._group_failed(queue, group, failure)
        else:
            self._group_written(queue, group)

    async def _write_in_lane(self, queue: AppendQueue, group: Group | None = None) -> None:
        """Write a few groups, the first of which may be prepared already. While the lane writes
        one, the previous one is answered and the next one prepared."""
        group = self._take_group(queue) if group is None else group
        written: Group = []
        groups_left = GROUPS_A_TURN
        while group and groups_left:
            groups_left -= 1
            writing = self._scope.spawn(self._offload_write(queue, group), name="storage.write")
            behind: Group = []
            if not queue.always_flushes:
                await asyncio.sleep(0)  # the lane has the job now
                self._group_written(queue, written)
                behind = self._take_group(queue)
            failure = await writing
            if failure is not None:
                # sometimes if behind: a write fails with the next one prepared
                self._group_failed(queue, [*group, *behind], failure)
                group = behind = []
            written, group = group, behind
        self._group_written(queue, written)
        if group:
            self._worker.submit(partial(self._write_in_lane, queue, group))
        else:
            queue.is_busy = False
            self._advance(queue)

    async def _offload_write(self, queue: AppendQueue, group: Group) -> WriteFailed | None:
        first = group[0][1]
        unsynced_bytes_max = self._config.write_group_bytes_max if queue.always_flushes else 0
        job = partial(
            write_fully,
            first.file,
            first.position,
            _buffers(group),
            unsynced_bytes_max=unsynced_bytes_max,
        )
        try:
            await self._worker.offload(job)
        except WriteFailed as failure:
            return failure
        return None

    def _group_written(self, queue: AppendQueue, group: Group) -> None:
        if not group:
            return
        log = queue.log
        wants_flush = queue.always_flushes
        log_start_offset = Offset(log.log_start_offset)
        size = 0
        for item, write in group:
            log.appender.complete(write)
            size += write.size
            appended = Appended(
                Offset(write.base_offset),
                Offset(write.next_offset),
                item.append_time_ms,
                log_start_offset,
            )
            if item.waits_for_flush:
                wants_flush = True
                queue.flush_waiters.append((write.next_offset, partial(item.resolve, appended)))
            else:
                item.resolve(appended, None)
        self._log_written(queue, size, wants_flush=wants_flush)

    def _log_written(self, queue: AppendQueue, size: int, *, wants_flush: bool) -> None:
        """Count written bytes, and run the callbacks of the new log end."""
        queue.unflushed_bytes += size
        self._space.count_written(size)
        if wants_flush:
            self._request_flush(queue)
        if queue not in self.dirty:
            self.dirty[queue] = None
            self.dirtied.set()
        queue.moved()

    def _answer_stored(
        self, queue: AppendQueue, item: PendingAppend, stored: AlreadyStored
    ) -> None:
        """Answer a retried append with the offsets of its first attempt, once that is as durable as
        this one requires."""
        log = queue.log
        appended = Appended(
            Offset(stored.base_offset),
            Offset(stored.next_offset),
            NO_APPEND_TIME if item.append_time_ms < 0 else stored.timestamp,
            Offset(log.log_start_offset),
        )
        if not item.waits_for_flush or stored.next_offset <= log.flushed_end_offset:
            item.resolve(appended, None)
            return
        # sometimes: a repeated batch waits for the flush of the first one
        self.call_when_flushed(queue, stored.next_offset, partial(item.resolve, appended))
        self._request_flush(queue)

    def _group_failed(self, queue: AppendQueue, group: Group, failure: WriteFailed) -> None:
        for item, write in reversed(group):
            item.fail(queue.log.appender.failed(write, failure))
        self._write_failed(queue)

    def _write_failed(self, queue: AppendQueue) -> None:
        self._space.check()
        self.check_failure(queue)

    # --- inline appends ------------------------------------------------------------------------

    def inline_bytes_max(self, queue: AppendQueue) -> int:
        """Return the limit in bytes of an append that is written now, without the queue. It is 0 if
        appends to this log must be queued: others are queued or being written, the open group of an
        fsync log is full, or the log accepts none."""
        if queue.items or queue.is_busy or self._start is not None or self.is_closing:
            return 0
        if self._space.reserve.is_low or queue.log.failure is not None:
            return 0
        room = self._config.write_bytes_max
        if queue.always_flushes:
            room = max(0, self._config.write_group_bytes_max - queue.unflushed_bytes)
        return min(self._on_loop.bytes_max(), room)

    def write_run(self, queue: AppendQueue, tail: RunTail) -> None:
        """Write the batches of a run. A failure sets `tail.error`, and nothing is stored."""
        appender = queue.log.appender
        try:
            self._on_loop.write(appender.run_file, tail.position, tail.take_buffers())
        except WriteFailed as failure:
            tail.error = appender.write_error(failure)
            self._write_failed(queue)
            return
        appender.complete_run(tail)
        self._log_written(queue, tail.size, wants_flush=queue.always_flushes)

    def write_inline(self, queue: AppendQueue, write: LogWrite) -> DiskFull | DiskFailed | None:
        """Write prepared batches of a log; return the error if nothing was stored."""
        appender = queue.log.appender
        try:
            self._on_loop.write(write.file, write.position, write.buffers)
        except WriteFailed as failure:
            error = appender.failed(write, failure)
            self._write_failed(queue)
            return error
        appender.complete(write)
        self._log_written(queue, write.size, wants_flush=queue.always_flushes)
        return None

    def call_when_flushed(
        self, queue: AppendQueue, end_offset: int, callback: Callable[[QuorumlogError | None], None]
    ) -> None:
        """Call back when everything below `end_offset` is durable, or with the failure of that. The
        flush must be requested already."""
        waiters = queue.flush_waiters
        waiters.append((max(end_offset, waiters[-1][0]) if waiters else end_offset, callback))

    def check_failure(self, queue: AppendQueue) -> None:
        """Fail everything queued if the log has failed."""
        if queue.log.failure is not None:
            self._fail_queue(queue, DiskFailed(queue.log.failure.message))

    # --- flushes -------------------------------------------------------------------------------

    def flush(self, queue: AppendQueue) -> "asyncio.Future[None]":
        """Make everything completed so far durable."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log = queue.log
        if queue.is_gathering:
            self._advance(queue)
        if log.failure is not None:
            waiter.set_exception(DiskFailed(log.failure.message))
        elif not log.flusher.is_dirty:
            waiter.set_result(None)
        else:
            queue.flush_waiters.append((log.log_end_offset, partial(complete, waiter)))
            self._request_flush(queue)
        return waiter

    def _request_flush(self, queue: AppendQueue) -> None:
        """Queue a flush, unless one is queued.

        Replicated logs are flushed in a lane of their own, many at once: with a second's worth of
        writes to sync, they would delay every group commit and every large write.
        """
        if queue.is_flush_queued or queue.is_exclusive:
            return  # exclusive work requests a flush at its end
        queue.is_flush_queued = True
        worker = self._worker if queue.always_flushes else self._flusher
        worker.submit(partial(self._run_flush, queue, worker))

    async def _run_flush(self, queue: AppendQueue, worker: LaneWorker) -> None:
        log = queue.log
        queue.is_flush_queued = False
        if log.failure is not None:
            self._fail_queue(queue, DiskFailed(log.failure.message))
            return
        if queue.is_flushing:  # its policy changed; the running flush requests another at its end
            # sometimes: a flush policy changes during a flush
            return
        flush = log.flusher.begin()
        queue.is_flushing = True
        # the group is closed; the next one may be written during the flush
        queue.unflushed_bytes = 0
        self._advance(queue)
        try:
            await worker.flush(partial(perform_flush, self._runtime.files, flush))
        except OSError as error:
            queue.is_flushing = False
            failure = log.flusher.failed(flush, error)
            if failure is None:
                self._scope.spawn(self._flush_later(queue), name="storage.flush_later")
            else:
                self._fail_queue(queue, failure)
        else:
            queue.is_flushing = False
            self.flushed(queue, flush)
        self._advance(queue)

    async def _flush_later(self, queue: AppendQueue) -> None:
        """Retry a flush later, since no descriptor is available; its waiters continue to wait."""
        _LOG.warning("storage.flush_put_off log=%s reason=open_files", queue.log.name)
        self._pool.shed()
        await asyncio.sleep(LATER_MS / 1000)
        self._request_flush(queue)

    def flushed(self, queue: AppendQueue, flush: Flush) -> None:
        """Apply a performed flush."""
        queue.log.flusher.complete(flush)
        waiters = queue.flush_waiters
        while waiters and waiters[0][0] <= flush.end_offset:
            waiters.popleft()[1](None)
        if waiters or (queue.always_flushes and queue.log.flusher.is_dirty):
            self._request_flush(queue)
        queue.moved()

    # --- exclusive work ------------------------------------------------------------------------

    def exclusive(
        self,
        queue: AppendQueue,
        begin: Callable[[], Callable[[], Any] | None],
        end: Callable[[Any], None],
        *,
        changes: bool = True,
        repeats: bool = False,
    ) -> "asyncio.Future[None]":
        """Queue work with exclusive access to the log; see `ExclusiveWork`. Work that only makes
        changes durable runs for many logs at once."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_stopped:
            waiter.set_exception(Stopping("the data directory is closed"))
            return waiter
        queue.items.append(ExclusiveWork(begin, end, waiter, changes, repeats))
        self._advance(queue)
        return waiter

    def barrier(self, queue: AppendQueue) -> "asyncio.Future[None]":
        """Return a future that completes when everything queued before has ended, failed or not."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_stopped:
            waiter.set_exception(Stopping("the data directory is closed"))
            return waiter
        queue.items.append(barrier(waiter))
        self._advance(queue)
        return waiter

    async def _run_exclusive(
        self,
        queue: AppendQueue,
        work: ExclusiveWork,
        worker: LaneWorker,
        job: Callable[[], Any] | None = None,
    ) -> None:
        """Run exclusive work; `job` is the blocking part of an earlier attempt, to be repeated."""
        try:
            if job is None:
                job = work.begin()
            work.end(await worker.offload(job) if job is not None else None)
        except OSError as error:
            if work.repeats and error.errno in OUT_OF_DESCRIPTORS:
                again = partial(self._run_exclusive, queue, work, worker, job)
                self._scope.spawn(self._put_off(queue, worker, again), name="storage.put_off")
                return
            failure = queue.log.give_up(error)
            complete(work.waiter, failure)
            self._fail_queue(queue, failure)
        except QuorumlogError as error:
            complete(work.waiter, error)
        else:
            complete(work.waiter, None)
        queue.is_busy = queue.is_exclusive = False
        self._admission.resume(queue)
        self._flush_after_exclusive(queue)
        self._advance(queue)

    async def _put_off(self, queue: AppendQueue, worker: LaneWorker, job: Job) -> None:
        """Retry exclusive work later, since no descriptor is available; the log waits."""
        _LOG.warning("storage.put_off log=%s reason=open_files", queue.log.name)
        self._pool.shed()
        await asyncio.sleep(LATER_MS / 1000)
        worker.submit(job)

    def _flush_after_exclusive(self, queue: AppendQueue) -> None:
        """Request a flush for waiters that arrived during exclusive work; truncated offsets need
        none."""
        end_offset = queue.log.log_end_offset
        waiters = [(min(end, end_offset), notify) for end, notify in queue.flush_waiters]
        # sometimes if waiters: an append waits for a flush after exclusive work
        queue.flush_waiters = deque(waiters)
        if waiters:
            self._request_flush(queue)

    # --- jobs ----------------------------------------------------------------------------------

    async def run(
        self,
        begin: Callable[[], Callable[[], Any] | None],
        end: Callable[[Any], None] | None = None,
        *,
        before: Sequence[Callable[[], None]] = (),
    ) -> None:
        """Run work outside of any log, in its turn: `begin` and `end` are as in `ExclusiveWork`.

        `before`: work that `begin` adds and that must end before its job; it runs concurrently.

        Raises the errors of the lane's part, and Stopping; `end` is not called then.
        """
        if self._is_stopped:
            raise Stopping("the data directory is closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._worker.submit(partial(self._run_plain, begin, end, before, waiter))
        await waiter

    async def _run_plain(
        self,
        begin: Callable[[], Callable[[], Any] | None],
        end: Callable[[Any], None] | None,
        before: Sequence[Callable[[], None]],
        waiter: "asyncio.Future[None]",
    ) -> None:
        try:
            job = begin()
            await self._flusher.offload_all(before)
            result = await self._worker.offload(job) if job is not None else None
        except (OSError, QuorumlogError) as error:
            complete(waiter, error)
            return
        if end is not None:
            end(result)
        complete(waiter, None)

    async def stop(self) -> None:
        """Reject further work, finish queued work, end the workers; every log is closed already."""
        self._is_stopped = True
        await self._worker.stop()
        await self._flusher.stop()

    # --- start and failure ---------------------------------------------------------------------

    @property
    def is_started(self) -> bool:
        """True if anything may have changed since the opening: the clean-shutdown marker is
        removed."""
        return self._start is None

    def _has_started(self, queue: AppendQueue) -> bool:
        """Return True if appends may begin; otherwise start, and continue with this log
        afterwards."""
        if self._start is None:
            return True
        self._waiting_for_start[queue] = None
        if not self._is_start_queued:
            self._is_start_queued = True
            self._worker.submit(self._run_start)
        return False

    async def _run_start(self) -> None:
        assert self._start is not None, "started twice"
        failure: OSError | None = None
        try:
            await self._worker.offload(self._start)
            self._start = None
        except OSError as error:
            failure = error
        self._is_start_queued = False  # not before: logs that arrived during the start wait for it
        waiting, self._waiting_for_start = self._waiting_for_start, {}
        for queue in waiting:
            if failure is None:
                self._advance(queue)
            else:
                self._reject_queued(queue, DiskFailed(f"the data directory: {failure}"))

    def _check(self, queue: AppendQueue) -> None:
        if self.is_closing:
            raise Stopping("the data directory is closing")
        if queue.log.failure is not None:
            raise DiskFailed(queue.log.failure.message)

    def _fail_queue(self, queue: AppendQueue, failure: DiskFailed) -> None:
        """Fail everything queued after the log's disk failed or the log was closed, and run the
        callbacks."""
        self._reject_queued(queue, failure)
        while queue.flush_waiters:
            queue.flush_waiters.popleft()[1](failure)
        self.dirty.pop(queue, None)
        if not (queue.has_failed or queue.log.is_closed):
            queue.has_failed = True
            _LOG.error("storage.log_failed log=%s error=%s", queue.log.name, failure)
        callbacks, queue.on_failed = queue.on_failed, []
        for callback in callbacks:
            callback(failure)

    def _reject_queued(self, queue: AppendQueue, failure: DiskFailed) -> None:
        while queue.items:
            item = queue.items[0]
            if isinstance(item, ExclusiveWork):
                queue.items.popleft()
                complete(item.waiter, failure)
            else:
                self._dequeue(queue)
                item.fail(failure)


class InlineAppend:
    """A batch that one log stores by a write on the loop, without entering its queue.

    The caller adds the batch and then calls `write` before the loop runs anything else, so that no
    other append comes between them. The write to an fsync log belongs to its open group, and
    requests the flush.
    """

    __slots__ = (
        *("_leader_epoch", "_origin", "_queue", "_write", "_writer"),
        *("error", "next_offset"),
    )

    def __init__(
        self, appends: "InlineAppends", log: Log, leader_epoch: int, *, origin: AppendOrigin
    ) -> None:
        self._writer = appends.writer
        self._queue = appends.queue_of(log)
        self._leader_epoch = leader_epoch
        self._origin = origin
        self._write: LogWrite | None = None
        self.next_offset = 0  # after the batch
        self.error: QuorumlogError | None = None  # of the failed write; nothing is stored then

    def add(self, batch: Buffer, wall_ms: int) -> int | None:
        """Check the batch and assign its offsets; it must not change before `write`. Return its
        base offset; `next_offset` is then the one after its last.

        Return None if the batch must be queued instead, and nothing has changed: it needs a
        conversion, it is refused or stored already, or the write has no room for it.
        """
        queue, log = self._queue, self._queue.log
        if len(batch) > self._writer.inline_bytes_max(queue) or not is_plain(batch, log.config):
            return None
        try:
            write = log.appender.prepare(
                batch, leader_epoch=self._leader_epoch, wall_ms=wall_ms, origin=self._origin
            )
        except (QuorumlogError, AlreadyStored):
            self._writer.check_failure(queue)
            return None
        if write is None:
            return None
        self._write, self.next_offset = write, write.next_offset
        return write.base_offset

    def write(self) -> None:
        """Write the batch that was added. A failure sets `error`."""
        assert self._write is not None, "no batch was added"
        self.error = self._writer.write_inline(self._queue, self._write)


class InlineAppends:
    """The appends of a data directory that do not enter the queue of their log."""

    __slots__ = ("queue_of", "writer")

    def __init__(self, writer: LogWriter, queue_of: Callable[[Log], AppendQueue]) -> None:
        self.writer = writer
        self.queue_of = queue_of

    def begin_run(
        self, owner: object, log: Log, leader_epoch: int, wall_ms: int, *, size: int = 1
    ) -> RunTail | None:
        """Return the tail of a log for batches that `end_run` writes before the loop runs anything
        else; None if they must be queued. `owner` is the caller's, `size` the number of bytes as
        far as it is known."""
        bytes_max = self.writer.inline_bytes_max(self.queue_of(log))
        if bytes_max < size:
            return None
        return log.appender.begin_run(owner, leader_epoch, bytes_max, wall_ms)

    def end_run(self, log: Log, tail: RunTail) -> None:
        """Write the batches of a run. A failure sets `tail.error`, and nothing is stored."""
        self.writer.write_run(self.queue_of(log), tail)

    def resolve_when_flushed(self, log: Log, append: PendingAppend, appended: Appended) -> None:
        """After a write to an fsync log: resolve an append when its batches are durable, or fail it
        with the failure of that."""
        resolve = partial(append.resolve, appended)
        self.writer.call_when_flushed(self.queue_of(log), appended.next_offset, resolve)


def _buffers(group: Group) -> list[Buffer]:
    return [buffer for _, write in group for buffer in write.buffers]
