"""Operating system functions for files, and substitutes where the system lacks them.

The selection is made at import by the functions that exist, not by the system's name. Besides
`files` this is the only user of `os`, and the only user of `fcntl` and `msvcrt`.

| Linux | substitute |
|---|---|
| pwritev, preadv | pwrite and pread per buffer; on Windows a seek, then a read or write |
| RWF_NOWAIT | the page cache's content is unknown: such reads use the lane |
| fdatasync | macOS: F_FULLFSYNC, as its fsync stops at the drive's cache; others: fsync |
| fsync of a folder | macOS: F_FULLFSYNC; Windows: nothing, since NTFS journals names |
| flock | msvcrt.locking of the file's first byte |
| sendfile | None: the caller reads and sends |
| boot_id of /proc | a value per process: each start counts as a boot, the safe assumption |
| descriptors in /proc | 0: unknown |
| names of threads in /proc | none: threads other than Python's are not waited for |

Tested on Linux, including the substitutes, by removing functions.
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
"""The flags of every open: no inheritance by children, no translation of bytes."""

NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
"""The flag that makes an open of a symbolic link fail with ELOOP; 0 on Windows."""

CAN_PROBE: Final = hasattr(os, "RWF_NOWAIT") and hasattr(os, "preadv")
"""True if a read can be limited to the page cache."""

PAGE_BYTES: Final[int] = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4_096
"""The size of a page of memory."""

EXIT_SOFTWARE: Final = 70
"""The exit status "internal software error" of sysexits, which Windows does not define."""

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_DESCRIPTORS: Final = "/proc/self/fd"
_THREADS: Final = "/proc/self/task"
_LISTINGS: Final = 100
_PROCESS_ID: Final = os.urandom(16).hex()  # used in place of a boot id

# --- bytes at a position -------------------------------------------------------------------------

# A seek and the following read or write must not be separated by another thread. The locks are
# shared by all files, by descriptor, so that opening a file creates none.
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
"""Read up to `size` bytes of a descriptor at a position, without changing its position."""

_write_one: Final[Callable[[int, Buffer, int], int]] = getattr(os, "pwrite", _seek_and_write)


def _write_each(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write buffer by buffer and return the number of bytes. Raise an error only if nothing was
    written."""
    written = 0
    for buffer in buffers:
        size = memoryview(buffer).nbytes
        try:
            count = _write_one(descriptor, buffer, position + written)
        except OSError:
            if written:
                return written  # the caller continues from there and gets the error again
            raise
        written += count
        if count < size:
            break
    return written


write_at: Final[Write] = getattr(os, "pwritev", _write_each)
"""Write buffers to a descriptor at a position and return the number of bytes, which may be
fewer."""


def read_into(descriptor: int, view: memoryview, position: int) -> int:
    """Fill a buffer from a position and return the number of bytes: maybe fewer, 0 at the file's
    end."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], position)
    data = read_at(descriptor, len(view), position)
    view[: len(data)] = data
    return len(data)


def read_resident(descriptor: int, view: bytearray | memoryview, position: int) -> int:
    """Fill a buffer from the page cache. Raise BlockingIOError if it has nothing there.

    Requires `CAN_PROBE`. OSError with EOPNOTSUPP or ENOSYS means that the file system does not
    support it.
    """
    return os.preadv(descriptor, [view], position, os.RWF_NOWAIT)


ResidentRead: TypeAlias = Callable[[int, int, int], bytes]


@cache
def resident_read() -> ResidentRead | None:
    """Return a `read_resident` of (descriptor, size, position) that returns bytes, or None.

    `os` has the flag only with buffers, whose content must be copied into the returned bytes: half
    of the time of a large read. Here the kernel fills the new bytes object, as for `os.pread`. The
    first call imports ctypes.
    """
    if not CAN_PROBE:
        return None
    import ctypes

    class Span(ctypes.Structure):  # struct iovec
        _fields_: ClassVar = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]

    try:
        fill = ctypes.CDLL(None, use_errno=True).preadv2  # releases the GIL
    except AttributeError:
        return None  # the C library lacks it
    if ctypes.sizeof(ctypes.c_long) < 8:
        return None  # positions of this call are limited to 2 GiB
    fill.argtypes = [ctypes.c_int, ctypes.POINTER(Span), ctypes.c_int, ctypes.c_long, ctypes.c_int]
    fill.restype = ctypes.c_ssize_t
    new = ctypes.pythonapi.PyBytes_FromStringAndSize
    new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_ssize_t], ctypes.py_object
    start_of = ctypes.pythonapi.PyBytes_AsString
    start_of.argtypes, start_of.restype = [ctypes.py_object], ctypes.c_void_p

    def read(descriptor: int, size: int, position: int) -> bytes:
        content: bytes = new(None, size)  # not shared before it is filled
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
"""Send (socket, file, position, size) without a copy in Python, or None.

Windows' sockets are not descriptors, so that no function of `os` can replace it.
"""

# --- durability ----------------------------------------------------------------------------------


def _full_sync(descriptor: int) -> None:
    """Flush to the medium. macOS's fsync stops at the drive's cache, which a power failure
    empties."""
    import fcntl

    command: int = fcntl.F_FULLFSYNC  # type: ignore[attr-defined]  # macOS only
    try:
        fcntl.fcntl(descriptor, command)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
            raise
        os.fsync(descriptor)  # a network volume, which does not support it


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
    """Make the names in a folder durable. Do nothing where folders cannot be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)
    try:
        _sync_folder(descriptor)
    finally:
        os.close(descriptor)


# --- the rest ------------------------------------------------------------------------------------


def lock_or_refuse(descriptor: int) -> None:
    """Lock an open file until its descriptor is closed. Raise BlockingIOError if it is locked."""
    try:
        import fcntl
    except ImportError:
        _lock_first_byte(descriptor)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_first_byte(descriptor: int) -> None:
    import msvcrt

    windows: Any = msvcrt  # typed as empty on other systems
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    except PermissionError as error:  # Windows' error for a lock of another open file
        raise BlockingIOError(errno.EWOULDBLOCK, f"the file is locked; {error}") from error


def space(folder: str) -> tuple[int, int]:
    """Return (bytes an unprivileged writer may use, all bytes) of the folder's file system."""
    statvfs = getattr(os, "statvfs", None)
    if statvfs is not None:
        found = statvfs(folder)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    import shutil  # it has Windows' call; it loads every archive format

    usage = shutil.disk_usage(folder)
    return usage.free, usage.total


def descriptors() -> tuple[int, int]:
    """Return the number of open descriptors of this process, and its limit. 0: unknown, or no
    limit."""
    try:
        import resource  # not on Windows

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        count = len(os.listdir(_DESCRIPTORS)) - 1  # the listing has one itself
    except (ImportError, OSError):
        return 0, 0
    return count, 0 if limit == resource.RLIM_INFINITY else limit


def boot_id() -> str:
    """Return an id that changes with each boot, or with each process where the system has no boot
    id."""
    try:
        descriptor = os.open(_BOOT_ID, os.O_RDONLY | OPEN_FLAGS)
    except OSError:  # no such file, or a sandbox that hides it
        return _PROCESS_ID
    try:
        return os.read(descriptor, 64).decode("ascii").strip()
    finally:
        os.close(descriptor)


def threads() -> list[tuple[str, bool]]:
    """Return (name of at most 15 bytes, whether it sleeps) of each thread of this process.

    Includes threads that Python did not start. Empty if the system has no list. While a thread ends
    the kernel's list may omit others: it is read again until it has the kernel's count, at most
    `_LISTINGS` times.
    """
    found: list[tuple[str, bool]] = []
    try:
        for _ in range(_LISTINGS):
            found = [_thread(number) for number in os.listdir(_THREADS)]
            if len(found) == os.stat(_THREADS).st_nlink - 2:  # one folder per thread
                break
    except OSError:  # no such folder, or a sandbox that hides it
        return []
    return [thread for thread in found if thread[0]]


def _thread(number: str) -> tuple[str, bool]:
    try:
        with open(f"{_THREADS}/{number}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:  # it has ended
        return "", True
    name, _, rest = text.partition("(")[2].rpartition(") ")  # a name may contain brackets
    return name, rest.startswith("S")


def environment(name: str) -> str:
    """Return an environment variable, "" if it is not set."""
    return os.environ.get(name, "")
