"""Garbage collection in a process with millions of objects, malloc settings, and huge pages.

A full collection visits every object while the process pauses: seconds with ten million objects.
Here each full collection freezes the surviving objects, so that the next visits only newer ones: a
few milliseconds in any process. Cycles that become garbage after they were frozen stay until the
next complete collection, one in `FULL_EVERY`. In a process with more than `FULL_OBJECTS_MAX`
objects they stay for good.
"""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from .system import PAGE_BYTES

_M_TRIM_THRESHOLD: Final = -1  # numbers of mallopt
_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES_MIN: Final = 32 << 20  # larger blocks are mapped separately; the maximum of glibc
_FREE_BYTES_MAX: Final = 64 << 20  # free memory above this is returned to the kernel
THRESHOLDS: Final = (700, 10, 4)
"""Gen 0: new containers; gen 1 and 2: collections of the younger generation. A full collection
visits about 28,000 containers."""
_PAGE_BYTES: Final = 4 << 10
_HUGE_BYTES: Final = 2 << 20
_MADV_COLLAPSE: Final = 25  # Linux 6.1
_ABSENT_MAX: Final = _HUGE_BYTES // _PAGE_BYTES // 4
"""Pages of a huge one that may be without memory, which it then gets."""
_MAPS: Final = "/proc/self/maps"
FULL_EVERY: Final = 200
FULL_OBJECTS_MAX: Final = 1_000_000
"""Visiting them takes about 0.1 s."""


@contextmanager
def short_collections() -> Iterator[None]:
    """Limit the pauses of the collector during the block, in a process that serves requests."""
    collections = 0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal collections
        if info["generation"] < 2:
            return
        if phase == "stop":
            gc.freeze()
            return
        collections += 1
        if collections % FULL_EVERY == 0 and gc.get_freeze_count() <= FULL_OBJECTS_MAX:
            gc.unfreeze()

    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(on_collection)
    gc.freeze()  # imported modules
    try:
        yield
    finally:
        gc.callbacks.remove(on_collection)
        gc.set_threshold(*before)
        gc.unfreeze()


def keep_freed_memory() -> None:
    """Let malloc reuse the memory of freed batches, up to a limit, instead of returning it.

    Every request allocates and frees buffers of a batch's size. With glibc's defaults each one is a
    new mapping whose pages the kernel zeroes: measured, 250 to 900 page faults and 1 to 2 ms of
    system time per MiB. Has no effect without glibc.
    """
    import ctypes  # 3 ms, used only here

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # TypeError: Windows requires a name
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES_MIN)
    mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES_MAX)


def use_huge_pages() -> int:
    """Move the heap into pages of 2 MiB, where at least three quarters of them are in use; return
    their number.

    A node that waits for requests wakes with cold caches, and the processor first looks up the
    addresses of thousands of small pages: measured, 2 to 13 % of the CPU time of a request. The
    memory in use grows by at most a third, usually by nothing. Takes about 2 ms a page, so call it
    from a thread. Has no effect without Linux 6.1 or with other page sizes.
    """
    import ctypes

    if PAGE_BYTES != _PAGE_BYTES:
        return 0
    try:
        system = ctypes.CDLL(None)
        madvise, mincore = system.madvise, system.mincore
        with open(_MAPS) as maps:
            lines = maps.readlines()
    except (OSError, AttributeError, TypeError):
        return 0
    address, size = ctypes.c_void_p, ctypes.c_size_t
    madvise.argtypes, mincore.argtypes = (address, size, ctypes.c_int), (address, size, address)
    presence = ctypes.create_string_buffer(_HUGE_BYTES // _PAGE_BYTES)
    made = 0
    for at in _blocks(lines):
        if mincore(at, _HUGE_BYTES, presence) or presence.raw.count(0) > _ABSENT_MAX:
            continue
        if not madvise(at, _HUGE_BYTES, _MADV_COLLAPSE):
            made += 1
    return made


def _blocks(maps: Iterable[str]) -> Iterator[int]:
    """Yield the addresses of whole huge pages within the writable anonymous mappings."""
    for line in maps:
        area, access, _, _, inode, *name = line.split()
        if not access.startswith("rw") or inode != "0" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(each, 16) for each in area.split("-"))
        yield from range(-(-start // _HUGE_BYTES) * _HUGE_BYTES, end - _HUGE_BYTES + 1, _HUGE_BYTES)
