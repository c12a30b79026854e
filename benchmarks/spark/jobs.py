"""The measurements of one part, in a process with its own Spark session.

Run by `benchmarks.spark`: python -m benchmarks.spark.jobs PART SETTINGS RESULT
SETTINGS is a JSON object; the result is written to the file RESULT.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from benchmarks.spark.peers import SCHEMA, VALUE_BYTES, PreparedSource
from pyspark.sql import functions as f

from quorumlog.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "bench"
SMALL_ROWS: Final = 1_000
"""Rows of a small micro-batch; its duration is the fixed cost."""
SMALL_BATCHES: Final = 20
QUIET: Final = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}

Settings: TypeAlias = Mapping[str, Any]
Job: TypeAlias = Callable[[], int]
"""Runs once; returns the number of rows for the check."""


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU seconds of processes and of their children that have ended."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        except FileNotFoundError:
            continue
        ticks += sum(int(number) for number in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process."""
    below = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            below += [int(child), *descendants(int(child))]
    return below


@contextmanager
def spark_session(settings: Settings) -> Iterator["SparkSession"]:
    """Start a session, with the connector's jars if `settings` has them."""
    config = dict(QUIET)
    if settings.get("jars"):
        config["spark.jars"] = ",".join(settings["jars"])
    spark = session("benchmark", master="local[2]", config=config)
    try:
        spark.dataSource.register(PreparedSource)
        yield spark
    finally:
        spark.stop()


def turns(
    spark: "SparkSession", jobs: Mapping[str, Job], settings: Settings, *, rows: int
) -> dict[str, Any]:
    """Run the jobs in turn, with a first round that does not count. Return medians by job: rows per
    second, and CPU seconds per million rows of the JVM, of its Python processes and of each system
    of `settings["pids"]`. Raise SystemExit for a wrong number of rows."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a local session has a gateway"
    jvm = gateway.proc.pid
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for number in range(settings["rounds"] + 1):
        for name, job in jobs.items():
            groups = {"jvm": [jvm], "python": descendants(jvm), **settings["pids"]}
            before = {group: cpu_seconds(pids) for group, pids in groups.items()}
            started = time.perf_counter()
            found = job()
            seconds = time.perf_counter() - started
            if found != rows:
                raise SystemExit(f"{name}: {found} rows instead of {rows}")
            groups["python"] = descendants(jvm)
            used = {group: cpu_seconds(pids) - before[group] for group, pids in groups.items()}
            print(f"round {number} {name:40} {rows / seconds:12,.0f} rows/s", file=sys.stderr)
            if number:
                taken[name].append({"seconds": seconds, **used})
    return {name: _medians(each, rows) for name, each in taken.items()}


def _medians(taken: list[dict[str, float]], rows: int) -> dict[str, Any]:
    middle = {name: statistics.median(each[name] for each in taken) for name in taken[0]}
    seconds = middle.pop("seconds")
    return {
        "rows_per_s": round(rows / seconds),
        "cpu_s_per_million": {name: round(used / rows * 1e6, 3) for name, used in middle.items()},
        "rounds_s": [round(each["seconds"], 3) for each in taken],
    }


# --- batch reads --------------------------------------------------------------------------------


def all_columns(frame: "DataFrame") -> int:
    """Use every column; return the number of rows, after a check of the values' length."""
    row = frame.agg(
        f.count("*"),
        f.sum(f.length("value")),
        f.sum(f.length("key")),
        f.sum(f.length("topic")),
        f.sum("partition"),
        f.max("offset"),
        f.max("timestamp"),
        f.sum("timestampType"),
    ).collect()[0]
    return _checked(row)


def values_only(frame: "DataFrame") -> int:
    """Use the values; return the number of rows, after a check of their length."""
    return _checked(frame.agg(f.count("*"), f.sum(f.length("value"))).collect()[0])


def _checked(row: Any) -> int:
    rows = int(row[0])
    if row[1] != rows * VALUE_BYTES:
        raise SystemExit(f"{row[1]} bytes in {rows} values of {VALUE_BYTES}")
    return rows


def quorumlog_frame(spark: "SparkSession", address: str, schema: str | None = None) -> "DataFrame":
    """Return the records of the topic; planned at each call."""
    reader = spark.read.format("quorumlog").option("bootstrap", address).option("subscribe", TOPIC)
    return (reader if schema is None else reader.schema(schema)).load()


def connector_frame(spark: "SparkSession", bootstrap: str) -> "DataFrame":
    """Return the records of the topic by the Kafka connector."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", TOPIC).load()


def prepared_frame(spark: "SparkSession", rows: int, schema: str = SCHEMA) -> "DataFrame":
    """Return prepared rows."""
    return spark.read.format("prepared").option("rows", str(rows)).schema(schema).load()


def read(settings: Settings) -> dict[str, Any]:
    """Measure batch reads compared with the ceiling and Parquet."""
    rows, address, folder = settings["records"], settings["grpc"], settings["folder"]
    parquet = f"{folder}/parquet"
    only = "value binary"
    with spark_session(settings) as spark:
        quorumlog_frame(spark, address).write.parquet(parquet)
        jobs: dict[str, Job] = {
            "quorumlog": lambda: all_columns(quorumlog_frame(spark, address)),
            "prepared Arrow batches": lambda: all_columns(prepared_frame(spark, rows)),
            "Parquet": lambda: all_columns(spark.read.parquet(parquet)),
            "quorumlog, value": lambda: values_only(quorumlog_frame(spark, address, only)),
            "prepared Arrow batches, value": lambda: values_only(prepared_frame(spark, rows, only)),
            "Parquet, value": lambda: values_only(spark.read.parquet(parquet)),
        }
        return {"spark": spark.version, "cases": turns(spark, jobs, settings, rows=rows)}


def connector(settings: Settings) -> dict[str, Any]:
    """Measure batch reads compared with the Kafka connector."""
    rows, address = settings["records"], settings["grpc"]
    with spark_session(settings) as spark:
        jobs: dict[str, Job] = {
            "quorumlog": lambda: all_columns(quorumlog_frame(spark, address)),
            "Kafka connector, quorumlog": (
                lambda: all_columns(connector_frame(spark, settings["kafka"]))
            ),
            "Kafka connector, Apache Kafka": (
                lambda: all_columns(connector_frame(spark, settings["peer"]))
            ),
        }
        return {"spark": spark.version, "cases": turns(spark, jobs, settings, rows=rows)}


# --- batch writes -------------------------------------------------------------------------------


def sink(settings: Settings) -> dict[str, Any]:
    """Measure batch writes compared with a sink that counts and, with its jars, the Kafka
    connector."""
    rows: int = settings["sink_records"]
    with spark_session(settings) as spark:

        def written(name: str, options: Mapping[str, str]) -> Job:
            def job() -> int:
                made_rows(spark, rows).write.format(name).options(**options).mode("append").save()
                return rows

            return job

        own = {"bootstrap": settings["grpc"], "topic": "written"}
        jobs = {
            "quorumlog, exactly once": written("quorumlog", own),
            "quorumlog, at least once": written(
                "quorumlog", {**own, "delivery": "atleastonce", "topic": "written-once-or-more"}
            ),
            "counts the rows": written("prepared", {"rows": "0"}),
        }
        if settings.get("jars"):
            peers = {"quorumlog": settings["kafka"], "Apache Kafka": settings["peer"]}
            for peer, bootstrap in peers.items():
                options = {"kafka.bootstrap.servers": bootstrap, "topic": "written-by-connector"}
                jobs[f"Kafka connector, {peer}"] = written("kafka", options)
        measured = turns(spark, jobs, settings, rows=rows)
        _check_written(spark, settings, rows * (settings["rounds"] + 1))
        return {"spark": spark.version, "cases": measured}


def made_rows(spark: "SparkSession", rows: int) -> "DataFrame":
    """Return rows made in the JVM: a key of 10 bytes and a value of 100."""
    return spark.range(rows, numPartitions=2).select(
        f.encode(f.format_string("key-%06d", f.col("id") % 100_000), "utf-8").alias("key"),
        f.encode(f.repeat(f.lit("x"), VALUE_BYTES), "utf-8").alias("value"),
    )


def _check_written(spark: "SparkSession", settings: Settings, rows: int) -> None:
    reader = spark.read.format("quorumlog").option("bootstrap", settings["grpc"])
    for topic in ("written", "written-once-or-more"):
        found = values_only(reader.option("subscribe", topic).schema("value binary").load())
        if found != rows:
            raise SystemExit(f"{topic}: {found} records instead of {rows}")


# --- streams ------------------------------------------------------------------------------------


def stream(settings: Settings) -> dict[str, Any]:
    """Measure micro-batches of a million rows and of a thousand, compared with the ceiling."""
    sizes = {
        "large": (settings["records"], min(1_000_000, max(settings["records"] // 4, 1))),
        "small": (SMALL_ROWS * SMALL_BATCHES, SMALL_ROWS),
    }
    batches: dict[tuple[str, str], list[dict[str, int]]] = {}
    with spark_session(settings) as spark:

        def frames(size: str, rows: int, batch: int) -> dict[str, "DataFrame"]:
            ours = spark.readStream.format("quorumlog").option("bootstrap", settings["grpc"])
            ours = ours.option("subscribe", f"{TOPIC}-{size}" if size == "small" else TOPIC)
            ours = ours.option("startingOffsets", "earliest").option("groupId", f"bench-{size}")
            peer = spark.readStream.format("prepared").option("rows", str(rows))
            return {
                "quorumlog": ours.option("maxOffsetsPerTrigger", str(batch)).load(),
                "prepared Arrow batches": peer.option("batch", str(batch)).load(),
            }

        for number in range(settings["rounds"] + 1):
            for size, (rows, batch) in sizes.items():
                for name, frame in frames(size, rows, batch).items():
                    taken = _micro_batches(frame, rows)
                    print(f"round {number} {name:24} {size} {len(taken)}", file=sys.stderr)
                    if number:
                        batches.setdefault((name, size), []).extend(taken)
        version = spark.version
    return {
        "spark": version,
        "batch_rows": sizes["large"][1],
        "small_rows": SMALL_ROWS,
        "cases": {
            name: _stream_medians(batches[name, "large"], batches[name, "small"])
            for name in ("quorumlog", "prepared Arrow batches")
        },
    }


def _micro_batches(frame: "DataFrame", rows: int) -> list[dict[str, int]]:
    """Run a stream to its end; return the rows and the durations in ms of each micro-batch but the
    first. Raises SystemExit for a wrong number of rows."""
    with tempfile.TemporaryDirectory(prefix="quorumlog-bench-") as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        taken = [
            {"rows": each["numInputRows"], **each["durationMs"]}
            for each in query.recentProgress
            if each["numInputRows"]
        ]
    found = sum(each["rows"] for each in taken)
    if found != rows:
        raise SystemExit(f"{found} rows were read of {rows}")
    return taken[1:]


def _stream_medians(large: list[dict[str, int]], small: list[dict[str, int]]) -> dict[str, Any]:
    parts = sorted({part for each in small for part in each} - {"rows"})
    return {
        "rows_per_s": round(
            statistics.median(each["rows"] * 1000 / each["triggerExecution"] for each in large)
        ),
        "batch_ms": {
            part: statistics.median(each.get(part, 0) for each in small) for part in parts
        },
    }


# --- the first query ----------------------------------------------------------------------------


def first(settings: Settings) -> dict[str, Any]:
    """Measure the seconds to a session, and from there to the first result."""
    started = time.perf_counter()
    with spark_session(settings) as spark:
        ready = time.perf_counter()
        rows = settings["first_records"]
        match settings["case"]:
            case "spark.range":
                found = spark.range(rows).agg(f.count("*"), f.sum("id")).collect()[0][0]
            case "prepared Arrow batches":
                found = values_only(prepared_frame(spark, rows))
            case _:
                found = values_only(quorumlog_frame(spark, settings["grpc"]))
        if found != rows:
            raise SystemExit(f"{found} rows instead of {rows}")
        answered = time.perf_counter()
        return {"session_s": ready - started, "answer_s": answered - ready, "spark": spark.version}


JOBS: Final[dict[str, Callable[[Settings], dict[str, Any]]]] = {
    "read": read,
    "connector": connector,
    "sink": sink,
    "stream": stream,
    "first": first,
}


def main(part: str, settings: str, result: str) -> None:
    """Measure a part and write its result."""
    Path(result).write_text(json.dumps(JOBS[part](json.loads(settings))))


if __name__ == "__main__":
    main(*sys.argv[1:])
