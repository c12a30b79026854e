"""What `consume` can be told."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from ..completion import topic_names
from ..failures import IS_JSON
from ..options import resolve_output


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


TopicsArgument = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="One topic, or several.", autocompletion=topic_names),
]
StartOption = Annotated[
    str,
    typer.Option("--from", metavar="PLACE", help="Where to begin; places are listed below."),
]
EndOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="PLACE",
        help="Stop before this place in each partition; an offset that is not reached yet is "
        "waited for.",
    ),
]
UntilEndOption = Annotated[
    bool,
    typer.Option(
        "--until-end", "--exit-at-end", "-e", help="Stop at the end of what is there now."
    ),
]
MaxRecordsOption = Annotated[
    int | None,
    typer.Option("--max", "-n", metavar="RECORDS", min=1, help="Stop after so many records."),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.001, help="Stop when nothing came for so long."
    ),
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", metavar="NUMBER", min=0, help="Only this partition; repeatable."
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Read as a member of this group, from where it has got to; --from counts where it "
        "has got nowhere.",
    ),
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="Print so: {topic} {partition} {offset} {timestamp} {timestamp_ms} {key} {value} "
        "{headers}, and escapes \\n \\t \\r \\0 \\\\ \\xHH. Content is not changed.",
    ),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="TEXT",
        help="What ends a record of --format and of -o raw.  [default: \\n]",
    ),
]
ToFileOption = Annotated[
    str | None,
    typer.Option(
        "--to-file", metavar="FILE", help="Write a .parquet, .arrow, .csv or .jsonl file."
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="--to-file may replace a file.")]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show partition, offset, time and key too."),
]
RecordOutputOption = Annotated[
    RecordOutput | None,
    typer.Option(
        "--output",
        "-o",
        callback=_resolve_output,
        help="human: values as lines; json: an object a line; raw: values byte for byte.  "
        "[env var: QUORUMLOG_OUTPUT; default: human]",
    ),
]
