"""Validation of a producer's batch before the log stores it.

Pure checks; the topic's `record.validation` selects those on records. Compressed batches are
inflated within a limit, in the full mode only. The rules are Kafka's, and an error has the number
that Kafka's clients expect. This module also re-encodes a batch with another codec or with the
log's time, as its topic requires.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from ..errors import (
    CorruptionError,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    QuorumlogError,
)
from ..errors.requests import RECORD_ERRORS_MAX, RecordError
from .batch import (
    CODEC_MASK,
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
from .checksum import crc32c
from .codec import batch_body, decode_batch, walk
from .compression import INFLATE_LIMIT, Buffer, Codec, compress, decompress
from .record import INT32_MAX, INT64_MAX, INT64_MIN, Body, Fault, Malformed, Record


class ValidationMode(StrEnum):
    """The depth of the checks of a producer's batch."""

    FULL = "full"  # every record, inflating compressed batches
    HEADER = "header"  # every record of uncompressed batches, only the header of compressed ones


class TimestampLimits(NamedTuple):
    """The allowed distance of a producer's timestamps from the log's clock, in ms; -1 (none) is
    always allowed.

    The default allows any timestamp.
    """

    wall_ms: int = 0  # the log's clock, ms since 1970
    before_max_ms: int = INT64_MAX  # message.timestamp.before.max.ms
    after_max_ms: int = INT64_MAX  # message.timestamp.after.max.ms

    @property
    def oldest_ms(self) -> int:
        """The oldest allowed timestamp, ms since 1970."""
        return self.wall_ms - self.before_max_ms


ANY_TIMESTAMP: Final = TimestampLimits()


def check_size(size: int, max_bytes: int) -> None:
    """Raise MessageTooLarge for a batch above the topic's max.message.bytes."""
    if size > max_bytes:
        raise MessageTooLarge(
            f"the batch has {size} bytes; the topic's max.message.bytes is {max_bytes};"
            " send smaller batches, or raise the limit"
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
    timestamps: TimestampLimits = ANY_TIMESTAMP,
) -> Body | None:
    """Check the batch at `position` as one of a producer; `header` is its parsed header.

    Return its records inflated, None if they were not checked.

    Raises MessageTooLarge above `max_bytes` or if it would inflate beyond `inflate_limit`,
    CorruptionError for a torn batch or a wrong CRC, UnsupportedCompression, InvalidTimestamp, and
    InvalidRecord for every other fault. Uncompressed records are always checked, compressed ones in
    the full mode. Base offset and leader epoch are not checked, since the log stamps them. If the
    records are not checked, the header's timestamps stand for the first and the newest one. The
    errors have the records that the topic's rules refuse, if those were read.
    """

    def refused() -> tuple[RecordError, ...]:
        try:
            records = decode_batch(buffer, position, inflate_limit=inflate_limit)
        except QuorumlogError:
            return ()
        return _refused_records(records, timestamps, keys_required=keys_required)

    check_size(header.size, max_bytes)
    check_crc(buffer, position, header)
    _check_header(header)
    is_read = header.codec is Codec.NONE or mode is ValidationMode.FULL
    if _is_too_new(header.max_timestamp, timestamps):
        raise _too_new(header, timestamps, refused() if is_read else ())
    if not is_read:
        if NO_TIMESTAMP != header.base_timestamp < timestamps.oldest_ms:
            raise _too_old(timestamps)
        return None
    try:
        body = batch_body(buffer, position, header, inflate_limit=inflate_limit, base_offset=0)
    except CorruptionError as error:  # the CRC matches, so a retry would not help
        raise InvalidRecord(f"the batch does not inflate: {error.message}") from None
    try:
        walk(
            body,
            min_timestamp=max(INT64_MIN, timestamps.oldest_ms),
            max_timestamp=header.max_timestamp,
            keys_required=keys_required,
        )
    except Malformed as fault:
        if fault.fault is Fault.TIMESTAMP_MIN:
            raise _too_old(timestamps, f"record {fault.index}", refused()) from None
        invalid = InvalidRecord(f"the batch is malformed: {fault}")
        if fault.fault is Fault.KEY_MISSING:
            invalid.record_errors = refused()
        raise invalid from None
    return body


def _refused_records(
    records: Sequence[Record], timestamps: TimestampLimits, *, keys_required: bool
) -> tuple[RecordError, ...]:
    """Return the errors of the records that the topic's rules refuse, at most
    `RECORD_ERRORS_MAX`."""
    errors: list[RecordError] = []
    for index, record in enumerate(records):
        if _is_too_new(record.timestamp_ms, timestamps):
            errors.append(RecordError(index, "the timestamp is too new for the topic"))
        elif NO_TIMESTAMP != record.timestamp_ms < timestamps.oldest_ms:
            errors.append(RecordError(index, "the timestamp is too old for the topic"))
        elif keys_required and record.key is None:
            errors.append(RecordError(index, "the record has no key; the topic is compacted"))
        if len(errors) == RECORD_ERRORS_MAX:
            break
    return tuple(errors)


def _is_too_new(timestamp_ms: int, timestamps: TimestampLimits) -> bool:
    return NO_TIMESTAMP != timestamp_ms > timestamps.wall_ms + timestamps.after_max_ms


def _too_new(
    header: BatchHeader, timestamps: TimestampLimits, errors: tuple[RecordError, ...]
) -> InvalidTimestamp:
    error = InvalidTimestamp(
        f"the newest timestamp, {header.max_timestamp}, is"
        f" {header.max_timestamp - timestamps.wall_ms} ms ahead of the broker's clock; the topic's"
        f" message.timestamp.after.max.ms is {timestamps.after_max_ms}; send milliseconds since"
        " 1970, set the producer's clock, or raise the limit"
    )
    error.record_errors = errors
    return error


def _too_old(
    timestamps: TimestampLimits,
    which: str = "the first record",
    errors: tuple[RecordError, ...] = (),
) -> InvalidTimestamp:
    error = InvalidTimestamp(
        f"{which} is more than {timestamps.before_max_ms} ms older than the broker's clock,"
        f" {timestamps.wall_ms}; send milliseconds since 1970, or raise the topic's"
        " message.timestamp.before.max.ms"
    )
    error.record_errors = errors
    return error


def _check_header(header: BatchHeader) -> None:
    """Check the header fields of a producer's batch."""
    if header.is_control:
        raise InvalidRecord("producers may not write control batches")
    if header.has_delete_horizon:
        raise InvalidRecord("producers may not set a delete horizon")
    if header.record_count < 1:
        raise InvalidRecord(f"the batch has {header.record_count} records; at least 1 is needed")
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
        raise InvalidTimestamp("producers may not set log append time")
    if header.max_timestamp < NO_TIMESTAMP or header.base_timestamp < NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"timestamps [{header.base_timestamp}, {header.max_timestamp}] are below zero"
        )


def with_append_time(
    buffer: Buffer, position: int, header: BatchHeader, *, timestamp_ms: int
) -> bytes:
    """Return the batch with the log's time for every record; the records are unchanged."""
    return _reseal(
        header._replace(
            attributes=header.attributes | TIMESTAMP_TYPE_BIT, max_timestamp=timestamp_ms
        ),
        memoryview(buffer)[position + HEADER_SIZE : position + header.size],
    )


def with_newest(
    buffer: Buffer, position: int, header: BatchHeader, *, inflate_limit: int = INFLATE_LIMIT
) -> bytes | None:
    """Return the batch with the timestamp of its newest record in the header; None if that one is
    not above the header's, or the records are unreadable.

    Some producers understate it: a producer that sets the times of some records only may have
    considered only those. Kafka's brokers correct it as well.
    """
    try:
        records = decode_batch(buffer, position, inflate_limit=inflate_limit)
    except QuorumlogError:
        return None
    newest_ms = max((record.timestamp_ms for record in records), default=NO_TIMESTAMP)
    if newest_ms <= header.max_timestamp or header.log_append_time:
        return None
    return _reseal(
        header._replace(max_timestamp=newest_ms),
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
    return with_records(header, decompress(header.codec, packed, inflate_limit), codec=codec)


def with_records(header: BatchHeader, records: Buffer, *, codec: Codec) -> bytes:
    """Return the batch of a header and inflated records, compressed by `codec`; raises
    MessageTooLarge above 2 GiB."""
    packed = records if codec is Codec.NONE else compress(codec, records)
    return _reseal(
        header._replace(attributes=(header.attributes & ~CODEC_MASK) | codec), memoryview(packed)
    )


def _reseal(header: BatchHeader, body: memoryview) -> bytes:
    """Return header and body, with batch length and CRC recomputed."""
    length = HEADER_SIZE - LENGTH_END + len(body)
    if length > INT32_MAX:
        raise MessageTooLarge(f"batch length {length} exceeds its field; the limit is {INT32_MAX}")
    header = header._replace(batch_length=length, crc=0)
    fields = HEADER.pack(*header)
    crc = crc32c(body, crc32c(fields[CRC_START:]))
    return b"".join((fields[: CRC_START - 4], crc.to_bytes(4, "big"), fields[CRC_START:], body))
