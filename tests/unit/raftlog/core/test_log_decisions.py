"""Epochs of a log that was cleaned at any offset."""

import pytest
from tests.kit.raft_member import log_view

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import LOG_START, LogEnd, LogView


def log(*epochs: int) -> LogView:
    """Return a log with a batch of one record and ten bytes for each epoch."""
    return log_view(
        LOG_START,
        ((Offset(base), Offset(base + 1), Epoch(epoch), 10) for base, epoch in enumerate(epochs)),
    )


@pytest.mark.parametrize("epochs", [(1, 1, 2, 2, 3, 3), (70, 70, 80, 80, 90, 90), (1,) * 6])
@pytest.mark.parametrize("start", range(7))
def test_rest_of_a_cleaned_log_is_unchanged(epochs: tuple[int, ...], start: int) -> None:
    whole, cleaned = log(*epochs), log(*epochs)
    place = LogEnd(whole.epoch_before(Offset(start)), Offset(start))
    cleaned.clean_to(place)
    cleaned.check_invariants()
    assert (cleaned.start, cleaned.end) == (place, whole.end)
    for offset in range(start, 6):
        assert cleaned.epoch_at(Offset(offset)) == epochs[offset]
    for offset in range(start, 7):
        assert cleaned.epoch_before(Offset(offset)) == whole.epoch_before(Offset(offset))
    for epoch in {place.epoch, *epochs[start:]}:
        assert cleaned.end_offset_for(Epoch(epoch)) == whole.end_offset_for(Epoch(epoch))
    assert cleaned.end_offset_for(Epoch(0)) == place
    cleaned.append(Offset(6), Offset(7), Epoch(99), 10)
    cleaned.truncate_to(Offset(6))
    assert cleaned.end == whole.end
    cleaned.truncate_to(place.offset)
    assert cleaned.end == place
