"""The sparse indexes: lookups, encoding, validation and cache."""

import pytest

from quorumlog.errors import CorruptionError
from quorumlog.storage.index import IndexCache, SegmentIndex, decode_index


def build(
    batches: list[tuple[int, int, int]], *, base: int = 100, interval: int = 0
) -> SegmentIndex:
    """Index batches of (size, last offset, largest timestamp), one after the other."""
    index = SegmentIndex(base, interval)
    position = 0
    for size, last_offset, timestamp in batches:
        index.note(position=position, size=size, last_offset=last_offset, max_timestamp=timestamp)
        position += size
    return index


def test_an_entry_comes_after_each_interval_and_never_for_the_first_batch() -> None:
    index = build([(60, 100, 1), (60, 101, 2), (60, 102, 3), (60, 103, 4)], interval=100)
    assert index.entries() == [(102, 120)]
    assert index.time_entries() == [(3, 102)]


def test_the_floor_is_at_or_before_the_batch_that_holds_an_offset() -> None:
    index = build([(70, 104, 1), (70, 109, 1), (70, 114, 1)])
    assert index.entries() == [(109, 70), (114, 140)]
    assert [index.floor(offset) for offset in (100, 104, 105, 109, 110, 114, 999)] == [
        0, 0, 0, 70, 70, 140, 140,
    ]  # fmt: skip
    assert index.floor(7) == 0
    assert [index.floor_position(position) for position in (0, 69, 70, 139, 140)] == [
        0, 0, 70, 70, 140,
    ]  # fmt: skip


def test_time_entries_ascend_even_when_timestamps_do_not() -> None:
    index = build([(70, 100, 5), (70, 101, 9), (70, 102, 2), (70, 103, 9), (70, 104, 12)])
    assert index.time_entries() == [(9, 101), (12, 104)]
    assert index.max_timestamp == 12
    assert [index.floor_time(timestamp) for timestamp in (1, 9, 10, 12, 13)] == [
        100, 100, 101, 101, 104,
    ]  # fmt: skip


def test_sealing_adds_the_largest_timestamp_once() -> None:
    index = build([(70, 100, 5), (70, 101, 9)], interval=10_000)
    assert index.time_entries() == []
    index.seal()
    index.seal()
    assert index.time_entries() == [(9, 101)]


def test_batches_without_timestamps_leave_the_time_index_empty() -> None:
    index = build([(70, 100, -1), (70, 101, -1), (70, 102, -1)])
    index.seal()
    assert index.time_entries() == []
    assert index.max_timestamp == -1


def test_the_files_are_big_endian_entries_of_8_and_12_bytes() -> None:
    index = build([(70, 100, 5), (70, 101, 1_700_000_000_000)])
    assert index.encode_offsets() == bytes.fromhex("00000001 00000046")
    assert index.encode_times() == bytes.fromhex("0000018bcfe56800 00000001")


def test_decoded_index_gives_the_same_answers() -> None:
    index = build([(70 + i, 100 + 3 * i, 50 + i % 7) for i in range(60)], interval=150)
    index.seal()
    size = sum(70 + i for i in range(60))
    again = decode_index(
        index.encode_offsets(),
        index.encode_times(),
        base_offset=100,
        log_size=size,
        interval_bytes=150,
    )
    assert again.entries() == index.entries()
    assert again.time_entries() == index.time_entries()
    assert again.max_timestamp == index.max_timestamp
    assert again.max_timestamp_offset == index.max_timestamp_offset


@pytest.mark.parametrize(
    ("offsets", "times", "complaint"),
    [
        ("00000001 00000046 00000001 00000090", "", "offsets do not ascend"),
        ("00000001 00000046 00000002 00000046", "", "positions do not ascend"),
        ("00000001 00000046 00000000 00000000", "", "do not ascend"),  # a preallocated tail
        ("00000001 000003e8", "", "outside"),
        ("00000001 000000", "", "whole entries"),
        ("", "0000000000000009 00000001 0000000000000009 00000002", "timestamps do not ascend"),
        ("", "0000000000000009 00000002 000000000000000a 00000001", "time offsets do not ascend"),
        ("", "0000000000000009 000000", "whole entries"),
        ("ffffffff 00000001", "", "outside"),
    ],
)
def test_an_inconsistent_file_is_refused(offsets: str, times: str, complaint: str) -> None:
    with pytest.raises(CorruptionError, match=complaint):
        decode_index(
            bytes.fromhex(offsets),
            bytes.fromhex(times),
            base_offset=100,
            log_size=1000,
            interval_bytes=10,
        )


@pytest.mark.parametrize("kept", range(1, 12))
def test_truncated_index_rebuilds_the_same_entries(kept: int) -> None:
    batches = [(80, 100 + i, (7 * i) % 10) for i in range(12)]
    whole, expected = build(batches, interval=170), build(batches[:kept], interval=170)
    cut_offset = 100 + kept
    floor = whole.truncation_floor(cut_offset)
    whole.truncate(floor)
    for i in range(floor // 80, kept):
        size, last_offset, timestamp = batches[i]
        whole.note(position=80 * i, size=size, last_offset=last_offset, max_timestamp=timestamp)
    for index in (whole, expected):  # the next batches get the same entries
        index.note(position=80 * kept, size=80, last_offset=cut_offset, max_timestamp=20)
        index.note(position=80 * kept + 80, size=80, last_offset=cut_offset + 1, max_timestamp=1)
        index.seal()
    assert whole.entries() == expected.entries()
    assert whole.time_entries() == expected.time_entries()


def test_the_cache_drops_the_least_recently_used_first() -> None:
    one = build([(70, 100 + i, -1) for i in range(11)])  # 10 entries of 8 bytes
    cache = IndexCache(200)
    cache.put("a", one)
    cache.put("b", one)
    assert cache.get("a") is one
    cache.put("c", one)
    assert cache.get("b") is None
    assert cache.get("a") is one
    cache.drop("a")
    cache.drop("a")
    assert cache.get("a") is None
    assert cache.get("c") is one


def test_the_cache_keeps_an_index_larger_than_its_bound() -> None:
    cache = IndexCache(1)
    large = build([(70, 100 + i, -1) for i in range(11)])
    cache.put("a", large)
    assert cache.get("a") is large
