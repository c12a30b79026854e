"""Batches, boundaries and epochs of the log as consensus sees it."""

import pytest

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog import LogView


def view() -> LogView:
    """Epoch 1: [0,1) [1,4); epoch 3: [4,6); epoch 4: [6,7)."""
    batches = [(0, 1, 1), (1, 4, 1), (4, 6, 3), (6, 7, 4)]
    return LogView.of(Offset(0), [(Offset(b), Offset(n), Epoch(e)) for b, n, e in batches])


def test_epoch_of_every_offset() -> None:
    assert [view().epoch_at(Offset(o)) for o in range(7)] == [1, 1, 1, 1, 3, 3, 4]


def test_end_offset_for_the_largest_epoch_at_or_below() -> None:
    ends = [view().end_offset_for(Epoch(epoch)) for epoch in range(6)]
    assert ends == [(0, 0), (1, 4), (1, 4), (3, 6), (4, 7), (4, 7)]


def test_boundaries_are_where_batches_begin_and_the_end() -> None:
    log = view()
    assert [o for o in range(8) if log.is_boundary(Offset(o))] == [0, 1, 4, 6, 7]
    assert [log.boundary_at_or_below(Offset(o)) for o in range(8)] == [0, 1, 1, 1, 4, 4, 6, 7]


def test_truncation_forgets_batches_and_epochs() -> None:
    log = view()
    log.truncate_to(Offset(4))
    log.check_invariants()
    assert (log.end_offset, log.last_epoch) == (4, 1)
    log.append(Offset(4), Offset(5), Epoch(5))
    assert log.end_offset_for(Epoch(4)) == (1, 4)
    log.truncate_to(Offset(0))
    assert (log.end_offset, log.last_epoch) == (0, 0)


def test_a_batch_is_never_split() -> None:
    with pytest.raises(AssertionError, match="inside a batch"):
        view().truncate_to(Offset(2))


@pytest.mark.parametrize(("base", "next_offset", "epoch"), [(8, 9, 4), (7, 7, 4), (7, 8, 3)])
def test_gaps_empty_batches_and_older_epochs_are_bugs(
    base: int, next_offset: int, epoch: int
) -> None:
    with pytest.raises(AssertionError):
        view().append(Offset(base), Offset(next_offset), Epoch(epoch))
