"""Log: appends, rolls, reads, truncation and epochs, on the real and the simulated file system."""

import errno
from collections.abc import Callable
from dataclasses import replace
from struct import pack, unpack
from typing import Any

import pytest
from crc32c import crc32c

from quorumlog.errors import (
    CorruptionError,
    DiskFailed,
    DiskFull,
    InvalidRecord,
    MessageTooLarge,
    OffsetOutOfRange,
)
from quorumlog.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    check_crc,
    iterate_batches,
    parse_header,
)
from quorumlog.records.codec import decode_all
from quorumlog.storage import AppendOrigin, LogWrite
from quorumlog.storage.append import WriteFailed, write_fully
from quorumlog.storage.config import LogConfig
from quorumlog.storage.truncation import find_truncation_point, perform_truncation

MakeBench = Callable[..., Any]
MakeBatch = Callable[..., bytes]
FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


def prepare(bench: Any, batches: bytes, *, epoch: int = 0) -> LogWrite:
    write = bench.log.appender.prepare(
        batches, leader_epoch=epoch, wall_ms=0, origin=AppendOrigin.CLIENT
    )
    assert isinstance(write, LogWrite)
    return write


# --- append ------------------------------------------------------------------------------------


def test_a_client_batch_gets_the_next_offset_and_the_epoch(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    assert b.append(batch(3, base_offset=99, leader_epoch=7), epoch=4) == 0
    assert b.append(batch(2), epoch=4) == 3
    headers = [header for _, header in iterate_batches(b.read(0))]
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h in headers] == [
        (0, 2, 4),
        (3, 4, 4),
    ]
    assert [r.offset for r in decode_all(b.read(0))] == [0, 1, 2, 3, 4]


def test_the_rest_of_a_batch_is_stored_as_it_was_sent(bench: MakeBench, batch: MakeBatch) -> None:
    b, sent = bench(), batch(3)
    write = prepare(b, sent)
    prefix, rest = write.buffers
    assert len(prefix) == 16
    assert isinstance(rest, memoryview)
    assert rest.obj is sent, "not copied"
    b.log.appender.failed(write, WriteFailed(FULL, is_undone=True))
    b.append(sent)
    assert b.read(0)[16:] == sent[16:]


def test_several_batches_are_appended_together(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(index_interval_bytes=0)
    assert b.append(batch(3) + batch(1) + batch(2), epoch=1) == 0
    assert b.log.log_end_offset == 6
    offsets = [header.base_offset for _, header in iterate_batches(b.read(0))]
    assert offsets == [0, 3, 4]


def test_readers_see_completed_writes_only(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    write = prepare(b, batch(2))
    write_fully(write.file, write.position, write.buffers)
    assert b.log.log_end_offset == 0
    assert b.log.read(0, max_bytes=1000) is None
    b.log.appender.complete(write)
    assert b.log.log_end_offset == 2
    assert len(decode_all(b.read(0))) == 2


def test_outstanding_writes_lie_behind_each_other(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    first, second = prepare(b, batch(2)), prepare(b, batch(1))
    assert (second.base_offset, second.position) == (2, first.size)
    write_fully(first.file, first.position, [*first.buffers, *second.buffers])
    with pytest.raises(AssertionError, match="completed before"):
        b.log.appender.complete(second)


def test_a_full_disk_that_was_undone_leaves_the_log_usable(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    b.append(batch(1))
    first, second = prepare(b, batch(2)), prepare(b, batch(1))
    failure = WriteFailed(FULL, is_undone=True)
    assert isinstance(b.log.appender.failed(second, failure), DiskFull)
    assert isinstance(b.log.appender.failed(first, failure), DiskFull)
    assert b.append(batch(1)) == 1
    assert len(decode_all(b.read(0))) == 2


@pytest.mark.parametrize(
    "failure",
    [WriteFailed(FULL, is_undone=False), WriteFailed(BROKEN, is_undone=True)],
    ids=["full disk, not undone", "device error"],
)
def test_any_other_failed_write_is_final(
    bench: MakeBench, batch: MakeBatch, failure: WriteFailed
) -> None:
    b = bench()
    b.append(batch(1))
    error = b.log.appender.failed(prepare(b, batch(1)), failure)
    assert type(error) is DiskFailed
    with pytest.raises(DiskFailed):
        prepare(b, batch(1))
    assert len(decode_all(b.read(0))) == 1, "stored batches are still readable"


def test_a_failed_flush_is_final(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.append(batch(1))
    assert isinstance(b.log.flusher.failed(b.log.flusher.begin(), FULL), DiskFailed)
    assert b.log.flushed_end_offset == 0
    with pytest.raises(DiskFailed):
        prepare(b, batch(1))


def test_understated_largest_timestamp_is_corrected_when_stored(
    bench: MakeBench, batch: MakeBatch
) -> None:
    """Otherwise timestamp lookups would miss newer records."""
    b = bench()
    given = batch(2)
    header = parse_header(given)
    fields = HEADER.pack(*header._replace(max_timestamp=-1, crc=0))
    crc = crc32c(given[HEADER_SIZE:], crc32c(fields[CRC_START:]))
    stated = header._replace(max_timestamp=-1, crc=crc)
    b.append(HEADER.pack(*stated) + given[HEADER_SIZE:])
    stored = b.read(0)
    check_crc(stored, 0, parse_header(stored))
    assert decode_all(stored) == decode_all(given)
    assert parse_header(stored).max_timestamp == header.max_timestamp > 0


def test_nothing_of_an_invalid_append_is_stored(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(message_bytes_max=300)
    good, bad = batch(1), bytearray(batch(1))
    bad[-1] ^= 1
    with pytest.raises(CorruptionError):
        prepare(b, good + bad)
    with pytest.raises(CorruptionError):
        prepare(b, good + good[:-1])
    with pytest.raises(InvalidRecord):
        prepare(b, b"")
    with pytest.raises(MessageTooLarge):
        prepare(b, batch(1, size=400))
    assert b.append(good) == 0


def test_an_append_larger_than_a_segment_is_refused(bench: MakeBench, batch: MakeBatch) -> None:
    with pytest.raises(MessageTooLarge):
        prepare(bench(segment_bytes=100), batch(1, size=100))


def test_validation_is_skipped_when_a_lane_has_done_it(bench: MakeBench, batch: MakeBatch) -> None:
    b, content = bench(), bytearray(batch(1))
    content[-1] ^= 1
    write = b.log.appender.prepare(
        content, leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT, is_validated=True
    )
    assert write is not None


def test_a_replicated_batch_keeps_its_offsets_and_must_continue_the_log(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()

    def replicate(base: int, epoch: int, count: int = 2) -> int:
        content = batch(count, base_offset=base, leader_epoch=epoch)
        return b.append(content, origin=AppendOrigin.REPLICATED)  # type: ignore[no-any-return]

    assert replicate(0, 3) == 0
    assert replicate(2, 3) == 2
    for base in (3, 5):
        with pytest.raises(InvalidRecord, match="starts at"):
            replicate(base, 3)
    with pytest.raises(InvalidRecord, match="epoch 2 follows epoch 3"):
        replicate(4, 2)
    assert replicate(4, 5) == 4
    assert b.log.epochs.entries() == [(3, 0), (5, 4)]


def test_a_compacted_log_takes_replicated_gaps(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(compacted=True)
    b.append(batch(2, base_offset=0, leader_epoch=0), origin=AppendOrigin.REPLICATED)
    b.append(batch(2, base_offset=10, leader_epoch=0), origin=AppendOrigin.REPLICATED)
    assert b.log.log_end_offset == 12
    assert parse_header(b.read(5)).base_offset == 10


def test_only_the_crc_of_an_internal_batch_is_checked(bench: MakeBench, batch: MakeBatch) -> None:
    b, content = bench(), batch(1)
    assert b.append(content, origin=AppendOrigin.INTERNAL) == 0
    with pytest.raises(CorruptionError):
        b.append(content[:-1] + b"?", origin=AppendOrigin.INTERNAL)


def test_readers_never_see_a_truncation_in_progress(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=700)
    for _ in range(6):
        b.append(batch(10))
    whole = b.read(0)
    first, cut_from = b.log.segment_bases[0], b.log.segment_bases[-1]
    b.append(batch(1))
    truncation = b.log.truncator.begin(b.log.log_end_offset - 1)
    perform_truncation(b.place.files, truncation, cut := find_truncation_point(truncation))
    assert b.log.read(cut_from, max_bytes=1 << 20, end_offset=cut.end_offset) is None, (
        "until the truncation completes"
    )
    found = b.log.read(first, max_bytes=1 << 20)
    assert found is not None
    assert found.read() == whole[: found.size], "remaining segments stay readable"
    found.release()
    b.log.truncator.complete(truncation, cut)
    assert b.read(0)[: len(whole)] == whole


def test_truncated_range_is_not_reported_as_damage(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(index_interval_bytes=100)
    for _ in range(6):
        b.append(batch(10))
    wanted = b.log.read(0, max_bytes=1 << 20, end_offset=50)
    assert wanted is not None
    b.truncate(5)
    with pytest.raises(DiskFailed, match="truncated during the read"):
        wanted.read()
    wanted.is_located = False
    with pytest.raises(DiskFailed, match="truncated during the read"):
        wanted.locate()
    wanted.release()


# --- roll --------------------------------------------------------------------------------------


def test_a_log_rolls_before_a_segment_grows_too_large(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=200)
    for _ in range(4):
        b.append(batch(1))  # 71 bytes each
    assert b.log.segment_bases == [0, 2]
    assert [r.offset for r in decode_all(b.read(0) + b.read(2))] == [0, 1, 2, 3]


def test_a_due_roll_waits_for_outstanding_writes(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=200)
    first, second = prepare(b, batch(1)), prepare(b, batch(1))
    assert (
        b.log.appender.prepare(batch(1), leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT)
        is None
    )
    write_fully(first.file, 0, [*first.buffers, *second.buffers])
    b.log.appender.complete(first)
    b.log.appender.complete(second)
    assert prepare(b, batch(1)).position == 0
    assert b.log.segment_bases == [0, 2]


def test_a_log_rolls_when_a_segment_spans_too_much_time(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_ms=100)
    for timestamp in (1_000, 1_100, 1_101, 1_150):
        b.append(batch(1, timestamp=timestamp))
    assert b.log.segment_bases == [0, 2]


def test_without_timestamps_the_age_of_the_segment_counts(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_ms=100)
    for wall_ms in (5_000, 5_100, 5_101):
        b.append(batch(1, timestamp=-1, step=0), wall_ms=wall_ms)
    assert b.log.segment_bases == [0, 2]


def test_a_log_rolls_when_an_index_is_full(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(index_interval_bytes=0, index_bytes_max=24)
    for timestamp in range(4):
        b.append(batch(1, timestamp=timestamp))
    assert b.log.segment_bases == [0, 3]


def test_the_base_offset_that_a_client_writes_rolls_nothing(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    for _ in range(3):
        b.append(batch(1, base_offset=2**62))
    assert b.log.segment_bases == [0]


def test_a_log_rolls_before_offsets_outgrow_the_index(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(compacted=True)
    b.append(batch(1, base_offset=0, leader_epoch=0), origin=AppendOrigin.REPLICATED)
    b.append(batch(1, base_offset=2**31 - 2, leader_epoch=0), origin=AppendOrigin.REPLICATED)
    assert b.log.segment_bases == [0]
    b.append(batch(2, base_offset=2**31 - 1, leader_epoch=0), origin=AppendOrigin.REPLICATED)
    assert b.log.segment_bases == [0, 2**31 - 1]


def test_a_rolled_segment_gets_its_index_files_with_the_next_flush(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=300, index_interval_bytes=0)
    for timestamp in range(5):
        b.append(batch(1, timestamp=timestamp))
    b.flush()
    files = b.place.files
    assert files.size(f"{b.folder}/00000000000000000000.index") == 8 * 3
    assert files.size(f"{b.folder}/00000000000000000000.timeindex") == 12 * 3
    assert not files.exists(f"{b.folder}/00000000000000000004.index")


# --- read --------------------------------------------------------------------------------------


def test_the_folder_is_made_at_the_first_append(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    assert not b.place.files.exists(b.folder)
    assert b.log.read(0, max_bytes=10) is None
    b.append(batch(1))
    assert b.place.files.names(b.folder) == ["00000000000000000000.log"]


def test_offsets_outside_of_the_log_say_both_bounds(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.append(batch(5))
    b.log.cleanup.advance_log_start(2)
    for offset in (1, 6):
        with pytest.raises(OffsetOutOfRange, match=rf"offset {offset} is outside \[2, 5\]"):
            b.log.read(offset, max_bytes=10)
    assert b.log.read(5, max_bytes=10) is None


def test_a_batch_that_reaches_beyond_the_end_is_not_given(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    b.append(batch(2))
    b.append(batch(3))
    assert [r.offset for r in decode_all(b.read(0, end_offset=4))] == [0, 1]
    assert b.read(2, end_offset=4) == b""


def test_at_least_one_batch_is_given_even_when_it_is_too_large(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    b.append(batch(1, size=500))
    b.append(batch(1))
    assert len(decode_all(b.read(0, max_bytes=10))) == 1
    assert b.read(0, max_bytes=10, min_one=False) == b""


def test_a_range_outlives_the_eviction_of_its_file(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=100)
    for _ in range(12):
        b.append(batch(1))
    b.flush()
    found = b.log.read(0, max_bytes=1000)
    for offset in range(1, 12):  # the pool holds four files
        assert len(b.read(offset)) == 71
    content = found.read()
    assert decode_all(content)[0].offset == 0
    found.release()
    found.release()


def test_read_of_a_range_truncated_in_between_raises(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.append(batch(1))
    b.append(batch(1))
    found = b.log.read(0, max_bytes=1000)
    b.truncate(1)
    with pytest.raises(DiskFailed, match="truncated"):
        found.read()
    found.release()


def test_indexes_are_rebuilt_when_missing_or_inconsistent(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=1_000, index_interval_bytes=100)
    for number in range(40):
        b.append(batch(1, timestamp=number))
    b.close()
    names = b.place.files.names(b.folder)
    b.place.files.remove(f"{b.folder}/{names[0]}")  # ...00.index
    file = b.place.files.open(f"{b.folder}/00000000000000000014.timeindex")
    file.write(0, [b"\xff" * 12])
    file.close()
    b.open()
    for offset in range(40):
        assert decode_all(b.read(offset, max_bytes=1))[0].offset == offset
        found = b.log.time_lookup(offset).run(b.place.files)
        assert found is not None
        assert found.offset == offset


# --- truncate, start, epochs -------------------------------------------------------------------


def test_truncating_cuts_whole_batches(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.append(batch(3), epoch=1)
    b.append(batch(3), epoch=2)
    b.flush()
    b.truncate(4)
    assert (b.log.log_end_offset, b.log.flushed_end_offset) == (3, 3)
    assert b.log.epochs.entries() == [(1, 0)]
    assert b.append(batch(1), epoch=3) == 3
    assert [r.offset for r in decode_all(b.read(0))] == [0, 1, 2, 3]


def test_truncating_removes_whole_segments(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=200)
    for _ in range(9):
        b.append(batch(1))
    b.flush()
    b.truncate(3)
    assert b.log.segment_bases == [0, 2]
    logs = [name for name in b.place.files.names(b.folder) if name.endswith(".log")]
    assert logs == ["00000000000000000000.log", "00000000000000000002.log"]
    assert b.log.size_bytes == 3 * 71


def test_truncating_at_or_beyond_the_end_does_nothing(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.truncate(0)
    b.append(batch(2))
    b.truncate(2)
    b.truncate(9)
    assert b.log.log_end_offset == 2


def test_the_log_start_only_moves_forward(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.append(batch(4), epoch=1)
    b.append(batch(4), epoch=2)
    b.log.cleanup.advance_log_start(5)
    b.log.cleanup.advance_log_start(2)
    assert b.log.log_start_offset == 5
    assert b.log.epochs.entries() == [(2, 5)]
    with pytest.raises(AssertionError):
        b.log.cleanup.advance_log_start(9)


def test_a_changed_config_counts_from_the_next_append(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.append(batch(1))
    b.log.config = replace(b.log.config, segment_bytes=100)
    b.append(batch(1))
    assert b.log.segment_bases == [0, 1]


def test_a_second_flush_at_once_is_a_bug(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    b.append(batch(1))
    b.log.flusher.begin()
    with pytest.raises(AssertionError, match="two flushes"):
        b.log.flusher.begin()


def test_topic_configs_become_a_log_config() -> None:
    config = LogConfig.from_topic_configs(
        {"segment.bytes": "1000", "flush.policy": "fsync", "cleanup.policy": "compact,delete"}
    )
    assert (config.segment_bytes, config.flush_policy, config.compacted) == (1000, "fsync", True)
    assert LogConfig.from_topic_configs({"min.insync.replicas": "5"}) == LogConfig()


def test_index_entry_changed_on_disk_makes_no_reader_skip_batches(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=4_000, index_interval_bytes=300)
    while len(b.log.segment_bases) < 2:
        b.append(batch(1))
    b.close()
    path = f"{b.folder}/00000000000000000000.index"
    file = b.place.files.open(path)
    entries = [unpack(">ii", file.read(at, 8)) for at in range(0, file.size(), 8)]
    (before, _), (offset, position) = entries[3:5]
    assert offset - before > 2, "several batches lie between two entries"
    file.write(4 * 8, [pack(">ii", before + 1, position)])  # still ascending
    file.close()
    b.open()
    assert parse_header(b.read(before + 2)).base_offset == before + 2


def test_an_index_that_grows_again_after_a_truncation_is_not_stored_as_final(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=150)
    for _ in range(3):
        b.append(batch())
    assert b.log.segment_bases == [0, 2]
    b.truncate(1)
    flush = b.log.flusher.begin()
    assert flush.sealed == ()
    b.log.flusher.complete(flush)


def test_truncation_keeps_timestamps_of_remaining_batches_after_index_eviction(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=700, index_interval_bytes=100)
    b.append(batch(timestamp=9_000))
    for _ in range(10):
        b.append(batch(timestamp=1_000))
    truncation = b.log.truncator.begin(b.log.segment_bases[1] - 2)
    assert truncation is not None
    assert truncation.floor > 0
    cut = find_truncation_point(truncation)
    perform_truncation(b.place.files, truncation, cut)
    b.log._segments._indexes.drop(
        truncation.file.path
    )  # as when other logs fill the cache in between
    b.log.truncator.complete(truncation, cut)
    found = b.log.time_lookup(5_000).run(b.place.files)
    assert found is not None
    assert found.offset == 0


def test_a_folder_with_later_epochs_than_the_leaders_is_not_appended_to(
    bench: MakeBench, batch: MakeBatch
) -> None:
    """Another cluster wrote it: this is no bug, and nothing is stored."""
    b = bench()
    b.append(batch(), epoch=7)
    with pytest.raises(DiskFailed, match="leader epoch 7, above the partition's epoch 3"):
        b.append(batch(), epoch=3)
    assert b.log.log_end_offset == 1
    b.append(batch(), epoch=7)
    assert b.log.log_end_offset == 2


# --- small reads -------------------------------------------------------------------------------


def test_a_small_read_continues_a_read_in_sequence(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    for value in (b"a", b"b", b"c", b"d"):
        b.append(batch(2, value=value))
    assert b.log.reads.read_small(0, max_bytes=10_000, end_offset=8) is None, (
        "no reader ended at this offset"
    )
    one = len(b.read(0, max_bytes=1))
    content, next_offset = b.log.reads.read_small(2, max_bytes=2 * one + 5, end_offset=8)
    assert (content, next_offset) == (b.read(2, max_bytes=2 * one), 6)
    assert b.log.reads.read_small(6, max_bytes=one - 1, end_offset=8) is None, "less than a batch"
    assert b.log.reads.read_small(6, max_bytes=one, end_offset=7) is None, "an end within the batch"
    assert b.log.reads.read_small(6, max_bytes=one, end_offset=8) == (b.read(6), 8)


def test_all_readers_at_the_end_use_the_sequential_read(bench: MakeBench, batch: MakeBatch) -> None:
    """A follower reads the batch first, then the consumers."""
    b = bench()
    b.append(batch(2))
    b.read(0)
    for end in (4, 6):
        b.append(batch(2))
        contents = [b.log.reads.read_small(end - 2, max_bytes=1_000, end_offset=end) for _ in "abc"]
        assert contents == [(b.read(end - 2), end)] * 3


def test_position_of_a_reader_far_from_the_end_is_replaced(
    bench: MakeBench, batch: MakeBatch
) -> None:
    """One entry for each reader: more positions of one reader would evict those of others."""
    b = bench()
    for _ in range(4):
        b.append(batch(2))
    one = len(b.read(0, max_bytes=1))
    assert b.log.reads.read_small(2, max_bytes=one, end_offset=8) is not None
    assert b.log.reads.read_small(2, max_bytes=one, end_offset=8) is None


def test_a_truncation_ends_small_reads_in_sequence(bench: MakeBench, batch: MakeBatch) -> None:
    """An offset has another file position after a truncation."""
    b = bench()
    for _ in range(3):
        b.append(batch(1, size=50))
    b.read(0)
    b.truncate(1)
    for _ in range(3):
        b.append(batch(1, size=51))
    assert b.log.reads.read_small(3, max_bytes=10_000, end_offset=4) is None
    assert [record.offset for record in decode_all(b.read(3))] == [3]
