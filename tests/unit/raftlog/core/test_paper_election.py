"""The Raft paper, one test for each rule: figure 2, sections 5.1, 5.2 and 5.4.1 (Ongaro, Ousterhout
2014).

The paper's term is the epoch, its RequestVote RPC a VoteRequest, its log index an offset.
"""

import pytest
from tests.kit.quorum import Quorum
from tests.kit.raft_member import data, voter

from quorumlog.ids import Epoch, NodeId, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LogEnd
from quorumlog.raftlog.messages import (
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.voters import Voter


def vote_request(
    sender: int,
    receiver: int,
    *,
    epoch: int,
    log: tuple[int, int] = (0, 0),
    pre_vote: bool = False,
) -> VoteRequest:
    """Build a vote request; `log` is (epoch, end offset)."""
    return VoteRequest(
        sender=voter(sender),
        receiver=voter(receiver),
        epoch=Epoch(epoch),
        log_end=LogEnd(Epoch(log[0]), Offset(log[1])),
        pre_vote=pre_vote,
    )


def heartbeat(sender: int, receiver: int, *, epoch: int, round_: int = 1) -> Heartbeat:
    return Heartbeat(
        sender=voter(sender),
        receiver=voter(receiver),
        epoch=Epoch(epoch),
        high_watermark=Offset(0),
        round=round_,
    )


def answers(quorum: Quorum, message: Message) -> list[Message]:
    """Return the responses of a node to a message, after its writes are durable."""
    quorum.flying.clear()
    quorum.step(message)
    while quorum.persist(quorum.target(message)):
        pass
    return list(quorum.flying)


def granted(quorum: Quorum, request: VoteRequest) -> bool:
    (answer,) = answers(quorum, request)
    assert isinstance(answer, VoteResponse)
    return answer.granted


def candidate(quorum: Quorum, node_id: int = 1) -> None:
    """Make node 1 a candidate with all pre-votes, a durable own vote and lost requests."""
    quorum.campaign(node_id)
    quorum.deliver_all()
    quorum.deliver_all(to=node_id)
    quorum.persist(node_id)
    quorum.flying.clear()
    assert quorum.raft(node_id).role.name == "candidate"


# --- 5.1: epochs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["follower", "candidate", "leader"])
def test_a_node_that_sees_a_later_epoch_adopts_it_and_steps_down(role: str) -> None:
    """Figure 2, all servers: "if RPC request or response contains term T > currentTerm"."""
    quorum = Quorum()
    if role == "candidate":
        candidate(quorum)
    elif role == "leader":
        quorum.elect(1)
    else:
        quorum.elect(2)
    assert quorum.raft(1).role.name == role
    quorum.step(heartbeat(3, 1, epoch=7))
    assert (quorum[1].epoch, quorum[1].vote) == (7, None)
    assert (quorum.raft(1).role.name, quorum[1].leader) == ("follower", voter(3))


def test_the_answer_of_a_later_epoch_ends_a_leadership() -> None:
    """The same rule for responses."""
    quorum = Quorum()
    quorum.elect(1)
    quorum.step(
        HeartbeatResponse(
            sender=voter(2),
            receiver=voter(1),
            epoch=Epoch(9),
            round=0,
            match_end=None,
            received_end=None,
        )
    )
    assert (quorum.raft(1).role.name, quorum[1].epoch) == ("unattached", 9)


@pytest.mark.parametrize("is_empty", [True, False])
def test_request_of_an_older_epoch_changes_nothing_and_returns_the_current_epoch(
    is_empty: bool,
) -> None:
    """Figure 2, AppendEntries receiver 1: "reply false if term < currentTerm"."""
    quorum = Quorum()
    quorum.elect(1)
    quorum.propose(1, "a")
    quorum.settle()
    before = quorum[2].log.end
    old = AppendRequest(
        sender=voter(3),
        receiver=voter(2),
        epoch=Epoch(0),
        prev=LogEnd(Epoch(0), Offset(0)),
        entries=() if is_empty else (data(0, 0, "old"),),
        high_watermark=Offset(0),
    )
    (answer,) = answers(quorum, old)
    assert answer.epoch == 1
    assert (quorum[2].log.end, quorum[2].leader) == (before, voter(1))


def test_a_vote_of_an_older_epoch_is_refused() -> None:
    """Figure 2, RequestVote receiver 1."""
    quorum = Quorum()
    quorum.prepare(1, [1, 4])
    quorum.restart(1)
    (answer,) = answers(quorum, vote_request(2, 1, epoch=3, log=(3, 99)))
    assert answer == VoteResponse(
        sender=voter(1), receiver=voter(2), epoch=Epoch(4), granted=False, pre_vote=False
    )


def test_the_epoch_is_kept_on_stable_storage() -> None:
    """Figure 2, persistent state: currentTerm, updated before responding."""
    quorum = Quorum()
    quorum.step(vote_request(2, 1, epoch=5))
    assert not quorum.flying, "no response before the epoch is durable"
    quorum.persist(1)
    quorum.restart(1)
    assert (quorum[1].epoch, quorum[1].vote) == (5, voter(2))


# --- 5.2: elections ------------------------------------------------------------------------------


def test_nodes_start_without_a_leader() -> None:
    """5.2: "when servers start up, they begin as followers". Here they start without a leader."""
    assert {raft.role.name for raft in map(Quorum().raft, (1, 2, 3))} == {"unattached"}


def test_leader_sends_periodic_heartbeats() -> None:
    """5.2: heartbeats to all followers, to maintain its authority."""
    quorum = Quorum()
    quorum.elect(1)
    for number in (1, 2, 3):
        quorum.tick(100, 1)
        sent = [m for m in quorum.flying if isinstance(m, Heartbeat)]
        assert [(m.receiver, m.round) for m in sent] == [(voter(2), number), (voter(3), number)]
        quorum.flying.clear()


def test_follower_does_not_campaign_while_its_leader_sends_heartbeats() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.run(10_000)
    assert (quorum[1].is_leader, quorum[1].epoch) == (True, 1)
    assert {quorum.raft(node_id).role.name for node_id in (2, 3)} == {"follower"}


@pytest.mark.parametrize("role", ["unattached", "follower", "candidate"])
def test_silence_for_an_election_timeout_starts_an_election(role: str) -> None:
    """Figure 2, followers and candidates. Here an election starts with a pre-vote (9.6)."""
    quorum = Quorum()
    if role == "follower":
        quorum.elect(2)
    elif role == "candidate":
        candidate(quorum)
    deadline_ms = quorum.raft(1).next_deadline_ms()
    assert deadline_ms is not None
    quorum.tick(deadline_ms - quorum.members[1].now_ms - 1, 1)
    assert quorum.raft(1).role.name == role
    quorum.tick(1, 1)
    assert quorum.raft(1).role.name == "pre_candidate"


def test_a_candidate_votes_for_itself_in_a_new_epoch_and_asks_all() -> None:
    """Figure 2, candidates: increment currentTerm, vote for self, send RequestVote to all."""
    quorum = Quorum(range(1, 6))
    quorum.campaign(1)
    quorum.deliver_all()
    quorum.deliver_all()
    assert (quorum[1].epoch, quorum[1].vote) == (1, voter(1))
    quorum.flying.clear()
    quorum.persist(1)
    asked = [m for m in quorum.flying if isinstance(m, VoteRequest)]
    assert [(m.receiver.node_id, m.epoch, m.pre_vote) for m in asked] == [
        (node_id, 1, False) for node_id in (2, 3, 4, 5)
    ]
    assert quorum.members[1].disk.hard_state == HardState(Epoch(1), voter(1))


@pytest.mark.parametrize(("size", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)])
def test_a_majority_of_votes_makes_a_leader_and_one_less_does_not(size: int, needed: int) -> None:
    """5.2: "a candidate wins if it receives votes from a majority of the servers"."""
    quorum = Quorum(range(1, size + 1))
    candidate(quorum)
    for count, node_id in enumerate(range(2, size + 1), 1):
        assert quorum[1].is_leader is (count - 1 >= needed)
        if quorum[1].is_leader:
            break
        quorum.step(
            VoteResponse(
                sender=voter(node_id),
                receiver=voter(1),
                epoch=Epoch(1),
                granted=True,
                pre_vote=False,
            )
        )
    assert quorum[1].is_leader


def test_a_majority_of_refusals_makes_no_leader() -> None:
    quorum = Quorum()
    candidate(quorum)
    for node_id in (2, 3):
        quorum.step(
            VoteResponse(
                sender=voter(node_id),
                receiver=voter(1),
                epoch=Epoch(1),
                granted=False,
                pre_vote=False,
            )
        )
    assert not quorum[1].is_leader


def test_one_vote_an_epoch_first_come_first_served() -> None:
    """5.2: "each server will vote for at most one candidate in a given term"."""
    quorum = Quorum(range(1, 4))
    assert granted(quorum, vote_request(2, 1, epoch=1))
    assert not granted(quorum, vote_request(3, 1, epoch=1))
    assert granted(quorum, vote_request(2, 1, epoch=1)), "the same candidate may repeat its request"
    assert granted(quorum, vote_request(3, 1, epoch=2)), "another epoch has another vote"


def test_candidate_follows_the_leader_of_its_epoch() -> None:
    """5.2 and figure 2: "if AppendEntries RPC received from new leader: convert to follower"."""
    quorum = Quorum()
    candidate(quorum)
    quorum.step(heartbeat(2, 1, epoch=1))
    assert (quorum.raft(1).role.name, quorum[1].leader, quorum[1].epoch) == (
        "follower",
        voter(2),
        1,
    )


def test_candidate_ignores_the_leader_of_an_older_epoch() -> None:
    """5.2: "if the term in the RPC is smaller, the candidate rejects the RPC"."""
    quorum = Quorum()
    candidate(quorum)
    quorum.step(heartbeat(2, 1, epoch=0))
    assert quorum.raft(1).role.name == "candidate"


def test_a_split_vote_is_followed_by_another_election() -> None:
    """5.2: a candidate times out and starts a new election."""
    quorum = Quorum(range(1, 5))
    for node_id in (1, 2):
        quorum.campaign(node_id)
    quorum.settle()
    assert not any(quorum[node_id].is_leader for node_id in (1, 2, 3, 4)) or quorum[1].epoch == 1
    quorum.run(5_000)
    assert sum(quorum[node_id].is_leader for node_id in (1, 2, 3, 4)) == 1


def test_election_timeouts_are_drawn_from_the_whole_range() -> None:
    """5.2: "election timeouts are chosen randomly from a fixed interval"."""
    drawn = set()
    for extra_ms in (0, 1, 500, 1000, 5000):
        quorum = Quorum()
        quorum.members[1].entropy.extra_ms = extra_ms
        quorum.restart(1)
        drawn.add(quorum.raft(1).next_deadline_ms())
    assert drawn == {1000, 1001, 1500, 2000}


def test_a_new_timeout_is_drawn_for_every_election() -> None:
    """5.2: "each candidate restarts its randomized election timeout at the start of an
    election"."""
    quorum = Quorum()
    quorum.campaign(1)
    quorum.members[1].entropy.extra_ms = 777
    first = quorum.members[1].now_ms
    quorum.campaign(1)
    deadline_ms = quorum.raft(1).next_deadline_ms()
    assert quorum.members[1].now_ms == first + 1000
    assert deadline_ms == first + 1000 + 1777


def test_granted_vote_resets_the_election_timer() -> None:
    """Figure 2, followers: "without receiving AppendEntries or granting vote"."""
    quorum = Quorum()
    quorum.tick(900, 1)
    assert granted(quorum, vote_request(2, 1, epoch=1))
    deadline_ms = quorum.raft(1).next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms >= 1900


def test_different_timeouts_let_one_win_at_once() -> None:
    """5.2: "in most cases only a single server will time out"."""
    quorum = Quorum()
    quorum.run(1_300)
    assert (quorum[1].is_leader, quorum[1].epoch) == (True, 1)


# --- 5.4.1: election restriction -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "log", "yes"),
    [
        ([1], (1, 1), True),
        ([1], (1, 2), True),
        ([1, 1], (1, 1), False),
        ([1], (2, 1), True),
        ([1, 1], (2, 1), True),
        ([2], (1, 1), False),
        ([2], (1, 9), False),
        ([1, 3], (3, 1), False),
        ([], (0, 0), True),
    ],
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_vote_goes_to_a_log_at_least_as_up_to_date(
    own: list[int], log: tuple[int, int], yes: bool, pre_vote: bool
) -> None:
    """5.4.1: the later last epoch, then the longer log."""
    quorum = Quorum()
    quorum.prepare(1, own)
    quorum.restart(1)
    assert granted(quorum, vote_request(2, 1, epoch=9, log=log, pre_vote=pre_vote)) is yes


def test_vote_request_has_the_end_of_the_log() -> None:
    """Figure 2, RequestVote arguments: lastLogIndex, lastLogTerm."""
    quorum = Quorum()
    quorum.prepare(1, [1, 1, 3])
    quorum.restart(1)
    quorum.campaign(1)
    asked = [m for m in quorum.flying if isinstance(m, VoteRequest)]
    assert {m.log_end for m in asked} == {LogEnd(Epoch(3), Offset(3))}


def test_node_without_a_committed_entry_never_leads() -> None:
    """5.4.3, leader completeness: a majority has the entry, and every winner has votes of a
    majority."""
    quorum = Quorum(range(1, 6))
    quorum.elect(1)
    quorum.split({1, 2, 3}, {4, 5})
    quorum.propose(1, "committed")
    quorum.settle()
    assert quorum[1].high_watermark == quorum[1].log.end_offset
    quorum.crash(1)
    quorum.heal()
    for _ in range(3):
        for node_id in (4, 5):
            quorum.tick(2_000, 2, 3)
            quorum.campaign(node_id)
            quorum.settle()
            assert not quorum[node_id].is_leader
    quorum.run(5_000)
    (leader,) = (node_id for node_id in (2, 3, 4, 5) if quorum[node_id].is_leader)
    assert leader in (2, 3)
    assert quorum.members[leader].state == ["committed"]


def test_vote_identifies_the_candidate_with_its_disk() -> None:
    """KIP-853: with the id alone a node could vote again after its disk was wiped."""
    quorum = Quorum()
    granted(quorum, vote_request(2, 1, epoch=1))
    assert quorum.members[1].disk.hard_state.vote == Voter(NodeId(2), voter(2).directory_id)
