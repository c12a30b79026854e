"""Ongaro's dissertation, one test for each rule: 5 (snapshots), 6.4 (reads), 9.6 (pre-vote)."""

from itertools import pairwise
from typing import Any

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import voter, voters

from quorumlog.errors import NotController
from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog.messages import Heartbeat, SnapshotChunk, VoteRequest, VoteResponse
from quorumlog.raftlog.voters import Voter

# --- 5: snapshots --------------------------------------------------------------------------------


def cleaned(**options: Any) -> Quorum:
    """Node 1 leads, and its log starts above the end of node 3's log."""
    quorum = Quorum(**options)
    quorum.elect(1)
    quorum.isolate(3)
    for value in "abc":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    assert quorum[1].log.start_offset > quorum[3].log.end_offset
    quorum.heal()
    return quorum


def test_a_snapshot_names_the_last_offset_and_epoch_that_it_replaces() -> None:
    """5.1: last included index and term; here an end, exclusive (B28)."""
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.settle()
    taken = quorum.snapshot(1)
    assert taken.log_end == quorum[1].log.end


def test_a_snapshot_holds_the_voters_where_it_ends() -> None:
    """5.1: "the latest configuration in the log as of last included index" (B14)."""
    quorum = quorum_with_leader(observers=(4,))
    quorum.add_voter(1, 4)
    before = quorum.snapshot(1)
    quorum.settle()
    after = quorum.snapshot(1)
    files = quorum.members[1].disk.snapshots
    assert files[before].voters == voters(1, 2, 3), "the change is not below its end"
    assert files[after].voters == voters(1, 2, 3, 4)


def test_the_log_is_kept_from_the_older_of_two_snapshots() -> None:
    """5.1.3: a slow follower does not need a snapshot at once."""
    quorum = quorum_with_leader()
    ends = []
    for value in "abc":
        quorum.propose(1, value)
        quorum.settle()
        ends.append(quorum.snapshot(1))
    assert quorum[1].snapshots == tuple(ends[1:])
    assert quorum[1].log.start == ends[1].log_end
    assert set(quorum.members[1].disk.snapshots) == set(ends[1:])


def test_a_follower_that_is_too_far_behind_gets_the_snapshot() -> None:
    """Figure 5.3, InstallSnapshot."""
    quorum = cleaned(snapshot_chunk_bytes=10)
    quorum.run(300)
    assert quorum.members[3].state == ["a", "b", "c"]
    assert quorum[3].high_watermark == quorum[1].high_watermark


def test_pieces_of_a_snapshot_are_taken_in_order_at_their_offsets() -> None:
    """Figure 5.3, receiver 2 to 4."""
    quorum = cleaned(snapshot_chunk_bytes=10)
    positions = []
    quorum.sent = lambda node_id, m: (
        positions.append((m.position, len(m.content))) if isinstance(m, SnapshotChunk) else None
    )
    quorum.run(300)
    assert positions[0] == (0, 10)
    for (position, size), (following, _) in pairwise(positions):
        assert following == position + size


def test_a_snapshot_whose_end_is_in_the_log_leaves_the_rest_of_it() -> None:
    """Figure 5.3, receiver 6: "if existing log entry has same index and term as snapshot's last
    included entry, retain log entries following it"."""
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.settle()
    taken = quorum.snapshot(1)
    quorum.propose(1, "b")
    quorum.settle()
    quorum.step(
        SnapshotChunk(
            sender=voter(1),
            receiver=voter(2),
            epoch=quorum[1].epoch,
            snapshot=taken,
            voters=voters(1, 2, 3),
            size=5,
            position=0,
            content=b"12345",
        )
    )
    assert quorum.members[2].writing is None
    assert quorum.members[2].state == ["a", "b"]


def test_an_installed_snapshot_takes_the_place_of_a_log_that_differs() -> None:
    """Figure 5.3, receiver 7 and 8: "discard the entire log, reset state machine"."""
    quorum = Quorum()
    quorum.prepare(3, [1] * 9)
    quorum.elect(1)
    for _ in range(9):
        quorum.propose(1, "x")
        quorum.settle()
    quorum.snapshot(1)
    quorum.propose(1, "y")
    quorum.settle()
    quorum.snapshot(1)
    quorum.members[3].disk.hard_state = quorum.members[2].disk.hard_state
    quorum.members[3].disk.entries = [
        entry for entry in quorum.members[1].tail.values() if entry.base_offset < 1
    ]
    quorum.restart(3)
    quorum.run(300)
    assert quorum.members[3].state == quorum.members[1].state
    assert quorum[3].voters.latest == quorum[1].voters.latest


def test_a_restart_begins_from_the_newest_snapshot() -> None:
    """5.1: "on restart, the server loads the snapshot"."""
    quorum = cleaned()
    quorum.restart(1)
    assert quorum.members[1].state == ["a", "b", "c"]
    assert quorum[1].high_watermark == quorum[1].snapshots[-1].end_offset
    quorum.run(5_000)
    assert [quorum.members[n].state for n in (1, 2, 3)] == [["a", "b", "c"]] * 3


def test_a_snapshot_covers_committed_entries_only() -> None:
    quorum = quorum_with_leader()
    end = quorum[1].high_watermark
    quorum.propose(1, "a")
    assert quorum.snapshot(1).end_offset == end


# --- 6.4: reads ----------------------------------------------------------------------------------


def test_read_step_1_waits_for_the_first_commit_of_the_epoch() -> None:
    """6.4 step 1: the leader completeness property does not tell it which entries are committed."""
    quorum = quorum_with_leader()
    quorum.crash(1)
    quorum.tick(1_000, 3)
    quorum.campaign(2)
    for _ in range(4):
        quorum.persist(2)
        quorum.persist(3)
        if quorum[2].is_leader:
            break
        quorum.deliver_all()
    quorum.read(2, 7)
    quorum.flying = [m for m in quorum.flying if not isinstance(m, Heartbeat)]
    assert quorum.members[2].reads == []
    quorum.settle()
    ((context, offset),) = quorum.members[2].reads
    assert context == 7
    assert offset > 2


def test_read_steps_2_and_3_use_the_commit_index_and_a_majority() -> None:
    """6.4: readIndex is the commit index, a round of heartbeats confirms the leadership."""
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.settle()
    end = quorum[1].high_watermark
    quorum.read(1, 7)
    assert quorum.members[1].reads == []
    quorum.deliver_all(to=2)
    quorum.deliver_all(to=1)
    assert quorum.members[1].reads == [(7, end)]


def test_read_step_4_waits_until_that_much_is_applied() -> None:
    """The offset of a read never exceeds the offset that was delivered as committed."""
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.read(1, 1)
    quorum.settle()
    ((_, offset),) = quorum.members[1].reads
    assert offset <= quorum[1].applied_end


def test_a_deposed_leader_answers_no_read() -> None:
    """6.4: "it might have been replaced by a more recent leader of which it is unaware"."""
    quorum = quorum_with_leader()
    quorum.isolate(1)
    quorum.read(1, 7)
    quorum.tick(1_000, 2, 3)
    quorum.elect(2)
    quorum.propose(2, "newer")
    quorum.settle()
    assert quorum.members[1].reads == []
    quorum.heal()
    quorum.run(2_000)
    assert quorum.members[1].reads == []
    assert quorum.members[1].reads_lost == [7]


def test_a_lone_voter_answers_at_once() -> None:
    quorum = quorum_with_leader(1)
    quorum.read(1, 3)
    assert quorum.members[1].reads == [(3, quorum[1].high_watermark)]


def test_followers_do_not_answer_reads() -> None:
    quorum = quorum_with_leader()
    with pytest.raises(NotController, match="node 1 is"):
        quorum.read(2, 1)


# --- 9.6: pre-vote -------------------------------------------------------------------------------


def test_pre_vote_opens_no_epoch_and_casts_no_vote() -> None:
    """9.6: "a candidate only increments its term if it first learns from a majority of the cluster
    that they would be willing to grant the candidate their votes"."""
    quorum = quorum_with_leader()
    before = {n: quorum.members[n].disk.hard_state for n in (1, 2, 3)}
    quorum.campaign(3)
    for node_id in (1, 2):
        quorum.deliver_all(to=node_id)
    assert {n: (quorum[n].epoch, quorum[n].vote) for n in (1, 2, 3)} == {
        n: (state.epoch, state.vote) for n, state in before.items()
    }
    assert all(quorum.members[n].writing is None for n in (1, 2, 3))


def test_partitioned_node_returns_without_a_new_epoch() -> None:
    """9.6: it "will not be able to increment its term while partitioned" (B16)."""
    quorum = quorum_with_leader()
    quorum.isolate(3)
    quorum.run(20_000)
    assert quorum[3].epoch == 1
    quorum.heal()
    quorum.run(3_000)
    assert (quorum[1].is_leader, quorum[1].epoch, quorum.raft(3).role.name) == (True, 1, "follower")


def test_pre_vote_is_granted_only_after_an_election_timeout_without_leader() -> None:
    """9.6: "or that they have not heard from a valid leader for at least a baseline election
    timeout"."""
    quorum = quorum_with_leader()
    quorum.tick(100, 1)
    quorum.settle()
    quorum.tick(999, 2)
    for ms, yes in ((0, False), (1, True)):
        quorum.tick(ms, 2)
        quorum.step(
            VoteRequest(
                sender=voter(3),
                receiver=voter(2),
                epoch=Epoch(1),
                log_end=quorum[2].log.end,
                pre_vote=True,
            )
        )
        said = quorum.flying.pop()
        assert isinstance(said, VoteResponse)
        assert (said.granted, said.pre_vote) == (yes, True)


def test_granted_pre_votes_do_not_count_as_votes() -> None:
    """A candidate counts votes only."""
    quorum = Quorum(range(1, 6))
    quorum.campaign(1)
    quorum.deliver_all()
    quorum.deliver_all()
    quorum.persist(1)
    assert quorum.raft(1).role.name == "candidate"
    for node_id in (2, 3, 4, 5):
        quorum.step(
            VoteResponse(
                sender=voter(node_id),
                receiver=voter(1),
                epoch=Epoch(1),
                granted=True,
                pre_vote=True,
            )
        )
    assert quorum.raft(1).role.name == "candidate"


# --- invalid messages ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sender", "receiver", "epoch", "why"),
    [
        (voter(2), Voter(NodeId(1), DirectoryId(bytes(16))), 1, "the receiver is node 1 with"),
        (voter(2), voter(3), 1, "the receiver is node 3"),
        (voter(1), voter(1), 1, "sender is this node"),
        (voter(2), voter(1), 2**31 - 1, "out of bounds"),
        (voter(2), voter(1), 1_000_009, "out of bounds"),
        (voter(2), voter(1), -1, "out of bounds"),
    ],
)
def test_invalid_messages_are_dropped_with_a_reason(
    sender: Voter, receiver: Voter, epoch: int, why: str
) -> None:
    quorum = quorum_with_leader()
    before = (quorum[1].epoch, quorum.raft(1).role.name)
    message = Heartbeat(
        sender=sender,
        receiver=receiver,
        epoch=Epoch(epoch),
        high_watermark=Offset(0),
        round=1,
    )
    quorum.members[1].raft.step(message, 0)
    quorum.settle_ready(1)
    assert why in str(quorum.members[1].events[-1])
    assert (quorum[1].epoch, quorum.raft(1).role.name) == before
