"""The way to one log: what waits for it, and who is told of it.

Data of the `Writer`; the decisions are there.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ...errors import StorageError
from ...ids import Offset
from ...runtime.ports import Buffer
from ..config import FlushPolicy, LogConfig
from ..log import Log
from ..origin import Origin
from ..segments.flushes import Flush

NO_APPEND_TIME: Final = -1


@dataclass(init=False, slots=True)
class Appended:
    """Where an append lies: offsets [base_offset, next_offset). Changed by nobody; each append
    makes one, and an `__init__` of its own is compiled."""

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


class Waiter(Protocol):
    """Who waits for an append's answer: a future, or what stands in for one on the hot path."""

    def done(self) -> bool: ...
    def set_result(self, result: Appended, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append on its way through its channel."""

    batches: Buffer
    leader_epoch: int
    origin: Origin
    waits_for_flush: bool
    waiter: Waiter
    held_bytes: int = 0  # what it counts for in the Writer's bound; 0: it left the queue
    is_ready: bool = True  # False until the cpu lane has admitted it
    is_postponed: bool = False  # it goes to the lane after the exclusive work before it
    admitted_by: LogConfig | None = None  # the config that `ingest.admit` went by; None: not yet
    error: Exception | None = None  # what that found
    append_time_ms: int = NO_APPEND_TIME


@dataclass(slots=True, eq=False)
class Exclusive:
    """Work on a log that has the log to itself: after what was queued before it, before the rest.

    `begin` plans on the loop and returns the waiting part for the lane, or None when there is
    nothing to do; `end` takes the lane's result on the loop.
    """

    begin: Callable[[], Callable[[], Any] | None]
    end: Callable[[Any], None]
    waiter: "asyncio.Future[None]"
    changes: bool  # False: the close, which must not take the clean marker away
    repeats: bool  # both parts may be done again after no file could be opened
    is_barrier: bool = False  # nothing is to be done: everything before it has ended, is all


@dataclass(slots=True, eq=False)
class Channel:
    """The way to one log."""

    log: Log
    queue: deque[PendingAppend | Exclusive] = field(default_factory=deque)
    queued_bytes: int = 0  # of the appends in `queue`
    is_busy: bool = False  # a job that changes the log is queued or running
    is_exclusive: bool = False  # ... and it is exclusive work: no flush may begin beside it
    is_gathering: bool = False  # a small write was made in this turn of the loop
    is_flush_queued: bool = False
    is_flushing: bool = False
    has_failed: bool = False  # the failure was reported
    wanted: LogConfig | None = None  # the newest config; None: the log has it, or will soon
    is_configuring: bool = False  # exclusive work that takes `wanted` is queued or running
    is_config_waiting: bool = False  # a full disk holds `wanted` up, which was said
    open_group_bytes: int = 0  # written since the last flush began
    flush_waiters: deque[tuple[int, Callable[[Exception | None], None]]] = field(
        default_factory=deque
    )  # (end offset, to be told once everything below it is durable), ascending
    on_appended: list[Callable[[], None]] = field(default_factory=list)
    on_failed: list[Callable[[StorageError], None]] = field(default_factory=list)

    @property
    def always_flushes(self) -> bool:
        """Every append of an fsync log asks for a flush."""
        return self.log.config.flush_policy is FlushPolicy.FSYNC

    @property
    def is_settled(self) -> bool:
        """Whether nothing is queued or under way that changes the log's end."""
        return not self.queue and not self.is_busy

    def moved(self) -> None:
        """Tell who asked that the log's end or flushed end moved."""
        for callback in self.on_appended:
            callback()


def barrier(waiter: "asyncio.Future[None]") -> Exclusive:
    """Return what has `waiter` done when it is its turn, and does nothing."""
    return Exclusive(
        lambda: None, lambda _: None, waiter, changes=False, repeats=False, is_barrier=True
    )


def answer(waiter: "Waiter | asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    """Tell who waits, if anybody does."""
    if waiter.done():
        return  # its caller was cancelled
    if error is None:
        waiter.set_result(result)
    else:
        waiter.set_exception(error)


def fail(waiter: "Waiter | asyncio.Future[Any]", error: Exception) -> None:
    """Tell who waits that it failed."""
    answer(waiter, None, error)


def release_after(work: "asyncio.Future[None]", begun: Sequence[Flush]) -> None:
    """Give back what the flushes of exclusive work hold, also when it fails; the failure is the
    log's, which tells of it."""

    def ended(_: "asyncio.Future[None]") -> None:
        for flush in begun:
            flush.release()
        if not work.cancelled():
            work.exception()

    work.add_done_callback(ended)
