"""Decisions about elections and about requests for the leader, one at a time."""

from dataclasses import replace

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import address_of, voter

from quorumlog.errors import InvalidRequest
from quorumlog.ids import Epoch
from quorumlog.raftlog.config import EPOCH_MAX
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LOG_START, LogEnd
from quorumlog.raftlog.messages import (
    FollowRequest,
    FollowResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

ASKED = VoteRequest(
    sender=voter(2), receiver=voter(1), epoch=Epoch(1), log_end=LOG_START, pre_vote=False
)


def test_a_granted_vote_gives_the_candidate_time_and_a_refused_one_does_not() -> None:
    quorum = Quorum()
    quorum.prepare(1, [])
    quorum.members[1].disk.hard_state = HardState(Epoch(1), None)
    quorum.restart(1)
    before = quorum.raft(1).next_deadline_ms()
    assert before is not None
    quorum.members[1].now_ms += 400
    quorum.step(ASKED)
    assert quorum.raft(1).next_deadline_ms() == before + 400
    quorum.members[1].now_ms += 400
    quorum.step(replace(ASKED, sender=voter(3)))
    assert quorum.raft(1).next_deadline_ms() == before + 400


def follow_addresses(quorum: Quorum) -> list[str]:
    """Record the addresses of all later follow requests."""
    asked: list[str] = []
    quorum.sent = lambda node_id, m: (
        asked.append(m.receiver_address) if isinstance(m, FollowRequest) else None
    )
    return asked


def test_addresses_are_asked_in_turn_and_from_the_first_one_again() -> None:
    quorum = quorum_with_leader()
    quorum.isolate(1)
    asked = follow_addresses(quorum)
    quorum.observer(4)
    quorum.isolate(4)
    quorum.run(4_000)
    first = [address_of(n) for n in (1, 2, 3)]
    assert asked[:6] == first * 2


@pytest.mark.parametrize(
    ("leader", "address"),
    [(2, address_of(2)), (None, address_of(3)), (3, "")],
    ids=["the answering one itself", "no leader", "one without an address"],
)
def test_response_without_another_address_is_not_followed_up(
    leader: int | None, address: str
) -> None:
    quorum = quorum_with_leader()
    quorum.observer(4)
    quorum.isolate(4)
    quorum.crash(1)
    quorum.flying.clear()
    quorum.restart(4)
    quorum.members[4].now_ms += 1
    asked = follow_addresses(quorum)
    quorum.step(
        FollowResponse(
            sender=voter(2),
            receiver=voter(4),
            epoch=Epoch(0),
            leader=None if leader is None else voter(leader),
            leader_address=address,
        )
    )
    assert asked == []


def test_named_leader_gets_one_follow_request_at_once() -> None:
    quorum = quorum_with_leader()
    quorum.observer(4)
    quorum.isolate(4)
    quorum.flying.clear()
    quorum.restart(4)
    asked = follow_addresses(quorum)
    named = FollowResponse(
        sender=voter(2),
        receiver=voter(4),
        epoch=Epoch(0),
        leader=voter(3),
        leader_address="host-8:9090",
    )
    quorum.members[4].now_ms += 1
    quorum.step(named)
    quorum.step(named)
    assert asked == ["host-8:9090"]


def test_refused_pre_vote_has_the_epoch_of_the_refusing_node() -> None:
    """Cases: an older epoch, a shorter log, and neither."""
    quorum = Quorum()
    quorum.prepare(1, [1, 3])
    quorum.restart(1)
    asked = replace(
        ASKED, pre_vote=True, epoch=Epoch(3), log_end=LogEnd(Epoch(3), quorum[1].log.end_offset)
    )
    for request in (
        replace(asked, epoch=Epoch(2)),
        replace(asked, log_end=LogEnd(Epoch(1), asked.log_end.offset)),
        asked,
    ):
        quorum.step(request)
    said = [m for m in quorum.flying if isinstance(m, VoteResponse)]
    assert [(m.granted, m.pre_vote, m.epoch) for m in said] == [
        (False, True, 3),
        (False, True, 3),
        (True, True, 3),
    ]


@pytest.mark.parametrize(("later_ms", "count"), [(0, 0), (1, 1)])
def test_started_voter_sends_a_named_leader_a_follow_request_after_a_pause(
    later_ms: int, count: int
) -> None:
    quorum = Quorum()
    asked = follow_addresses(quorum)
    quorum.members[1].now_ms += later_ms
    quorum.step(
        FollowResponse(
            sender=voter(2),
            receiver=voter(1),
            epoch=Epoch(0),
            leader=voter(3),
            leader_address=address_of(3),
        )
    )
    assert len(asked) == count


def test_pre_candidate_that_voted_for_another_stops_its_campaign() -> None:
    """Late promises do not make it campaign against the candidate that it voted for."""
    quorum = Quorum()
    quorum.prepare(1, [])
    quorum.members[1].disk.hard_state = HardState(Epoch(1), None)
    quorum.restart(1)
    quorum.campaign(1)
    quorum.step(ASKED)
    quorum.step(
        VoteResponse(
            sender=voter(3), receiver=voter(1), epoch=Epoch(1), granted=True, pre_vote=True
        )
    )
    assert quorum.raft(1).role.name == "unattached"
    assert (quorum[1].epoch, quorum[1].vote) == (1, voter(2))
    assert quorum.raft(1).next_deadline_ms() == quorum.members[1].now_ms + 1_000


def test_pre_candidate_votes_for_a_candidate_with_a_longer_log_in_its_epoch() -> None:
    """Node 2 opened epoch 1, which node 1 had received when it began its pre-vote."""
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
    role = quorum.raft(1).role
    assert role.name == "pre_candidate", (
        "its vote in this epoch is given, so its pre-vote continues"
    )
    assert [m.granted for m in quorum.flying if isinstance(m, VoteResponse)] == [False]


def test_unexpected_vote_responses_are_ignored() -> None:
    quorum = quorum_with_leader()
    answer = VoteResponse(
        sender=voter(3), receiver=voter(2), epoch=Epoch(1), granted=True, pre_vote=False
    )
    quorum.step(answer)
    assert quorum.raft(2).role.name == "follower"
    quorum.campaign(2)
    quorum.step(answer)
    assert quorum.raft(2).role.name == "pre_candidate", "a vote is no promise"


def test_the_last_epoch_is_never_passed() -> None:
    quorum = Quorum()
    quorum.members[1].disk.hard_state = HardState(EPOCH_MAX, None)
    quorum.restart(1)
    quorum.tick(10_000, 1)
    assert (quorum.raft(1).role.name, quorum[1].epoch) == ("unattached", EPOCH_MAX)


def test_requests_of_an_older_epoch_are_answered_and_responses_are_not() -> None:
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


def test_follower_names_the_leader_and_an_observer_follows_it() -> None:
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
    assert member.raft_state.leader == voter(1)
    assert set(asked) == {address_of(n) for n in (1, 2, 3)}
    assert asked.count(address_of(1)) > asked.count(address_of(3)), "the response named the leader"


def test_wiped_node_sends_no_follow_request_to_its_own_address() -> None:
    """The voter set has it with its old disk, at its own address."""
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


def test_node_without_other_voters_sends_no_follow_request() -> None:
    quorum = Quorum(())
    member = quorum.observer(1)
    quorum.run(1_000)
    assert member.raft.role.name == "unattached"
    assert not quorum.flying


def test_follow_response_with_the_known_leader_or_none_changes_nothing() -> None:
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


def test_lone_voter_does_not_depend_on_its_observers() -> None:
    quorum = quorum_with_leader(1)
    quorum.observer(2)
    quorum.run(500)
    quorum.crash(2)
    quorum.propose(1, "a")
    quorum.settle()
    assert quorum.members[1].state == ["a"]
    with pytest.raises(InvalidRequest):
        quorum.remove_voter(1, 1)
