"""Writes through Spark to a real broker: batches, queries, restarts and wrong input."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as f

import quorumlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MakeTopic = Callable[..., str]
PATIENCE_S = 300


def write(frame: "DataFrame", broker: Any, **options: str) -> None:
    writer = frame.write.format("quorumlog").option("bootstrap", broker.address)
    writer.options(**options).mode("append").save()


def values(log: quorumlog.Log, topic: str) -> list[str]:
    with log.consumer(topic, until_end=True) as consumer:
        return sorted(str(record.text) for record in consumer)


def number_of(record: Any) -> int:
    return int(record.value)


def numbers(log: quorumlog.Log, topic: str) -> list[int]:
    return sorted(int(value) for value in values(log, topic))


def fill(log: quorumlog.Log, topic: str, rows: range) -> None:
    with log.producer() as producer:
        producer.send_many(topic, [f"{row}" for row in rows], keys=[f"{row % 7}" for row in rows])


def copy(
    spark: "SparkSession", broker: Any, source: str, checkpoint: Path, **options: str
) -> "StreamingQuery":
    """Start a query that copies what is available of a topic."""
    reader = spark.readStream.format("quorumlog").option("bootstrap", broker.address)
    rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    writer = rows.select("key", "value").writeStream.format("quorumlog").queryName("copies")
    writer = writer.option("bootstrap", broker.address).options(**options)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def rows_out(query: "StreamingQuery") -> int:
    """Return the rows of the last micro-batch that Spark counted at the sink."""
    progress = query.lastProgress
    assert progress is not None
    return int(progress["sink"]["numOutputRows"])


@pytest.mark.parametrize(
    "delivery", [pytest.param("exactlyonce", marks=pytest.mark.oldest), "atleastonce"]
)
def test_batch_has_every_row_once_and_keys_in_order(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, delivery: str
) -> None:
    name = topic(partitions=3)
    frame = spark.range(0, 20_000, 1, 4).select(
        f.concat(f.lit("key "), f.col("id") % 10).alias("key"),
        f.col("id").cast("string").alias("value"),
        f.when(f.col("id") % 2 == 0, f.array(f.struct(
            f.lit("h").alias("key"), f.col("id").cast("string").cast("binary").alias("value")
        ))).alias("headers"),
        f.timestamp_millis(f.col("id") + 1_000).alias("timestamp"),
    )  # fmt: skip
    write(frame, broker, topic=name, delivery=delivery)
    with log.consumer(name, until_end=True) as consumer:
        found = list(consumer)
    assert sorted(number_of(record) for record in found) == list(range(20_000))
    places: dict[bytes, int] = {}
    last: dict[tuple[bytes, int], int] = {}  # by key and task
    for record in sorted(found, key=lambda record: (record.partition, record.offset)):
        number = number_of(record)
        assert record.key == f"key {number % 10}".encode()
        assert record.timestamp_ms == number + 1_000
        headers = (("h", f"{number}".encode()),) if number % 2 == 0 else ()
        assert record.headers == headers
        assert places.setdefault(record.key, record.partition) == record.partition
        task = number // 5_000
        assert last.get((record.key, task), -1) < number
        last[record.key, task] = number


def test_rows_name_their_topics_and_partitions(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic
) -> None:
    even, odd = topic(partitions=2), topic(partitions=2)
    frame = spark.range(100).select(
        f.when(f.col("id") % 2 == 0, even).otherwise(odd).alias("topic"),
        f.when(f.col("id") % 10 < 2, 1).alias("partition"),
        f.col("id").cast("string").alias("value"),
    )
    write(frame, broker)
    assert numbers(log, even) == list(range(0, 100, 2))
    assert numbers(log, odd) == list(range(1, 100, 2))
    with log.consumer({even: [1]}, until_end=True) as consumer:
        assert {number_of(record) for record in consumer} >= set(range(0, 100, 10))
    write(frame, broker, topic=even)  # the option overrides the column
    assert len(values(log, even)) == 150


def test_topic_is_copied_with_all_columns_as_it_is_read(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic
) -> None:
    source, target = topic(partitions=2), topic(partitions=2)
    fill(log, source, range(100))
    frame = spark.read.format("quorumlog").options(
        bootstrap=broker.address, subscribe=source, includeHeaders="true"
    )
    write(frame.load(), broker, topic=target)

    def rows(name: str) -> list[Any]:
        with log.consumer(name, until_end=True) as consumer:
            return sorted(
                (each.partition, each.offset, each.key, each.value, each.timestamp_ms)
                for each in consumer
            )

    assert rows(target) == rows(source)


def test_named_batch_is_written_once(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic
) -> None:
    name = topic()
    frame = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):
        write(frame, broker, topic=name, commitName=name, commitNumber="1")
    write(frame.limit(1), broker, topic=name, commitName=name, commitNumber="2")
    assert numbers(log, name) == sorted([*range(10), 0])
    with pytest.raises(PySparkException, match="committed with 1 records"):
        write(frame, broker, topic=name, commitName=name, commitNumber="2")
    assert len(numbers(log, name)) == 11


def test_failed_task_leaves_nothing(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic
) -> None:
    name = topic()
    frame = spark.range(0, 1_000, 1, 2).select(
        f.when(f.col("id") == 999, f.raise_error(f.lit("bad row")))
        .otherwise(f.col("id").cast("string"))
        .alias("value")
    )
    with pytest.raises(PySparkException, match="bad row"):
        write(frame, broker, topic=name, commitName=name, commitNumber="1")
    commits = log.admin.describe_commits(f"batch/{name}/{name}")
    assert (commits.open, commits.sealed) == (0, 0)
    assert values(log, name) == []


@pytest.mark.oldest
def test_query_writes_each_record_once_over_restarts(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = topic(partitions=2), topic(partitions=3)
    fill(log, source, range(1_000))
    query = copy(spark, broker, source, tmp_path / "checkpoint", topic=target)
    assert query.awaitTermination(PATIENCE_S)
    fill(log, source, range(1_000, 1_500))
    query = copy(spark, broker, source, tmp_path / "checkpoint", topic=target)
    assert query.awaitTermination(PATIENCE_S)
    assert numbers(log, target) == list(range(1_500))
    assert log.admin.describe_commits(f"spark/{query.id}/").last_committed == 1
    # A driver that died before Spark's own commit runs the batch again.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    query = copy(spark, broker, source, tmp_path / "checkpoint", topic=target)
    assert query.awaitTermination(PATIENCE_S)
    assert numbers(log, target) == list(range(1_500))
    query = copy(spark, broker, source, tmp_path / "other", topic=target, delivery="atleastonce")
    assert query.awaitTermination(PATIENCE_S)
    assert len(numbers(log, target)) == 3_000


def test_query_with_another_input_for_a_committed_batch_fails(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    """A checkpoint that lost its offsets plans another batch with a committed number."""
    source, target = topic(), topic()
    fill(log, source, range(10))
    checkpoint = tmp_path / "checkpoint"
    query = copy(spark, broker, source, checkpoint, topic=target)
    assert query.awaitTermination(PATIENCE_S)
    assert rows_out(query) == 10
    fill(log, source, range(10, 15))
    for folder in ("commits", "offsets"):
        for file in (checkpoint / folder).iterdir():
            file.unlink()
    query = copy(spark, broker, source, checkpoint, topic=target)
    with pytest.raises(StreamingQueryException, match=r"committed with 10 records .* has 15"):
        query.awaitTermination(PATIENCE_S)
    query = copy(spark, broker, source, checkpoint, topic=target, onDifferentBatch="warn")
    assert query.awaitTermination(PATIENCE_S)
    assert rows_out(query) == 15, "the sink dropped rows of tasks"
    assert numbers(log, target) == list(range(10))


def test_foreach_batch_writes_two_topics_exactly_once(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    source, copies, totals = topic(), topic(), topic()
    fill(log, source, range(100))
    fails = [True]

    def both(rows: "DataFrame", number: int) -> None:
        write(
            rows.select("value"), broker, topic=copies,
            commitName=f"{copies}-copies", commitNumber=f"{number}",
        )  # fmt: skip
        if fails.pop() if fails else False:
            raise OSError("the driver stumbles between the two writes")
        total = rows.select(f.count("*").cast("string").alias("value"))
        write(total, broker, topic=totals, commitName=f"{copies}-totals", commitNumber=f"{number}")

    reader = spark.readStream.format("quorumlog").option("bootstrap", broker.address)
    stream = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    writer = stream.writeStream.foreachBatch(both).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="stumbles"):
        writer.start().awaitTermination(PATIENCE_S)
    assert writer.start().awaitTermination(PATIENCE_S)
    assert numbers(log, copies) == list(range(100))
    assert values(log, totals) == ["100"]


@pytest.mark.parametrize(
    ("columns", "options", "saying"),
    [
        ("id", {"topic": "a"}, "column 'id' is unknown; a write takes topic, partition, key"),
        ("id AS value", {"topic": "a"}, "column 'value' is bigint, not binary or string"),
        ("'a' AS value", {}, "no topic is given"),
        ("'a' AS value", {"topic": "absent"}, "quorumlog topics create absent"),
        ("'a' AS value, 'absent' AS topic", {}, "absent"),
        ("'a' AS value, CAST(NULL AS STRING) AS topic", {}, "column 'topic' is null in 1 rows"),
        ("'a' AS value", {"topics": "a"}, "option 'topics' is unknown; did you mean 'topic'"),
        ("'a' AS value", {"kafka.value.serializer": "a"}, "sets a client of the Kafka connector"),
    ],
)
def test_wrong_writes_fail_with_the_remedy(
    spark: "SparkSession", broker: Any, columns: str, options: dict[str, str], saying: str
) -> None:
    frame = spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException, match=saying):
        write(frame, broker, **options)


def test_other_save_and_output_modes_and_absent_topics_are_refused(
    spark: "SparkSession", broker: Any, log: quorumlog.Log, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    frame = spark.range(1).selectExpr("'a' AS value")
    writer = frame.write.format("quorumlog").options(bootstrap=broker.address, topic=name)
    with pytest.raises(PySparkException, match=r"use mode\('append'\)"):
        writer.mode("overwrite").save()
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(PySparkException, match="SAVE_MODE"):
            writer.mode(mode).save()
    fill(log, name, range(3))
    reader = spark.readStream.format("quorumlog").option("bootstrap", broker.address)
    stream = reader.option("subscribe", name).option("startingOffsets", "earliest").load()
    counts = stream.groupBy("key").count().selectExpr("CAST(count AS STRING) AS value")
    query = counts.writeStream.format("quorumlog").outputMode("complete")
    query = query.options(bootstrap=broker.address, topic=name).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match=r"use outputMode\('append'\)"):
        query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(PATIENCE_S)
    assert len(values(log, name)) == 3
    absent = copy(spark, broker, name, tmp_path / "absent", topic="absent")
    with pytest.raises(StreamingQueryException) as caught:
        absent.awaitTermination(PATIENCE_S)
    assert "UnknownTopicOrPartition: absent: the topic of option 'topic'" in str(caught.value)
    assert "PicklingError" not in str(caught.value)
