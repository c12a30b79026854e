"""How much of a disk is kept for what must go on when it fills up, and whether that is reached.

Below the reserve clients' appends are refused; reads, retention, deletions, checkpoints, the
metadata log and what a leader replicates go on. Room is given again only somewhat above it, so that
the answer does not flap with every segment that retention removes. Pure.
"""

from typing import Final

from ...errors import DiskFull

MIB: Final = 1024 * 1024

SHARE_MAX: Final = 32
"""The reserve is at most one part in so many of the disk (3 %): a small one is there to be used."""

BACK: Final = 4
"""Appends are taken again when the reserve and one part in so many of it are free."""

LOOKS: Final = 16
"""The disk is looked at when one part in so many of the reserve was written."""

UNCHECKED_BYTES_MIN: Final = 64 * 1024


class Reserve:
    """The reserve of one disk; 0 bytes: none, and appends go on until the disk is full."""

    __slots__ = ("_path", "_wanted", "bytes", "free_bytes", "is_low", "unchecked_bytes_max")

    def __init__(self, path: str, wanted_bytes: int) -> None:
        self.bytes = wanted_bytes  # what is kept of this disk
        self.free_bytes = 0  # at the last look
        self.is_low = False  # clients' appends are refused
        self.unchecked_bytes_max = 0  # so much may be written until the next look
        self._path = path
        self._wanted = wanted_bytes

    def look(self, *, free_bytes: int, capacity_bytes: int) -> bool:
        """Take in how the disk is; returns whether that changes what is refused."""
        self.free_bytes = free_bytes
        self.bytes = min(self._wanted, capacity_bytes // SHARE_MAX)
        self.unchecked_bytes_max = max(UNCHECKED_BYTES_MIN, self.bytes // LOOKS)
        enough = self._bytes_back if self.is_low else self.bytes
        was_low, self.is_low = self.is_low, free_bytes < enough
        return self.is_low is not was_low

    @property
    def _bytes_back(self) -> int:
        """With so much free space appends are taken again."""
        return self.bytes + self.bytes // BACK

    def refusal(self) -> DiskFull:
        """Return what a client is told."""
        kept = f"the {size_text(self.bytes)} that are kept in reserve (storage.reserve.bytes)"
        if self.free_bytes >= self.bytes:
            kept = f"the {size_text(self._bytes_back)} that it takes after {kept} were touched"
        return DiskFull(
            f"{size_text(self.free_bytes)} are free on the disk of {self._path}, less than "
            f"{kept}; nothing was stored: free some space, let retention do it, or repeat at "
            "another time"
        )


def size_text(size: int) -> str:
    """Return bytes as people say them, rounded down."""
    if size < MIB:
        return f"{size * 10 // 1024 / 10:.1f} KiB"
    if size < 100 * MIB:
        return f"{size * 10 // MIB / 10:.1f} MiB"
    return f"{size // MIB} MiB" if size < 1024 * MIB else f"{size / MIB / 1024:.1f} GiB"
