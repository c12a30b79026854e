"""Producer state through full disks, deferred flushes, deep truncations and old recovery points.

No invalid snapshot or index is used, and no needed one is removed.
"""

from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.records import MarkerType
from quorumlog.storage.producer_state import AlreadyStored
from quorumlog.storage.segment_files import perform_removal
from quorumlog.storage.small_files import read_file, write_file
from quorumlog.storage.transaction_index import AbortedTransaction

from .producer_batches import abort_two, crash, data, known, mark, names, refill, remove

MakeBench = Callable[..., Any]
FULL = OSError(28, "No space left on device")
NO_DESCRIPTORS = OSError(24, "Too many open files")


def test_an_abort_inside_an_older_open_transaction_is_read_back_from_its_index(
    bench: MakeBench,
) -> None:
    """Its last stable offset is below its own first offset."""
    b = bench()
    b.append(data(0, producer=1, txn=True))
    b.append(data(0, producer=2, txn=True))
    mark(b, MarkerType.ABORT, producer=2)
    aborted = [AbortedTransaction(2, 1, 2, 0)]
    assert b.log.aborted_transactions(0, 3) == aborted
    b.close()
    b.open()
    assert b.log.aborted_transactions(0, 3) == aborted
    assert b.log.producers.warnings == ()


def test_truncation_does_not_lower_the_last_stable_offset(bench: MakeBench) -> None:
    b = bench()
    b.append(data(0, producer=2, txn=True))
    mark(b, MarkerType.COMMIT, producer=2)
    refill(b, 2)
    b.log.note_high_watermark(3)
    assert b.log.last_stable_offset == 3
    b.flush()
    b.truncate(3)
    assert b.log.high_watermark == 3
    assert b.log.last_stable_offset == 3


def test_truncation_removes_snapshots_left_by_failed_deletions(bench: MakeBench) -> None:
    """A snapshot stays if its deletion fails on a full disk or for lack of a file descriptor."""
    b = bench(segment_bytes=300)
    refill(b, 5)
    b.flush()
    old = names(b, ".snapshot")[-1]
    kept = read_file(b.place.files, f"{b.folder}/{old:020d}.snapshot")
    for sequence in range(5, 25):
        refill(b, 1, first=sequence)
        b.flush()
    assert old not in names(b, ".snapshot")
    write_file(b.place.files, f"{b.folder}/{old:020d}.snapshot", kept)
    b.truncate(1)
    assert names(b, ".snapshot") == [1], "a new snapshot at the truncation offset"


def test_deferred_flush_stores_its_snapshots_later(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 5)
    base = b.log.segment_bases[-1]
    assert base not in names(b, ".snapshot")
    assert b.log.flusher.failed(b.log.flusher.begin(), NO_DESCRIPTORS) is None
    b.flush()
    assert base in names(b, ".snapshot")


def test_truncation_drops_the_snapshots_of_a_deferred_flush(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 5)
    assert b.log.flusher.failed(b.log.flusher.begin(), NO_DESCRIPTORS) is None
    b.truncate(1)
    refill(b, 2, producer=7)
    b.flush()
    assert names(b, ".snapshot") == [1], "a new snapshot at the truncation offset"
    crash(b, recovery_point=1)
    assert set(known(b)) == {1, 7}


def test_deletion_after_a_deep_truncation_keeps_all_producers(bench: MakeBench) -> None:
    """The truncation removes the snapshots of everything that it cuts."""
    b = bench(segment_bytes=300)
    refill(b, 3, producer=5)
    for sequence in range(30):
        refill(b, 1, first=sequence)
        b.flush()
    b.truncate(15)
    before = known(b)
    removal = b.log.cleanup.begin_remove(len(b.log.segment_bases) - 1)
    perform_removal(b.place.files, removal)
    b.log.cleanup.complete_remove(removal)
    crash(b, recovery_point=15)
    assert known(b) == before


def test_full_disk_substitutes_no_older_snapshot_for_an_unstored_one(
    place: Any, bench: MakeBench
) -> None:
    b = bench(segment_bytes=300)
    for sequence in range(16):
        refill(b, 1, first=sequence)
        b.flush()
    before = names(b, ".snapshot")
    files = b.place.files

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(files, name)

        def open(self, path: str, *, create: bool = False) -> Any:
            if create and ".snapshot" in path:
                raise FULL
            return files.open(path, create=create)

    b.place = type(place)(Full(), place.folder)
    for sequence in range(16, 40):
        refill(b, 1, first=sequence)
        b.flush()
    assert names(b, ".snapshot") == before == b.log.producers.snapshot_offsets
    b.place = type(place)(files, place.folder)
    b.flush(is_last=True)
    assert names(b, ".snapshot")[-1] == 40
    assert names(b, ".snapshot") == b.log.producers.snapshot_offsets


def test_partially_rebuilt_index_is_not_used(bench: MakeBench) -> None:
    """Half of an index, cut between two entries, looks complete."""
    b = bench()
    aborted = abort_two(b)
    b.close()
    path = f"{b.folder}/{0:020d}.txnindex"
    files = b.place.files
    write_file(files, path, read_file(files, path)[:-1])

    class FailingFile:
        """A file that writes one entry of an index, then fails."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, position: int, buffers: Any) -> int:
            if position:
                raise OSError(5, "Input/output error")
            written: int = self.file.write(0, [memoryview(buffers[0])[:34]])
            return written

    class FailingFiles:
        def __getattr__(self, name: str) -> Any:
            return getattr(files, name)

        def open(self, path: str, *, create: bool = False) -> Any:
            file = files.open(path, create=create)
            return FailingFile(file) if ".txnindex" in path else file

    good = b.place
    b.place = type(good)(FailingFiles(), good.folder)
    with pytest.raises(OSError, match="Input/output"):
        b.open()
    b.place = good
    b.open()
    assert b.log.aborted_transactions(0, 10) == aborted


def test_recovery_point_below_every_snapshot_keeps_all_producers(bench: MakeBench) -> None:
    """Segments can be created and deleted faster than recovery points are stored."""
    b = bench(segment_bytes=300)
    refill(b, 3, producer=5)
    b.flush()
    stored = b.log.recovery_point
    for sequence in range(20):
        refill(b, 1, first=sequence)
        b.flush()
    before = known(b)
    remove(b, len(b.log.segment_bases) - 1)
    crash(b, recovery_point=stored)
    assert known(b) == before
    refill(b, 1, first=20)
    crash(b, recovery_point=b.log.recovery_point)
    with pytest.raises(AlreadyStored):
        b.append(data(2, producer=5))


def test_a_snapshot_above_the_recovery_point_counts_only_where_the_log_reaches_it(
    bench: MakeBench,
) -> None:
    b = bench(segment_bytes=300)
    refill(b, 3, producer=5)
    for sequence in range(20):
        refill(b, 1, first=sequence)
        b.flush()
    remove(b, len(b.log.segment_bases) - 4)
    second, third = b.log.segment_bases[1:3]
    for offset in names(b, ".snapshot"):
        if offset <= second:
            b.place.files.remove(f"{b.folder}/{offset:020d}.snapshot")
    b.place.files.open(f"{b.folder}/{second:020d}.log").truncate(10)
    crash(b, recovery_point=second)
    assert b.log.log_end_offset == second
    assert all(there <= second for there in names(b, ".snapshot"))
    assert third > second
    assert b.log.producers.states.entry(5) is None, "the state comes from the log alone"
    refill(b, 1, first=second - 3)


@pytest.mark.parametrize("is_torn", [False, True])
def test_aborts_below_the_snapshot_that_a_recovery_begins_with_are_known(
    bench: MakeBench, is_torn: bool
) -> None:
    """The recovery reads the whole segment, but applies producer state from the snapshot on."""
    b = bench()
    aborted = abort_two(b)
    b.close()
    assert names(b, ".snapshot") == [10]
    b.open()
    mark(b, MarkerType.ABORT, producer=4)
    b.flush()
    path = f"{b.folder}/{0:020d}.txnindex"
    good = read_file(b.place.files, path)
    assert len(good) == 4 * 34
    if is_torn:
        write_file(b.place.files, path, good[:-1])
    crash(b, recovery_point=10)
    assert b.log.aborted_transactions(0, 11)[:3] == aborted
    assert len(b.log.aborted_transactions(0, 11)) == 4
    assert read_file(b.place.files, path) == good


def test_snapshot_below_the_high_watermark_is_kept(bench: MakeBench) -> None:
    """A truncation can return to that offset."""
    b = bench(segment_bytes=300)
    refill(b, 3, producer=5)
    for sequence in range(9):
        refill(b, 1, first=sequence)
        b.flush()
    b.log.note_high_watermark(12)
    for sequence in range(9, 30):
        refill(b, 1, first=sequence)
        b.flush()
    remove(b, sum(base <= 8 for base in b.log.segment_bases) - 1)
    b.truncate(12)
    with pytest.raises(AlreadyStored):
        b.append(data(2, producer=5))


def test_deferred_flush_keeps_existing_snapshots(bench: MakeBench) -> None:
    """A segment that starts at the end of a closed log has its snapshot already."""
    b = bench()
    refill(b, 3)
    b.close()
    b.open()
    b.log.appender.roll(0)
    assert b.log.flusher.failed(b.log.flusher.begin(), NO_DESCRIPTORS) is None
    assert b.log.producers.snapshot_offsets == names(b, ".snapshot") == [3]
