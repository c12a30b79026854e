"""Records to batches and back: headers, CRC and compression around one of the two codecs.

`_codec` (compiled) does the records when it is there, `_plain` when not; both give the same bytes,
the same records and the same faults. `COMPILED` says which, `describe()` says so to people.

Errors when reading: CorruptionError for whatever bytes are not a batch (torn, bad CRC, malformed
records), UnsupportedCompression for an unknown codec, MessageTooLarge when a batch would inflate
beyond the limit. Errors when writing: MessageTooLarge for what no batch can hold, ValueError for
what is no record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

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
from .columns import DecodedColumns, RecordColumns
from .compression import INFLATE_LIMIT, Buffer, Codec, codec_of, compress, decompress
from .record import INT32_MAX, Body, Malformed, Record

if TYPE_CHECKING:
    from . import _plain as _kernel  # the other has the same functions, see `_codec.pyi`
else:
    try:
        from . import _codec as _kernel
    except ImportError:
        from . import _plain as _kernel

COMPILED: Final = _kernel.__name__.endswith("._codec")
"""Whether the compiled codec is there."""


def describe() -> str:
    """Return a sentence that says which codec runs."""
    if COMPILED:
        return "The compiled record codec is in use."
    return (
        "The record codec runs in plain Python, which is some fifty times slower: the compiled "
        "module is missing. Install a C compiler and reinstall quorumlog."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What a batch's header says beside what follows from its records."""

    codec: Codec = Codec.NONE
    base_offset: int = 0  # the log stamps its own
    leader_epoch: int = -1  # the log stamps its own
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
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: bool = False,
    keep_offsets: bool = False,
) -> bytes:
    """Return one batch of `records`.

    Their offsets are ignored and count from `base_offset`, unless `keep_offsets` is set: then they
    must rise and start at or above it, and gaps stay gaps (what compaction leaves).
    """
    envelope = Envelope(
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
        log_append_time=log_append_time,
    )
    try:
        body, base_timestamp, max_timestamp, last_delta = _kernel.write_records(
            records, base_offset, keep_offsets
        )
    except OverflowError as error:
        raise MessageTooLarge(f"{error}") from None
    packed = compress(codec, body)
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
    """Return the rows as batches of at most `batch_bytes` before compression, in order.

    A batch has at least one record, so that a record larger than `batch_bytes` makes a larger
    batch. `rows` (int64 buffer) lists the rows to take, [first, end) counts in that list; without
    it, in the columns. Base offsets and base sequences continue from batch to batch.
    """
    if end is None:
        end = columns.length if rows is None else memoryview(rows).nbytes // 8
    batches = []
    while first < end:
        batch, following = _encode_some(columns, envelope, batch_bytes, rows, first, end)
        batches.append(batch)
        envelope = _advance(envelope, following - first)
        first = following
    return batches


def _advance(envelope: Envelope, count: int) -> Envelope:
    """Return the envelope of the batch behind one of `count` records."""
    sequence = envelope.base_sequence
    return Envelope(
        codec=envelope.codec,
        base_offset=envelope.base_offset + count,
        leader_epoch=envelope.leader_epoch,
        producer_id=envelope.producer_id,
        producer_epoch=envelope.producer_epoch,
        base_sequence=sequence if sequence < 0 else (sequence + count) & INT32_MAX,
        is_transactional=envelope.is_transactional,
        is_control=envelope.is_control,
        log_append_time=envelope.log_append_time,
    )


def _encode_some(
    columns: RecordColumns,
    envelope: Envelope,
    batch_bytes: int,
    rows: Buffer | None,
    first: int,
    end: int,
) -> tuple[bytes, int]:
    """Return the next batch and the row behind it."""

    def seal(body: memoryview, count: int, base_timestamp: int, max_timestamp: int) -> bytes:
        return _header(
            envelope,
            body,
            count=count,
            last_delta=count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
        )

    limit = max(0, min(batch_bytes, INT32_MAX) - HEADER_SIZE)
    is_plain = envelope.codec is Codec.NONE
    try:
        batch, following, base_timestamp, max_timestamp = _kernel.write_columns(
            columns, rows, first, end, limit, seal if is_plain else None
        )
    except OverflowError as error:
        raise MessageTooLarge(f"{error}") from None
    if not is_plain:
        packed = compress(envelope.codec, batch)
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
) -> bytes:
    """Return the 61 bytes in front of `body`; raises MessageTooLarge when it is 2 GiB."""
    length = HEADER_SIZE - LENGTH_END + len(body)
    if length > INT32_MAX:
        raise MessageTooLarge(f"a batch of {length} bytes does not fit its length field")
    fields = (
        envelope.attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        envelope.producer_id,
        envelope.producer_epoch,
        envelope.base_sequence,
        count,
    )
    header = HEADER.pack(envelope.base_offset, length, envelope.leader_epoch, MAGIC, 0, *fields)
    crc = crc32c(body, crc32c(header[CRC_START:]))
    return HEADER.pack(envelope.base_offset, length, envelope.leader_epoch, MAGIC, crc, *fields)


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
    """Return the records of the one batch at `position`, a control batch's too."""
    header = parse_header(buffer, position)
    check_crc(buffer, position, header)
    records: list[Record] = []
    body = batch_body(buffer, position, header, inflate_limit=inflate_limit)
    try:
        _kernel.read_records(body, 0, OFFSET_MAX, records)
    except Malformed as fault:
        raise corrupt(fault, header, position) from None
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

    Control batches are left out unless `with_control`. Batches wholly outside the interval are
    skipped unread.
    """
    first, end = _interval(start_offset, end_offset)
    records: list[Record] = []
    for position, header in _batches(buffer, first, end, with_control=with_control):
        body = batch_body(buffer, position, header, inflate_limit=inflate_limit)
        try:
            _kernel.read_records(body, first, end, records)
        except Malformed as fault:
            raise corrupt(fault, header, position) from None
    return records


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

    The same records as `decode_all`. Raises `ColumnTooLarge` when a column has more than
    `data_limit` bytes.
    """
    first, end = _interval(start_offset, end_offset)
    builder = _kernel.ColumnBuilder(wanted, len(buffer), data_limit)
    for position, header in _batches(buffer, first, end, with_control=with_control):
        body = batch_body(buffer, position, header, inflate_limit=inflate_limit)
        try:
            builder.append(body, first, end)
        except Malformed as fault:
            raise corrupt(fault, header, position) from None
    return builder.finish()


def find_timestamp(
    buffer: Buffer,
    position: int,
    timestamp_ms: int,
    *,
    start_offset: int = 0,
    inflate_limit: int = INFLATE_LIMIT,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record of the batch at `position` whose timestamp is
    at least `timestamp_ms` and whose offset at least `start_offset`; None when it has none."""
    header = parse_header(buffer, position)
    check_crc(buffer, position, header)
    body = batch_body(buffer, position, header, inflate_limit=inflate_limit)
    try:
        return _kernel.find_timestamp(body, timestamp_ms, start_offset)
    except Malformed as fault:
        raise corrupt(fault, header, position) from None


def _interval(start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
    first = 0 if start_offset is None else max(0, start_offset)
    end = OFFSET_MAX if end_offset is None else max(0, min(end_offset, OFFSET_MAX))
    return first, end


def _batches(
    buffer: Buffer, start_offset: int, end_offset: int, *, with_control: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches that have offsets of the interval; their CRC is checked."""
    position = 0
    size = len(buffer)
    while position < size:
        header = parse_header(buffer, position)
        end = position + header.size
        if end > size or (header.last_offset >= start_offset and header.base_offset < end_offset):
            check_crc(buffer, position, header)
            if with_control or not header.is_control:
                yield position, header
        position = end


def batch_body(
    buffer: Buffer, position: int, header: BatchHeader, *, inflate_limit: int = INFLATE_LIMIT
) -> Body:
    """Return the records of a batch inflated; its CRC has been checked by the caller."""
    if not 0 <= header.base_offset <= OFFSET_MAX - max(0, header.last_offset_delta):
        raise CorruptionError(
            f"base offset {header.base_offset} of a batch is impossible", position=position
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
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp if header.log_append_time else None,
    )


def corrupt(fault: Malformed, header: BatchHeader, position: int) -> CorruptionError:
    """Return the error for a malformed record of the batch at `position`."""
    return CorruptionError(f"batch at offset {header.base_offset}: {fault}", position=position)


def walk(body: Body, *, max_timestamp: int, keys_required: bool) -> None:
    """Check every record of a producer's batch; raises Malformed. See `validate`."""
    _kernel.walk_records(body, max_timestamp, keys_required)


partitions_for_keys = _kernel.partitions_for_keys
partition_rows = _kernel.partition_rows
murmur2 = _kernel.murmur2
