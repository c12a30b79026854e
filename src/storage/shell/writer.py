"""The writer of a data directory: queues, groups and orders all changes, with a queue per log.

Appends enter their log's queue in the order of calls. Small groups are written on the loop at once.
Large ones, every sync and every change of names become jobs of the lane `write:<dir>`. Further
small appends in the same turn of the loop are gathered, and written at its end. Callers wait for
results, never for the lane: a cancelled caller loses only its result.

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

from ...errors import Overloaded, QuorumlogError, Stopping, StorageError
from ...ids import Offset
from ...runtime.ports import Buffer, Clock, File, Runtime, Scope
from ..append import AppendOrigin, LogWrite, WriteFailed, write_fully
from ..config import DirectoryConfig
from ..conversion import stamp
from ..file_pool import OUT_OF_DESCRIPTORS
from ..flush import Flush, perform_flush
from ..log import Log
from ..producer_state import AlreadyStored
from .append_queue import (
    NO_APPEND_TIME,
    AppendAdmission,
    Appended,
    AppendQueue,
    ExclusiveWork,
    QueuedAppend,
    answer,
    barrier,
    fail,
)
from .free_space import FreeSpace
from .lane_worker import Job, LaneWorker

SMALL_BYTES: Final = 64 << 10
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
        self._slow_until_ms = 0  # of the clock: the device counts as slow until then

    def is_too_much(self, channel: AppendQueue) -> bool:
        """Return True if the queued bytes of a log should be written in the lane."""
        queued = channel.queued_bytes
        return queued > self._small_bytes and (
            queued > self._bytes_max
            or channel.always_flushes  # it waits for the device anyway
            or self._clock.now_ms() < self._slow_until_ms
        )

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

Group: TypeAlias = list[tuple[QueuedAppend, LogWrite]]


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
    ) -> None:
        self.dirty: dict[AppendQueue, None] = {}  # appended to since the last checkpoint, in order
        self.is_closing = False
        self._is_stopped = False
        self._runtime = runtime
        self._on_loop = LoopWriter(runtime.clock, config.inline_write_bytes_max)
        self._scope = scope
        self._config = config
        self._space = space
        self._start = start  # must run in the lane before the first append
        self._is_start_queued = False
        self._waiting_for_start: dict[AppendQueue, None] = {}
        self._admission = AppendAdmission(runtime, scope, config=config, on_admitted=self._advance)
        self.dirtied = asyncio.Event()
        self._owner = LaneWorker(runtime, scope, lane)
        flush_lane = f"flush:{lane.partition(':')[2]}"
        self._flusher = LaneWorker(runtime, scope, flush_lane, width=FLUSHES_AT_ONCE)
        self.flush_ms = (self._owner.flush_ms, self._flusher.flush_ms)  # of fsync logs, of others

    # --- appends -------------------------------------------------------------------------------

    def append(self, channel: AppendQueue, item: QueuedAppend) -> None:
        """Queue an append; raise if it cannot be queued."""
        self._check(channel)
        if item.origin is AppendOrigin.CLIENT:
            self.check_capacity(len(item.batches))
        self._admission.enter(channel, item)
        if not channel.is_gathering or self._on_loop.is_too_much(channel):
            self._advance(channel)

    def check_capacity(self, size: int) -> None:
        """Raise the reason to reject a client's append. Consensus and replication limit their own
        appends: a flood of client appends must not fail the node's own logs."""
        if self._space.is_low:
            raise self._space.reserve.rejection()
        waiting_bytes, most = self._admission.held_bytes, self._config.queue_bytes_max
        if waiting_bytes and waiting_bytes + size > most:
            raise Overloaded(f"{waiting_bytes} bytes are queued; the limit is {most}; retry later")

    def _advance(self, channel: AppendQueue) -> None:
        """Process a log's queue as far as possible: write small groups, submit jobs for larger
        work."""
        queue = channel.queue
        while queue and not channel.is_busy:
            head = queue[0]
            if isinstance(head, ExclusiveWork) and head.is_barrier:
                queue.popleft()
                answer(head.waiter, None, None)
                continue
            is_close = isinstance(head, ExclusiveWork) and not head.changes
            if not is_close and not self._has_started(channel):
                return
            if isinstance(head, ExclusiveWork):
                if channel.is_flush_queued or channel.is_flushing:
                    return  # its end calls this method again
                queue.popleft()
                channel.is_busy = channel.is_exclusive = True
                owner = self._owner if head.changes else self._flusher
                owner.submit(partial(self._run_exclusive, channel, head, owner))
                return
            if not self._admission.is_admitted(channel, head):
                return  # the lane's result calls this method again
            if self._must_wait_for_flush(channel, len(head.batches)):
                self._request_flush(channel)
                return
            if self._on_loop.is_too_much(channel):
                channel.is_busy = True
                self._owner.submit(partial(self._write_in_lane, channel))
                return
            self._write_inline(channel)
            self._gather(channel)

    def _gather(self, channel: AppendQueue) -> None:
        """Gather the appends of this turn of the loop into one write at its end; those of an fsync
        log gather during its syncs."""
        if not channel.is_gathering and not channel.always_flushes:
            channel.is_gathering = True
            asyncio.get_running_loop().call_soon(self._end_gathering, channel)

    def _end_gathering(self, channel: AppendQueue) -> None:
        channel.is_gathering = False
        self._advance(channel)

    def _must_wait_for_flush(self, channel: AppendQueue, size: int) -> bool:
        """Return True if a batch must wait for the next group of an fsync log."""
        group = channel.open_group_bytes
        return (
            channel.always_flushes
            and group > 0
            and group + size > self._config.write_group_bytes_max
        )

    def _take_group(self, channel: AppendQueue) -> Group:
        """Prepare queued appends for one write: same segment, limited bytes. Rejected ones are
        answered and change nothing."""
        log, queue = channel.log, channel.queue
        wall_ms = self._runtime.clock.wall_ms()
        room, may_exceed = self._config.write_bytes_max, True  # a large batch is a group of its own
        if channel.always_flushes:
            room = self._config.write_group_bytes_max - channel.open_group_bytes
            may_exceed = not channel.open_group_bytes
        group: Group = []
        size = 0
        while queue:
            item = queue[0]
            if isinstance(item, ExclusiveWork) or not self._admission.is_admitted(channel, item):
                break
            if size + len(item.batches) > room and (group or not may_exceed):
                break
            try:
                write = self._prepare(log, item, wall_ms)
            except QuorumlogError as error:
                self._dequeue(channel)
                fail(item.waiter, error)
                continue
            except AlreadyStored as stored:
                self._dequeue(channel)
                self._answer_stored(channel, item, stored)
                continue
            if write is None:
                break
            self._dequeue(channel)
            group.append((item, write))
            size += write.size
        if log.failure is not None:
            assert not group, f"{log.name} failed while it prepared a group"
            self._fail_channel(channel, StorageError(log.failure.message))
        return group

    @staticmethod
    def _prepare(log: Log, item: QueuedAppend, wall_ms: int) -> LogWrite | None:
        if item.error is not None:
            raise item.error
        config = item.admitted_by or log.config
        batches = item.batches
        if config.log_append_time and item.origin is AppendOrigin.CLIENT:
            item.append_time_ms = wall_ms
            batches = stamp(batches, timestamp_ms=wall_ms)
        return log.prepare(
            batches,
            leader_epoch=item.leader_epoch,
            wall_ms=wall_ms,
            origin=item.origin,
            is_validated=item.admitted_by is not None,
        )

    def _dequeue(self, channel: AppendQueue) -> None:
        item = channel.queue.popleft()
        assert isinstance(item, QueuedAppend), f"{item} is no append"
        self._admission.leave(channel, item)

    def _write_inline(self, channel: AppendQueue) -> None:
        group = self._take_group(channel)
        if not group:
            return
        first = group[0][1]
        try:
            self._on_loop.write(first.file, first.position, _buffers(group))
        except WriteFailed as failure:
            self._group_failed(channel, group, failure)
        else:
            self._group_written(channel, group)

    async def _write_in_lane(self, channel: AppendQueue, group: Group | None = None) -> None:
        """Write a few groups, the first of which may be prepared already. While the lane writes
        one, the previous one is answered and the next one prepared."""
        group = self._take_group(channel) if group is None else group
        written: Group = []
        groups_left = GROUPS_A_TURN
        while group and groups_left:
            groups_left -= 1
            writing = self._scope.spawn(self._offload_write(channel, group), name="storage.write")
            behind: Group = []
            if not channel.always_flushes:
                await asyncio.sleep(0)  # the lane has the job now
                self._group_written(channel, written)
                behind = self._take_group(channel)
            failure = await writing
            if failure is not None:
                self._group_failed(channel, [*group, *behind], failure)
                group = behind = []
            written, group = group, behind
        self._group_written(channel, written)
        if group:
            self._owner.submit(partial(self._write_in_lane, channel, group))
        else:
            channel.is_busy = False
            self._advance(channel)

    async def _offload_write(self, channel: AppendQueue, group: Group) -> WriteFailed | None:
        first = group[0][1]
        unsynced_bytes_max = self._config.write_group_bytes_max if channel.always_flushes else 0
        job = partial(
            write_fully,
            first.file,
            first.position,
            _buffers(group),
            unsynced_bytes_max=unsynced_bytes_max,
        )
        try:
            await self._owner.offload(job)
        except WriteFailed as failure:
            return failure
        return None

    def _group_written(self, channel: AppendQueue, group: Group) -> None:
        if not group:
            return
        log = channel.log
        wants_flush = channel.always_flushes
        log_start_offset = Offset(log.log_start_offset)
        size = 0
        for item, write in group:
            log.complete(write)
            size += write.size
            appended = Appended(
                Offset(write.base_offset),
                Offset(write.next_offset),
                item.append_time_ms,
                log_start_offset,
            )
            if item.waits_for_flush:
                wants_flush = True
                notify = partial(answer, item.waiter, appended)
                channel.flush_waiters.append((write.next_offset, notify))
            elif not item.waiter.done():
                item.waiter.set_result(appended)
        channel.open_group_bytes += size
        self._space.count_written(size)
        if wants_flush:
            self._request_flush(channel)
        if channel not in self.dirty:
            self.dirty[channel] = None
            self.dirtied.set()
        channel.moved()

    def _answer_stored(
        self, channel: AppendQueue, item: QueuedAppend, stored: AlreadyStored
    ) -> None:
        """Answer a retried append with the offsets of its first attempt, once that is as durable as
        this one requires."""
        log, waiters = channel.log, channel.flush_waiters
        appended = Appended(
            Offset(stored.base_offset),
            Offset(stored.next_offset),
            NO_APPEND_TIME if item.append_time_ms < 0 else stored.timestamp,
            Offset(log.log_start_offset),
        )
        if not item.waits_for_flush or stored.next_offset <= log.flushed_end_offset:
            answer(item.waiter, appended, None)
            return
        end_offset = max(stored.next_offset, waiters[-1][0]) if waiters else stored.next_offset
        waiters.append((end_offset, partial(answer, item.waiter, appended)))
        self._request_flush(channel)

    def _group_failed(self, channel: AppendQueue, group: Group, failure: WriteFailed) -> None:
        for item, write in reversed(group):
            fail(item.waiter, channel.log.failed(write, failure))
        self._space.check()
        if channel.log.failure is not None:
            self._fail_channel(channel, StorageError(channel.log.failure.message))

    # --- flushes -------------------------------------------------------------------------------

    def flush(self, channel: AppendQueue) -> "asyncio.Future[None]":
        """Make everything completed so far durable."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log = channel.log
        if channel.is_gathering:
            self._advance(channel)
        if log.failure is not None:
            waiter.set_exception(StorageError(log.failure.message))
        elif not log.is_dirty:
            waiter.set_result(None)
        else:
            notify = partial(answer, waiter, None)
            channel.flush_waiters.append((log.log_end_offset, notify))
            self._request_flush(channel)
        return waiter

    def _request_flush(self, channel: AppendQueue) -> None:
        """Queue a flush, unless one is queued.

        Replicated logs are flushed in a lane of their own, many at once: with a second's worth of
        writes to sync, they would delay every group commit and every large write.
        """
        if channel.is_flush_queued or channel.is_exclusive:
            return  # exclusive work requests a flush at its end
        channel.is_flush_queued = True
        owner = self._owner if channel.always_flushes else self._flusher
        owner.submit(partial(self._run_flush, channel, owner))

    async def _run_flush(self, channel: AppendQueue, owner: LaneWorker) -> None:
        log = channel.log
        channel.is_flush_queued = False
        if log.failure is not None:
            self._fail_channel(channel, StorageError(log.failure.message))
            return
        if channel.is_flushing:  # its policy changed; the running flush requests another at its end
            return
        flush = log.begin_flush()
        channel.is_flushing = True
        # the group is closed; the next one may be written during the flush
        channel.open_group_bytes = 0
        self._advance(channel)
        try:
            await owner.flush(partial(perform_flush, self._runtime.files, flush))
        except OSError as error:
            channel.is_flushing = False
            if error.errno in OUT_OF_DESCRIPTORS:
                log.postpone_flush(flush)
                self._scope.spawn(self._flush_later(channel), name="storage.flush_later")
            else:
                self._fail_channel(channel, log.fail_flush(flush, error))
        else:
            channel.is_flushing = False
            self.flushed(channel, flush)
        self._advance(channel)

    async def _flush_later(self, channel: AppendQueue) -> None:
        """Retry a flush later, since no descriptor is available; its waiters continue to wait."""
        _LOG.warning("storage.flush_put_off log=%s reason=open_files", channel.log.name)
        channel.log.free_descriptors()
        await asyncio.sleep(LATER_MS / 1000)
        self._request_flush(channel)

    def flushed(self, channel: AppendQueue, flush: Flush) -> None:
        """Apply a performed flush."""
        channel.log.complete_flush(flush)
        waiters = channel.flush_waiters
        while waiters and waiters[0][0] <= flush.end_offset:
            waiters.popleft()[1](None)
        if waiters or (channel.always_flushes and channel.log.is_dirty):
            self._request_flush(channel)
        channel.moved()

    # --- exclusive work ------------------------------------------------------------------------

    def exclusive(
        self,
        channel: AppendQueue,
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
        channel.queue.append(ExclusiveWork(begin, end, waiter, changes, repeats))
        self._advance(channel)
        return waiter

    def barrier(self, channel: AppendQueue) -> "asyncio.Future[None]":
        """Return a future that completes when everything queued before has ended, failed or not."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_stopped:
            waiter.set_exception(Stopping("the data directory is closed"))
            return waiter
        channel.queue.append(barrier(waiter))
        self._advance(channel)
        return waiter

    async def _run_exclusive(
        self,
        channel: AppendQueue,
        work: ExclusiveWork,
        owner: LaneWorker,
        job: Callable[[], Any] | None = None,
    ) -> None:
        """Run exclusive work; `job` is the blocking part of an earlier attempt, to be repeated."""
        try:
            if job is None:
                job = work.begin()
            work.end(await owner.offload(job) if job is not None else None)
        except OSError as error:
            if work.repeats and error.errno in OUT_OF_DESCRIPTORS:
                again = partial(self._run_exclusive, channel, work, owner, job)
                self._scope.spawn(self._put_off(channel, owner, again), name="storage.put_off")
                return
            failure = channel.log.give_up(error)
            fail(work.waiter, failure)
            self._fail_channel(channel, failure)
        except QuorumlogError as error:
            fail(work.waiter, error)
        else:
            answer(work.waiter, None, None)
        channel.is_busy = channel.is_exclusive = False
        self._admission.resume(channel)
        self._flush_after_exclusive(channel)
        self._advance(channel)

    async def _put_off(self, channel: AppendQueue, owner: LaneWorker, job: Job) -> None:
        """Retry exclusive work later, since no descriptor is available; the log waits."""
        _LOG.warning("storage.put_off log=%s reason=open_files", channel.log.name)
        channel.log.free_descriptors()
        await asyncio.sleep(LATER_MS / 1000)
        owner.submit(job)

    def _flush_after_exclusive(self, channel: AppendQueue) -> None:
        """Request a flush for waiters that arrived during exclusive work; truncated offsets need
        none."""
        end_offset = channel.log.log_end_offset
        waiters = [(min(end, end_offset), answer) for end, answer in channel.flush_waiters]
        channel.flush_waiters = deque(waiters)
        if waiters:
            self._request_flush(channel)

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
        self._owner.submit(partial(self._run_plain, begin, end, before, waiter))
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
            result = await self._owner.offload(job) if job is not None else None
        except (OSError, QuorumlogError) as error:
            fail(waiter, error)
            return
        if end is not None:
            end(result)
        answer(waiter, None, None)

    async def stop(self) -> None:
        """Reject further work, finish queued work, end the workers; every log is closed already."""
        self._is_stopped = True
        await self._owner.stop()
        await self._flusher.stop()

    # --- start and failure ---------------------------------------------------------------------

    @property
    def is_started(self) -> bool:
        """True if anything may have changed since the opening: the clean-shutdown marker is
        removed."""
        return self._start is None

    def _has_started(self, channel: AppendQueue) -> bool:
        """Return True if appends may begin; otherwise start, and continue with this log
        afterwards."""
        if self._start is None:
            return True
        self._waiting_for_start[channel] = None
        if not self._is_start_queued:
            self._is_start_queued = True
            self._owner.submit(self._run_start)
        return False

    async def _run_start(self) -> None:
        assert self._start is not None, "started twice"
        failure: OSError | None = None
        try:
            await self._owner.offload(self._start)
            self._start = None
        except OSError as error:
            failure = error
        self._is_start_queued = False  # not before: logs that arrived during the start wait for it
        waiting, self._waiting_for_start = self._waiting_for_start, {}
        for channel in waiting:
            if failure is None:
                self._advance(channel)
            else:
                self._reject_queued(channel, StorageError(f"the data directory: {failure}"))

    def _check(self, channel: AppendQueue) -> None:
        if self.is_closing:
            raise Stopping("the data directory is closing")
        if channel.log.failure is not None:
            raise StorageError(channel.log.failure.message)

    def _fail_channel(self, channel: AppendQueue, failure: StorageError) -> None:
        """Fail everything queued after the log's disk failed or the log was closed, and run the
        callbacks."""
        self._reject_queued(channel, failure)
        while channel.flush_waiters:
            channel.flush_waiters.popleft()[1](failure)
        self.dirty.pop(channel, None)
        if not (channel.has_failed or channel.log.is_closed):
            channel.has_failed = True
            _LOG.error("storage.log_failed log=%s error=%s", channel.log.name, failure)
        callbacks, channel.on_failed = channel.on_failed, []
        for callback in callbacks:
            callback(failure)

    def _reject_queued(self, channel: AppendQueue, failure: StorageError) -> None:
        while channel.queue:
            item = channel.queue[0]
            if isinstance(item, ExclusiveWork):
                channel.queue.popleft()
            else:
                self._dequeue(channel)
            fail(item.waiter, failure)


def _buffers(group: Group) -> list[Buffer]:
    return [buffer for _, write in group for buffer in write.buffers]
