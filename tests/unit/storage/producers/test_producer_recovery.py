"""Producer state of a log across restarts, truncations, deleted segments and aborted
transactions."""

from collections.abc import Callable
from typing import Any

import pytest

from quorumlog.errors import InvalidRecord, OutOfOrderSequence
from quorumlog.records import MarkerType, decode_all
from quorumlog.storage import AppendOrigin
from quorumlog.storage.append import WriteFailed, write_fully
from quorumlog.storage.checkpoints import encode_epochs
from quorumlog.storage.producer_state import AlreadyStored
from quorumlog.storage.small_files import read_file, write_file

from .producer_batches import abort_two, crash, data, known, mark, names, refill, remove

MakeBench = Callable[..., Any]
FULL = OSError(28, "No space left on device")


def store_epochs(b: Any) -> None:
    """Store the epoch checkpoint, so that the opening does not read epochs from the log."""
    content = encode_epochs(b.log.epochs.entries())
    write_file(b.place.files, f"{b.folder}/leader-epoch-checkpoint", content)


# --- appends -----------------------------------------------------------------------------------


def test_duplicate_batch_is_not_stored_again(bench: MakeBench) -> None:
    b = bench()
    refill(b, 3)
    with pytest.raises(AlreadyStored) as stored:
        b.append(data(1))
    assert (stored.value.base_offset, stored.value.next_offset) == (1, 2)
    assert b.log.log_end_offset == 3


def test_duplicate_of_a_write_in_flight_waits_for_it(bench: MakeBench) -> None:
    b = bench()
    write = b.log.appender.prepare(data(0), leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT)
    copy = b.log.appender.prepare(data(0), leader_epoch=0, wall_ms=0, origin=AppendOrigin.CLIENT)
    assert write is not None
    assert copy is None
    b.log.appender.failed(write, WriteFailed(FULL, is_undone=True))
    assert b.append(data(0)) == 0


def test_rejected_batch_changes_no_state(bench: MakeBench) -> None:
    b = bench()
    b.append(data(0))
    with pytest.raises(OutOfOrderSequence):
        b.append(data(5))
    assert b.append(data(1)) == 1


def test_append_of_many_client_batches_with_a_producer_is_rejected(bench: MakeBench) -> None:
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

    class OpenRecorder:
        def __getattr__(self, name: str) -> Any:
            return getattr(files, name)

        def open_readonly(self, path: str) -> Any:
            reads.append(path.rpartition(".")[2])
            return files.open_readonly(path)

    b.place = type(b.place)(OpenRecorder(), b.place.folder)
    b.open()
    assert known(b) == before
    assert reads.count("snapshot") == 1
    assert reads.count("log") == 1, "every opening reads the end of the active segment"
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
    assert b.log.producers.states.undecided.first_offset == 15


def test_recovery_reads_only_above_the_snapshot_of_the_recovery_point(bench: MakeBench) -> None:
    """Otherwise the recovery would read the damaged batch below it."""
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
def test_corrupt_snapshot_is_skipped(bench: MakeBench, is_clean: bool) -> None:
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


def test_log_without_snapshots_is_replayed(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 9)
    before = known(b)
    b.close()
    for offset in names(b, ".snapshot"):
        b.place.files.remove(f"{b.folder}/{offset:020d}.snapshot")
    b.open()
    assert known(b) == before


def test_older_snapshots_are_deleted(bench: MakeBench) -> None:
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


def test_recovery_removes_snapshots_above_the_log_end(bench: MakeBench) -> None:
    b = bench(segment_bytes=300)
    refill(b, 15)
    b.close()
    cut_at = b.log.segment_bases[2]
    for base in b.log.segment_bases[2:]:
        b.place.files.remove(f"{b.folder}/{base:020d}.log")
    crash(b)
    assert b.log.log_end_offset == cut_at
    assert max(names(b, ".snapshot")) <= cut_at, "a snapshot at the new log end is valid"
    refill(b, 1, first=cut_at)


# --- truncation --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [13, 7, 1])
def test_truncation_restores_producer_state_below_it(bench: MakeBench, offset: int) -> None:
    b = bench(segment_bytes=300)
    refill(b, offset)
    before = known(b)
    refill(b, 15 - offset, first=offset)
    b.append(data(0, producer=9, txn=True))
    b.flush()
    b.truncate(offset)
    assert known(b) == before
    assert b.log.producers.states.undecided.first_offset is None
    assert all(there <= offset for there in names(b, ".snapshot"))
    refill(b, 3, first=offset)
    b.close()
    b.open()
    with pytest.raises(AlreadyStored):
        b.append(data(offset))


def test_truncation_above_all_producers_reads_no_batches(bench: MakeBench) -> None:
    b = bench()
    refill(b, 2)
    states = b.log.producers.states
    for _ in range(3):
        b.append(data(-1, producer=-1, epoch=-1))
    b.truncate(3)
    assert b.log.producers.states is states


# --- the start of the log ----------------------------------------------------------------------


def test_a_producer_is_known_after_its_batches_were_removed(bench: MakeBench) -> None:
    """R22: retries after the retention of the segments."""
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
    """The batches between it and the log start are missing, so sequences would have gaps."""
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
def test_truncation_removes_aborted_transactions_above_it(
    bench: MakeBench, segment_bytes: int
) -> None:
    b = bench(segment_bytes=segment_bytes)
    aborted = abort_two(b)
    b.flush()
    b.truncate(6)
    assert b.log.aborted_transactions(0, 10) == aborted[:1]
    assert b.log.producers.states.undecided.first_offset == 1
    assert mark(b, MarkerType.COMMIT, producer=2) == 6
    b.close()
    b.open()
    assert b.log.aborted_transactions(0, 10) == aborted[:1]


def test_deleted_segments_delete_their_transaction_index(bench: MakeBench) -> None:
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
    assert b.log.last_stable_offset == 0, "no batch is committed"
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
    b.log.cleanup.advance_log_start(3)
    assert b.log.last_stable_offset == 3


def test_follower_has_the_producer_state_of_its_leader(bench: MakeBench) -> None:
    leader, follower = bench(), None
    abort_two(leader)
    content = leader.read(0)
    leader.close()
    follower = type(leader)(leader.place, leader.config, name="f-0")
    write = follower.log.appender.prepare(
        content, leader_epoch=0, wall_ms=0, origin=AppendOrigin.REPLICATED
    )
    assert write is not None
    write_fully(write.file, write.position, write.buffers)
    follower.log.appender.complete(write)
    assert known(follower) == known(leader)
    assert follower.log.aborted_transactions(0, 10) == leader.log.aborted_transactions(0, 10)
    with pytest.raises(AlreadyStored):
        follower.append(data(0, producer=5))
    assert decode_all(follower.read(0)) == decode_all(content)
