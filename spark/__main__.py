"""The pipelines' command line: `python -m quorumlog.spark`.

| exit code | meaning |
|---|---|
| 0 | the pipeline is complete |
| 1 | it failed, or it found problems |
| 2 | a flag is missing, unknown or malformed |
| 130 | Ctrl-C or SIGTERM ended it |

Each command has the parameters of the function of the same name in `quorumlog.spark.pipelines`.
"""

import logging
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.errors import QuorumlogError
from quorumlog.spark.pipelines.record_digest import COLUMNS
from quorumlog.spark.pipelines.report import (
    OnProgress,
    PipelineReport,
    ReportFormat,
    print_report,
    show_progress,
)
from quorumlog.spark.pipelines.table_folder import TARGET_BYTES
from quorumlog.spark.pipelines.verification import Comparison
from quorumlog.visible_text import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="python -m quorumlog.spark",
    help="Run data pipelines between topics, files and tables, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="QUORUMLOG_BOOTSTRAP",
        help="gRPC address of a broker, or a comma-separated list",
    ),
]
SubscribeOption = Annotated[
    str | None, typer.Option("--subscribe", metavar="TOPIC,...", help="Topics to read")
]
PatternOption = Annotated[
    str | None,
    typer.Option("--pattern", metavar="REGEX", help="Topics with a whole name that matches"),
]
AgainstOption = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="HOST:PORT[/TOPIC]",
        help="Cluster with the topics, or the topic, to compare with",
    ),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Set an option of the data source, such as startingTimestamp=1357034400000; "
        "repeatable",
    ),
]
SinkOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Set an option of the sink, such as compression=zstd; repeatable",
    ),
]
MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark's master", rich_help_panel=None)
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Set a config of Spark; repeatable"),
]
OutputOption = Annotated[
    ReportFormat,
    typer.Option("--output", "-o", help="Output format: human, or json (one object per line)"),
]
IntervalOption = Annotated[
    float | None,
    typer.Option(
        "--interval",
        metavar="SECONDS",
        min=0,
        help="Run until Ctrl-C, with a micro-batch per interval  "
        "[default: end with the records that exist now]",
    ),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="PATH",
        help="Folder with the position, from which a later run continues",
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of the table: parquet, delta (quorumlog[delta]), or iceberg "
        "(quorumlog[iceberg])",
    ),
]
TargetBytesOption = Annotated[
    int, typer.Option("--target-bytes", metavar="BYTES", min=1, help="Size of compacted files")
]
CatalogOption = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Catalog of an Iceberg table, from pyiceberg's configuration  "
        "[default: catalog.db in the table's folder]",
    ),
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NAMESPACE.NAME",
        help="Name of an Iceberg table in its catalog  [default: lake and the folder's name]",
    ),
]
TablePathOption = Annotated[str, typer.Option("--path", metavar="PATH", help="Folder of the table")]


@app.command("to-lake", short_help="Append a topic to a table of partitioned files, exactly once")
def to_lake_command(
    path: TablePathOption,
    subscribe: SubscribeOption = None,
    pattern: PatternOption = None,
    bootstrap: BootstrapOption = "127.0.0.1:9094",
    format: FormatOption = "parquet",
    checkpoint: CheckpointOption = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select", metavar="SQL", help="Column of the table, as SQL expression; repeatable"
        ),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            metavar="COLUMN",
            help="Partition column; repeatable  [default: date, of the record's timestamp]",
        ),
    ] = None,
    interval: IntervalOption = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Merge small files at the end")
    ] = False,
    target_bytes: TargetBytesOption = TARGET_BYTES,
    catalog: CatalogOption = None,
    table: TableOption = None,
    option: SourceOptions = None,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    output: OutputOption = ReportFormat.HUMAN,
) -> None:
    """Append the new records of topics to a table of partitioned files.

    Each record is in the table exactly once, also after a crash. A later run continues.
    """
    from quorumlog.spark.pipelines.lake import DATE, to_lake

    options = source_options(option, pattern)
    with running("to-lake", output, master, conf) as (spark, on_progress):
        report = to_lake(
            bootstrap=bootstrap,
            subscribe=subscribe,
            path=path,
            format=format,
            checkpoint=checkpoint,
            select=select or (),
            partition_by=partition_by or (DATE,),
            interval=interval,
            compact=compact,
            target_bytes=target_bytes,
            catalog=catalog,
            table=table,
            options=options,
            spark=spark,
            on_progress=on_progress,
        )
    finish(report, output)


FilesCheckpointOption = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="PATH",
        help="Folder with the files that are done, from which a later run continues",
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", metavar="SQL", help="Key, as SQL expression  [default: none]"),
]
ValueOption = Annotated[
    str | None,
    typer.Option(
        "--value", metavar="SQL", help="Value, as SQL expression  [default: the row as JSON]"
    ),
]
TimestampOption = Annotated[
    str | None,
    typer.Option("--timestamp", metavar="SQL", help="Timestamp, as SQL expression  [default: now]"),
]
OrderByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--order-by",
        metavar="SQL",
        help="Order of a key's records in a micro-batch; repeatable  [default: of the files]",
    ),
]


@app.command("from-files", short_help="Write files to a topic, exactly once, in order within a key")
def from_files_command(
    path: Annotated[
        str, typer.Option("--path", metavar="PATH", help="Folder or glob pattern of the files")
    ],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Topic to write")],
    checkpoint: FilesCheckpointOption,
    bootstrap: BootstrapOption = "127.0.0.1:9094",
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format: parquet, csv or json")
    ] = "parquet",
    key: KeyOption = None,
    value: ValueOption = None,
    timestamp: TimestampOption = None,
    order_by: OrderByOption = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="DDL", help="Columns of the files  [default: inferred]"),
    ] = None,
    interval: IntervalOption = None,
    read_option: Annotated[
        list[str] | None,
        typer.Option(
            "--read-option",
            metavar="NAME=VALUE",
            help="Set an option of Spark for the format, such as header=true; repeatable",
        ),
    ] = None,
    option: SinkOptions = None,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    output: OutputOption = ReportFormat.HUMAN,
) -> None:
    """Write the rows of new Parquet, CSV or JSON files to a topic.

    Each row is in the topic exactly once, also after a crash. A later run continues.
    """
    from quorumlog.spark.pipelines.files import from_files

    with running("from-files", output, master, conf) as (spark, on_progress):
        report = from_files(
            bootstrap=bootstrap,
            topic=topic,
            path=path,
            format=format,
            key=key,
            value=value,
            timestamp=timestamp,
            order_by=order_by or (),
            schema=schema,
            checkpoint=checkpoint,
            interval=interval,
            read_options=name_values("--read-option", read_option),
            options=name_values("--option", option),
            spark=spark,
            on_progress=on_progress,
        )
    finish(report, output)


@app.command("compact", short_help="Merge the small files of a table")
def compact_command(
    path: TablePathOption,
    format: FormatOption = "parquet",
    target_bytes: TargetBytesOption = TARGET_BYTES,
    output: OutputOption = ReportFormat.HUMAN,
) -> None:
    """Merge the small files of a table that to-lake wrote. Starts no Spark.

    A reader sees each record once at any time.
    """
    from quorumlog.spark.pipelines.lake import compact

    with exit_on_errors(), show_progress("compact", output) as on_progress:
        report = compact(
            path=path, format=format, target_bytes=target_bytes, on_progress=on_progress
        )
    finish(report, output)


@app.command("verify", short_help="Count and checksum topics, and compare them with others")
def verify_command(
    bootstrap: BootstrapOption = "127.0.0.1:9094",
    subscribe: Annotated[
        str | None, typer.Option("--subscribe", metavar="TOPIC,...", help="Topics to scan")
    ] = None,
    pattern: PatternOption = None,
    against: AgainstOption = None,
    compare: Annotated[
        Comparison,
        typer.Option(
            "--compare",
            help="ordered, unordered: the records of each partition; topic: of all partitions; "
            "latest: the last record of each key",
        ),
    ] = Comparison.ORDERED,
    columns: Annotated[
        str,
        typer.Option("--columns", metavar="NAME,...", help="Columns that the checksums cover"),
    ] = ",".join(COLUMNS),
    duplicates_by: Annotated[
        list[str] | None,
        typer.Option(
            "--duplicates-by",
            metavar="SQL",
            help="Count records with equal values, such as key, or 'key, value'; repeatable",
        ),
    ] = None,
    option: SourceOptions = None,
    against_option: Annotated[
        list[str] | None,
        typer.Option(
            "--against-option",
            metavar="NAME=VALUE",
            help="Set an option of the data source for the other side only; repeatable",
        ),
    ] = None,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    output: OutputOption = ReportFormat.HUMAN,
) -> None:
    """Report counts, gaps and checksums of each partition, and compare topics.

    With --against the exit code is 1 if a partition differs, and the first differing record of each
    is named.
    """
    from quorumlog.spark.pipelines.verification import print_verification

    options = source_options(option, pattern)
    with running("verify", output, master, conf) as (spark, on_progress):
        from quorumlog.spark.pipelines import verify

        report = verify(
            bootstrap=bootstrap,
            subscribe=subscribe,
            against=against,
            comparison=compare,
            columns=[name.strip() for name in columns.split(",")],
            duplicates_by=duplicates_by or (),
            options=options,
            against_options=name_values("--against-option", against_option),
            spark=spark,
            on_progress=on_progress,
        )
    print_verification(report, output)
    if not report.is_sound:
        raise typer.Exit(EXIT_ERROR)


@app.command("mirror", short_help="Copy topics to another cluster, exactly once")
def mirror_command(
    to: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT", help="gRPC address of the target cluster")
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint",
            metavar="PATH",
            help="Folder with the position, from which a later run continues",
        ),
    ],
    subscribe: Annotated[
        str | None, typer.Option("--subscribe", metavar="TOPIC,...", help="Topics to copy")
    ] = None,
    pattern: PatternOption = None,
    bootstrap: BootstrapOption = "127.0.0.1:9094",
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Prefix of the copies' names")
    ] = "",
    create: Annotated[
        bool, typer.Option("--create/--no-create", help="Create missing topics and partitions")
    ] = True,
    append: Annotated[
        bool, typer.Option("--append", help="Allow target topics with records at the first run")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare both sides at the end")
    ] = True,
    option: SourceOptions = None,
    to_option: Annotated[
        list[str] | None,
        typer.Option(
            "--to-option",
            metavar="NAME=VALUE",
            help="Set an option of the sink, such as maxRequestSize=32MiB; repeatable",
        ),
    ] = None,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    output: OutputOption = ReportFormat.HUMAN,
) -> None:
    """Copy the records of topics to another cluster, each exactly once, and compare both sides.

    A copy has the partitions, order, keys, values, headers and timestamps of its source, and
    offsets of its own. A later run with the same checkpoint continues.
    """
    options = source_options(option, pattern)
    with running("mirror", output, master, conf) as (spark, on_progress):
        from quorumlog.spark.pipelines import mirror

        report = mirror(
            bootstrap=bootstrap,
            to=to,
            checkpoint=checkpoint,
            subscribe=subscribe,
            prefix=prefix,
            create=create,
            append=append,
            verify=verify,
            options=options,
            to_options=name_values("--to-option", to_option),
            spark=spark,
            on_progress=on_progress,
        )
    finish(report, output)


# --- what all commands share ---


@contextmanager
def running(
    title: str, output: ReportFormat, master: str, conf: Sequence[str] | None
) -> Iterator[tuple["SparkSession", OnProgress]]:
    """Yield a session that ends with the block, and the progress display.

    Prints the errors of the block and exits with their code.
    """
    # Spark's own progress bars would write over the display.
    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    config = quiet | name_values("--conf", conf)
    with exit_on_errors(), show_progress(title, output) as on_progress:
        from quorumlog.spark.sessions import session

        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs interrupted calls
        spark = session(f"quorumlog {title}", master=master, config=config)
        try:
            yield spark, on_progress
        finally:
            spark.stop()


@contextmanager
def exit_on_errors() -> Iterator[None]:
    """Print the errors that a pipeline expects in one line, and exit with their code.

    SIGTERM ends the block as Ctrl-C does.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except BrokenPipeError:  # of stdout; click exits without a message
        raise
    except (QuorumlogError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        _fail(spark_error_text(str(error)))
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(message: str) -> None:
    typer.echo(f"quorumlog: {visible(message)}", err=True)
    raise typer.Exit(EXIT_ERROR) from None


def spark_error_text(text: str) -> str:
    """Return the message of an error of this package in Spark's text, else Spark's first and last
    message, else the text's first line."""
    own = re.findall(r"(?m)^quorumlog\.errors\.[\w.]+: (.+)$", text)
    if own:
        return str(own[-1])
    found = re.findall(r"(?m)^(?:: |Caused by: )org\.apache\.spark[\w.]*: (.+)$", text)
    return "; ".join(dict.fromkeys([found[0], found[-1]])) if found else text.strip().split("\n")[0]


def finish(report: PipelineReport, output: ReportFormat) -> None:
    """Print the final screen, and exit."""
    print_report(report, output)
    if report.problems:
        raise typer.Exit(EXIT_ERROR)
    if report.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def source_options(option: Sequence[str] | None, pattern: str | None) -> dict[str, str]:
    """Return the options of the data source; raise BadParameter for a malformed one."""
    chosen = {} if pattern is None else {"subscribePattern": pattern}
    return name_values("--option", option) | chosen


def name_values(flag: str, given: Sequence[str] | None) -> dict[str, str]:
    """Return NAME=VALUE arguments as a dict; raise BadParameter for another form."""
    pairs: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=flag)
        pairs[name.strip()] = value
    return pairs


def main() -> None:
    """Run the command line and exit."""
    app(prog_name="python -m quorumlog.spark")


if __name__ == "__main__":
    main()
