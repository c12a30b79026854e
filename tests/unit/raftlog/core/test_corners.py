"""Corners of the roles that no scenario comes by: late answers, bounds, strangers, second times."""

from dataclasses import replace

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import address_of, data, voter, voters

from quorumlog.errors import InvalidRequest, Overloaded, VoterNotFound
from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.config import EPOCH_MAX
from quorumlog.raftlog.log_view import LOG_START, LogEnd, SnapshotId
from quorumlog.raftlog.messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    FollowRequest,
    FollowResponse,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.ready import HardState, MessageDropped


def drops(quorum: Quorum, node_id: int) -> list[str]:
    return [e.reason for e in quorum.members[node_id].events if isinstance(e, MessageDropped)]


# --- leaders -------------------------------------------------------------------------------------


def test_a_bound_on_what_is_uncommitted_and_one_large_proposal_all_the_same() -> None:
    quorum = quorum_with_leader(uncommitted_bytes_max=100)
    quorum.propose(1, "x" * 500)
    with pytest.raises(Overloaded, match="500 bytes of proposals are uncommitted, the limit is"):
        quorum.propose(1, "y")
    quorum.settle()
    quorum.propose(1, "y" * 60)
    quorum.propose(1, "z" * 40)
    with pytest.raises(Overloaded):
        quorum.propose(1, "!")


def test_a_bound_on_the_reads_that_wait() -> None:
    quorum = quorum_with_leader(reads_max=2)
    quorum.isolate(1)
    quorum.read(1, 1)
    quorum.read(1, 2)
    with pytest.raises(Overloaded, match="2 reads wait"):
        quorum.read(1, 3)


def test_a_bound_on_observers() -> None:
    quorum = quorum_with_leader(observers_max=1)
    quorum.observer(4)
    quorum.run(500)
    quorum.observer(5)
    quorum.run(500)
    assert quorum[4].leader == voter(1)
    assert quorum[5].leader is None
    assert "1 observers follow, which is the limit" in drops(quorum, 1)


def test_a_silent_observer_is_forgotten_and_a_voter_is_not() -> None:
    quorum = quorum_with_leader(observer_timeout_ms=1_000)
    quorum.observer(4)
    quorum.run(500)
    quorum.crash(4)
    quorum.crash(3)
    quorum.run(3_000)
    status = quorum[1].status(0)
    assert status.observers == ()
    assert len(status.voters) == 3


def test_answers_of_nobody_it_leads_change_nothing() -> None:
    quorum = quorum_with_leader()
    stranger = voter(9)
    end = quorum[1].log.end_offset
    for answer in (
        AppendResponse(
            sender=stranger, receiver=voter(1), epoch=Epoch(1), match_end=end, received_end=end
        ),
        AppendRejected(
            sender=stranger,
            receiver=voter(1),
            epoch=Epoch(1),
            prev=LogEnd(Epoch(1), end),
            hint=LOG_START,
        ),
        HeartbeatResponse(
            sender=stranger,
            receiver=voter(1),
            epoch=Epoch(1),
            round=1,
            match_end=end,
            received_end=end,
        ),
        SnapshotResponse(
            sender=stranger,
            receiver=voter(1),
            epoch=Epoch(1),
            snapshot=SnapshotId(end, Epoch(1)),
            position=0,
        ),
    ):
        quorum.step(answer)
    quorum.members[1].raft.unreachable(stranger, 0)
    assert not quorum.flying
    assert quorum[1].status(0).observers == ()


def test_only_a_leader_takes_word_of_broken_streams_and_resigns() -> None:
    quorum = quorum_with_leader()
    quorum.unreachable(2, 3)
    quorum.resign(2)
    assert not quorum.flying
    assert quorum[1].is_leader


def test_an_answer_to_no_round_tells_only_that_the_peer_lives() -> None:
    quorum = quorum_with_leader()
    end = quorum[1].log.end_offset
    quorum.step(
        HeartbeatResponse(
            sender=voter(2),
            receiver=voter(1),
            epoch=Epoch(1),
            round=0,
            match_end=None,
            received_end=Offset(end - 1),
        )
    )
    assert not quorum.flying


def test_a_late_refusal_of_what_is_known_to_match_is_not_believed() -> None:
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.settle()
    end = quorum[1].log.end_offset
    for prev in (LogEnd(Epoch(1), Offset(1)), LogEnd(Epoch(1), end)):
        quorum.step(
            AppendRejected(
                sender=voter(2), receiver=voter(1), epoch=Epoch(1), prev=prev, hint=LOG_START
            )
        )
    assert not quorum.flying


def test_a_refusal_of_an_earlier_question_is_not_believed() -> None:
    quorum = quorum_with_leader()
    quorum.isolate(3)
    quorum.propose(1, "a")
    quorum.settle()
    quorum.unreachable(1, 3)
    quorum.flying.clear()
    quorum.step(
        AppendRejected(
            sender=voter(3),
            receiver=voter(1),
            epoch=Epoch(1),
            prev=LogEnd(Epoch(1), quorum[1].log.end_offset),
            hint=LOG_START,
        )
    )
    assert not quorum.flying


def test_a_hint_inside_a_batch_leads_to_the_batch_before() -> None:
    quorum = quorum_with_leader()
    quorum.isolate(3)
    quorum.propose(1, "a", count=10)
    quorum.settle()
    base = quorum[1].log.end_offset - 10
    quorum.heal()
    quorum.step(
        AppendRejected(
            sender=voter(3),
            receiver=voter(1),
            epoch=Epoch(1),
            prev=LogEnd(Epoch(1), quorum[1].log.end_offset),
            hint=LogEnd(Epoch(1), Offset(base + 4)),
        )
    )
    asked = [m.prev.offset for m in quorum.flying if isinstance(m, AppendRequest)]
    assert asked == [base]
    quorum.run(300)
    assert quorum.members[3].state == ["a"]


def sending_a_snapshot() -> Quorum:
    """Node 1 sends node 3 its second snapshot; the first piece is on its way."""
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
    return quorum


def test_nothing_but_its_progress_moves_a_peer_out_of_a_snapshot() -> None:
    quorum = sending_a_snapshot()
    quorum.flying.clear()
    refused = AppendRejected(
        sender=voter(3),
        receiver=voter(1),
        epoch=Epoch(1),
        prev=LogEnd(Epoch(1), quorum[1].log.end_offset),
        hint=LOG_START,
    )
    quorum.step(refused)
    quorum.unreachable(1, 3)
    assert not quorum.flying
    assert [m.state for m in quorum[1].status(0).voters] == ["", "replicate", "snapshot"]
    quorum.run(500)
    assert quorum.members[3].state == ["a", "b"]


@pytest.mark.parametrize("position", [1, 15])
def test_an_earlier_answer_does_not_turn_a_snapshot_back(position: int) -> None:
    quorum = sending_a_snapshot()
    for _ in range(2):
        quorum.deliver_all(to=3)
        quorum.persist(3)
        quorum.deliver_all(to=1)
    (piece,) = (m for m in quorum.flying if isinstance(m, SnapshotChunk))
    assert piece.position == 16
    quorum.step(
        SnapshotResponse(
            sender=voter(3),
            receiver=voter(1),
            epoch=Epoch(1),
            snapshot=piece.snapshot,
            position=position,
        )
    )
    assert [m for m in quorum.flying if isinstance(m, SnapshotChunk)] == [piece]


def test_a_follower_that_was_restarted_receives_the_snapshot_from_the_start() -> None:
    quorum = sending_a_snapshot()
    for _ in range(2):
        quorum.deliver_all(to=3)
        quorum.persist(3)
        quorum.deliver_all(to=1)
    quorum.restart(3)
    quorum.run(500)
    assert quorum.members[3].state == ["a", "b"]


def test_a_snapshot_that_is_kept_no_more_gives_way_to_the_newest() -> None:
    quorum = sending_a_snapshot()
    quorum.flying.clear()
    for value in "cd":
        quorum.propose(1, value)
        quorum.flying = [m for m in quorum.flying if quorum.target(m) == 2]
        quorum.settle()
        quorum.snapshot(1)
    quorum.tick(100, 1)
    quorum.settle()
    quorum.run(500)
    assert quorum.members[3].state == list("abcd")


def test_a_piece_that_the_disk_lost_is_no_piece() -> None:
    """The file is gone when its piece is to be read: nothing is sent, and the core comes back."""
    quorum = quorum_with_leader(snapshot_chunk_bytes=8)
    quorum.isolate(3)
    for value in "ab":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    kept = dict(quorum.members[1].disk.snapshots)
    quorum.members[1].disk.snapshots.clear()
    quorum.heal()
    quorum.run(200)
    assert quorum.members[3].state == []
    quorum.members[1].disk.snapshots.update(kept)
    quorum.run(500)
    assert quorum.members[3].state == ["a", "b"]


def test_a_voter_that_is_reached_elsewhere_is_moved() -> None:
    quorum = quorum_with_leader()
    entry = quorum[1].move_voter(voter(2), "elsewhere:1", 0)
    quorum.remember(1, entry)
    quorum.settle()
    assert quorum[3].voters.latest.address_of(voter(2)) == "elsewhere:1"
    with pytest.raises(VoterNotFound):
        quorum[1].move_voter(voter(9), "nowhere:1", 0)


# --- followers -----------------------------------------------------------------------------------


def test_a_second_leader_of_one_epoch_is_not_believed() -> None:
    quorum = quorum_with_leader()
    beat = Heartbeat(
        sender=voter(3), receiver=voter(2), epoch=Epoch(1), high_watermark=Offset(0), round=1
    )
    quorum.step(beat)
    quorum.step(replace(beat, receiver=voter(1)))
    assert "leads epoch 1" in drops(quorum, 2)[0]
    assert "this node leads epoch 1" in drops(quorum, 1)[0]
    assert quorum[2].leader == voter(1)


def test_entries_below_the_logs_start_are_known_already() -> None:
    quorum = quorum_with_leader()
    for value in "ab":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(2)
    start, end = quorum[2].log.start_offset, quorum[2].log.end_offset
    assert start > 1
    quorum.step(
        AppendRequest(
            sender=voter(1),
            receiver=voter(2),
            epoch=Epoch(1),
            prev=LOG_START,
            entries=quorum.members[1].entries(0, end),
            high_watermark=Offset(0),
        )
    )
    (said,) = (m for m in quorum.flying if isinstance(m, AppendResponse))
    assert said.match_end == end
    assert quorum.members[2].writing is None


def test_a_late_piece_of_an_older_snapshot_of_the_same_leader_is_not_taken() -> None:
    quorum = sending_a_snapshot()
    quorum.deliver_all(to=3)
    quorum.persist(3)
    older = quorum[1].snapshots[0]
    quorum.step(
        SnapshotChunk(
            sender=voter(1),
            receiver=voter(3),
            epoch=Epoch(1),
            snapshot=older,
            voters=voters(1, 2, 3),
            size=100,
            position=0,
            content=b"late",
        )
    )
    assert quorum.members[3].writing is None
    quorum.run(500)
    assert quorum.members[3].state == ["a", "b"]


def test_a_snapshot_that_proves_bad_when_nobody_leads_is_received_anew_later() -> None:
    quorum = sending_a_snapshot()
    while quorum.members[3].writing is None or quorum.members[3].writing.install is None:
        quorum.persist(3)
        quorum.deliver_all()
    quorum.members[3].refuses_snapshots = True
    request = VoteRequest(
        sender=voter(2),
        receiver=voter(3),
        epoch=Epoch(2),
        log_end=quorum[2].log.end,
        pre_vote=False,
        is_transfer=True,
    )
    quorum.step(request)
    assert quorum[3].role.name == "unattached"
    quorum.persist(3)
    quorum.members[3].refuses_snapshots = False
    quorum.flying.clear()
    quorum.run(8_000)
    assert quorum.members[3].state == ["a", "b"]


def test_a_snapshot_is_installed_although_its_leader_is_gone() -> None:
    quorum = sending_a_snapshot()
    while quorum.members[3].writing is None or quorum.members[3].writing.install is None:
        quorum.persist(3)
        quorum.deliver_all()
    quorum.step(
        VoteRequest(
            sender=voter(2),
            receiver=voter(3),
            epoch=Epoch(2),
            log_end=quorum[2].log.end,
            pre_vote=False,
            is_transfer=True,
        )
    )
    quorum.persist(3)
    assert (quorum[3].role.name, quorum.members[3].state) == ("unattached", ["a", "b"])
    quorum.run(8_000)
    assert quorum.members[3].state == ["a", "b"]


def test_a_farewell_that_names_others_only_leaves_the_own_timer() -> None:
    quorum = quorum_with_leader()
    before = quorum.members[3].now_ms
    quorum.step(
        EndEpoch(sender=voter(1), receiver=voter(3), epoch=Epoch(1), successors=(voter(2),))
    )
    assert quorum[3].role.name == "unattached"
    deadline_ms = quorum[3].next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms >= before + 1_000


def test_a_piece_that_comes_again_while_the_snapshot_is_installed_waits() -> None:
    quorum = sending_a_snapshot()
    quorum.flying.clear()
    while quorum.members[3].writing is None or quorum.members[3].writing.install is None:
        quorum.persist(3)
        quorum.tick(100, 1)
        quorum.deliver_all()
    quorum.tick(100, 1)
    quorum.deliver_all()
    quorum.deliver_all()
    assert quorum[3].applied_end < quorum[1].log.start_offset
    quorum.run(500)
    assert quorum.members[3].state == ["a", "b"]


# --- elections -----------------------------------------------------------------------------------


def test_a_pre_candidate_votes_for_who_is_ahead_of_it_in_its_own_epoch() -> None:
    """2 has opened epoch 1, of which 1 had heard already when it began to ask."""
    quorum = Quorum()
    quorum.members[1].disk.hard_state = HardState(Epoch(1), None)
    quorum.restart(1)
    quorum.campaign(1)
    quorum.flying.clear()
    request = VoteRequest(
        sender=voter(2), receiver=voter(1), epoch=Epoch(1), log_end=LOG_START, pre_vote=False
    )
    quorum.step(request)
    quorum.persist(1)
    assert quorum[1].vote == voter(2)
    assert [m.granted for m in quorum.flying if isinstance(m, VoteResponse)] == [True]
    quorum.campaign(1)
    quorum.flying.clear()
    quorum.step(replace(request, sender=voter(3)))
    assert quorum[1].role.name == "pre_candidate", "its vote is given: no reason to stop asking"
    assert [m.granted for m in quorum.flying if isinstance(m, VoteResponse)] == [False]


def test_answers_to_votes_that_nobody_waits_for_are_ignored() -> None:
    quorum = quorum_with_leader()
    answer = VoteResponse(
        sender=voter(3), receiver=voter(2), epoch=Epoch(1), granted=True, pre_vote=False
    )
    quorum.step(answer)
    assert quorum[2].role.name == "follower"
    quorum.campaign(2)
    quorum.step(answer)
    assert quorum[2].role.name == "pre_candidate", "a vote is no promise"


def test_the_last_epoch_is_never_passed() -> None:
    quorum = Quorum()
    quorum.members[1].disk.hard_state = HardState(EPOCH_MAX, None)
    quorum.restart(1)
    quorum.tick(10_000, 1)
    assert (quorum[1].role.name, quorum[1].epoch) == ("unattached", EPOCH_MAX)


def test_the_deposed_are_told_and_the_answers_to_the_deposed_are_not() -> None:
    quorum = quorum_with_leader()
    quorum.members[2].disk.hard_state = HardState(Epoch(5), None)
    quorum.restart(2)
    quorum.flying.clear()
    old = TimeoutNow(sender=voter(1), receiver=voter(2), epoch=Epoch(1))
    quorum.step(old)
    assert not quorum.flying
    quorum.step(
        VoteRequest(
            sender=voter(3), receiver=voter(2), epoch=Epoch(1), log_end=LOG_START, pre_vote=True
        )
    )
    assert [m.epoch for m in quorum.flying] == [5]


# --- looking for the leader ----------------------------------------------------------------------


def test_a_follower_points_to_the_leader_and_an_observer_goes_there() -> None:
    quorum = quorum_with_leader()
    member = quorum.observer(4)
    asked = []
    quorum.sent = lambda node_id, m: (
        asked.append(m.receiver_address) if isinstance(m, FollowRequest) else None
    )
    quorum.cut = {(4, 1)}
    quorum.run(3_000)
    quorum.heal()
    quorum.run(1_000)
    assert member.raft.leader == voter(1)
    assert set(asked) == {address_of(n) for n in (1, 2, 3)}
    assert asked.count(address_of(1)) > asked.count(address_of(3)), "it was told who leads"


def test_a_wiped_node_does_not_ask_its_own_address() -> None:
    """The voters name it with its old disk, at the address where it is itself."""
    quorum = quorum_with_leader()
    quorum.wipe(3)
    quorum.run(500)
    asked = []
    quorum.sent = lambda node_id, m: (
        asked.append(m.receiver_address) if isinstance(m, FollowRequest) else None
    )
    quorum.isolate(3)
    quorum.run(5_000)
    assert set(asked) == {address_of(1), address_of(2)}


def test_nobody_to_ask_and_nothing_but_itself() -> None:
    quorum = Quorum(())
    member = quorum.observer(1)
    quorum.run(1_000)
    assert member.raft.role.name == "unattached"
    assert not quorum.flying


def test_word_of_the_leader_that_is_known_already_or_of_nobody() -> None:
    quorum = quorum_with_leader()
    for leader in (None, voter(1)):
        quorum.step(
            FollowResponse(
                sender=voter(3),
                receiver=voter(2),
                epoch=Epoch(1),
                leader=leader,
                leader_address=address_of(1) if leader else "",
            )
        )
    assert not quorum.flying


def test_a_lone_voter_that_observers_follow_needs_none_of_them() -> None:
    quorum = quorum_with_leader(1)
    quorum.observer(2)
    quorum.run(500)
    quorum.crash(2)
    quorum.propose(1, "a")
    quorum.settle()
    assert quorum.members[1].state == ["a"]
    with pytest.raises(InvalidRequest):
        quorum.remove_voter(1, 1)


# --- the caller's share --------------------------------------------------------------------------


def test_a_batch_has_a_record_and_a_state_its_order() -> None:
    quorum = quorum_with_leader()
    with pytest.raises(AssertionError, match="a batch of 0 records"):
        quorum[1].propose(count=0, payload=b"")
    end = quorum[1].applied_end
    quorum[1].applied(Offset(0))
    assert quorum[1].applied_end == end, "it never goes back"


def test_an_older_snapshot_than_the_newest_is_not_kept() -> None:
    quorum = quorum_with_leader()
    first = quorum.snapshot(1)
    quorum.propose(1, "a")
    quorum.settle()
    second = quorum.snapshot(1)
    quorum[1].snapshot_taken(first)
    assert quorum[1].snapshots == (first, second)


def test_entries_of_a_proposal_follow_the_log() -> None:
    quorum = quorum_with_leader()
    entry = quorum[1].propose(count=2, payload=b"x")
    assert entry.base_offset == quorum[1].unwritten[0].base_offset
    assert data(0, 1).next_offset == 1
