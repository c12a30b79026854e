"""From a batch's plain columns to the bytes of one record batch. Pure, and safe in any thread."""

from array import array
from collections.abc import Sequence
from itertools import accumulate

from ..errors import InvalidRecord
from ..records.codec import Envelope, encode_batch, encode_columns
from ..records.columns import BinaryColumn, Int64Column, RecordColumns
from ..records.compression import Codec
from ..records.record import Record
from .batches import Batch


def encode_records(batch: Batch, codec: Codec) -> bytes:
    """Return the batch's records as one record batch, compressed.

    Raises InvalidRecord for what cannot be encoded (a timestamp out of range) and MessageTooLarge
    for what no batch can hold.
    """
    try:
        if batch.headers:
            return encode_batch(_records(batch), codec=codec)
        columns = RecordColumns(
            values=_binary(batch.values),
            keys=None if batch.keys.count(None) == batch.count else _binary(batch.keys),
            timestamps_ms=Int64Column(
                length=batch.count, values=memoryview(array("q", batch.timestamps)).cast("B")
            ),
        )
        (encoded,) = encode_columns(columns, envelope=Envelope(codec=codec))
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
    """Return byte strings as a column; 32-bit offsets, since a batch is far below 2 GiB."""
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
