"""The batch encoder: columns encode to the same record batch as records."""

import pytest

from quorumlog.clients.producer.batch_encoder import encode_records, split
from quorumlog.clients.producer.batches import Batch
from quorumlog.clients.producer.partition_queue import PartitionQueue
from quorumlog.errors import InvalidRecord
from quorumlog.records import Codec, Record, decode_all, encode_batch
from quorumlog.records.record import Headers


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


CASES: dict[str, list[tuple[bytes | None, bytes | None, int, Headers]]] = {
    "plain": [(b"k", b"v", 10, ()), (b"", b"", 11, ()), (b"kk", b"vv" * 500, 9, ())],
    "no keys": [(None, b"v%d" % number, number, ()) for number in range(20)],
    "nulls": [(None, None, 1, ()), (b"k", None, 2, ()), (None, b"v", 3, ())],
    "headers": [(b"k", b"v", 1, (("a", b"1"), ("a", None))), (None, b"w", 2, ())],
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_encoded_records_round_trip(
    case: list[tuple[bytes | None, bytes | None, int, Headers]], codec: Codec
) -> None:
    records = [
        Record(index, timestamp_ms, key, value, headers)
        for index, (key, value, timestamp_ms, headers) in enumerate(case)
    ]
    encoded = encode_records(batch_of(*case), codec)
    assert decode_all(encoded) == records
    assert encoded == encode_batch(records, codec=codec)


def test_unencodable_record_is_a_typed_error() -> None:
    with pytest.raises(InvalidRecord, match="t-0"):
        encode_records(batch_of((None, b"v", 1, (("\ud800", b"1"),))), Codec.NONE)


@pytest.mark.parametrize("is_encoded", [False, True])
def test_the_halves_of_a_batch_have_its_records_in_order(is_encoded: bool) -> None:
    batch = batch_of(*(CASES["headers"] + CASES["nulls"] + CASES["plain"]))
    records = decode_all(encode_records(batch, Codec.NONE))
    if is_encoded:
        batch.become_encoded(encode_records(batch, Codec.ZSTD))
    (_, first), (middle, second) = split(batch)
    found = [decode_all(encode_records(part, Codec.NONE)) for part in (first, second)]
    assert middle == len(found[0]) == 4
    assert [(r.key, r.value, r.timestamp_ms, r.headers) for part in found for r in part] == [
        (r.key, r.value, r.timestamp_ms, r.headers) for r in records
    ]
