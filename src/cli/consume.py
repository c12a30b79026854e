"""`quorumlog consume`: records of topics on stdout, one a line, or into a file."""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .completion import topic_names
from .failures import IS_JSON
from .options import BootstrapOption, resolve_output
from .output import count_text
from .pieces import encode_escaped, unescape
from .reading import Stretch, choose_partitions, read
from .record_files import RecordFile
from .record_lines import (
    Writer,
    json_line,
    raw_writer,
    template_writer,
    value_line,
    verbose_line,
)
from .times import Place, parse_place

if TYPE_CHECKING:
    from ..clients import ConsumerRecord

EXAMPLES = """\b
Examples:
  quorumlog consume flights                          from the beginning, then what comes
  quorumlog consume flights --from latest            only what comes
  quorumlog consume flights --from -10 --until-end   the ten last records of each partition
  quorumlog consume flights --from -1h --to -30m     half an hour, an hour ago
  quorumlog consume flights -e --format '{offset}\\t{key}\\t{value}'
  quorumlog consume flights -e --to-file flights.parquet
  quorumlog consume paths -e -o raw --delimiter '\\0' | xargs -0 ls -d

\b
Places in a log: earliest, latest, an offset (42), the last records of each partition (-5),
so long ago (-90s, -15m, -1h, -2d), a time (2024-12-31T18:00+01:00; UTC unless it says
otherwise), milliseconds since 1970 (1735689600000ms).
"""


class RecordOutput(StrEnum):
    """How records are printed."""

    HUMAN = "human"
    JSON = "json"
    RAW = "raw"


def _resolve_output(ctx: typer.Context, value: RecordOutput | None) -> Any:
    if value is RecordOutput.RAW:
        ctx.meta[IS_JSON] = False
        return value
    found = resolve_output(ctx, value)  # type: ignore[arg-type] # its other values are the same
    return None if found is None else RecordOutput(found)


def consume(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC", help="One topic, or several.", autocompletion=topic_names),
    ],
    start: Annotated[
        str,
        typer.Option("--from", metavar="PLACE", help="Where to begin; places are listed below."),
    ] = "earliest",
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="Stop before this place in each partition; an offset that is not reached yet is "
            "waited for.",
        ),
    ] = None,
    until_end: Annotated[
        bool,
        typer.Option(
            "--until-end", "--exit-at-end", "-e", help="Stop at the end of what is there now."
        ),
    ] = False,
    max_records: Annotated[
        int | None,
        typer.Option("--max", "-n", metavar="RECORDS", min=1, help="Stop after so many records."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.001, help="Stop when nothing came for so long."
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", metavar="NUMBER", min=0, help="Only this partition; repeatable."
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEMPLATE",
            help="Print so: {topic} {partition} {offset} {timestamp} {timestamp_ms} {key} {value} "
            "{headers}, and escapes \\n \\t \\r \\0 \\\\ \\xHH. Content is not changed.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter",
            metavar="TEXT",
            help="What ends a record of --format and of -o raw.  [default: \\n]",
        ),
    ] = None,
    to_file: Annotated[
        str | None,
        typer.Option(
            "--to-file", metavar="FILE", help="Write a .parquet, .arrow, .csv or .jsonl file."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="--to-file may replace a file.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show partition, offset, time and key too."),
    ] = False,
    bootstrap: BootstrapOption = None,
    output: Annotated[
        RecordOutput | None,
        typer.Option(
            "--output",
            "-o",
            callback=_resolve_output,
            help="human: values as lines; json: an object a line; raw: values byte for byte.  "
            "[env var: QUORUMLOG_OUTPUT; default: human]",
        ),
    ] = None,
) -> None:
    """Print records, waiting for new ones until Ctrl-C, --until-end, --to, --max or --timeout.

    Records come in the order of each partition; partitions take turns. What is no text is printed
    in base64, unless --format or -o raw is given.
    """
    from . import settings

    now = datetime.now(UTC)
    stretch = Stretch(
        start=_place("--from", start, now),
        end=None if end is None else _place("--to", end, now),
        until_end=until_end,
        records=max_records,
        idle_ms=None if timeout is None else max(1, round(timeout * 1000)),
    )
    write = _writer(output, template, delimiter, verbose=verbose)
    file = None if to_file is None else RecordFile(to_file, overwrite=overwrite)
    with settings.open_log(bootstrap=bootstrap) as log:
        partitions = choose_partitions(log, topics, partition or [])
        records = read(log, partitions, stretch)
        if file is None:
            for some in records:
                typer.echo(b"".join(map(write, some)), nl=False)
        else:
            _fill(file, records)


def _fill(file: RecordFile, records: "Iterator[list[ConsumerRecord]]") -> None:
    """Write records into a file, and say what is in it, whatever ended the reading."""
    with file:
        try:
            for some in records:
                file.write(some)
        finally:
            typer.echo(f"{count_text(file.count, 'record')} in {file.path}", err=True)


def _place(option: str, text: str, now: datetime) -> Place:
    try:
        return parse_place(text, now=now)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def _writer(
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
    return verbose_line if verbose else value_line
