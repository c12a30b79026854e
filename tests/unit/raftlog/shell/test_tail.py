"""The newest batches in memory match the core's view of the log, within their bound."""

import pytest

from quorumlog.ids import Offset
from quorumlog.raftlog import Entry, LogView
from quorumlog.raftlog.shell.log_tail import LogTail

from .entries import entry


def filled(*entries: Entry, bytes_max: int = 10_000) -> tuple[LogTail, LogView]:
    tail, log = LogTail(Offset(0), bytes_max=bytes_max), LogView()
    for each in entries:
        tail.put(each)
        log.append(each.base_offset, each.next_offset, each.epoch, each.size)
    return tail, log


def test_batches_are_returned_whole_and_in_order() -> None:
    entries = (entry(0, 2), entry(2), entry(3, 5))
    tail, _ = filled(*entries)
    assert tail.between(Offset(0), Offset(8)) == entries
    assert tail.between(Offset(2), Offset(3)) == entries[1:2]
    assert list(tail.following(Offset(2))) == list(entries[1:])


def test_only_durable_batches_are_evicted_beyond_the_bound() -> None:
    tail, _ = filled(*(entry(base) for base in range(10)), bytes_max=300)
    assert tail.start_offset == 0
    tail.durable(Offset(4))
    assert tail.start_offset == 4
    tail.durable(Offset(10))
    assert (tail.start_offset, tail.size) == (7, 300)
    assert tail.between(Offset(6), Offset(8)) is None


def test_a_batch_larger_than_the_bound_stays_until_it_is_durable() -> None:
    tail, _ = filled(entry(0, size=1000), bytes_max=300)
    assert tail.between(Offset(0), Offset(1)) is not None
    tail.durable(Offset(1))
    assert tail.between(Offset(0), Offset(1)) is None
    assert tail.start_offset == tail.end_offset == 1


def test_a_followers_new_entries_are_kept() -> None:
    tail, log = filled(entry(0))
    new = (entry(1), entry(2, epoch=2))
    for each in new:
        log.append(each.base_offset, each.next_offset, each.epoch, each.size)
    tail.follow(log, new, durable_end=Offset(0))
    assert tail.between(Offset(1), Offset(3)) == new


def test_entries_that_the_core_did_not_take_are_not_kept() -> None:
    tail, log = filled(entry(0))
    tail.follow(log, (entry(5),), durable_end=Offset(1))
    assert tail.end_offset == 1


@pytest.mark.parametrize("durable", [0, 2, 4])
def test_conflicting_entries_replace_kept_and_evicted_ones(durable: int) -> None:
    """Also durable and evicted entries: the disk has the old bytes for a while."""
    tail, log = filled(*(entry(base) for base in range(4)), bytes_max=100)
    tail.durable(Offset(durable))
    log.truncate_to(Offset(1))
    sent = (entry(0), entry(1, epoch=2), entry(2, epoch=2))
    for each in sent[1:]:
        log.append(each.base_offset, each.next_offset, each.epoch, each.size)
    tail.follow(log, sent, durable_end=Offset(min(durable, 1)))
    assert tail.end_offset == 3
    assert tail.between(Offset(1), Offset(3)) == sent[1:]


def test_repeated_entries_change_nothing() -> None:
    entries = tuple(entry(base) for base in range(4))
    tail, log = filled(*entries, bytes_max=200)
    tail.durable(Offset(2))
    tail.follow(log, entries[1:3], durable_end=Offset(2))
    assert (tail.start_offset, tail.end_offset) == (2, 4)
