"""Decisions of a leader about its quorum: commits, reads, transfers, snapshots to send."""

from collections.abc import Callable

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import SnapshotFile, voter, voters

from quorumlog.errors import Overloaded, VoterLagging
from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.leader import ReadIndexQueue
from quorumlog.raftlog.log_view import SnapshotId
from quorumlog.raftlog.messages import (
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
    TimeoutNow,
)


def acknowledge(quorum: Quorum, node_id: int, end: int) -> None:
    """The node acknowledges the leader's log up to the offset as durable."""
    quorum.step(
        AppendResponse(
            sender=voter(node_id),
            receiver=voter(1),
            epoch=Epoch(1),
            match_end=Offset(end),
            received_end=Offset(end),
        )
    )


def test_a_leader_that_removed_itself_leads_while_only_what_was_before_is_committed() -> None:
    quorum = quorum_with_leader()
    before = quorum.propose(1, "a").next_offset
    quorum.remove_voter(1, 1)
    quorum.persist(1)
    for node_id in (2, 3):
        acknowledge(quorum, node_id, before)
    assert (quorum[1].high_watermark, quorum[1].voters.latest_offset) == (before, before)
    assert quorum[1].is_leader
    for node_id in (2, 3):
        acknowledge(quorum, node_id, before + 1)
    assert not quorum[1].is_leader


def test_half_of_the_voters_confirm_no_read_until_they_are_a_majority() -> None:
    quorum = quorum_with_leader(1, 2, 3, 4)
    quorum.split({1, 2}, {3}, {4})
    quorum.read(1, 7)
    quorum.settle()
    assert quorum.members[1].reads == []
    quorum.remove_voter(1, 4)
    quorum.settle()
    assert [context for context, _ in quorum.members[1].reads] == [7]


def test_transfer_aborted_between_two_heartbeats_sends_none() -> None:
    quorum = quorum_with_leader()
    quorum.isolate(2)
    quorum.propose(1, "a")
    quorum.settle()
    due_ms = quorum.raft(1).next_deadline_ms()
    assert due_ms is not None
    quorum.members[1].now_ms = due_ms - 50
    quorum.transfer(1, 2)
    quorum.run(950)
    due_ms = quorum.raft(1).next_deadline_ms()
    assert due_ms == quorum.members[1].now_ms + 50, "the deadline of the transfer"
    sent: list[Heartbeat] = []
    quorum.sent = lambda node_id, m: sent.append(m) if isinstance(m, Heartbeat) else None
    quorum.tick(50, 1)
    assert sent == []
    assert quorum.raft(1).next_deadline_ms() == due_ms + 50
    quorum.propose(1, "b")


def test_successor_gets_one_timeout_now() -> None:
    quorum = quorum_with_leader()
    requests: list[TimeoutNow] = []
    quorum.sent = lambda node_id, m: requests.append(m) if isinstance(m, TimeoutNow) else None
    quorum.transfer(1, 2)
    quorum.flying.clear()
    for _ in range(3):
        quorum.tick(100, 1)
        quorum.read(1, 1)
    assert [m.receiver for m in requests] == [voter(2)]


def test_a_leader_whose_log_is_one_snapshot_sends_that_one() -> None:
    """Node 3 received everything in a snapshot; the other nodes have empty logs."""
    quorum = Quorum()
    content = SnapshotFile.of(["a", "b"], voters(1, 2, 3)).content
    quorum.step(
        SnapshotChunk(
            sender=voter(1),
            receiver=voter(3),
            epoch=Epoch(1),
            snapshot=SnapshotId(Offset(4), Epoch(1)),
            voters=voters(1, 2, 3),
            size=len(content),
            position=0,
            content=content,
        )
    )
    quorum.settle()
    assert len(quorum[3].snapshots) == 1
    quorum.elect(3)
    quorum.run(500)
    for node_id in (1, 2):
        assert quorum.members[node_id].state == ["a", "b"]
        assert quorum[node_id].log.end_offset == quorum[3].log.end_offset


def test_replaced_snapshot_is_followed_by_the_newest() -> None:
    quorum = quorum_with_leader(snapshot_chunk_bytes=8)
    quorum.isolate(3)
    for value in "ab":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    quorum.heal()
    quorum.tick(100, 1)
    quorum.deliver_all(to=3)
    quorum.deliver_all(to=1)
    assert isinstance(quorum.flying[-1], SnapshotChunk)
    taken: list[SnapshotId] = []
    for value in "cd":
        quorum.propose(1, value)
        quorum.flying = [m for m in quorum.flying if quorum.target(m) == 2]
        quorum.settle()
        taken.append(quorum.snapshot(1))
    pieces: list[SnapshotId] = []
    quorum.sent = lambda node_id, m: (
        pieces.append(m.snapshot) if isinstance(m, SnapshotChunk) else None
    )
    quorum.run(500)
    assert set(pieces) == {taken[1]}
    assert quorum.members[3].state == list("abcd")


def test_lost_reads_free_their_capacity() -> None:
    reads = ReadIndexQueue(reads_max=2)
    for context in (1, 2):
        reads.add(context)
    assert not reads.has_round, "no round was started"
    assert reads.lose() == [1, 2]
    for context in (3, 4):
        reads.add(context)
    with pytest.raises(Overloaded):
        reads.add(5)


def test_queued_read_starts_a_round_although_the_response_shows_a_loss() -> None:
    """The response arrives after an acknowledgement of more entries."""
    quorum = quorum_with_leader()
    before = max(m.round for m in beats_of(quorum, lambda: quorum.tick(100, 1)))
    quorum.flying.clear()
    for context in range(5):
        quorum.read(1, context)
    assert max(m.round for m in quorum.flying if isinstance(m, Heartbeat)) == before + 4
    quorum.unreachable(1, 2)
    acknowledge(quorum, 2, quorum[1].log.end_offset)
    answer = HeartbeatResponse(
        sender=voter(2),
        receiver=voter(1),
        epoch=Epoch(1),
        round=before + 1,
        match_end=None,
        received_end=quorum[1].log.end_offset,
    )
    rounds = {m.round for m in beats_of(quorum, lambda: quorum.step(answer))}
    assert [context for context, _ in quorum.members[1].reads] == [0]
    assert rounds == {before + 5}


def beats_of(quorum: Quorum, act: Callable[[], None]) -> list[Heartbeat]:
    """Return the heartbeats sent since the last call."""
    sent: list[Heartbeat] = []
    quorum.sent = lambda node_id, m: sent.append(m) if isinstance(m, Heartbeat) else None
    act()
    return sent


def test_change_that_the_new_voters_cannot_commit_names_the_silent_voter() -> None:
    quorum = quorum_with_leader()
    quorum.crash(3)
    quorum.run(1_600)
    with pytest.raises(VoterLagging, match=r"node 3: no response for 1[67]\d\d ms"):
        quorum.remove_voter(1, 2)
