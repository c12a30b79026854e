"""Leader epochs: start offsets and end offsets."""

from quorumlog.storage.leader_epochs import EpochCache


def test_an_epoch_starts_where_its_first_batch_lies() -> None:
    epochs = EpochCache()
    assert epochs.assign(3, 0)
    assert not epochs.assign(3, 10)
    assert epochs.assign(5, 20)
    assert not epochs.assign(-1, 30)
    assert epochs.entries() == [(3, 0), (5, 20)]
    assert epochs.latest == 5
    assert [epochs.epoch_at(offset) for offset in (0, 19, 20, 99)] == [3, 3, 5, 5]


def test_an_epoch_ends_where_the_next_one_starts() -> None:
    """KIP-101: the last epoch ends at the log end, an unknown one between at the end of the one
    before."""
    epochs = EpochCache([(3, 0), (5, 20)])
    assert epochs.end_offset_for(3, 50) == (3, 20)
    assert epochs.end_offset_for(4, 50) == (3, 20)
    assert epochs.end_offset_for(5, 50) == (5, 50)


def test_end_offset_of_a_newer_epoch_is_unknown() -> None:
    assert EpochCache([(3, 0)]).end_offset_for(4, 50) == (-1, -1)
    assert EpochCache().end_offset_for(0, 0) == (-1, -1)
    assert EpochCache([(3, 0)]).end_offset_for(-1, 50) == (-1, -1)


def test_an_epoch_that_was_deleted_ends_where_the_log_starts() -> None:
    assert EpochCache([(3, 70), (5, 90)]).end_offset_for(2, 100) == (2, 70)


def test_truncating_the_end_drops_epochs_that_start_there_or_later() -> None:
    epochs = EpochCache([(1, 0), (2, 10), (3, 20)])
    assert epochs.truncate_end(20)
    assert epochs.entries() == [(1, 0), (2, 10)]
    assert not epochs.truncate_end(11)
    assert epochs.truncate_end(0)
    assert epochs.entries() == []
    assert epochs.epoch_at(0) == -1


def test_truncating_the_start_keeps_the_epoch_that_spans_it() -> None:
    epochs = EpochCache([(1, 0), (2, 10), (3, 20)])
    assert epochs.truncate_start(15)
    assert epochs.entries() == [(2, 15), (3, 20)]
    assert not epochs.truncate_start(15)
    assert epochs.truncate_start(20)
    assert epochs.entries() == [(3, 20)]


def test_an_epoch_without_batches_gives_way_to_the_next() -> None:
    """This happens after every record below the log end was deleted."""
    epochs = EpochCache([(0, 0), (1, 5)])
    epochs.truncate_start(9)
    assert epochs.assign(2, 9)
    assert epochs.entries() == [(2, 9)]
