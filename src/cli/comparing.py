"""`quorumlog diff`: whether two copies of a log, or of a data directory, hold the same records."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidRequest
from .failures import EXIT_ERROR
from .options import Output, OutputOption
from .output import count_text, print_json, print_table

if TYPE_CHECKING:
    from ..storage.inspect.diff import Diff, LogDiff

EXAMPLES = """\b
Examples:
  quorumlog diff node-1/flights-0 node-2/flights-0
  quorumlog diff node-1 node-2 -o json

\b
Exit codes: 0 the same, or every difference is explained, 1 not the same, or they cannot be
compared, 2 a wrong command line.
"""


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A log's folder, or a data directory.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    compacted: Annotated[
        list[str] | None,
        typer.Option(
            "--compacted",
            metavar="TOPIC",
            help="A topic where compaction may have dropped records, though no cleaner's "
            "checkpoint says so; may be repeated.",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=1, help="Unexplained differences listed per log."),
    ] = 20,
    output: OutputOption = None,
) -> None:
    """Compare two copies record by record; nothing is changed.

    Batch boundaries and codecs do not count; offsets, leader epochs, timestamps, keys, values,
    headers and producers do. Explained are records below the other's log start, above the high
    watermark, superseded in a compacted topic, and control records.
    """
    from ..runtime.files import RealFiles
    from ..storage.inspect.diff import diff as diff_files

    named = frozenset(compacted or ())
    try:
        found = diff_files(RealFiles(), a, b, compacted=named, limit=limit)
    except OSError as error:
        raise InvalidRequest(f"{error.filename or a} cannot be read: {error.strerror}") from None
    if output is Output.JSON:
        print_json(found.as_dict())
    else:
        print_diff(found)
    if not found.is_same:
        raise typer.Exit(EXIT_ERROR)


def print_diff(found: "Diff") -> None:
    """Print a line a log and kind of difference, then the first differences."""
    from ..storage.inspect.diff import EXPLAINED, SENTENCES

    rows: list[tuple[object, ...]] = []
    for log in found.logs:
        rows.append((log.log, "equal", "", log.same_count, ""))
        rows += [
            (log.log, why, only_in, count, SENTENCES[why] if why in EXPLAINED else "NOT EXPLAINED")
            for (why, only_in), count in log.counts.items()
        ]
    print_table(("log", "records are", "only in", "count", "why"), rows, empty="No log is in both.")
    for name, lonely in (("A", found.only_in_a), ("B", found.only_in_b)):
        if lonely:
            typer.echo(f"only in {name}: {', '.join(lonely)}")
    for log in found.logs:
        _print_differences(log)
    typer.echo("")
    typer.echo("They hold the same records." if found.is_same else "They differ.")


def _print_differences(log: "LogDiff") -> None:
    from ..storage.inspect.diff import EXPLAINED, SENTENCES

    for difference in log.differences:
        if difference.why in EXPLAINED:
            continue
        if not difference.count:  # no records, but a place
            named = f" in {difference.only_in}" if difference.only_in else ""
            typer.echo(f"{log.log}: {difference.why}{named}: {difference.detail}")
            continue
        where = f"offset {difference.first_offset}"
        if difference.last_offset > difference.first_offset:
            where = f"offsets {difference.first_offset} to {difference.last_offset}"
        side = f" only in {difference.only_in}" if difference.only_in else ""
        what = difference.detail or SENTENCES[difference.why]
        typer.echo(f"{log.log} {where}: {count_text(difference.count, 'record')}{side}: {what}")
