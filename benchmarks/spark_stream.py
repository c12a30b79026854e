"""Streaming a topic into Spark: ours beside a stream that only yields.

One session, sink `noop`, `Trigger.AvailableNow`, seven columns, taking turns:

- quorumlog: the data source from a broker on this machine, with a group that says how far it is;
- arrow: a Python streaming source that yields one prepared Arrow batch again and again, no broker:
  what is left of its time is Spark's own.

Large micro-batches give rows a second; small ones (a thousand rows) give what a micro-batch costs
whatever is in it. The first micro-batch of a run is left out.

    python benchmarks/spark_stream.py [--records 4000000] [--rounds 3]
"""

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

import quorumlog
from quorumlog.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The command `quorumlog` of this Python, wherever its script is.
QUORUMLOG: Final = (sys.executable, "-m", "quorumlog.cli")

VALUE_BYTES: Final = 100
PARTITIONS: Final = 4
SLICE_ROWS: Final = 250_000
PEER_BATCH_ROWS: Final = 40_000
LARGE_ROWS: Final = 1_000_000
SMALL_ROWS: Final = 1_000
SMALL_BATCHES: Final = 20
GOAL: Final = 0.8
RESULTS: Final = Path(__file__).parent / "results"
SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
MOMENT: Final = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)

console = Console()


class YieldingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets that count rows, and tasks that yield a prepared batch."""

    def __init__(self, rows: int, rows_a_batch: int, schema: StructType) -> None:
        self.rows = rows
        self.rows_a_batch = rows_a_batch
        self.schema = schema

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"rows": min(start["rows"] + self.rows_a_batch, self.rows)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.rows_a_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((end["rows"] - start["rows"]) // PARTITIONS)] * PARTITIONS

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        row = (b"key-000001", b"x" * VALUE_BYTES, "bench", 0, 0, MOMENT, 0)
        schema = to_arrow_schema(self.schema, timezone="UTC")
        count = min(PEER_BATCH_ROWS, partition.value)
        columns = [
            pa.array([cell] * count, field.type) for cell, field in zip(row, schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        for start in range(0, partition.value, PEER_BATCH_ROWS):
            yield batch.slice(0, min(PEER_BATCH_ROWS, partition.value - start))


class YieldingSource(DataSource):
    """The ceiling."""

    @classmethod
    def name(cls) -> str:
        return "arrow"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return YieldingReader(int(self.options["rows"]), int(self.options["batch"]), schema)


def fill(address: str, topic: str, records: int) -> None:
    """Store the records: 100-byte values, 10-byte keys."""
    values = pa.array([b"x" * VALUE_BYTES] * min(records, SLICE_ROWS), pa.binary())
    with quorumlog.connect(address) as log:
        log.admin.create_topic(topic, partitions=PARTITIONS)
        with log.producer() as producer:
            for start in range(0, records, SLICE_ROWS):
                count = min(SLICE_ROWS, records - start)
                keys = pa.array([b"key-%06d" % (row % 100_000) for row in range(count)])
                table = pa.table({"key": keys, "value": values.slice(0, count)})
                producer.send_arrow(topic, table, key="key", value="value")


def stream(frame: "DataFrame", rows: int) -> list[dict[str, int]]:
    """Run a stream to its end; return what each micro-batch but the first took, in ms by part, and
    its rows. Raises on a wrong number of rows."""
    with tempfile.TemporaryDirectory(prefix="quorumlog-bench-") as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        taken = [
            {"rows": each["numInputRows"], **each["durationMs"]}
            for each in query.recentProgress
            if each["numInputRows"]
        ]
    if sum(each["rows"] for each in taken) != rows:
        raise SystemExit(f"{sum(each['rows'] for each in taken)} rows were read of {rows}")
    return taken[1:]


def large_rows(records: int) -> int:
    """Rows of a large micro-batch: few records make smaller ones, and four of them."""
    return min(LARGE_ROWS, max(records // 4, 1))


def cases(
    spark: "SparkSession", address: str, records: int
) -> dict[tuple[str, str], Callable[[], list[dict[str, int]]]]:
    """Return the cases by source and size of the micro-batches."""
    sizes = {
        "large": (records, large_rows(records)),
        "small": (SMALL_ROWS * SMALL_BATCHES, SMALL_ROWS),
    }
    found: dict[tuple[str, str], Callable[[], list[dict[str, int]]]] = {}
    for size, (rows, batch) in sizes.items():
        fill(address, size, rows)

        def ours(size: str = size, rows: int = rows, batch: int = batch) -> list[dict[str, int]]:
            reader = spark.readStream.format("quorumlog").option("bootstrap", address)
            reader = reader.option("subscribe", size).option("startingOffsets", "earliest")
            reader = reader.option("groupId", f"bench-{size}")
            return stream(reader.option("maxOffsetsPerTrigger", str(batch)).load(), rows)

        def ceiling(rows: int = rows, batch: int = batch) -> list[dict[str, int]]:
            reader = spark.readStream.format("arrow").option("rows", str(rows))
            return stream(reader.option("batch", str(batch)).load(), rows)

        found["quorumlog", size] = ours
        found["arrow", size] = ceiling
    return found


def run(records: int, rounds: int, address: str) -> dict[str, Any]:
    """Return rows a second and ms a micro-batch of each source; a first round warms up."""
    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    spark = session("spark_stream", master="local[2]", config=quiet)
    try:
        spark.dataSource.register(YieldingSource)
        measured: dict[tuple[str, str], list[dict[str, int]]] = {}
        jobs = cases(spark, address, records)
        for number in range(rounds + 1):
            for case, job in jobs.items():
                taken = job()
                console.print(f"round {number} {case[0]:10} {case[1]:6} {len(taken)} batches")
                if number:
                    measured.setdefault(case, []).extend(taken)
    finally:
        spark.stop()
    found: dict[str, Any] = {}
    for source in ("quorumlog", "arrow"):
        large, small = measured[source, "large"], measured[source, "small"]
        rates = [each["rows"] * 1000 / each["triggerExecution"] for each in large]
        parts = sorted({part for each in small for part in each} - {"rows"})
        found[source] = {
            "rows_per_second": statistics.median(rates),
            "batch_ms": {
                part: statistics.median(each.get(part, 0) for each in small) for part in parts
            },
        }
    return found


def show(result: dict[str, Any]) -> None:
    """Print the table and the ratios."""
    table = Table(title="Spark streaming of 100-byte records")
    for name in ("source", "rows/s", "ms a small micro-batch"):
        table.add_column(name, justify="left" if name == "source" else "right")
    for name, case in result["cases"].items():
        fixed = case["batch_ms"]["triggerExecution"]
        table.add_row(name, f"{case['rows_per_second']:,.0f}", f"{fixed:.0f}")
    console.print(table)
    console.print(
        f"{result['ratio_to_ceiling']:.2f} of the ceiling (goal: {GOAL}), "
        f"{result['extra_ms_per_batch']:.0f} ms more a micro-batch"
    )


def main() -> int:
    """Measure, print, and write benchmarks/results/spark_stream.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorumlog-bench-") as folder:
        command = [*QUORUMLOG, "dev", "--data-dir", f"{folder}/data"]
        command += ["--grpc-port", "0", "--controller-port", "0", "--output", "json"]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert broker.stdout is not None
            address = json.loads(broker.stdout.readline())["grpc"]
            measured = run(asked.records, asked.rounds, address)
        finally:
            broker.terminate()
            broker.wait()
    ours, ceiling = measured["quorumlog"], measured["arrow"]
    result = {
        "benchmark": "spark_stream",
        "records": asked.records,
        "value_bytes": VALUE_BYTES,
        "partitions": PARTITIONS,
        "large_rows": large_rows(asked.records),
        "small_rows": SMALL_ROWS,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "cases": measured,
        "ratio_to_ceiling": ours["rows_per_second"] / ceiling["rows_per_second"],
        "extra_ms_per_batch": (
            ours["batch_ms"]["triggerExecution"] - ceiling["batch_ms"]["triggerExecution"]
        ),
        "goal_ratio_to_ceiling": GOAL,
    }
    show(result)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "spark_stream.json").write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
