"""Decoded values through Spark from a broker."""

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, duration_pb2
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import quorumlog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
DDL = "id BIGINT, name STRING, tags ARRAY<STRUCT<k: STRING, n: INT>>, at TIMESTAMP, day DATE"


@pytest.fixture
def load(spark: "SparkSession", broker: Any) -> Callable[..., "DataFrame"]:
    def load(topic: str, schema: str | None = None, **options: str) -> "DataFrame":
        reader = spark.read.format("quorumlog").option("bootstrap", broker.address)
        reader = reader.option("subscribe", topic).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return load


Load = Callable[..., "DataFrame"]


def fill(log: quorumlog.Log, topic: str) -> None:
    """Produce 300 JSON objects, a tombstone, and bad values at the offsets 301 and 302."""
    with log.producer() as producer:
        for number in range(300):
            row = {
                "id": number,
                "name": f"name {number}" if number % 3 else None,
                "tags": [{"k": "a", "n": number}, None][: number % 3],
                "at": "2024-01-02T03:04:05.123456Z",
                "day": "2024-02-29",
                "more": {"x": [number]},
            }
            producer.send(topic, json.dumps(row), partition=0)
        producer.send(topic, None, key="gone", partition=0)
        producer.send(topic, '{"id": "x"}', key="bad", headers=[("trace", b"1")], partition=0)
        producer.send(topic, "no JSON", partition=0)


def test_json_values_equal_from_json_and_bad_ones_are_dead_letters(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    name, dead = topic(), topic()
    fill(log, name)
    options = {"valueFormat": "json", "mode": "deadletter", "deadLetterTopic": dead}
    frame = load(name, valueSchema=DDL, **options)
    rows = frame.select("offset", "value.*").collect()  # orderBy would read twice
    text = load(name).where("offset < 301").orderBy("offset")
    expected = text.select("offset", f.from_json(f.col("value").cast("string"), DDL).alias("v"))
    assert rows == expected.select("offset", "v.*").collect()
    # Pruned by a schema, which needs no valueSchema.
    pruned = load(name, "value struct<id: BIGINT>", valueFormat="json", mode="drop")
    assert pruned.agg(f.sum("value.id"), f.count("*")).collect() == [(sum(range(300)), 301)]
    # One run of the tasks wrote each bad record once.
    letters = load(dead, includeHeaders="true").orderBy("offset").collect()
    assert [bytes(letter.value) for letter in letters] == [b'{"id": "x"}', b"no JSON"]
    assert bytes(letters[0].key) == b"bad"
    headers = {header.key: bytes(header.value).decode() for header in letters[0].headers}
    assert headers["trace"] == "1"
    assert (headers["dead_letter.topic"], headers["dead_letter.partition"]) == (name, "0")
    assert headers["dead_letter.offset"] == "301"
    assert "id: a string, not an integer" in headers["dead_letter.error"]


def test_a_bad_value_fails_the_query_and_names_the_record(
    log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    name = topic()
    fill(log, name)
    with pytest.raises(PySparkException, match=f"{name}-0: offset 301: the value is not json of"):
        load(name, valueSchema=DDL, valueFormat="json").count()


def test_avro_protobuf_and_arrow_values_are_columns(
    log: quorumlog.Log, topic: MakeTopic, load: Load, tmp_path: Path
) -> None:
    """One query reads a topic of each format; the second value of each is bad."""
    record = {
        "type": "record", "name": "R",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }  # fmt: skip
    avro, table = io.BytesIO(), io.BytesIO()
    at = datetime(2024, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC)
    fastavro.schemaless_writer(avro, fastavro.parse_schema(record), {"id": 1, "at": at})
    rows = pa.table({"id": pa.array([3, 4], pa.int64()), "name": ["a", None]})
    with pa.ipc.new_stream(table, rows.schema) as writer:
        writer.write_table(rows)
    message = duration_pb2.Duration(seconds=2, nanos=5).SerializeToString()
    files = descriptor_pb2.FileDescriptorSet()
    duration_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    definition = tmp_path / "duration.desc"
    definition.write_bytes(files.SerializeToString())
    names = topic(), topic(), topic()
    with log.producer() as producer:
        for name, value in zip(names, (avro.getvalue(), message, table.getvalue()), strict=True):
            producer.send_many(name, [value, value[:-1], None], partition=0)

    def read(name: str, value_format: str, schema: str, *columns: str, **more: str) -> "DataFrame":
        options = {"valueFormat": value_format, "valueSchema": schema, "mode": "drop", **more}
        return load(name, **options).selectExpr("offset", *columns)

    duration = {"valueMessage": "google.protobuf.Duration"}
    found = (
        read(names[0], "avro", json.dumps(record), "value.id", "string(value.at) AS text")
        .union(
            read(
                names[1],
                "protobuf",
                str(definition),
                "value.seconds",
                "string(value.nanos)",
                **duration,
            )
        )
        .union(read(names[2], "arrow", "id BIGINT, name STRING", "inline_outer(value)"))
        .collect()
    )
    assert [tuple(row) for row in found] == [
        (0, 1, "2024-01-02 03:04:05.006"), (2, None, None),
        (0, 2, "5"), (2, None, None),
        (0, 3, "a"), (0, 4, None), (2, None, None),
    ]  # fmt: skip


def test_filters_are_pushed_down_and_change_no_result(
    spark: "SparkSession", log: quorumlog.Log, topic: MakeTopic, load: Load
) -> None:
    name = topic(partitions=2)
    with log.producer() as producer:
        for number in range(400):
            at = 1_000 * (number % 200)
            producer.send(name, str(number), partition=number // 200, timestamp_ms=at)
    where = (
        "partition = 1 and offset >= 20 and offset <= 180 and offset in (20, 30, 150, 181)"
        " and timestamp >= timestamp'1970-01-01 00:00:30Z' and topic is not null"
        " and (offset > 0 or partition > 5)"
    )
    with pytest.raises(PySparkException, match=r"filterPushdown\.enabled' is false"):
        load(name, pushdown="true").where(where).count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(name, pushdown="true").where(where)
        assert [row.offset for row in frame.select("offset").collect()] == [30, 150]
        assert frame.rdd.getNumPartitions() == 1, "the other partition is not read"
        # Only the records from 30 on are read, by the lookup of the timestamp.
        plain = load(name).where(where)
        assert frame.collect() == plain.collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
