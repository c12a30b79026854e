"""Opening after clean and unclean stops: torn batches are truncated, damaged ones are reported."""

from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.errors import CorruptionError
from quorumlog.records.codec import decode_all
from quorumlog.storage import FlushPolicy
from quorumlog.storage.checkpoints import encode_epochs
from quorumlog.storage.recovery import valid_bytes
from quorumlog.storage.small_files import write_file

MakeBench = Callable[..., Any]
MakeBatch = Callable[..., bytes]

SIZE = 71  # bytes of a batch with one record
FIRST = "00000000000000000000"


def fill(bench: Any, batch: MakeBatch, count: int, *, epoch: int = 0) -> None:
    """Append batches of one record; its timestamp is its offset."""
    for _ in range(count):
        bench.append(batch(1, timestamp=bench.log.log_end_offset), epoch=epoch)


def damage(bench: Any, position: int, content: bytes, *, segment: int = 0) -> None:
    file = bench.place.files.open(f"{bench.folder}/{segment:020d}.log")
    file.write(position, [content])
    file.close()


def cut(bench: Any, size: int, *, segment: int = 0) -> None:
    file = bench.place.files.open(f"{bench.folder}/{segment:020d}.log")
    file.truncate(size)
    file.close()


def offsets(bench: Any) -> list[int]:
    found, offset = [], bench.log.log_start_offset
    while offset < bench.log.log_end_offset:
        found += [r.offset for r in decode_all(bench.read(offset)) if r.offset >= offset]
        offset = found[-1] + 1
    return found


# --- clean -------------------------------------------------------------------------------------


def test_clean_log_opens_unchanged(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=300, index_interval_bytes=0)
    fill(b, batch, 9, epoch=2)
    b.close()
    log = b.open()
    assert (log.log_end_offset, log.flushed_end_offset) == (9, 9)
    assert log.segment_bases == [0, 4, 8]
    assert log.epochs.entries() == [(2, 0)], "read from the log, as there was no checkpoint"
    assert offsets(b) == list(range(9))
    fill(b, batch, 1, epoch=2)
    assert log.log_end_offset == 10


def test_clean_log_that_ends_in_an_empty_segment_accepts_appends(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    fill(b, batch, 2)
    b.truncate(0)
    b.close()
    assert b.open().log_end_offset == 0
    fill(b, batch, 1)
    assert offsets(b) == [0]


def test_epochs_come_from_the_checkpoint_when_there_is_one(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    fill(b, batch, 4, epoch=3)
    b.close()
    path = f"{b.folder}/leader-epoch-checkpoint"
    write_file(b.place.files, path, encode_epochs([(1, 0), (3, 2), (9, 4)]))
    assert b.open().epochs.entries() == [(1, 0), (3, 2)], "no epoch at or beyond the end"
    write_file(b.place.files, path, b"garbage")
    assert b.open().epochs.entries() == [(3, 0)]


def test_a_torn_log_is_no_clean_one(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    fill(b, batch, 3)
    b.close()
    cut(b, 3 * SIZE - 5)
    with pytest.raises(CorruptionError):
        b.open()


def test_recovery_removes_files_of_unfinished_work(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    fill(b, batch, 1)
    b.close()
    for name in ("00000000000000000007.log.deleted", "x.tmp", "00000000000000000007.index"):
        write_file(b.place.files, f"{b.folder}/{name}", b"left")
    b.open()
    names = b.place.files.names(b.folder)
    assert names == [
        *(f"{FIRST}{suffix}" for suffix in (".index", ".log", ".timeindex")),
        "00000000000000000001.snapshot",
    ]


def test_the_log_start_is_the_checkpoint_or_the_first_segment(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=100)
    fill(b, batch, 4)
    b.close()
    assert b.open(log_start_offset=3).log_start_offset == 3
    b.log.close("again")
    for suffix in (".log", ".index", ".timeindex"):
        b.place.files.remove(f"{b.folder}/{FIRST}{suffix}")
    assert b.open().log_start_offset == 1


# --- unclean -----------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 60, 61, SIZE - 1])
@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_recovery_truncates_a_torn_batch_at_the_end(
    bench: MakeBench, batch: MakeBatch, left: int, policy: FlushPolicy
) -> None:
    b = bench(flush_policy=policy)
    fill(b, batch, 3)
    cut(b, 2 * SIZE + left)
    log = b.open(is_clean=False)
    assert (log.log_end_offset, log.flushed_end_offset, log.size_bytes) == (2, 2, 2 * SIZE)
    assert b.place.files.size(f"{b.folder}/{FIRST}.log") == 2 * SIZE
    fill(b, batch, 2)
    assert offsets(b) == [0, 1, 2, 3]


def test_replicated_log_is_truncated_at_a_hole(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=300)
    fill(b, batch, 9)
    damage(b, SIZE, bytes(SIZE))
    log = b.open(is_clean=False, torn_bytes_max=0)
    assert log.log_end_offset == 1
    logs = [name for name in b.place.files.names(b.folder) if name.endswith(".log")]
    assert logs == [f"{FIRST}.log"], "later segments are removed"


@pytest.mark.parametrize(
    ("torn_bytes_max", "is_torn"), [(6 * SIZE, True), (6 * SIZE - 1, False), (0, False)]
)
def test_an_fsync_log_is_damaged_when_too_much_follows_a_bad_batch(
    bench: MakeBench, batch: MakeBatch, torn_bytes_max: int, is_torn: bool
) -> None:
    """Only its last two write groups can be torn. Six valid batches follow, in two segments."""
    b = bench(flush_policy=FlushPolicy.FSYNC, segment_bytes=300)
    fill(b, batch, 8)
    damage(b, SIZE + 20, b"\xff\xff")
    if is_torn:
        assert b.open(is_clean=False, torn_bytes_max=torn_bytes_max).log_end_offset == 1
        return
    before = {n: b.place.files.size(f"{b.folder}/{n}") for n in b.place.files.names(b.folder)}
    with pytest.raises(CorruptionError) as caught:
        b.open(is_clean=False, torn_bytes_max=torn_bytes_max)
    assert caught.value.position == SIZE
    assert caught.value.path == f"{b.folder}/{FIRST}.log"
    after = {n: b.place.files.size(f"{b.folder}/{n}") for n in b.place.files.names(b.folder)}
    assert after == before, "the damage is left in place"


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_a_bad_batch_below_the_recovery_point_is_damage(
    bench: MakeBench, batch: MakeBatch, policy: FlushPolicy
) -> None:
    b = bench(flush_policy=policy)
    fill(b, batch, 4)
    damage(b, SIZE + 8, bytes(4))  # the length of the batch
    with pytest.raises(CorruptionError):
        b.open(is_clean=False, recovery_point=3)
    assert b.open(is_clean=False, recovery_point=1).log_end_offset == 1


def test_below_the_recovery_point_headers_alone_are_read(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    fill(b, batch, 4)
    damage(b, SIZE - 2, b"??")  # a value, which only the CRC covers
    assert b.open(is_clean=False, recovery_point=1).log_end_offset == 4
    assert b.open(is_clean=False, recovery_point=0).log_end_offset == 0


def test_a_log_that_ends_below_its_recovery_point_is_damaged(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=100)
    fill(b, batch, 3)
    with pytest.raises(CorruptionError, match="ends at 3"):
        b.open(is_clean=False, recovery_point=4)
    for name in b.place.files.names(b.folder):
        b.place.files.remove(f"{b.folder}/{name}")
    with pytest.raises(CorruptionError, match="no segment"):
        b.open(is_clean=False, recovery_point=4)


def test_a_missing_end_of_an_inner_segment_cuts_there(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=300)
    fill(b, batch, 9)
    cut(b, 2 * SIZE, segment=0)
    assert b.open(is_clean=False).log_end_offset == 2
    assert b.log.segment_bases == [0]


def test_recovery_truncates_at_a_missing_segment(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench(segment_bytes=300)
    fill(b, batch, 9)
    b.flush()
    b.place.files.remove(f"{b.folder}/00000000000000000004.log")
    assert b.open(is_clean=False).log_end_offset == 4
    fill(b, batch, 1)
    assert offsets(b) == [0, 1, 2, 3, 4]


def test_recovery_truncates_at_a_decreasing_leader_epoch(
    bench: MakeBench, batch: MakeBatch
) -> None:
    """The truncation was not durable, but the batch written after it was."""
    b = bench()
    fill(b, batch, 3, epoch=1)
    again = batch(1, base_offset=1, leader_epoch=2)
    damage(b, SIZE, again)
    assert b.open(is_clean=False).log_end_offset == 2
    assert b.log.epochs.entries() == [(1, 0), (2, 1)]


def test_a_batch_of_a_wrong_offset_is_bad(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    fill(b, batch, 3)
    damage(b, SIZE, (7).to_bytes(8, "big"))  # not covered by the CRC
    assert b.open(is_clean=False).log_end_offset == 1


def test_recovery_drops_stale_epochs_above_the_recovery_point(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    fill(b, batch, 2, epoch=1)
    fill(b, batch, 2, epoch=4)
    path = f"{b.folder}/leader-epoch-checkpoint"
    write_file(b.place.files, path, encode_epochs([(1, 0), (3, 2)]))
    assert b.open(is_clean=False, recovery_point=2).epochs.entries() == [(1, 0), (4, 2)]


def test_stale_index_files_do_not_outlive_an_unclean_stop(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=1_000, index_interval_bytes=0)
    fill(b, batch, 3)
    b.close()
    b.open()
    fill(b, batch, 17)
    b.open(is_clean=False)
    assert b.log.segment_bases == [0, 14]
    for timestamp in range(20):
        found = b.log.time_lookup(timestamp).run(b.place.files)
        assert found is not None
        assert found.offset == timestamp


def test_valid_batches_are_found_wherever_they_start(bench: MakeBench, batch: MakeBatch) -> None:
    b = bench()
    noise = b"\x02" * 40
    good = [batch(1, base_offset=offset, leader_epoch=0) for offset in (5, 6, 9)]
    low = batch(1, base_offset=3)
    write_file(b.place.files, f"{b.place.folder}/f", noise.join([b"", *good, low, b"end"]))
    file = b.place.files.open_readonly(f"{b.place.folder}/f")
    size = file.size()
    assert valid_bytes(file, 0, size, expected=4, enough=10**9) == 3 * SIZE
    assert valid_bytes(file, 0, size, expected=4, enough=0) == SIZE
    assert valid_bytes(file, 41, size, expected=4, enough=10**9) == 2 * SIZE
    assert valid_bytes(file, 0, size, expected=9, enough=10**9) == 0
    file.close()


def test_a_log_whose_last_offset_was_flipped_is_damaged_and_never_removed(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench()
    b.append(batch(3))
    b.close()
    path = f"{b.folder}/00000000000000000000.log"
    file = b.place.files.open(path)
    file.write(0, [b"\x80"])  # the sign of the batch's base offset
    file.close()
    with pytest.raises(CorruptionError, match="the log ends at -"):
        b.open(is_clean=True)
    assert b.place.files.size(path) > 0


def test_index_of_a_segment_closed_after_the_last_checkpoint_is_rebuilt(
    bench: MakeBench, batch: MakeBatch
) -> None:
    b = bench(segment_bytes=300, index_interval_bytes=0)
    for timestamp in range(100, 108):
        b.append(batch(1, timestamp=timestamp))
    first, second = b.log.segment_bases[:2]
    b.flush()
    stem = f"{b.folder}/{first:020d}"
    write_file(b.place.files, f"{stem}.timeindex", b"")  # left by a power cut of its last write
    log = b.open(is_clean=False, recovery_point=second)
    found = log.time_lookup(101).run(b.place.files)
    assert found is not None
    assert found.offset == 1
