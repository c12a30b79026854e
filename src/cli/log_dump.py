"""`quorumlog log dump`: the contents of a file of a data directory, row by row."""

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any

import typer

from ..errors import CorruptionError, InvalidRequest
from .options import Output, OutputOption
from .output import echo, print_json, print_table, time_text

app = typer.Typer(
    help="Dump files of a data directory.", no_args_is_help=True, rich_markup_mode=None
)

BATCH_COLUMNS = (
    "position",
    "base_offset",
    "last_offset",
    "count",
    "size",
    "codec",
    "leader_epoch",
    "max_timestamp",
    "marker",
)
"""The columns of a batch in tables; `--output json` has every header field."""

TABLE_ROWS_MAX = 5000
"""Rows per table, which bounds memory for large files."""

TIME_COLUMNS = ("timestamp", "base_timestamp", "max_timestamp")


@app.callback()
def log() -> None:
    """Dump files of a data directory."""


@app.command(
    "dump",
    short_help="Print the contents of a file",
    epilog="""\b
Examples:
  quorumlog log dump quorumlog-data/flights-0/00000000000000000000.log
  quorumlog log dump quorumlog-data/flights-0/00000000000000000000.log --records -o json
  quorumlog log dump quorumlog-data/meta.properties
""",
)
def dump(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="*.log, *.index, *.timeindex, *.txnindex, *.snapshot, *-checkpoint, "
            "*.properties or quorum-state, also with .cleaned, .swap or .deleted",
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Print the records of each batch")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Print the contents of a file of a data directory, without changing it.

    Times are ISO 8601 (UTC), with --output json milliseconds since 1970. Exits with code 1 at the
    first batch that is truncated or has a wrong CRC.
    """
    rows: list[dict[str, Any]] = []
    is_empty = True
    for row in read_rows(file, records=records):
        if "error" in row:
            break
        if output is Output.JSON:
            print_json(row)
        else:
            rows.append(row)
            if len(rows) == TABLE_ROWS_MAX:
                print_rows(rows)
                rows = []
                is_empty = False
    else:
        row = {}
    if output is Output.HUMAN and (rows or is_empty):
        print_rows(rows)
    if "error" in row:
        raise CorruptionError(f"{file} at byte {row.get('position', '?')}: {row['error']}")


def read_rows(file: str, *, records: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file. Raise InvalidRequest if it cannot be read; errors of the output
    pass through."""
    from ..raftlog.inspection import describe_controls
    from ..runtime.files import RealFiles
    from ..storage.inspect.dump import dump_file

    try:
        yield from dump_file(RealFiles(), file, records=records, controls=describe_controls)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print rows as tables, one for each run of rows of the same kind."""
    if not rows:
        echo("The file is empty.")
    for names, run in groupby(rows, key=tuple):
        columns = BATCH_COLUMNS if "base_offset" in names else names
        if columns is BATCH_COLUMNS and "says" in names:
            columns = (*BATCH_COLUMNS, "says")
        table = [tuple(_shown(name, row[name]) for name in columns) for row in run]
        print_table([name.replace("_", " ") for name in columns], table, empty="")


def _shown(name: str, value: object) -> object:
    """Return a column's value for a table: times as ISO 8601, None for no time."""
    if name in TIME_COLUMNS and isinstance(value, int):
        return time_text(value) if value >= 0 else None
    return value
