"""A large range of a file, sent by a thread: the loop goes on meanwhile, on another processor.

The kernel's part of sending a megabyte takes longer than all the rest of an answer. A thread that
sends it works as fast as the peer takes it; where that is slow, it gives back what is left, and the
loop sends that when there is room, so that who reads slowly, or not at all, holds up nobody.
"""

import errno
import select
from time import monotonic
from typing import Final

from .files import RealFile
from .ports import Lease
from .system import close_descriptor, duplicate, sendfile

LANE: Final = "send"
ASIDE_MIN: Final = 256 << 10  # bytes of a range; below it the way to the thread and back costs more
PIECE_MAX: Final = 1 << 20  # bytes in one sendfile
PATIENCE_MS: Final = 2  # without room in the socket, before the thread gives up
BYTES_PER_MS_MIN: Final = 64 << 10  # a peer that takes less, on the average, is slow as well

CAN_SEND_ASIDE: Final = sendfile is not None and hasattr(select, "poll")


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
                    raise OSError(errno.EIO, f"{self._file.path} ends before position {at}")
                at += count
        finally:
            close_descriptor(self._descriptor)
        return at - self._position

    def give_up(self) -> None:
        """Nobody will run it."""
        close_descriptor(self._descriptor)

    def _has_room(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(PATIENCE_MS))


def aside_job(descriptor: int, item: WaitingRange) -> AsideJob | None:
    """Return the job of sending a range; None where there is no descriptor left for it, which the
    loop does not need."""
    try:
        return AsideJob(descriptor, item.file, item.position, item.size)
    except OSError:
        item.is_slow = True
        return None
