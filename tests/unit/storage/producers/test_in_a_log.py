"""Producers in a log: restarts, truncations, removed segments, aborted transactions."""

from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.errors import InvalidRecord, OutOfOrderSequence
from quorumlog.records import MarkerType, decode_all
from quorumlog.storage import Origin
from quorumlog.storage.appends import WriteFailed, write_fully
from quorumlog.storage.checkpoints import encode_epochs
from quorumlog.storage.cleaning.removal import perform_removal
from quorumlog.storage.contents import read_file, write_file
from quorumlog.storage.producers import AbortedTransaction, AlreadyStored

from .makers import data, marker

MakeBench = Callable[..., Any]
FULL = OSError(28, "No space left on device")


def mark(b: Any, kind: MarkerType, **who: int) -> int:
    offset: int = b.append(marker(kind, **who), origin=Origin.INTERNAL)
    return offset


def refill(b: Any, count: int, *, producer: int = 1, first: int = 0) -> None:
    """Append batches of one record, a segment for each two of them or so."""
    for sequence in range(first, first + count):
        b.append(data(sequence, producer=producer))


def names(b: Any, suffix: str) -> list[int]:
    found: list[str] = b.place.files.names(b.folder)
    return [int(name.removesuffix(suffix)) for name in found if name.endswith(suffix)]


def known(b: Any) -> dict[int, Any]:
    """What is known of producers, times aside."""
    return {who: entry._replace(touched_ms=0) for who, entry in b.log.producers.states.entries()}


def store_epochs(b: Any) -> None:
    """Or an opening reads them in the log."""
    content = encode_epochs(b.log.epochs.entries())
    write_file(b.place.files, f"{b.folder}/leader-epoch-checkpoint", content)


def crash(b: Any, *, recovery_point: int = 0) -> None:
    """Open as after a process that was killed."""
    b.open(is_clean=False, recovery_point=recovery_point)


# --- appends -----------------------------------------------------------------------------------


def test_a_repeated_batch_is_not_stored_again(bench: MakeBench) -> None:
    b = bench()
    refill(b, 3)
    with pytest.raises(AlreadyStored) as stored:
        b.append(data(1))
    assert (stored.value.base_offset, stored.value.next_offset) == (1, 2)
    assert b.log.log_end_offset == 3


def test_a_copy_of_a_write_under_way_waits_for_it(bench: MakeBench) -> None:
    b = bench()
    write = b.log.prepare(data(0), leader_epoch=0, wall_ms=0, origin=Origin.CLIENT)
    copy = b.log.prepare(data(0), leader_epoch=0, wall_ms=0, origin=Origin.CLIENT)
    assert write is not None
    assert copy is None
    b.log.failed(write, WriteFailed(FULL, is_undone=True))
    assert b.append(data(0)) == 0


def test_a_refused_batch_leaves_no_trace(bench: MakeBench) -> None:
    b = bench()
    b.append(data(0))
    with pytest.raises(OutOfOrderSequence):
        b.append(data(5))
    assert b.append(data(1)) == 1


def test_many_batches_of_a_client_may_not_carry_a_producer(bench: MakeBench) -> None:
    b = bench()
    with pytest.raises(InvalidRecord, match="one by one"):
        b.append(data(0) + data(1))
    assert b.log.log_end_offset == 0


# --- restarts ----------------------------------------------------------------------------------


def test_the_five_batches_survive_a_clean_stop_without_reading_the_log(bench: MakeBench) -> None:
    b = bench()
    refill(b, 7)
    before = known(b)
    store_epochs(b)
    b.close()
    reads: list[str] = []
    files = b.place.files

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(files, name)

        def open_readonly(self, path: str) -> Any:
            reads.append(path.rpartition(".")[2])
            return files.open_readonly(path)

    b.place = type(b.place)(Watching(), b.place.folder)
    b.open()
    assert known(b) == before
    assert reads.count("snapshot") == 1
    assert reads.count("log") == 1, "the end of the active segment, which every opening looks at"
    for sequence in range(2, 7):
        with pytest.raises(AlreadyStored):
            b.append(data(sequence))


@pytest.mark.parametrize("recovery_point", [0, 5, 20])
def test_the_five_batches_survive_an_unclean_stop(bench: MakeBench, recovery_point: int) -> None:
    b = bench(segment_bytes=300)
    refill(b, 15)
    b.append(data(0, producer=2, txn=True))
    refill(b, 4, first=15)
    before = known(b)
    b.flush()
    crash(b, recovery_point=recovery_point)
    assert known(b) == before
    assert b.log.producers.states.first_undecided_offset == 15


def test_only_what_lies_above_the_snapshot_of_the_recovery_point_is_read(bench: MakeBench) -> None:
    """A damaged batch below it would otherwise be met."""
    b = bench(segment_bytes=300)
    refill(b, 15)
    b.flush()
    store_epochs(b)
    before, first = known(b), b.log.segment_bases[0]
    path = f"{b.folder}/{first:020d}.log"
    write_file(b.place.files, path, b"\0" * b.place.files.size(path))
    crash(b, recovery_point=15)
    assert known(b) == before


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_snapshot_is_passed_over(bench: MakeBench, is_clean: bool) -> None:
    b = bench(segment_bytes=300)
    refill(b, 15)
    before = known(b)
    b.close()
    for offset in names(b, ".snapshot"):
        path = f"{b.folder}/{offset:020d}.snapshot"
        content = bytearray(read_file(b.place.files, path))
        content[-1] ^= 1
        write_file(b.place.files, path, bytes(content))
    b.open(is_clean=is_clean, recovery_point=15)
    assert known(b) == before
    assert b.log.producers.warnings


def test_a_log_without_snapshots_is_read(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 9)
    before = known(b)
    b.close()
    for offset in names(b, ".snapshot"):
        b.place.files.remove(f"{b.folder}/{offset:020d}.snapshot")
    b.open()
    assert known(b) == before


def test_only_the_newest_snapshots_stay(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    for sequence in range(16):
        b.append(data(sequence))
        b.flush()
    b.close()
    offsets = names(b, ".snapshot")
    assert len(offsets) == 3
    assert offsets[-1] == 16
    assert offsets == b.log.producers.snapshot_offsets


def test_a_recovery_leaves_snapshots_for_the_next_one(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 15)
    crash(b)
    assert names(b, ".snapshot") == b.log.segment_bases[-3:]
    assert b.log.producers.snapshot_offsets == b.log.segment_bases[-3:]


def test_a_snapshot_of_what_was_lost_does_not_survive_a_recovery(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 15)
    b.close()
    cut_at = b.log.segment_bases[2]
    for base in b.log.segment_bases[2:]:
        b.place.files.remove(f"{b.folder}/{base:020d}.log")
    crash(b)
    assert b.log.log_end_offset == cut_at
    assert max(names(b, ".snapshot")) <= cut_at, "one of the new end is as good as any"
    refill(b, 1, first=cut_at)


# --- truncation --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [13, 7, 1])
def test_a_truncation_takes_back_what_the_cut_batches_did(bench: MakeBench, offset: int) -> None:
    b = bench(segment_bytes=300)
    refill(b, offset)
    before = known(b)
    refill(b, 15 - offset, first=offset)
    b.append(data(0, producer=9, txn=True))
    b.flush()
    b.log.truncate_to(offset)
    assert known(b) == before
    assert b.log.producers.states.first_undecided_offset is None
    assert all(there <= offset for there in names(b, ".snapshot"))
    refill(b, 3, first=offset)
    b.close()
    b.open()
    with pytest.raises(AlreadyStored):
        b.append(data(offset))


def test_a_truncation_above_all_producers_reads_nothing_of_them(bench: MakeBench) -> None:
    b = bench()
    refill(b, 2)
    states = b.log.producers.states
    for _ in range(3):
        b.append(data(-1, producer=-1, epoch=-1))
    b.log.truncate_to(3)
    assert b.log.producers.states is states


# --- the start of the log ----------------------------------------------------------------------


def remove(b: Any, count: int) -> None:
    b.flush()
    removal = b.log.begin_remove(count)
    perform_removal(b.place.files, removal)
    b.log.complete_remove(removal)


def test_a_producer_is_known_after_its_batches_were_removed(bench: MakeBench) -> None:
    """R22: retries behind the eviction of segments."""
    b = bench(segment_bytes=300)
    refill(b, 3, producer=5)
    refill(b, 12)
    remove(b, len(b.log.segment_bases) - 1)
    with pytest.raises(AlreadyStored):
        b.append(data(2, producer=5))
    b.close()
    b.open(log_start_offset=b.log.log_start_offset)
    with pytest.raises(AlreadyStored):
        b.append(data(2, producer=5))
    assert b.append(data(3, producer=5)) == 15


def test_a_snapshot_below_the_first_segment_is_of_no_use(bench: MakeBench) -> None:
    """Between it and the log batches are missing: who wrote them would seem to leave a gap."""
    b = bench(segment_bytes=300)
    refill(b, 5)
    b.close()
    b.open()
    refill(b, 10, first=5)
    remove(b, len(b.log.segment_bases) - 1)
    start = b.log.segment_bases[0]
    for offset in names(b, ".snapshot"):
        if offset >= start:
            b.place.files.remove(f"{b.folder}/{offset:020d}.snapshot")
    b.open(log_start_offset=start)
    refill(b, 1, first=15)


# --- transactions ------------------------------------------------------------------------------


def abort_two(b: Any) -> list[AbortedTransaction]:
    """Offsets 0..9: two aborted transactions, one committed, one open."""
    b.append(data(0, producer=1, txn=True))
    b.append(data(0, producer=2, txn=True))
    mark(b, MarkerType.ABORT, producer=1)
    b.append(data(0, producer=3, txn=True))
    mark(b, MarkerType.COMMIT, producer=3)
    b.append(data(1, producer=1, txn=True))
    mark(b, MarkerType.ABORT, producer=2)
    mark(b, MarkerType.ABORT, producer=1)
    b.append(data(0, producer=4, txn=True))
    b.append(data(0, producer=5))
    return [
        AbortedTransaction(1, 0, 2, 1),
        AbortedTransaction(2, 1, 6, 5),
        AbortedTransaction(1, 5, 7, 8),
    ]


@pytest.mark.parametrize("segment_bytes", [250, 1 << 20])
def test_aborted_transactions_are_known_after_every_kind_of_opening(
    bench: MakeBench, segment_bytes: int
) -> None:
    b = bench(segment_bytes=segment_bytes)
    aborted = abort_two(b)
    assert b.log.aborted_transactions(0, 10) == aborted
    b.flush()
    for recovery_point in (10, 0):
        crash(b, recovery_point=recovery_point)
        assert b.log.aborted_transactions(0, 10) == aborted
    b.close()
    b.open()
    assert b.log.aborted_transactions(0, 10) == aborted
    assert b.log.aborted_transactions(3, 4) == aborted[1:2]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_transaction_index_is_rebuilt(bench: MakeBench, is_clean: bool) -> None:
    b = bench(segment_bytes=250)
    aborted = abort_two(b)
    b.close()
    base = names(b, ".txnindex")[0]
    path = f"{b.folder}/{base:020d}.txnindex"
    good = read_file(b.place.files, path)
    write_file(b.place.files, path, good[:-1])
    b.open(is_clean=is_clean, recovery_point=10)
    assert b.log.aborted_transactions(0, 10) == aborted
    assert read_file(b.place.files, path) == good


@pytest.mark.parametrize("segment_bytes", [250, 1 << 20])
def test_a_truncation_takes_aborts_back(bench: MakeBench, segment_bytes: int) -> None:
    b = bench(segment_bytes=segment_bytes)
    aborted = abort_two(b)
    b.flush()
    b.log.truncate_to(6)
    assert b.log.aborted_transactions(0, 10) == aborted[:1]
    assert b.log.producers.states.first_undecided_offset == 1
    assert mark(b, MarkerType.COMMIT, producer=2) == 6
    b.close()
    b.open()
    assert b.log.aborted_transactions(0, 10) == aborted[:1]


def test_removed_segments_leave_no_index_behind(bench: MakeBench) -> None:
    b = bench(segment_bytes=250)
    aborted = abort_two(b)
    mark(b, MarkerType.COMMIT, producer=4)
    remove(b, len(b.log.segment_bases) - 1)
    start = b.log.segment_bases[0]
    stays = [one for one in aborted if one.last_offset >= start]
    assert b.log.aborted_transactions(0, 20) == stays
    b.close()
    b.open(log_start_offset=start)
    assert b.log.aborted_transactions(0, 20) == stays
    assert all(base >= start for base in names(b, ".txnindex"))


def test_the_last_stable_offset_follows_watermark_and_decisions(bench: MakeBench) -> None:
    b = bench()
    b.append(data(0))
    b.append(data(0, producer=2, txn=True))
    assert b.log.last_stable_offset == 0, "nothing is committed"
    b.log.note_high_watermark(2)
    assert b.log.last_stable_offset == 1
    mark(b, MarkerType.COMMIT, producer=2)
    assert b.log.last_stable_offset == 1, "the marker is not committed"
    b.close()
    b.open()
    b.log.note_high_watermark(2)
    assert b.log.last_stable_offset == 1, "nor after a restart"
    b.log.note_high_watermark(3)
    assert b.log.last_stable_offset == 3


def test_a_log_start_inside_a_transaction_is_stable(bench: MakeBench) -> None:
    b = bench()
    refill(b, 1)
    b.append(data(0, producer=2, txn=True))
    refill(b, 2, first=1)
    b.log.note_high_watermark(4)
    b.log.advance_log_start(3)
    assert b.log.last_stable_offset == 3


def test_a_replicated_log_knows_what_its_leader_knows(bench: MakeBench) -> None:
    leader, follower = bench(), None
    abort_two(leader)
    content = leader.read(0)
    leader.close()
    follower = type(leader)(leader.place, leader.config, name="f-0")
    write = follower.log.prepare(content, leader_epoch=0, wall_ms=0, origin=Origin.REPLICATED)
    assert write is not None
    write_fully(write.file, write.position, write.buffers)
    follower.log.complete(write)
    assert known(follower) == known(leader)
    assert follower.log.aborted_transactions(0, 10) == leader.log.aborted_transactions(0, 10)
    with pytest.raises(AlreadyStored):
        follower.append(data(0, producer=5))
    assert decode_all(follower.read(0)) == decode_all(content)


# --- found by review ---------------------------------------------------------------------------


def test_an_abort_inside_an_older_open_transaction_is_read_back_from_its_index(
    bench: MakeBench,
) -> None:
    """Its last stable offset lies below its own beginning."""
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


def test_a_truncation_does_not_take_back_what_is_stable(bench: MakeBench) -> None:
    b = bench()
    b.append(data(0, producer=2, txn=True))
    mark(b, MarkerType.COMMIT, producer=2)
    refill(b, 2)
    b.log.note_high_watermark(3)
    assert b.log.last_stable_offset == 3
    b.flush()
    b.log.truncate_to(3)
    assert b.log.high_watermark == 3
    assert b.log.last_stable_offset == 3


def test_a_truncation_removes_snapshots_that_the_log_lost_sight_of(bench: MakeBench) -> None:
    """On a full disk, or without a descriptor, those that were to go stay where they are."""
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
    b.log.truncate_to(1)
    assert names(b, ".snapshot") == [1], "of the cut, taken anew"


def test_a_flush_that_is_put_off_stores_its_snapshots_later(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 5)
    base = b.log.segment_bases[-1]
    assert base not in names(b, ".snapshot")
    b.log.put_flush_off(b.log.begin_flush())
    b.flush()
    assert base in names(b, ".snapshot")


def test_a_truncation_forgets_the_snapshots_of_a_flush_that_was_put_off(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 5)
    b.log.put_flush_off(b.log.begin_flush())
    b.log.truncate_to(1)
    refill(b, 2, producer=7)
    b.flush()
    assert names(b, ".snapshot") == [1], "of the cut, taken anew"
    crash(b, recovery_point=1)
    assert set(known(b)) == {1, 7}


def test_a_removal_behind_a_deep_truncation_loses_no_producer(bench: MakeBench) -> None:
    """It takes the snapshots of all that it cuts along."""
    b = bench(segment_bytes=300)
    refill(b, 3, producer=5)
    for sequence in range(30):
        refill(b, 1, first=sequence)
        b.flush()
    b.log.truncate_to(15)
    before = known(b)
    removal = b.log.begin_remove(len(b.log.segment_bases) - 1)
    perform_removal(b.place.files, removal)
    b.log.complete_remove(removal)
    crash(b, recovery_point=15)
    assert known(b) == before


def test_a_full_disk_takes_no_older_snapshot_for_one_that_it_did_not_store(
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


def test_an_index_whose_rebuilding_was_cut_short_is_not_believed(bench: MakeBench) -> None:
    """Half of it, cut between two entries, would look like all of it."""
    b = bench()
    aborted = abort_two(b)
    b.close()
    path = f"{b.folder}/{0:020d}.txnindex"
    files = b.place.files
    write_file(files, path, read_file(files, path)[:-1])

    class Broken:
        """Writes one entry of an index, then fails."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, position: int, buffers: Any) -> int:
            if position:
                raise OSError(5, "Input/output error")
            written: int = self.file.write(0, [memoryview(buffers[0])[:34]])
            return written

    class Breaking:
        def __getattr__(self, name: str) -> Any:
            return getattr(files, name)

        def open(self, path: str, *, create: bool = False) -> Any:
            file = files.open(path, create=create)
            return Broken(file) if ".txnindex" in path else file

    good = b.place
    b.place = type(good)(Breaking(), good.folder)
    with pytest.raises(OSError, match="Input/output"):
        b.open()
    b.place = good
    b.open()
    assert b.log.aborted_transactions(0, 10) == aborted


def test_a_recovery_point_older_than_every_snapshot_loses_no_producer(bench: MakeBench) -> None:
    """Segments may come and go faster than recovery points are stored."""
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
    assert b.log.producers.states.entry(5) is None, "only what the log says is known"
    refill(b, 1, first=second - 3)


@pytest.mark.parametrize("is_torn", [False, True])
def test_aborts_below_the_snapshot_that_a_recovery_begins_with_are_known(
    bench: MakeBench, is_torn: bool
) -> None:
    """The segment is read as a whole, its producers are taken from the middle on."""
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


def test_the_snapshot_below_the_high_watermark_stays(bench: MakeBench) -> None:
    """A truncation may go back to there."""
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
    b.log.truncate_to(12)
    with pytest.raises(AlreadyStored):
        b.append(data(2, producer=5))


def test_a_flush_that_is_put_off_forgets_no_snapshot_that_was_there(bench: MakeBench) -> None:
    """A segment that starts where the log was closed has its snapshot already."""
    b = bench()
    refill(b, 3)
    b.close()
    b.open()
    b.log.roll(0)
    b.log.put_flush_off(b.log.begin_flush())
    assert b.log.producers.snapshot_offsets == names(b, ".snapshot") == [3]
