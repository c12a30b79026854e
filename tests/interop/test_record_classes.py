"""The codec and two public ones, in both directions: the same records, the same headers."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from quorumlog.records import (
    Codec,
    Record,
    ValidationMode,
    decode_all,
    decode_batch,
    encode_batch,
    encode_columns,
    parse_header,
    stamp,
    validate_batch,
    with_append_time,
    with_codec,
)
from quorumlog.records.arrow import COLUMNS, decode_arrow
from quorumlog.records.batch import PREFIX_SIZE
from quorumlog.records.codec import Envelope
from quorumlog.records.columns import BinaryColumn, RecordColumns

from .readers import PEERS, Peer

pytestmark = [pytest.mark.usefixtures("kernel"), pytest.mark.slow]

both_kernels = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
every_peer = pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)

YEAR_2100 = 4_102_444_800_000
blobs = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=60, max_size=70))
names = st.text(st.characters(codec="utf-8"), max_size=8)
headers = st.lists(st.tuples(names, blobs), max_size=3).map(tuple)
timestamps = st.one_of(st.integers(0, YEAR_2100), st.sampled_from([0, 63, 64, 8191, 8192]))
records = st.lists(
    st.builds(
        Record, offset=st.just(0), timestamp_ms=timestamps, key=blobs, value=blobs, headers=headers
    ),
    min_size=1,
    max_size=20,
)
codecs = st.sampled_from(list(Codec))
producers = st.one_of(
    st.just((-1, -1, -1)),
    st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
)
REPEATS = [Record(0, 1_000 + i, b"k", b"again and again " * 20, (("h", None),)) for i in range(300)]


def numbered(items: list[Record], base_offset: int) -> list[Record]:
    """Return the records with the offsets of a batch at `base_offset`."""
    return [
        Record(base_offset + index, item.timestamp_ms, item.key, item.value, item.headers)
        for index, item in enumerate(items)
    ]


def arrow_rows(buffer: bytes) -> list[Record]:
    """Return the records of the buffer, decoded by Arrow."""
    table = decode_arrow(buffer, columns=tuple(COLUMNS))
    table.validate(full=True)
    microseconds = table.column("timestamp").cast(pa.int64()).to_pylist()
    rows = table.drop_columns(["timestamp"]).to_pylist()
    return [
        Record(
            row["offset"],
            time // 1000,
            row["key"],
            row["value"],
            tuple((item["key"], item["value"]) for item in row["headers"] or ()),
        )
        for row, time in zip(rows, microseconds, strict=True)
    ]


# --- ours, read by them ------------------------------------------------------------------------


@pytest.mark.long
@every_peer
@given(records, codecs, st.integers(0, 2**40), producers, st.booleans())
@example(REPEATS, Codec.SNAPPY, 7, (4711, 3, 2**31 - 1), True)
@example(REPEATS, Codec.LZ4, 7, (-1, -1, -1), False)
@example(REPEATS, Codec.ZSTD, 0, (-1, -1, -1), False)
@example(REPEATS, Codec.GZIP, 0, (-1, -1, -1), False)
@both_kernels
def test_they_read_what_we_encode(
    peer: Peer,
    items: list[Record],
    codec: Codec,
    base_offset: int,
    producer: tuple[int, int, int],
    is_transactional: bool,
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    batch = encode_batch(
        items,
        base_offset=base_offset,
        codec=codec,
        leader_epoch=5,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    [seen] = peer.read(batch)
    assert seen.records == numbered(items, base_offset)
    assert (seen.base_offset, seen.next_offset) == (base_offset, base_offset + len(items))
    assert (seen.producer_id, seen.producer_epoch, seen.base_sequence) == producer
    assert (seen.codec, seen.is_transactional) == (codec, is_transactional)
    assert (seen.is_control, seen.log_append_time) == (False, False)


@every_peer
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=60), codecs)
@both_kernels
def test_they_read_the_batches_that_we_encode_from_columns(
    peer: Peer, values: list[bytes], codec: Codec
) -> None:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    column = BinaryColumn(
        length=len(values),
        offsets=b"".join(end.to_bytes(4, "little") for end in ends),
        data=b"".join(values),
    )
    envelope = Envelope(codec=codec, producer_id=9, producer_epoch=0, base_sequence=2**31 - 5)
    batches = encode_columns(
        RecordColumns(values=column, timestamp_ms=77), envelope=envelope, batch_bytes=200
    )
    seen = peer.read(b"".join(batches))
    assert [record for batch in seen for record in batch.records] == [
        Record(index, 77, None, value) for index, value in enumerate(values)
    ]
    sequences = [(2**31 - 5 + batch.base_offset) % 2**31 for batch in seen]
    assert [batch.base_sequence for batch in seen] == sequences, "they wrap to 0"


@pytest.mark.long
@every_peer
@given(records, codecs)
@both_kernels
def test_they_read_their_own_batches_with_log_append_time_and_another_codec(
    peer: Peer, items: list[Record], codec: Codec
) -> None:
    theirs = peer.build(items)
    timed = with_append_time(theirs, 0, parse_header(theirs), timestamp_ms=1_234_567)
    [seen] = peer.read(with_codec(timed, 0, parse_header(timed), codec=codec))
    assert seen.log_append_time
    assert seen.codec == codec
    expected = numbered(items, 0)
    for record in expected:
        record.timestamp_ms = 1_234_567
    assert seen.records == expected


@pytest.mark.long
@every_peer
@given(records, st.data())
@both_kernels
def test_they_read_the_gaps_that_compaction_leaves(
    peer: Peer, items: list[Record], data: st.DataObject
) -> None:
    offset = 100
    for record in items:
        offset += data.draw(st.integers(1, 50))
        record.offset = offset
    [seen] = peer.read(encode_batch(items, base_offset=90, keep_offsets=True))
    assert seen.records == items


@every_peer
@pytest.mark.parametrize("kind", [0, 1], ids=["abort", "commit"])
def test_they_recognise_a_control_batch(peer: Peer, kind: int) -> None:
    key = b"\x00\x00" + kind.to_bytes(2, "big")
    marker = Record(0, 5_000, key, b"\x00\x00\x00\x00\x00\x07")
    batch = encode_batch(
        [marker],
        base_offset=40,
        producer_id=3,
        producer_epoch=1,
        is_control=True,
        is_transactional=True,
    )
    [seen] = peer.read(batch)
    assert (seen.is_control, seen.is_transactional) == (True, True)
    assert (seen.producer_id, seen.producer_epoch, seen.base_sequence) == (3, 1, -1)
    assert seen.records == [Record(40, 5_000, key, marker.value)]
    assert decode_all(batch) == [], "no consumer returns it"


# --- theirs, read by us ------------------------------------------------------------------------


@pytest.mark.long
@every_peer
@given(records, codecs, producers, st.booleans(), st.integers(0, 2**40))
@example(REPEATS, Codec.SNAPPY, (4711, 3, 2**31 - 1), True, 7)
@example(REPEATS, Codec.LZ4, (-1, -1, -1), False, 7)
@example(REPEATS, Codec.ZSTD, (-1, -1, -1), False, 0)
@example(REPEATS, Codec.GZIP, (-1, -1, -1), False, 0)
@both_kernels
def test_we_accept_store_and_read_their_batches(
    peer: Peer,
    items: list[Record],
    codec: Codec,
    producer: tuple[int, int, int],
    is_transactional: bool,
    base_offset: int,
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    is_transactional = is_transactional and producer_id >= 0
    batch = peer.build(
        items,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    header = parse_header(batch)
    for mode in ValidationMode:
        validate_batch(batch, 0, header, mode=mode, max_bytes=len(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert header.is_transactional == is_transactional
    assert header.max_timestamp == max(item.timestamp_ms for item in items)
    stored = stamp(header, base_offset=base_offset, leader_epoch=3) + batch[PREFIX_SIZE:]
    assert decode_batch(stored) == numbered(items, base_offset)
    assert arrow_rows(stored) == numbered(items, base_offset)


@every_peer
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_large_batch_of_theirs_is_decompressed(peer: Peer, codec: Codec) -> None:
    """Several blocks of every framing: snappy's are 32 KiB, lz4's 64 KiB, zstd's 128 KiB."""
    items = [Record(0, i, b"%d" % i, b"%d," % i * 300) for i in range(400)]
    batch = peer.build(items, codec=codec)
    assert parse_header(batch).codec is codec
    assert decode_batch(batch) == numbered(items, 0)
    [seen] = peer.read(encode_batch(items, codec=codec))
    assert seen.records == numbered(items, 0)
