"""A computation in steps, run without a pause."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def complete(steps: Generator[None, None, T]) -> T:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
