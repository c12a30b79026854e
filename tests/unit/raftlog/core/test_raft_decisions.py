"""Decisions of a member in every role: timeouts, addresses, successors, delivery."""

from dataclasses import replace

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import SnapshotFile, address_of, data, voter, voters

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import SnapshotId
from quorumlog.raftlog.messages import (
    AppendRequest,
    EndEpoch,
    FollowRequest,
    Heartbeat,
    SnapshotChunk,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.voters import VoterHistory, VoterMove


def record_requests(quorum: Quorum) -> list[FollowRequest]:
    """Record the requests of nodes that look for the leader."""
    asked: list[FollowRequest] = []
    quorum.sent = lambda node_id, m: asked.append(m) if isinstance(m, FollowRequest) else None
    return asked


@pytest.mark.parametrize(("extra_ms", "wait_ms"), [(0, 200), (70, 270), (999, 400)])
def test_observer_repeats_its_follow_request_after_two_to_four_heartbeats(
    extra_ms: int, wait_ms: int
) -> None:
    quorum = quorum_with_leader()
    member = quorum.observer(4)
    quorum.isolate(4)
    quorum.restart(4)
    member.entropy.extra_ms = extra_ms
    asked = record_requests(quorum)
    for _ in range(3):
        quorum.tick(0, 4)
        due_ms = quorum.raft(4).next_deadline_ms()
        assert due_ms == member.now_ms + wait_ms
        quorum.tick(wait_ms - 1, 4)
        member.now_ms += 1
    assert len(asked) == 3


def installing() -> Quorum:
    """Node 3 follows and installs a snapshot of node 1."""
    quorum = Quorum()
    content = SnapshotFile.of(["a"], voters(1, 2, 3)).content
    quorum.step(
        SnapshotChunk(
            sender=voter(1),
            receiver=voter(3),
            epoch=Epoch(1),
            snapshot=SnapshotId(Offset(3), Epoch(1)),
            voters=voters(1, 2, 3),
            size=len(content),
            position=0,
            content=content,
        )
    )
    return quorum


def test_installing_voter_keeps_its_leader_until_its_election_timer() -> None:
    quorum = installing()
    member = quorum.members[3]
    asked = record_requests(quorum)
    due_ms = quorum.raft(3).next_deadline_ms()
    assert due_ms is not None
    quorum.tick(due_ms - member.now_ms, 3)
    assert (quorum.raft(3).role.name, quorum[3].leader) == ("follower", voter(1))
    assert len(asked) == 1
    assert quorum.raft(3).next_deadline_ms() == member.now_ms + 1_000 + member.entropy.extra_ms


def test_leader_address_is_the_announced_one_or_none() -> None:
    quorum = quorum_with_leader()
    change = VoterMove(voter(1), "other:1")
    quorum.remember(1, quorum.raft(1).change_voters(change, 0))
    quorum.settle()
    assert quorum.raft(1)._leader_address() == address_of(1)
    assert quorum.raft(2)._leader_address() == "other:1"
    quorum.observer(4)
    quorum.flying.clear()
    quorum.step(
        Heartbeat(
            sender=voter(1), receiver=voter(4), epoch=Epoch(1), high_watermark=Offset(0), round=1
        )
    )
    assert (quorum[4].leader, quorum.raft(4)._leader_address()) == (voter(1), "")


def test_messages_of_a_second_leader_of_an_epoch_are_dropped() -> None:
    quorum = quorum_with_leader()
    before, end = quorum.raft(2).next_deadline_ms(), quorum[2].log.end_offset
    quorum.members[2].now_ms += 50
    quorum.step(
        AppendRequest(
            sender=voter(3),
            receiver=voter(2),
            epoch=Epoch(1),
            prev=quorum[2].log.end,
            entries=(data(end, 1),),
            high_watermark=Offset(0),
        )
    )
    assert not quorum.flying
    assert (quorum.raft(2).next_deadline_ms(), quorum[2].log.end_offset) == (before, end)


def test_no_pre_vote_is_a_part_of_a_transfer() -> None:
    quorum = quorum_with_leader()
    request = VoteRequest(
        sender=voter(3),
        receiver=voter(2),
        epoch=Epoch(1),
        log_end=quorum[3].log.end,
        pre_vote=True,
        is_transfer=True,
    )
    quorum.step(request)
    quorum.step(replace(request, epoch=Epoch(2)))
    said = [m for m in quorum.flying if isinstance(m, VoteResponse)]
    assert [(m.granted, m.epoch) for m in said] == [(False, 1), (False, 1)]


@pytest.mark.parametrize(("successors", "wait_ms"), [((2, 3), 200), ((1, 2, 3), 400)])
def test_each_successor_waits_for_those_before_it(
    successors: tuple[int, ...], wait_ms: int
) -> None:
    quorum = quorum_with_leader()
    quorum.step(farewell(*successors))
    assert quorum.raft(3).role.name == "unattached"
    assert quorum.raft(3).next_deadline_ms() == quorum.members[3].now_ms + wait_ms


def test_the_first_successor_waits_a_little_when_it_cannot_campaign_yet() -> None:
    quorum = installing()
    quorum.step(farewell(3, 2))
    assert quorum.raft(3).role.name == "unattached"
    assert quorum.raft(3).next_deadline_ms() == quorum.members[3].now_ms + 200


def farewell(*successors: int) -> EndEpoch:
    """Node 1 sends node 3 its resignation."""
    return EndEpoch(
        sender=voter(1),
        receiver=voter(3),
        epoch=Epoch(1),
        successors=tuple(voter(node_id) for node_id in successors),
    )


def test_observer_sends_a_follow_request_within_a_heartbeat_of_a_resignation() -> None:
    quorum = quorum_with_leader()
    quorum.observer(4)
    quorum.run(500)
    quorum.isolate(4)
    due_ms = quorum.raft(4).next_deadline_ms()
    assert due_ms is not None
    quorum.tick(due_ms - quorum.members[4].now_ms, 4)
    assert quorum.raft(4).role.name == "unattached"
    assert quorum.raft(4).next_deadline_ms() == due_ms + 99


def test_resigned_leader_campaigns_after_all_others() -> None:
    quorum = quorum_with_leader()
    quorum.resign(1)
    longest_ms = 2_000
    waits_ms = longest_ms + 1_000 + quorum.members[1].entropy.extra_ms
    assert quorum.raft(1).next_deadline_ms() == quorum.members[1].now_ms + waits_ms


def test_leader_whose_own_removal_was_not_replicated_campaigns_again() -> None:
    """Without it the change may stay uncommitted forever. It commits first."""
    quorum = quorum_with_leader()
    quorum.isolate(1)
    quorum.remove_voter(1, 1)
    quorum.settle()
    quorum.tick(2_000, 1)
    assert quorum.raft(1).role.name == "unattached"
    assert (quorum[1].is_voter, quorum[1].voters.latest_offset) == (False, quorum[1].high_watermark)
    quorum.campaign(1)
    assert quorum.raft(1).role.name == "pre_candidate"


def test_observer_does_not_campaign_after_the_removal_of_another_voter() -> None:
    quorum = quorum_with_leader()
    quorum.observer(4)
    quorum.run(500)
    quorum.remove_voter(1, 3)
    quorum.deliver_all(to=4)
    quorum.persist(4)
    assert quorum[4].voters.latest == voters(1, 2)
    assert quorum[4].voters.latest_offset >= quorum[4].high_watermark
    quorum.isolate(4)
    quorum.flying.clear()
    roles = set()
    for _ in range(5):
        quorum.tick(3_000, 4)
        roles.add(quorum.raft(4).role.name)
    assert roles == {"unattached"}


def test_node_without_a_leader_names_none() -> None:
    quorum = Quorum()
    assert (quorum[1].leader, quorum[1].leader_id) == (None, None)
    assert quorum.raft(1)._leader_address() == ""
    quorum.elect(1)
    assert [quorum[node_id].leader_id for node_id in (1, 2, 3)] == [1, 1, 1]


def test_initial_voters_survive_every_truncation() -> None:
    history = VoterHistory(voters(1, 2), start_offset=Offset(50))
    history.append(Offset(60), voters(1, 2, 3))
    assert history.truncate_to(Offset(10))
    assert (history.latest, history.latest_offset) == (voters(1, 2), 49)


def test_below_a_logs_start_the_voters_are_those_it_started_with() -> None:
    history = VoterHistory(voters(1, 2), start_offset=Offset(50))
    history.append(Offset(60), voters(1, 2, 3))
    for offset in (10, 55):
        history.clean_to(Offset(offset))
        assert history.at(Offset(10)) == history.at(Offset(60)) == voters(1, 2)
    history.append(Offset(70), voters(1, 2, 3, 4))
    history.clean_to(Offset(70))
    assert history.at(Offset(10)) == history.at(Offset(70)) == voters(1, 2, 3)


def test_a_batch_has_a_record_and_a_state_its_order() -> None:
    quorum = quorum_with_leader()
    with pytest.raises(AssertionError, match="a batch of 0 records"):
        quorum.raft(1).propose(count=0, payload=b"")
    end = quorum[1].applied_end
    quorum.raft(1).applied(Offset(0))
    assert quorum[1].applied_end == end, "it never decreases"


def test_an_older_snapshot_than_the_newest_is_not_kept() -> None:
    quorum = quorum_with_leader()
    first = quorum.snapshot(1)
    quorum.propose(1, "a")
    quorum.settle()
    second = quorum.snapshot(1)
    quorum.raft(1).snapshot_taken(first)
    assert quorum[1].snapshots == (first, second)


def test_entries_of_a_proposal_follow_the_log() -> None:
    quorum = quorum_with_leader()
    entry = quorum.raft(1).propose(count=2, payload=b"x")
    assert entry.base_offset == quorum[1].writes.unwritten[0].base_offset
    assert data(0, 1).next_offset == 1
