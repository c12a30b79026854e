"""Encoding of a batch's columns as a record batch, and decoding for a split or an error.

Pure and thread-safe.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ...errors import InvalidRecord
from ...records.batch import NO_PRODUCER, renumber
from ...records.codec import Envelope, decode_all, encode_batch, encode_columns
from ...records.columns import BinaryColumn, Int64Column, RecordColumns
from ...records.compression import Codec
from ...records.record import Headers, Record
from .batches import RECORD_OVERHEAD, Batch
from .sequences import ProducerSequence


class BatchColumns(NamedTuple):
    """The records of a batch as columns."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    timestamps: "array[int]"
    headers: dict[int, Headers]  # by index, of the records with headers


def batch_columns(batch: Batch) -> BatchColumns | None:
    """Return a batch's records, encoded or not; None if they were dropped."""
    if batch.encoded is None:
        if len(batch.values) != batch.count:
            return None
        return BatchColumns(batch.values, batch.keys, batch.timestamps, batch.headers)
    records = decode_all(batch.encoded)
    return BatchColumns(
        [record.value for record in records],
        [record.key for record in records],
        array("q", [record.timestamp_ms for record in records]),
        {index: record.headers for index, record in enumerate(records) if record.headers},
    )


def split(batch: Batch) -> tuple[tuple[int, Batch], tuple[int, Batch]]:
    """Split a batch into two, each with the index of its first record and its callbacks.

    The batch itself is not changed.
    """
    assert batch.count > 1, "one record cannot be split"
    columns = batch_columns(batch)
    assert columns is not None, "the records of a batch without an outcome were dropped"
    middle = batch.count // 2
    return (0, _part(batch, columns, 0, middle)), (
        middle,
        _part(batch, columns, middle, batch.count),
    )


def _part(batch: Batch, columns: BatchColumns, first: int, end: int) -> Batch:
    """Return a batch with the records of [first, end)."""
    part = Batch(batch.queue)
    part.values = list(columns.values[first:end])
    part.keys = list(columns.keys[first:end])
    part.timestamps = columns.timestamps[first:end]
    for index, headers in columns.headers.items():
        if first <= index < end:
            part.headers[index - first] = headers
    for index, callback in batch.callbacks.items():
        if first <= index < end:
            part.callbacks[index - first] = callback
    part.count = end - first
    part.size = content_size(part.values, part.keys, part.headers)
    part.linger_end_ms = batch.linger_end_ms
    part.deadline_ms = batch.deadline_ms
    part.may_be_stored = batch.may_be_stored
    part.goes_alone = True  # it may still be too large
    return part


def content_size(
    values: Sequence[bytes | None], keys: Sequence[bytes | None], headers: dict[int, Headers]
) -> int:
    """Return an upper bound of the records' size in a batch before compression, in bytes."""
    return sum(
        RECORD_OVERHEAD + len(value or b"") + len(key or b"")
        for value, key in zip(values, keys, strict=True)
    ) + sum(map(headers_size, headers.values()))


def headers_size(headers: Headers) -> int:
    """Return an upper bound of the headers' size, without their length varints, in bytes."""
    return sum(4 + 4 * len(name) + (len(value) if value else 0) for name, value in headers)


NO_NUMBER = ProducerSequence(NO_PRODUCER, -1, -1)


def renumbered(encoded: bytes, number: ProducerSequence | None) -> bytes:
    """Return an encoded batch with another producer id, epoch and sequence."""
    producer_id, epoch, sequence = number or NO_NUMBER
    return renumber(encoded, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def encode_records(
    batch: Batch, codec: Codec, level: int | None = None, *, is_transactional: bool = False
) -> bytes:
    """Encode the batch's records as one record batch, compressed, with its sequence number.

    Raises InvalidRecord if a record cannot be encoded (a timestamp out of range), MessageTooLarge
    if the batch exceeds the format's limit.
    """
    producer_id, epoch, sequence = batch.number or NO_NUMBER
    try:
        if batch.headers:
            return encode_batch(
                _records(batch),
                codec=codec,
                level=level,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        columns = RecordColumns(
            values=_binary(batch.values),
            keys=None if batch.keys.count(None) == batch.count else _binary(batch.keys),
            timestamps_ms=Int64Column(
                length=batch.count, values=memoryview(batch.timestamps).cast("B")
            ),
        )
        envelope = Envelope(
            codec=codec,
            level=level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        (encoded,) = encode_columns(columns, envelope=envelope)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRecord(
            f"a record cannot be encoded: {error}",
            topic=batch.queue.topic,
            partition=batch.queue.partition,
        ) from error
    return encoded


def _records(batch: Batch) -> list[Record]:
    headers = batch.headers
    return [
        Record(index, timestamp_ms, key, value, headers.get(index, ()))
        for index, (timestamp_ms, key, value) in enumerate(
            zip(batch.timestamps, batch.keys, batch.values, strict=True)
        )
    ]


def _binary(items: Sequence[bytes | None]) -> BinaryColumn:
    """Return byte strings as a column with 32-bit offsets: a batch is far smaller than 2 GiB."""
    if None not in items:
        whole: Sequence[bytes] = items  # type: ignore[assignment]  # None is ruled out above
        validity = None
    else:
        whole = [b"" if item is None else item for item in items]
        validity = _bitmap(items)
    return BinaryColumn(
        length=len(whole),
        offsets=memoryview(array("i", accumulate(map(len, whole), initial=0))).cast("B"),
        data=b"".join(whole),
        validity=validity,
    )


def _bitmap(items: Sequence[bytes | None]) -> bytes:
    """Return the validity bitmap, least significant bit first."""
    bits = bytearray((len(items) + 7) // 8)
    for index, item in enumerate(items):
        if item is not None:
            bits[index >> 3] |= 1 << (index & 7)
    return bytes(bits)
