"""The real file system: positioned reads and writes on plain descriptors, no buffers, no mmap.

Besides `system`, which has the differences between operating systems, this is the only user of
`os`. Everything is synchronous. The caller offloads calls that may block on a device (`sync`,
`read`, a large `write`, `sync_folder`) to a lane.
"""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from . import system
from .ports import Buffer, File, FileLock, Lease
from .system import NO_LINK, OPEN_FLAGS, read_at, write_at

IOVEC_MAX: Final = 1024  # IOV_MAX of Linux; more buffers in one call are EINVAL
SCRATCH_SIZE: Final = 1 << 20  # bytes; larger cached reads allocate their own buffer
SMALL_SIZE: Final = 1 << 10  # bytes; smaller reads allocate a zeroed buffer
UNCOPIED_SIZE: Final = 1 << 16  # bytes; smaller cached reads are copied from a reused buffer
PAGE_SIZE: Final = 4096
WARM_STEP: Final = 1 << 20  # bytes per read that brings a cold range into the page cache

# The kernel's errors if it cannot tell whether a page is resident (tmpfs, some overlays).
_UNKNOWABLE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})


class RealFile:
    """One descriptor. Leases are taken and released on the loop's thread; reads and writes may run
    in a lane."""

    def __init__(self, path: str, descriptor: int, scratch: "_Scratch") -> None:
        self._path = path
        self._descriptor = descriptor  # -1 after it is closed
        self._scratch = scratch
        self._leases = 0
        self._closed = False

    @property
    def path(self) -> str:
        """The path that it was opened with."""
        return self._path

    def size(self) -> int:
        """Return the file's size in bytes."""
        return os.fstat(self._descriptor).st_size

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write at a byte position with one system call. Return the number of bytes, maybe
        fewer."""
        assert position >= 0, f"position {position}"
        if not buffers:
            return 0
        return write_at(self._descriptor, buffers[:IOVEC_MAX], position)

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file. May block on the device."""
        data = read_at(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]  # the kernel returns at most 2 GiB at once, and less when interrupted
        missing = size - len(data)
        while missing and (data := read_at(self._descriptor, missing, position + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Read from the page cache. Return None if a part would block on the device, or if
        unknown."""
        if not system.CAN_PROBE:
            return None
        if size > SCRATCH_SIZE:  # a limit of the caller, maybe far beyond the end
            size = min(size, max(0, self.size() - position))
        try:
            content = self._read_resident(position, size)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _UNKNOWABLE:
                raise
            return self.read(position, size)
        if len(content) < size and position + len(content) < os.fstat(self._descriptor).st_size:
            return None
        return content

    def _read_resident(self, position: int, size: int) -> bytes:
        """Read the resident prefix. Raise BlockingIOError if it is empty."""
        if size <= SMALL_SIZE:
            small = bytearray(size)
            count = system.read_resident(self._descriptor, small, position)
            return bytes(small) if count == size else bytes(small[:count])
        if size >= UNCOPIED_SIZE and (read := system.resident_read()) is not None:
            return read(self._descriptor, size, position)
        buffer = self._scratch.take(size)
        try:
            view = memoryview(buffer)[:size]
            return bytes(view[: system.read_resident(self._descriptor, view, position)])
        finally:
            self._scratch.put(buffer)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Make data and size durable."""
        system.sync_data(self._descriptor)

    def lease(self) -> Lease:
        """Keep the descriptor open until the lease is released."""
        assert self._descriptor >= 0, f"lease of closed file {self._path}"
        self._leases += 1
        return _RealLease(self)

    def close(self) -> None:
        """Close, now or after the last lease is released."""
        self._closed = True
        self._maybe_close()

    # --- for byte_network only -------------------------------------------------------------------

    @property
    def descriptor(self) -> int:
        """The descriptor, for holders of a lease."""
        return self._descriptor

    def send_to(self, socket_descriptor: int, position: int, size: int) -> int:
        """Let the kernel send bytes of the file to a socket. Return their number (0: end of file).

        Requires `system.sendfile`.
        """
        assert system.sendfile is not None, "no sendfile on this system"
        return system.sendfile(socket_descriptor, self._descriptor, position, size)

    def is_resident(self, position: int, size: int) -> bool:
        """Return True if the first and the last page of [position, position + size) are cached.

        The pages between are assumed to be cached, since the kernel reads ahead.
        """
        assert size > 0, f"size {size}"
        first = self.read_cached(position, 1)
        return first is not None and (
            size <= PAGE_SIZE or self.read_cached(position + size - 1, 1) is not None
        )

    def warm(self, position: int, size: int) -> None:
        """Bring [position, position + size) into the page cache. Blocks on the device."""
        buffer = self._scratch.take(WARM_STEP)
        try:
            end = position + size
            while position < end:
                view = memoryview(buffer)[: min(WARM_STEP, end - position)]
                filled = system.read_into(self._descriptor, view, position)
                if not filled:
                    return
                position += filled
        finally:
            self._scratch.put(buffer)

    def _release(self) -> None:
        self._leases -= 1
        assert self._leases >= 0, f"{self._path}: more leases released than taken"
        self._maybe_close()

    def _maybe_close(self) -> None:
        if self._closed and not self._leases and self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class _RealLease:
    def __init__(self, file: RealFile) -> None:
        self._file: RealFile | None = file

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file._release()


class _Scratch:
    """Reused read buffers: a new one would be zeroed and its pages faulted in at each read.

    list.pop and list.append are atomic, so lanes may share it with the loop's thread.
    """

    def __init__(self) -> None:
        self._spare: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        if size > SCRATCH_SIZE:
            return bytearray(size)
        try:
            return self._spare.pop()
        except IndexError:
            return bytearray(SCRATCH_SIZE)

    def put(self, buffer: bytearray) -> None:
        if len(buffer) == SCRATCH_SIZE:
            self._spare.append(buffer)


class _RealLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)  # closing the last descriptor of this open releases the lock


class RealFiles:
    """The machine's file system."""

    def __init__(self) -> None:
        self._scratch = _Scratch()

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. With `create` a missing file is created. A link is refused:
        it could lead out of the folder."""
        flags = os.O_RDWR | OPEN_FLAGS | NO_LINK | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644), self._scratch)

    def open_readonly(self, path: str) -> File:
        """Open an existing file for reading only."""
        return RealFile(path, os.open(path, os.O_RDONLY | OPEN_FLAGS), self._scratch)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(folder))

    def make_folder(self, path: str) -> None:
        """Create a folder and its missing parents. An existing folder is accepted."""
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file, or an empty folder."""
        if self.is_folder(path):
            os.rmdir(path)
        else:
            os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder, replacing a file of the new name atomically."""
        os.replace(old, new)

    def exists(self, path: str) -> bool:
        """Return True if a file or folder of this path exists."""
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        """Return True if the path is a folder."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""
        return os.stat(path).st_size

    def free_bytes(self, folder: str) -> int:
        """Return the bytes that an unprivileged writer may use."""
        return system.space(folder)[0]

    def capacity_bytes(self, folder: str) -> int:
        """Return the total bytes of the folder's file system."""
        return system.space(folder)[1]

    def descriptors(self) -> tuple[int, int]:
        """Return the number of open descriptors of the process, and its limit. 0: unknown, or no
        limit."""
        return system.descriptors()

    def sync_folder(self, folder: str) -> None:
        """Make the folder's names durable."""
        system.sync_names(folder)

    def lock(self, path: str) -> FileLock:
        """Lock exclusively; a link is refused. Raise BlockingIOError if another open of the path
        has the lock."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS | NO_LINK, 0o644)
        try:
            system.lock_or_refuse(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return _RealLock(descriptor)

    def boot_id(self) -> str:
        """Return an id that changes with the machine's boot, or with the process if there is no
        such id."""
        return system.boot_id()


def exit_at_once(reason: str) -> NoReturn:
    """End the process without clean-up, as a crash would. The reason goes to stderr.

    A node with a broken invariant or a failed disk must not write another byte. Status 70 is the
    "internal software error" of sysexits.
    """
    sys.stderr.write(f"quorumlog: stopped at once; {reason}\n")
    sys.stderr.flush()
    os._exit(system.EXIT_SOFTWARE)


def at_fork(
    *,
    before: Callable[[], None],
    after_in_parent: Callable[[], None],
    after_in_child: Callable[[], None],
) -> None:
    """Register callbacks around every fork of this process and of its children.

    Threads, loops and connections do not survive a fork: their owner ends them before, or recreates
    them after it. Has no effect where processes do not fork.
    """
    if not hasattr(os, "register_at_fork"):
        return
    os.register_at_fork(
        before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
    )
