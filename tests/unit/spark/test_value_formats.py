"""Avro, Protobuf and Arrow values: types, exact bad values, and schemas that Spark lacks."""

import io
import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    empty_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from quorumlog.errors import InvalidConfig
from quorumlog.spark.options import parse_values
from quorumlog.spark.source import QuorumlogSource
from quorumlog.spark.values.decoder import Decoder, decode_column
from quorumlog.spark.values.plan import ValuePlan, declared_type


def make(kind: Any = None, **options: str) -> Decoder:
    """Return the decoder of a read, by its schema or (None) by that of the options."""
    parsed = parse_values(options)
    assert parsed is not None
    kind = declared_type(parsed) if kind is None else kind
    return ValuePlan.of(parsed, StructType([StructField("value", kind)])).decoder()


def decoded(decoder: Decoder, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    result = decode_column(decoder, pa.array(values, pa.binary()), header_bytes=0)
    result.array.validate(full=True)
    return result.array.to_pylist(), result.reasons


# --- Avro --------------------------------------------------------------------------------------

NESTED = {
    "type": "record", "name": "Leg", "namespace": "air",
    "fields": [{"name": "origin", "type": "string"}],
}  # fmt: skip
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "either", "type": ["int", "long"]},
        {"name": "ratio", "type": "float"},
        {"name": "flag", "type": "boolean"},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "again", "type": "Two"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "legs", "type": {"type": "array", "items": ["null", NESTED]}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}
ROW = {
    "id": 2**40, "small": -5, "name": "x", "either": 7, "ratio": 0.5, "flag": True,
    "raw": b"ab", "again": b"cd", "kind": "B", "day": date(2024, 2, 29),
    "at": datetime(2024, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC),
    "local": datetime(2024, 1, 2, 3, 4, 5, 6), "time": 1_000, "uuid": "u",
    "price": Decimal("12.50"), "legs": [{"origin": "TXL"}, None], "counts": {"k": 1},
}  # fmt: skip


def avro(schema: Any, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


WRITTEN = json.loads(json.dumps(FLIGHT))
for each in WRITTEN["fields"]:  # the test writes physical values of these
    if each["name"] in ("time", "uuid"):
        del each["type"]["logicalType"]


def test_avro_types(tmp_path: Path) -> None:
    value = avro(WRITTEN, ROW)
    file = tmp_path / "flight.avsc"
    file.write_text(json.dumps(FLIGHT))
    for schema in (json.dumps(FLIGHT), str(file)):
        rows, reasons = decoded(make(valueFormat="avro", valueSchema=schema), value, None)
        assert reasons == {}
        assert rows == [ROW | {"counts": [("k", 1)]}, None]


def test_avro_bad_values_are_found_one_by_one() -> None:
    schema = {
        "type": "record", "name": "R",
        "fields": [{"name": "id", "type": "int"}, {"name": "s", "type": "string"}],
    }  # fmt: skip
    decoder = make(valueFormat="avro", valueSchema=json.dumps(schema))
    good = avro(schema, {"id": 1, "s": "é"})
    long = {**schema, "fields": [{"name": "id", "type": "long"}, schema["fields"][1]]}
    beyond = avro(long, {"id": 2**40, "s": ""})
    framed = b"\x00\x00\x00\x00\x09" + good
    bad = [good + b"x", good[:-1], b"", beyond, framed, b"\x02\x02\xff"]
    rows, reasons = decoded(decoder, good, *bad, good)
    assert set(reasons) == {1, 2, 3, 4, 5, 6}
    assert rows == [{"id": 1, "s": "é"}, *[None] * 6, {"id": 1, "s": "é"}]
    assert reasons[1] == "1 bytes are left after the record"
    assert "set valueHeaderBytes to 5" in reasons[5]
    column = pa.array([framed], pa.binary())
    assert decode_column(decoder, column, header_bytes=5).array.to_pylist() == rows[:1]


BEYOND = b"\xff" * 9  # of a number with more bytes
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}
LONGS = {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (["null", "string"], b"\x01\x02a", "the index of a union is -1; it has 2 branches"),
        (["null", "string"], b"\x04", "the index of a union is 2"),
        (ENUM, b"\x01", "the index of an enum is -1; it has 2 symbols"),
        ("long", BEYOND + b"\x02", "a number has more than 64 bits"),
        ("long", b"\x82" + b"\x80" * 12 + b"\x00", "a number has more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x10", "an int is 2147483648, which has more than 32 bits"),
        ("boolean", b"\x02", "a boolean is the byte 2"),
        ("string", b"\x08abc", "a length is 4, and 3 bytes are left"),
        ("bytes", b"\x01abc", "a length is -1"),
        ("bytes", BEYOND[1:] + b"\x7eabc", "a length is"),
        ({"type": "fixed", "name": "F", "size": 2}, b"a", "a fixed has 2 bytes, and 1 bytes are"),
        ("double", b"1234567", "the value ends before the record, after 7 bytes"),
        (LONGS, b"\x03\x40\x02\x04\x00", "the length of a block is wrong by 30 bytes"),
        (LONGS, b"\x03\x03\x02\x04\x00", "the length of a block is wrong by 4 bytes"),
        (LONGS, BEYOND + b"\x01\x00", "a block has 9223372036854775808 items"),
        (LONGS, b"\x02\x02", "the value ends before the record"),
        (LONGS, b"\x02\x02\x00\x00", "1 bytes are left after the record"),
        ({"type": "map", "values": "long"}, b"\x01\x40\x02a\x02\x00", "the length of a block"),
        ({"type": "map", "values": "long"}, b"\x02\x01a\x02\x00", "a length is -1"),
        (DECIMAL, b"\x02\x64", r"a number does not fit in DECIMAL\(2,1\)"),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", "a date is outside of"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            BEYOND + b"\x01",
            "a time is outside",
        ),
    ],
)
def test_avro_bytes_that_are_no_value_are_refused(kind: Any, value: bytes, reason: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    rows, reasons = decoded(make(valueFormat="avro", valueSchema=json.dumps(schema)), value)
    assert rows == [None]
    assert re.match(reason, reasons[0]), reasons


def test_avro_blocks_with_lengths_are_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": LONGS}]}
    decoder = make(valueFormat="avro", valueSchema=json.dumps(schema))
    assert decoded(decoder, b"\x03\x04\x02\x04\x02\x06\x00") == ([{"x": [1, 2, 3]}], {})


def test_avro_fields_that_are_not_read_may_be_of_any_type() -> None:
    schema = {
        "type": "record", "name": "R",
        "fields": [
            {"name": "any", "type": ["int", "R", {"type": "array", "items": "null"}, "string"]},
            {"name": "id", "type": "long"},
        ],
    }  # fmt: skip
    decoder = make(
        StructType().add("id", "long"), valueFormat="avro", valueSchema=json.dumps(schema)
    )
    values = [avro(schema, {"any": each, "id": 7}) for each in ("a", {"any": 1, "id": 2}, [None])]
    assert decoded(decoder, *values) == ([{"id": 7}] * 3, {})
    deep = b"\x02" * 100_000 + b"\x00\x00" + b"\x00" * 100_000
    assert decoded(decoder, deep)[1][0].startswith("the record is nested too deeply")
    nulls = b"\x04" + BEYOND[1:] + b"\x7e\x00\x02"
    assert "a block has" in decoded(decoder, nulls)[1][0]


# --- arbitrary bytes ---------------------------------------------------------------------------


def changed(value: bytes) -> st.SearchStrategy[bytes]:
    """Return values with some bytes replaced, some left out, or none of it."""

    def change(edits: list[tuple[int, bytes, int]]) -> bytes:
        text = value
        for place, put, dropped in edits:
            text = text[:place] + put + text[place + dropped :]
        return text

    edit = st.tuples(st.integers(0, len(value)), st.binary(max_size=2), st.integers(0, 3))
    return st.lists(edit, max_size=3).map(change)


def fastavro_row(value: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(WRITTEN))


@settings(max_examples=150)
@given(st.lists(changed(avro(WRITTEN, ROW)) | st.binary(max_size=40), max_size=6))
def test_avro_accepts_any_bytes(values: list[bytes]) -> None:
    decoder = make(valueFormat="avro", valueSchema=json.dumps(FLIGHT))
    result = decode_column(decoder, pa.array(values, pa.binary()), header_bytes=0)
    rows = result.array.to_pylist()
    assert [index for index, row in enumerate(rows) if row is None] == sorted(result.reasons)
    # Decoded values are valid, and fastavro agrees.
    expected = [
        fastavro_row(value) for value, row in zip(values, rows, strict=True) if row is not None
    ]
    kept = result.array.drop_null()
    assert str(kept) == str(pa.array(expected, kept.type))  # as text, NaN is equal to NaN


@pytest.mark.parametrize(
    ("kind", "saying"),
    [
        (["int", "string"], "value.x: a union of several types has no type in Spark"),
        ("null", "value.x: type null has no values"),
        ({"type": "array", "items": "null"}, r"value.x\[\]: type null has no values"),
        ({"type": "record", "name": "E", "fields": []}, "value.x: record E has no field"),
        (["null", "R"], "value.x: record R contains itself"),
    ],
)
def test_avro_schemas_that_spark_lacks_are_refused_unless_left_out(kind: Any, saying: str) -> None:
    schema = {
        "type": "record", "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": kind}],
    }  # fmt: skip
    options = {"valueFormat": "avro", "valueSchema": json.dumps(schema)}
    with pytest.raises(InvalidConfig, match=saying):
        make(**options)
    make(StructType().add("id", "long"), **options)


def test_invalid_schemas_and_other_fields_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="is no Avro schema"):
        make(valueFormat="avro", valueSchema='{"type": "nothing"}')
    with pytest.raises(InvalidConfig, match="must be a record"):
        make(valueFormat="avro", valueSchema='"long"')
    with pytest.raises(InvalidConfig, match="the file cannot be read"):
        make(valueFormat="avro", valueSchema="absent.avsc")
    schema = json.dumps(FLIGHT)
    with pytest.raises(InvalidConfig, match=r"value.id is string in the schema of the read; by op"):
        make(StructType().add("id", "string"), valueFormat="avro", valueSchema=schema)
    with pytest.raises(InvalidConfig, match=r"value.no is string .*has no such field"):
        make(StructType().add("no", "string"), valueFormat="avro", valueSchema=schema)


def test_the_source_has_the_columns_of_the_definition() -> None:
    made = QuorumlogSource({"valueFormat": "avro", "valueSchema": json.dumps(FLIGHT)})
    assert made.schema()["value"].dataType["legs"].dataType == ArrayType(
        StructType([StructField("origin", StringType())])
    )


# --- Protobuf ----------------------------------------------------------------------------------


def _field(name: str, number: int, kind: str, **more: Any) -> descriptor_pb2.FieldDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto
    label = more.pop("label", "LABEL_OPTIONAL")
    return field(
        name=name, number=number, type=getattr(field, f"TYPE_{kind}"),
        label=getattr(field, label), **more,
    )  # fmt: skip


def _definition() -> descriptor_pb2.FileDescriptorSet:
    """A descriptor set as protoc writes it with its imports."""
    file = descriptor_pb2.FileDescriptorProto(name="air.proto", package="air", syntax="proto3")
    file.dependency.extend(
        ["google/protobuf/timestamp.proto", "google/protobuf/struct.proto",
         "google/protobuf/empty.proto"]
    )  # fmt: skip
    enum = file.enum_type.add(name="Kind")
    enum.value.add(name="UNKNOWN", number=0)
    enum.value.add(name="LATE", number=1)
    leg = file.message_type.add(name="Leg")
    leg.field.append(_field("origin", 1, "STRING"))
    flight = file.message_type.add(name="Flight")
    entry = flight.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.extend([_field("key", 1, "STRING"), _field("value", 2, "UINT64")])
    flight.field.extend(
        [
            _field("id", 1, "INT64"),
            _field("port", 2, "UINT32"),
            _field("big", 3, "FIXED64"),
            _field("kind", 4, "ENUM", type_name=".air.Kind"),
            _field("leg", 5, "MESSAGE", type_name=".air.Leg"),
            _field("legs", 6, "MESSAGE", type_name=".air.Leg", label="LABEL_REPEATED"),
            _field("at", 7, "MESSAGE", type_name=".google.protobuf.Timestamp"),
            _field(
                "counts", 8, "MESSAGE", type_name=".air.Flight.CountsEntry", label="LABEL_REPEATED"
            ),
            _field("raw", 9, "BYTES"),
            _field("numbers", 10, "SINT32", label="LABEL_REPEATED"),
            _field("note", 11, "STRING", proto3_optional=True, oneof_index=0),
        ]
    )
    flight.oneof_decl.add(name="_note")
    odd = file.message_type.add(name="Odd")
    odd.field.extend(
        [
            _field("id", 1, "INT64"),
            _field("any", 2, "MESSAGE", type_name=".google.protobuf.Struct"),
            _field("none", 3, "MESSAGE", type_name=".google.protobuf.Empty"),
        ]
    )
    made = descriptor_pb2.FileDescriptorSet()
    for imported in (timestamp_pb2, struct_pb2, empty_pb2):
        imported.DESCRIPTOR.CopyToProto(made.file.add())
    made.file.append(file)
    return made


@pytest.fixture(scope="module")
def definition(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("proto") / "air.desc"
    path.write_bytes(_definition().SerializeToString())
    return str(path)


def flight(**fields: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in _definition().file:
        pool.AddSerializedFile(file.SerializeToString())
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("air.Flight"))
    value: bytes = made(**fields).SerializeToString()
    return value


EMPTY = {
    "id": 0, "port": 0, "big": Decimal(0), "kind": "UNKNOWN", "leg": None, "legs": [],
    "at": None, "counts": [], "raw": b"", "numbers": [], "note": None,
}  # fmt: skip


def test_protobuf_types(definition: str) -> None:
    decoder = make(valueFormat="protobuf", valueSchema=definition, valueMessage="air.Flight")
    value = flight(
        id=5, port=2**32 - 1, big=2**64 - 1, kind=1, leg={"origin": "TXL"},
        legs=[{"origin": "a"}, {}], at=datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        counts={"k": 3}, raw=b"\x00", numbers=[-1, 2], note="",
    )  # fmt: skip
    row = {
        "id": 5, "port": 2**32 - 1, "big": Decimal(2**64 - 1), "kind": "LATE",
        "leg": {"origin": "TXL"}, "legs": [{"origin": "a"}, {"origin": ""}],
        "at": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "counts": [("k", Decimal(3))],
        "raw": b"\x00", "numbers": [-1, 2], "note": "",
    }  # fmt: skip
    unknown_kind = flight(kind=9)
    rows, reasons = decoded(decoder, value, b"", None, unknown_kind)
    assert reasons == {}
    assert rows == [row, EMPTY, None, EMPTY | {"kind": "9"}]


def test_protobuf_bad_values_are_found_one_by_one(definition: str) -> None:
    decoder = make(valueFormat="protobuf", valueSchema=definition, valueMessage="air.Flight")
    bad_text = b"\x2a\x03\x0a\x01\xff"
    rows, reasons = decoded(decoder, b"", flight(id=1)[:-1], bad_text, b"\xff", b"")
    assert set(reasons) == {1, 2, 3}
    assert rows == [EMPTY, None, None, None, EMPTY]


@settings(max_examples=150)
@given(
    st.lists(
        changed(flight(id=5, legs=[{"origin": "TXL"}], counts={"k": 3}, raw=b"ab"))
        | st.binary(max_size=40),
        max_size=6,
    )
)
def test_protobuf_accepts_any_bytes(definition: str, values: list[bytes]) -> None:
    decoder = make(valueFormat="protobuf", valueSchema=definition, valueMessage="air.Flight")
    rows, reasons = decoded(decoder, *values)
    assert [index for index, row in enumerate(rows) if row is None] == sorted(reasons)


def test_protobuf_definitions_that_spark_lacks_are_refused_unless_left_out(
    definition: str, tmp_path: Path
) -> None:
    options = {"valueFormat": "protobuf", "valueSchema": definition}
    with pytest.raises(InvalidConfig, match=r"message google.protobuf.Struct contains itself"):
        make(**options, valueMessage="air.Odd")
    make(StructType().add("id", "long"), **options, valueMessage="air.Odd")
    with pytest.raises(InvalidConfig, match=r"message google.protobuf.Empty has no field"):
        make(StructType().add("none", "long"), **options, valueMessage="air.Odd")
    with pytest.raises(InvalidConfig, match=r"'valueMessage' is 'air.No', which the descriptor"):
        make(**options, valueMessage="air.No")
    alone = descriptor_pb2.FileDescriptorSet(file=_definition().file[-1:])
    file = tmp_path / "alone.desc"
    file.write_bytes(alone.SerializeToString())
    for text in (alone.SerializeToString(), b"no set"):
        file.write_bytes(text)
        with pytest.raises(InvalidConfig, match="--include_imports"):
            make(valueFormat="protobuf", valueSchema=str(file), valueMessage="air.Flight")


# --- Arrow -------------------------------------------------------------------------------------

TABLE = ArrayType(StructType().add("id", "long").add("name", "string"))


def stream(*batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def test_arrow_values_are_tables() -> None:
    decoder = make(TABLE, valueFormat="arrow")
    one = pa.record_batch({"id": pa.array([1, 2]), "name": pa.array(["a", None])})
    rows, reasons = decoded(decoder, stream(one, one.slice(0, 1)), None, stream(one.slice(0, 0)))
    assert reasons == {}
    first = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert rows == [[*first, first[0]], None, []]
    assert decoded(decoder) == ([], {})


def test_arrow_streams_of_other_schemas_are_cast_or_bad_alone() -> None:
    decoder = make(TABLE, valueFormat="arrow")
    same = stream(pa.record_batch({"id": pa.array([1]), "name": pa.array(["a"])}))
    other = stream(pa.record_batch({"more": pa.array([1]), "id": pa.array([2], pa.int8())}))
    coded = stream(pa.record_batch({"name": pa.array(["b"]).dictionary_encode()}))
    wrong = stream(pa.record_batch({"id": pa.array(["x"])}))
    twice = stream(pa.RecordBatch.from_arrays([pa.array([1])] * 2, names=["id", "id"]))
    nulls = stream(pa.record_batch({"id": pa.nulls(10**9)}))
    bare = stream(pa.record_batch({"id": pa.array([1])}).select([]))
    rows, reasons = decoded(
        decoder, same, other, wrong, coded, twice, b"", same[:40], nulls, same, bare
    )
    assert set(reasons) == {2, 4, 5, 6, 7, 9}
    assert rows[:2] == [[{"id": 1, "name": "a"}], [{"id": 2, "name": None}]]
    assert rows[3] == [{"id": None, "name": "b"}]
    assert rows[8] == rows[0]
    assert reasons[2].startswith("id: ")
    assert "8 rows for each of its" in reasons[7]


SMALL = stream(pa.record_batch({"id": pa.array([1, 2]), "name": pa.array(["a", None])}))


@settings(max_examples=150)
@given(st.lists(changed(SMALL) | st.binary(max_size=40), max_size=6))
def test_arrow_accepts_any_bytes(values: list[bytes]) -> None:
    rows, reasons = decoded(make(TABLE, valueFormat="arrow"), *values)
    assert [index for index, row in enumerate(rows) if row is None] == sorted(reasons)


def test_arrow_streams_with_wrong_lengths_are_bad() -> None:
    """Every length of four bytes in the stream, of messages, buffers and rows, is increased."""
    values = [
        SMALL[:place] + wrong + SMALL[place + 4 :]
        for place in range(0, len(SMALL) - 4, 4)
        for wrong in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x00\x10\x00\x00")
    ]
    rows, reasons = decoded(make(TABLE, valueFormat="arrow"), *values)
    assert [index for index, row in enumerate(rows) if row is None] == sorted(reasons)


def test_arrow_needs_an_array_of_structs() -> None:
    with pytest.raises(InvalidConfig, match="with valueFormat=arrow it is an array of structs"):
        make(StructType().add("id", LongType()), valueFormat="arrow")
