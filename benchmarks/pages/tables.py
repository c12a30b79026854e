"""Lines of tables in Markdown, and the format of their figures."""

from collections.abc import Iterator
from typing import Any, TypeAlias

Result: TypeAlias = dict[str, Any]
"""The stored result of a benchmark."""


def head(*cells: str) -> Iterator[str]:
    """Yield the first two lines of a table; all columns but the first have numbers."""
    yield line(*cells)
    yield line("---", *["---:"] * (len(cells) - 1))


def line(*cells: str) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(cells)} |"


def ratio(value: float | None) -> str:
    """Return a ratio as text; empty for none."""
    return "" if value is None else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def verdict(figure: Result) -> str:
    """Yield a line for each missed goal."""
    return "" if figure["met"] else " (missed)"


def compared(result: Result) -> Iterator[str]:
    """Yield a table of ratios and their goals."""
    yield from head("compared", "ratio", "goal")
    for each in result["compared"]:
        yield line(each["what"], ratio(each["ratio"]), f"{each['goal']}{verdict(each)}")


def machine(result: Result) -> str:
    """Return a description of the machine and Python."""
    return f"{result['cores']} cores of {result['cpu']}, Python {result['python']}"


def subject(result: Result) -> str:
    """Return the same with the build of quorumlog."""
    return f"{machine(result)}, quorumlog with {result['build']}"
