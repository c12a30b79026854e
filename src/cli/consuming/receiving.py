"""What `quorumlog consume` does with what it reads: lines of a chosen form, or a file."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from ..escapes import encode_escaped, unescape
from ..output import count_text
from ..times import Place, parse_place
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
    """Write records into a file, and say what is in it, whatever ended the reading; of a file that
    could not be written nothing is said but that."""
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
    """Show on stderr how many records are in a file so far, where somebody looks."""
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


def place_of(option: str, text: str, now: datetime) -> Place:
    """Return the place that an option names; raises a usage error."""
    try:
        return parse_place(text, now=now)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def check_file_options(
    *, output: RecordOutput | None, template: str | None, delimiter: str | None, verbose: bool
) -> None:
    """Raise a usage error where a form is named for what goes into a file, which has its own."""
    named = {
        "--format": template is not None,
        "--delimiter": delimiter is not None,
        "--output raw": output is RecordOutput.RAW,
        "--verbose": verbose,
    }
    for option, is_given in named.items():
        if is_given:
            raise typer.BadParameter(f"the file's ending says its form: leave out {option}")


def writer_of(
    output: RecordOutput | None, template: str | None, delimiter: str | None, *, verbose: bool
) -> Writer:
    """Return how a record is written; what does not fit together is a usage error."""
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
