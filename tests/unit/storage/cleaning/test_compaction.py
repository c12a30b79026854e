"""The records and headers that compaction keeps, and the delete horizons that it sets."""

import pytest

from quorumlog.errors import CorruptionError
from quorumlog.records.batch import iterate_batches, parse_header, stamp
from quorumlog.records.codec import decode_batch, encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.control import MarkerType
from quorumlog.records.record import Record
from quorumlog.storage.compaction import seal
from quorumlog.storage.producer_state import LastRecord

from .compacted_log import Shelf, pairs


def test_latest_record_of_each_key_keeps_its_offset(shelf: Shelf) -> None:
    shelf.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    shelf.append((b"c", b"1"), (b"b", b"2"))
    shelf.roll()
    shelf.append((b"a", b"3"))
    shelf.clean()
    assert shelf.offsets() == [2, 3, 4, 5], "the active segment is not cleaned"
    assert shelf.first_dirty == 5


def test_rewritten_batch_keeps_its_header_fields(shelf: Shelf) -> None:
    shelf.append(*pairs(b"a", b"b", b"c"), timestamp=700, step=-100, producer=9, leader_epoch=4)
    shelf.append(*pairs(b"a", b"c"), leader_epoch=4)
    shelf.roll()
    before = shelf.headers()[0]
    shelf.clean()
    after = shelf.headers()[0]
    expected = before._replace(
        batch_length=after.batch_length, crc=after.crc, record_count=1, max_timestamp=600
    )
    assert after == expected
    assert after.last_offset == 2, "the sequences up to it count as used"
    assert next((r.offset, r.timestamp_ms) for r in shelf.records()) == (1, 600)


@pytest.mark.parametrize("codec", list(Codec))
def test_rewritten_batch_keeps_its_codec(shelf: Shelf, codec: Codec) -> None:
    shelf.append(*pairs(b"a", b"b", value=b"v" * 100), codec=codec)
    shelf.append(*pairs(b"a"))
    shelf.roll()
    shelf.clean()
    assert shelf.headers()[0].codec is codec
    assert shelf.headers()[0].record_count == 1
    assert shelf.offsets() == [1, 2]


def test_batch_without_superseded_records_is_copied(shelf: Shelf) -> None:
    for codec in Codec:
        shelf.append(*pairs(*(b"%d-%d" % (codec, n) for n in range(9))), codec=codec)
    shelf.append(*pairs(b"x", b"x"))
    batches = shelf.active[:-1]
    shelf.roll()
    shelf.clean()
    assert shelf.content().startswith(b"".join(batches))


def test_records_without_a_key_are_removed(shelf: Shelf) -> None:
    shelf.append((None, b"1"), (b"a", b"1"), (None, b"2"))
    shelf.roll()
    shelf.clean()
    assert shelf.offsets() == [1]


def test_last_batch_of_a_compacted_range_keeps_its_header(shelf: Shelf) -> None:
    """Otherwise the end offset of the cleaned range would be lost."""
    shelf.append(*pairs(b"a"))
    shelf.append((None, b"1"), (None, b"2"), codec=Codec.ZSTD)
    shelf.roll()
    shelf.clean()
    last = shelf.headers()[-1]
    assert (last.base_offset, last.last_offset, last.record_count, last.size) == (1, 2, 0, 61)
    assert last.codec is Codec.NONE
    assert decode_batch(shelf.content(), shelf.segments[0].size - 61) == []
    shelf.append(*pairs(b"b"))
    shelf.roll()
    shelf.clean()
    assert [header.base_offset for header in shelf.headers()] == [0, 3], (
        "another batch is the last one now"
    )


def test_last_batch_of_an_active_producer_keeps_its_header(shelf: Shelf) -> None:
    shelf.append(*pairs(b"a"), producer=5)
    shelf.append(*pairs(b"a", b"a"), producer=5)
    shelf.append(*pairs(b"a"), producer=6)
    shelf.append(*pairs(b"a"))
    shelf.roll()
    del shelf.live[6]
    shelf.clean()
    kept = shelf.headers()[0]
    assert (kept.producer_id, kept.base_sequence, kept.last_offset_delta) == (5, 7, 1)
    assert [header.base_offset for header in shelf.headers()] == [1, 4]


# --- tombstones ----------------------------------------------------------------------------------


def test_tombstone_is_removed_after_its_delete_horizon(shelf: Shelf) -> None:
    shelf.append((b"a", b"1"), (b"b", b"1"))
    shelf.append((b"a", None), (b"c", b"1"), timestamp=700, step=5)
    shelf.roll()
    shelf.clean(delete_retention_ms=1_000)
    header = shelf.headers()[1]
    assert header.has_delete_horizon
    assert header.base_timestamp == shelf.wall_ms + 1_000
    assert [(r.offset, r.timestamp_ms) for r in shelf.records()] == [
        (1, 5_001),
        (2, 700),
        (3, 705),
    ], "timestamps are unchanged, as deltas from the horizon"
    for wait, offsets in ((999, [1, 2, 3]), (1, [1, 3])):
        shelf.wall_ms += wait
        shelf.append(*pairs(b"z"))
        shelf.roll()
        shelf.clean()
        assert shelf.offsets()[:-1] == offsets
    assert shelf.headers()[1].has_delete_horizon, "its base timestamp is still a horizon"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_log_append_time_survives_a_horizon(shelf: Shelf, codec: Codec) -> None:
    shelf.append((b"a", None), (b"b", b"1"), timestamp=700, log_append_time=True, codec=codec)
    shelf.roll()
    times = [record.timestamp_ms for record in shelf.records()]
    shelf.clean()
    assert shelf.headers()[0].has_delete_horizon
    assert [record.timestamp_ms for record in shelf.records()] == times


def test_replicated_tombstone_with_a_past_horizon_survives_one_round(
    shelf: Shelf,
) -> None:
    """A replica that lagged still has the value: removing both in one round would hide the
    deletion."""
    shelf.append((b"a", b"1"))
    shelf.append((b"a", None))
    shelf.roll()
    shelf.clean()
    cleaned = shelf.content()
    late = Shelf(shelf.files, shelf.folder + "/late")
    shelf.files.make_folder(late.folder)
    late.wall_ms = shelf.wall_ms + 10**6
    late.append((b"a", b"1"))
    for position, header in iterate_batches(cleaned):
        late.put(cleaned[position : position + header.size])
    late.roll()
    late.clean()
    assert late.offsets() == [1]
    late.append(*pairs(b"b"))
    late.roll()
    late.clean()
    assert late.offsets() == [2]


def test_tombstone_stays_if_its_timestamp_does_not_fit_the_horizon(shelf: Shelf) -> None:
    shelf.append((b"a", None), timestamp=-(2**63))
    before = shelf.active[0]
    shelf.append(*pairs(b"b", b"b"))
    shelf.roll()
    shelf.clean()
    assert shelf.content().startswith(before)


# --- transactions --------------------------------------------------------------------------------


def test_aborted_records_are_removed_and_supersede_nothing(shelf: Shelf) -> None:
    shelf.append(*pairs(b"a", value=b"kept"))
    shelf.append(*pairs(b"a", b"b"), producer=3, is_transactional=True)
    shelf.end(3, MarkerType.ABORT)
    shelf.append(*pairs(b"c"))
    shelf.roll()
    shelf.live.clear()
    shelf.clean()
    assert shelf.offsets() == [0, 4]
    assert [entry.last_offset for entry in shelf.aborted] == [3], (
        "consumers that started before still need it"
    )
    shelf.append(*pairs(b"c"))
    shelf.roll()
    shelf.clean()
    assert shelf.aborted == []


@pytest.mark.parametrize("kind", list(MarkerType))
def test_transaction_marker_is_removed_after_its_records_and_its_delete_horizon(
    shelf: Shelf, kind: MarkerType
) -> None:
    shelf.append(*pairs(b"a"), producer=3, is_transactional=True)
    marker = shelf.end(3, kind)
    shelf.live.clear()

    def next_round(wait: int) -> bool:
        shelf.wall_ms += wait
        shelf.append(*pairs(b"a"))
        shelf.roll()
        shelf.clean(delete_retention_ms=1_000)
        markers = [header for header in shelf.headers() if header.is_control]
        assert all(header.base_offset == marker for header in markers)
        return markers[0].has_delete_horizon if markers else None  # type: ignore[return-value]

    assert next_round(0) is False, "the log had a batch when the round started"
    assert next_round(10**6) is True
    assert next_round(999) is True
    assert next_round(1) is None


def test_marker_key_supersedes_no_record(shelf: Shelf) -> None:
    """R25: the key of an abort marker is four zero bytes, which a record may have as well."""
    shelf.append((b"\0\0\0\0", b"data"), producer=3, is_transactional=True)
    marker = shelf.end(3, MarkerType.COMMIT)
    shelf.append((b"\0\0\0\1", b"data"), (b"\0\0\0\0", None))
    shelf.roll()
    shelf.clean()
    assert marker in [header.base_offset for header in shelf.headers()]
    assert shelf.offsets() == [2, 3]


def test_last_marker_of_an_active_producer_stays(shelf: Shelf) -> None:
    marker = shelf.end(3, MarkerType.COMMIT)
    for _ in range(3):
        shelf.append(*pairs(b"a"))
        shelf.roll()
        shelf.live[3] = LastRecord(-1, 0)
        shelf.clean()
        shelf.wall_ms += 10**6
        assert marker in [header.base_offset for header in shelf.headers()]
    shelf.live.clear()
    shelf.append(*pairs(b"a"))
    shelf.roll()
    shelf.clean()
    assert marker not in [header.base_offset for header in shelf.headers()]


def test_abort_marker_missing_from_the_transaction_index_is_corruption(shelf: Shelf) -> None:
    """Its records would count as committed and supersede others."""
    shelf.append(*pairs(b"a"))
    shelf.append(*pairs(b"a"), producer=3, is_transactional=True)
    shelf.end(3, MarkerType.ABORT)
    shelf.roll()
    shelf.aborted.clear()
    before = shelf.content()
    cleaning = shelf.round()
    with pytest.raises(CorruptionError, match="not in the transaction index"):
        cleaning.step(shelf.files, budget_bytes=10**6)
    cleaning.discard(shelf.files)
    assert shelf.content() == before


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_any_flipped_bit_from_the_magic_on_is_corruption(shelf: Shelf, codec: Codec) -> None:
    shelf.append(*pairs(b"a", b"b"), codec=codec)
    batch = shelf.active[0]
    for at in range(16, len(batch)):
        spoiled = Shelf(shelf.files, shelf.folder)
        flipped = bytearray(batch)
        flipped[at] ^= 0x10
        spoiled.active, spoiled.next_offset = [bytes(flipped)], 2
        spoiled.roll()
        cleaning = spoiled.round()
        with pytest.raises(CorruptionError) as failure:
            cleaning.step(shelf.files, budget_bytes=10**6)
        assert failure.value.path == spoiled.segments[0].path
        assert failure.value.position == 0
        cleaning.discard(shelf.files)
        assert shelf.files.names(shelf.folder) == ["00000000000000000000.log"]


def test_batches_out_of_order_are_corruption(shelf: Shelf) -> None:
    def batch(offset: int, epoch: int, count: int = 2) -> bytes:
        records = [Record(0, 1, b"k", b"v")] * count
        return encode_batch(records, base_offset=offset, leader_epoch=epoch)

    for first, second, text in (
        (batch(0, 3), batch(1, 3), "a batch of offsets 1 to 2 follows offset 1"),
        (batch(0, 3), batch(2, 2), "epoch 2 follows epoch 3"),
        (batch(0, 3), batch(9, 3), "the next segment starts at 4"),
        (batch(0, 3), batch(2, 3)[:-1], "reaches beyond"),
        (batch(0, 3), batch(2, 3)[:40], "a batch header has 61"),
    ):
        spoiled = Shelf(shelf.files, shelf.folder)
        spoiled.active, spoiled.next_offset = [first, second], 4
        spoiled.roll()
        with pytest.raises(CorruptionError, match=text):
            spoiled.clean()


def miscounted(codec: Codec = Codec.GZIP) -> bytes:
    """Build a batch of keys a and b whose header states one record too many.

    A producer can store such a batch where compressed records are not validated.
    """
    records = encode_batch([Record(0, 5_000, key, b"lie") for key in (b"a", b"b")])[61:]
    count = 3
    header = parse_header(encode_batch([Record(0, 5_000, b"c", b"v")] * count, codec=codec))
    return seal(header, records)


def test_a_batch_that_does_not_inflate_stays_and_supersedes_nothing(shelf: Shelf) -> None:
    """Otherwise the log would never count as clean again."""
    shelf.append(*pairs(b"a", b"b"))
    shelf.append((b"a", bytes(10_000)), codec=Codec.GZIP)
    shelf.append(*pairs(b"b"))
    shelf.roll()
    unread = shelf.active_base
    before = shelf.content()
    cleaning = shelf.clean(inflate_bytes_max=5_000)
    assert cleaning.cleaned_to == unread == 4
    assert shelf.offsets() == [0, 2, 3]
    assert from_offset(shelf.content(), 2) == from_offset(before, 2)
    assert cleaning.stats.batches_unread == 1
    assert "offset 2 cannot be compacted: the batch inflates" in cleaning.stats.unread_reason


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_batch_whose_compressed_records_are_wrong_stays_and_supersedes_nothing(
    shelf: Shelf, codec: Codec
) -> None:
    shelf.append(*pairs(b"a", b"b"))
    lie = miscounted(codec)
    shelf.put(stamp(parse_header(lie), base_offset=2, leader_epoch=0) + lie[16:])
    shelf.append(*pairs(b"b"))
    shelf.roll()
    cleaning = shelf.clean()
    assert [(h.base_offset, h.record_count) for h in shelf.headers()] == [(0, 1), (2, 3), (5, 1)]
    assert shelf.content().find(lie[16:]) > 0
    assert cleaning.stats.batches_unread == 1
    assert "offset 2" in cleaning.stats.unread_reason


def test_a_batch_that_cannot_be_read_goes_with_its_aborted_transaction(shelf: Shelf) -> None:
    shelf.append((b"a", bytes(10_000)), codec=Codec.GZIP, producer=3, is_transactional=True)
    shelf.end(3, MarkerType.ABORT)
    shelf.append(*pairs(b"b"))
    shelf.live.clear()
    shelf.roll()
    assert shelf.clean(inflate_bytes_max=5_000).stats.batches_unread == 0
    assert shelf.offsets() == [2]


def test_invalid_uncompressed_records_are_corruption(shelf: Shelf) -> None:
    """No producer can store such records: uncompressed records are always validated."""
    shelf.put(miscounted(Codec.NONE))
    shelf.roll()
    with pytest.raises(CorruptionError, match="batch at offset 0"):
        shelf.clean()


def from_offset(batches: bytes, offset: int) -> bytes:
    """Return the batches from the one that contains an offset."""
    at = next(at for at, header in iterate_batches(batches) if header.last_offset >= offset)
    return batches[at:]


def test_rewritten_header_parses_like_the_original(shelf: Shelf) -> None:
    shelf.append(*pairs(b"a", b"b"), producer=2, is_transactional=True)
    shelf.end(2, MarkerType.COMMIT)
    shelf.append(*pairs(b"a"))
    shelf.roll()
    before = parse_header(shelf.content())
    shelf.clean()
    after = parse_header(shelf.content())
    assert after.is_transactional
    assert not after.is_control
    assert after[:3:2] == before[:3:2]
    assert after[9:12] == before[9:12]
