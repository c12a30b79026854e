"""The append queue of one log, and the admission of client batches to it.

The queue holds pending appends, exclusive work and callbacks: data of the `LogWriter`, which makes
the decisions.

Admission validates and converts client batches on the loop or in a lane, and counts the queued
bytes. An append keeps its position in the queue while a lane processes it: the order of a log is
the order of calls. A queued append uses the config at the time of admission, unless a config change
is queued before it: then it uses the changed one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from ...errors import QuorumlogError, StorageError
from ...ids import Offset
from ...runtime.ports import Buffer, Runtime, Scope
from ..append import AppendOrigin
from ..config import DirectoryConfig, FlushPolicy, LogConfig
from ..conversion import TooMuchWork, admit, growth_max, is_plain, is_worth_a_lane
from ..flush import Flush
from ..log import Log

NO_APPEND_TIME: Final = -1


@dataclass(init=False, slots=True)
class Appended:
    """The offsets of an append: [base_offset, next_offset). Immutable by convention. Each append
    makes one: a written `__init__` is compiled, that of a dataclass is not."""

    base_offset: Offset
    next_offset: Offset
    log_append_time_ms: int  # -1: records keep their producer's timestamps
    log_start_offset: Offset

    def __init__(
        self,
        base_offset: Offset,
        next_offset: Offset,
        log_append_time_ms: int,
        log_start_offset: Offset,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset


class AppendWaiter(Protocol):
    """The waiter of an append's result: a future, or its replacement on the hot path."""

    def done(self) -> bool: ...
    def set_result(self, result: Appended, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


@dataclass(slots=True, eq=False)
class QueuedAppend:
    """A queued append."""

    batches: Buffer
    leader_epoch: int
    origin: AppendOrigin
    waits_for_flush: bool
    waiter: AppendWaiter
    held_bytes: int = 0  # bytes counted by the Writer's limit; 0: it left the queue
    is_ready: bool = True  # False until admitted by the cpu lane
    is_postponed: bool = False  # goes to the lane after the exclusive work before it
    admitted_by: LogConfig | None = None  # config of the admission; None: not admitted yet
    error: Exception | None = None  # error of the admission
    append_time_ms: int = NO_APPEND_TIME


@dataclass(slots=True, eq=False)
class ExclusiveWork:
    """Work with exclusive access to a log: after everything queued before it, before everything
    queued after it.

    `begin` plans on the loop and returns the blocking part for the lane, or None without work;
    `end` applies the lane's result on the loop.
    """

    begin: Callable[[], Callable[[], Any] | None]
    end: Callable[[Any], None]
    waiter: "asyncio.Future[None]"
    changes: bool  # False: the close, which must not remove the clean-shutdown marker
    repeats: bool  # both parts may run again after a file could not be opened
    is_barrier: bool = False  # without work: it only waits for everything queued before it


@dataclass(slots=True, eq=False)
class AppendQueue:
    """The append queue of one log, with the state of its writes and flushes."""

    log: Log
    items: deque[QueuedAppend | ExclusiveWork] = field(default_factory=deque)
    queued_bytes: int = 0  # of the appends in `queue`
    is_busy: bool = False  # a job that changes the log is queued or running
    is_exclusive: bool = False  # ... and it is exclusive work: no flush may begin during it
    is_gathering: bool = False  # a small write was made in this turn of the loop
    is_flush_queued: bool = False
    is_flushing: bool = False
    has_failed: bool = False  # the failure was reported
    wanted: LogConfig | None = None  # the newest config; None: the log has it, or will soon
    is_configuring: bool = False  # exclusive work that applies `wanted` is queued or running
    is_config_waiting: bool = False  # a full disk delays `wanted`, and that was logged
    open_group_bytes: int = 0  # written since the last flush began
    flush_waiters: deque[tuple[int, Callable[[Exception | None], None]]] = field(
        default_factory=deque
    )  # (end offset, callback once everything below it is durable), ascending
    on_appended: list[Callable[[], None]] = field(default_factory=list)
    on_failed: list[Callable[[StorageError], None]] = field(default_factory=list)

    @property
    def always_flushes(self) -> bool:
        """True if every append requests a flush, as in an fsync log."""
        return self.log.config.flush_policy is FlushPolicy.FSYNC

    @property
    def is_settled(self) -> bool:
        """True if no queued or running work changes the log end."""
        return not self.items and not self.is_busy

    def moved(self) -> None:
        """Run the callbacks after the log end or the flushed end moved."""
        for callback in self.on_appended:
            callback()


def barrier(waiter: "asyncio.Future[None]") -> ExclusiveWork:
    """Return exclusive work that only completes `waiter` in its turn."""
    return ExclusiveWork(
        lambda: None, lambda _: None, waiter, changes=False, repeats=False, is_barrier=True
    )


def answer(
    waiter: "AppendWaiter | asyncio.Future[Any]", result: Any, error: Exception | None
) -> None:
    """Complete a waiter with a result or an error, unless it was cancelled."""
    if waiter.done():
        return  # its caller was cancelled
    if error is None:
        waiter.set_result(result)
    else:
        waiter.set_exception(error)


def fail(waiter: "AppendWaiter | asyncio.Future[Any]", error: Exception) -> None:
    """Complete a waiter with an error."""
    answer(waiter, None, error)


def release_after(work: "asyncio.Future[None]", begun: Sequence[Flush]) -> None:
    """Release the leases of flushes after exclusive work, including a failed one; the log reports
    the failure."""

    def ended(_: "asyncio.Future[None]") -> None:
        for flush in begun:
            flush.release()
        if not work.cancelled():
            work.exception()

    work.add_done_callback(ended)


LANE: Final = "cpu"


class AppendAdmission:
    """Admits the appends queued for the logs of one directory."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        *,
        config: DirectoryConfig,
        on_admitted: Callable[[AppendQueue], None],
    ) -> None:
        # of all queued appends; one in the lane counts with its largest possible result
        self.held_bytes = 0
        self._runtime = runtime
        self._scope = scope
        self._bytes_min = config.cpu_lane_bytes_min
        self._on_admitted = on_admitted

    def enter(self, queue: AppendQueue, item: QueuedAppend) -> None:
        """Queue an append. A client's append that needs the lane goes there at once, or after a
        config change queued before it."""
        queue.items.append(item)
        queue.queued_bytes += len(item.batches)
        self._hold(item, len(item.batches))
        if item.origin is not AppendOrigin.CLIENT:
            return
        if is_worth_a_lane(item.batches, queue.log.config, self._bytes_min):
            if queue.is_configuring:
                item.is_ready, item.is_postponed = False, True
            else:
                self._send_to_lane(queue, item)

    def leave(self, queue: AppendQueue, item: QueuedAppend) -> None:
        """Remove an append that left the queue from the counts."""
        queue.queued_bytes -= len(item.batches)
        self._hold(item, 0)

    def resume(self, queue: AppendQueue) -> None:
        """Send postponed appends to the lane after exclusive work has ended."""
        for item in queue.items:
            if isinstance(item, ExclusiveWork):
                if item.is_barrier:
                    continue
                return
            if item.is_postponed:
                item.is_postponed = False
                self._send_to_lane(queue, item)

    def is_admitted(self, queue: AppendQueue, item: QueuedAppend) -> bool:
        """Return True if the append may be prepared now. It is admitted here if that is quick, else
        sent to the lane. `error` is set if it is rejected."""
        if not item.is_ready:
            return False
        if item.admitted_by is not None or item.error is not None:
            return True
        config = queue.log.config
        if item.origin is not AppendOrigin.CLIENT or is_plain(item.batches, config):
            return True
        wall_ms = self._runtime.clock.wall_ms()
        try:
            batches = admit(item.batches, config, wall_ms=wall_ms, bytes_min=self._bytes_min)
        except TooMuchWork:
            self._send_to_lane(queue, item)
            return item.is_ready
        except QuorumlogError as error:
            item.error = error
        else:
            self._admitted(queue, item, batches, config)
        return True

    def _send_to_lane(self, queue: AppendQueue, item: QueuedAppend) -> None:
        item.is_ready = False
        config = queue.log.config
        try:
            self._hold(item, len(item.batches) + growth_max(item.batches, config))
        except QuorumlogError as error:  # malformed batches
            item.error, item.is_ready = error, True
            return
        self._scope.spawn(self._admit_in_lane(queue, item, config), name="storage.admit")

    async def _admit_in_lane(
        self, queue: AppendQueue, item: QueuedAppend, config: LogConfig
    ) -> None:
        size = len(item.batches)
        job = partial(admit, item.batches, config, wall_ms=self._runtime.clock.wall_ms())
        try:
            batches = await self._runtime.tasks.offload(LANE, job, cost_bytes=size)
        except QuorumlogError as error:
            batches, item.error = item.batches, error
        if item.held_bytes:  # otherwise the log failed before, and the append is answered
            self._admitted(queue, item, batches, config)
        item.is_ready = True
        self._on_admitted(queue)

    def _admitted(
        self, queue: AppendQueue, item: QueuedAppend, batches: Buffer, config: LogConfig
    ) -> None:
        """Apply the result of an admission to a queued append."""
        queue.queued_bytes += len(batches) - len(item.batches)
        item.batches, item.admitted_by = batches, config
        self._hold(item, len(batches))

    def _hold(self, item: QueuedAppend, size: int) -> None:
        self.held_bytes += size - item.held_bytes
        item.held_bytes = size
