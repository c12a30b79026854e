"""Ongaro's dissertation, one test for each rule: 3.10 (leadership transfer), 4 (membership)."""

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import address_of, voter, voters

from quorumlog.errors import (
    DuplicateVoter,
    InvalidRequest,
    NotController,
    Overloaded,
    VoterChangePending,
    VoterLagging,
    VoterNotFound,
)
from quorumlog.ids import Epoch
from quorumlog.raftlog.messages import TimeoutNow, VoteRequest, VoteResponse
from quorumlog.raftlog.ready import VotersChanged
from quorumlog.raftlog.voters import VoterAddition, VoterRemoval

# --- 3.10: leadership transfer -------------------------------------------------------------------


def test_transfer_the_leader_stops_taking_proposals() -> None:
    """Step 1: "the prior leader stops accepting new client requests"."""
    quorum = quorum_with_leader()
    quorum.transfer(1, 2)
    with pytest.raises(Overloaded, match="leadership transfer is in progress"):
        quorum.propose(1, "a")
    with pytest.raises(VoterChangePending, match="leadership transfer is in progress"):
        quorum.remove_voter(1, 3)


def test_transfer_the_target_is_brought_up_to_date_first() -> None:
    """Step 2: "fully updates the target server's log to match its own"."""
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.flying.clear()
    quorum.transfer(1, 2)
    assert not any(isinstance(m, TimeoutNow) for m in quorum.flying)
    quorum.run(200)
    assert quorum[2].is_leader
    assert quorum.members[2].state == ["a"]


def test_transfer_the_target_campaigns_without_waiting() -> None:
    """Step 3: TimeoutNow acts like the election timer. The other voters grant their votes although
    their leader is alive (4.2.3)."""
    quorum = quorum_with_leader()
    now_ms = quorum.members[2].now_ms
    quorum.transfer(1, 2)
    quorum.settle()
    assert (quorum[2].is_leader, quorum[2].epoch) == (True, 2)
    assert quorum.members[2].now_ms == now_ms


def test_transfer_is_aborted_after_an_election_timeout() -> None:
    """ "If leadership transfer does not complete after about an election timeout, the prior leader
    aborts the transfer and resumes accepting client requests"."""
    quorum = quorum_with_leader()
    quorum.isolate(2)
    quorum.transfer(1, 2)
    quorum.run(999)
    with pytest.raises(Overloaded):
        quorum.propose(1, "a")
    quorum.run(1)
    assert quorum.propose(1, "a").payload == b"a"


@pytest.mark.parametrize("to", [4, 9])
def test_transfer_goes_to_a_voter_only(to: int) -> None:
    quorum = quorum_with_leader(observers=(4,))
    with pytest.raises(VoterNotFound, match=f"node {to} is not a voter"):
        quorum.transfer(1, to)


def test_transfer_to_itself_or_by_a_follower_is_refused() -> None:
    quorum = quorum_with_leader()
    with pytest.raises(InvalidRequest, match="node 1 is the leader already"):
        quorum.transfer(1, 1)
    with pytest.raises(NotController):
        quorum.transfer(2, 3)


def test_transfer_of_a_lone_voter_is_refused() -> None:
    quorum = quorum_with_leader(1)
    with pytest.raises(VoterNotFound, match="no other voter"):
        quorum.transfer(1, None)


def test_transfer_to_a_removed_voter_is_ignored_by_it() -> None:
    quorum = quorum_with_leader()
    quorum.remove_voter(1, 3)
    quorum.settle()
    quorum.step(TimeoutNow(sender=voter(1), receiver=voter(3), epoch=quorum[1].epoch))
    assert quorum.raft(3).role.name == "follower"


def test_timeout_now_of_a_node_that_is_not_the_leader_is_ignored() -> None:
    quorum = quorum_with_leader()
    quorum.step(TimeoutNow(sender=voter(3), receiver=voter(2), epoch=quorum[1].epoch))
    assert quorum.raft(2).role.name == "follower"


# --- 4: membership -------------------------------------------------------------------------------


def test_a_new_set_is_used_as_soon_as_it_is_in_the_log() -> None:
    """4.1: "each server adopts Cnew as soon as that entry is added to its log"."""
    quorum = quorum_with_leader(observers=(4,))
    quorum.add_voter(1, 4)
    assert quorum[1].voters.latest == voters(1, 2, 3, 4)
    assert quorum[2].voters.latest == voters(1, 2, 3)
    quorum.deliver_all(to=2)
    assert quorum[2].voters.latest == voters(1, 2, 3, 4)
    assert quorum[2].high_watermark < quorum[2].log.end_offset


def test_a_truncated_set_gives_way_to_the_one_before() -> None:
    """4.1: "a server must be prepared to fall back to the previous configuration"."""
    quorum = quorum_with_leader(observers=(4,))
    quorum.isolate(1)
    quorum.add_voter(1, 4)
    quorum.persist(1)
    quorum.tick(1_000, 2, 3)
    quorum.elect(2)
    quorum.heal()
    quorum.run(2_000)
    assert quorum[1].voters.latest == voters(1, 2, 3)
    changed = [e for e in quorum.members[1].events if isinstance(e, VotersChanged)]
    assert changed[-1].voters == voters(1, 2, 3)


def test_a_change_is_committed_by_the_new_majority() -> None:
    """4.1: {1} and then {1, 2}: from the record on, both nodes are needed."""
    quorum = quorum_with_leader(1, observers=(2,))
    quorum.add_voter(1, 2)
    end = quorum[1].log.end_offset
    quorum.persist(1)
    assert quorum[1].high_watermark < end
    quorum.settle()
    assert quorum[1].high_watermark == end


def test_one_change_at_a_time() -> None:
    """4.1: "the prior configuration change is committed" before the next begins."""
    quorum = quorum_with_leader(observers=(4, 5))
    quorum.add_voter(1, 4)
    with pytest.raises(VoterChangePending, match="not committed yet"):
        quorum.add_voter(1, 5)
    with pytest.raises(VoterChangePending):
        quorum.remove_voter(1, 2)
    quorum.settle()
    quorum.add_voter(1, 5)
    quorum.settle()
    assert quorum[5].voters.latest == voters(1, 2, 3, 4, 5)


def test_no_change_before_the_first_commit_of_the_own_epoch() -> None:
    """The correction to 4.1 of July 2015 (B12)."""
    quorum = quorum_with_leader()
    quorum.tick(1_000, 2, 3)
    quorum.isolate(1)
    quorum.campaign(2)
    for _ in range(4):
        quorum.persist(2)
        quorum.persist(3)
        if quorum[2].is_leader:
            break
        quorum.deliver_all()
    assert quorum[2].is_leader
    with pytest.raises(VoterChangePending, match="has no committed entry"):
        quorum.remove_voter(2, 3)
    quorum.settle()
    quorum.remove_voter(2, 3)


def test_a_new_server_catches_up_before_it_votes() -> None:
    """4.2.1: it joins without a vote until it is close enough."""
    quorum = quorum_with_leader()
    quorum.options = {}
    with pytest.raises(VoterLagging, match="no node with this directory id follows"):
        quorum.raft(1).change_voters(VoterAddition(voter(4), address_of(4)), 0)
    quorum.observer(4)
    quorum.isolate(4)
    quorum.run(300)
    with pytest.raises(VoterLagging):
        quorum.add_voter(1, 4)
    quorum.heal()
    quorum.run(500)
    quorum.add_voter(1, 4)


def test_a_server_that_stopped_following_is_not_added() -> None:
    quorum = Quorum(append_bytes_max=100)
    quorum.elect(1)
    quorum.observer(4)
    quorum.run(300)
    quorum.isolate(4)
    for _ in range(20):
        quorum.propose(1, "x" * 20)
    quorum.settle()
    with pytest.raises(VoterLagging, match="offsets behind"):
        quorum.add_voter(1, 4)


@pytest.mark.parametrize("disk", [0, 1])
def test_voter_is_not_added_twice(disk: int) -> None:
    quorum = quorum_with_leader()
    with pytest.raises(DuplicateVoter):
        quorum.raft(1).change_voters(VoterAddition(voter(2, disk), address_of(2)), 0)


def test_only_a_voter_is_removed_and_with_its_own_disk() -> None:
    quorum = quorum_with_leader()
    for stranger in (voter(4), voter(2, 1)):
        with pytest.raises(VoterNotFound):
            quorum.raft(1).change_voters(VoterRemoval(stranger), 0)


def test_only_a_leader_changes_the_voters() -> None:
    quorum = quorum_with_leader(observers=(4,))
    with pytest.raises(NotController):
        quorum.add_voter(2, 4)
    with pytest.raises(NotController):
        quorum.remove_voter(2, 3)


def test_removed_leader_leads_until_its_removal_commits_without_counting_itself() -> None:
    """4.2.2: "it replicates log entries but does not count itself in majorities"."""
    quorum = quorum_with_leader()
    quorum.remove_voter(1, 1)
    quorum.persist(1)
    end = quorum[1].log.end_offset
    quorum.deliver_all(to=2)
    quorum.persist(2)
    quorum.deliver_all(to=1)
    assert quorum[1].is_leader
    assert quorum[1].high_watermark < end, "one of {2, 3}; the leader itself does not count"
    quorum.deliver_all(to=3)
    quorum.persist(3)
    quorum.deliver_all(to=1)
    assert quorum[1].high_watermark == end
    assert not quorum[1].is_leader


def test_a_removed_server_starts_no_election() -> None:
    """4.2.3 and KIP-853: a node outside of its own voter set never campaigns."""
    quorum = quorum_with_leader()
    quorum.remove_voter(1, 3)
    quorum.settle()
    quorum.isolate(3)
    quorum.run(5_000)
    assert (quorum.raft(3).role.name, quorum[3].epoch) == ("unattached", 1)
    assert quorum[1].is_leader


def test_removed_server_without_the_change_does_not_disrupt_the_leader() -> None:
    """4.2.3: "if a server receives a RequestVote request within the minimum election timeout of
    hearing from a current leader, it does not update its term or grant its vote" (B16)."""
    quorum = quorum_with_leader()
    quorum.isolate(3)
    quorum.remove_voter(1, 3)
    quorum.settle()
    quorum.heal()
    quorum.tick(2_500, 3)
    quorum.run(5_000)
    assert (quorum[1].is_leader, quorum[1].epoch) == (True, 1)


def test_vote_request_of_a_later_epoch_is_refused_while_the_leader_is_alive() -> None:
    """4.2.3, for a candidate without a pre-vote."""
    quorum = quorum_with_leader()
    request = VoteRequest(
        sender=voter(3),
        receiver=voter(2),
        epoch=Epoch(7),
        log_end=quorum[1].log.end,
        pre_vote=False,
    )
    quorum.step(request)
    assert quorum[2].epoch == 1
    assert [m.granted for m in quorum.flying if isinstance(m, VoteResponse)] == [False]


def test_vote_is_granted_to_a_server_outside_of_the_voter_set() -> None:
    """4.1: "a server accepts requests from a leader that is not part of its latest configuration",
    and grants votes likewise."""
    quorum = Quorum()
    quorum.observer(4)
    request = VoteRequest(
        sender=voter(4),
        receiver=voter(1),
        epoch=Epoch(3),
        log_end=quorum[4].log.end,
        pre_vote=False,
    )
    quorum.step(request)
    quorum.persist(1)
    assert [m.granted for m in quorum.flying if isinstance(m, VoteResponse)] == [True]


def test_an_observer_counts_for_nothing() -> None:
    """4.2.1: non-voting members "are not counted towards majorities" (B11)."""
    quorum = quorum_with_leader(observers=(4, 5, 6))
    quorum.split({1, 4, 5, 6}, {2, 3})
    end = quorum[1].high_watermark
    quorum.propose(1, "a")
    quorum.settle()
    assert quorum[4].log.end_offset == end + 1
    assert quorum[1].high_watermark == end


def test_the_last_voter_cannot_be_removed() -> None:
    quorum = quorum_with_leader(1)
    with pytest.raises(InvalidRequest, match="last voter"):
        quorum.remove_voter(1, 1)


def test_a_wiped_disk_takes_the_place_of_the_old_one_in_two_steps() -> None:
    """KIP-853: remove (3, old disk), then add (3, new disk)."""
    quorum = quorum_with_leader()
    quorum.wipe(3)
    quorum.run(500)
    assert quorum[3].me not in quorum[3].voters.latest
    quorum.remove_voter(1, 3)
    quorum.settle()
    quorum.add_voter(1, 3)
    quorum.settle()
    assert quorum[3].is_voter
    assert voter(3) not in quorum[1].voters.latest
