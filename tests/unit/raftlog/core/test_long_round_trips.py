"""Links with a round trip above the heartbeat interval: lost messages are sent again."""

from typing import Any

import pytest
from tests.kit.quorum import Quorum
from tests.kit.raft_member import voter

from quorumlog.raftlog.messages import AppendRequest, Message, SnapshotChunk

DELAY_TICKS = 4
"""One way, in heartbeats: a leader sends eight rounds before the first is answered."""


class SlowLinks:
    """Links that deliver in order, each message some ticks late, and lose messages on request."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.under_way: list[tuple[int, Message]] = []
        self.now = 0
        self.sent = 0

    def run(self, ticks: int, *, loses: type[Message] | None = None) -> None:
        """Run so many ticks. Messages of type `loses` to node 3 are lost."""
        for _ in range(ticks):
            self.now += 1
            self.quorum.tick(100)
            while self.quorum.persist(1) or self.quorum.persist(2) or self.quorum.persist(3):
                pass
            for message in self.quorum.flying:
                to_three = self.quorum.target(message) == 3
                self.sent += to_three and isinstance(message, AppendRequest | SnapshotChunk)
                if loses is None or not (to_three and isinstance(message, loses)):
                    self.under_way.append((self.now + DELAY_TICKS, message))
            self.quorum.flying.clear()
            due = [message for at, message in self.under_way if at <= self.now]
            self.under_way = [each for each in self.under_way if each[0] > self.now]
            for message in due:
                self.quorum.flying.append(message)
                self.quorum.deliver(message)


def slow_quorum(**options: Any) -> tuple[Quorum, SlowLinks]:
    quorum = Quorum(election_timeout_ms_min=3_000, election_timeout_ms_max=4_000, **options)
    quorum.elect(1)
    return quorum, SlowLinks(quorum)


def test_a_lost_request_is_sent_again() -> None:
    quorum, links = slow_quorum()
    links.run(20)
    quorum.propose(1, "a")
    links.run(3, loses=AppendRequest)
    links.run(40)
    assert [quorum.members[n].state for n in (1, 2, 3)] == [["a"]] * 3
    assert quorum[1].epoch == 1


def test_a_lost_probe_is_sent_again() -> None:
    quorum, links = slow_quorum()
    quorum.unreachable(1, 3)
    quorum.restart(3)
    links.run(12, loses=AppendRequest)
    quorum.propose(1, "a")
    links.run(40)
    assert quorum.members[3].state == ["a"]


def test_a_lost_piece_of_a_snapshot_is_sent_again() -> None:
    quorum, links = slow_quorum(snapshot_chunk_bytes=20)
    quorum.isolate(3)
    for value in "abc":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    quorum.heal()
    links.run(15, loses=SnapshotChunk)
    links.run(80)
    assert quorum.members[3].state == ["a", "b", "c"]


def test_nothing_that_was_not_lost_is_sent_again() -> None:
    quorum, links = slow_quorum()
    links.run(20)
    links.sent = 0
    for value in "abcdefgh":
        quorum.propose(1, value)
        links.run(1)
    links.run(40)
    assert quorum.members[3].state == list("abcdefgh")
    assert links.sent == 8


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_one_loss_is_repaired_once(lost: int) -> None:
    """Each of the eight responses in flight reports the same loss."""
    quorum, links = slow_quorum()
    links.run(20)
    for value in "abcdefgh"[:lost]:
        quorum.propose(1, value)
    links.sent = 0
    links.run(1, loses=AppendRequest)
    links.run(60)
    assert quorum[3].log.end_offset == quorum[1].log.end_offset
    assert links.sent <= lost + 2
    assert voter(3) in quorum[1].voters.latest
