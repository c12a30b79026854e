"""The free-space reserve of a disk, and its thresholds.

Below the reserve, client appends are rejected; reads, retention, deletions, checkpoints, the
metadata log and replication continue. Appends resume only at a higher threshold, so that the state
does not flap with every segment that retention removes. Pure.
"""

from typing import Final

from ..errors import DiskFull

MIB: Final = 1024 * 1024

SHARE_MAX: Final = 32
"""The reserve is at most this fraction of the disk (3 %), so that small disks remain usable."""

BACK: Final = 4
"""Appends resume when the reserve plus this fraction of it is free."""

LOOKS: Final = 16
"""Free space is checked after writing this fraction of the reserve."""

UNCHECKED_BYTES_MIN: Final = 64 * 1024


class Reserve:
    """The reserve of one disk. With 0 bytes appends continue until the disk is full."""

    __slots__ = ("_path", "_wanted", "bytes", "free_bytes", "is_low", "unchecked_bytes_max")

    def __init__(self, path: str, wanted_bytes: int) -> None:
        self.bytes = wanted_bytes  # reserved bytes on this disk
        self.free_bytes = 0  # at the last check
        self.is_low = False  # client appends are rejected
        self.unchecked_bytes_max = 0  # bytes that may be written before the next check
        self._path = path
        self._wanted = wanted_bytes

    def look(self, *, free_bytes: int, capacity_bytes: int) -> bool:
        """Update from the state of the disk; return True if `is_low` changed."""
        self.free_bytes = free_bytes
        self.bytes = min(self._wanted, capacity_bytes // SHARE_MAX)
        self.unchecked_bytes_max = max(UNCHECKED_BYTES_MIN, self.bytes // LOOKS)
        enough = self._bytes_back if self.is_low else self.bytes
        was_low, self.is_low = self.is_low, free_bytes < enough
        return self.is_low is not was_low

    @property
    def _bytes_back(self) -> int:
        """Free bytes at which appends resume."""
        return self.bytes + self.bytes // BACK

    def refusal(self) -> DiskFull:
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
