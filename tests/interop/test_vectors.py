"""Hand-written bytes from the format's description, and the expected results of our readers.

The batches are in vectors/, one field per line. Their compressed blocks have stored bytes, which
every codec's format permits, so that no compressor was involved. The tests need no Kafka.
"""

from pathlib import Path

import pytest

from quorumlog.errors import CorruptionError
from quorumlog.ids import ClusterId, DirectoryId, NodeId, TopicId
from quorumlog.records import (
    Codec,
    Record,
    ValidationMode,
    check_crc,
    decode_all,
    decode_batch,
    encode_batch,
    parse_header,
    validate_batch,
)
from quorumlog.records.arrow import decode_arrow
from quorumlog.records.control import Marker, MarkerType, encode_marker, parse_marker
from quorumlog.storage.checkpoints import (
    DirectoryMeta,
    decode_epochs,
    decode_meta,
    decode_offsets,
    decode_partition_metadata,
)
from quorumlog.storage.index import SegmentIndex, decode_index
from quorumlog.storage.producer_snapshot import decode_snapshot
from quorumlog.storage.producer_state import StoredBatch
from quorumlog.storage.transaction_index import AbortedTransaction, decode_aborted

VECTORS = Path(__file__).parent / "vectors"
T = 1_700_000_000_000
TWO = [
    Record(42, T, b"k", b"one"),
    Record(43, T + 5, None, None, (("h", None), ("", b""))),
]
CODECS = {
    "plain": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy_framed": Codec.SNAPPY,
    "snappy_raw": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
ID = DirectoryId(bytes(range(16)))

both_codecs = pytest.mark.usefixtures("kernel")


def vector(name: str) -> bytes:
    lines = (VECTORS / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def hexed(text: str) -> bytes:
    """Return the bytes of a hex file with a remark on each line."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


# --- batches -----------------------------------------------------------------------------------


@both_codecs
@pytest.mark.parametrize("name", CODECS)
def test_a_batch_of_every_codec_is_accepted_and_read(name: str) -> None:
    batch = vector(name)
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (42, 43, 3)
    assert (header.codec, header.max_timestamp) == (CODECS[name], T + 5)
    for mode in ValidationMode:
        validate_batch(batch, 0, header, mode=mode, max_bytes=len(batch))
    assert decode_batch(batch) == TWO
    table = decode_arrow(batch, columns=("offset", "key", "value", "headers"))
    assert table.to_pylist()[1] == {
        "offset": 43,
        "key": None,
        "value": None,
        "headers": [{"key": "h", "value": None}, {"key": "", "value": b""}],
    }


@both_codecs
@pytest.mark.parametrize("name", ["idempotent", "transactional"])
def test_a_producers_numbers_are_read_and_written_as_described(name: str) -> None:
    batch, is_transactional = vector(name), name == "transactional"
    header = parse_header(batch)
    validate_batch(batch, 0, header, mode=ValidationMode.FULL, max_bytes=len(batch))
    assert (header.producer_id, header.producer_epoch) == (0x1234, 2)
    assert (header.base_sequence, header.is_transactional) == (2**31 - 1, is_transactional)
    assert decode_batch(batch) == TWO
    ours = encode_batch(
        TWO,
        base_offset=42,
        leader_epoch=3,
        producer_id=0x1234,
        producer_epoch=2,
        base_sequence=2**31 - 1,
        is_transactional=is_transactional,
    )
    assert ours == batch


@both_codecs
def test_an_uncompressed_batch_is_written_as_described() -> None:
    assert encode_batch(TWO, base_offset=42, leader_epoch=3) == vector("plain")


@both_codecs
def test_log_append_time_applies_to_every_record() -> None:
    records = decode_batch(vector("log_append_time"))
    assert [record.timestamp_ms for record in records] == [T + 1000, T + 1000]
    table = decode_arrow(vector("log_append_time"), columns=("timestamp_type",))
    assert table.to_pydict() == {"timestamp_type": [1, 1]}


@both_codecs
@pytest.mark.parametrize("kind", list(MarkerType))
def test_a_marker_ends_a_transaction_and_is_no_record(kind: MarkerType) -> None:
    batch = vector(f"{kind.name.lower()}_marker")
    header = parse_header(batch)
    check_crc(batch, 0, header)
    assert parse_marker(batch, 0, header) == Marker(kind, 9)
    assert decode_all(batch) == []
    ours = encode_marker(
        producer_id=0x1234,
        producer_epoch=2,
        kind=kind,
        coordinator_epoch=9,
        timestamp_ms=T,
        leader_epoch=3,
        base_offset=42,
    )
    assert ours == batch


@both_codecs
def test_records_keep_their_offsets_after_compaction() -> None:
    batch = vector("compacted")
    header = parse_header(batch)
    assert header.has_delete_horizon
    assert header.next_offset == 52
    assert decode_all(batch) == [Record(43, T, b"k", b"one"), Record(50, T + 5, b"l", None)]


@both_codecs
def test_a_batch_without_records_keeps_its_producers_numbers() -> None:
    batch = vector("emptied")
    header = parse_header(batch)
    check_crc(batch, 0, header)
    assert (header.record_count, header.next_offset, header.base_sequence) == (0, 52, 5)
    assert decode_all(batch) == []
    assert decode_arrow(batch).num_rows == 0


# --- indexes -----------------------------------------------------------------------------------

OFFSETS = hexed("""
    00 00 00 09  00 00 10 10   # offset 1009, position 4112
    00 00 00 13  00 00 20 20   # offset 1019, position 8224
""")
TIMES = hexed("""
    00 00 01 8b cf e5 68 00  00 00 00 09   # 1700000000000, offset 1009
    00 00 01 8b cf e5 68 05  00 00 00 13   # 5 ms later, offset 1019
""")


def index(offsets: bytes, times: bytes) -> SegmentIndex:
    return decode_index(offsets, times, base_offset=1000, log_size=9000, interval_bytes=4096)


def test_index_entries_are_relative_to_their_segment() -> None:
    found = index(OFFSETS, TIMES)
    assert found.entries() == [(1009, 4112), (1019, 8224)]
    assert found.time_entries() == [(T, 1009), (T + 5, 1019)]


def test_zeros_after_kafkas_entries_are_no_entries() -> None:
    """The file of a segment in use has its maximum size. Such an index is rebuilt."""
    zeros = bytes(1200)
    for offsets, times in ((OFFSETS + zeros, TIMES), (OFFSETS, TIMES + zeros), (zeros, zeros)):
        with pytest.raises(CorruptionError):
            index(offsets, times)


# --- other files of a log ----------------------------------------------------------------------


def test_a_producer_snapshot_of_kafkas_gives_the_last_batch() -> None:
    content = hexed("""
        00 01                      # version
        09 bc a2 7b                # CRC-32C of what follows
        00 00 00 01                # one producer
        00 00 00 00 00 00 12 34    # producer id 4660
        00 02                      # epoch
        00 00 00 0b                # last sequence 11
        00 00 00 00 00 00 00 2f    # last offset 47
        00 00 00 05                # the batch ends 5 behind its first
        00 00 01 8b cf e5 68 00    # timestamp
        00 00 00 09                # coordinator epoch
        ff ff ff ff ff ff ff ff    # no open transaction
    """)
    [(producer_id, entry)] = decode_snapshot(content, end_offset=48).entries
    assert (producer_id, entry.epoch, entry.transaction_start) == (0x1234, 2, -1)
    assert entry.batches == (StoredBatch(6, 11, 42, 47, T),)
    with pytest.raises(CorruptionError, match="CRC"):
        decode_snapshot(content[:20] + b"\x01" + content[21:], end_offset=48)


def test_an_entry_of_a_transaction_index_is_34_bytes() -> None:
    content = hexed("""
        00 00                      # version
        00 00 00 00 00 00 12 34    # producer id
        00 00 00 00 00 00 00 2a    # first offset 42
        00 00 00 00 00 00 00 30    # last offset 48: the marker
        00 00 00 00 00 00 00 2b    # last stable offset 43
    """)
    assert len(content) == 34
    assert decode_aborted(content) == [AbortedTransaction(0x1234, 42, 48, 43)]


def test_checkpoints_are_text() -> None:
    found = decode_offsets(b"0\n3\nflights 0 8128\n__consumer_offsets 49 0\na-b.c 1 7\n")
    assert found == {"flights-0": 8128, "__consumer_offsets-49": 0, "a-b.c-1": 7}
    assert decode_epochs(b"0\n2\n0 0\n4 17\n") == [(0, 0), (4, 17)]


def test_an_empty_checkpoint_of_kafka_has_no_entries() -> None:
    """Kafka creates the files of a new folder at once, without content."""
    assert decode_offsets(b"") == {}
    with pytest.raises(CorruptionError):
        decode_offsets(b"0\n")


def test_properties_as_java_writes_them() -> None:
    content = b"""#
#Sat Nov 21 17:16:49 UTC 2026
node.id=1
directory.id=AAECAwQFBgcICQoLDA0ODw
version=1
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
"""
    assert decode_meta(content) == DirectoryMeta(
        cluster_id=ClusterId("MkU3OEVBNTcwNTJENDM2Qg"), node_id=NodeId(1), directory_id=ID
    )
    meta = decode_partition_metadata(b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert (meta.topic_id, meta.unsynced_bytes_max) == (TopicId(ID), None)
