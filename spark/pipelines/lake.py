"""`to-lake`: a topic to a table of partitioned files, exactly once; and its compaction.

A streaming query reads the topic and writes each micro-batch in parallel into files beside the
table; the driver then adds them to the table in one step, with the query's id and the micro-batch's
number. A micro-batch that Spark repeats after a crash is recognised by both.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from quorumlog.errors import (
    DirectoryUnusable,
    EnvironmentUnusable,
    InvalidConfig,
    QuorumlogError,
    TimedOut,
)
from quorumlog.spark.pipelines.parquet_table import open_parquet_table
from quorumlog.spark.pipelines.query_run import (
    local_path,
    pipeline_session,
    read_stream,
    run_batches,
    with_limit,
)
from quorumlog.spark.pipelines.report import OnProgress, PipelineProgress, PipelineReport
from quorumlog.spark.pipelines.table_folder import (
    TARGET_BYTES,
    CompactedFiles,
    TableColumns,
    WrittenFiles,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

DATE: Final = "date"
"""The default partition column, made from `timestamp` (UTC) unless the records have it."""
COMPACTION_BATCHES: Final = 100
"""A continuous run with compaction compacts after each of so many micro-batches."""
COUNT_SECONDS_MAX: Final = 600
"""How long Spark may take to report the rows of a finished job."""

_DATE_OF_TIMESTAMP: Final = (
    "date_from_unix_date(cast(floor(unix_seconds(timestamp) / 86400) as int))"
)
_PACKAGES: Final = ("pyarrow", "deltalake", "_internal", "pyiceberg", "sqlalchemy")
"""Packages of tables; `_internal` is of deltalake, and pyiceberg uses SQLAlchemy."""
_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


class TableFormat(StrEnum):
    """The formats of tables."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class LakeTable(Protocol):
    """An open table of any format."""

    @property
    def has_partition_columns(self) -> bool:
        """True if the files have the partition columns, which are also in their folders' names."""
        ...

    def begin(self, query: str, number: int) -> Path | None:
        """Return the folder for the files of a micro-batch, None if it is in the table."""
        ...

    def commit(self, query: str, number: int, columns: TableColumns, rows: int) -> WrittenFiles:
        """Add the files with the rows that Spark wrote into the folder of `begin` to the table.

        Raises InvalidConfig unless the table has these columns, DirectoryUnusable unless the files
        have so many rows.
        """
        ...

    def compact(
        self, target_bytes: int, on_partition: Callable[[str, int], None] | None = None
    ) -> CompactedFiles:
        """Merge small files."""
        ...


class _Appender:
    """Writes micro-batches into a table, and counts what it wrote."""

    def __init__(
        self,
        path: Path,
        table: LakeTable,
        partition_by: Sequence[str],
        compaction_bytes: int | None,
    ) -> None:
        self._path = path
        self._table = table
        self._partition_by = partition_by
        self._compaction_bytes = compaction_bytes  # None: no compaction between micro-batches
        self.files = 0
        self.bytes = 0

    def write(self, frame: "DataFrame", number: int, query: str) -> int:
        """Write a micro-batch; see `WriteBatch`."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        with table_errors(self._path):
            folder = self._table.begin(query, number)
        if folder is None:
            return 0
        counted = Observation()
        observed = frame.observe(counted, f.count(f.lit(1)).alias("rows"))
        # Spark's default, INT96, is obsolete, and other readers take it for nanoseconds.
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        partition_by = self._partition_by
        if self._table.has_partition_columns:
            observed, partition_by = _with_copies(observed, partition_by)
        writer = observed.write.partitionBy(*partition_by).option("compression", "zstd")
        writer.parquet(str(folder))
        rows = _rows(counted)
        columns = TableColumns(frame.schema.json(), tuple(self._partition_by))
        with table_errors(self._path):
            written = self._table.commit(query, number, columns, rows)
        self.files += written.files
        self.bytes += written.bytes
        if self._compaction_bytes is not None and (number + 1) % COMPACTION_BATCHES == 0:
            with table_errors(self._path):
                self._table.compact(self._compaction_bytes)
        return written.records


def _with_copies(frame: "DataFrame", names: Sequence[str]) -> tuple["DataFrame", list[str]]:
    """Return a frame with text copies of partition columns, and their names.

    Spark leaves the columns of `partitionBy` out of the files, and an empty string and null would
    be in one file; the text begins with "=".
    """
    copies = [f"quorumlog_partition_{index}" for index in range(len(names))]
    texts = [
        f"concat('=', cast(`{name.replace('`', '``')}` as string)) as {copy}"
        for name, copy in zip(names, copies, strict=True)
    ]
    return frame.selectExpr("*", *texts), copies


def _rows(counted: "Observation") -> int:
    """Return the rows of the job that was observed; raise TimedOut if Spark does not report them.

    Spark reports them by an event, which it drops if its queue of events is full.
    """
    found: Future[int] = Future()

    def wait() -> None:
        try:
            found.set_result(int(counted.get["rows"]))
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    try:
        return found.result(COUNT_SECONDS_MAX)
    except TimeoutError as error:
        raise TimedOut(
            f"Spark did not report the number of written rows in {COUNT_SECONDS_MAX} s; run again, "
            "with a larger spark.scheduler.listenerbus.eventqueue.capacity"
        ) from error


def to_lake(
    *,
    bootstrap: str,
    subscribe: str | None = None,
    path: str,
    format: str = TableFormat.PARQUET,
    checkpoint: str | None = None,
    select: Sequence[str] = (),
    partition_by: Sequence[str] = (DATE,),
    interval: float | None = None,
    compact: bool = False,
    target_bytes: int = TARGET_BYTES,
    catalog: str | None = None,
    table: str | None = None,
    options: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    on_progress: OnProgress | None = None,
) -> PipelineReport:
    """Append the new records of topics to a table of partitioned files, exactly once.

    Ends with the records that exist now; with an `interval` in seconds it starts a micro-batch per
    interval until Ctrl-C. A later run continues from `checkpoint`, by default PATH.checkpoint.
    `select` has SQL expressions over the source's columns. `partition_by` names columns; `date` is
    made from the record's timestamp (UTC) unless it is selected. `subscribe` names topics;
    `options` of the data source may choose them otherwise. `compact` merges small files into files
    of about `target_bytes` at the end, and after every 100 micro-batches of a continuous run.
    `catalog` and `table` are of Iceberg, see `open_iceberg_table`; it is not compacted.

    Raises InvalidConfig for a wrong option, and if the checkpoint or the columns are not the
    table's; DirectoryUnusable if the table cannot be read or written, and if files of an executor
    are missing.
    """
    folder = local_path("path", path)
    checkpoint = str(local_path("checkpoint", checkpoint or f"{folder}.checkpoint"))
    source = {"bootstrap": bootstrap, **(options or {})}
    if subscribe is not None:
        source["subscribe"] = subscribe
    compacted: CompactedFiles | None = None
    _check_compaction(format, is_wanted=compact)
    with (
        pipeline_session(spark) as session,
        _open(folder, format, catalog=catalog, table=table) as opened,
    ):
        between = target_bytes if compact and interval is not None else None
        appender = _Appender(folder, opened, partition_by, between)
        run = run_batches(
            arrange(read_stream(session, with_limit(source)), select, partition_by),
            appender.write,
            checkpoint=checkpoint,
            interval=interval,
            on_progress=on_progress,
        )
        if compact:
            with table_errors(folder):
                compacted = opened.compact(target_bytes)
    return PipelineReport(
        pipeline="to-lake",
        records=run.records,
        seconds=run.seconds,
        where=f"{folder} ({format})",
        details={
            "batches": run.batches,
            "files": appender.files,
            "bytes": appender.bytes,
            **({} if run.lag is None else {"lag": run.lag}),
            **({} if compacted is None else {"compaction": _compaction_text(compacted)}),
            "checkpoint": checkpoint,
        },
        is_interrupted=run.is_interrupted,
    )


def compact(
    *,
    path: str,
    format: str = TableFormat.PARQUET,
    target_bytes: int = TARGET_BYTES,
    on_progress: OnProgress | None = None,
) -> PipelineReport:
    """Merge the small files of a table of `to_lake` into files of about `target_bytes`.

    Needs no Spark. Atomic for readers of each partition. Raises DirectoryInUse while `to_lake`
    writes the table.
    """
    started = time.monotonic()
    folder = local_path("path", path)
    records = 0

    def progress(partition: str, count: int) -> None:
        nonlocal records
        records += count
        if on_progress is not None:
            on_progress(PipelineProgress(records=records, step=partition))

    with _open(folder, format, must_exist=True) as table, table_errors(folder):
        compacted = table.compact(target_bytes, progress)
    return PipelineReport(
        pipeline="compact",
        records=compacted.records,
        seconds=time.monotonic() - started,
        where=f"{folder} ({format})",
        details={
            "partitions": compacted.partitions,
            "files before": compacted.files_before,
            "files after": compacted.files_after,
            "bytes written": compacted.bytes,
        },
    )


def arrange(frame: "DataFrame", select: Sequence[str], partition_by: Sequence[str]) -> "DataFrame":
    """Return the selected columns and the partition columns of the source's records.

    Raises InvalidConfig for a partition column that does not exist or would have hidden folders.
    """
    if not partition_by:
        raise InvalidConfig("partition_by is empty; name at least one column")
    hidden = [name for name in partition_by if name.startswith(("_", "."))]
    if hidden:
        raise InvalidConfig(
            f"partition_by has {hidden[0]!r}: readers of Parquet ignore folders that begin with "
            "'_' or '.'; rename the column by select"
        )
    names: list[str] = [name for name in _COLUMNS if name in frame.columns]
    if "headers" in frame.columns:
        names.append("headers")
    selected = frame.selectExpr(*(select or names))
    missing = [name for name in partition_by if name not in selected.columns]
    if missing == [DATE] and "timestamp" in frame.columns:
        return frame.selectExpr(*(select or names), f"{_DATE_OF_TIMESTAMP} as {DATE}")
    if missing:
        raise InvalidConfig(
            f"partition_by has {missing[0]!r}, which is no column of the table; its columns are "
            f"{', '.join(selected.columns)}"
        )
    return selected


@contextmanager
def table_errors(path: Path) -> Iterator[None]:
    """Raise DirectoryUnusable for the errors of the system and of the packages for tables."""
    try:
        yield
    except QuorumlogError:
        raise
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if not isinstance(error, OSError) and package not in _PACKAGES:
            raise
        text = " ".join(str(error).split())
        raise DirectoryUnusable(
            f"{path}: the table cannot be read or written ({text}); correct that, and run again"
        ) from error


@contextmanager
def _open(
    folder: Path,
    format: str,
    *,
    catalog: str | None = None,
    table: str | None = None,
    must_exist: bool = False,
) -> Iterator[LakeTable]:
    with ExitStack() as stack:
        with table_errors(folder):
            opened = stack.enter_context(_opened(folder, format, catalog, table, must_exist))
        yield opened


def _opened(
    folder: Path, format: str, catalog: str | None, table: str | None, must_exist: bool
) -> AbstractContextManager[LakeTable]:
    if format != TableFormat.ICEBERG:
        if catalog is not None or table is not None:
            raise InvalidConfig(f"format is {format}; catalog and table are for format iceberg")
        if (folder / "metadata").is_dir():
            raise InvalidConfig(f"{folder}: it is an Iceberg table; give format iceberg")
    match format:
        case TableFormat.PARQUET:
            return open_parquet_table(folder, must_exist=must_exist)
        case TableFormat.DELTA:
            from quorumlog.spark.pipelines.delta_table import open_delta_table

            return open_delta_table(folder, must_exist=must_exist)
        case TableFormat.ICEBERG:
            try:
                from quorumlog.spark.pipelines.iceberg_table import open_iceberg_table
            except ImportError as error:
                raise EnvironmentUnusable(
                    f"format iceberg needs the package pyiceberg ({error}); install quorumlog with "
                    "its extra: pip install 'quorumlog[iceberg]'"
                ) from error
            return open_iceberg_table(folder, catalog=catalog, table=table, must_exist=must_exist)
        case _:
            raise InvalidConfig(f"format is {format!r}; give one of {', '.join(TableFormat)}")


def _check_compaction(format: str, *, is_wanted: bool) -> None:
    """Raise InvalidConfig for a format that is not compacted."""
    if is_wanted and format == TableFormat.ICEBERG:
        raise InvalidConfig(
            "compact: to-lake does not compact a table of format iceberg; run the procedure "
            "rewrite_data_files of Spark with Iceberg's package, or OPTIMIZE of Trino"
        )


def _compaction_text(compacted: CompactedFiles) -> str:
    if not compacted.partitions:
        return "nothing to merge"
    return f"{compacted.files_before:,} files merged into {compacted.files_after:,}"
