"""A large range of a file, sent by a thread: the loop goes on meanwhile, on another processor.

The kernel's part of sending a megabyte takes longer than all the rest of an answer. A thread that
sends it works as fast as the peer takes it; where that is slow, it gives back what is left, and the
loop sends that when there is room, so that who reads slowly, or not at all, holds up nobody. What
surrounds the range in an answer goes the same way, so that nobody is woken for it alone.

Where the compiled sender is there, its threads need no interpreter. Without it a lane does the
same, and costs half as much again.
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
except ImportError:  # it was not compiled
    CAN_SEND_COMPILED = False
else:
    CAN_SEND_COMPILED = _sender.CAN_SEND

LANE: Final = "send"
ASIDE_MIN: Final = 256 << 10  # bytes of a range; below it the way to the thread and back costs more
AROUND_MAX: Final = 4 << 10  # bytes in front of a large range, and behind it, that go with it
PIECE_MAX: Final = 1 << 20  # bytes in one sendfile
PATIENCE_MS: Final = 2  # without room in the socket, before the thread gives up
BYTES_PER_MS_MIN: Final = 64 << 10  # a peer that takes less, on the average, is slow as well

CAN_SEND_ASIDE: Final = sendfile is not None and hasattr(select, "poll")

# The compiled sender's words for a range that its file or the page cache does not have.
_ENDS_EARLY: Final = -1
_IS_COLD: Final = -2
_log = logging.getLogger(__name__)


class WaitingRange:
    """Bytes of a file that wait to be sent."""

    __slots__ = ("file", "is_slow", "is_warm", "lease", "position", "size")

    def __init__(self, file: RealFile, lease: Lease, position: int, size: int) -> None:
        self.file = file
        self.lease = lease
        self.position = position
        self.size = size  # > 0; what is left of it
        self.is_warm = False  # probed, or read in the lane
        self.is_slow = False  # the peer did not keep up with a thread


def front_of(
    queue: Iterable[memoryview | WaitingRange],
) -> tuple[list[memoryview], WaitingRange | None, list[memoryview]]:
    """Return the range in front of a queue, where little is before it, and that; and what is behind
    it, where that is little and no range follows, which it would go with."""
    head: list[memoryview] = []
    tail: list[memoryview] = []
    found: WaitingRange | None = None
    left = AROUND_MAX
    for each in queue:
        if isinstance(each, memoryview):
            left -= each.nbytes
            if left < 0:
                return head, found, []
            (head if found is None else tail).append(each)
        elif found is not None:
            return head, found, []
        else:
            found, left = each, AROUND_MAX
    return head, found, tail


class Sent(NamedTuple):
    """How the sending of a range ended."""

    size: int  # bytes that went, of what surrounds the range too
    error: Exception | None = None  # that ends the connection
    is_cold: bool = False  # nothing went: the page cache does not have the range


Told: TypeAlias = Callable[[Sent], None]
"""Called once, on the loop, and never from within `begin`."""


class Under(Protocol):
    """A range on its way."""

    def stop(self) -> None:
        """The connection has ended: send no more."""


class Aside(Protocol):
    """Threads that send ranges, for all connections of a network."""

    takes_bytes: bool  # ... with what surrounds a range, and looks whether it is cached

    def now(self, socket: int, item: WaitingRange, size: int, head: bytes, tail: bytes) -> Sent:
        """Send bytes, the first `size` of a range and bytes as far as there is room, by the calling
        thread. Only where it `takes_bytes`."""

    def begin(
        self, socket: int, item: WaitingRange, head: bytes, tail: bytes, told: Told
    ) -> Under | None:
        """Send bytes, a range and bytes; None where there is no descriptor left for it, which the
        loop does not need."""

    async def close(self) -> None:
        """Wait for what is under way, which was stopped; all connections have ended."""


def threads_aside(tasks: Tasks) -> Aside:
    """Return the best that is here."""
    return CompiledAside() if CAN_SEND_COMPILED else LaneAside(tasks)


# --- compiled ------------------------------------------------------------------------------------


class CompiledAside:
    """Threads of the compiled sender."""

    takes_bytes = True

    def __init__(self) -> None:
        self._sender: _sender.Sender | None = None  # made for the first range
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[int, tuple[Lease, Told, RealFile]] = {}
        self._is_idle: asyncio.Future[None] | None = None  # who closes waits for it

    def now(self, socket: int, item: WaitingRange, size: int, head: bytes, tail: bytes) -> Sent:
        """See `Aside`."""
        file = item.file
        count, fault = _sender.send_now(
            socket, file.descriptor, item.position, size, head, tail, not item.is_warm
        )
        if not fault:
            return Sent(count)
        return Sent(count, None, True) if fault == _IS_COLD else Sent(count, _failure(fault, file))

    def begin(
        self, socket: int, item: WaitingRange, head: bytes, tail: bytes, told: Told
    ) -> Under | None:
        """See `Aside`."""
        file, probes = item.file, not item.is_warm
        try:
            sender = self._sender or self._made()
        except OSError:
            return None
        number = sender.begin(socket, file.descriptor, item.position, item.size, head, tail, probes)
        if number < 0:
            return None
        self._under_way[number] = (file.lease(), told, file)
        return _Stop(sender, number)

    async def close(self) -> None:
        """See `Aside`."""
        if self._under_way:
            self._is_idle = self._loop.create_future()
            await self._is_idle
        if self._sender is not None:
            self._loop.remove_reader(self._sender.descriptor)
            self._sender.close()
            self._sender = None

    def _made(self) -> "_sender.Sender":
        sender = self._sender = _sender.Sender(
            lane_limits(LANE).threads, PIECE_MAX, PATIENCE_MS, BYTES_PER_MS_MIN
        )
        self._loop.add_reader(sender.descriptor, self._on_ended)
        return sender

    def _on_ended(self) -> None:
        assert self._sender is not None, "ranges have ended, and nothing sends any"
        for number, count, fault, is_cold in self._sender.ended():
            lease, told, file = self._under_way.pop(number)
            lease.release()
            try:
                told(Sent(count, _failure(fault, file) if fault else None, is_cold))
            except Exception:  # a bug: other connections are told all the same
                _log.exception("bytes.range_not_told")
        if self._is_idle is not None and not self._under_way and not self._is_idle.done():
            self._is_idle.set_result(None)


def _failure(fault: int, file: RealFile) -> OSError:
    if fault == _ENDS_EARLY:
        return _ends_early(file.path)
    return OSError(fault, f"sending {file.path} failed")


class _Stop:
    __slots__ = ("_number", "_sender")

    def __init__(self, sender: "_sender.Sender", number: int) -> None:
        self._sender = sender
        self._number = number

    def stop(self) -> None:
        self._sender.stop(self._number)


# --- in a lane -----------------------------------------------------------------------------------


class LaneAside:
    """The same in plain Python; it sends ranges alone."""

    takes_bytes = False

    def now(self, socket: int, item: WaitingRange, size: int, head: bytes, tail: bytes) -> Sent:
        """See `Aside`."""
        raise AssertionError("a lane has nothing to send with on the caller's thread")

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._running: dict[asyncio.Task[Any], None] = {}

    def begin(
        self, socket: int, item: WaitingRange, head: bytes, tail: bytes, told: Told
    ) -> Under | None:
        """See `Aside`."""
        assert not head + tail, "a lane sends ranges alone"
        try:
            job = AsideJob(socket, item.file, item.position, item.size)
        except OSError:
            return None
        task = asyncio.get_running_loop().create_task(self._send(job, item.file.lease(), told))
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return job

    async def close(self) -> None:
        """See `Aside`; who closes the lanes waits for them."""

    async def _send(self, job: "AsideJob", lease: Lease, told: Told) -> None:
        # The job goes on when the connection ends meanwhile.
        try:
            sent = Sent(await self._tasks.offload(LANE, job.run))
        except Overloaded:
            job.give_up()
            sent = Sent(0)
        except Exception as error:
            sent = Sent(0, error)
        finally:
            lease.release()
        told(sent)


class AsideJob:
    """One range on its way. `run` is for a thread of the lane; the rest for the loop's."""

    __slots__ = ("_descriptor", "_file", "_position", "_size", "is_over")

    def __init__(self, descriptor: int, file: RealFile, position: int, size: int) -> None:
        # Of its own: the connection may end meanwhile, and the number be another one's.
        self._descriptor = duplicate(descriptor)
        self._file = file  # its owner holds a lease on it
        self._position = position
        self._size = size
        self.is_over = False  # the connection has ended: send no more

    def run(self) -> int:
        """Send; returns how many bytes went. Raises OSError."""
        at, end = self._position, self._position + self._size
        began_ms = monotonic() * 1_000
        try:
            while at < end and not self.is_over:
                try:
                    count = self._file.send_to(self._descriptor, at, min(end - at, PIECE_MAX))
                except (BlockingIOError, InterruptedError):
                    allowed_ms = PATIENCE_MS + (at - self._position) // BYTES_PER_MS_MIN
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
        """See `Under`."""
        self.is_over = True

    def give_up(self) -> None:
        """Nobody will run it."""
        close_descriptor(self._descriptor)

    def _has_room(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(PATIENCE_MS))


def _ends_early(path: str) -> OSError:
    return OSError(errno.EIO, f"{path} ends before a range of it that is to be sent")
