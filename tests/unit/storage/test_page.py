"""docs/storage_format.md shows bytes that our own encoders make, and names what we write."""

import re
from pathlib import Path

from quorumlog.records import Record
from quorumlog.records.batch import PREFIX_SIZE, check_crc, parse_header, stamp
from quorumlog.records.codec import decode_batch, encode_batch
from quorumlog.storage import layout
from quorumlog.storage.checkpoints import decode_offsets
from quorumlog.storage.index import SegmentIndex

PAGE = (Path(__file__).parents[3] / "docs" / "storage_format.md").read_text()
BYTE_ROW = re.compile(r"^\| (\d+) \| `([0-9a-f ]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
RECORDS = [
    Record(0, 1_735_689_600_000, b"UA", b"ORD", (("trace", b"7"),)),
    Record(0, 1_735_689_600_250, None, b"LAX"),
]


def shown_batch() -> bytes:
    """The batch of the page, from its table."""
    return bytes.fromhex("".join(row[1] for row in BYTE_ROW.findall(PAGE)))


def test_the_batch_of_the_page_is_what_the_encoder_makes() -> None:
    built = encode_batch(RECORDS)
    prefix = stamp(parse_header(built), base_offset=42, leader_epoch=3)
    assert shown_batch().hex(" ") == (prefix + built[PREFIX_SIZE:]).hex(" ")


def test_the_batch_of_the_page_holds_the_two_records_of_the_page() -> None:
    batch = shown_batch()
    check_crc(batch, 0, parse_header(batch))
    found = [(record.offset, record.key, record.value) for record in decode_batch(batch)]
    assert found == [(42, b"UA", b"ORD"), (43, None, b"LAX")]


def test_every_field_of_the_page_is_at_its_position() -> None:
    position = 0
    for at, content, field, _ in BYTE_ROW.findall(PAGE):
        assert int(at) == position, f"{field} is at {position}"
        position += len(bytes.fromhex(content))
    assert position == 92


def test_the_index_entries_of_the_page_are_what_the_index_encodes() -> None:
    index = SegmentIndex(42, 4096)
    index.note(position=0, size=4198, last_offset=101, max_timestamp=1_735_689_600_250)
    index.note(position=4198, size=92, last_offset=103, max_timestamp=1_735_689_600_500)
    assert re.search(rf"^\.index +{index.encode_offsets().hex(' ')} ", PAGE, re.MULTILINE)
    assert re.search(rf"^\.timeindex +{index.encode_times().hex(' ')} ", PAGE, re.MULTILINE)


def test_the_checkpoint_of_the_page_parses() -> None:
    block = PAGE.partition("## Checkpoints")[2].split("```")[1].removeprefix("text\n")
    content = "".join(f"{line.split('  ')[0]}\n" for line in block.splitlines())
    assert decode_offsets(content.encode()) == {"flights-0": 8128, "flights-1": 496}


def test_the_page_names_every_file() -> None:
    listed = PAGE.partition("## Files")[2].split("```")[1]
    names = (
        layout.META_PROPERTIES,
        layout.LOCK,
        layout.CLEAN_MARKER,
        layout.RECOVERY_POINTS,
        layout.LOG_START_OFFSETS,
        layout.LEADER_EPOCHS,
        layout.PARTITION_METADATA,
        layout.segment_file(0, layout.LOG_SUFFIX),
        layout.segment_file(0, layout.INDEX_SUFFIX),
        layout.segment_file(0, layout.TIME_INDEX_SUFFIX),
        layout.log_name("flights", 0),
        layout.deleted_folder("flights-1", "3f9c0a5b7d21e648"),
    )
    missing = [name for name in names if name not in listed]
    assert not missing
