"""Lines of tables in Markdown, and figures as they stand in them."""

from collections.abc import Iterator
from typing import Any, TypeAlias

Result: TypeAlias = dict[str, Any]
"""What a benchmark stored."""


def head(*cells: str) -> Iterator[str]:
    """Give the first two lines of a table; all columns but the first hold numbers."""
    yield line(*cells)
    yield line("---", *["---:"] * (len(cells) - 1))


def line(*cells: str) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(cells)} |"


def ratio(value: float | None) -> str:
    """Return a ratio as text; empty for none."""
    return "" if value is None else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def verdict(figure: Result) -> str:
    """Say so where a goal was missed."""
    return "" if figure["met"] else " (missed)"


def compared(result: Result) -> Iterator[str]:
    """A table of ratios and their goals."""
    yield from head("compared", "ratio", "goal")
    for each in result["compared"]:
        yield line(each["what"], ratio(each["ratio"]), f"{each['goal']}{verdict(each)}")


def machine(result: Result) -> str:
    """Return the machine and Python as words."""
    return f"{result['cores']} cores of {result['cpu']}, Python {result['python']}"


def subject(result: Result) -> str:
    """Return the same, and the build of ours."""
    return f"{machine(result)}, quorumlog with {result['build']}"
