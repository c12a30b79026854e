"""Options of `quorumlog consume`."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from ..completion import topic_names
from ..failures import IS_JSON
from ..options import resolve_output


class RecordOutput(StrEnum):
    """The output formats of records."""

    HUMAN = "human"
    JSON = "json"
    RAW = "raw"


class IsolationLevel(StrEnum):
    """The isolation levels, as in `ConsumerConfig`."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


def _resolve_output(ctx: typer.Context, value: RecordOutput | None) -> Any:
    if value is RecordOutput.RAW:
        ctx.meta[IS_JSON] = False
        return value
    found = resolve_output(ctx, value)  # type: ignore[arg-type] # its other values are those of Output
    return None if found is None else RecordOutput(found)


TopicsArgument = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="One or more topics", autocompletion=topic_names),
]
StartOption = Annotated[
    str,
    typer.Option("--from", metavar="OFFSET", help="First offset to read; see the forms below"),
]
EndOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="OFFSET",
        help="Stop before this offset in each partition; waits for offsets that do not exist yet",
    ),
]
UntilEndOption = Annotated[
    bool,
    typer.Option(
        "--until-end", "--exit-at-end", "-e", help="Stop at the current end of each partition"
    ),
]
MaxRecordsOption = Annotated[
    int | None,
    typer.Option("--max", "-n", metavar="RECORDS", min=1, help="Stop after this number of records"),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.001, help="Stop after this time without records"
    ),
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", metavar="NUMBER", min=0, help="Limit to this partition; repeatable"
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Join this consumer group and read from its committed offsets; --from applies to "
        "partitions without a committed offset",
    ),
]
IsolationOption = Annotated[
    IsolationLevel,
    typer.Option(
        "--isolation",
        help="read_committed: records of committed transactions, up to the first open one; "
        "read_uncommitted: all records",
    ),
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="Print by a template of {topic} {partition} {offset} {timestamp} {timestamp_ms} {key} "
        "{value} {headers} and the escapes \\n \\t \\r \\0 \\\\ \\xHH; bytes are unchanged",
    ),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="TEXT",
        help="Terminator of each record with --format or -o raw  [default: \\n]",
    ),
]
ToFileOption = Annotated[
    str | None,
    typer.Option(
        "--to-file", metavar="FILE", help="Write to a .parquet, .arrow, .csv or .jsonl file"
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing file with --to-file")
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print partition, offset, time and key too"),
]
RecordOutputOption = Annotated[
    RecordOutput | None,
    typer.Option(
        "--output",
        "-o",
        callback=_resolve_output,
        help="Output format: human (values as lines), json (one object per line) or raw (values "
        "byte for byte)  "
        "[env var: QUORUMLOG_OUTPUT; default: human]",
    ),
]
