"""Pending appends, the append queue of one log, and the admission of client batches to it.

A `PendingAppend` is an entry of its log's queue, and the handle of its caller. The log resolves it;
the caller awaits it, or sets a callback. For a callback, no future, task or timer is created: the
callbacks of the appends that completed in one iteration of the event loop run together in the next
one, when the high watermark has moved as well.

The queue holds pending appends, exclusive work and callbacks: data of the `LogWriter`, which makes
the decisions.

Admission validates and converts client batches on the loop or in a lane, and counts the queued
bytes. An append keeps its position in the queue while a lane processes it: the order of a log is
the order of calls. A queued append uses the config at the time of admission, unless a config change
is queued before it: then it uses the changed one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from ...errors import DiskFailed, QuorumlogError
from ...ids import Offset
from ...runtime.ports import Buffer, Runtime, Scope
from ..append import AppendOrigin
from ..config import DirectoryConfig, FlushPolicy, LogConfig
from ..conversion import TooMuchWork, admit, growth_max, is_plain, is_worth_a_lane
from ..flush import Flush
from ..log import Log
from ..producer_state import AppendPrecondition

NO_APPEND_TIME: Final = -1


@dataclass(slots=True)
class Appended:
    """The offsets of an append: [base_offset, next_offset). Not frozen: each append makes one."""

    base_offset: Offset
    next_offset: Offset
    log_append_time_ms: int  # -1: records keep their producer's timestamps
    log_start_offset: Offset


AppendOutcome: TypeAlias = Appended | QuorumlogError
"""The offsets of a stored append, or the reason why it failed."""

AppendCallback: TypeAlias = Callable[[AppendOutcome], None]

_LOG: Final = logging.getLogger("quorumlog.storage")


class CompletedAppends:
    """Completed appends with a callback to run in the next iteration of the event loop, or
    earlier."""

    __slots__ = ("_appends",)

    def __init__(self) -> None:
        self._appends: list[PendingAppend] = []

    def add(self, append: "PendingAppend") -> None:
        """Complete an append in the next iteration."""
        if not self._appends:
            asyncio.get_running_loop().call_soon(self.complete_all)
        self._appends.append(append)

    def complete_all(self) -> None:
        """Run the callbacks now. For a caller that no callback runs within."""
        appends, self._appends = self._appends, []
        for append in appends:
            try:
                append.complete()
            except Exception:  # a bug; the other appends complete nonetheless
                _LOG.exception("broker.append_not_told")


class PendingAppend:
    """An append from its call to its outcome.

    One caller at a time waits for it: a callback, or a task. A caller that stops waiting does not
    cancel the append. This class completes with the log; a subclass may wait for more.
    """

    __slots__ = (
        "_callback",
        "_completed",
        "_future",
        "admitted_by",
        "append_time_ms",
        "appended",
        "batches",
        "error",
        "held_bytes",
        "is_postponed",
        "is_ready",
        "leader_epoch",
        "origin",
        "precondition",
        "rejection",
        "waits_for_flush",
    )

    def __init__(
        self,
        completed: CompletedAppends,
        batches: Buffer,
        leader_epoch: int,
        origin: AppendOrigin,
        waits_for_flush: bool,
    ) -> None:
        self.batches = batches
        self.leader_epoch = leader_epoch
        self.origin = origin
        self.waits_for_flush = waits_for_flush
        self.held_bytes = 0  # bytes counted by the Writer's limit; 0: it left the queue
        self.is_ready = True  # False until admitted by the cpu lane
        self.is_postponed = False  # goes to the lane after the exclusive work before it
        self.admitted_by: LogConfig | None = None  # config of the admission; None: not admitted yet
        self.rejection: QuorumlogError | None = None  # by the admission, until its turn in the log
        self.precondition: AppendPrecondition | None = None  # checked at its turn in the log
        self.append_time_ms = NO_APPEND_TIME
        self.appended: Appended | None = None
        self.error: QuorumlogError | None = None
        self._completed = completed
        self._callback: AppendCallback | None = None
        self._future: asyncio.Future[None] | None = None  # of the task that awaits a change

    # --- the log ----------------------------------------------------------------------------------

    def resolve(self, appended: Appended, error: QuorumlogError | None) -> None:
        """Record that the log has stored the batches, or the failure of their flush."""
        if error is not None:
            self.fail(error)
            return
        self.appended = appended
        self._changed()

    def fail(self, error: QuorumlogError) -> None:
        """Record that the append has failed."""
        self.error = error
        self._changed()

    def _changed(self) -> None:
        """Wake the waiting task, or run the callback in the next iteration."""
        future = self._future
        if future is not None:
            if not future.done():
                future.set_result(None)
        elif self._callback is not None:
            self._completed.add(self)

    # --- the caller -------------------------------------------------------------------------------

    def outcome(self) -> AppendOutcome | None:
        """Return the outcome, or None if the append is pending."""
        return self.error if self.error is not None else self.appended

    def call_when_done(self, callback: AppendCallback) -> None:
        """Call `callback` once with the outcome, on the loop and never within this call. Only after
        `outcome` has returned None."""
        assert self._callback is None, "a callback is set already"
        self._callback = callback
        self.watch()

    def watch(self) -> None:
        """Wait for the event after the log's, if the outcome requires one."""

    def complete(self) -> None:
        """Call the callback if the outcome is known, otherwise wait for the next event."""
        callback = self._callback
        if callback is None:
            return  # the caller has stopped waiting
        outcome = self.outcome()
        if outcome is None:
            self.watch()
            return
        self._callback = None
        callback(outcome)

    def cancel(self) -> None:
        """Stop waiting, without a callback."""
        self._callback = self._future = None

    async def wait(self) -> Appended:
        """Return the offsets; raise the error of a failed append."""
        outcome = self.outcome()
        while outcome is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._future = future
            self.watch()
            try:
                await future
            except asyncio.CancelledError:
                self.cancel()
                raise
            self._future = None
            outcome = self.outcome()
        if isinstance(outcome, QuorumlogError):
            raise outcome.with_traceback(None)
        return outcome

    def __await__(self) -> Generator[Any, None, Appended]:
        return self.wait().__await__()


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
    items: deque[PendingAppend | ExclusiveWork] = field(default_factory=deque)
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
    unflushed_bytes: int = 0  # written since the last flush began
    flush_waiters: deque[tuple[int, Callable[[QuorumlogError | None], None]]] = field(
        default_factory=deque
    )  # (end offset, callback once everything below it is durable), ascending
    on_appended: list[Callable[[], None]] = field(default_factory=list)
    on_failed: list[Callable[[DiskFailed], None]] = field(default_factory=list)

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


def complete(waiter: "asyncio.Future[None]", error: Exception | None) -> None:
    """Complete the waiter of exclusive work or of a flush, unless its caller was cancelled."""
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)


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

    def enter(self, queue: AppendQueue, item: PendingAppend) -> None:
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

    def leave(self, queue: AppendQueue, item: PendingAppend) -> None:
        """Remove an append that left the queue from the counts, and drop its batches: its write has
        them, and the append may wait long for an acknowledgement."""
        queue.queued_bytes -= len(item.batches)
        self._hold(item, 0)
        item.batches = b""

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

    def is_admitted(self, queue: AppendQueue, item: PendingAppend) -> bool:
        """Return True if the append may be prepared now. It is admitted here if that is quick, else
        sent to the lane. `rejection` is set if it is rejected."""
        if not item.is_ready:
            return False
        if item.admitted_by is not None or item.rejection is not None:
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
            item.rejection = error
        else:
            self._admitted(queue, item, batches, config)
        return True

    def _send_to_lane(self, queue: AppendQueue, item: PendingAppend) -> None:
        item.is_ready = False
        config = queue.log.config
        try:
            self._hold(item, len(item.batches) + growth_max(item.batches, config))
        except QuorumlogError as error:  # malformed batches
            item.rejection, item.is_ready = error, True
            return
        self._scope.spawn(self._admit_in_lane(queue, item, config), name="storage.admit")

    async def _admit_in_lane(
        self, queue: AppendQueue, item: PendingAppend, config: LogConfig
    ) -> None:
        size = len(item.batches)
        job = partial(admit, item.batches, config, wall_ms=self._runtime.clock.wall_ms())
        try:
            batches = await self._runtime.tasks.offload(LANE, job, cost_bytes=size)
        except QuorumlogError as error:
            batches, item.rejection = item.batches, error
        if item.held_bytes:  # otherwise the log failed before, and the append is answered
            self._admitted(queue, item, batches, config)
        item.is_ready = True
        self._on_admitted(queue)

    def _admitted(
        self, queue: AppendQueue, item: PendingAppend, batches: Buffer, config: LogConfig
    ) -> None:
        """Apply the result of an admission to a queued append."""
        queue.queued_bytes += len(batches) - len(item.batches)
        item.batches, item.admitted_by = batches, config
        self._hold(item, len(batches))

    def _hold(self, item: PendingAppend, size: int) -> None:
        self.held_bytes += size - item.held_bytes
        item.held_bytes = size
