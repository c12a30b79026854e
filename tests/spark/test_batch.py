"""Batch reads through Spark from a broker, compared with the produced records."""

import datetime as dt
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource

import quorumlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

MakeTopic = Callable[..., str]


@pytest.fixture
def load(spark: "SparkSession", broker: Any) -> Callable[..., "DataFrame"]:
    def load(topic: str, schema: str | None = None, **options: str) -> "DataFrame":
        reader = spark.read.format("quorumlog").option("bootstrap", broker.address)
        reader = reader.option("subscribe", topic).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return load


Load = Callable[..., "DataFrame"]


def fill(log: quorumlog.Log, topic: str, rows: range, *, keys: int = 7, **settings: Any) -> None:
    """Produce a record for each number: key = number % keys, value = text of the number."""
    table = pa.table(
        {
            "key": pa.array([f"key-{row % keys}" for row in rows]),
            "value": pa.array([f"value-{row}" for row in rows]),
            "time": pa.array([row * 1000 for row in rows], pa.int64()),
        }
    )
    with log.producer(**settings) as producer:
        producer.send_arrow(topic, table, key="key", value="value", timestamp="time")


def values(frame: "DataFrame") -> list[int]:
    """Return the numbers of `fill`, in the order of partition and offset."""
    rows = frame.orderBy("partition", "offset").select(f.col("value").cast("string")).collect()
    return [int(row.value.removeprefix("value-")) for row in rows]


@pytest.mark.oldest
def test_every_record_is_read_once_at_its_position(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    name = topic(partitions=4)
    fill(log, name, range(20_000))
    columns = ["partition", "offset", "key", "value"]
    found = [
        tuple(row) for row in load(name).select(columns).orderBy("partition", "offset").collect()
    ]
    stored = []
    for partition in range(4):
        table = log.read_arrow(name, partitions=partition)
        stored += [tuple(row[column] for column in columns) for row in table.to_pylist()]
    assert [(p, o, bytes(k), bytes(v)) for p, o, k, v in found] == stored
    assert sorted(int(row[3].decode().removeprefix("value-")) for row in found) == list(
        range(20_000)
    )


@pytest.mark.oldest
def test_committed_records_of_transactions_are_read(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    """A committed transaction, an aborted one, and an open one with a record after it."""
    name = topic()
    producers = {each: log.producer(transactional_id=f"{name}.{each}") for each in ("a", "b")}
    for first, commits in ((0, True), (10, False)):
        producers["a"].begin_transaction()
        producers["a"].send_many(name, [f"value-{first + row}" for row in range(10)]).result()
        if commits:
            producers["a"].commit_transaction()
        else:
            producers["a"].abort_transaction()
    producers["b"].begin_transaction()
    producers["b"].send(name, "value-20").result()
    with log.producer() as plain:
        plain.send(name, "value-21").result()
    with log.consumer(name) as consumer:  # until the markers are written
        assert len(list(consumer.records(max_records=10))) == 10
    assert values(load(name)) == list(range(10))
    assert load(name).count() == 10
    assert values(load(name, isolationLevel="read_uncommitted")) == list(range(22))
    producers["b"].commit_transaction()
    with log.consumer(name) as consumer:
        assert len(list(consumer.records(max_records=12))) == 12
    assert values(load(name)) == [*range(10), 20, 21]
    for producer in producers.values():
        producer.close()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_reads_the_same(
    log: quorumlog.Log, topic: MakeTopic, load: Load, compression: str
) -> None:
    name = topic()
    fill(log, name, range(3_000), compression=compression)
    assert values(load(name)) == list(range(3_000))


@pytest.mark.oldest
def test_columns_have_the_connector_s_names_types_and_contents(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    name = topic(partitions=3)
    headers = [("trace", b"\x00\xff"), ("trace", None), ("b", b"")]
    with log.producer() as producer:
        producer.send(name, value=b"v", key=b"k", headers=headers, timestamp_ms=1_500, partition=2)
        producer.send(name, value=None, key=None, timestamp_ms=1_501, partition=2)
    frame = load(name, includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = frame.orderBy("offset").collect()
    assert (first.key, first.value) == (b"k", b"v")
    assert (first.topic, first.partition, first.offset) == (name, 2, 0)
    seconds = frame.orderBy("offset").select(f.unix_millis("timestamp").alias("ms")).collect()
    assert [row.ms for row in seconds] == [1_500, 1_501]
    assert first.timestampType == 0
    assert [tuple(header) for header in first.headers] == headers
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert "headers" not in load(name).columns


@pytest.mark.oldest
def test_a_narrower_schema_reads_only_its_columns(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    name = topic(partitions=2)
    fill(log, name, range(1_000))
    frame = load(name, schema="offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "BatchScan" in plan
    assert "timestamp" not in plan
    assert frame.select(f.sum(f.length("value"))).collect()[0][0] == sum(
        len(f"value-{row}") for row in range(1_000)
    )
    only = load(name, schema="topic string, partition int")
    assert only.groupBy("topic").count().collect()[0]["count"] == 1_000
    with pytest.raises(AnalysisException, match="'value' is binary, not string"):
        load(name, schema="value string").collect()


@pytest.mark.oldest
def test_offsets_bound_a_read_exactly(log: quorumlog.Log, topic: MakeTopic, load: Load) -> None:
    name = topic(partitions=2)
    with log.producer() as producer:
        for row in range(100):
            producer.send(name, value=f"value-{row}".encode(), partition=row % 2)
    starts = json.dumps({name: {"0": 10, "1": -2}})
    ends = json.dumps({name: {"0": 20, "1": -1}})
    frame = load(name, startingOffsets=starts, endingOffsets=ends)
    assert values(frame) == list(range(20, 40, 2)) + list(range(1, 100, 2))


def test_times_bound_a_read_exactly(log: quorumlog.Log, topic: MakeTopic, load: Load) -> None:
    name = topic()
    fill(log, name, range(100))
    assert values(load(name, startingTimestamp="40000")) == list(range(40, 100))
    assert values(load(name, startingTimestamp="39001", endingTimestamp="60000")) == list(
        range(40, 60)
    )
    each = json.dumps({name: {"0": 90_000}})
    assert values(load(name, startingOffsetsByTimestamp=each)) == list(range(90, 100))
    assert values(load(name, endingOffsetsByTimestamp=each)) == list(range(90))
    with pytest.raises(AnalysisException, match="no record is at or after 100001 ms"):
        load(name, startingTimestamp="100001").collect()
    late = {"startingTimestamp": "100001", "startingOffsetsByTimestampStrategy": "latest"}
    assert values(load(name, **late)) == []
    assert values(load(name, endingTimestamp="100001")) == list(range(100))


@pytest.mark.oldest
def test_ranges_are_split_without_losing_or_doubling_records(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    name = topic(partitions=2)
    fill(log, name, range(5_000))
    whole = load(name)
    split = load(name, minPartitions="9")
    small = load(name, maxRecordsPerPartition="700")
    assert whole.rdd.getNumPartitions() == 2
    assert split.rdd.getNumPartitions() >= 9
    assert small.groupBy(f.spark_partition_id()).count().agg(f.max("count")).collect()[0][0] <= 700
    assert values(split) == values(whole)
    assert values(small) == values(whole)
    assert sorted(values(whole)) == list(range(5_000))


def test_an_empty_topic_and_an_empty_pattern_have_no_rows(
    spark: "SparkSession", broker: Any, topic: MakeTopic, load: Load
) -> None:
    assert load(topic()).collect() == []
    reader = spark.read.format("quorumlog").option("bootstrap", broker.address)
    assert reader.option("subscribePattern", "no-such-.*").load().count() == 0


def test_assignment_and_pattern_select_partitions(
    log: quorumlog.Log, topic: MakeTopic, spark: "SparkSession", broker: Any
) -> None:
    names = [topic(partitions=2), topic(partitions=2)]
    with log.producer() as producer:
        for number, name in enumerate(names):
            for partition in range(2):
                producer.send(name, value=f"{number}{partition}".encode(), partition=partition)
    reader = spark.read.format("quorumlog").option("bootstrap", broker.address)

    def found(frame: "DataFrame") -> set[str]:
        return {row.value.decode() for row in frame.select("value").collect()}

    assigned = json.dumps({names[0]: [1], names[1]: [0, 1]})
    assert found(reader.option("assign", assigned).load()) == {"01", "10", "11"}
    reader = spark.read.format("quorumlog").option("bootstrap", broker.address)
    pattern = names[0].replace("-0-", "-[01]-")
    assert found(reader.option("subscribePattern", pattern).load()) == {"00", "01", "10", "11"}


def test_a_dataframe_is_planned_once_and_a_new_load_sees_more(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    """The first action determines "latest", as for all Python sources in Spark."""
    name = topic()
    fill(log, name, range(10))
    frame = load(name)
    assert frame.count() == 10
    fill(log, name, range(10, 15))
    assert frame.count() == 10
    assert frame.union(frame).count() == 20
    assert load(name).count() == 15


def test_a_start_beyond_the_end_raises(log: quorumlog.Log, topic: MakeTopic, load: Load) -> None:
    name = topic()
    fill(log, name, range(10))
    beyond = json.dumps({name: {"0": 11}})
    with pytest.raises(AnalysisException, match="offset 11, beyond the end of the log at 10"):
        load(name, startingOffsets=beyond, failOnDataLoss="false").collect()


@pytest.mark.oldest
@pytest.mark.parametrize(
    ("options", "saying"),
    [
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is latest"),
        ({"minPartitions": "none"}, "option 'minPartitions' is 'none'"),
        ({"assign": '{"t": [0]}'}, "not assign and subscribe together"),
        ({"groupId": "g"}, "option 'groupId' is not for a batch read"),
        ({"startingOffset": "1"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "no-such-topic"}, "no-such-topic: the topic does not exist"),
    ],
)
def test_wrong_options_are_named_in_the_error(
    load: Load, options: dict[str, str], saying: str
) -> None:
    with pytest.raises(AnalysisException, match=saying):
        load("any", **options).collect()


class OnlyHere(DataSource):
    """A source of one session, to show that another session does not have it."""

    @classmethod
    def name(cls) -> str:
        return "only-here"


@pytest.mark.oldest
def test_sql_reads_without_any_registration(
    log: quorumlog.Log, topic: MakeTopic, spark: "SparkSession", broker: Any
) -> None:
    """A new session has no registered source: Spark finds the top-level package by its name."""
    name = topic()
    fill(log, name, range(10))
    spark.dataSource.register(OnlyHere)
    fresh = spark.newSession()
    with pytest.raises(Py4JJavaError, match="only-here"):
        fresh.read.format("only-here").load()
    fresh.sql(
        "CREATE TEMPORARY VIEW found USING quorumlog "
        f"OPTIONS (bootstrap '{broker.address}', subscribe '{name}')"
    )
    assert fresh.sql("SELECT count(*) AS n FROM found").collect()[0].n == 10


def test_a_query_over_the_log_equals_a_computation_in_python(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    name = topic(partitions=3)
    rows = [(f"c{i % 5}", (i * 7919) % 101 - 20) for i in range(4_000)]
    with log.producer(compression="zstd") as producer:
        table = pa.table({"carrier": [row[0] for row in rows], "delay": [row[1] for row in rows]})
        producer.send_arrow(name, table, key="carrier")
    decoded = load(name).select(
        f.col("key").cast("string").alias("carrier"),
        f.from_json(f.col("value").cast("string"), "delay int").delay.alias("delay"),
    )
    found = decoded.groupBy("carrier").agg(f.count("*"), f.sum("delay")).collect()
    expected = {
        f"c{c}": (800, sum(delay for carrier, delay in rows if carrier == f"c{c}"))
        for c in range(5)
    }
    assert {row[0]: (row[1], row[2]) for row in found} == expected


@pytest.mark.oldest
def test_reading_continues_after_kill_9_and_restart_of_the_broker(
    spark: "SparkSession", own_broker: Any
) -> None:
    """The workers' pooled connections outlive the broker's process."""
    with quorumlog.connect(own_broker.address) as client:
        client.admin.create_topic("kept", partitions=2)
        fill(client, "kept", range(2_000))

    def read() -> list["Row"]:
        reader = spark.read.format("quorumlog").option("bootstrap", own_broker.address)
        frame = reader.option("subscribe", "kept").load()
        return frame.orderBy("partition", "offset").collect()

    before = read()
    assert len(before) == 2_000
    own_broker.kill()
    own_broker.start()
    assert read() == before


@pytest.mark.oldest
def test_a_timestamp_is_an_instant_in_utc(log: quorumlog.Log, topic: MakeTopic, load: Load) -> None:
    name = topic()
    moment = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    with log.producer() as producer:
        producer.send(name, value=b"x", timestamp_ms=int(moment.timestamp() * 1000))
    text = load(name).select(f.col("timestamp").cast("string").alias("at")).collect()[0].at
    assert text == "2013-01-01 05:00:00"
