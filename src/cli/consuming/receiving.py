"""Output of `quorumlog consume`: lines in the chosen format, or a file."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from ..escapes import encode_escaped, unescape
from ..output import count_text
from ..times import OffsetSpec, parse_offset_spec
from .options import RecordOutput
from .record_files import RecordFile
from .record_lines import (
    Writer,
    for_terminal,
    json_line,
    raw_writer,
    template_writer,
    value_line,
    verbose_line,
)

if TYPE_CHECKING:
    from ...clients import ConsumerRecord


def fill(file: RecordFile, records: "Iterator[list[ConsumerRecord]]") -> None:
    """Write records to a file and print their number, also after an error or Ctrl-C, unless writing
    the file itself failed."""
    try:
        with file, _count_of(file.path) as shown:
            for some in records:
                file.write(some)
                shown(file.count)
    finally:
        if file.is_whole:
            typer.echo(f"{count_text(file.count, 'record')} in {file.path}", err=True)


@contextmanager
def _count_of(path: str) -> Iterator[Callable[[int], None]]:
    """Show the number of records written on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description} {task.completed:,.0f} records"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(os.path.basename(path), total=None)
        yield lambda count: progress.update(task, completed=count)


def offset_option(option: str, text: str, now: datetime) -> OffsetSpec:
    """Return the value of an offset option; raise BadParameter if it is malformed."""
    try:
        return parse_offset_spec(text, now=now)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def check_file_options(
    *, output: RecordOutput | None, template: str | None, delimiter: str | None, verbose: bool
) -> None:
    """Raise BadParameter for format options with --to-file, whose name determines the format."""
    named = {
        "--format": template is not None,
        "--delimiter": delimiter is not None,
        "--output raw": output is RecordOutput.RAW,
        "--verbose": verbose,
    }
    for option, is_given in named.items():
        if is_given:
            raise typer.BadParameter(f"the file's suffix sets the format; remove {option}")


def writer_of(
    output: RecordOutput | None, template: str | None, delimiter: str | None, *, verbose: bool
) -> Writer:
    """Return the writer of these options; raise BadParameter if they contradict each other."""
    is_raw = output is RecordOutput.RAW
    if template is not None and is_raw:
        raise typer.BadParameter("give --format or --output raw, not both")
    if delimiter is not None and not is_raw and template is None:
        raise typer.BadParameter("--delimiter needs --output raw or --format")
    try:
        end = encode_escaped(unescape("\\n" if delimiter is None else delimiter))
        if is_raw:
            return raw_writer(end)
        if template is not None:
            return template_writer(template, end)
    except ValueError as error:
        option = "--delimiter" if template is None else "--format"
        raise typer.BadParameter(f"{option}: {error}") from None
    if output is RecordOutput.JSON:
        return json_line
    write = verbose_line if verbose else value_line
    return for_terminal(write) if sys.stdout.isatty() else write
