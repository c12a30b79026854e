"""Output of commands: lines of text, JSON lines, or tables. rich is imported only to print a table.

Names in the output come from any client, so all of it escapes hidden characters.
"""

import base64
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from ..visible_text import count_text as count_text
from ..visible_text import visible, visible_json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def echo(line: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line of text with hidden characters as escapes: names in it come from any client."""
    typer.echo(visible(line), err=err, nl=nl)  # noqa: TID251


def print_raw(content: str | bytes) -> None:
    """Print content that has its own line ends, as it is."""
    typer.echo(content, nl=False)  # noqa: TID251


def print_json(value: Any, *, err: bool = False) -> None:
    """Print one value as one line of JSON, hidden characters as escapes of JSON."""
    echo(visible_json(json.dumps(value, ensure_ascii=False, separators=(", ", ": "))), err=err)


def print_event(message: str, *, is_json: bool) -> None:
    """Print a sentence about an event: on stderr, or as an object on stdout."""
    if is_json:
        print_json({"event": "news", "message": message})
    else:
        echo(message, err=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print rows under headings; print `empty` if there are no rows."""
    if not rows:
        echo(empty)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        cells = [row[index] for row in rows]
        is_number = any(isinstance(cell, int) for cell in cells) and all(
            cell is None or isinstance(cell, int) for cell in cells
        )
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell_text(cell) for cell in row))
    # A pipe has no width: fold no cell at 80 columns there.
    console = Console(width=None if sys.stdout.isatty() else 500, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    # rich itself exits with code 1 on a closed pipe
    print_raw("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def print_entry(heading: str, *paragraphs: str) -> None:
    """Print a heading and, indented below it, paragraphs wrapped at 80 columns."""
    echo(heading)
    for paragraph in paragraphs:
        indent = "    "
        for line in textwrap.wrap(paragraph, 80, initial_indent=indent, subsequent_indent=indent):
            echo(line)


def cell_text(cell: object) -> str:
    """Return a cell as text: thousands separated, lists joined by commas, - for None, hidden
    characters as escapes."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, tuple | list):
        return visible(",".join(str(item) for item in cell)) or "-"
    if isinstance(cell, Mapping):
        return visible(" ".join(f"{name}={value}" for name, value in cell.items())) or "-"
    return visible(str(cell))


def id_text(raw: bytes) -> str:
    """Return a 16-byte id in Kafka's form: 22 characters of base64url without padding."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def time_text(timestamp_ms: int) -> str:
    """Return a timestamp as ISO 8601 (UTC), or as its number if it is after the year 9999."""
    try:
        time = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return time.isoformat("T", "milliseconds")


def size_text(size: float) -> str:
    """Return a size in the largest unit in which it is at least 1."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
