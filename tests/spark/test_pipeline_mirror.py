"""`mirror` between topics of one broker: its copies, its resumption, and its errors."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quorumlog
from quorumlog.errors import InvalidConfig, UnknownTopicOrPartition
from quorumlog.spark.pipelines.query_run import NumberedWrites
from quorumlog.spark.pipelines.topic_mirror import mirror

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quorumlog.spark.pipelines.report import PipelineReport

MakeTopic = Callable[..., str]
PARTITIONS = 3


@pytest.fixture
def run(spark: "SparkSession", broker: Any, tmp_path: Path) -> Callable[..., "PipelineReport"]:
    def run(topic: str, **settings: Any) -> "PipelineReport":
        given = {"subscribe": topic, "prefix": "copy.", "checkpoint": str(tmp_path / "checkpoint")}
        return mirror(
            bootstrap=broker.address, to=broker.address, spark=spark, **{**given, **settings}
        )

    return run


Run = Callable[..., "PipelineReport"]


def fill(log: quorumlog.Log, topic: str, rows: range) -> None:
    with log.producer() as producer:
        for row in rows:
            producer.send(
                topic,
                partition=row % PARTITIONS,
                key=None if row % 5 == 0 else b"k%d" % (row % 9),
                value=None if row % 7 == 0 else b"v%d" % row,
                headers=[("n", b"%d" % row), ("none", None)] if row % 2 else None,
                timestamp_ms=1_600_000_000_000 + row,
            )


def stored(log: quorumlog.Log, topic: str) -> list[list[tuple[Any, ...]]]:
    """Return the records of each partition in order, without their offsets."""
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(PARTITIONS)]
    for record in log.consumer(topic, until_end=True):
        headers = tuple(record.headers or ())
        found[record.partition].append((record.key, record.value, record.timestamp_ms, headers))
    return found


@pytest.mark.long
def test_a_mirror_copies_resumes_and_compares(
    log: quorumlog.Log, topic: MakeTopic, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(partitions=PARTITIONS)
    fill(log, name, range(300))
    report = run(name, options={"maxOffsetsPerTrigger": "150"})
    assert (report.records, report.problems) == (300, ())
    assert report.details["verified"] == "yes: 300 records are equal"
    assert stored(log, f"copy.{name}") == stored(log, name)
    copy = log.admin.describe_topic(f"copy.{name}")
    assert (len(copy.partitions), dict(copy.configs)) == (PARTITIONS, {"retention.ms": "-1"})

    # The driver fails after a commit in the target, and before Spark's own.
    fill(log, name, range(300, 400))
    write = NumberedWrites.write

    def fail_after_commit(self: Any, frame: "DataFrame", number: int, query_id: str) -> None:
        write(self, frame, number, query_id)
        raise ConnectionResetError("the driver ends")

    with monkeypatch.context() as patch:
        patch.setattr(NumberedWrites, "write", fail_after_commit)
        with pytest.raises(ConnectionResetError):
            run(name)
    fill(log, name, range(400, 410))
    report = run(name, to_options={"compression": "lz4"})
    assert report.details["verified"] == "yes: 410 records are equal"
    assert report.records == 10  # without those of the repeated micro-batch
    assert stored(log, f"copy.{name}") == stored(log, name)

    with pytest.raises(InvalidConfig, match="has records, and the checkpoint is new"):
        run(name, checkpoint="file:/nowhere/new")
    with pytest.raises(InvalidConfig, match="use another checkpoint"):
        run(name, prefix="other.")


def test_a_copy_with_other_records_is_reported(
    log: quorumlog.Log, topic: MakeTopic, run: Run
) -> None:
    name = topic(partitions=PARTITIONS)
    fill(log, name, range(30))
    run(name, verify=False)
    with log.producer() as producer:
        producer.send(f"copy.{name}", b"a stranger's", partition=1).result()
    (problem,) = run(name).problems
    assert problem.startswith(f"{name}-1: the first 10 records are equal; then 1 records are only")

    log.admin.delete_records(f"copy.{name}", {2: 3})
    report = run(name)
    assert report.problems == ()
    verified = str(report.details["verified"])
    assert verified.startswith("no: retention deleted records since the mirror began")

    log.admin.delete_topic(f"copy.{name}")
    with pytest.raises(InvalidConfig, match="the topic was deleted after the mirror began"):
        run(name)


def test_wrong_mirrors_are_refused(log: quorumlog.Log, topic: MakeTopic, run: Run) -> None:
    name = topic(partitions=PARTITIONS)
    with pytest.raises(InvalidConfig, match="are one cluster"):
        run(name, prefix="")
    with pytest.raises(InvalidConfig, match="option 'minPartitions'"):
        run(name, options={"minPartitions": "9"})
    with pytest.raises(UnknownTopicOrPartition, match="0 of 3 partitions"):
        run(name, create=False)
    log.admin.create_topic(f"copy.{name}", partitions=PARTITIONS + 1)
    with pytest.raises(InvalidConfig, match="has 4 partitions"):
        run(name)
