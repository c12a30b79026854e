"""`quorumlog consume`: records of topics on stdout, one a line, or into a file."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from .consume_options import (
    DelimiterOption,
    EndOption,
    MaxRecordsOption,
    OverwriteOption,
    PartitionOption,
    RecordOutput,
    RecordOutputOption,
    StartOption,
    TemplateOption,
    TimeoutOption,
    ToFileOption,
    TopicsArgument,
    UntilEndOption,
    VerboseOption,
)
from .options import BootstrapOption
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


def consume(
    topics: TopicsArgument,
    start: StartOption = "earliest",
    end: EndOption = None,
    until_end: UntilEndOption = False,
    max_records: MaxRecordsOption = None,
    timeout: TimeoutOption = None,
    partition: PartitionOption = None,
    template: TemplateOption = None,
    delimiter: DelimiterOption = None,
    to_file: ToFileOption = None,
    overwrite: OverwriteOption = False,
    verbose: VerboseOption = False,
    bootstrap: BootstrapOption = None,
    output: RecordOutputOption = None,
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
