"""The record codec in plain Python: the reference for `_codec.pyx` and its fallback without a C
compiler.

Every function and class here exists in `_codec.pyx` under the same name, with the same results and
the same faults; property tests compare the two.

A record, all integers zigzag varints: length, attributes (one byte, unused), timestamp delta,
offset delta, key length (-1 null), key, value length (-1 null), value, number of headers, and per
header key length, key, value length (-1 null), value.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from .batch import BatchHeader
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
from .compression import Buffer
from .murmur2 import murmur2 as murmur2
from .murmur2 import partition_for_key
from .record import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    RECORD_SIZE_MIN,
    Body,
    ColumnTooLarge,
    Fault,
    Malformed,
    Record,
    Seal,
)

# --- reading -----------------------------------------------------------------------------------


class _Reader:
    """A cursor over the records of one body; every read is bounded by the innermost end."""

    def __init__(self, body: Body) -> None:
        self.data = memoryview(body.buffer)[body.start : body.end]
        self.position = 0
        self.index = 0
        if not 0 <= body.base_offset <= INT64_MAX - max(0, body.last_offset_delta):
            raise ValueError(f"base offset {body.base_offset} is impossible")
        if body.record_count < 0 or body.record_count > len(self.data) // RECORD_SIZE_MIN:
            raise self.fault(Fault.COUNT)

    def fault(self, fault: Fault) -> Malformed:
        return Malformed(fault, self.index)

    def varint(self, end: int, bytes_max: int) -> int:
        """Read a zigzag integer of 32 (at most 5 bytes) or 64 bits (10 bytes)."""
        raw = shift = 0
        for count in range(1, bytes_max + 1):
            if self.position >= end:
                raise self.fault(Fault.TRUNCATED)
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if count == bytes_max and raw >> (32 if bytes_max == 5 else 64):
                    break
                return (raw >> 1) ^ -(raw & 1)
        raise self.fault(Fault.VARINT)

    def span(self, end: int, fault: Fault, *, least: int = -1) -> bytes | None:
        """Read a length and as many bytes; return None for -1, if `least` allows it."""
        size = self.varint(end, 5)
        if size < least or size > end - self.position:
            raise self.fault(fault)
        if size < 0:
            return None
        start = self.position
        self.position += size
        return bytes(self.data[start : self.position])

    def record(self) -> tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Read (timestamp delta, offset delta, key, value, headers)."""
        size = self.varint(len(self.data), 5)
        if size < RECORD_SIZE_MIN - 1 or size > len(self.data) - self.position:
            raise self.fault(Fault.LENGTH)
        end = self.position + size
        self.position += 1  # attributes: unused
        timestamp_delta = self.varint(end, 10)
        offset_delta = self.varint(end, 5)
        key = self.span(end, Fault.KEY_LENGTH)
        value = self.span(end, Fault.VALUE_LENGTH)
        count = self.varint(end, 5)
        if count < 0 or count > (end - self.position) // 2:
            raise self.fault(Fault.HEADER_COUNT)
        headers = [self.header(end) for _ in range(count)]
        if self.position != end:
            raise self.fault(Fault.TRAILING)
        return timestamp_delta, offset_delta, key, value, headers

    def header(self, end: int) -> tuple[str, bytes | None]:
        raw = self.span(end, Fault.HEADER_KEY, least=0)
        try:
            key = (raw or b"").decode()
        except UnicodeDecodeError:
            raise self.fault(Fault.HEADER_KEY) from None
        return key, self.span(end, Fault.HEADER_VALUE)

    def finish(self) -> None:
        if self.position != len(self.data):
            raise self.fault(Fault.LEFTOVER)


def _decode(body: Body, start_offset: int, end_offset: int) -> list[Record]:
    """Return the records of [start_offset, end_offset), after checking all records of the body."""
    reader = _Reader(body)
    records: list[Record] = []
    last_delta = -1
    for reader.index in range(body.record_count):
        timestamp_delta, delta, key, value, headers = reader.record()
        if not last_delta < delta <= body.last_offset_delta:
            raise reader.fault(Fault.OFFSET)
        last_delta = delta
        timestamp_ms = body.append_timestamp
        if timestamp_ms is None:
            timestamp_ms = body.base_timestamp + timestamp_delta
            if not INT64_MIN <= timestamp_ms <= INT64_MAX:
                raise reader.fault(Fault.TIMESTAMP)
        offset = body.base_offset + delta
        if start_offset <= offset < end_offset:
            records.append(Record(offset, timestamp_ms, key, value, tuple(headers)))
    reader.index = body.record_count
    reader.finish()
    return records


def read_records(
    body: Body,
    start_offset: int,
    end_offset: int,
    records: list[Any],
    make: Callable[..., Any] = Record,
) -> None:
    """Append `make(offset, timestamp_ms, key, value, headers)` of each record in [start_offset,
    end_offset) to `records`; raises Malformed."""
    found = _decode(body, start_offset, end_offset)
    records.extend(
        [make(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in found]
        if make is not Record
        else found
    )


def walk_records(
    body: Body, max_timestamp: int, keys_required: bool, min_timestamp: int = INT64_MIN
) -> None:
    """Check every record of a producer's batch; raises Malformed.

    Offsets must be 0..n-1, timestamps -1 (none) or in [min_timestamp, max_timestamp]. With
    `keys_required` no key may be null. With log append time the timestamps of records are not
    checked.
    """
    reader = _Reader(body)
    for reader.index in range(body.record_count):
        timestamp_delta, delta, key, _, _ = reader.record()
        if delta != reader.index:
            raise reader.fault(Fault.OFFSET)
        if body.append_timestamp is None:
            timestamp_ms = body.base_timestamp + timestamp_delta
            if not -1 <= timestamp_ms <= INT64_MAX:
                raise reader.fault(Fault.TIMESTAMP)
            if timestamp_ms > max_timestamp:
                raise reader.fault(Fault.TIMESTAMP_MAX)
            if timestamp_ms < min_timestamp and timestamp_ms != -1:
                raise reader.fault(Fault.TIMESTAMP_MIN)
        if keys_required and key is None:
            raise reader.fault(Fault.KEY_MISSING)
    reader.index = body.record_count
    reader.finish()


def sealed_headers(batches: Buffer) -> list[tuple[int, BatchHeader]] | None:
    """Return (position, header) of each batch if all are whole and their CRCs match; None means
    that the caller must check batch by batch. The plain codec always returns None."""
    del batches
    return None


def sound_header(
    batch: Buffer, keys_required: bool, oldest_ms: int, newest_ms: int
) -> BatchHeader | None:
    """Return the header if `batch` is one whole, valid, uncompressed client batch with timestamps
    in [oldest_ms, newest_ms] or -1 (none). None means that the caller must apply the rules one by
    one. The plain codec always returns None."""
    del batch, keys_required, oldest_ms, newest_ms
    return None


def find_timestamp(body: Body, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or above both bounds; raises Malformed."""
    for record in _decode(body, start_offset, INT64_MAX):
        if record.timestamp_ms >= timestamp_ms:
            return record.offset, record.timestamp_ms
    return None


# --- reading into columns ----------------------------------------------------------------------

_TIMESTAMP_MS_MAX = INT64_MAX // 1000


class ColumnBuilder:
    """Collect the records of many bodies into one set of columns.

    `wanted` is a sum of WANT_ bits, `reserve` the expected bytes of data, `data_limit` the largest
    size of a column's data.
    """

    def __init__(self, wanted: int, reserve: int = 0, data_limit: int = INT32_MAX) -> None:
        self.wanted = wanted
        self.data_limit = data_limit
        self.records: list[Record] = []
        self.types: list[int] = []
        self.sizes = [0, 0, 0, 0]  # data of keys, values, header keys, header values

    def append(self, body: Body, start_offset: int, end_offset: int) -> None:
        """Add the records of [start_offset, end_offset); raises Malformed, ColumnTooLarge.

        The builder is unusable after an error.
        """
        added = _decode(body, start_offset, end_offset)
        for record in added:
            self._measure(record)
        self.records.extend(added)
        self.types.extend([int(body.append_timestamp is not None)] * len(added))

    def _measure(self, record: Record) -> None:
        sizes = self.sizes
        if self.wanted & WANT_KEY:
            sizes[0] += len(record.key or b"")
        if self.wanted & WANT_VALUE:
            sizes[1] += len(record.value or b"")
        if self.wanted & WANT_HEADERS:
            sizes[2] += sum(len(key.encode()) for key, _ in record.headers)
            sizes[3] += sum(len(value or b"") for _, value in record.headers)
        if max(sizes) > self.data_limit:
            raise ColumnTooLarge

    def finish(self) -> DecodedColumns:
        """Return the columns and empty the builder."""
        records, wanted = self.records, self.wanted
        self.records = []
        clamped = (
            max(-_TIMESTAMP_MS_MAX, min(_TIMESTAMP_MS_MAX, record.timestamp_ms)) * 1000
            for record in records
        )
        return DecodedColumns(
            length=len(records),
            keys=_binary([r.key for r in records]) if wanted & WANT_KEY else None,
            values=_binary([r.value for r in records]) if wanted & WANT_VALUE else None,
            offsets=_raw(array("q", (r.offset for r in records))) if wanted & WANT_OFFSET else None,
            timestamps_us=_raw(array("q", clamped)) if wanted & WANT_TIMESTAMP else None,
            timestamp_types=_raw(array("i", self.types)) if wanted & WANT_TIMESTAMP_TYPE else None,
            headers=_header_lists(records) if wanted & WANT_HEADERS else None,
        )


def _raw(values: "array[int]") -> memoryview:
    return memoryview(values).cast("B")


def _bitmap(present: Sequence[bool]) -> bytes | None:
    """Return a validity bitmap, None without nulls."""
    if all(present):
        return None
    bits = bytearray((len(present) + 7) // 8)
    for index, is_present in enumerate(present):
        bits[index >> 3] |= is_present << (index & 7)
    return bytes(bits)


def _binary(items: Sequence[bytes | None]) -> BinaryColumn:
    sizes = (len(item or b"") for item in items)
    return BinaryColumn(
        length=len(items),
        offsets=_raw(array("i", accumulate(sizes, initial=0))),
        data=b"".join(item or b"" for item in items),
        validity=_bitmap([item is not None for item in items]),
    )


def _header_lists(records: Sequence[Record]) -> HeaderColumn:
    entries = [header for record in records for header in record.headers]
    counts = (len(record.headers) for record in records)
    return HeaderColumn(
        length=len(records),
        offsets=_raw(array("i", accumulate(counts, initial=0))),
        keys=_binary([key.encode() for key, _ in entries]),
        values=_binary([value for _, value in entries]),
        validity=_bitmap([bool(record.headers) for record in records]),
    )


# --- writing -----------------------------------------------------------------------------------


def _put_varint(output: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        output.append((raw & 0x7F) | 0x80)
        raw >>= 7
    output.append(raw)


def _put_span(output: bytearray, span: Buffer | None) -> None:
    if span is None:
        output.append(0x01)
    else:
        view = memoryview(span)
        _put_varint(output, view.nbytes)
        output += view


def _put_record(output: bytearray, timestamp_delta: int, offset_delta: int, record: Record) -> None:
    content = bytearray(1)  # attributes: unused
    _put_varint(content, timestamp_delta)
    _put_varint(content, offset_delta)
    _put_span(content, record.key)
    _put_span(content, record.value)
    _put_varint(content, len(record.headers))
    for key, value in record.headers:
        _put_span(content, key.encode())
        _put_span(content, value)
    if len(content) > INT32_MAX:
        raise OverflowError("a record of 2 GiB does not fit its length field")
    _put_varint(output, len(content))
    output += content


def write_records(
    records: Sequence[Record], base_offset: int, keep_offsets: bool
) -> tuple[bytes, int, int, int]:
    """Encode records; return (body, base timestamp, max timestamp, last offset delta).

    With `keep_offsets` the offset deltas come from the records, otherwise they count from 0. Raises
    ValueError if offsets or timestamps cannot be encoded.
    """
    output = bytearray()
    base_timestamp = records[0].timestamp_ms if records else -1
    max_timestamp = base_timestamp
    last_delta = -1
    for index, record in enumerate(records):
        delta = record.offset - base_offset if keep_offsets else index
        if not last_delta < delta <= INT32_MAX:
            raise ValueError(f"offset {record.offset} cannot follow in a batch at {base_offset}")
        last_delta = delta
        timestamp_delta = record.timestamp_ms - base_timestamp
        _check_timestamp(record.timestamp_ms, timestamp_delta)
        max_timestamp = max(max_timestamp, record.timestamp_ms)
        _put_record(output, timestamp_delta, delta, record)
    return bytes(output), base_timestamp, max_timestamp, last_delta


def _check_timestamp(timestamp_ms: int, delta: int) -> None:
    if not INT64_MIN <= timestamp_ms <= INT64_MAX or not INT64_MIN <= delta <= INT64_MAX:
        raise ValueError(f"timestamp {timestamp_ms} cannot be encoded in this batch")


# --- writing from columns ----------------------------------------------------------------------


class ColumnWriter:
    """Encode rows of columns into bodies; `rows` (int64) lists the selected rows, None for all."""

    def __init__(self, columns: RecordColumns, rows: Buffer | None) -> None:
        self.columns = columns
        self.take: Sequence[int] = (
            range(columns.length) if rows is None else memoryview(rows).cast("B").cast("q")
        )
        self.count = len(self.take)

    def write(
        self, first: int, end: int, body_limit: int, seal: Seal | None
    ) -> tuple[bytes, int, int, int]:
        """Encode rows from `first` into one body of at most `body_limit` bytes; one row may exceed
        it.

        [first, end) indexes the selected rows. Return (bytes, next, base timestamp, max timestamp):
        the body, or with `seal` the whole batch. Raises ValueError for a row outside the columns or
        a row that cannot be encoded.
        """
        if not 0 <= first < end <= self.count:
            raise ValueError(f"rows [{first}, {end}) are not in a table of {self.count}")
        output = bytearray()
        base_timestamp = max_timestamp = 0
        position = first
        while position < end:
            record = _row(self.columns, self.take[position])
            if position == first:
                base_timestamp = max_timestamp = record.timestamp_ms
            delta = record.timestamp_ms - base_timestamp
            _check_timestamp(record.timestamp_ms, delta)
            size = len(output)
            _put_record(output, delta, position - first, record)
            if len(output) > body_limit and position > first:
                del output[size:]
                break
            max_timestamp = max(max_timestamp, record.timestamp_ms)
            position += 1
        body = bytes(output)
        if seal is not None:
            body = seal(memoryview(body), position - first, base_timestamp, max_timestamp) + body
        return body, position, base_timestamp, max_timestamp


def _row(columns: RecordColumns, row: int) -> Record:
    if not 0 <= row < columns.length:
        raise ValueError(f"row {row} is not in a table of {columns.length}")
    timestamp_ms = columns.timestamp_ms
    if columns.timestamps_ms is not None:
        own = _int64_at(columns.timestamps_ms, row)
        timestamp_ms = timestamp_ms if own is None else own
    return Record(
        offset=0,
        timestamp_ms=timestamp_ms,
        key=None if columns.keys is None else _binary_at(columns.keys, row),
        value=_binary_at(columns.values, row),
        headers=() if columns.headers is None else _headers_at(columns.headers, row),
    )


def _is_valid(validity: Buffer | None, index: int) -> bool:
    return validity is None or bool(memoryview(validity)[index >> 3] >> (index & 7) & 1)


def _int64_at(column: Int64Column, row: int) -> int | None:
    index = column.start + row
    if not _is_valid(column.validity, index):
        return None
    return int(memoryview(column.values).cast("B").cast("q")[index])


def _binary_at(column: BinaryColumn, row: int) -> bytes | None:
    index = column.start + row
    if not _is_valid(column.validity, index):
        return None
    offsets = memoryview(column.offsets).cast("B").cast("q" if column.is_wide else "i")
    start, end = offsets[index], offsets[index + 1]
    if not 0 <= start <= end <= len(column.data):
        raise ValueError(f"row {row} is bytes [{start}, {end}) of {len(column.data)}")
    return bytes(memoryview(column.data)[start:end])


def _headers_at(column: HeaderColumn, row: int) -> tuple[tuple[str, bytes | None], ...]:
    index = column.start + row
    if not _is_valid(column.validity, index):
        return ()
    offsets = memoryview(column.offsets).cast("B").cast("i")
    start, end = offsets[index], offsets[index + 1]
    if not 0 <= start <= end <= min(column.keys.length, column.values.length):
        raise ValueError(f"row {row} has headers [{start}, {end}) of {column.keys.length}")
    return tuple(_header_at(column, entry) for entry in range(start, end))


def _header_at(column: HeaderColumn, entry: int) -> tuple[str, bytes | None]:
    key = _binary_at(column.keys, entry)
    if key is None:
        raise ValueError(f"header {entry} has no key")
    return key.decode(), _binary_at(column.values, entry)


# --- partitioning ------------------------------------------------------------------------------


def partitions_for_keys(keys: BinaryColumn, partitions: int, null_start: int) -> Buffer:
    """Return each row's partition (int32): murmur2 of the key; null keys take turns.

    The first null key goes to partition `null_start % partitions`.
    """
    if partitions < 1:
        raise ValueError(f"{partitions} partitions")
    result = array("i", bytes(4 * keys.length))
    turn = null_start % partitions
    for row in range(keys.length):
        key = _binary_at(keys, row)
        if key is None:
            result[row] = turn
            turn = (turn + 1) % partitions
        else:
            result[row] = partition_for_key(key, partitions)
    return _raw(result)


def partition_rows(
    keys: BinaryColumn, partitions: int, null_start: int
) -> tuple[Buffer, list[int]]:
    """Return (rows, bounds): partition p has rows[bounds[p]:bounds[p + 1]] (int64), in row order.

    Null keys are distributed round-robin from partition `null_start % partitions`.
    """
    placed = memoryview(partitions_for_keys(keys, partitions, null_start)).cast("i")
    groups: list[list[int]] = [[] for _ in range(partitions)]
    for row, partition in enumerate(placed):
        groups[partition].append(row)
    rows = array("q", (row for group in groups for row in group))
    bounds = list(accumulate((len(group) for group in groups), initial=0))
    return _raw(rows), bounds
