"""Files port of a simulated process: its machine's disk, with crash points and injected faults.

Every operation is counted. An armed `CrashPoint` kills the process, or cuts the machine's power,
before, inside or after the operation of its number. Operations are events, and so are reads of
cached bytes.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

from ..runtime import Buffer
from .disk import UNLIMITED_BYTES, Disk, DiskTruncation, DiskWrite, FileBody, fail
from .entropy import SimEntropy
from .events import EventLog, digest
from .fault_options import ActiveFaults
from .process import NodeKilled, Process

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """A crash at the n-th changing file operation from now."""

    operations: int  # >= 1: the number of the operation
    power: bool  # the machine's power fails; otherwise only the process dies
    moment: str  # "before" the effect, "inside" (a part of a write) or "after" it


@dataclass(slots=True)
class DiskFault:
    """An error injected into the next matching operations."""

    operation: str  # "write", "sync", ... ; "" matches all
    path_part: str
    number: int  # errno
    times: int


@dataclass(slots=True, eq=False)
class Device:
    """A machine's disk with its faults, locks and operation counter."""

    disk: Disk
    entropy: SimEntropy
    boot_id: str
    locks: dict[FileBody, Process] = field(default_factory=dict)
    faults: list[DiskFault] = field(default_factory=list)
    lies: bool = False  # sync() and sync_folder() return without an effect
    crash_point: CrashPoint | None = None
    operations: int = 0  # changing operations since the crash point was set
    faults_at: dict[int, int] = field(default_factory=dict)  # number of the operation -> errno
    short_at: int = 0  # the operation with a short write; 0: none
    journal: "Journal | None" = None  # notified after every changing operation

    def arm(self, point: CrashPoint | None) -> None:
        """Set or clear the crash point, counting from now."""
        self.crash_point = point
        self.operations = 0

    def fail(self, operation: str, number: int, *, path_part: str = "", times: int = 1) -> None:
        """Inject an errno into the next `times` operations of a kind on matching paths."""
        self.faults.append(DiskFault(operation, path_part, number, times))

    def next_moment(self) -> str:
        """Count a changing operation. Return the moment of the crash if it falls on this one, else
        ""."""
        self.operations += 1
        point = self.crash_point
        return point.moment if point is not None and point.operations == self.operations else ""

    def injected_now(self, path: str) -> OSError | None:
        """Return the error injected at the current operation number, if any."""
        number = self.faults_at.get(self.operations)
        return None if number is None else fail(number, path)

    def injected(self, operation: str, path: str) -> OSError | None:
        """Return the error injected into this operation, if any."""
        for fault in self.faults:
            if fault.operation in ("", operation) and fault.path_part in path:
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fail(fault.number, path)
        return None


class Journal(Protocol):
    """An observer of a disk's changing operations."""

    def changed(self, what: str, path: str, detail: str) -> None:
        """Handle an operation that was carried out, or failed half-way."""


CrashNow: TypeAlias = Callable[[Process, bool], None]

WHOLE: Final = 1 << 62


class DiskOperations:
    """The operations of one process on its machine's disk: counted, recorded, with faults."""

    def __init__(
        self,
        events: EventLog,
        process: Process,
        device: Device,
        faults: ActiveFaults,
        crash_now: CrashNow,
    ) -> None:
        self._events = events
        self._crash_now = crash_now
        self._process = process
        self._device = device
        self._faults = faults

    def change(self, what: str, path: str, effect: Callable[[int], T], detail: str = "") -> T:
        """Carry out a changing operation; the argument of `effect` bounds the bytes it writes."""
        self._process.check()
        moment = self._device.next_moment()
        if moment == "before":
            self._die(what, path)
        self._raise_injected(what, path, self._device.injected_now(path))
        try:
            result = effect(0 if moment == "inside" else WHOLE)
        except OSError as error:
            self._events.record(self._process, what, f"{path} {detail} errno={error.errno}")
            raise
        self._events.record(self._process, what, f"{path} {detail}")
        if self._device.journal is not None:
            self._device.journal.changed(what, path, detail)
        if moment:
            self._die(what, path)
        return result

    def look(self, what: str, path: str, effect: Callable[[], T]) -> T:
        """Carry out a read-only operation."""
        self._process.check()
        self._raise_injected(what, path)
        result = effect()
        self._events.record(self._process, what, f"{path} {_shown(result)}")
        return result

    def _raise_injected(self, what: str, path: str, now: OSError | None = None) -> None:
        error = now or self._device.injected(what, path)
        if error is None:
            return
        self._events.record(self._process, what, f"{path} injected errno={error.errno}")
        if what == "sync":
            self._device.disk.file(path).sync_failed()
        raise error

    def _die(self, what: str, path: str) -> None:
        point = self._device.crash_point
        assert point is not None, "died without a crash point"
        self._device.crash_point = None
        self._events.record(self._process, "crash-point", f"{point.moment} {what} {path}")
        self._crash_now(self._process, point.power)
        raise NodeKilled(f"{self._process} died {point.moment} {what} {path}")

    def wait_for_device(self) -> None:
        """Count the time that a write takes on a slow device."""
        machine = self._process.machine
        machine.waited_ms += machine.device_slow_ms

    def short(self, size: int) -> int:
        """Return the number of bytes of a write that the kernel accepts now."""
        entropy = self._device.entropy
        if size > 1 and self._device.short_at == self._device.operations:
            return 1 + entropy.below(size - 1)
        if size > 1 and entropy.chance(self._faults.options.short_write):
            return 1 + entropy.below(size - 1)
        return size

    def partial(self, size: int) -> int:
        """Return the number of bytes of a write that a crash inside it lets through, in [0,
        size]."""
        return self._device.entropy.below(size + 1)

    def misses_cache(self) -> bool:
        """Return True if the requested bytes are not in the page cache."""
        return self._device.entropy.chance(self._faults.options.cache_miss)

    def free(self) -> int:
        """Return the free bytes of the disk."""
        return self._device.disk.free_bytes()

    def sync(self, body: FileBody) -> None:
        """Make a file durable, unless the disk lies."""
        if not self._device.lies:
            body.sync()


class SimFiles:
    """`runtime.ports.Files` of a simulated process."""

    def __init__(
        self,
        events: EventLog,
        process: Process,
        device: Device,
        faults: ActiveFaults,
        *,
        crash_now: CrashNow,
    ) -> None:
        """`crash_now(process, power)` executes a crash point: it kills the process, or cuts the
        machine's power."""
        self._process = process
        self._device = device
        self._operations = DiskOperations(events, process, device, faults, crash_now)

    def open(self, path: str, *, create: bool = False) -> "SimFile":
        """Open for reading and writing; with `create`, create it if absent."""
        disk = self._device.disk
        if create and not disk.exists(path):
            body = self._operations.change("create", path, lambda _: disk.create(path))
        else:
            body = self._operations.look("open", path, lambda: disk.file(path))
        return SimFile(self._operations, body, path, writable=True)

    def open_readonly(self, path: str) -> "SimFile":
        """Open an existing file read-only."""
        body = self._operations.look("open", path, lambda: self._device.disk.file(path))
        return SimFile(self._operations, body, path, writable=False)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""
        disk = self._device.disk
        return self._operations.look("names", folder, lambda: sorted(disk.folder(folder).entries))

    def make_folder(self, path: str) -> None:
        """Create a folder and its missing parents; an existing one is accepted."""
        disk = self._device.disk
        if not disk.exists(path):
            self._operations.change("make_folder", path, lambda _: disk.make_folder(path))
        else:
            self._operations.look("make_folder", path, lambda: disk.make_folder(path))

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        self._operations.change("remove", path, lambda _: self._device.disk.remove(path))

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder; a file of the new name is replaced atomically."""
        self._operations.change(
            "rename", old, lambda _: self._device.disk.rename(old, new), f"to {new}"
        )

    def exists(self, path: str) -> bool:
        """Return True if the path exists."""
        return self._operations.look("exists", path, lambda: self._device.disk.exists(path))

    def is_folder(self, path: str) -> bool:
        """Return True if the path is a folder."""
        disk = self._device.disk
        return self._operations.look(
            "is_folder",
            path,
            lambda: disk.exists(path) and not isinstance(disk.find(path), FileBody),
        )

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""
        return self._operations.look(
            "size", path, lambda: len(self._device.disk.file(path).content)
        )

    def free_bytes(self, folder: str) -> int:
        """Return the free bytes of the machine's disk."""
        return self._operations.look("free_bytes", folder, self._operations.free)

    def capacity_bytes(self, folder: str) -> int:
        """Return the capacity of the machine's disk in bytes."""
        most = self._device.disk.capacity_bytes
        return self._operations.look(
            "capacity_bytes", folder, lambda: UNLIMITED_BYTES if most is None else most
        )

    def descriptors(self) -> tuple[int, int]:
        """Return zeros: a simulated process has no limit."""
        return 0, 0

    def sync_folder(self, folder: str) -> None:
        """Make the folder's names durable."""
        disk = self._device.disk
        sync = disk.folder if self._device.lies else disk.sync_folder
        self._operations.change("sync_folder", folder, lambda _: sync(folder))

    def lock(self, path: str) -> "SimLock":
        """Lock the file exclusively, creating it if absent."""

        def take(_: int) -> SimLock:
            body = self._device.disk.create(path)
            holder = self._device.locks.get(body)
            if holder is not None and holder.alive:
                raise fail(errno.EAGAIN, path)
            self._device.locks[body] = self._process
            return SimLock(self._device, body)

        return self._operations.change("lock", path, take)

    def boot_id(self) -> str:
        """Return the boot id; it changes at each boot of the machine."""
        return self._operations.look("boot_id", "", lambda: self._device.boot_id)


def _shown(result: object) -> str:
    """Return the text of a result in an event."""
    match result:
        case bytes():
            return digest(result)
        case FileBody():
            return f"{len(result.content)} bytes"
        case _:
            return repr(result)


class SimLock:
    """A held lock; the death of its process releases it too."""

    def __init__(self, device: Device, body: FileBody) -> None:
        self._device = device
        self._body: FileBody | None = body

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._body is not None:
            self._device.locks.pop(self._body, None)
            self._body = None


class SimLease:
    """A lease that keeps a file open."""

    def __init__(self, file: "SimFile") -> None:
        self._file: SimFile | None = file

    def release(self) -> None:
        """Return the lease; a second call does nothing."""
        if self._file is not None:
            self._file.leases -= 1
            self._file = None


class SimFile:
    """An open file: `runtime.ports.File`."""

    def __init__(
        self, operations: DiskOperations, body: FileBody, path: str, *, writable: bool
    ) -> None:
        self._operations = operations
        self._body = body
        self._path = path
        self._writable = writable
        self._closed = False
        self.leases = 0  # not yet returned

    @property
    def path(self) -> str:
        """The path at the time of opening."""
        return self._path

    def size(self) -> int:
        """Return the file's size in bytes."""
        return self._operations.look("fstat", self._path, lambda: len(self._open().content))

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write the buffers at a position; the write may be short."""
        data = b"".join(buffers)
        body = self._open(writing=True)
        self._operations.wait_for_device()

        def effect(most: int) -> int:
            size = (
                self._operations.short(len(data)) if most else self._operations.partial(len(data))
            )
            growth = position + size - len(body.content)
            if growth > 0 and growth > (free := self._operations.free()):
                size -= growth - free
            if size <= 0 and data and most:
                raise fail(errno.ENOSPC, self._path)
            if size > 0:
                body.change(DiskWrite(position, data[:size]))
            return max(size, 0)

        return self._operations.change("write", self._path, effect, f"{position} {digest(data)}")

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; short at the end of the file."""
        return self._operations.look("read", self._path, lambda: self._bytes(position, size))

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Read, or return None if a draw makes the read wait for the device."""

        def effect() -> bytes | None:
            return None if self._operations.misses_cache() else self._bytes(position, size)

        return self._operations.look("read_cached", self._path, effect)

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        body = self._open(writing=True)
        self._operations.change(
            "truncate", self._path, lambda _: body.change(DiskTruncation(size)), str(size)
        )

    def sync(self) -> None:
        """Make data and size durable."""
        body = self._open()
        self._operations.change("sync", self._path, lambda _: self._operations.sync(body))

    def lease(self) -> SimLease:
        """Keep the file open until the lease is released."""
        self._open()
        self.leases += 1
        return SimLease(self)

    def close(self) -> None:
        """Close the file; effective when the last lease is released."""
        self._closed = True

    def _bytes(self, position: int, size: int) -> bytes:
        return bytes(self._open().content[position : position + size])

    def _open(self, *, writing: bool = False) -> FileBody:
        """Return the body; raises EBADF if closed, or if writing to a read-only file."""
        if (self._closed and self.leases == 0) or (writing and not self._writable):
            raise fail(errno.EBADF, self._path)
        return self._body
