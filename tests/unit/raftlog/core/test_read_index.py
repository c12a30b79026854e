"""Reads share heartbeat rounds, and a read is served only by a round after it (B21)."""

import pytest

from quorumlog.errors import Overloaded
from quorumlog.ids import Offset
from quorumlog.raftlog.leader import ReadIndexQueue
from quorumlog.raftlog.ready import ReadReady


def asked(*contexts: int, reads_max: int = 100) -> ReadIndexQueue:
    reads = ReadIndexQueue(reads_max=reads_max)
    for context in contexts:
        reads.add(context)
    return reads


def test_reads_that_wait_share_a_round() -> None:
    reads = asked(1, 2)
    wanted = [reads.wants_round]
    reads.begin_round(5, Offset(30))
    assert [*wanted, reads.wants_round] == [True, False]
    assert reads.confirm(4) == []
    assert reads.confirm(5) == [ReadReady(1, Offset(30)), ReadReady(2, Offset(30))]
    assert reads.confirm(5) == []


def test_a_read_that_comes_during_a_round_waits_for_the_next() -> None:
    reads = asked(1)
    reads.begin_round(5, Offset(30))
    reads.add(2)
    assert reads.confirm(5) == [ReadReady(1, Offset(30))]
    assert reads.wants_round
    reads.begin_round(6, Offset(40))
    assert reads.confirm(6) == [ReadReady(2, Offset(40))]


def test_a_later_round_confirms_the_earlier_ones() -> None:
    reads = asked(1)
    reads.begin_round(5, Offset(30))
    reads.add(2)
    reads.begin_round(7, Offset(40))
    assert reads.confirm(9) == [ReadReady(1, Offset(30)), ReadReady(2, Offset(40))]


def test_rounds_in_flight_are_bounded() -> None:
    reads = asked()
    for number in range(ReadIndexQueue.ROUNDS_MAX):
        reads.add(number)
        assert reads.wants_round
        reads.begin_round(number, Offset(0))
    reads.add(99)
    assert not reads.wants_round
    reads.confirm(0)
    assert reads.wants_round


def test_a_bound_on_the_reads_that_wait() -> None:
    reads = asked(1, 2, reads_max=2)
    with pytest.raises(Overloaded, match="2 reads wait for the quorum, the limit is 2"):
        reads.add(3)
    reads.begin_round(1, Offset(0))
    with pytest.raises(Overloaded):
        reads.add(3)
    reads.confirm(1)
    reads.add(3)


def test_every_read_that_is_not_confirmed_is_lost_once() -> None:
    reads = asked(1, 2)
    reads.begin_round(1, Offset(0))
    reads.add(3)
    assert reads.lose() == [1, 2, 3]
    assert reads.lose() == []
    assert reads.confirm(9) == []
    assert not reads.wants_round
