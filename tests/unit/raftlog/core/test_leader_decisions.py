"""Decisions of a leader about its peers, one response at a time.

Node 1 leads and its messages stay in flight; the tests write the responses of the peers.
"""

from dataclasses import replace
from typing import Any

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import (
    Disk,
    Member,
    SnapshotFile,
    address_of,
    encode_control,
    voter,
    voters,
)

from quorumlog.errors import Overloaded, VoterChangePending, VoterLagging, VoterNotFound
from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog.config import RaftConfig
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LOG_START, EntryKind, LogEnd, SnapshotId
from quorumlog.raftlog.messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    FollowRequest,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
)
from quorumlog.raftlog.ready import MessageDropped
from quorumlog.raftlog.status import MemberStatus
from quorumlog.raftlog.voters import VoterMove, VoterSet

from .snapshot_transfer import drop_reasons, quorum_sending_snapshot


def sent(quorum: Quorum, node_id: int) -> list[Message]:
    """Return the messages in flight to a node, which are not delivered."""
    found = [m for m in quorum.flying if quorum.target(m) == node_id]
    quorum.flying.clear()
    return found


def heartbeat_response(
    number: int, *, sender: int = 3, received: int | None = None, match: int | None = None
) -> Message:
    """Respond to the heartbeat of a round."""
    return HeartbeatResponse(
        sender=voter(sender),
        receiver=voter(1),
        epoch=Epoch(1),
        round=number,
        match_end=None if match is None else Offset(match),
        received_end=None if received is None else Offset(received),
    )


def refused(prev: int, hint: LogEnd) -> AppendRejected:
    return AppendRejected(
        sender=voter(3),
        receiver=voter(1),
        epoch=Epoch(1),
        prev=LogEnd(Epoch(1), Offset(prev)),
        hint=hint,
    )


def begin_round(quorum: Quorum) -> int:
    """Start a heartbeat round of node 1 and drop its heartbeats. Return its number."""
    quorum.flying.clear()
    quorum.tick(100, 1)
    (number,) = {m.round for m in quorum.flying if isinstance(m, Heartbeat) and m.round}
    quorum.flying.clear()
    return number


def state_of(quorum: Quorum, node_id: int) -> MemberStatus:
    status = quorum.status(1, quorum.members[1].now_ms)
    (found,) = (m for m in (*status.voters, *status.observers) if m.member.node_id == node_id)
    return found


# --- the beginning of an epoch -------------------------------------------------------------------


def test_control_batches_have_their_kind_offset_and_epoch() -> None:
    quorum = quorum_with_leader()
    entries = quorum.members[1].disk.entries
    assert [entry.kind for entry in entries] == [EntryKind.LEADER_CHANGE, EntryKind.VOTERS]
    for entry in entries:
        assert entry.payload == encode_control(
            entry.kind, entry.base_offset, entry.epoch, entry.voters
        )
    assert entries[1].voters == voters(1, 2, 3)


def lone(*, configured: str, formatted: str) -> VoterSet:
    """Return the voters in the log of a lone voter that became leader."""
    quorum = Quorum(())
    me = voter(1)
    config = RaftConfig(
        node_id=NodeId(1), directory_id=DirectoryId(me.directory_id), address=configured
    )
    member = Member(config, Disk(me, VoterSet.of([(me, formatted)])), extra_ms=0)
    quorum.members[1] = member
    member.start()
    quorum.elect(1)
    found = member.disk.entries[-1].voters
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("configured", "formatted", "known"),
    [("a:1", "", "a:1"), ("a:1", "b:2", "a:1"), ("", "b:2", "b:2"), ("", "", "")],
)
def test_lone_voter_appends_its_address_if_configured(
    configured: str, formatted: str, known: str
) -> None:
    assert lone(configured=configured, formatted=formatted).address_of(voter(1)) == known


def test_leader_of_several_voters_appends_the_formatted_set() -> None:
    quorum = Quorum(())
    formatted = VoterSet.of([(voter(1), "other:1"), (voter(2), address_of(2))])
    for node_id in (1, 2):
        quorum.add_member(node_id, initial=formatted)
    quorum.elect(1)
    assert quorum.members[2].disk.entries[-1].voters == formatted


def test_voters_of_a_snapshot_are_not_appended_again() -> None:
    """The earliest possible snapshot: it ends after the first entry."""
    quorum = Quorum((1,))
    member = quorum.members[1]
    quorum.crash(1)
    snapshot = SnapshotId(Offset(1), Epoch(1))
    member.disk.hard_state = HardState(Epoch(1), None)
    member.disk.start = snapshot.log_end
    member.disk.snapshots[snapshot] = SnapshotFile.of([], voters(1))
    quorum.restart(1)
    quorum.elect(1)
    assert [entry.kind for entry in member.disk.entries] == [EntryKind.LEADER_CHANGE]


def test_uncommitted_bytes_are_released_by_a_commit() -> None:
    quorum = quorum_with_leader(uncommitted_bytes_max=100)
    quorum.propose(1, "x" * 40)
    quorum.persist(1)
    end = quorum[1].log.end_offset
    quorum.propose(1, "y" * 60)
    quorum.step(
        AppendResponse(
            sender=voter(3), receiver=voter(1), epoch=Epoch(1), match_end=end, received_end=end
        )
    )
    assert quorum[1].high_watermark == end
    with pytest.raises(Overloaded, match="60 bytes of proposals are uncommitted"):
        quorum.propose(1, "z" * 41)
    quorum.propose(1, "z" * 40)


# --- candidates for the voter set ----------------------------------------------------------------


def watched(**options: Any) -> Quorum:
    """Return a leader with three voters, and node 4 as an observer with the complete log."""
    quorum = quorum_with_leader(**options)
    quorum.propose(1, "x" * 100)
    quorum.observer(4)
    quorum.run(500)
    assert state_of(quorum, 4).lag == 0
    return quorum


def test_an_observer_that_lacks_one_small_request_of_what_is_committed_may_vote() -> None:
    quorum = watched(append_bytes_max=60)
    quorum.cut = {(1, 4)}
    quorum.propose(1, "a")
    quorum.settle()
    quorum.add_voter(1, 4)


def test_an_observer_that_holds_what_is_committed_may_vote() -> None:
    quorum = watched(append_bytes_max=60)
    quorum.cut = {(1, 4), (1, 2), (1, 3)}
    for _ in range(2):
        quorum.propose(1, "x" * 100)
    quorum.settle()
    quorum.add_voter(1, 4)


def test_an_observer_that_lacks_more_of_what_is_committed_may_not_vote() -> None:
    quorum = watched(append_bytes_max=60)
    quorum.cut = {(1, 4)}
    for _ in range(2):
        quorum.propose(1, "x" * 100)
    quorum.settle()
    with pytest.raises(VoterLagging, match="node 4: the log is 2 offsets behind"):
        quorum.add_voter(1, 4)


def test_an_observer_whose_stream_broke_may_not_vote_until_it_answers() -> None:
    quorum = watched()
    quorum.unreachable(1, 4)
    with pytest.raises(VoterLagging, match="node 4: the log is 0 offsets behind"):
        quorum.add_voter(1, 4)
    quorum.run(300)
    quorum.add_voter(1, 4)


# --- follow requests -----------------------------------------------------------------------------


def asks(node_id: int) -> FollowRequest:
    return FollowRequest(
        sender=voter(node_id),
        receiver_address=address_of(1),
        epoch=Epoch(1),
        address=address_of(node_id),
    )


def test_follow_request_of_a_voter_ignores_the_observer_limit() -> None:
    quorum = quorum_with_leader(observers_max=0)
    before = state_of(quorum, 3)
    quorum.members[1].now_ms += 70
    quorum.step(asks(3))
    assert [m for m in sent(quorum, 3) if isinstance(m, AppendRequest)]
    after = state_of(quorum, 3)
    assert (after.state, after.log_end_offset) == ("probe", before.log_end_offset)
    assert after.heard_ms_ago == (before.heard_ms_ago or 0) + 70, "it supports no leader yet"
    assert not [e for e in quorum.members[1].events if isinstance(e, MessageDropped)]
    quorum.observer(4)
    quorum.run(300)
    assert quorum[4].leader is None


def test_repeated_follow_request_keeps_an_observer() -> None:
    quorum = watched(observer_timeout_ms=1_000)
    quorum.crash(4)
    quorum.run(800)
    quorum.step(asks(4))
    assert state_of(quorum, 4).heard_ms_ago == 0
    quorum.run(800)
    assert state_of(quorum, 4).state == "probe"


@pytest.mark.parametrize(("silent_ms", "known"), [(1_000, 1), (1_001, 0)])
def test_silent_observer_is_dropped_after_its_timeout(silent_ms: int, known: int) -> None:
    quorum = quorum_with_leader(1, observer_timeout_ms=1_000)
    due_ms = quorum.raft(1).next_deadline_ms()
    assert due_ms is not None
    quorum.members[1].now_ms = due_ms - silent_ms
    quorum.step(asks(4))
    quorum.members[1].now_ms = due_ms
    quorum.tick(0, 1)
    assert len(quorum.status(1, due_ms).observers) == known


# --- divergence of the logs ----------------------------------------------------------------------


def test_rejection_of_another_offset_than_the_probe_is_ignored() -> None:
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.propose(1, "b")
    quorum.unreachable(1, 3)
    quorum.flying.clear()
    end = quorum[1].log.end_offset
    quorum.step(refused(end, LOG_START))
    assert not sent(quorum, 3)
    quorum.step(heartbeat_response(begin_round(quorum)))
    (asked,) = sent(quorum, 3)
    assert isinstance(asked, AppendRequest)
    assert asked.prev.offset == end - 2, "the matching prefix stays"


def test_hint_at_or_above_the_rejected_offset_does_not_loop() -> None:
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.propose(1, "b")
    quorum.flying.clear()
    end = quorum[1].log.end_offset
    quorum.step(refused(end, LogEnd(Epoch(1), end)))
    (asked,) = sent(quorum, 3)
    assert isinstance(asked, AppendRequest)
    assert asked.prev.offset == end - 1


# --- broken streams and lost requests ------------------------------------------------------------


def test_after_a_broken_stream_a_later_heartbeat_response_probes_again() -> None:
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    number = begin_round(quorum)
    quorum.unreachable(1, 3)
    quorum.step(heartbeat_response(number))
    assert not sent(quorum, 3)
    quorum.step(heartbeat_response(begin_round(quorum)))
    (asked,) = sent(quorum, 3)
    assert isinstance(asked, AppendRequest)
    assert asked.prev.offset == quorum[1].log.end_offset - 1


def test_probe_is_repeated_if_a_later_heartbeat_is_answered_first() -> None:
    quorum = quorum_with_leader()
    before = begin_round(quorum)
    quorum.step(asks(3))
    assert [m for m in sent(quorum, 3) if isinstance(m, AppendRequest)]
    quorum.step(heartbeat_response(before))
    assert not sent(quorum, 3)
    quorum.step(heartbeat_response(begin_round(quorum)))
    assert [m for m in sent(quorum, 3) if isinstance(m, AppendRequest)]


def test_response_without_a_round_detects_no_loss() -> None:
    quorum = quorum_with_leader()
    quorum.step(asks(3))
    quorum.flying.clear()
    quorum.step(heartbeat_response(0, received=quorum[1].log.end_offset))
    assert state_of(quorum, 3).state == "probe"


def test_stream_broken_before_the_first_acknowledgement_resumes_at_its_offset() -> None:
    quorum = Quorum()
    quorum.campaign(1)
    while not quorum[1].is_leader:
        quorum.persist(1)
        for node_id in (2, 3):
            quorum.persist(node_id)
        quorum.deliver_all()
    quorum.flying.clear()
    quorum.persist(1)
    quorum.step(
        AppendResponse(
            sender=voter(3),
            receiver=voter(1),
            epoch=Epoch(1),
            match_end=Offset(0),
            received_end=Offset(2),
        )
    )
    assert state_of(quorum, 3).state == "replicate"
    quorum.unreachable(1, 3)
    quorum.step(heartbeat_response(begin_round(quorum)))
    (asked,) = sent(quorum, 3)
    assert isinstance(asked, AppendRequest)
    assert asked.prev.offset == 2


# --- snapshots -----------------------------------------------------------------------------------


def sending_a_snapshot() -> Quorum:
    """The log of node 1 starts at the end of its second-newest snapshot; node 3 receives the newest
    one."""
    quorum = quorum_with_leader(snapshot_chunk_bytes=8)
    quorum.isolate(3)
    for value in "ab":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    quorum.heal()
    quorum.flying.clear()
    quorum.step(heartbeat_response(begin_round(quorum), received=2))
    (piece,) = sent(quorum, 3)
    assert isinstance(piece, SnapshotChunk)
    assert (piece.snapshot, piece.position) == (quorum[1].snapshots[-1], 0)
    assert state_of(quorum, 3).state == "snapshot"
    return quorum


def test_peer_below_the_log_start_is_sent_a_snapshot_at_once() -> None:
    quorum = sending_a_snapshot()
    quorum.step(asks(4))
    assert [m for m in sent(quorum, 4) if isinstance(m, AppendRequest)]
    quorum.step(heartbeat_response(begin_round(quorum), sender=4, received=1))
    (piece,) = sent(quorum, 4)
    assert isinstance(piece, SnapshotChunk)


@pytest.mark.parametrize("above", [0, 1])
def test_peer_at_the_log_start_needs_no_snapshot(above: int) -> None:
    quorum = sending_a_snapshot()
    start = quorum[1].log.start_offset
    quorum.step(heartbeat_response(begin_round(quorum), received=start + above))
    assert state_of(quorum, 3).state == "replicate"
    ends = [m.prev.offset for m in sent(quorum, 3) if isinstance(m, AppendRequest)]
    assert ends == ([start] if above == 0 else [])


def test_lost_chunk_is_repeated_after_a_later_heartbeat_response() -> None:
    quorum = sending_a_snapshot()
    number = begin_round(quorum)
    quorum.step(heartbeat_response(number, received=2))
    (piece,) = sent(quorum, 3)
    assert isinstance(piece, SnapshotChunk)
    assert (piece.position, state_of(quorum, 3).state) == (0, "snapshot")
    quorum.step(heartbeat_response(number, received=2))
    assert not sent(quorum, 3), "that heartbeat was sent after the chunk"
    quorum.step(heartbeat_response(begin_round(quorum), received=2))
    assert not sent(quorum, 3), "the peer may be slow: twice the time"
    quorum.step(heartbeat_response(begin_round(quorum), received=2))
    assert sent(quorum, 3) == [piece]


def test_after_a_broken_stream_the_next_timed_heartbeat_response_repeats_the_chunk() -> None:
    quorum = sending_a_snapshot()
    for _ in range(3):
        quorum.step(heartbeat_response(begin_round(quorum), received=2))
    quorum.flying.clear()
    quorum.unreachable(1, 3)
    quorum.read(1, 1)
    (number,) = {m.round for m in quorum.flying if isinstance(m, Heartbeat)}
    quorum.flying.clear()
    quorum.step(heartbeat_response(number, received=2))
    assert not sent(quorum, 3), "a round for reads does not count as a tick"
    quorum.step(heartbeat_response(begin_round(quorum), received=2))
    (piece,) = sent(quorum, 3)
    assert isinstance(piece, SnapshotChunk)


def test_response_about_another_snapshot_changes_nothing() -> None:
    quorum = sending_a_snapshot()
    quorum.step(
        SnapshotResponse(
            sender=voter(3),
            receiver=voter(1),
            epoch=Epoch(1),
            snapshot=quorum[1].snapshots[0],
            position=8,
        )
    )
    assert not sent(quorum, 3)


@pytest.mark.parametrize(
    ("configured", "known"), [(address_of(1), address_of(1)), ("", "formatted:1")]
)
def test_leader_that_adds_a_voter_appends_its_own_address(configured: str, known: str) -> None:
    quorum = Quorum(())
    formatted = VoterSet.of([(voter(1), "formatted:1"), (voter(2), address_of(2))])
    for node_id in (1, 2):
        quorum.add_member(node_id, initial=formatted)
    member = quorum.members[1]
    member.config = replace(member.config, address=configured)
    quorum.restart(1)
    quorum.elect(1)
    quorum.observer(3)
    quorum.run(500)
    quorum.add_voter(1, 3)
    quorum.settle()
    assert quorum[2].voters.latest.address_of(voter(1)) == known
    assert voter(3) in quorum[2].voters.latest


def test_leader_that_removed_itself_adds_no_voter() -> None:
    quorum = watched()
    quorum.remove_voter(1, 1)
    with pytest.raises(VoterChangePending, match="is not committed yet"):
        quorum.add_voter(1, 4)


def test_uncommitted_bytes_are_bounded_except_for_one_proposal() -> None:
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
    assert "1 observers follow, which is the limit" in drop_reasons(quorum, 1)


def test_silent_observer_is_dropped_and_a_voter_is_not() -> None:
    quorum = quorum_with_leader(observer_timeout_ms=1_000)
    quorum.observer(4)
    quorum.run(500)
    quorum.crash(4)
    quorum.crash(3)
    quorum.run(3_000)
    status = quorum.status(1, 0)
    assert status.observers == ()
    assert len(status.voters) == 3


def test_responses_of_unknown_peers_change_nothing() -> None:
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
    assert quorum.status(1, 0).observers == ()


def test_only_a_leader_handles_broken_streams_and_resigns() -> None:
    quorum = quorum_with_leader()
    quorum.unreachable(2, 3)
    quorum.resign(2)
    assert not quorum.flying
    assert quorum[1].is_leader


def test_response_without_a_round_only_updates_the_contact_time() -> None:
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


def test_late_rejection_below_the_match_end_is_ignored() -> None:
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


def test_rejection_of_an_earlier_probe_is_ignored() -> None:
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


def test_only_progress_ends_the_snapshot_state() -> None:
    quorum = quorum_sending_snapshot()
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
    assert [m.state for m in quorum.status(1, 0).voters] == ["", "replicate", "snapshot"]
    quorum.run(500)
    assert quorum.members[3].state == ["a", "b"]


@pytest.mark.parametrize("position", [1, 15])
def test_earlier_response_does_not_rewind_a_snapshot(position: int) -> None:
    quorum = quorum_sending_snapshot()
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
    quorum = quorum_sending_snapshot()
    for _ in range(2):
        quorum.deliver_all(to=3)
        quorum.persist(3)
        quorum.deliver_all(to=1)
    quorum.restart(3)
    quorum.run(500)
    assert quorum.members[3].state == ["a", "b"]


def test_removed_snapshot_is_replaced_by_the_newest() -> None:
    quorum = quorum_sending_snapshot()
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


def test_chunk_of_a_removed_snapshot_is_not_sent() -> None:
    """The file is removed before its chunk is read: nothing is sent, and the leader continues."""
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


def test_voter_with_a_new_address_is_updated() -> None:
    quorum = quorum_with_leader()
    entry = quorum.raft(1).change_voters(VoterMove(voter(2), "elsewhere:1"), 0)
    quorum.remember(1, entry)
    quorum.settle()
    assert quorum[3].voters.latest.address_of(voter(2)) == "elsewhere:1"
    with pytest.raises(VoterNotFound):
        quorum.raft(1).change_voters(VoterMove(voter(9), "nowhere:1"), 0)
