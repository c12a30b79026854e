"""Reading a topic into Spark: ours beside a tuple source and the ceiling of Spark's interface.

One session, one job (`count(*)`, sum of the values' lengths), seven columns, taking turns:

- quorumlog: the data source, from a broker on this machine;
- tuples: a Python data source that yields the same rows as tuples, made on the spot, no broker;
- arrow: a Python data source that yields one prepared Arrow batch again and again, no broker: what
  is left of its time is Spark's own, so nothing written in Python can be faster.

The goal is three times the tuple source. CPU seconds are those of the JVM, of Python's workers and
of the broker, for a million rows.

    python benchmarks/spark_read.py [--records 5000000] [--rounds 3]
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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
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
TOPIC: Final = "bench"
SLICE_ROWS: Final = 250_000
PEER_BATCH_ROWS: Final = 40_000
GOAL: Final = 3.0
RESULTS: Final = Path(__file__).parent / "results"
SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
MOMENT: Final = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)

console = Console()


# --- the peers ---------------------------------------------------------------------------------


class PeerReader(DataSourceReader):
    """Four partitions of equal size."""

    def __init__(self, rows: int, schema: StructType) -> None:
        self.rows = rows // PARTITIONS
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        """One task for each partition."""
        return [InputPartition(index) for index in range(PARTITIONS)]


class TupleReader(PeerReader):
    """Yields a tuple for each row."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a partition."""
        index, value = partition.value, b"x" * VALUE_BYTES
        for offset in range(self.rows):
            yield (b"key-000001", value, TOPIC, index, offset, MOMENT, 0)


class ArrowReader(PeerReader):
    """Yields one prepared batch again and again."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield batches that add up to a partition's rows."""
        row = (b"key-000001", b"x" * VALUE_BYTES, TOPIC, partition.value, 0, MOMENT, 0)
        schema = to_arrow_schema(self.schema, timezone="UTC")
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([cell] * PEER_BATCH_ROWS, field.type)
                for cell, field in zip(row, schema, strict=True)
            ],
            schema=schema,
        )
        for start in range(0, self.rows, PEER_BATCH_ROWS):
            yield batch.slice(0, min(PEER_BATCH_ROWS, self.rows - start))


class TupleSource(DataSource):
    """The peer that most people would write."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(int(self.options["rows"]), schema)


class ArrowSource(TupleSource):
    """The ceiling."""

    @classmethod
    def name(cls) -> str:
        return "arrow"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ArrowReader(int(self.options["rows"]), schema)


# --- measuring ---------------------------------------------------------------------------------


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
    """Return the processes below one."""
    below = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            below += [int(child), *descendants(int(child))]
    return below


def measure(job: Callable[[], "DataFrame"], rows: int, jvm: int, broker: int) -> dict[str, float]:
    """Run a job once; return its seconds and CPU seconds by process. Raises on a wrong answer."""
    groups = {"jvm": [jvm], "python": descendants(jvm), "broker": [broker]}
    before = {name: cpu_seconds(pids) for name, pids in groups.items()}
    started = time.perf_counter()
    answer = job().agg(f.count("*"), f.sum(f.length("value"))).collect()[0]
    seconds = time.perf_counter() - started
    if tuple(answer) != (rows, rows * VALUE_BYTES):
        raise SystemExit(f"wrong answer {tuple(answer)} for {rows} rows")
    groups["python"] = descendants(jvm)
    used = {name: cpu_seconds(pids) - before[name] for name, pids in groups.items()}
    return {"seconds": seconds} | {f"cpu_{name}": used[name] for name in groups}


def fill(address: str, records: int) -> None:
    """Store the records: 100-byte values, 10-byte keys."""
    values = pa.array([b"x" * VALUE_BYTES] * SLICE_ROWS, pa.binary())
    with quorumlog.connect(address) as log:
        log.admin.create_topic(TOPIC, partitions=PARTITIONS)
        with log.producer() as producer:
            for start in range(0, records, SLICE_ROWS):
                count = min(SLICE_ROWS, records - start)
                keys = pa.array([b"key-%06d" % (row % 100_000) for row in range(count)])
                table = pa.table({"key": keys, "value": values.slice(0, count)})
                producer.send_arrow(TOPIC, table, key="key", value="value")


def run(records: int, rounds: int, address: str, broker: int) -> dict[str, list[dict[str, float]]]:
    """Return the measurements of each case, the first of each (a warm-up) left out."""
    fill(address, records)
    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    spark = session("spark_read", master="local[2]", config=quiet)
    try:
        for source in (TupleSource, ArrowSource):
            spark.dataSource.register(source)
        context = spark.sparkContext
        gateway = context._gateway
        assert gateway is not None
        jvm = gateway.proc.pid
        cases = cases_of(spark, address, records)
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
        for number in range(rounds + 1):
            for name, job in cases.items():
                taken = measure(job, records, jvm, broker)
                rate = records / taken["seconds"]
                console.print(f"round {number} {name:10} {rate:12,.0f} rows/s")
                if number:
                    measured[name].append(taken)
        return measured
    finally:
        spark.stop()


def cases_of(
    spark: "SparkSession", address: str, records: int
) -> dict[str, Callable[[], "DataFrame"]]:
    """Return the cases; each call plans anew."""

    def ours() -> "DataFrame":
        reader = spark.read.format("quorumlog").option("bootstrap", address)
        return reader.option("subscribe", TOPIC).load()

    return {
        "quorumlog": ours,
        "tuples": lambda: spark.read.format("tuples").option("rows", str(records)).load(),
        "arrow": lambda: spark.read.format("arrow").option("rows", str(records)).load(),
    }


# --- reporting ---------------------------------------------------------------------------------


def summary(records: int, measured: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return medians and ratios."""
    million = records / 1e6
    cases: dict[str, Any] = {}
    rate: dict[str, float] = {}
    for name, taken in measured.items():
        rate[name] = records / statistics.median(one["seconds"] for one in taken)
        cases[name] = {
            "rows_per_second": rate[name],
            "seconds": [one["seconds"] for one in taken],
        }
        for part in ("cpu_jvm", "cpu_python", "cpu_broker"):
            used = statistics.median(one[part] for one in taken)
            cases[name][f"{part}_s_per_million_rows"] = used / million
    return {
        "benchmark": "spark_read",
        "records": records,
        "value_bytes": VALUE_BYTES,
        "partitions": PARTITIONS,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "cases": cases,
        "ratio_to_tuples": rate["quorumlog"] / rate["tuples"],
        "ratio_to_ceiling": rate["quorumlog"] / rate["arrow"],
        "goal_ratio_to_tuples": GOAL,
    }


def show(result: dict[str, Any]) -> None:
    """Print the table and the ratios."""
    table = Table(title=f"Spark batch read of {result['records']:,} records of 100 bytes")
    for name in ("case", "rows/s", "MB/s", "CPU s per 1M rows: JVM", "Python", "broker"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for name, case in result["cases"].items():
        rate = case["rows_per_second"]
        parts = ("cpu_jvm", "cpu_python", "cpu_broker")
        used = [f"{case[f'{part}_s_per_million_rows']:.2f}" for part in parts]
        table.add_row(name, f"{rate:,.0f}", f"{rate * VALUE_BYTES / 1e6:,.0f}", *used)
    console.print(table)
    console.print(
        f"{result['ratio_to_tuples']:.1f} times the tuple source (goal: {GOAL:.0f}), "
        f"{result['ratio_to_ceiling']:.2f} of the ceiling"
    )


def main() -> int:
    """Measure, print, and write benchmarks/results/spark_read.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    records = asked.records - asked.records % PARTITIONS
    with tempfile.TemporaryDirectory(prefix="quorumlog-bench-") as folder:
        command = [*QUORUMLOG, "dev", "--data-dir", f"{folder}/data"]
        command += ["--grpc-port", "0", "--controller-port", "0", "--output", "json"]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert broker.stdout is not None
            address = json.loads(broker.stdout.readline())["grpc"]
            measured = run(records, asked.rounds, address, broker.pid)
        finally:
            broker.terminate()
            broker.wait()
    result = summary(records, measured)
    show(result)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "spark_read.json").write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
