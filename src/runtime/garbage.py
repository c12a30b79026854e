"""Python's collector of cycles in a process with millions of objects.

A full collection looks at everything that is alive, while everybody waits: seconds with ten million
objects. Here each one puts what it has found alive aside, so that the next looks only at what is
newer than that: a few milliseconds, however large the process is. What dies in a cycle after it was
put aside stays until everything is looked at again, which is once in `FULL_EVERY`; in a process
with more than `FULL_OBJECTS_MAX` objects it stays for good.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (700, 10, 4)
"""New containers, then younger collections, before one of each generation: about 28,000 containers
are looked at by the oldest one."""
FULL_EVERY: Final = 200
FULL_OBJECTS_MAX: Final = 1_000_000
"""About a tenth of a second of looking."""


@contextmanager
def short_collections() -> Iterator[None]:
    """Collect in this way as long as the block lasts; for a process that serves."""
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
    gc.freeze()  # what was imported
    try:
        yield
    finally:
        gc.callbacks.remove(on_collection)
        gc.set_threshold(*before)
        gc.unfreeze()
