"""`quorumlog diff`: compare the records of two copies of a log or of a data directory."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidRequest
from .failures import EXIT_ERROR
from .options import Output, OutputOption
from .output import count_text, echo, print_json, print_table

if TYPE_CHECKING:
    from ..storage.inspect.diff import Diff, LogDiff

EXAMPLES = """\b
Examples:
  quorumlog diff node-1/flights-0 node-2/flights-0
  quorumlog diff node-1 node-2 -o json

\b
Exit codes: 0 equal, or every difference is explained, 1 different, or the copies cannot be
compared, 2 invalid arguments.
"""


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The folder of a log, or a data directory")],
    b: Annotated[str, typer.Argument(metavar="B", help="The copy to compare with")],
    compacted: Annotated[
        list[str] | None,
        typer.Option(
            "--compacted",
            metavar="TOPIC",
            help="Accept missing records in this topic even if no cleaner's checkpoint says that "
            "it is compacted; repeatable",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=1, help="Unexplained differences to list per log"),
    ] = 20,
    output: OutputOption = None,
) -> None:
    """Compare two copies record by record, without changing them.

    The comparison covers offsets, leader epochs, timestamps, keys, values, headers and producers,
    but not batch boundaries and codecs. Differences are explained for records below the other log
    start offset, above the high watermark, superseded in a compacted topic, and control records.
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
    """Print one line per log and kind of difference, then the first differences."""
    from ..storage.inspect.diff import EXPLAINED, SENTENCES

    rows: list[tuple[object, ...]] = []
    for log in found.logs:
        rows.append((log.log, "equal", "", log.same_count, ""))
        rows += [
            (log.log, why, only_in, count, SENTENCES[why] if why in EXPLAINED else "NOT EXPLAINED")
            for (why, only_in), count in log.counts.items()
        ]
    print_table(("log", "records are", "only in", "count", "why"), rows, empty="No common logs.")
    for name, logs in (("A", found.only_in_a), ("B", found.only_in_b)):
        if logs:
            echo(f"only in {name}: {', '.join(logs)}")
    for log in found.logs:
        _print_differences(log)
    echo("")
    echo("The copies are equal." if found.is_same else "The copies differ.")


def _print_differences(log: "LogDiff") -> None:
    from ..storage.inspect.diff import EXPLAINED, SENTENCES

    for difference in log.differences:
        if difference.why in EXPLAINED:
            continue
        if not difference.count:  # a position without records
            named = f" in {difference.only_in}" if difference.only_in else ""
            echo(f"{log.log}: {difference.why}{named}: {difference.detail}")
            continue
        where = f"offset {difference.first_offset}"
        if difference.last_offset > difference.first_offset:
            where = f"offsets {difference.first_offset} to {difference.last_offset}"
        side = f" only in {difference.only_in}" if difference.only_in else ""
        what = difference.detail or SENTENCES[difference.why]
        echo(f"{log.log} {where}: {count_text(difference.count, 'record')}{side}: {what}")
