"""The pipelines on a real broker, compared with the produced records."""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no stubs
from pyiceberg.table import StaticTable
from pyspark.errors import PySparkException

import quorumlog
from quorumlog.errors import InvalidConfig
from quorumlog.spark.pipelines import compact, from_files, to_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]

PROGRAM = Path(__file__).with_name("killed_pipeline.py")
SECONDS_MAX = 300
DAY_MS = 86_400_000


def fill(log: quorumlog.Log, topic: str, rows: range) -> None:
    """Produce a record for each number, three hundred a day."""
    table = pa.table(
        {
            "key": [f"key-{row % 7}" for row in rows],
            "value": [json.dumps({"number": row, "even": row % 2 == 0}) for row in rows],
            "time": pa.array([row * DAY_MS // 300 for row in rows], pa.int64()),
        }
    )
    with log.producer() as producer:
        producer.send_arrow(topic, table, key="key", value="value", timestamp="time")


def stored(log: quorumlog.Log, topic: str) -> list[tuple[Any, ...]]:
    """Return the topic's records, read without Spark."""
    rows = log.read_arrow(topic).to_pylist()
    return sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in rows)


def in_lake(path: Path) -> list[tuple[Any, ...]]:
    """Return the table's records, read without Spark."""
    rows = ds.dataset(path, partitioning="hive").to_table().to_pylist()
    for row in rows:
        assert row["date"] == row["timestamp"].date().isoformat()
    return sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in rows)


def run_killed(pipeline: str, step: str, **arguments: Any) -> None:
    """Run a pipeline in a separate session until it is killed at a step."""
    plan = {"pipeline": pipeline, "step": step, "arguments": arguments}
    command = [sys.executable, str(PROGRAM), json.dumps(plan)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        assert process.wait(SECONDS_MAX) == -signal.SIGKILL
    finally:
        process.kill()


@pytest.mark.long
def test_the_lake_has_each_record_once_over_several_runs(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(partitions=3)
    path = tmp_path / "lake"

    def run(**more: Any) -> Any:
        return to_lake(
            bootstrap=broker.address, subscribe=name, path=str(path), spark=spark, **more
        )

    fill(log, name, range(1_000))
    report = run()
    assert report.records == 1_000
    assert report.details["lag"] == 0
    assert in_lake(path) == stored(log, name)
    assert run().records == 0
    fill(log, name, range(1_000, 1_500))
    files = len(list(path.rglob("*.parquet")))
    report = run(compact=True)
    assert report.records == 500
    assert in_lake(path) == stored(log, name)
    days = sorted(folder.name for folder in path.glob("date=*"))
    assert days == [f"date={dt.date(1970, 1, 1) + dt.timedelta(day)}" for day in range(5)]
    assert len(list(path.rglob("*.parquet"))) == len(days) < files
    assert spark.read.parquet(str(path)).count() == 1_500
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    assert compact(path=str(path)).records == 0
    with pytest.raises(InvalidConfig, match="another checkpoint wrote it"):
        run(checkpoint=str(tmp_path / "new checkpoint"))


def test_selected_columns_and_partitions(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    fill(log, name, range(300))
    to_lake(
        bootstrap=broker.address,
        subscribe=name,
        path=str(tmp_path / "lake"),
        select=[
            "inline(array(from_json(cast(value as string), 'number long, even boolean')))",
            "timestamp",
        ],
        partition_by=["even"],
        spark=spark,
    )
    found = ds.dataset(tmp_path / "lake", partitioning="hive").to_table().to_pylist()
    assert sorted((row["number"], row["even"], row["timestamp"].timestamp()) for row in found) == [
        (n, str(n % 2 == 0).lower(), n * 288) for n in range(300)
    ]
    with pytest.raises(InvalidConfig, match="partition_by has 'day'"):
        to_lake(
            bootstrap=broker.address,
            subscribe=name,
            path=str(tmp_path / "other"),
            partition_by=["day"],
            spark=spark,
        )


@pytest.mark.long
def test_an_iceberg_table_has_spark_s_types_and_partitions(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    fill(log, name, range(30))
    path = tmp_path / "lake"

    def run() -> Any:
        return to_lake(
            bootstrap=broker.address,
            subscribe=name,
            path=str(path),
            format="iceberg",
            select=[
                "offset as number",
                "elt(1 + offset % 3, 'a/b', '', null) as part",
                "cast(offset % 2 as decimal(5, 1)) as price",
                "array(named_struct('a', value)) as list",
                "map('key', key) as map",
                "timestamp",
                "cast(partition as short) as short",
            ],
            partition_by=["part", "price", "date"],
            spark=spark,
        )

    assert run().records == 30
    fill(log, name, range(30, 60))
    assert run().records == 30
    table = StaticTable.from_metadata(str(path))
    rows = table.scan().to_arrow().sort_by("number").to_pylist()
    assert [row["number"] for row in rows] == [*range(60)]
    for row, record in zip(rows, log.read_arrow(name).to_pylist(), strict=True):
        number = row["number"]
        assert row["part"] == ("a/b", "", None)[number % 3]
        assert row["price"] == number % 2
        assert row["list"] == [{"a": record["value"]}]
        assert row["map"] == [("key", record["key"])]
        assert row["timestamp"].timestamp() == number * 288
        assert (row["short"], row["date"]) == (0, row["timestamp"].date())
    for part in ("part = ''", "part is null", "price = 1.0"):
        found = table.scan(row_filter=part).to_arrow()["number"].to_pylist()
        keep = {"part = ''": 3, "part is null": 3, "price = 1.0": 2}[part]
        rest = {"part = ''": 1, "part is null": 2, "price = 1.0": 1}[part]
        assert sorted(found) == [n for n in range(60) if n % keep == rest], part


LONG = pytest.mark.long


@pytest.mark.long
@pytest.mark.parametrize(
    ("format", "steps"),
    [
        ("parquet", ["decided"]),
        pytest.param("parquet", ["written", "decided", "moved"], marks=LONG),
        pytest.param("delta", ["decided"], marks=LONG),
        pytest.param("iceberg", ["decided"], marks=LONG),
    ],
)
def test_a_lake_whose_driver_is_killed_has_each_record_once(
    spark: "SparkSession",
    broker: Any,
    log: quorumlog.Log,
    topic: MakeTopic,
    tmp_path: Path,
    format: str,
    steps: list[str],
) -> None:
    name = topic(partitions=2)
    fill(log, name, range(600))
    arguments = {
        "bootstrap": broker.address,
        "subscribe": name,
        "path": str(tmp_path / "lake"),
        "format": format,
        "options": {"maxOffsetsPerTrigger": "200"},
    }
    for step in steps:
        run_killed("to_lake", step, **arguments)
    assert to_lake(**arguments, spark=spark).records in (200, 400, 600)
    if format == "parquet":
        assert in_lake(tmp_path / "lake") == stored(log, name)
        return
    if format == "delta":
        rows = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().to_pylist()
    else:
        rows = StaticTable.from_metadata(str(tmp_path / "lake")).scan().to_arrow().to_pylist()
    found = sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in rows)
    assert found == stored(log, name)


@pytest.mark.long
def test_ctrl_c_ends_a_pipeline_after_its_micro_batch(
    broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    fill(log, name, range(100))
    command = [
        sys.executable, "-m", "quorumlog.spark", "to-lake", "--bootstrap", broker.address,
        "--subscribe", name, "--path", str(tmp_path / "lake"), "--interval", "0.1",
        "--master", "local[1]", "--output", "json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["records"] < 100:
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 130, err
    report = json.loads(out.splitlines()[-1])
    assert (report["event"], report["records"], report["interrupted"]) == ("report", 100, True)
    assert in_lake(tmp_path / "lake") == stored(log, name)


# --- from-files ---


def write_csv(folder: Path, number: int, rows: range) -> None:
    """Write a file of rows, newer than those with lower numbers."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{9 - number}.csv"  # the order of names differs from that of times
    lines = [f"key-{row % 5},{row}" for row in rows]
    path.write_text("\n".join(["name,number", *lines]) + "\n")
    os.utime(path, (1e9 + number * 1_000_000,) * 2)


def by_key(log: quorumlog.Log, topic: str) -> dict[str, list[int]]:
    """Return the numbers of each key in the order of offsets, read without Spark."""
    found: dict[str, list[int]] = {}
    for record in (
        log.read_arrow(topic)
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
        .to_pylist()
    ):
        row = json.loads(record["value"])
        assert record["key"].decode() == row["name"]
        found.setdefault(row["name"], []).append(row["number"])
    return found


@pytest.mark.long
def test_files_are_written_once_and_in_order_within_a_key(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(partitions=3)
    arguments = {
        "bootstrap": broker.address,
        "topic": name,
        "path": str(tmp_path / "files"),
        "format": "csv",
        "key": "name",
        "schema": "name string, number long",
        "checkpoint": str(tmp_path / "checkpoint"),
        "read_options": {"header": "true", "maxFilesPerTrigger": "2"},
    }
    for number in range(3):
        write_csv(tmp_path / "files", number, range(number * 1_000, number * 1_000 + 1_000))
    run_killed("from_files", "sent", **arguments)
    split = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(split)
    assert before is not None
    spark.conf.set(split, "2000")  # several tasks for each file
    try:
        report = from_files(**arguments, spark=spark)
        assert report.records == 1_000  # the other 2,000 were committed before the kill
        expected = {f"key-{key}": [*range(key, 3_000, 5)] for key in range(5)}
        assert by_key(log, name) == expected
        assert from_files(**arguments, spark=spark).records == 0
        write_csv(tmp_path / "files", 3, range(3_000, 4_000))
        assert from_files(**arguments, spark=spark).records == 1_000
    finally:
        spark.conf.set(split, before)
    assert by_key(log, name) == {f"key-{key}": [*range(key, 4_000, 5)] for key in range(5)}
    with pytest.raises(InvalidConfig, match="the checkpoint is of topic "):
        from_files(**(arguments | {"topic": topic()}), spark=spark)
    with pytest.raises(InvalidConfig, match="struct<name:string,number:bigint>"):
        from_files(**(arguments | {"schema": "name string"}), spark=spark)


def test_a_row_that_does_not_parse_fails_the_run(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.json").write_text('{"number": 1}\n{"number": \n')
    with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)malformed"):
        from_files(
            bootstrap=broker.address,
            topic=name,
            path=str(tmp_path / "files"),
            format="json",
            schema="number long",
            checkpoint=str(tmp_path / "checkpoint"),
            spark=spark,
        )
    assert log.read_arrow(name).num_rows == 0
