"""The record batch, version 2: the header as a value, and iteration over batches in a buffer.

Layout (big endian), from Kafka's description of the format:

    0   8  base offset             stamped by the log
    8   4  batch length            bytes after this field
    12  4  partition leader epoch  stamped by the log; -1 from producers
    16  1  magic = 2
    17  4  CRC-32C                 over byte 21 to the end
    21  2  attributes              bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                   6 delete horizon in the base timestamp
    23  4  last offset delta       kept by compaction
    27  8  base timestamp          ms since 1970; -1 none
    35  8  max timestamp
    43  8  producer id             -1 none
    51  2  producer epoch          -1 none
    53  4  base sequence           -1 none
    57  4  record count
    61     records                 compressed as one block

The first 16 bytes lie outside the CRC. A log stamps offset and leader epoch there and stores the
rest of the producer's bytes unchanged. This module does not parse records.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ..errors import CorruptionError, InvalidRecord
from .checksum import crc32c
from .compression import Buffer, Codec, codec_of

HEADER: Final = Struct(">qiibIhiqqqhii")
"""All fields of the header in the order of `BatchHeader`."""

EXTENT: Final = Struct(">qi11xi")
"""Base offset, batch length, last offset delta: the header fields needed to find a batch."""

HEADER_SIZE: Final = 61
PREFIX_SIZE: Final = 16
"""Bytes that the log stamps: base offset, batch length, leader epoch."""

LENGTH_END: Final = 12
"""Offset of the byte after `batch_length`: a batch is this many bytes longer than that field."""

CRC_START: Final = 21
"""First byte under the CRC."""

MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER: Final = -1

CODEC_MASK: Final = 0x07
"""Mask of the codec in a batch's attributes."""

TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

OFFSET_MAX: Final = 2**63 - 1
BATCHES_MAX: Final = 1_000
BATCHES_A_STEP: Final = 200
"""The batches that a broker appends between two turns of other tasks: a few milliseconds."""
"""The batches that a client appends to a partition in one request: more would stop the event loop
for long, and 8 MiB have 120,000 of one empty record each."""


class BatchHeader(NamedTuple):
    """The first 61 bytes of a batch.

    A tuple instead of a dataclass: one is created for every appended batch, and thirteen frozen
    fields take four times as long.
    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """Offset of the last record (inclusive); compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Compression of the records; raises UnsupportedCompression for an unknown number."""
        return codec_of(self.attributes)

    @property
    def is_control(self) -> bool:
        """True if the records are control records of the log, hidden from applications."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """True if the records are visible only after their transaction is committed."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def log_append_time(self) -> bool:
        """True if every record's timestamp is `max_timestamp`, set by the broker."""
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """True if `base_timestamp` is the time from which the cleaner may drop tombstones."""
        return bool(self.attributes & DELETE_HORIZON_BIT)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the batch at `position`; the records may be missing.

    Raises CorruptionError if the buffer is too short for a header, or magic or length are invalid.
    The CRC is not checked.
    """
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise CorruptionError(
            f"{max(0, len(buffer) - position)} bytes left; a batch header has {HEADER_SIZE}",
            position=position,
        )
    header = BatchHeader(*HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptionError(
            f"magic is {header.magic}; only record batches of version {MAGIC} are supported",
            position=position,
        )
    if header.batch_length < HEADER_SIZE - LENGTH_END:
        raise CorruptionError(
            f"batch length {header.batch_length} is below the size of a header", position=position
        )
    return header


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptionError unless the batch is whole and its CRC-32C matches."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptionError(
            f"the batch at offset {header.base_offset} has {header.size} bytes, "
            f"{len(buffer) - position} remain",
            position=position,
        )
    crc = crc32c(memoryview(buffer)[position + CRC_START : end])
    if crc != header.crc:
        raise CorruptionError(
            f"CRC-32C of the batch at offset {header.base_offset} is {crc:08x}, "
            f"its header has {header.crc:08x}",
            position=position,
        )


def iterate_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch from `position` to the buffer's end.

    Raises CorruptionError at a torn or invalid batch, after the batches before it.
    """
    while position < len(buffer):
        header = parse_header(buffer, position)
        if position + header.size > len(buffer):
            raise CorruptionError(
                f"the batch at offset {header.base_offset} has {header.size} bytes, "
                f"{len(buffer) - position} remain",
                position=position,
            )
        yield position, header
        position += header.size


def client_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield as `iterate_batches`; raise InvalidRecord after BATCHES_MAX batches."""
    for count, found in enumerate(iterate_batches(buffer)):
        if count == BATCHES_MAX:
            raise InvalidRecord(
                f"the append has more than {BATCHES_MAX} batches; send larger batches, or several"
                " requests"
            )
        yield found


def has_more_batches(buffer: Buffer) -> bool:
    """Return True if bytes follow the first batch by its length, which is not checked."""
    return LENGTH_END + int.from_bytes(buffer[LENGTH_END - 4 : LENGTH_END], "big") < len(buffer)


def count_batches(buffer: Buffer) -> int:
    """Return the number of batches by their lengths, which are not checked; BATCHES_MAX + 1 if
    there are more than BATCHES_MAX."""
    position = count = 0
    while position < len(buffer) and count <= BATCHES_MAX:
        length = int.from_bytes(buffer[position + LENGTH_END - 4 : position + LENGTH_END], "big")
        position += LENGTH_END + length
        count += 1
    return count


def whole_batches_end(buffer: Buffer, position: int = 0) -> int:
    """Return the position after the last whole batch; a torn batch or other bytes may follow."""
    while len(buffer) - position >= HEADER_SIZE:
        try:
            header = parse_header(buffer, position)
        except CorruptionError:
            break
        if position + header.size > len(buffer):
            break
        position += header.size
    return position


_PREFIX: Final = Struct(">qii")


def stamp(header: BatchHeader, *, base_offset: int, leader_epoch: int) -> bytes:
    """Return the 16 bytes that replace the first 16 of the batch; the CRC does not cover them."""
    return _PREFIX.pack(base_offset, header.batch_length, leader_epoch)


_CRC: Final = Struct(">I")
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_START: Final = 43
_ATTRIBUTES: Final = Struct(">h")


def renumber(batch: Buffer, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """Return the batch with another producer id, epoch and base sequence, and a new CRC."""
    head, rest = renumbered(
        batch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return b"".join((head, rest))


def renumbered(
    batch: Buffer,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    attributes: int | None = None,
) -> tuple[bytes, memoryview]:
    """Return the header of `renumber` and a view of the bytes after it, without a copy.

    `attributes` replace the header's attribute bits; None keeps them.
    """
    view = memoryview(batch)
    head, rest = bytearray(view[:HEADER_SIZE]), view[HEADER_SIZE:]
    _PRODUCER.pack_into(head, _PRODUCER_START, producer_id, producer_epoch, base_sequence)
    if attributes is not None:
        _ATTRIBUTES.pack_into(head, CRC_START, attributes)  # the first bytes that the CRC covers
    crc = crc32c(rest, crc32c(memoryview(head)[CRC_START:]))
    _CRC.pack_into(head, CRC_START - 4, crc)
    return bytes(head), rest


def without_records(base_offset: int, next_offset: int, *, leader_epoch: int = -1) -> bytes:
    """Return a batch without records that spans [base_offset, next_offset), such as compaction
    leaves; the span is 1 to 2^31 offsets."""
    delta = next_offset - base_offset - 1
    header = HEADER.pack(
        base_offset,
        HEADER_SIZE - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,
        0,
        delta,
        NO_TIMESTAMP,
        NO_TIMESTAMP,
        NO_PRODUCER,
        -1,
        -1,
        0,
    )
    batch = bytearray(header)
    _CRC.pack_into(batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)
