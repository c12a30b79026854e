"""What this operating system offers to files, and what stands in where it offers less.

Chosen once, at import, by what is there rather than by the system's name. A second home of `os`
beside `files`; the only one of `fcntl` and `msvcrt`.

| Linux | where it is missing |
|---|---|
| pwritev, preadv | pwrite and pread of each buffer; on Windows a seek, then a read or write |
| RWF_NOWAIT | nobody knows what the page cache holds: all such reads go through the lane |
| fdatasync | macOS: F_FULLFSYNC, as its fsync stops at the drive's cache; elsewhere fsync |
| fsync of a folder | macOS: F_FULLFSYNC; Windows: nothing, it opens none, and NTFS journals names |
| flock | msvcrt.locking of the file's first byte |
| sendfile | None: the caller reads and sends |
| boot_id of /proc | a value per process: each start counts as a boot, the safe guess |
| names of threads in /proc | none are known: nobody waits for those that are not Python's |

Tested on Linux, the stand-ins too, by taking away what other systems lack.
"""

import errno
import os
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any, ClassVar, Final, TypeAlias

from .ports import Buffer

Write: TypeAlias = Callable[[int, Sequence[Buffer], int], int]
Sendfile: TypeAlias = Callable[[int, int, int, int], int]

OPEN_FLAGS: Final[int] = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
)
"""For every open: children inherit no descriptor, and no byte is translated."""

CAN_PROBE: Final = hasattr(os, "RWF_NOWAIT") and hasattr(os, "preadv")
"""Whether the page cache can be asked what it holds."""

EXIT_SOFTWARE: Final = 70
"""Exit status "internal software error" of sysexits, which Windows does not name."""

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_THREADS: Final = "/proc/self/task"
_LISTINGS: Final = 100
_PROCESS_ID: Final = os.urandom(16).hex()  # stands in for a boot id

# --- bytes at a position -------------------------------------------------------------------------

# A seek and what follows it must not be parted by another thread. A few locks for all files, by
# descriptor: none to make or to forget when a file is opened or closed.
_TURNS: Final = tuple(Lock() for _ in range(64))


def _seek_and_read(descriptor: int, size: int, position: int) -> bytes:
    with _TURNS[descriptor % len(_TURNS)]:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, size)


def _seek_and_write(descriptor: int, buffer: Buffer, position: int) -> int:
    with _TURNS[descriptor % len(_TURNS)]:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, buffer)


read_at: Final[Callable[[int, int, int], bytes]] = getattr(os, "pread", _seek_and_read)
"""Read up to `size` bytes of a descriptor at a position, without moving anybody's position."""

_write_one: Final[Callable[[int, Buffer, int], int]] = getattr(os, "pwrite", _seek_and_write)


def _write_each(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write buffer after buffer; return the bytes written, the error only when there are none."""
    written = 0
    for buffer in buffers:
        size = memoryview(buffer).nbytes
        try:
            count = _write_one(descriptor, buffer, position + written)
        except OSError:
            if written:
                return written  # the caller goes on from there and meets the error again
            raise
        written += count
        if count < size:
            break
    return written


write_at: Final[Write] = getattr(os, "pwritev", _write_each)
"""Write buffers to a descriptor at a position; return how many bytes, maybe fewer than given."""


def read_into(descriptor: int, view: memoryview, position: int) -> int:
    """Fill a buffer from a position; return how many bytes, maybe fewer, 0 at the file's end."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], position)
    data = read_at(descriptor, len(view), position)
    view[: len(data)] = data
    return len(data)


def read_resident(descriptor: int, view: bytearray | memoryview, position: int) -> int:
    """Fill a buffer by what the page cache holds; BlockingIOError when that is nothing.

    Only where `CAN_PROBE`. A system call that the file system does not know is OSError with
    EOPNOTSUPP or ENOSYS.
    """
    return os.preadv(descriptor, [view], position, os.RWF_NOWAIT)


ResidentRead: TypeAlias = Callable[[int, int, int], bytes]


@cache
def resident_read() -> ResidentRead | None:
    """Return a `read_resident` of (descriptor, size, position) that gives bytes; None where there
    is no such call.

    `os` offers the flag only with buffers, whose content would have to be copied into the bytes
    that readers are given: half of the time of a large read. So the kernel fills the new bytes
    object, as it does for `os.pread`. Costs an import of ctypes at the first call.
    """
    if not CAN_PROBE:
        return None
    import ctypes

    class Span(ctypes.Structure):  # struct iovec
        _fields_: ClassVar = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]

    try:
        fill = ctypes.CDLL(None, use_errno=True).preadv2  # runs without the GIL
    except AttributeError:
        return None  # a C library without it
    if ctypes.sizeof(ctypes.c_long) < 8:
        return None  # positions of this call end at 2 GiB here
    fill.argtypes = [ctypes.c_int, ctypes.POINTER(Span), ctypes.c_int, ctypes.c_long, ctypes.c_int]
    fill.restype = ctypes.c_ssize_t
    new = ctypes.pythonapi.PyBytes_FromStringAndSize
    new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_ssize_t], ctypes.py_object
    start_of = ctypes.pythonapi.PyBytes_AsString
    start_of.argtypes, start_of.restype = [ctypes.py_object], ctypes.c_void_p

    def read(descriptor: int, size: int, position: int) -> bytes:
        content: bytes = new(None, size)  # nobody else sees it before it is filled
        span = Span(start_of(content), size)
        filled = fill(descriptor, ctypes.byref(span), 1, position, os.RWF_NOWAIT)
        if filled < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return content if filled == size else content[:filled]

    return read


duplicate: Final = os.dup
close_descriptor: Final = os.close

sendfile: Final[Sendfile | None] = getattr(os, "sendfile", None)
"""Send (socket, file, position, size) without a copy in Python; None where there is no such call.
Windows' sockets are no descriptors, so that nothing of `os` could stand in."""

# --- durability ----------------------------------------------------------------------------------


def _full_sync(descriptor: int) -> None:
    """Flush to the medium: macOS's fsync stops at the drive's cache, which a power cut empties."""
    import fcntl

    command: int = fcntl.F_FULLFSYNC  # type: ignore[attr-defined]  # macOS alone has it
    try:
        fcntl.fcntl(descriptor, command)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
            raise
        os.fsync(descriptor)  # a network volume, which cannot be told more


def _sync_call() -> Callable[[int], None]:
    try:
        import fcntl
    except ImportError:
        return os.fsync
    if hasattr(fcntl, "F_FULLFSYNC"):
        return _full_sync
    fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
    return fdatasync


sync_data: Final[Callable[[int], None]] = _sync_call()
"""Make a file's data and size durable."""


_sync_folder: Final[Callable[[int], None]] = _full_sync if sync_data is _full_sync else os.fsync


def sync_names(folder: str) -> None:
    """Make the names in a folder durable; nothing where folders cannot be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)
    try:
        _sync_folder(descriptor)
    finally:
        os.close(descriptor)


# --- the rest ------------------------------------------------------------------------------------


def lock_or_refuse(descriptor: int) -> None:
    """Lock an open file until its descriptor is closed; BlockingIOError when another has it."""
    try:
        import fcntl
    except ImportError:
        _lock_first_byte(descriptor)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_first_byte(descriptor: int) -> None:
    import msvcrt

    windows: Any = msvcrt  # typed as empty elsewhere
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    except PermissionError as error:  # what Windows calls a lock of another open
        raise BlockingIOError(errno.EWOULDBLOCK, f"the file is locked ({error})") from error


def space(folder: str) -> tuple[int, int]:
    """Return (what an unprivileged writer may still use, all) bytes of the folder's device."""
    statvfs = getattr(os, "statvfs", None)
    if statvfs is not None:
        found = statvfs(folder)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    import shutil  # which knows Windows' call; it loads every archive format

    usage = shutil.disk_usage(folder)
    return usage.free, usage.total


def boot_id() -> str:
    """What changes with the machine's boot; where the system does not tell, with the process."""
    try:
        descriptor = os.open(_BOOT_ID, os.O_RDONLY | OPEN_FLAGS)
    except OSError:  # no such file, or a sandbox that does not show it
        return _PROCESS_ID
    try:
        return os.read(descriptor, 64).decode("ascii").strip()
    finally:
        os.close(descriptor)


def threads() -> list[tuple[str, bool]]:
    """Return of each thread of this process, those that Python did not start among them, its name
    (15 bytes of it at most) and whether it sleeps. Empty where the system does not tell.

    While a thread ends the kernel's list may leave out others: it is asked again until it is as
    long as the kernel counts, `_LISTINGS` times at most."""
    found: list[tuple[str, bool]] = []
    try:
        for _ in range(_LISTINGS):
            found = [_thread(number) for number in os.listdir(_THREADS)]
            if len(found) == os.stat(_THREADS).st_nlink - 2:  # a folder for each thread
                break
    except OSError:  # no such folder, or a sandbox that does not show it
        return []
    return [thread for thread in found if thread[0]]


def _thread(number: str) -> tuple[str, bool]:
    try:
        with open(f"{_THREADS}/{number}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:  # it has ended since
        return "", True
    name, _, rest = text.partition("(")[2].rpartition(") ")  # a name may have brackets of its own
    return name, rest.startswith("S")


def environment(name: str) -> str:
    """Return an environment variable, "" when it is not set."""
    return os.environ.get(name, "")
