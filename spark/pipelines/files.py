"""`from-files`: Parquet, CSV or JSON files to a topic, exactly once, in order within a key.

A streaming query lists the files, oldest first; its checkpoint has the files that are done. Each
micro-batch is one batch write of the sink under the query's name and the micro-batch's number, so a
repeated one is not written again. All rows of a key are in one task of a micro-batch, sorted by
their place in the files.

A plan in the checkpoint, written before the first micro-batch, fixes the topic, the files and their
schema: the finished files are those of one topic.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorumlog.errors import InvalidConfig
from quorumlog.spark.pipelines.query_run import (
    NumberedWrites,
    local_path,
    pipeline_session,
    run_batches,
)
from quorumlog.spark.pipelines.report import OnProgress, PipelineReport
from quorumlog.spark.pipelines.table_folder import replace_file

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from quorumlog.spark.cluster_access import ClusterAccess


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

_PLAN: Final = "quorumlog-files.json"
_PLAN_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPlan:
    """The topic and the files of a checkpoint, from its first run on."""

    cluster: str  # id
    topic: str
    topic_id: str
    path: str  # absolute, or a URL
    format: str
    schema: str = ""  # of the files, Spark's JSON; empty: not known yet

    def store(self, checkpoint: Path) -> None:
        """Store the plan durably in a checkpoint's folder."""
        checkpoint.mkdir(parents=True, exist_ok=True)
        fields = {
            "version": _PLAN_VERSION,
            "cluster": self.cluster,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "path": self.path,
            "format": self.format,
            "schema": json.loads(self.schema),
        }
        replace_file(checkpoint / _PLAN, json.dumps(fields, indent=1).encode())

    @classmethod
    def load(cls, checkpoint: Path) -> "FilesPlan | None":
        """Return the plan of a checkpoint, None for one without a file. Raise InvalidConfig for one
        of a newer release."""
        stored = checkpoint / _PLAN
        has_files = any(checkpoint.glob("sources/*/*")) or any(checkpoint.glob("offsets/*"))
        if not stored.exists() or not has_files:  # a corrected path or topic takes its place
            return None
        fields = json.loads(stored.read_bytes())
        version = fields.pop("version")
        if version > _PLAN_VERSION:
            raise InvalidConfig(
                f"{stored}: it has version {version}, this release reads {_PLAN_VERSION}; run"
                " from-files with the release that made the checkpoint"
            )
        return cls(**(fields | {"schema": json.dumps(fields["schema"])}))

    def check(self, checkpoint: Path, now: "FilesPlan") -> None:
        """Raise InvalidConfig if a run has another topic or other files than this plan. A run
        without a schema takes this one."""
        for name in ("cluster", "topic", "path", "format"):
            stored, given = getattr(self, name), getattr(now, name)
            if stored != given:
                raise InvalidConfig(
                    f"{checkpoint}: the checkpoint is of {name} {stored!r}, and this run has"
                    f" {given!r}; use another checkpoint"
                )
        if self.topic_id != now.topic_id:
            raise InvalidConfig(
                f"{checkpoint}: topic {self.topic!r} was deleted and created again since, so it"
                " lacks the files that are done; use another checkpoint"
            )
        if now.schema and _schema_text(now.schema) != _schema_text(self.schema):
            raise InvalidConfig(
                f"{checkpoint}: the checkpoint is of files with {_schema_text(self.schema)}, and"
                f" the schema is {_schema_text(now.schema)}; use another path and checkpoint for"
                " files with other columns"
            )


def _schema_text(schema: str) -> str:
    """Return the names and types of Spark's JSON, without nullability and metadata."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema)).simpleString()


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

    Raises InvalidConfig for a wrong option, or for a checkpoint of another topic or other files;
    UnknownTopicOrPartition; ConnectionFailed, OutcomeUnknown or TimedOut if no broker responds.
    """
    if format not in tuple(FileFormat):
        raise InvalidConfig(f"format is {format!r}; give one of {', '.join(FileFormat)}")
    folder = local_path("checkpoint", checkpoint)
    reading = dict(read_options or {})
    writes = NumberedWrites("from-files", bootstrap, topic, options)
    with pipeline_session(spark) as session:
        now = _plan_now(writes.access, topic, path, format)
        if schema is not None:
            from pyspark.sql.types import StructType

            now = replace(now, schema=StructType.fromDDL(schema).json())
        columns = _schema(session, now, path, reading, folder)
        limits = {} if any(name.lower() in _LIMITS for name in reading) else _DEFAULT_LIMIT
        stream = session.readStream.format(format).schema(columns)
        stream = stream.options(**{**_COMPLETE, **limits, **reading})
        frame = stream.load(path).select("*", "_metadata")

        def write(batch: "DataFrame", number: int, query_id: str) -> int | None:
            records = as_records(batch, key, value, timestamp, order_by)
            return writes.write(records, number, query_id)

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


def _plan_now(access: "ClusterAccess", topic: str, path: str, format: str) -> FilesPlan:
    """Return the plan of a run, without a schema. Raise UnknownTopicOrPartition."""
    from quorumlog.ids import TopicPartition
    from quorumlog.spark.broker_calls import Cluster
    from quorumlog.spark.offsets import topic_id_text
    from quorumlog.spark.options import Subscribed

    cluster = Cluster(access)
    leaders = cluster.leaders(Subscribed((topic,)))
    local = re.sub(r"^file:(//)?", "", path)
    return FilesPlan(
        cluster=cluster.cluster_id(),
        topic=topic,
        topic_id=topic_id_text(leaders[TopicPartition(topic, 0)].topic_id),
        path=path if "://" in local else os.path.abspath(local),
        format=format,
    )


def _schema(
    spark: "SparkSession", now: FilesPlan, path: str, options: Mapping[str, str], checkpoint: Path
) -> "StructType":
    """Return the schema of the files: as in the first run, as given, or inferred now.

    Stores the plan of a new checkpoint. Raises InvalidConfig for a checkpoint of another plan.
    """
    from pyspark.sql.types import StructType

    plan = FilesPlan.load(checkpoint)
    if plan is not None:
        plan.check(checkpoint, now)
    else:
        plan = now
        if not plan.schema:
            inferred = spark.read.format(plan.format).options(**options).load(path).schema
            plan = replace(plan, schema=inferred.json())
        plan.store(checkpoint)
    return StructType.fromJson(json.loads(plan.schema))
