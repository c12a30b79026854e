"""Assertions on the growth of CPU cost with size, independent of the machine's speed."""

import math
from collections.abc import Callable
from time import process_time
from typing import Final

ROUNDS: Final = 4
FOLD: Final = 4
# Four times the work costs 4 times as much if the cost is linear, 16 times if it is quadratic. The
# margin above 4 covers other load on the machine.
TIMES_MAX: Final = 10


def grows_with_size(work: Callable[[int], None], size: int) -> None:
    """Raise AssertionError if `work(size)` takes over ten times the CPU time of `work(size / 4)`.

    Each is measured several times, alternating; the minimum counts.
    """
    small_s = large_s = math.inf
    for _ in range(ROUNDS):
        small_s = min(small_s, _cpu_s(work, size // FOLD))
        large_s = min(large_s, _cpu_s(work, size))
    assert large_s <= TIMES_MAX * small_s, (
        f"{size}: {large_s:.2f} s; {size // FOLD}: {small_s:.2f} s"
    )


def _cpu_s(work: Callable[[int], None], size: int) -> float:
    began = process_time()
    work(size)
    return process_time() - began
