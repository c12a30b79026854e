"""The pipelines on a real broker, compared with what was produced."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import quorumlog
from quorumlog.errors import InvalidConfig
from quorumlog.spark.pipelines import compact, to_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]
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
