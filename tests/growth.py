"""How the cost of work grows with its size, which no slow or busy machine can change."""

from collections.abc import Callable
from time import process_time
from typing import Final

FOLD: Final = 4
# Fourfold work takes four times as long where its cost grows with its size, and sixteen times as
# long where it grows with the square. The rest is for what else a machine does meanwhile.
TIMES_MAX: Final = 10


def grows_with_size(work: Callable[[int], None], size: int) -> None:
    """Raise AssertionError where `work(size)` takes more than ten times the CPU time of a quarter
    of it. The quarter is timed twice, and the lesser time counts."""
    small_s = min(_cpu_s(work, size // FOLD) for _ in range(2))
    large_s = _cpu_s(work, size)
    assert large_s <= TIMES_MAX * small_s, (
        f"{size}: {large_s:.2f} s; {size // FOLD}: {small_s:.2f} s"
    )


def _cpu_s(work: Callable[[int], None], size: int) -> float:
    began = process_time()
    work(size)
    return process_time() - began
