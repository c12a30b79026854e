"""Encoding and decoding of batches: headers, CRC and compression around a record codec.

`_codec` (compiled) encodes the records if it is available, otherwise `_plain`. The environment
variable QUORUMLOG_PLAIN_CODEC=1 selects `_plain`. Both give the same bytes, records and faults.
`COMPILED` is the selection, `describe()` a sentence about it. If `_plain` runs without having been
requested, the import emits one RuntimeWarning.

Errors when decoding: CorruptionError for an invalid batch (torn, bad CRC, malformed records),
UnsupportedCompression for an unknown codec, MessageTooLarge if a batch would inflate beyond the
limit. Errors when encoding: MessageTooLarge if the records do not fit into a batch, ValueError for
an invalid record.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ..errors import CorruptionError, MessageTooLarge
from .batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER,
    OFFSET_MAX,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    parse_header,
)
from .checksum import crc32c
from .columns import DecodedColumns, RecordColumns
from .compression import INFLATE_LIMIT, Buffer, Codec, codec_of, compress, decompress
from .record import INT32_MAX, Body, Headers, Malformed, Record, Seal

R = TypeVar("R")

PLAIN_VARIABLE: Final = "QUORUMLOG_PLAIN_CODEC"
"""Environment variable: any value but "" and "0" selects the plain codec."""

PLAIN_WANTED: Final = os.environ.get(PLAIN_VARIABLE, "") not in ("", "0")

if TYPE_CHECKING or PLAIN_WANTED:
    from . import _plain as _kernel  # the compiled one has the same functions, see `_codec.pyi`
else:
    try:
        from . import _codec as _kernel
    except ImportError:
        from . import _plain as _kernel

LENGTH_MIN: Final = HEADER_SIZE - LENGTH_END
CRC_POSITION: Final = CRC_START - 4
UNUSUAL_BITS: Final = 0x07 | TIMESTAMP_TYPE_BIT | CONTROL_BIT
OFFSET_END: Final = OFFSET_MAX  # exclusive: the last offset of 64 bits is never used
PART_RECORDS: Final = 10_000  # size of a part of a batch, about
PARTS_MAX: Final = 32  # parts of one batch

COMPILED: Final = _kernel.__name__.endswith("._codec")
"""True if the compiled codec is in use."""


def describe() -> str:
    """Return a sentence that names the codec in use."""
    if COMPILED:
        return "The compiled record codec is in use."
    if PLAIN_WANTED:
        return f"The record codec runs in plain Python because {PLAIN_VARIABLE} is set."
    return (
        "The record codec runs in plain Python, which is a hundred times slower; the compiled "
        "module is missing. Install a C compiler and reinstall quorumlog."
    )


if not (COMPILED or PLAIN_WANTED):
    warnings.warn(describe(), RuntimeWarning, stacklevel=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The header fields of a batch that do not follow from its records."""

    codec: Codec = Codec.NONE
    level: int | None = None  # of the codec, see `LEVELS`; None: the codec's default
    base_offset: int = 0  # replaced by the log
    leader_epoch: int = -1  # replaced by the log
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    log_append_time: bool = False

    @property
    def attributes(self) -> int:
        """The header's attribute bits."""
        return (
            self.codec
            | (TIMESTAMP_TYPE_BIT if self.log_append_time else 0)
            | (TRANSACTIONAL_BIT if self.is_transactional else 0)
            | (CONTROL_BIT if self.is_control else 0)
        )


PLAIN_ENVELOPE: Final = Envelope()


# --- encoding ----------------------------------------------------------------------------------


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: bool = False,
    keep_offsets: bool = False,
) -> bytes:
    """Return one batch of `records`, at least one.

    Their offsets are ignored and count from `base_offset`. With `keep_offsets` the records' offsets
    must ascend from `base_offset` or above, and gaps (left by compaction) remain.
    """
    if not records:
        raise ValueError("no records; a batch has at least one record")
    envelope = Envelope(
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
        log_append_time=log_append_time,
    )
    return _encode(records, envelope, keep_offsets=keep_offsets)


def encode_plain_batch(records: Sequence[Record]) -> bytes:
    """Return `encode_batch(records)`, in half the time for few records."""
    if not records:
        raise ValueError("no records; a batch has at least one record")
    return _encode(records, PLAIN_ENVELOPE, keep_offsets=False)


def _encode(records: Sequence[Record], envelope: Envelope, *, keep_offsets: bool) -> bytes:
    try:
        body, base_timestamp, max_timestamp, last_delta = _kernel.write_records(
            records, envelope.base_offset, keep_offsets
        )
    except OverflowError as error:
        raise MessageTooLarge(f"{error}") from None
    packed = compress(envelope.codec, body, envelope.level)
    header = _header(
        envelope,
        memoryview(packed),
        count=len(records),
        last_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )
    return header + packed


def encode_columns(
    columns: RecordColumns,
    *,
    envelope: Envelope = PLAIN_ENVELOPE,
    batch_bytes: int = INT32_MAX,
    rows: Buffer | None = None,
    first: int = 0,
    end: int | None = None,
) -> list[bytes]:
    """Return all batches of `encode_batches`."""
    return list(
        encode_batches(
            columns, envelope=envelope, batch_bytes=batch_bytes, rows=rows, first=first, end=end
        )
    )


def encode_batches(
    columns: RecordColumns,
    *,
    envelope: Envelope = PLAIN_ENVELOPE,
    batch_bytes: int = INT32_MAX,
    rows: Buffer | None = None,
    first: int = 0,
    end: int | None = None,
) -> Iterator[bytes]:
    """Yield the rows as batches of at most `batch_bytes` before compression, in order.

    A batch has at least one record, so a record larger than `batch_bytes` makes a larger batch.
    `rows` (int64 buffer) lists the selected rows, and [first, end) indexes that list; without it,
    [first, end) indexes the columns. Base offsets and base sequences continue from batch to batch.
    The columns' buffers must not change until the iterator ends.
    """
    writer = _kernel.ColumnWriter(columns, rows)
    if end is None:
        end = writer.count
    limit = max(0, min(batch_bytes, INT32_MAX) - HEADER_SIZE)
    begin = first
    while first < end:
        seal = _seal(envelope, first - begin)
        batch, first = _encode_next(writer, first, end, limit, envelope, seal)
        yield batch


def _seal(envelope: Envelope, ahead: int) -> Seal:
    """Return the function that makes the header of a batch after `ahead` records of the
    envelope."""

    def seal(body: memoryview, count: int, base_timestamp: int, max_timestamp: int) -> bytes:
        return _header(
            envelope,
            body,
            ahead=ahead,
            count=count,
            last_delta=count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
        )

    return seal


def _encode_next(
    writer: _kernel.ColumnWriter, first: int, end: int, limit: int, envelope: Envelope, seal: Seal
) -> tuple[bytes, int]:
    """Return the next batch and the index of the row after it."""
    codec = envelope.codec
    is_plain = codec is Codec.NONE
    try:
        batch, following, base_timestamp, max_timestamp = writer.write(
            first, end, limit, seal if is_plain else None
        )
    except OverflowError as error:
        raise MessageTooLarge(f"{error}") from None
    if not is_plain:
        packed = compress(codec, batch, envelope.level)
        header = seal(memoryview(packed), following - first, base_timestamp, max_timestamp)
        batch = header + packed
    return batch, following


def _header(
    envelope: Envelope,
    body: memoryview,
    *,
    count: int,
    last_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    ahead: int = 0,
) -> bytes:
    """Return the 61 bytes before `body`; raises MessageTooLarge above 2 GiB."""
    length = HEADER_SIZE - LENGTH_END + len(body)
    if length > INT32_MAX:
        raise MessageTooLarge(f"batch length {length} exceeds its field; the limit is {INT32_MAX}")
    sequence = envelope.base_sequence
    header = HEADER.pack(
        envelope.base_offset + ahead,
        length,
        envelope.leader_epoch,
        MAGIC,
        0,
        envelope.attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        envelope.producer_id,
        envelope.producer_epoch,
        sequence if sequence < 0 else (sequence + ahead) & INT32_MAX,  # wraps to 0
        count,
    )
    covered = header[CRC_START:]
    return header[:CRC_POSITION] + crc32c(body, crc32c(covered)).to_bytes(4, "big") + covered


def record_size_max(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> int:
    """Return an upper bound of a record's bytes in an uncompressed batch; cheap, for batching."""
    size = 5 + 1 + 10 + 5 + 5 + 5 + 5 + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size


# --- decoding ----------------------------------------------------------------------------------


def decode_batch(
    buffer: Buffer, position: int = 0, *, inflate_limit: int = INFLATE_LIMIT
) -> list[Record]:
    """Return the records of the batch at `position`, including those of a control batch."""
    header = parse_header(buffer, position)
    check_crc(buffer, position, header)
    records: list[Record] = []
    body = batch_body(buffer, position, header, inflate_limit=inflate_limit)
    try:
        _kernel.read_records(body, 0, OFFSET_END, records)
    except Malformed as fault:
        raise _corrupt(fault, body, position) from None
    return records


def decode_all(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    with_control: bool = False,
    inflate_limit: int = INFLATE_LIMIT,
) -> list[Record]:
    """Return the records of [start_offset, end_offset) of all batches in `buffer`.

    Control batches are skipped unless `with_control`. Batches outside the interval are not read.
    """
    first, end = _interval(start_offset, end_offset)
    records: list[Record] = []
    for position, body in _bodies(buffer, first, end, with_control, inflate_limit):
        try:
            _kernel.read_records(body, first, end, records)
        except Malformed as fault:
            raise _corrupt(fault, body, position) from None
    return records


def decode_as(
    make: Callable[[int, int, bytes | None, bytes | None, Headers], R],
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
) -> list[R]:
    """Return `make(offset, timestamp_ms, key, value, headers)` for each record of `decode_all`: the
    caller's object type without an intermediate Record."""
    first, end = _interval(start_offset, end_offset)
    made: list[R] = []
    for position, body in _bodies(buffer, first, end, False, INFLATE_LIMIT):
        try:
            _kernel.read_records(body, first, end, made, make)
        except Malformed as fault:
            raise _corrupt(fault, body, position) from None
    return made


def decode_parts(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    part_records: int = PART_RECORDS,
    inflate_limit: int = INFLATE_LIMIT,
) -> Iterator[list[Record]]:
    """Yield the records of `decode_all` in parts; a part has records of one batch only.

    A megabyte of a compressed batch may hold millions of records, which take a hundred times as
    much memory. A batch is split into parts of about `part_records`, at most PARTS_MAX, because
    each part walks the whole batch.
    """
    first, end = _interval(start_offset, end_offset)
    for position, body in _bodies(buffer, first, end, False, inflate_limit):
        offset, batch_end = body.base_offset, body.base_offset + body.last_offset_delta + 1
        parts = max(1, min(PARTS_MAX, body.record_count // part_records))
        step = -(-(batch_end - offset) // parts)
        while offset < batch_end:
            low, high = max(first, offset), min(end, offset + step)
            offset += step
            if low >= high:
                continue
            records: list[Record] = []
            try:
                _kernel.read_records(body, low, high, records)
            except Malformed as fault:
                raise _corrupt(fault, body, position) from None
            yield records


def decode_columns(
    buffer: Buffer,
    *,
    wanted: int,
    start_offset: int | None = None,
    end_offset: int | None = None,
    with_control: bool = False,
    inflate_limit: int = INFLATE_LIMIT,
    data_limit: int = INT32_MAX,
) -> DecodedColumns:
    """Return the wanted columns (a sum of WANT_ bits) of all batches in one set of buffers.

    The records are those of `decode_all`. Raises `ColumnTooLarge` if a column has more than
    `data_limit` bytes.
    """
    first, end = _interval(start_offset, end_offset)
    builder = _kernel.ColumnBuilder(wanted, len(buffer), data_limit)
    for position, body in _bodies(buffer, first, end, with_control, inflate_limit):
        try:
            builder.append(body, first, end)
        except Malformed as fault:
            raise _corrupt(fault, body, position) from None
    return builder.finish()


def find_timestamp(
    buffer: Buffer,
    position: int,
    timestamp_ms: int,
    *,
    start_offset: int = 0,
    inflate_limit: int = INFLATE_LIMIT,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record of the batch at `position` with at least that
    timestamp and at least `start_offset`; None if there is none."""
    header = parse_header(buffer, position)
    check_crc(buffer, position, header)
    body = batch_body(buffer, position, header, inflate_limit=inflate_limit)
    try:
        return _kernel.find_timestamp(body, timestamp_ms, start_offset)
    except Malformed as fault:
        raise _corrupt(fault, body, position) from None


def _interval(start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
    first = 0 if start_offset is None else max(0, start_offset)
    end = OFFSET_END if end_offset is None else max(0, min(end_offset, OFFSET_END))
    return first, end


def _bodies(
    buffer: Buffer, start_offset: int, end_offset: int, with_control: bool, inflate_limit: int
) -> Iterator[tuple[int, Body]]:
    """Yield (position, body) of the batches with offsets in the interval; CRCs are checked.

    Headers are unpacked without an object each, which would slow small batches down. The functions
    of `batch` raise the errors of invalid headers.
    """
    view = memoryview(buffer)
    position, size = 0, len(view)
    while position < size:
        if size - position < HEADER_SIZE:
            parse_header(view, position)
        base_offset, length, _, magic, crc, attributes, last_delta, base_timestamp, *rest = (
            HEADER.unpack_from(view, position)
        )
        end = position + length + LENGTH_END
        if magic != MAGIC or length < LENGTH_MIN or end > size:
            check_crc(view, position, parse_header(view, position))
        is_impossible = last_delta < 0 or not 0 <= base_offset <= OFFSET_MAX - last_delta
        if is_impossible or start_offset - last_delta <= base_offset < end_offset:
            if crc32c(view[position + CRC_START : end]) != crc:
                check_crc(view, position, parse_header(view, position))
            if attributes & UNUSUAL_BITS or is_impossible:
                header = parse_header(view, position)
                if with_control or not header.is_control:
                    yield position, batch_body(view, position, header, inflate_limit=inflate_limit)
            else:
                start = position + HEADER_SIZE
                yield (
                    position,
                    Body(view, start, end, rest[-1], base_offset, last_delta, base_timestamp, None),
                )
        position = end


def batch_body(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    inflate_limit: int = INFLATE_LIMIT,
    base_offset: int | None = None,
) -> Body:
    """Return the inflated records of a batch; the caller has checked its CRC.

    `base_offset` replaces the header's base offset where that one is not trusted.
    """
    first = header.base_offset if base_offset is None else base_offset
    delta = header.last_offset_delta
    if delta < 0 or not 0 <= first <= OFFSET_MAX - delta:
        raise CorruptionError(
            f"a batch from offset {first} to {first + delta} is impossible", position=position
        )
    start, end = position + HEADER_SIZE, position + header.size
    codec = codec_of(header.attributes)
    if codec is not Codec.NONE:
        buffer = decompress(codec, memoryview(buffer)[start:end], inflate_limit)
        start, end = 0, len(buffer)
    return Body(
        buffer,
        start,
        end,
        header.record_count,
        first,
        delta,
        header.base_timestamp,
        header.max_timestamp if header.log_append_time else None,
    )


def _corrupt(fault: Malformed, body: Body, position: int) -> CorruptionError:
    """Return the error for a malformed record of the batch at `position`."""
    return CorruptionError(f"batch at offset {body.base_offset}: {fault}", position=position)


def walk(body: Body, *, min_timestamp: int, max_timestamp: int, keys_required: bool) -> None:
    """Check every record of a producer's batch; raises Malformed. See `validate`."""
    _kernel.walk_records(body, max_timestamp, keys_required, min_timestamp)


def sealed_headers(batches: Buffer) -> list[tuple[int, BatchHeader]] | None:
    """Return (position, header) of each batch if all are whole and their CRCs match; None means
    unknown, and `iterate_batches` and `check_crc` must decide."""
    return _kernel.sealed_headers(batches)


def sound_header(
    batch: Buffer, *, keys_required: bool, oldest_ms: int, newest_ms: int
) -> BatchHeader | None:
    """Return the header of one uncompressed batch that `validate_batch` would accept, with
    timestamps in [oldest_ms, newest_ms] or -1; None means unknown, and `validate_batch` must
    decide."""
    return _kernel.sound_header(batch, keys_required, oldest_ms, newest_ms)


partitions_for_keys = _kernel.partitions_for_keys
partition_rows = _kernel.partition_rows
murmur2 = _kernel.murmur2
