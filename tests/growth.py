"""How the cost of work grows with its size, which no slow or busy machine can change."""

import math
from collections.abc import Callable
from time import process_time
from typing import Final

ROUNDS: Final = 4
FOLD: Final = 4
# Fourfold work takes four times as long where its cost grows with its size, and sixteen times as
# long where it grows with the square. The rest is for what else a machine does meanwhile.
TIMES_MAX: Final = 10


def grows_with_size(work: Callable[[int], None], size: int) -> None:
    """Raise AssertionError where `work(size)` takes more than ten times the CPU time of a quarter
    of it: the least of several times each, in turn."""
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
