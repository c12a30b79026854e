"""The output of `dump_file` for each kind of file, damaged ones included."""

from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.errors import CorruptionError, InvalidRequest
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.record import Record
from quorumlog.storage.inspect.dump import dump_file
from quorumlog.storage.small_files import write_file

MakeBench = Callable[..., Any]
MakeBatch = Callable[..., bytes]


def test_a_segment_is_shown_batch_by_batch(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.append(batch(2, timestamp=50), epoch=3)
    b.append(batch(1, timestamp=60, codec=Codec.GZIP), epoch=3)
    rows = list(dump_file(b.place.files, f"{b.folder}/00000000000000000000.log"))
    assert [(r["base_offset"], r["last_offset"], r["count"], r["codec"]) for r in rows] == [
        (0, 1, 2, "none"),
        (2, 2, 1, "gzip"),
    ]
    assert rows[0]["leader_epoch"] == 3
    assert (rows[0]["base_timestamp"], rows[0]["max_timestamp"]) == (50, 51)
    assert rows[1]["position"] == rows[0]["size"]


def test_records_follow_their_batch_when_asked_for(bench: MakeBench) -> None:
    b = bench()
    record = Record(
        offset=0, timestamp_ms=7, key=None, value=b"caf\xc3\xa9 \xff", headers=(("h", b"x"),)
    )
    b.append(encode_batch([record]))
    rows = list(dump_file(b.place.files, f"{b.folder}/00000000000000000000.log", records=True))
    assert rows[1] == {
        "offset": 0,
        "timestamp": 7,
        "key": None,
        "value": "café \\xff",
        "headers": [["h", "x"]],
    }


def test_a_damaged_batch_is_a_row_with_an_error(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    for _ in range(3):
        b.append(batch(1))
    path = f"{b.folder}/00000000000000000000.log"
    file = b.place.files.open(path)
    file.write(70, [b"?"])  # the first batch's last byte
    file.truncate(71 * 3 - 1)
    file.close()
    first, second, torn = list(dump_file(b.place.files, path))
    assert "CRC-32C" in first["error"]
    assert "error" not in second
    assert (torn["position"], torn["bytes_left"]) == (142, 70)
    assert "error" in torn


def test_indexes_are_shown_with_absolute_offsets(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=300, index_interval_bytes=0)
    for timestamp in range(100, 108):
        b.append(batch(1, timestamp=timestamp))
    b.close()
    stem = f"{b.folder}/00000000000000000004"
    files = b.place.files
    assert list(dump_file(files, f"{stem}.index")) == [
        {"offset": 5, "position": 71},
        {"offset": 6, "position": 142},
        {"offset": 7, "position": 213},
    ]
    assert list(dump_file(files, f"{stem}.timeindex")) == [
        {"timestamp": 105, "offset": 5},
        {"timestamp": 106, "offset": 6},
        {"timestamp": 107, "offset": 7},
    ]
    write_file(files, f"{stem}.index", bytes(9))
    assert list(dump_file(files, f"{stem}.index"))[1] == {
        "position": 8,
        "error": "1 bytes are not a whole entry",
    }


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("leader-epoch-checkpoint", b"0\n1\n3 17\n", [{"leader_epoch": 3, "start_offset": 17}]),
        ("recovery-point-offset-checkpoint", b"0\n1\na 0 9\n", [{"log": "a-0", "offset": 9}]),
        ("meta.properties", b"node.id=1\n", [{"key": "node.id", "value": "1"}]),
        ("partition.metadata", b"version: 0\n", [{"key": "version", "value": "0"}]),
    ],
)
def test_small_files_are_shown_entry_by_entry(
    bench: MakeBench, name: str, content: bytes, rows: list[dict[str, Any]]
) -> None:
    b = bench()
    write_file(b.place.files, f"{b.place.folder}/{name}", content)
    assert list(dump_file(b.place.files, f"{b.place.folder}/{name}")) == rows


def test_file_of_another_kind_is_refused(bench: MakeBench) -> None:
    b = bench()
    with pytest.raises(InvalidRequest, match=r"notes\.txt is not a file of a log"):
        dump_file(b.place.files, "some/notes.txt")
    write_file(b.place.files, f"{b.place.folder}/leader-epoch-checkpoint", b"nonsense")
    with pytest.raises(CorruptionError):
        list(dump_file(b.place.files, f"{b.place.folder}/leader-epoch-checkpoint"))
