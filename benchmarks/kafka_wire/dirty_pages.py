"""Dirty pages of this machine: a turn is void if the kernel writes them back during it."""

import os
import time
from pathlib import Path
from typing import Final

VMSTAT: Final = Path("/proc/vmstat")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
ROOM_SHARE: Final = 0.6  # of the bytes below the background threshold; the rest is for other files
SETTLED_BYTES: Final = 64 << 20
SETTLE_S: Final = 5.0


def _bytes_of(counter: str) -> int:
    for line in VMSTAT.read_text().splitlines():
        name, _, pages = line.partition(" ")
        if name == counter:
            return int(pages) * PAGE_BYTES
    raise ValueError(f"{VMSTAT}: no counter {counter}")


def written_bytes() -> int:
    """Return the bytes of pages that the kernel wrote back since the start of the machine."""
    return _bytes_of("nr_written")


def room_bytes() -> int:
    """Return the bytes that files can grow by before the kernel starts to write them back.

    The kernel derives the threshold from vm.dirty_background_ratio, or _bytes, and free memory.
    """
    room = _bytes_of("nr_dirty_background_threshold") - _bytes_of("nr_dirty")
    return max(PAGE_BYTES, int(room * ROOM_SHARE))


def settle() -> None:
    """Wait until the pages of deleted files are dropped, then write the rest to the disk."""
    end_s = time.monotonic() + SETTLE_S
    while _bytes_of("nr_dirty") > SETTLED_BYTES and time.monotonic() < end_s:
        time.sleep(0.02)
    os.sync()
