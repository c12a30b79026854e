"""The free space of a data directory's disk, and its reserve.

Below the reserve, client appends are rejected; reads, retention, deletions, checkpoints, the
metadata log and replication continue. Appends resume only at a higher threshold, so that the state
does not flap with every segment that retention removes.

The monitor saves appends a system call each: one check takes some microseconds. It runs after a
part of the reserve was written, every second while there are appends, and every second while the
reserve is in use, so that client appends resume soon after space was freed. An idle node does not
check.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ...errors import DiskFull
from ...runtime.ports import Runtime, Scope

MIB: Final = 1024 * 1024

SHARE_MAX: Final = 32
"""The reserve is at most one part in this many of the disk (3 %): small disks remain usable."""

RESUME_SHARE: Final = 4
"""Appends resume when the reserve plus one part in this many of it is free."""

CHECKS_PER_RESERVE: Final = 16
"""Free space is checked after writing one part in this many of the reserve."""

UNCHECKED_BYTES_MIN: Final = 64 * 1024


class SpaceReserve:
    """The reserve of one disk. With 0 bytes appends continue until the disk is full."""

    __slots__ = ("_path", "_wanted", "bytes", "free_bytes", "is_low", "unchecked_bytes_max")

    def __init__(self, path: str, wanted_bytes: int) -> None:
        self.bytes = wanted_bytes  # reserved bytes on this disk
        self.free_bytes = 0  # at the last check
        self.is_low = False  # client appends are rejected
        self.unchecked_bytes_max = 0  # bytes that may be written before the next check
        self._path = path
        self._wanted = wanted_bytes

    def update(self, *, free_bytes: int, capacity_bytes: int) -> bool:
        """Update from the state of the disk; return True if `is_low` changed."""
        self.free_bytes = free_bytes
        self.bytes = min(self._wanted, capacity_bytes // SHARE_MAX)
        self.unchecked_bytes_max = max(UNCHECKED_BYTES_MIN, self.bytes // CHECKS_PER_RESERVE)
        enough = self._bytes_back if self.is_low else self.bytes
        was_low, self.is_low = self.is_low, free_bytes < enough
        return self.is_low is not was_low

    @property
    def _bytes_back(self) -> int:
        """Free bytes at which appends resume."""
        return self.bytes + self.bytes // RESUME_SHARE

    def rejection(self) -> DiskFull:
        """Return the error for a rejected append."""
        needed = f"the reserve of {size_text(self.bytes)} (storage.reserve.bytes)"
        if self.free_bytes >= self.bytes:
            needed = f"the {size_text(self._bytes_back)} needed to resume after {needed} was used"
        return DiskFull(
            f"{size_text(self.free_bytes)} are free on the disk of {self._path}, less than"
            f" {needed}; nothing was stored; free some space, wait for retention, or retry later"
        )


def size_text(size: int) -> str:
    """Return a size as readable text, rounded down."""
    if size < MIB:
        return f"{size * 10 // 1024 / 10:.1f} KiB"
    if size < 100 * MIB:
        return f"{size * 10 // MIB / 10:.1f} MiB"
    return f"{size // MIB} MiB" if size < 1024 * MIB else f"{size / MIB / 1024:.1f} GiB"


_LOG: Final = logging.getLogger("quorumlog.storage")

CHECK_INTERVAL_MS: Final = 1_000


class FreeSpace:
    """The free space of one disk compared to its reserve; its task runs in `scope`."""

    def __init__(self, runtime: Runtime, scope: Scope, path: str, *, reserve_bytes: int) -> None:
        self.reserve = SpaceReserve(path, reserve_bytes)
        # called when free space falls below the reserve
        self.on_low: Callable[[], None] | None = None
        self.written_bytes = 0  # since the opening
        self._files = runtime.files
        self._path = path
        self._unchecked_bytes = 0  # written since the last check
        self._used = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        if reserve_bytes > 0:
            self.check()
            self._watch = scope.spawn(self._run(), name="storage.free_space")

    @property
    def is_low(self) -> bool:
        """True if client appends are rejected."""
        return self.reserve.is_low

    def count_written(self, size: int) -> None:
        """Count written bytes, and check when due."""
        self.written_bytes += size
        if self._watch is None:
            return
        self._unchecked_bytes += size
        if self._unchecked_bytes >= self.reserve.unchecked_bytes_max:
            self.check()
        elif not self._used.is_set():
            self._used.set()

    def measure(self) -> tuple[int, int]:
        """Measure (free bytes, size) of the disk now; raises OSError."""
        return self._files.free_bytes(self._path), self._files.capacity_bytes(self._path)

    def check(self) -> None:
        """Check now; also called when a write found the disk full."""
        self._unchecked_bytes = 0
        reserve = self.reserve
        try:
            free, capacity = self.measure()
            changed = reserve.update(free_bytes=free, capacity_bytes=capacity)
        except OSError as error:  # writes report the error of the disk
            _LOG.warning("storage.space_unknown path=%s error=%s", self._path, error)
            return
        if not changed:
            return
        say, what = (_LOG.warning, "low") if reserve.is_low else (_LOG.info, "enough")
        say(
            "storage.space_%s path=%s free_bytes=%d reserve_bytes=%d",
            what,
            self._path,
            free,
            reserve.bytes,
        )
        if reserve.is_low and self.on_low is not None:
            self.on_low()

    def stop(self) -> None:
        """Stop the checks."""
        if self._watch is not None:
            self._watch.cancel()

    async def _run(self) -> None:
        while True:
            if not self.is_low:
                await self._used.wait()
            self._used.clear()
            self.check()
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
