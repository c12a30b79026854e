"""What a log demands of a batch that a producer sent, before a byte of it is stored.

Pure checks; which of them run over the records is the topic's `record.validation`. Compressed
batches are inflated within a bound only in the full mode. The rules are the field's own: a fault
gives the error number its clients know.
"""

from enum import StrEnum

from crc32c import crc32c

from ..errors import CorruptionError, InvalidRecord, InvalidTimestamp, MessageTooLarge
from .batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_crc,
)
from .codec import batch_body, walk
from .compression import INFLATE_LIMIT, Buffer, Codec, compress, decompress
from .record import Malformed


class ValidationMode(StrEnum):
    """How far a producer's batch is looked into."""

    FULL = "full"  # every record, inflating compressed batches
    HEADER = "header"  # every record of uncompressed batches, only the header of compressed ones


def check_size(size: int, max_bytes: int) -> None:
    """Raise MessageTooLarge for a batch of more bytes than its topic takes."""
    if size > max_bytes:
        raise MessageTooLarge(
            f"a batch has {size} bytes, the topic takes at most {max_bytes}: send smaller"
            " batches, or raise its max.message.bytes"
        )


def validate_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    mode: ValidationMode,
    max_bytes: int,
    inflate_limit: int = INFLATE_LIMIT,
    keys_required: bool = False,
) -> None:
    """Check the batch at `position`, whose header was parsed, as one that a producer sent.

    Raises MessageTooLarge above `max_bytes` or when it would inflate beyond `inflate_limit`,
    CorruptionError for a torn batch or a wrong CRC, UnsupportedCompression, InvalidTimestamp, and
    InvalidRecord for whatever else is wrong. Uncompressed records are always walked, compressed
    ones in the full mode. Base offset and leader epoch are the log's to stamp and not looked at.
    """
    check_size(header.size, max_bytes)
    check_crc(buffer, position, header)
    _check_header(header)
    codec = header.codec
    if codec is not Codec.NONE and mode is ValidationMode.HEADER:
        return
    try:
        body = batch_body(buffer, position, header, inflate_limit=inflate_limit, base_offset=0)
    except CorruptionError as error:  # the CRC is right, so a repeat would not help
        raise InvalidRecord(f"the batch does not inflate: {error.message}") from None
    try:
        walk(body, max_timestamp=header.max_timestamp, keys_required=keys_required)
    except Malformed as fault:
        raise InvalidRecord(f"the batch is malformed: {fault}") from None


def _check_header(header: BatchHeader) -> None:
    """Check what a header must say when it comes from a producer."""
    if header.is_control:
        raise InvalidRecord("producers may not write control batches")
    if header.has_delete_horizon:
        raise InvalidRecord("a delete horizon is the log's to set")
    if header.record_count < 1:
        raise InvalidRecord(f"the batch has {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"{header.record_count} records cannot end at offset delta {header.last_offset_delta}"
        )
    if header.producer_id != NO_PRODUCER and (
        header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0
    ):
        raise InvalidRecord(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}"
        )
    if header.is_transactional and header.producer_id == NO_PRODUCER:
        raise InvalidRecord("a transactional batch has no producer id")
    if header.log_append_time:
        raise InvalidTimestamp("producers may not set the log's own time on a batch")
    if header.max_timestamp < NO_TIMESTAMP or header.base_timestamp < NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"timestamps [{header.base_timestamp}, {header.max_timestamp}] are below zero"
        )


def with_append_time(
    buffer: Buffer, position: int, header: BatchHeader, *, timestamp_ms: int
) -> bytes:
    """Return the batch with the log's own time for every record; the records stay as they are."""
    return _reseal(
        header._replace(
            attributes=header.attributes | TIMESTAMP_TYPE_BIT, max_timestamp=timestamp_ms
        ),
        memoryview(buffer)[position + HEADER_SIZE : position + header.size],
    )


def with_codec(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    codec: Codec,
    inflate_limit: int = INFLATE_LIMIT,
) -> bytes:
    """Return the batch compressed by another codec (a topic's `compression.type`)."""
    packed = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    body = decompress(header.codec, packed, inflate_limit)
    return _reseal(
        header._replace(attributes=(header.attributes & ~0x07) | codec),
        memoryview(compress(codec, body)),
    )


def _reseal(header: BatchHeader, body: memoryview) -> bytes:
    """Return header and body with length and CRC made right."""
    header = header._replace(batch_length=HEADER_SIZE - LENGTH_END + len(body), crc=0)
    fields = HEADER.pack(*header)
    crc = crc32c(body, crc32c(fields[CRC_START:]))
    return b"".join((fields[: CRC_START - 4], crc.to_bytes(4, "big"), fields[CRC_START:], body))
