"""docs/storage_format.md shows bytes that the encoders produce, and names every file."""

import re
from pathlib import Path

import pytest

from quorumlog.ids import ClusterId, DirectoryId, Epoch, NodeId, TopicId
from quorumlog.raftlog import QUORUM_STATE_NAME, HardState, Voter
from quorumlog.raftlog.hard_state import encode_hard_state
from quorumlog.records import Record
from quorumlog.records.batch import PREFIX_SIZE, check_crc, parse_header, stamp
from quorumlog.records.codec import decode_batch, encode_batch
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.records.key_map import KeyMap
from quorumlog.storage import layout
from quorumlog.storage.checkpoints import (
    DirectoryMeta,
    encode_epochs,
    encode_meta,
    encode_offsets,
    encode_partition_metadata,
)
from quorumlog.storage.compaction import CompactionRules, Compactor, KeyMapBuilder
from quorumlog.storage.index import SegmentIndex
from quorumlog.storage.inspect.log_check import strict_marker, strict_meta, strict_partition
from quorumlog.storage.producer_snapshot import ProducerSnapshot, encode_snapshot
from quorumlog.storage.producer_state import ProducerEntry, StoredBatch
from quorumlog.storage.transaction_index import AbortedTransaction, encode_aborted

PAGE = (Path(__file__).parents[3] / "docs" / "storage_format.md").read_text()
BYTE_ROW = re.compile(r"^\| (\d+) \| `([0-9a-f ]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
BATCH, MARKER = "### One batch, byte by byte", "### A marker, byte by byte"
HORIZON, ABORTED = "### A delete horizon, byte by byte", "## Aborted transactions"
SNAPSHOT = "## Snapshots of producers"
TABLES = {BATCH: 92, MARKER: 78, HORIZON: 73, ABORTED: 34, SNAPSHOT: 133}
TOPIC = TopicId(bytes(range(16)))
RECORDS = [
    Record(0, 1_735_689_600_000, b"UA", b"ORD", (("trace", b"7"),)),
    Record(0, 1_735_689_600_250, None, b"LAX"),
]


def section(heading: str) -> str:
    """Return the text below a heading, up to the next heading."""
    text = PAGE.partition(f"{heading}\n")[2]
    return re.split(r"^##", text, maxsplit=1, flags=re.MULTILINE)[0]


def shown(heading: str) -> bytes:
    """Return the bytes of the table below a heading."""
    return bytes.fromhex("".join(row[1] for row in BYTE_ROW.findall(section(heading))))


def blocks(heading: str) -> list[str]:
    """Return the text blocks below a heading."""
    return re.findall(r"^```text\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)


def shown_batch() -> bytes:
    """Return the batch of the page's table."""
    return shown(BATCH)


def test_the_batch_of_the_page_is_what_the_encoder_makes() -> None:
    built = encode_batch(RECORDS)
    prefix = stamp(parse_header(built), base_offset=42, leader_epoch=3)
    assert shown_batch().hex(" ") == (prefix + built[PREFIX_SIZE:]).hex(" ")


def test_the_batch_of_the_page_holds_the_two_records_of_the_page() -> None:
    batch = shown_batch()
    check_crc(batch, 0, parse_header(batch))
    found = [(record.offset, record.key, record.value) for record in decode_batch(batch)]
    assert found == [(42, b"UA", b"ORD"), (43, None, b"LAX")]


@pytest.mark.parametrize("heading", TABLES)
def test_every_field_of_the_page_is_at_its_position(heading: str) -> None:
    position = 0
    for at, content, field, _ in BYTE_ROW.findall(section(heading)):
        assert int(at) == position, f"{field} is at {position}"
        position += len(bytes.fromhex(content))
    assert position == TABLES[heading]


def test_the_marker_of_the_page_is_what_the_encoder_makes() -> None:
    made = encode_marker(
        producer_id=9,
        producer_epoch=0,
        kind=MarkerType.ABORT,
        coordinator_epoch=5,
        timestamp_ms=1_735_689_601_000,
        leader_epoch=3,
        base_offset=48,
    )
    assert shown(MARKER).hex(" ") == made.hex(" ")


def test_the_delete_horizon_of_the_page_is_what_a_round_writes() -> None:
    tombstone = Record(50, 1_735_689_600_000, b"UA", None)
    batch = encode_batch([tombstone], base_offset=50, leader_epoch=3, keep_offsets=True)
    rules = CompactionRules(
        first_dirty_offset=0,
        end_offset=60,
        wall_ms=1_735_689_601_000,
        delete_retention_ms=86_400_000,
        inflate_bytes_max=1 << 20,
        live_producers={},
    )
    keys = KeyMap(16, bytes(16))
    KeyMapBuilder(rules, keys, base_offset=0).feed(batch)
    round_ = Compactor(rules, keys, base_offset=0, mapped_end=60, kept_empty=())
    round_.feed(batch)
    assert shown(HORIZON).hex(" ") == bytes(round_.take()[0]).hex(" ")
    assert decode_batch(shown(HORIZON)) == [tombstone]


def test_the_aborted_transaction_of_the_page_is_what_the_index_encodes() -> None:
    entry = AbortedTransaction(9, 46, 48, 49)
    assert shown(ABORTED).hex(" ") == encode_aborted([entry]).hex(" ")


def test_the_snapshot_of_the_page_is_what_the_encoder_makes() -> None:
    batches = (
        StoredBatch(0, 1, 44, 45, 1_735_689_600_000),
        StoredBatch(2, 2, 47, 47, 1_735_689_600_500),
    )
    snapshot = ProducerSnapshot(
        end_offset=49,
        entries=((9, ProducerEntry(0, 5, 3, -1, 1_000, batches)),),
        unreplicated=((46, 48),),
        age_ms=1_500,
    )
    assert shown(SNAPSHOT).hex(" ") == encode_snapshot(snapshot).hex(" ")


def test_the_index_entries_of_the_page_are_what_the_index_encodes() -> None:
    index = SegmentIndex(42, 4096)
    index.note(position=0, size=4198, last_offset=101, max_timestamp=1_735_689_600_250)
    index.note(position=4198, size=92, last_offset=103, max_timestamp=1_735_689_600_500)
    assert re.search(rf"^\.index +{index.encode_offsets().hex(' ')} ", PAGE, re.MULTILINE)
    assert re.search(rf"^\.timeindex +{index.encode_times().hex(' ')} ", PAGE, re.MULTILINE)


def test_the_checkpoints_of_the_page_are_what_the_encoders_make() -> None:
    offsets, epochs = blocks("## Checkpoints")
    content = "".join(f"{line.split('  ')[0]}\n" for line in offsets.splitlines())
    assert content.encode() == encode_offsets({"flights-0": 8128, "flights-1": 496})
    assert epochs.encode() == encode_epochs([(3, 42), (4, 104)])
    first = encode_offsets({"flights-0": 8128})
    assert first.replace(b"\n1\n", b"\n2\n").hex(" ") in section("## Checkpoints")


def test_the_small_files_of_the_page_are_what_the_encoders_make() -> None:
    partition, meta, one_line = blocks("## The other small files")
    assert partition.encode() == encode_partition_metadata(TOPIC, 2_097_176, 104)
    directory = DirectoryMeta(
        cluster_id=ClusterId("Y2NjY2NjY2NjY2NjY2NjYw"),
        node_id=NodeId(1),
        directory_id=DirectoryId(bytes(range(16))),
    )
    assert meta.encode() == encode_meta(directory)
    quorum_state, marker = one_line.splitlines()
    vote = Voter(NodeId(1), DirectoryId(bytes(range(16))))
    assert quorum_state.encode() == encode_hard_state(HardState(Epoch(4), vote))
    strict_marker(marker.encode(), "marker")
    strict_meta(meta.encode(), "meta.properties")
    strict_partition(partition.encode(), "partition.metadata")


def test_the_swap_of_the_page_has_the_names_that_a_swap_gives() -> None:
    (names,) = blocks("## Unfinished work")
    assert names.splitlines() == [
        layout.swap_file(0, 104, layout.LOG_SUFFIX),
        layout.swap_file(0, 104, layout.INDEX_SUFFIX),
    ]
    suffixes = (
        layout.TEMPORARY_SUFFIX,
        layout.DELETED_SUFFIX,
        layout.CLEANED_SUFFIX,
        layout.SWAP_SUFFIX,
        layout.DELETED_FOLDER_SUFFIX,
    )
    assert not [suffix for suffix in suffixes if suffix not in section("## Unfinished work")]


def test_the_page_names_every_file() -> None:
    listed = PAGE.partition("## Files")[2].split("```")[1]
    names = (
        layout.META_PROPERTIES,
        layout.LOCK,
        layout.CLEAN_MARKER,
        layout.RECOVERY_POINTS,
        layout.LOG_START_OFFSETS,
        layout.HIGH_WATERMARKS,
        layout.CLEANER_OFFSETS,
        QUORUM_STATE_NAME,
        layout.LEADER_EPOCHS,
        layout.PARTITION_METADATA,
        layout.segment_file(0, layout.LOG_SUFFIX),
        layout.segment_file(0, layout.INDEX_SUFFIX),
        layout.segment_file(0, layout.TIME_INDEX_SUFFIX),
        layout.segment_file(0, layout.TXN_INDEX_SUFFIX),
        layout.segment_file(42, layout.SNAPSHOT_SUFFIX),
        layout.log_name("flights", 0),
        layout.deleted_folder("flights-1", "3f9c0a5b7d21e648"),
    )
    missing = [name for name in names if name not in listed]
    assert not missing
