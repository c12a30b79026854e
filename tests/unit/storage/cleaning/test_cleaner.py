"""A compaction round runs in slices, obeys its limits, merges segments and removes its files."""

import random
from typing import Any

import pytest
from crc32c import crc32c

from quorumlog.errors import CorruptionError
from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec, compress
from quorumlog.records.record import Record
from quorumlog.storage import cleaner
from quorumlog.storage.compaction import seal
from quorumlog.storage.segment import build_index
from quorumlog.storage.small_files import read_file
from quorumlog.storage.time_lookup import TimedSegment, TimeLookup

from .compacted_log import Shelf, pairs

KEYS = [b"key-%d" % number for number in range(40)]


def fill(shelf: Shelf, *, segments: int = 4, batches: int = 10) -> None:
    """Write 40 keys repeatedly, ten to a batch."""
    for segment in range(segments):
        for at in range(batches):
            chosen = [KEYS[(7 * at + segment + 3 * n) % len(KEYS)] for n in range(10)]
            shelf.append(*pairs(*chosen), timestamp=1_000 * segment + at)
        shelf.roll()


def last_offsets(shelf: Shelf) -> set[int]:
    return set({record.key: record.offset for record in shelf.records()}.values())


def test_retained_records_of_many_segments_are_merged_into_one(shelf: Shelf) -> None:
    fill(shelf)
    expected = last_offsets(shelf)
    before = [segment.base_offset for segment in shelf.segments]
    cleaning = shelf.clean()
    assert set(shelf.offsets()) == expected
    assert [s.base_offset for s in cleaning.groups[0].sources] == before
    assert [(s.base_offset, s.end_offset) for s in shelf.segments] == [(0, 400)]
    assert cleaning.stats.keys == len(KEYS)
    assert cleaning.stats.records_read == 400
    assert cleaning.stats.records_kept == len(KEYS)


@pytest.mark.parametrize(
    "bound",
    [{"segment_bytes": 4_000}, {"index_bytes_max": 450, "index_interval_bytes": 0}],
    ids=["segment.bytes", "segment.index.bytes"],
)
def test_merged_segment_stays_within_segment_bytes(shelf: Shelf, bound: dict[str, Any]) -> None:
    for at in range(40):
        shelf.append(*pairs(b"%d" % at, value=b"v" * 300), (None, b"x"))
        if at % 4 == 3:
            shelf.roll()
    cleaning = shelf.clean(**bound)
    assert 1 < len(cleaning.groups) < 10
    for group in cleaning.groups:
        assert group.size <= bound.get("segment_bytes", 10**6)
        assert group.index.size <= bound.get("index_bytes_max", 10**6)


def test_offsets_of_a_merged_segment_fit_its_index(shelf: Shelf) -> None:
    shelf.append(*pairs(b"a", b"a"))
    shelf.roll()
    shelf.next_offset = shelf.active_base = 2**31 - 1
    shelf.append(*pairs(b"b", b"b"))
    shelf.roll()
    cleaning = shelf.clean()
    assert [group.base_offset for group in cleaning.groups] == [0, 2**31 - 1]


@pytest.mark.parametrize("budget", [1, 500, 10**6])
def test_compaction_result_is_independent_of_the_slice_size(
    shelf: Shelf, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shelf, segments=2)
    whole = Shelf(shelf.files, shelf.folder + "/whole")
    shelf.files.make_folder(whole.folder)
    fill(whole, segments=2)
    whole.clean()
    monkeypatch.setattr(cleaner, "READ_SIZE", 400)
    monkeypatch.setattr(cleaner, "READ_SIZE_MIN", 100)
    shelf.clean(budget_bytes=budget)
    assert shelf.content() == whole.content()


def test_a_step_stays_near_its_budget(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner, "READ_SIZE_MIN", 100)
    fill(shelf)
    cleaning = shelf.round()
    largest = max(header.size for header in shelf.headers())
    total = 0
    while not cleaning.finished:
        done = cleaning.step(shelf.files, budget_bytes=1_000)
        assert done <= 2 * (1_000 + largest) + 1_000  # read and written, and the indexes of a group
        total += done
    stats = cleaning.stats
    assert total >= stats.bytes_read + stats.bytes_written
    cleaning.discard(shelf.files)


def test_full_offset_map_ends_the_compaction_range(shelf: Shelf) -> None:
    fill(shelf, segments=2)
    expected = last_offsets(shelf)
    rounds = 0
    while shelf.first_dirty < 200:
        before = shelf.first_dirty
        cleaning = shelf.clean(map_bytes=24 * 20)
        assert cleaning.stats.keys <= 18
        assert before < shelf.first_dirty
        rounds += 1
    assert rounds > 5
    assert set(shelf.offsets()) == expected


def test_offset_map_slots_fit_the_configured_bytes(shelf: Shelf) -> None:
    fill(shelf)
    assert shelf.round(map_bytes=24 * 100).plan.slots == 100
    assert shelf.round(map_bytes=2**30).plan.slots == 4096, "the map of a small range is small"


def test_segment_without_superseded_records_is_not_rewritten(shelf: Shelf) -> None:
    shelf.append(*pairs(*KEYS))
    shelf.roll()
    shelf.append(*pairs(b"x", b"x", value=b"v" * 300))
    shelf.roll()
    names = shelf.files.names(shelf.folder)
    cleaning = shelf.round(segment_bytes=900)
    while not cleaning.finished:
        cleaning.step(shelf.files, budget_bytes=10**6)
    assert [group.base_offset for group in cleaning.groups] == [40]
    made = set(shelf.files.names(shelf.folder)) - set(names)
    assert {name[:20] for name in made} == {f"{40:020d}"}


def test_batch_that_would_exceed_its_segment_is_not_rewritten(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer compressed it better than this node does. An error would end every round."""
    drawn = random.Random(1)
    values = [b"%d" % drawn.randrange(10**9) * drawn.randrange(1, 9) for _ in range(300)]
    records = [Record(0, 5_000, b"key-%d" % at, value) for at, value in enumerate(values)]
    plain = encode_batch(records)
    header = parse_header(encode_batch(records, codec=Codec.ZSTD))
    packed = compress(Codec.ZSTD, plain[HEADER_SIZE:], level=22)
    assert len(packed) < header.size - HEADER_SIZE
    header = header._replace(attributes=int(Codec.NONE))
    best = bytearray(seal(header, packed))
    best[22] = Codec.ZSTD
    best[17:21] = crc32c(best[21:]).to_bytes(4, "big")
    shelf.put(bytes(best))
    shelf.append(*pairs(b"key-0"))
    shelf.roll()
    size = shelf.segments[0].size
    for module in (cleaner,):
        monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", size)
    before = shelf.content()
    shelf.clean()
    assert shelf.content() == before
    monkeypatch.undo()
    shelf.first_dirty = 0
    shelf.clean()
    assert len(shelf.records()) == 300, "a larger segment drops the superseded record"
    assert len(shelf.content()) > size


def test_indexes_of_a_cleaned_segment_match_its_log_file(shelf: Shelf) -> None:
    fill(shelf)
    cleaning = shelf.clean(index_interval_bytes=100)
    group = cleaning.groups[0]
    stem = f"{shelf.folder}/{0:020d}"
    file = shelf.files.open_readonly(f"{stem}.log")
    built = build_index(file, base_offset=0, end=file.size(), interval_bytes=100)
    file.close()
    built.seal()
    assert built.entries() == group.index.entries() != []
    assert built.time_entries() == group.index.time_entries() != []
    for suffix, content in (
        ("index", built.encode_offsets()),
        ("timeindex", built.encode_times()),
    ):
        assert read_file(shelf.files, f"{stem}.{suffix}") == content
    assert max(record.timestamp_ms for record in shelf.records()) == built.max_timestamp


def test_cancelled_compaction_leaves_no_files(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "READ_SIZE_MIN", 100)
    fill(shelf, segments=2)
    names, content = shelf.files.names(shelf.folder), shelf.content()
    steps = 0
    is_finished = False
    while not is_finished:
        steps += 1
        cleaning = shelf.round(segment_bytes=1_000)
        for _ in range(steps):
            cleaning.step(shelf.files, budget_bytes=1_500)
        is_finished = cleaning.finished
        cleaning.discard(shelf.files)
        assert shelf.files.names(shelf.folder) == names
        assert shelf.content() == content
        assert cleaning.step(shelf.files, budget_bytes=1) == 0, "the round ended"
    assert steps > 4


def test_files_of_an_earlier_compaction_are_overwritten(shelf: Shelf) -> None:
    fill(shelf, segments=2)
    interrupted = shelf.round()
    while not interrupted.finished:
        interrupted.step(shelf.files, budget_bytes=10**6)
    expected = last_offsets(shelf)
    shelf.clean()
    assert set(shelf.offsets()) == expected


def test_truncated_segment_file_is_corruption(shelf: Shelf) -> None:
    fill(shelf, segments=1)
    file = shelf.files.open(shelf.segments[0].path)
    file.truncate(shelf.segments[0].size - 5)
    file.close()
    with pytest.raises(CorruptionError):
        shelf.clean()


def test_a_segment_without_batches_is_merged_away(shelf: Shelf) -> None:
    shelf.append(*pairs(b"a"))
    shelf.roll()
    shelf.roll()
    shelf.append(*pairs(b"a"))
    shelf.roll()
    shelf.segments[1] = type(shelf.segments[1])(
        path=shelf.segments[1].path + "empty", base_offset=1, end_offset=1, size=0
    )
    shelf.files.open(shelf.segments[1].path, create=True).close()
    shelf.clean()
    assert shelf.offsets() == [1]


def test_timestamp_lookup_finds_the_largest_timestamp_of_an_emptied_batch(shelf: Shelf) -> None:
    """The header that stays for an active producer keeps the largest timestamp, as in Kafka."""
    shelf.append(*pairs(b"a", b"b"), timestamp=900, producer=4)
    shelf.append(*pairs(b"a"), timestamp=9_000, producer=5)
    shelf.append(*pairs(b"a", b"c"), timestamp=800)
    shelf.roll()
    cleaning = shelf.clean()
    assert [header.record_count for header in shelf.headers()] == [1, 0, 2]
    index = cleaning.groups[0].index
    assert index.max_timestamp == 9_000
    (segment,) = shelf.segments
    for known in (index.max_timestamp, None):
        lookup = TimeLookup(
            timestamp=None,
            start_offset=0,
            end_offset=5,
            interval_bytes=64,
            segments=(
                TimedSegment(
                    path=segment.path, base_offset=0, size=segment.size, max_timestamp=known
                ),
            ),
        )
        found = lookup.run(shelf.files)
        assert found is not None
        assert (found.offset, found.timestamp) == (1, 901)
