"""The two codecs are equal: same bytes, same records, same errors, for any input.

The compiled codec is compared with the plain one, which is short enough to be checked against the
format. For any bytes it returns or raises, and never accesses memory outside its buffers.
"""

import sys
from array import array
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorumlog.records import _plain
from quorumlog.records.arrow import record_columns
from quorumlog.records.codec import decode_all, decode_parts, encode_batch
from quorumlog.records.columns import BinaryColumn, DecodedColumns, RecordColumns
from quorumlog.records.compression import Codec
from quorumlog.records.murmur2 import murmur2
from quorumlog.records.record import Body, ColumnTooLarge, Malformed, Record

_codec = pytest.importorskip("quorumlog.records._codec")

ALL_COLUMNS = 63
blobs = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=60, max_size=70))
texts = st.text(st.characters(codec="utf-8"), max_size=8)
header_values = st.one_of(st.none(), st.binary(max_size=3), blobs)
headers = st.lists(st.tuples(texts, header_values), max_size=3).map(tuple)
timestamps = st.one_of(
    st.integers(-1, 2**41), st.sampled_from([0, 63, 64, -64, -65, 2**62, -(2**61), 8191, 8192])
)
records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=timestamps,
        key=blobs,
        value=blobs,
        headers=headers,
    ),
    max_size=30,
)


def body_of(items: list[Record], *, base_offset: int = 0, is_append_time: bool = False) -> Body:
    raw, base_timestamp, _, last_delta = _plain.write_records(items, base_offset, False)
    time = 5 if is_append_time else None
    return Body(raw, 0, len(raw), len(items), base_offset, last_delta, base_timestamp, time)


def outcome(call: Any, *arguments: Any) -> Any:
    """Return the result of a call, or its exception with the arguments."""
    try:
        return call(*arguments)
    except (Malformed, ColumnTooLarge) as error:
        return type(error), error.args
    except ValueError:
        return ValueError


def binary(column: BinaryColumn | None) -> Any:
    if column is None:
        return None
    validity = None if column.validity is None else bytes(column.validity)
    return column.length, bytes(column.offsets), bytes(column.data), validity


def plain_bytes(columns: DecodedColumns) -> list[Any]:
    """Return the content of the columns as values that compare."""
    fixed = [columns.offsets, columns.timestamps_us, columns.timestamp_types]
    lists = columns.headers
    return [
        columns.length,
        binary(columns.keys),
        binary(columns.values),
        *(None if item is None else bytes(item) for item in fixed),
        None if lists is None else (lists.length, bytes(lists.offsets)),
        None if lists is None or lists.validity is None else bytes(lists.validity),
        None if lists is None else (binary(lists.keys), binary(lists.values)),
    ]


def read(kernel: Any, body: Body, start: int, end: int) -> list[Record]:
    found: list[Record] = []
    kernel.read_records(body, start, end, found)
    return found


def build(kernel: Any, bodies: list[Body], wanted: int, start: int, end: int, limit: int) -> Any:
    builder = kernel.ColumnBuilder(wanted, 10, limit)
    for body in bodies:
        builder.append(body, start, end)
    return plain_bytes(builder.finish())


# --- valid records -----------------------------------------------------------------------------


@given(records, st.booleans())
def test_both_write_the_same_bytes(items: list[Record], keep_offsets: bool) -> None:
    for index, record in enumerate(items):
        record.offset = 7 + 3 * index
    assert _codec.write_records(items, 5, keep_offsets) == _plain.write_records(
        items, 5, keep_offsets
    )


@given(records.filter(bool), st.sampled_from(list(Codec)), st.integers(0, 2**40))
def test_encoded_records_are_decoded_unchanged(
    items: list[Record], codec: Codec, base_offset: int
) -> None:
    decoded = decode_all(encode_batch(items, codec=codec, base_offset=base_offset))
    for index, record in enumerate(items):
        record.offset = base_offset + index
    assert decoded == items


def data_sizes(items: list[Record]) -> list[int]:
    """Return the bytes of each column's data."""
    named = [(name, value) for record in items for name, value in record.headers]
    return [
        sum(len(record.key or b"") for record in items),
        sum(len(record.value or b"") for record in items),
        sum(len(name.encode()) for name, _ in named),
        sum(len(value or b"") for _, value in named),
    ]


@given(
    st.lists(records, max_size=3),
    st.booleans(),
    st.one_of(st.integers(0, 63), st.sampled_from([1, 2, 32, 35, ALL_COLUMNS])),
    st.one_of(st.just(0), st.integers(0, 40)),
    st.one_of(st.just(2**62), st.integers(0, 80)),
    st.one_of(
        st.sampled_from([2**31 - 1, 100, 0]),
        st.tuples(st.integers(0, 3), st.sampled_from([-1, 0, 1])),
    ),
)
@settings(max_examples=300)
def test_both_build_the_same_columns(
    groups: list[list[Record]],
    is_append_time: bool,
    wanted: int,
    start: int,
    end: int,
    limit: int | tuple[int, int],
) -> None:
    bodies, offset = [], 0
    for items in groups:
        bodies.append(body_of(items, base_offset=offset, is_append_time=is_append_time))
        offset += len(items) + 1
    if isinstance(limit, tuple):  # what one column needs, or a byte less or more
        found = [record for body in bodies for record in read(_plain, body, start, end)]
        column, more = limit
        limit = max(0, data_sizes(found)[column] + more)
    expected = outcome(build, _plain, bodies, wanted, start, end, limit)
    assert outcome(build, _codec, bodies, wanted, start, end, limit) == expected


@given(records, st.integers(0, 30), st.integers(-2, 70), st.booleans())
def test_both_find_the_same_record_by_timestamp(
    items: list[Record], start_offset: int, timestamp_ms: int, is_append_time: bool
) -> None:
    body = body_of(items, is_append_time=is_append_time)
    expected = _plain.find_timestamp(body, timestamp_ms, start_offset)
    assert _codec.find_timestamp(body, timestamp_ms, start_offset) == expected


@given(records, st.integers(-2, 70), st.integers(-2, 70), st.booleans(), st.booleans())
def test_both_reject_the_same_record_for_its_timestamp(
    items: list[Record], least: int, most: int, keys_required: bool, is_append_time: bool
) -> None:
    """The reported record is the first outside the interval, or without a required key."""
    body = body_of(items, is_append_time=is_append_time)
    expected = outcome(_plain.walk_records, body, most, keys_required, least)
    assert outcome(_codec.walk_records, body, most, keys_required, least) == expected
    times = [-1 if is_append_time else record.timestamp_ms for record in items]
    wrong = [
        index
        for index, (time, record) in enumerate(zip(times, items, strict=True))
        if (not is_append_time and (time < -1 or time > most or (time < least and time != -1)))
        or (keys_required and record.key is None)
    ]
    assert (expected is None) == (not wrong)
    if wrong:
        assert expected[1][1] == wrong[0]


# --- columns -----------------------------------------------------------------------------------


def cut(buffer: Any, size: int) -> bytes | None:
    return None if buffer is None else bytes(memoryview(buffer).cast("B")[:size])


def exact_binary(column: BinaryColumn) -> BinaryColumn:
    """Return the column with buffers of the least size that it may have."""
    if not column.length:
        return column
    rows, width = column.start + column.length, 8 if column.is_wide else 4
    offsets = cut(column.offsets, width * (rows + 1)) or b""
    end = int.from_bytes(offsets[-width:], sys.byteorder)
    validity = cut(column.validity, (rows + 7) // 8)
    return replace(column, offsets=offsets, data=cut(column.data, end) or b"", validity=validity)


def exact(table: RecordColumns) -> RecordColumns:
    """Return the table with buffers of the least size that they may have."""
    keys, times, lists = table.keys, table.timestamps_ms, table.headers
    if times is not None:
        rows = times.start + times.length
        validity = cut(times.validity, (rows + 7) // 8)
        times = replace(times, values=cut(times.values, 8 * rows) or b"", validity=validity)
    if lists is not None and lists.length:
        rows = lists.start + lists.length
        lists = replace(
            lists,
            offsets=cut(lists.offsets, 4 * (rows + 1)) or b"",
            validity=cut(lists.validity, (rows + 7) // 8),
            keys=exact_binary(lists.keys),
            values=exact_binary(lists.values),
        )
    return replace(
        table,
        values=exact_binary(table.values),
        keys=None if keys is None else exact_binary(keys),
        timestamps_ms=times,
        headers=lists,
    )


BUFFERS = [
    *((column, each) for column in ("values", "keys") for each in ("offsets", "data", "validity")),
    *(("headers", each) for each in ("offsets", "validity")),
    *(("headers", "keys", each) for each in ("offsets", "data", "validity")),
    *(("headers", "values", each) for each in ("offsets", "data", "validity")),
    ("timestamps_ms", "validity"),
]


def damaged(column: Any, path: tuple[str, ...], position: int, value: int) -> Any:
    """Return the column with one byte of one of its buffers changed."""
    found = getattr(column, path[0])
    if len(path) > 1:
        changed = None if found is None else damaged(found, path[1:], position, value)
    elif found:
        changed = bytearray(found)
        changed[position % len(changed)] = value
    else:
        changed = found
    return replace(column, **{path[0]: changed})


HEADER_LISTS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@given(
    records,
    st.integers(0, 5),
    st.integers(0, 300),
    st.one_of(st.none(), st.lists(st.integers(-1, 29), max_size=40)),
    st.booleans(),
    st.one_of(
        st.none(), st.tuples(st.sampled_from(BUFFERS), st.integers(0, 400), st.integers(0, 255))
    ),
)
@settings(deadline=None, max_examples=300)
def test_both_write_the_same_bytes_from_columns(
    items: list[Record],
    skip: int,
    limit: int,
    rows: list[int] | None,
    is_wide: bool,
    damage: tuple[tuple[str, ...], int, int] | None,
) -> None:
    """Also from columns without a byte to spare, and from those with a changed byte."""
    kind = pa.large_binary() if is_wide else pa.binary()
    table = record_columns(
        pa.array([record.value for record in items], kind).slice(skip),
        keys=pa.array([record.key for record in items], kind).slice(skip),
        timestamps_ms=pa.array([record.timestamp_ms for record in items], pa.int64()).slice(skip),
        headers=pa.array(
            [[{"key": key, "value": value} for key, value in record.headers] for record in items],
            HEADER_LISTS,
        ).slice(skip),
    )
    table = exact(table)
    if damage is not None:
        table = damaged(table, *damage)
    taken = None if rows is None else memoryview(array("q", rows))
    plain, compiled = _plain.ColumnWriter(table, taken), _codec.ColumnWriter(table, taken)
    assert compiled.count == plain.count
    first = 0
    while first < plain.count:
        expected = outcome(plain.write, first, plain.count, limit, None)
        assert outcome(compiled.write, first, plain.count, limit, None) == expected
        if not isinstance(expected, tuple):
            break
        first = expected[1]


@given(st.binary(max_size=70))
def test_both_hash_alike(key: bytes) -> None:
    assert _codec.murmur2(key) == murmur2(key)


@given(st.lists(blobs, max_size=40), st.integers(1, 9), st.integers(0, 9), st.integers(0, 3))
def test_both_partition_alike(
    keys: list[bytes | None], partitions: int, null_start: int, skip: int
) -> None:
    column = exact_binary(record_columns(pa.array(keys, pa.binary()).slice(skip)).values)
    expected, bounds = _plain.partition_rows(column, partitions, null_start)
    rows, compiled_bounds = _codec.partition_rows(column, partitions, null_start)
    assert (bytes(rows), compiled_bounds) == (bytes(expected), bounds)


# --- invalid bytes -----------------------------------------------------------------------------


# Base offset, base timestamp and append timestamp: usual ones, and those at a limit.
BASES = st.tuples(
    st.sampled_from([0, 0, 0, 7, -1, 2**63 - 1, 2**63 - 2, 2**63 - 5]),
    st.sampled_from([0, 0, 0, -1, 2**63 - 1, 2**63 - 40, -(2**63)]),
    st.sampled_from([None, None, None, 5, -1]),
)


def same_results(body: Body) -> None:
    """Check that both codecs have the same results for these bytes, in every function that
    reads, and keep no buffer."""
    body = body._replace(buffer=bytearray(body.buffer))
    for arguments in ((0, 2**62), (3, 9)):
        expected = outcome(read, _plain, body, *arguments)
        assert outcome(read, _codec, body, *arguments) == expected
    for keys_required in (False, True):
        for limits in ((50, keys_required), (50, keys_required, 3)):
            expected = outcome(_plain.walk_records, body, *limits)
            assert outcome(_codec.walk_records, body, *limits) == expected
    expected = outcome(_plain.find_timestamp, body, 7, 2)
    assert outcome(_codec.find_timestamp, body, 7, 2) == expected
    for wanted in (ALL_COLUMNS, 2):
        expected = outcome(build, _plain, [body], wanted, 0, 2**62, 100)
        assert outcome(build, _codec, [body], wanted, 0, 2**62, 100) == expected
    assert isinstance(body.buffer, bytearray)
    body.buffer.append(0)  # BufferError if a buffer is kept


@given(st.binary(max_size=300), st.integers(-1, 45), st.integers(-1, 50), st.integers(0, 3), BASES)
@settings(max_examples=500)
@example(b"", 0, 0, 0, (0, 0, None))
@example(b"\x0c\x00\x00\x00\x01\x01\x00", 1, 0, 0, (0, 0, None))
def test_both_have_the_same_result_for_garbage(
    raw: bytes, count: int, last_delta: int, start: int, bases: tuple[int, int, int | None]
) -> None:
    start = min(start, len(raw))
    same_results(Body(raw, start, len(raw), count, bases[0], last_delta, *bases[1:]))


@given(
    records.filter(bool),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 3),
    BASES,
)
@settings(max_examples=500)
def test_both_have_the_same_result_for_damaged_records(
    items: list[Record],
    damage: list[tuple[int, int]],
    cut: int,
    bases: tuple[int, int, int | None],
) -> None:
    """Bytes of valid records are replaced and the end is cut: most stay records up to a
    position."""
    base_offset, base_timestamp, append_timestamp = bases
    body = body_of(items)._replace(
        base_offset=base_offset, base_timestamp=base_timestamp, append_timestamp=append_timestamp
    )
    raw = bytearray(body.buffer)
    for position, value in damage:
        raw[position % len(raw)] = value
    end = max(0, len(raw) - cut)
    same_results(body._replace(buffer=bytes(raw[:end]), end=end))


@given(st.binary(max_size=12))
@settings(max_examples=500)
@example(b"\xed\xa0\x80")  # a surrogate
@example(b"\xc0\x80")  # overlong
@example(b"\xf4\x90\x80\x80")  # above U+10FFFF
@example(b"\xf0\x9f\x92\xa9")
def test_both_accept_the_same_utf8(name: bytes) -> None:
    record = b"\x00\x00\x00\x01\x01\x02" + bytes([2 * len(name)]) + name + b"\x01"
    raw = bytes([2 * len(record)]) + record
    same_results(Body(raw, 0, len(raw), 1, 0, 0, 0, None))


def test_both_accept_the_same_starts_of_utf8() -> None:
    """Every first byte, the limits of the second one, and of those after them."""
    for first in range(256):
        for second in (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF):
            for rest in (b"", b"\x80", b"\xbf\x80", b"\x7f", b"\x80\xc0", b"\x80\x80\x80"):
                for name in (bytes([first]), bytes([first, second]) + rest):
                    record = b"\x00\x00\x00\x01\x01\x02" + bytes([2 * len(name)]) + name + b"\x01"
                    raw = bytes([2 * len(record)]) + record
                    body = Body(raw, 0, len(raw), 1, 0, 0, 0, None)
                    found = outcome(read, _codec, body, 0, 1)
                    assert found == outcome(read, _plain, body, 0, 1), name


# --- a batch in parts --------------------------------------------------------------------------


@given(
    st.lists(records.filter(bool), max_size=4),
    st.integers(0, 120),
    st.integers(0, 120),
    st.integers(1, 40),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
)
def test_parts_make_the_whole_batch(
    batches: list[list[Record]], start: int, end: int, part_records: int, codec: Codec
) -> None:
    offset, raw = 0, b""
    for batch in batches:
        raw += encode_batch(batch, base_offset=offset, codec=codec)
        offset += len(batch)
    parts = list(decode_parts(raw, start_offset=start, end_offset=end, part_records=part_records))
    whole = decode_all(raw, start_offset=start, end_offset=end)
    assert [record for part in parts for record in part] == whole
    assert max(map(len, parts), default=0) < 2 * part_records
