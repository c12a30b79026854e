"""Columns of a batch become the record batch that the records would."""

import pytest

from quorumlog.clients.accumulator import PartitionQueue
from quorumlog.clients.batch_encoding import encode_records
from quorumlog.clients.batches import Batch, Headers
from quorumlog.errors import InvalidRecord
from quorumlog.records import Codec, Record, decode_all, encode_batch


def batch_of(*records: tuple[bytes | None, bytes | None, int, Headers]) -> Batch:
    batch = Batch(PartitionQueue("t", 0))
    for key, value, timestamp_ms, headers in records:
        if headers:
            batch.headers[batch.count] = headers
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(timestamp_ms)
        batch.count += 1
    return batch


CASES = {
    "plain": [(b"k", b"v", 10, ()), (b"", b"", 11, ()), (b"kk", b"vv" * 500, 9, ())],
    "no keys": [(None, b"v%d" % number, number, ()) for number in range(20)],
    "nulls": [(None, None, 1, ()), (b"k", None, 2, ()), (None, b"v", 3, ())],
    "headers": [(b"k", b"v", 1, (("a", b"1"), ("a", None))), (None, b"w", 2, ())],
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_what_goes_in_comes_out(
    case: list[tuple[bytes | None, bytes | None, int, Headers]], codec: Codec
) -> None:
    records = [
        Record(index, timestamp_ms, key, value, headers)
        for index, (key, value, timestamp_ms, headers) in enumerate(case)
    ]
    encoded = encode_records(batch_of(*case), codec)
    assert decode_all(encoded) == records
    assert encoded == encode_batch(records, codec=codec)


def test_a_timestamp_that_does_not_fit_is_a_typed_error() -> None:
    with pytest.raises(InvalidRecord, match="t-0"):
        encode_records(batch_of((None, b"v", 1 << 70, ())), Codec.NONE)
