"""The status that a member reports of the quorum."""

from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import address_of, voter

from quorumlog.raftlog.voters import VoterSet


def test_leader_reports_the_progress_of_all_nodes() -> None:
    quorum = quorum_with_leader(observers=[4])
    quorum.isolate(3)
    quorum.propose(1, "a", count=5)
    quorum.settle()
    quorum.tick(70, 1)
    status = quorum.status(1, quorum.members[1].now_ms)
    end = quorum[1].log.end_offset
    assert (status.me, status.leader, status.role) == (voter(1), voter(1), "leader")
    assert (status.epoch, status.high_watermark, status.log_end_offset) == (1, end, end)
    assert [(m.member.node_id, m.log_end_offset, m.lag, m.is_voter) for m in status.voters] == [
        (1, end, 0, True),
        (2, end, 0, True),
        (3, end - 5, 5, True),
    ]
    assert [m.address for m in status.voters] == [address_of(n) for n in (1, 2, 3)]
    assert [(m.member, m.lag, m.is_voter, m.address) for m in status.observers] == [
        (voter(4), 0, False, "")
    ]
    assert status.voters[0].heard_ms_ago is None
    heard = [m.heard_ms_ago for m in status.voters[1:]]
    assert heard[0] is not None
    assert heard[1] is not None
    assert heard[0] <= heard[1]
    assert [m.state for m in status.voters] == ["", "replicate", "replicate"]


def test_follower_reports_itself_and_the_leader() -> None:
    quorum = quorum_with_leader(observers=[4])
    status = quorum.status(2, quorum.members[2].now_ms)
    assert (status.role, status.leader) == ("follower", voter(1))
    assert [(m.member.node_id, m.lag) for m in status.voters] == [(1, None), (2, 0), (3, None)]
    assert status.observers == ()


def test_status_has_the_address_and_the_last_contact_of_the_leader() -> None:
    quorum = quorum_with_leader(observers=[4])
    now_ms = quorum.members[2].now_ms
    assert quorum.raft(2)._leader_address() == quorum.raft(1)._leader_address() == address_of(1)
    assert quorum[2].leader_id == quorum[1].leader_id == 1
    assert quorum.raft(1)._has_live_leader(now_ms + 10_000)
    assert quorum.raft(2)._has_live_leader(now_ms)
    assert not quorum.raft(2)._has_live_leader(now_ms + 1_000)
    quorum.restart(2)
    assert quorum[2].leader is None
    assert quorum.raft(2)._leader_address() == ""
    assert not quorum.raft(2)._has_live_leader(now_ms)


def test_observer_without_voters_reports_no_address() -> None:
    quorum = Quorum([1])
    quorum.elect(1)
    quorum.observer(2)
    assert quorum.status(2, 0).voters == ()
    assert VoterSet(()) == quorum[2].voters.latest
    quorum.run(500)
    assert quorum.raft(2)._leader_address() == address_of(1)


def test_status_has_snapshots_and_the_log_start() -> None:
    quorum = quorum_with_leader(observers=[4])
    taken = quorum.snapshot(1)
    quorum.propose(1, "a")
    quorum.settle()
    newest = quorum.snapshot(1)
    status = quorum.status(1, 0)
    assert status.snapshots == (taken, newest)
    assert status.log_start_offset == taken.end_offset
