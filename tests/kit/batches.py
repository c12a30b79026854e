"""Record batches of plain values."""

from quorumlog.records import Codec, Record, decode_all, encode_batch


def batch_of(*values: bytes, timestamp_ms: int = 1000, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch of records without keys, a millisecond apart."""
    records = [Record(i, timestamp_ms + i, None, value) for i, value in enumerate(values)]
    return encode_batch(records, codec=codec)


def values_of(records: bytes) -> list[bytes | None]:
    """Return the values of all records in some batches."""
    return [record.value for record in decode_all(records)]
