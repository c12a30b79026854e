"""The log view of the consensus core: batch boundaries, epochs, sizes."""

import pytest
from tests.kit.raft_member import batches_of, log_view

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import LOG_START, Entry, EntryKind, LogEnd, LogView, SnapshotId


def end(offset: int, epoch: int) -> LogEnd:
    return LogEnd(Epoch(epoch), Offset(offset))


def view(*batches: tuple[int, int, int, int], start: LogEnd = LOG_START) -> LogView:
    """Build a view of batches (base offset, next offset, epoch, size)."""
    log = log_view(
        start, [(Offset(base), Offset(after), Epoch(of), size) for base, after, of, size in batches]
    )
    log.check_invariants()
    return log


def sample() -> LogView:
    """Return a view with epochs 1, 1, 3, 5 and batches of 2, 1, 3 and 1 records."""
    return view((0, 2, 1, 10), (2, 3, 1, 20), (3, 6, 3, 30), (6, 7, 5, 40))


def test_an_empty_log_ends_where_it_starts() -> None:
    log = view()
    assert (log.start_offset, log.end_offset, log.last_epoch) == (0, 0, 0)
    assert log.end == LOG_START
    assert log.is_boundary(Offset(0))
    assert log.range_end(Offset(0), bytes_max=100) == (0, 0)


def test_empty_log_behind_a_snapshot_has_its_epoch() -> None:
    """B25: an epoch below the log start must not read as 0."""
    log = view(start=end(7, 5))
    assert log.end == end(7, 5)
    assert log.epoch_before(Offset(7)) == 5
    assert log.end_offset_for(Epoch(9)) == end(7, 5)


@pytest.mark.parametrize(
    ("shorter", "longer"),
    [
        (end(9, 2), end(1, 3)),
        (end(1, 3), end(2, 3)),
        (LOG_START, end(1, 1)),
    ],
)
def test_logs_are_ordered_by_epoch_then_by_length(shorter: LogEnd, longer: LogEnd) -> None:
    """B9."""
    assert shorter < longer
    assert not longer < shorter


@pytest.mark.parametrize(
    ("offset", "is_boundary", "below"),
    [
        (0, True, 0),
        (1, False, 0),
        (2, True, 2),
        (3, True, 3),
        (4, False, 3),
        (6, True, 6),
        (7, True, 7),
    ],
)
def test_a_boundary_is_where_a_batch_begins_or_the_log_ends(
    offset: int, is_boundary: bool, below: int
) -> None:
    assert sample().is_boundary(Offset(offset)) is is_boundary
    assert sample().boundary_at_or_below(Offset(offset)) == below


@pytest.mark.parametrize(("offset", "epoch"), [(0, 1), (1, 1), (2, 1), (3, 3), (5, 3), (6, 5)])
def test_a_record_has_the_epoch_of_its_batch(offset: int, epoch: int) -> None:
    assert sample().epoch_at(Offset(offset)) == epoch
    assert sample().epoch_before(Offset(offset + 1)) == epoch


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (0, LOG_START),
        (1, end(3, 1)),
        (2, end(3, 1)),
        (3, end(6, 3)),
        (4, end(6, 3)),
        (5, end(7, 5)),
        (99, end(7, 5)),
    ],
)
def test_the_end_of_an_epoch_is_where_a_later_one_begins(asked: int, found: LogEnd) -> None:
    assert sample().end_offset_for(Epoch(asked)) == found


@pytest.mark.parametrize(
    ("start", "bytes_max", "found"),
    [
        (0, 1, (2, 10)),
        (0, 10, (2, 10)),
        (0, 29, (2, 10)),
        (0, 30, (3, 30)),
        (0, 99, (6, 60)),
        (0, 100, (7, 100)),
        (3, 30, (6, 30)),
        (3, 1, (6, 30)),
        (6, 1, (7, 40)),
        (7, 1, (7, 0)),
    ],
)
def test_a_range_is_as_many_whole_batches_as_fit_but_one_at_least(
    start: int, bytes_max: int, found: tuple[int, int]
) -> None:
    assert sample().range_end(Offset(start), bytes_max=bytes_max) == found


def test_truncating_drops_batches_epochs_and_bytes() -> None:
    log = sample()
    log.truncate_to(Offset(3))
    log.check_invariants()
    assert log.end == end(3, 1)
    assert log.range_end(Offset(0), bytes_max=1000) == (3, 30)
    log.append(Offset(3), Offset(4), Epoch(2), 7)
    assert log.end == end(4, 2)
    assert log.range_end(Offset(0), bytes_max=36) == (3, 30)
    assert log.range_end(Offset(0), bytes_max=37) == (4, 37)


def test_truncating_at_the_end_or_to_nothing() -> None:
    log = sample()
    log.truncate_to(Offset(7))
    assert log.end == end(7, 5)
    log.truncate_to(Offset(0))
    log.check_invariants()
    assert log.end == LOG_START


def test_cleaning_keeps_the_rest_and_the_epoch_before() -> None:
    log = sample()
    log.clean_to(end(2, 1))
    log.check_invariants()
    assert (log.start, log.end) == (end(2, 1), end(7, 5))
    assert log.end_offset_for(Epoch(2)) == end(3, 1)
    assert log.end_offset_for(Epoch(0)) == end(2, 1)
    log.clean_to(end(6, 3))
    log.check_invariants()
    assert log.epoch_before(Offset(6)) == 3
    assert log.epoch_at(Offset(6)) == 5
    assert log.range_end(Offset(6), bytes_max=1) == (7, 40)


def test_cleaning_everything_leaves_an_empty_log_at_its_end() -> None:
    log = sample()
    log.clean_to(end(7, 5))
    log.check_invariants()
    assert (log.start_offset, log.end) == (7, end(7, 5))
    log.append(Offset(7), Offset(9), Epoch(5), 3)
    log.check_invariants()
    assert log.end == end(9, 5)
    assert log.range_end(Offset(7), bytes_max=100) == (9, 3)


def test_a_snapshot_of_another_epoch_does_not_clean() -> None:
    empty = view(start=end(7, 5))
    empty.clean_to(end(7, 5))
    assert empty.end == end(7, 5)
    with pytest.raises(AssertionError, match="another epoch"):
        sample().clean_to(end(3, 2))


def test_a_reset_log_is_empty_at_the_snapshots_end() -> None:
    log = sample()
    log.reset(SnapshotId(Offset(20), Epoch(8)).log_end)
    log.check_invariants()
    assert (log.start_offset, log.end) == (20, end(20, 8))
    log.append(Offset(20), Offset(21), Epoch(8), 1)
    assert batches_of(log, Offset(20)) == [(20, 21, 8)]


def test_batches_are_listed_from_a_boundary_on() -> None:
    assert batches_of(sample(), Offset(2)) == [(2, 3, 1), (3, 6, 3), (6, 7, 5)]
    assert batches_of(sample(), Offset(7)) == []


@pytest.mark.parametrize("offset", [1, 4, 8])
def test_nothing_splits_a_batch(offset: int) -> None:
    with pytest.raises(AssertionError, match=f"offset {offset} is inside a batch"):
        sample().truncate_to(Offset(offset))
    with pytest.raises(AssertionError, match="inside a batch"):
        sample().clean_to(end(offset, 1))


@pytest.mark.parametrize(
    ("base", "after", "epoch", "says"),
    [
        (8, 9, 5, "log end 7"),
        (6, 9, 5, "log end 7"),
        (7, 7, 5, "empty batch"),
        (7, 8, 4, "epoch 4 after epoch 5"),
    ],
)
def test_a_batch_fits_behind_the_last_one(base: int, after: int, epoch: int, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        sample().append(Offset(base), Offset(after), Epoch(epoch), 1)


@pytest.mark.parametrize("offset", [1, 9])
def test_lookups_outside_of_the_log_find_nothing(offset: int) -> None:
    log = view((2, 3, 1, 1), start=end(2, 1))
    with pytest.raises(AssertionError, match="outside the log"):
        log.epoch_at(Offset(offset))
    with pytest.raises(AssertionError, match="outside the log"):
        log.boundary_at_or_below(Offset(offset))


def test_entry_has_its_next_offset_and_size() -> None:
    entry = Entry(
        kind=EntryKind.DATA, epoch=Epoch(1), base_offset=Offset(5), count=3, payload=b"abcd"
    )
    assert (entry.next_offset, entry.size) == (8, 4)
