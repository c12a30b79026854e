"""Sends large file ranges in threads, so that the event loop continues on another processor.

The kernel's part of sending a megabyte takes longer than the rest of a response. A thread sends as
fast as the peer reads. If the peer is slow the thread returns the rest, and the loop sends it when
the socket has space, so that slow peers delay no others. Small buffers around the range are sent
with it.

The threads of the compiled sender need no interpreter lock. Without it a lane does the same at 1.5
times the cost.
"""

import asyncio
import errno
import logging
import select
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ..errors import Overloaded
from .files import RealFile
from .lanes import lane_limits
from .ports import Lease, Tasks
from .system import close_descriptor, duplicate, sendfile

try:
    from . import _sender
except ImportError:  # not compiled
    CAN_SEND_COMPILED = False
else:
    CAN_SEND_COMPILED = _sender.CAN_SEND

LANE: Final = "send"
THREAD_RANGE_MIN: Final = 256 << 10  # bytes of a range; below it the thread switch costs more
ADJACENT_MAX: Final = 4 << 10  # bytes before and after a large range that are sent with it
PIECE_MAX: Final = 1 << 20  # bytes in one sendfile
NO_SPACE_MS_MAX: Final = 2  # without space in the socket, before the thread returns
BYTES_PER_MS_MIN: Final = 64 << 10  # a peer below this average rate is slow

CAN_SEND_IN_THREADS: Final = sendfile is not None and hasattr(select, "poll")

# The compiled sender's error numbers for a range that its file or the page cache lacks.
_ENDS_EARLY: Final = -1
_IS_COLD: Final = -2
_log = logging.getLogger(__name__)


class QueuedRange:
    """A file range that is queued for sending."""

    __slots__ = ("file", "is_slow", "is_warm", "lease", "position", "size")

    def __init__(self, file: RealFile, lease: Lease, position: int, size: int) -> None:
        self.file = file
        self.lease = lease
        self.position = position
        self.size = size  # > 0; the remaining bytes
        self.is_warm = False  # probed, or read in the lane
        self.is_slow = False  # the peer was too slow for a thread


def queue_front(
    queue: Iterable[memoryview | QueuedRange],
) -> tuple[list[memoryview], QueuedRange | None, list[memoryview]]:
    """Return the parts of the queue's front: buffers before the first range, the range, buffers
    after it.

    The buffers before are limited in size. The buffers after are included if they are small and no
    range follows, with which they would be sent.
    """
    head: list[memoryview] = []
    tail: list[memoryview] = []
    found: QueuedRange | None = None
    left = ADJACENT_MAX
    for each in queue:
        if isinstance(each, memoryview):
            left -= each.nbytes
            if left < 0:
                return head, found, []
            (head if found is None else tail).append(each)
        elif found is not None:
            return head, found, []
        else:
            found, left = each, ADJACENT_MAX
    return head, found, tail


class RangeResult(NamedTuple):
    """The result of sending a range."""

    size: int  # sent bytes, including buffers around the range
    error: Exception | None = None  # ends the connection
    is_cold: bool = False  # nothing was sent: the range is not in the page cache


RangeDone: TypeAlias = Callable[[RangeResult], None]
"""Called once, on the loop, and never inside `begin`."""


class PendingRange(Protocol):
    """A range that is being sent."""

    def stop(self) -> None:
        """Stop sending, because the connection has ended."""


class RangeSender(Protocol):
    """Threads that send ranges, for all connections of a network."""

    takes_bytes: bool  # also buffers around a range; checks whether it is cached

    def now(
        self, socket: int, item: QueuedRange, size: int, head: bytes, tail: bytes
    ) -> RangeResult:
        """Send buffers, the first `size` bytes of a range, and buffers, while the socket has space.

        Runs on the calling thread. Requires `takes_bytes`.
        """

    def begin(
        self, socket: int, item: QueuedRange, head: bytes, tail: bytes, done: RangeDone
    ) -> PendingRange | None:
        """Send buffers, a range and buffers in a thread. Return None if no descriptor is left for
        it."""

    async def close(self) -> None:
        """Wait for stopped ranges to end. All connections have ended."""


def new_range_sender(tasks: Tasks) -> RangeSender:
    """Return the best available implementation."""
    return CompiledRangeSender() if CAN_SEND_COMPILED else LaneRangeSender(tasks)


# --- compiled ------------------------------------------------------------------------------------


class CompiledRangeSender:
    takes_bytes = True

    def __init__(self) -> None:
        self._sender: _sender.Sender | None = None  # created for the first range
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[int, tuple[Lease, RangeDone, RealFile]] = {}
        self._is_idle: asyncio.Future[None] | None = None  # close() waits for it

    def now(
        self, socket: int, item: QueuedRange, size: int, head: bytes, tail: bytes
    ) -> RangeResult:
        """Send at once; see `RangeSender.now`."""
        file = item.file
        count, fault = _sender.send_now(
            socket, file.descriptor, item.position, size, head, tail, not item.is_warm
        )
        if not fault:
            return RangeResult(count)
        return (
            RangeResult(count, None, True)
            if fault == _IS_COLD
            else RangeResult(count, _failure(fault, file))
        )

    def begin(
        self, socket: int, item: QueuedRange, head: bytes, tail: bytes, done: RangeDone
    ) -> PendingRange | None:
        """Start a range; see `RangeSender.begin`."""
        file, probes = item.file, not item.is_warm
        try:
            sender = self._sender or self._made()
        except OSError:
            return None
        number = sender.begin(socket, file.descriptor, item.position, item.size, head, tail, probes)
        if number < 0:
            return None
        self._under_way[number] = (file.lease(), done, file)
        return _Stop(sender, number)

    async def close(self) -> None:
        """Wait for stopped ranges."""
        if self._under_way:
            self._is_idle = self._loop.create_future()
            await self._is_idle
        if self._sender is not None:
            self._loop.remove_reader(self._sender.descriptor)
            self._sender.close()
            self._sender = None

    def _made(self) -> "_sender.Sender":
        sender = self._sender = _sender.Sender(
            lane_limits(LANE).threads, PIECE_MAX, NO_SPACE_MS_MAX, BYTES_PER_MS_MIN
        )
        self._loop.add_reader(sender.descriptor, self._on_ended)
        return sender

    def _on_ended(self) -> None:
        assert self._sender is not None, "ranges ended without a sender"
        for number, count, fault, is_cold in self._sender.ended():
            lease, done, file = self._under_way.pop(number)
            lease.release()
            try:
                done(RangeResult(count, _failure(fault, file) if fault else None, is_cold))
            except Exception:  # a bug: other connections are still informed
                _log.exception("bytes.range_not_told")
        if self._is_idle is not None and not self._under_way and not self._is_idle.done():
            self._is_idle.set_result(None)


def _failure(fault: int, file: RealFile) -> OSError:
    if fault == _ENDS_EARLY:
        return _ends_early(file.path)
    return OSError(fault, f"{file.path}: sending failed")


class _Stop:
    __slots__ = ("_number", "_sender")

    def __init__(self, sender: "_sender.Sender", number: int) -> None:
        self._sender = sender
        self._number = number

    def stop(self) -> None:
        self._sender.stop(self._number)


# --- in a lane -----------------------------------------------------------------------------------


class LaneRangeSender:
    """The implementation in Python, which sends only ranges."""

    takes_bytes = False

    def now(
        self, socket: int, item: QueuedRange, size: int, head: bytes, tail: bytes
    ) -> RangeResult:
        """Not available in a lane."""
        raise AssertionError("RangeSender.now requires takes_bytes")

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._running: dict[asyncio.Task[Any], None] = {}

    def begin(
        self, socket: int, item: QueuedRange, head: bytes, tail: bytes, done: RangeDone
    ) -> PendingRange | None:
        """Start a range; see `RangeSender.begin`."""
        assert not head + tail, f"{len(head) + len(tail)} bytes around a range in a lane"
        try:
            job = RangeJob(socket, item.file, item.position, item.size)
        except OSError:
            return None
        task = asyncio.get_running_loop().create_task(self._send(job, item.file.lease(), done))
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return job

    async def close(self) -> None:
        """Do nothing: closing the lanes waits for the jobs."""

    async def _send(self, job: "RangeJob", lease: Lease, done: RangeDone) -> None:
        # The job continues after the connection has ended.
        try:
            sent = RangeResult(await self._tasks.offload(LANE, job.run))
        except Overloaded:
            job.give_up()
            sent = RangeResult(0)
        except Exception as error:
            sent = RangeResult(0, error)
        finally:
            lease.release()
        done(sent)


class RangeJob:
    """One range that is being sent. `run` is for a thread of the lane, the rest for the loop."""

    __slots__ = ("_descriptor", "_file", "_position", "_size", "is_over")

    def __init__(self, descriptor: int, file: RealFile, position: int, size: int) -> None:
        # A duplicate: the connection may end during the job and its number be reused.
        self._descriptor = duplicate(descriptor)
        self._file = file  # its owner holds a lease on it
        self._position = position
        self._size = size
        self.is_over = False  # the connection has ended: send no more

    def run(self) -> int:
        """Send the range and return the number of sent bytes. Raise OSError."""
        at, end = self._position, self._position + self._size
        began_ms = monotonic() * 1_000
        try:
            while at < end and not self.is_over:
                try:
                    count = self._file.send_to(self._descriptor, at, min(end - at, PIECE_MAX))
                except (BlockingIOError, InterruptedError):
                    allowed_ms = NO_SPACE_MS_MAX + (at - self._position) // BYTES_PER_MS_MIN
                    if monotonic() * 1_000 - began_ms > allowed_ms or not self._has_room():
                        break
                    continue
                if not count:
                    raise _ends_early(self._file.path)
                at += count
        finally:
            close_descriptor(self._descriptor)
        return at - self._position

    def stop(self) -> None:
        """Stop sending."""
        self.is_over = True

    def give_up(self) -> None:
        """Close the descriptor of a job that will not run."""
        close_descriptor(self._descriptor)

    def _has_room(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(NO_SPACE_MS_MAX))


def _ends_early(path: str) -> OSError:
    return OSError(errno.EIO, f"{path}: ends before the end of the queued range")
