"""Conversion between Arrow arrays and record batches, without an object per record.

pyarrow is imported inside the functions, so that processes without columns do not load it. Encoding
reads the arrays' own buffers; decoding wraps the codec's buffers. The codec makes the only copy.

The types of `decode_arrow` are those of Spark's `to_arrow_schema` for the Kafka connector's schema,
so that Spark takes a batch unchanged.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidRequest
from . import codec as record_codec
from .codec import PLAIN_ENVELOPE, Envelope
from .columns import (
    WANT_HEADERS,
    WANT_KEY,
    WANT_OFFSET,
    WANT_TIMESTAMP,
    WANT_TIMESTAMP_TYPE,
    WANT_VALUE,
    BinaryColumn,
    DecodedColumns,
    HeaderColumn,
    Int64Column,
    RecordColumns,
)
from .compression import INFLATE_LIMIT, Buffer, Codec
from .record import ColumnTooLarge

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final[dict[str, int]] = {
    "key": WANT_KEY,
    "value": WANT_VALUE,
    "offset": WANT_OFFSET,
    "timestamp": WANT_TIMESTAMP,
    "timestamp_type": WANT_TIMESTAMP_TYPE,
    "headers": WANT_HEADERS,
}
"""The columns of `decode_arrow`, by name."""

DEFAULT_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestamp_type")
BATCH_BYTES: Final = 1024 * 1024 - 64 * 1024
"""Default size of a batch: fits the default max.message.bytes of a topic, and a core's cache."""


def arrow_schema(columns: Sequence[str] = DEFAULT_COLUMNS) -> "pa.Schema":
    """Return the schema of `decode_arrow` for `columns`; raises InvalidRequest."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_type": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    _check_columns(columns)
    return pa.schema([pa.field(name, types[name]) for name in columns])


def _check_columns(columns: Sequence[str]) -> None:
    for name in columns:
        if name not in COLUMNS:
            raise InvalidRequest(f"a record has no column {name!r}; it has {', '.join(COLUMNS)}")


# --- decoding ----------------------------------------------------------------------------------


def decode_arrow(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    with_control: bool = False,
    inflate_limit: int = INFLATE_LIMIT,
) -> "pa.RecordBatch":
    """Return the records of [start_offset, end_offset) of all batches in `buffer`, in order.

    Only the requested columns are built, in the requested order. `headers` is null for a record
    without headers; a timestamp outside the range of microseconds is clamped. Raises the errors of
    `codec.decode_all`, and InvalidRequest for an unknown column or a column above the 2 GiB of its
    32-bit offsets.
    """
    import pyarrow as pa

    schema = arrow_schema(columns)
    wanted = sum({COLUMNS[name] for name in columns})
    try:
        decoded = record_codec.decode_columns(
            buffer,
            wanted=wanted,
            start_offset=start_offset,
            end_offset=end_offset,
            with_control=with_control,
            inflate_limit=inflate_limit,
        )
    except ColumnTooLarge:
        raise InvalidRequest(
            "the records decode to more than 2 GiB in one column; read a smaller range"
        ) from None
    arrays = [_decoded_array(decoded, name, schema.field(name).type) for name in columns]
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * decoded.length, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _decoded_array(decoded: DecodedColumns, name: str, kind: "pa.DataType") -> "pa.Array":
    match name:
        case "key":
            return _binary_array(decoded.keys, kind)
        case "value":
            return _binary_array(decoded.values, kind)
        case "headers":
            return _headers_array(decoded.headers, kind)
        case "offset":
            return _fixed_array(decoded.length, decoded.offsets, kind)
        case "timestamp":
            return _fixed_array(decoded.length, decoded.timestamps_us, kind)
        case _:
            return _fixed_array(decoded.length, decoded.timestamp_types, kind)


def _wrap(buffer: Buffer | None) -> "pa.Buffer | None":
    import pyarrow as pa

    return None if buffer is None else pa.py_buffer(buffer)


def _fixed_array(length: int, values: Buffer | None, kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    assert values is not None, f"the codec gave no {kind} column"
    return pa.Array.from_buffers(kind, length, [None, _wrap(values)], null_count=0)


def _binary_array(column: BinaryColumn | None, kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    assert column is not None, "the codec gave no such column"
    return pa.Array.from_buffers(
        kind,
        column.length,
        [_wrap(column.validity), _wrap(column.offsets), _wrap(column.data)],
        null_count=0 if column.validity is None else -1,
    )


def _headers_array(column: HeaderColumn | None, kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    assert column is not None, "the codec gave no headers"
    element = kind.value_type
    entries = pa.Array.from_buffers(
        element,
        column.keys.length,
        [None],
        null_count=0,
        children=[
            _binary_array(column.keys, element.field("key").type),
            _binary_array(column.values, element.field("value").type),
        ],
    )
    return pa.Array.from_buffers(
        kind,
        column.length,
        [_wrap(column.validity), _wrap(column.offsets)],
        null_count=0 if column.validity is None else -1,
        children=[entries],
    )


# --- encoding ----------------------------------------------------------------------------------


def encode_arrow(
    values: "pa.Array | pa.ChunkedArray",
    *,
    keys: "pa.Array | pa.ChunkedArray | None" = None,
    timestamps_ms: "pa.Array | pa.ChunkedArray | None" = None,
    headers: "pa.Array | pa.ChunkedArray | None" = None,
    timestamp_ms: int = -1,
    codec: Codec = Codec.NONE,
    envelope: Envelope | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> list[bytes]:
    """Return the rows as batches, each at most `batch_bytes` before compression (at least one
    record), in row order.

    `values` and `keys` are binary, string, their large kinds or fixed-size binary. `timestamps_ms`
    is int64 or any timestamp type (cut to milliseconds); a null one takes `timestamp_ms`. `headers`
    is a list of structs with a string `key` and a binary `value`. `envelope` carries more fields
    than `codec` (producer id, ...) and replaces it. Raises InvalidRequest for other types.
    """
    table = record_columns(
        values, keys=keys, timestamps_ms=timestamps_ms, headers=headers, timestamp_ms=timestamp_ms
    )
    return _encode(table, envelope=envelope or Envelope(codec=codec), batch_bytes=batch_bytes)


def _encode(columns: RecordColumns, **options: Any) -> list[bytes]:
    try:
        return record_codec.encode_columns(columns, **options)
    except ValueError as error:  # a header without a key, timestamps 292 million years apart
        raise InvalidRequest(f"table: not encodable; {error}") from None


def encode_partitions(
    columns: RecordColumns,
    *,
    partitions: int,
    null_start: int = 0,
    envelope: Envelope = PLAIN_ENVELOPE,
    batch_bytes: int = BATCH_BYTES,
) -> list[list[bytes]]:
    """Return each partition's rows as batches, by the murmur2 of the key, in row order.

    Rows with a null key are distributed round-robin from partition `null_start % partitions`.
    Raises InvalidRequest for a table without keys; distribute slices of such a table instead.
    """
    if columns.keys is None:
        raise InvalidRequest("no key column; rows are partitioned by key")
    rows, bounds = record_codec.partition_rows(columns.keys, partitions, null_start)
    return [
        _encode(
            columns,
            envelope=envelope,
            batch_bytes=batch_bytes,
            rows=rows,
            first=bounds[partition],
            end=bounds[partition + 1],
        )
        for partition in range(partitions)
    ]


def partition_table(
    keys: "pa.Array | pa.ChunkedArray", *, partitions: int, null_start: int = 0
) -> "list[pa.Array]":
    """Return for each partition the ascending indices (int64) of its rows.

    Pass them to `table.take(indices)`; `encode_partitions` does both without the copy. Null keys
    are distributed round-robin from partition `null_start % partitions`.
    """
    import pyarrow as pa

    rows, bounds = record_codec.partition_rows(_binary_column(keys), partitions, null_start)
    indices = pa.Array.from_buffers(pa.int64(), bounds[-1], [None, pa.py_buffer(rows)])
    return [
        indices.slice(bounds[partition], bounds[partition + 1] - bounds[partition])
        for partition in range(partitions)
    ]


def record_columns(
    values: "pa.Array | pa.ChunkedArray",
    *,
    keys: "pa.Array | pa.ChunkedArray | None" = None,
    timestamps_ms: "pa.Array | pa.ChunkedArray | None" = None,
    headers: "pa.Array | pa.ChunkedArray | None" = None,
    timestamp_ms: int = -1,
) -> RecordColumns:
    """Return the arrays as the codec's columns; see `encode_arrow` for types and errors.

    Arrays of one chunk are shared, not copied.
    """
    try:
        return RecordColumns(
            values=_binary_column(values),
            keys=None if keys is None else _binary_column(keys),
            timestamps_ms=None if timestamps_ms is None else _timestamp_column(timestamps_ms),
            headers=None if headers is None else _header_column(headers),
            timestamp_ms=timestamp_ms,
        )
    except ValueError as error:  # columns of different lengths
        raise InvalidRequest(f"{error}") from None


def _one_chunk(array: Any) -> Any:
    """Return one pa.Array; chunks are concatenated, with large offsets if 2 GiB would overflow."""
    import pyarrow as pa

    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    if array.nbytes >= 2**31:
        if pa.types.is_binary(array.type):
            array = array.cast(pa.large_binary())
        elif pa.types.is_string(array.type):
            array = array.cast(pa.large_string())
    return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)


def _binary_column(array: Any) -> BinaryColumn:
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(array.type):
        array = _without_dictionary(array)
    if kinds.is_null(array.type) or kinds.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    elif kinds.is_binary_view(array.type) or kinds.is_string_view(array.type):
        array = array.cast(pa.large_binary())
    is_wide = kinds.is_large_binary(array.type) or kinds.is_large_string(array.type)
    if not (is_wide or kinds.is_binary(array.type) or kinds.is_string(array.type)):
        raise InvalidRequest(f"a column of {array.type} holds no keys or values; cast it to binary")
    array = _one_chunk(array)
    is_wide = kinds.is_large_binary(array.type) or kinds.is_large_string(array.type)
    validity, offsets, data = array.buffers()
    return BinaryColumn(
        length=len(array),
        offsets=_unwrap(offsets),
        data=_unwrap(data),
        validity=_validity(array, validity),
        start=array.offset,
        is_wide=is_wide,
    )


def _without_dictionary(array: Any) -> Any:
    """Return the values without the dictionary. Views become large bytes first, since pyarrow
    cannot take elements of a dictionary of views."""
    import pyarrow as pa

    kind = array.type.value_type
    if not (pa.types.is_binary_view(kind) or pa.types.is_string_view(kind)):
        return array.cast(kind)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return pa.chunked_array(
        [chunk.dictionary.cast(pa.large_binary()).take(chunk.indices) for chunk in chunks],
        pa.large_binary(),
    )


def _unwrap(buffer: "pa.Buffer | None") -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer)


def _validity(array: Any, buffer: "pa.Buffer | None") -> memoryview | None:
    return None if buffer is None or array.null_count == 0 else memoryview(buffer)


def _timestamp_column(array: Any) -> Int64Column:
    import pyarrow as pa

    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    elif not pa.types.is_integer(array.type):
        raise InvalidRequest(f"a column of {array.type} holds no timestamps; cast it to int64")
    elif array.type != pa.int64():
        array = array.cast(pa.int64())
    array = _one_chunk(array)
    validity, values = array.buffers()
    return Int64Column(
        length=len(array),
        values=_unwrap(values),
        validity=_validity(array, validity),
        start=array.offset,
    )


def _header_column(array: Any) -> HeaderColumn:
    import pyarrow as pa

    array = _one_chunk(array)
    kind = array.type
    element = kind.value_type if pa.types.is_list(kind) else None
    if (
        element is None
        or not pa.types.is_struct(element)
        or {element.field(index).name for index in range(element.num_fields)} != {"key", "value"}
    ):
        raise InvalidRequest(f"headers are list<struct<key: string, value: binary>>, not {kind}")
    keys, values = _header_fields(array.values)
    validity, offsets = array.buffers()[:2]
    return HeaderColumn(
        length=len(array),
        offsets=_unwrap(offsets),
        keys=_binary_column(keys),
        values=_binary_column(values),
        validity=_validity(array, validity),
        start=array.offset,
    )


def _header_fields(entries: Any) -> tuple[Any, Any]:
    """Return the (keys, values) of a struct array; a null struct becomes a null key."""
    fields = dict(zip((field.name for field in entries.type), entries.flatten(), strict=True))
    return fields["key"], fields["value"]
