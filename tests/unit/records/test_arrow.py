"""Conversion of records to and from Arrow columns: types, nulls, slices, chunks, errors."""

from typing import Any

import pyarrow as pa
import pytest

from quorumlog.errors import CorruptionError, InvalidRequest
from quorumlog.records.arrow import (
    COLUMNS,
    arrow_schema,
    decode_arrow,
    encode_arrow,
    encode_partitions,
    partition_table,
    record_columns,
)
from quorumlog.records.batch import parse_header
from quorumlog.records.codec import Envelope, decode_all, encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.murmur2 import partition_for_key
from quorumlog.records.record import Record
from quorumlog.records.validate import with_append_time

pytestmark = pytest.mark.usefixtures("kernel")

ALL = tuple(COLUMNS)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def decode(buffer: bytes, **how: Any) -> pa.RecordBatch:
    batch = decode_arrow(buffer, **how)
    batch.validate(full=True)
    return batch


def values(batches: list[bytes]) -> list[bytes | None]:
    return [record.value for record in decode_all(b"".join(batches))]


# --- decoding ----------------------------------------------------------------------------------


def test_the_columns_have_the_types_that_spark_expects() -> None:
    schema = decode(encode_batch([Record(0, 1, None, b"v")]), columns=ALL).schema
    assert schema == pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("timestamp_type", pa.int32()),
            pa.field(
                "headers",
                pa.list_(
                    pa.field(
                        "element",
                        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]),
                    )
                ),
            ),
        ]
    )


def test_many_batches_become_one_record_batch() -> None:
    headers = (("h", b"1"), ("h", None))
    first = encode_batch(
        [Record(0, 1, b"k", None, headers), Record(0, 2, None, b"v")],
        base_offset=5,
        codec=Codec.SNAPPY,
    )
    second = encode_batch([Record(0, 3, b"", b"", (("é", b""),))], base_offset=9)
    second = with_append_time(second, 0, parse_header(second), timestamp_ms=77)
    batch = decode(first + second, columns=ALL)
    assert batch.column("key").to_pylist() == [b"k", None, b""]
    assert batch.column("value").to_pylist() == [None, b"v", b""]
    assert batch.column("offset").to_pylist() == [5, 6, 9]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1000, 2000, 77000]
    assert batch.column("timestamp_type").to_pylist() == [0, 0, 1]
    assert batch.column("headers").to_pylist() == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        None,
        [{"key": "é", "value": b""}],
    ]


def test_columns_come_in_the_order_asked_for_and_no_others() -> None:
    buffer = encode_batch([Record(0, 1, b"k", b"v")] * 3)
    batch = decode(buffer, columns=("offset", "value"))
    assert batch.schema.names == ["offset", "value"]
    assert decode(buffer, columns=()).num_rows == 3


@pytest.mark.parametrize("columns", [ALL, ("value",), ("headers",), ()])
def test_no_batches_are_no_rows(columns: tuple[str, ...]) -> None:
    assert decode(b"", columns=columns).num_rows == 0


def test_only_the_offsets_asked_for_are_decoded() -> None:
    buffer = encode_batch([Record(0, 0, None, b"%d" % index) for index in range(100)])
    batch = decode(buffer, start_offset=42, end_offset=45)
    assert batch.column("value").to_pylist() == [b"42", b"43", b"44"]


def test_the_decoded_columns_outlive_the_buffer() -> None:
    buffer = bytearray(encode_batch([Record(0, 0, None, b"stay")] * 1000))
    column = decode_arrow(buffer, columns=("value",)).column("value")
    buffer[:] = bytes(len(buffer))
    assert column.to_pylist() == [b"stay"] * 1000


def test_timestamps_that_microseconds_cannot_hold_are_clamped() -> None:
    buffer = encode_batch([Record(0, 2**62, None, b""), Record(0, -1, None, b"")])
    times = decode(buffer, columns=("timestamp",)).column(0).cast(pa.int64()).to_pylist()
    assert times == [(2**63 - 1) // 1000 * 1000, -1000]


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(InvalidRequest, match="no column 'topic'; it has key, value"):
        decode_arrow(b"", columns=("topic",))
    with pytest.raises(InvalidRequest):
        arrow_schema(["nope"])


def test_a_damaged_batch_is_corrupt_for_arrow_readers_too() -> None:
    buffer = bytearray(encode_batch([Record(0, 0, None, b"v")]))
    buffer[-2] ^= 1
    with pytest.raises(CorruptionError):
        decode_arrow(buffer)


# --- encoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(),
     pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)  # fmt: skip
def test_every_kind_of_bytes_is_a_value(kind: pa.DataType) -> None:
    array = pa.array(["a", None, "", "ccc"], pa.string()).cast(kind)
    assert values(encode_arrow(array)) == [b"a", None, b"", b"ccc"]
    assert values(encode_arrow(pa.chunked_array([array, array]))) == [b"a", None, b"", b"ccc"] * 2


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_a_dictionary_of_views_is_values(kind: pa.DataType) -> None:
    """Data frame libraries export categories like this; pyarrow itself cannot decode it."""
    array = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 1], pa.int8()), pa.array(["a", "bb"]).cast(kind)
    ).slice(1)
    assert values(encode_arrow(array)) == [b"a", None, b"bb"]
    assert values(encode_arrow(pa.chunked_array([array, array]))) == [b"a", None, b"bb"] * 2


def test_fixed_size_bytes_and_nulls_are_values() -> None:
    assert values(encode_arrow(pa.array([b"ab", b"cd"], pa.binary(2)))) == [b"ab", b"cd"]
    assert values(encode_arrow(pa.nulls(3))) == [None, None, None]


def test_slices_are_encoded_where_they_are() -> None:
    array = pa.array([b"a", None, b"c", None, b"e", b"f", b"g", b"h", b"i", None, b"k"])
    times = pa.array([None if index % 3 == 0 else index for index in range(11)])
    headers = pa.array([[("h", b"%d" % index)] if index % 2 else None for index in range(11)],
                       HEADERS)  # fmt: skip
    batches = encode_arrow(
        array.slice(3, 7),
        keys=array.slice(2, 7),
        timestamps_ms=times.slice(3, 7),
        headers=headers.slice(3, 7),
        timestamp_ms=99,
    )
    records = decode_all(b"".join(batches))
    assert [record.value for record in records] == array.slice(3, 7).to_pylist()
    assert [record.key for record in records] == array.slice(2, 7).to_pylist()
    assert [record.timestamp_ms for record in records] == [99, 4, 5, 99, 7, 8, 99]
    assert [record.headers for record in records] == [
        (("h", b"%d" % index),) if index % 2 else () for index in range(3, 10)
    ]


def test_headers_in_a_sliced_child_are_the_right_ones() -> None:
    entries = pa.array([("x", b"0"), ("a", b"1"), ("b", None), ("c", b"3")], HEADERS.value_type)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), entries.slice(1))
    (batch,) = encode_arrow(pa.array([b"", b"", b""]), headers=lists)
    assert [record.headers for record in decode_all(batch)] == [
        (("a", b"1"),),
        (),
        (("b", None), ("c", b"3")),
    ]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_of_any_unit_become_milliseconds(unit: str, zone: str | None) -> None:
    array = pa.array([3_000, None], pa.timestamp("ms")).cast(pa.timestamp(unit))
    array = array.cast(pa.int64()).cast(pa.timestamp(unit, tz=zone))
    (batch,) = encode_arrow(pa.array([b"a", b"b"]), timestamps_ms=array, timestamp_ms=7)
    assert [record.timestamp_ms for record in decode_all(batch)] == [3_000, 7]


def test_what_was_encoded_decodes_to_itself() -> None:
    keys = pa.array([b"k", None] * 500)
    table = pa.array([b"v" * index if index % 7 else None for index in range(1000)])
    batches = encode_arrow(table, keys=keys, codec=Codec.ZSTD, batch_bytes=20_000)
    assert len(batches) > 10
    batch = decode(b"".join(batches))
    assert batch.column("value").equals(table)
    assert batch.column("key").equals(keys)
    assert batch.column("offset").to_pylist() == list(range(1000))


def test_no_rows_are_no_batches() -> None:
    assert encode_arrow(pa.array([], pa.binary())) == []
    assert encode_arrow(pa.chunked_array([], pa.binary())) == []


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"values": pa.array([1])}, "a column of int64 holds no keys or values"),
        ({"values": pa.array([b""]), "keys": pa.array([b"", b""])}, "keys has 2 rows"),
        ({"values": pa.array([b""]), "timestamps_ms": pa.array(["x"])}, "no timestamps"),
        ({"values": pa.array([b""]), "headers": pa.array(["x"])}, "headers are list<struct"),
        ({"values": pa.array([b""]), "headers": pa.array([[("k", 1)]], pa.list_(
            pa.struct([("key", pa.string()), ("value", pa.int32())])))}, "holds no keys"),
        ({"values": pa.array([b""]),
          "headers": pa.array([[(None, b"")]], HEADERS)}, "row 0|header 0"),
        ({"values": pa.array([b""]), "headers": pa.array([[None]], HEADERS)}, "row 0|header 0"),
        ({"values": pa.array([b"", b""]),
          "timestamps_ms": pa.array([-(2**63), 2**63 - 1])}, "timestamp"),
    ],
)  # fmt: skip
def test_what_cannot_be_encoded_is_an_invalid_request(how: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        encode_arrow(**how)


# --- partitioning ------------------------------------------------------------------------------


def test_a_table_is_partitioned_by_key_as_single_records_are() -> None:
    carriers = [b"AA", b"UA", b"DL", b"WN", None, b"B6"]
    keys = pa.array([carriers[index % 6] for index in range(600)])
    rows = pa.array([b"%d" % index for index in range(600)])
    columns = record_columns(rows, keys=keys)
    groups = encode_partitions(columns, partitions=4, batch_bytes=500)
    indices = partition_table(keys, partitions=4)
    for partition, (batches, taken) in enumerate(zip(groups, indices, strict=True)):
        records = decode_all(b"".join(batches))
        assert [record.value for record in records] == rows.take(taken).to_pylist()
        keyed = {record.key for record in records} - {None}
        assert all(partition_for_key(key, 4) == partition for key in keyed if key is not None)
    assert sum(len(taken) for taken in indices) == 600


def test_each_partition_starts_from_the_envelope() -> None:
    columns = record_columns(pa.array([b"a"] * 9), keys=pa.nulls(9))
    envelope = Envelope(producer_id=3, producer_epoch=1, base_sequence=0)
    groups = encode_partitions(columns, partitions=3, null_start=1, envelope=envelope)
    headers = [parse_header(batch) for batches in groups for batch in batches]
    assert [(h.record_count, h.base_sequence, h.producer_id) for h in headers] == [(3, 0, 3)] * 3


def test_a_table_with_nulls_in_every_column_is_partitioned() -> None:
    """A table with every possible buffer, and a list of rows."""
    entries = [(None, None), ("h", None), ("i", b"1")]
    lists = pa.array([[entries[0]], entries[1:], None], HEADERS)
    columns = record_columns(
        pa.array([b"", None, b"v"]).slice(1),
        keys=pa.array([b"", b"k", None]).slice(1),
        timestamps_ms=pa.array([0, None, 3]).slice(1),
        headers=lists.slice(1),  # the entry without a key belongs to no row
        timestamp_ms=9,
    )
    groups = encode_partitions(columns, partitions=1)
    (first, second) = decode_all(b"".join(groups[0]))
    assert first == Record(0, 9, b"k", None, (("h", None), ("i", b"1")))
    assert second == Record(1, 3, None, b"v", ())


def test_partitioning_without_keys_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no key column"):
        encode_partitions(record_columns(pa.array([b"a"])), partitions=2)
