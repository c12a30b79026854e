"""Decoding of values in reads: types, bad values by mode, frames, and batches for Spark."""

import logging
import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from quorumlog.errors import InvalidConfig, UndecodableValue
from quorumlog.ids import TopicPartition
from quorumlog.records import encode_batch
from quorumlog.records.arrow import decode_arrow
from quorumlog.records.record import Record
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.options import Mode, parse_options, parse_values
from quorumlog.spark.source import QuorumlogSource
from quorumlog.spark.values import bad_values
from quorumlog.spark.values.json_values import DEPTH_MAX
from quorumlog.spark.values.plan import TaskValues, ValuePlan
from quorumlog.spark.versions import to_arrow_schema

A = TopicPartition("t", 0)
FIELDS = StructType().add("id", "long").add("name", "string")


def add(script: Any, *values: bytes | None) -> None:
    """Append records with these values, keys and headers."""
    held = script.batches.setdefault(A, [])
    base = script.end(A)
    records = [
        Record(
            offset=base + index,
            timestamp_ms=1_000 + base + index,
            key=b"k%d" % (base + index),
            value=value,
            headers=(("trace", b"1"),),
        )
        for index, value in enumerate(values)
    ]
    held.append(encode_batch(records, base_offset=base))


def read(script: Any, fields: StructType = FIELDS, **options: str) -> list[dict[str, Any]]:
    """Read offset and value as Spark does, with the plan pickled to a task."""
    given = {"bootstrap": script.address, "subscribe": "t", "valueFormat": "json", **options}
    schema = StructType([StructField("offset", LongType()), StructField("value", fields)])
    reader = pickle.loads(pickle.dumps(QuorumlogSource(given).reader(schema)))
    rows = []
    for task in reader.partitions():
        for batch in reader.read(task):
            rows += batch.to_pylist()
    return rows


def test_values_are_a_struct_and_tombstones_are_null(script: Any) -> None:
    add(script, b'{"id": 1, "name": "a", "more": [1]}', None, b"{}", b" null ")
    assert read(script) == [
        {"offset": 0, "value": {"id": 1, "name": "a"}},
        {"offset": 1, "value": None},
        {"offset": 2, "value": {"id": None, "name": None}},
        {"offset": 3, "value": None},
    ]


def test_the_batches_have_exactly_the_schema_that_spark_compares(script: Any) -> None:
    add(script, b'{"id": 1}')
    given = {
        "bootstrap": script.address, "subscribe": "t", "valueFormat": "json",
        "valueSchema": FIELDS.json(), "includeHeaders": "true",
    }  # fmt: skip
    made = QuorumlogSource(given)
    schema = made.schema()
    reader = made.reader(schema)
    (task,) = reader.partitions()
    (batch,) = reader.read(task)
    assert batch.schema.equals(to_arrow_schema(schema))


def test_ddl_is_left_to_spark() -> None:
    made = QuorumlogSource({"valueFormat": "JSON", "valueSchema": "id BIGINT, name STRING"})
    assert made.schema() == (
        "key binary, value STRUCT<id BIGINT, name STRING>, topic string, partition int, "
        "offset bigint, timestamp timestamp, timestampType int"
    )
    made = QuorumlogSource({"valueFormat": "arrow", "valueSchema": "struct<id: BIGINT>"})
    assert "value ARRAY<struct<id: BIGINT>>," in made.schema()


def test_mode_fail_names_the_record_the_field_and_the_remedy(script: Any) -> None:
    add(script, b'{"id": 1}', b'{"id": "x"}', b"no JSON")
    with pytest.raises(UndecodableValue) as caught:
        read(script)
    error = caught.value
    assert (error.topic, error.partition, error.offset) == ("t", 0, 1)
    assert str(error) == (
        "t-0: offset 1: the value is not json of the schema: id: a string, not an integer; correct "
        "the producer or option 'valueSchema', or set option 'mode' to drop or deadletter"
    )


def test_mode_drop_drops_bad_values_only_and_logs_their_number(
    script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    add(script, *[b"bad" if number % 3 else b'{"id": %d}' % number for number in range(300)])
    caplog.set_level(logging.WARNING)
    rows = read(script, mode="drop")
    assert [row["offset"] for row in rows] == list(range(0, 300, 3))
    assert [row["value"]["id"] for row in rows] == list(range(0, 300, 3))
    logged = [one.message for one in caplog.records if "spark.bad_value " in one.message]
    assert len(logged) == bad_values.LOGGED_MAX
    assert "place=t-0 offset=1 mode=drop reason=JSON is malformed" in logged[0]
    assert "spark.bad_values place=t-0 count=200 mode=drop" in caplog.text


def test_a_value_too_deep_for_the_check_of_frames_is_a_bad_value(script: Any) -> None:
    add(script, b'{"id": 1}', b'{"x": [{}], "y": ' + b"[" * 5_000 + b"]" * 5_000 + b"}")
    assert [row["offset"] for row in read(script, mode="drop")] == [0]


def test_a_batch_of_bad_values_only_yields_nothing(script: Any) -> None:
    add(script, b"bad", b"worse")
    assert read(script, mode="drop") == []


def test_a_header_is_removed_and_a_frame_of_a_registry_is_recognised(script: Any) -> None:
    framed = b"\x00\x00\x00\x00\x07" + b'{"id": 1}'
    add(script, framed, None)
    rows = read(script, valueHeaderBytes="5")
    assert [row["value"] for row in rows] == [{"id": 1, "name": None}, None]
    with pytest.raises(UndecodableValue, match="a schema registry, which is not asked: set value"):
        read(script)
    add(script, b"abc")
    with pytest.raises(UndecodableValue, match="3 bytes, fewer than valueHeaderBytes=5"):
        read(script, valueHeaderBytes="5")


def test_stream_decodes_values(script: Any) -> None:
    add(script, b'{"id": 1}')
    given = {
        "bootstrap": script.address, "subscribe": "t", "valueFormat": "json",
        "valueSchema": FIELDS.json(), "startingOffsets": "earliest",
    }  # fmt: skip
    made = QuorumlogSource(given)
    reader = made.streamReader(made.schema())
    (task,) = reader.partitions({"t": {"0": 0}}, {"t": {"0": 1}})
    (batch,) = reader.read(task)
    assert batch["value"].to_pylist() == [{"id": 1, "name": None}]


# --- dead letters ------------------------------------------------------------------------------


class Recorder(bad_values.BadValues):
    """Stores the bad values in place of a broker; tests/spark writes them to a real one."""

    def __init__(self) -> None:
        options = parse_values(
            {"valueFormat": "json", "mode": "deadletter", "deadLetterTopic": "dead"}
        )
        assert options is not None
        super().__init__(options, ClusterAccess(bootstrap=("h:1",)), A, timeout_ms=1_000)
        self.handled: list[bad_values.BadValue] = []

    def handle(self, bad: Sequence[bad_values.BadValue]) -> None:
        self.handled += bad


def test_dead_letters_have_the_whole_record() -> None:
    records = [
        Record(offset=offset, timestamp_ms=5, key=b"k", value=value, headers=(("trace", b"1"),))
        for offset, value in enumerate([b'{"id": 1}', b"bad", b'{"id": 2}'])
    ]
    recorder = Recorder()
    assert recorder.needs_records
    plan = ValuePlan.of(recorder.options, StructType([StructField("value", FIELDS)]))
    task = TaskValues(plan, recorder)
    decoded_batch = task.decode(
        decode_arrow(encode_batch(records, base_offset=0), columns=task.columns)
    )
    assert decoded_batch["offset"].to_pylist() == [0, 2]
    (bad,) = recorder.handled
    assert (bad.offset, bad.timestamp_ms, bad.key, bad.value) == (1, 5, b"k", b"bad")
    assert bad.headers == (("trace", b"1"),)


# --- options and types -------------------------------------------------------------------------


BASE = {"bootstrap": "h:1", "subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        ({"valueSchema": "id INT"}, "'valueSchema' is for decoding values; give valueFormat"),
        ({"mode": "drop"}, "'mode' is for decoding values; give valueFormat"),
        ({"valueFormat": "xml"}, "'xml'; it must be one of json, avro, protobuf, arrow"),
        ({"valueFormat": "json", "mode": "PERMISSIVE"}, "one of fail, drop, deadletter"),
        ({"valueFormat": "avro"}, "'valueSchema' is missing; give the writer's Avro schema"),
        ({"valueFormat": "protobuf"}, "'valueSchema' is missing; give the file of a descriptor"),
        ({"valueFormat": "protobuf", "valueSchema": "x.desc"}, "'valueMessage' is missing"),
        ({"valueFormat": "json", "valueMessage": "M"}, "is for valueFormat=protobuf, not json"),
        ({"valueFormat": "json", "valueHeaderBytes": "2000"}, "is 2000; give 1024 at most"),
        ({"valueFormat": "json", "mode": "deadletter"}, "'deadLetterTopic' is missing"),
        ({"valueFormat": "json", "deadLetterTopic": "d"}, "is for mode=deadletter; set that mode"),
        (
            {"valueFormat": "json", "mode": "deadletter", "deadLetterTopic": "t"},
            "is 't', which this read selects; name another topic",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], saying: str) -> None:
    with pytest.raises(InvalidConfig, match=saying):
        parse_options(BASE | options, Mode.BATCH)


@pytest.mark.parametrize("selection", [{"assign": '{"dead": [0]}'}, {"subscribePattern": "d.*"}])
def test_a_read_of_its_own_dead_letters_is_refused(selection: dict[str, str]) -> None:
    options = {"valueFormat": "json", "mode": "deadletter", "deadLetterTopic": "dead"}
    with pytest.raises(InvalidConfig, match="which this read selects"):
        parse_options({"bootstrap": "h:1"} | selection | options, Mode.BATCH)


@pytest.mark.parametrize(
    ("kind", "saying"),
    [
        (BinaryType(), "column 'value' is binary in the schema; with valueFormat=json it is a str"),
        (StructType(), "a struct with at least one field"),
        (StructType().add("a", "integer", False), "value.a is NOT NULL in the schema"),
        (
            StructType().add("a", ArrayType(StructType().add("b", "integer", False))),
            r"value.a\[\].b is NOT NULL",
        ),
        (StructType().add("a", ArrayType(IntegerType(), False)), r"value.a\[\] is NOT NULL"),
        (StructType().add("a", MapType(LongType(), LongType())), "value.a: the keys of a map are"),
        (StructType().add("a", "integer").add("A", "integer"), "two fields have one name"),
        (StructType().add("a", CalendarIntervalType()), "value.a is interval, which valueFormat="),
    ],
)
def test_types_that_json_lacks_are_refused(kind: Any, saying: str) -> None:
    options = parse_values({"valueFormat": "json"})
    assert options is not None
    with pytest.raises(InvalidConfig, match=saying):
        ValuePlan.of(options, StructType([StructField("value", kind)]))


def test_a_schema_without_values_and_a_struct_without_a_format_are_refused() -> None:
    made = QuorumlogSource(BASE | {"valueFormat": "json"})
    with pytest.raises(InvalidConfig, match="'valueSchema' is missing"):
        made.schema()
    with pytest.raises(InvalidConfig, match="the column 'value', which the schema lacks"):
        made.reader(StructType([StructField("offset", LongType())]))
    plain = QuorumlogSource(BASE)
    with pytest.raises(InvalidConfig, match="to decode values give the option 'valueFormat'"):
        plain.reader(StructType([StructField("value", FIELDS)]))
    with pytest.raises(InvalidConfig, match="no schema in Spark's JSON form"):
        QuorumlogSource(BASE | {"valueFormat": "json", "valueSchema": "{}"}).schema()


# --- JSON --------------------------------------------------------------------------------------


def decoded(kind: Any, *values: bytes) -> tuple[list[Any], dict[int, str]]:
    """Decode JSON objects with the one field x of a type."""
    options = parse_values({"valueFormat": "json"})
    assert options is not None
    schema = StructType([StructField("value", StructType([StructField("x", kind)]))])
    decoder = ValuePlan.of(options, schema).decoder()
    result = decoder.decode(pa.array([b'{"x": ' + value + b"}" for value in values], pa.binary()))
    rows = result.array.to_pylist()
    return [None if row is None else row["x"] for row in rows], result.reasons


@pytest.mark.parametrize(
    ("kind", "good", "rows"),
    [
        ("boolean", [b"true", b"false", b"null"], [True, False, None]),
        ("byte", [b"-128", b"127"], [-128, 127]),
        ("long", [b"-9223372036854775808"], [-(2**63)]),
        ("double", [b"1", b"1.5", b"1e3"], [1.0, 1.5, 1000.0]),
        ("float", [b"0.1"], [0.10000000149011612]),
        ("string", [b'"\\u00e9\\n"', b'""'], ["é\n", ""]),
        ("binary", [b'"AQI="'], [b"\x01\x02"]),
    ],
)
def test_json_types(kind: Any, good: list[bytes], rows: list[Any]) -> None:
    name = StructType().add("x", kind)["x"].dataType
    assert decoded(name, *good) == (rows, {})


def test_json_times_and_decimals() -> None:
    from datetime import UTC, date, datetime

    kinds = StructType().add("t", "timestamp").add("n", "timestamp_ntz").add("d", "date")
    kinds.add("m", "decimal(10,2)")
    zoned = [b'"2024-01-02T03:04:05.123456Z"', b'"2024-01-02T05:04:05.123456+02:00"']
    # Nine digits, as Java writes them, take the reader of rows.
    zoned += [b'"2024-01-02T03:04:05.123456789Z"', b'"2024-01-02 03:04:05.123456"']
    time = datetime(2024, 1, 2, 3, 4, 5, 123456)
    assert decoded(kinds["t"].dataType, *zoned) == ([time.replace(tzinfo=UTC)] * 4, {})
    assert decoded(kinds["n"].dataType, *zoned) == ([time] * 4, {})
    assert decoded(kinds["d"].dataType, b'"2024-02-29"') == ([date(2024, 2, 29)], {})
    rows, reasons = decoded(kinds["m"].dataType, b"1.5", b'"1.25"', b"7", b"1e2", b"0.001")
    assert [str(row) for row in rows[:4]] == ["1.50", "1.25", "7.00", "100.00"]
    assert reasons == {4: "x: the number does not fit in DECIMAL(10,2)"}


def test_json_nested_types() -> None:
    nested = StructType().add("a", ArrayType(MapType(StringType(), DoubleType())))
    rows, reasons = decoded(nested, b'{"a": [{"k": 1, "l": null}, null]}', b'{"a": [{"k": "1"}]}')
    assert rows == [{"a": [[("k", 1.0), ("l", None)], None]}, None]
    assert reasons == {1: "x.a[]{}: a string, not a number"}


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("long", b"1.0"), ("long", b'"1"'), ("long", b"true"), ("long", b"9223372036854775808"),
        ("byte", b"128"), ("integer", b"99999999999"), ("double", b'"1"'), ("double", b"1e400"),
        ("double", b"NaN"), ("double", b"Infinity"), ("float", b"1e39"), ("string", b"1"),
        ("string", b"{}"), ("string", b'"a\nb"'), ("string", b'"\xff"'), ("boolean", b"1"),
        ("binary", b'"?"'), ("date", b'"2024-02-30"'), ("date", b"1"), ("timestamp", b"1"),
        ("timestamp", b'"now"'), ("decimal(3,2)", b"10.00"), ("decimal(3,2)", b"1.234"),
        ("decimal(3,2)", b'"x"'), ("decimal(3,2)", b'"1_0e-1"'), ("decimal(3,2)", b'" 1"'),
        ("decimal(3,2)", '"\u0661"'.encode()),
        ("long", b""), ("long", b"1,"), ("long", b'1} {"x": 2'),
        ("long", b'1}\n{"x": 2'), ("long", b'1}]}\n{"v":[{"x": 2'), ("long", b'1}, {"x": 2'),
    ],
)  # fmt: skip
def test_bad_json_value_is_found_alone_and_among_good_ones(kind: str, bad: bytes) -> None:
    name = StructType().add("x", kind)["x"].dataType
    rows, reasons = decoded(name, *[b"null"] * 70, bad, *[b"null"] * 70)
    assert list(reasons) == [70]
    assert rows == [None] * 141
    assert len(decoded(name, bad)[1]) == 1


def nested(depth: int) -> bytes:
    """Return a field of so many levels, with brackets in a string, whose value has one level
    more."""
    opened = b'{"s": "\\"]]]", "y": ' * (depth // 2) + b"[" * (depth - depth // 2)
    return b'1, "y": ' + opened + b"]" * (depth - depth // 2) + b"}" * (depth // 2)


def test_depth_of_a_json_value_has_one_bound_alone_and_among_others() -> None:
    deepest, beyond = nested(DEPTH_MAX - 1), nested(DEPTH_MAX)
    wide = b'1, "y": [' + b"[[{}]]," * DEPTH_MAX + b"[]]"
    unclosed = b"[" * 10_000
    string = b'"' + b"[" * 10_000 + b'\\"'
    for others in (0, 70):
        good = [b"1"] * others
        for value in (deepest, wide):
            assert decoded(LongType(), *good, value) == ([1] * (others + 1), {})
        for value in (beyond, nested(20_000), unclosed, string):
            rows, reasons = decoded(LongType(), *good, value)
            assert rows == [1] * others + [None]
            assert list(reasons) == [others]
        assert reasons[others] == "Input data was truncated"
        for value in (beyond, nested(20_000)):
            reason = decoded(LongType(), *good, value)[1][others]
            assert reason == "it has more than 500 levels of objects and arrays"


def test_json_values_may_have_newlines_and_blanks_and_duplicate_keys() -> None:
    rows = decoded(LongType(), b"\n 1 \r\n", b'1, "x": 2', b'3, "y": {"x": [1, "a"]}')
    assert rows == ([1, 2, 3], {})
