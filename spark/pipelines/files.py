"""`from-files`: Parquet, CSV or JSON files to a topic, exactly once, in order within a key.

A streaming query lists the files, oldest first; its checkpoint has the files that are done. Each
micro-batch is one batch write of the sink under the query's name and the micro-batch's number, so a
repeated one is not written again. All rows of a key are in one task of a micro-batch, sorted by
their place in the files.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from quorumlog.errors import InvalidConfig
from quorumlog.spark.pipelines.query_run import local_path, pipeline_session, run_batches
from quorumlog.spark.pipelines.report import OnProgress, PipelineReport
from quorumlog.spark.pipelines.table_folder import replace_file

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


class FileFormat(StrEnum):
    """The formats of files."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


_DEFAULT_LIMIT: Final = {"maxBytesPerTrigger": str(512 << 20)}
"""The files of a micro-batch, unless an option limits them."""
_LIMITS: Final = ("maxfilespertrigger", "maxbytespertrigger")
_COMPLETE: Final = {"maxFileAge": "36500d", "mode": "FAILFAST", "enforceSchema": "false"}
"""By default, Spark ignores files that are a week older than the newest one, reads nulls from rows
that it cannot parse, and the columns of a CSV file by position, all without an error."""

_PLACE: Final = "__place"
"""The column with a row's place in the files."""


def from_files(
    *,
    bootstrap: str,
    topic: str,
    path: str,
    format: str = FileFormat.PARQUET,
    key: str | None = None,
    value: str | None = None,
    timestamp: str | None = None,
    order_by: Sequence[str] = (),
    schema: str | None = None,
    checkpoint: str,
    interval: float | None = None,
    read_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    on_progress: OnProgress | None = None,
) -> PipelineReport:
    """Write the rows of new files to a topic, each exactly once.

    Ends with the files that exist now; with an `interval` in seconds it looks for new ones per
    interval until Ctrl-C. A later run continues from `checkpoint`.

    `key`, `value` and `timestamp` are SQL expressions over the columns; without a value it is the
    row as a JSON object. Records of a key are in the order of `order_by` within a micro-batch, else
    of their files' modification times and of their rows. `schema` is DDL; without it the first run
    infers the schema, and later runs use the same. A row that does not parse fails the run.
    `read_options` are Spark's for the format, `options` those of the sink.

    Raises InvalidConfig for a wrong option.
    """
    if format not in tuple(FileFormat):
        raise InvalidConfig(f"format is {format!r}; give one of {', '.join(FileFormat)}")
    folder = local_path("checkpoint", checkpoint)
    reading = dict(read_options or {})
    sink = {"bootstrap": bootstrap, "topic": topic, **(options or {})}
    delivery = [value.lower() for name, value in sink.items() if name.lower() == "delivery"]
    is_exactly_once = delivery != ["atleastonce"]
    with pipeline_session(spark) as session:
        columns = _schema(session, path, format, schema, reading, folder)
        limits = {} if any(name.lower() in _LIMITS for name in reading) else _DEFAULT_LIMIT
        stream = session.readStream.format(format).schema(columns)
        stream = stream.options(**{**_COMPLETE, **limits, **reading})
        frame = stream.load(path).select("*", "_metadata")

        def write(batch: "DataFrame", number: int, query: str) -> None:
            records = as_records(batch, key, value, timestamp, order_by)
            writer = records.write.format("quorumlog").options(**sink)
            if is_exactly_once:
                writer = writer.option("commitName", f"from-files/{query}")
                writer = writer.option("commitNumber", str(number))
            writer.mode("append").save()

        run = run_batches(
            frame, write, checkpoint=str(folder), interval=interval, on_progress=on_progress
        )
    return PipelineReport(
        pipeline="from-files",
        records=run.records,
        seconds=run.seconds,
        where=f"topic {topic} at {bootstrap}",
        details={"batches": run.batches, "files": f"{path} ({format})", "checkpoint": str(folder)},
        is_interrupted=run.is_interrupted,
    )


def as_records(
    batch: "DataFrame",
    key: str | None,
    value: str | None,
    timestamp: str | None,
    order_by: Sequence[str],
) -> "DataFrame":
    """Return the sink's columns of rows with `_metadata`; the rows of a key are in one partition,
    in order."""
    from pyspark.sql import functions as f

    rows = [f.col(f"`{name}`") for name in batch.columns if name != "_metadata"]
    columns = {
        "key": f.lit(None).cast("binary") if key is None else _bytes_or_text(batch, key),
        "value": f.to_json(f.struct(*rows)) if value is None else _bytes_or_text(batch, value),
    }
    if timestamp is not None:
        columns["timestamp"] = f.expr(timestamp).cast("timestamp")
    if key is None and not order_by:
        return batch.select(*(column.alias(name) for name, column in columns.items()))
    # Within a split of a file, rows are in one task, which numbers them in ascending order.
    place = f.struct(
        *(f.expr(name) for name in order_by),
        f.col("_metadata.file_modification_time"),
        f.col("_metadata.file_path"),
        f.col("_metadata.file_block_start"),
        f.monotonically_increasing_id(),
    )
    records = batch.select(
        *(column.alias(name) for name, column in columns.items()), place.alias(_PLACE)
    )
    if key is not None:
        records = records.repartition("key")
    return records.sortWithinPartitions(_PLACE).select(*columns)


def _bytes_or_text(batch: "DataFrame", expression: str) -> "Column":
    """Return an expression as binary or string, a struct or array as JSON."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    found = batch.select(f.expr(expression)).schema[0].dataType
    if isinstance(found, BinaryType):
        return f.expr(expression)
    if isinstance(found, StructType | ArrayType | MapType):
        return f.to_json(f.expr(expression))
    return f.expr(expression).cast("string")


def _schema(
    spark: "SparkSession",
    path: str,
    format: str,
    schema: str | None,
    options: Mapping[str, str],
    checkpoint: Path,
) -> "StructType":
    """Return the schema of the files: as given, as in the first run, or inferred now."""
    from pyspark.sql.types import StructType

    if schema is not None:
        return cast("StructType", StructType.fromDDL(schema))
    kept = checkpoint / "quorumlog-schema.json"
    if kept.exists():
        return StructType.fromJson(json.loads(kept.read_bytes()))
    inferred = spark.read.format(format).options(**options).load(path).schema
    kept.parent.mkdir(parents=True, exist_ok=True)
    replace_file(kept, inferred.json().encode())
    return inferred
