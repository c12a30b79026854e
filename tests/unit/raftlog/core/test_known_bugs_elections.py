"""Regressions of bugs in other implementations, elections: B1 to B5, B9, B15 to B19, B24, B34.

test_known_bugs_log.py and test_known_bugs_members.py have the other ones.
"""

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import voter

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LogEnd
from quorumlog.raftlog.messages import (
    AppendResponse,
    Heartbeat,
    Message,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)


def vote(
    sender: int, receiver: int, *, epoch: int, log: LogEnd | None = None, pre_vote: bool = False
) -> VoteRequest:
    return VoteRequest(
        sender=voter(sender),
        receiver=voter(receiver),
        epoch=Epoch(epoch),
        log_end=log or LogEnd(Epoch(0), Offset(0)),
        pre_vote=pre_vote,
    )


def grant(sender: int, *, epoch: int, pre_vote: bool = False, granted: bool = True) -> VoteResponse:
    """Build a vote for node 1."""
    return VoteResponse(
        sender=voter(sender),
        receiver=voter(1),
        epoch=Epoch(epoch),
        granted=granted,
        pre_vote=pre_vote,
    )


def votes_in_flight(quorum: Quorum) -> list[bool]:
    """Return the vote responses in flight."""
    return [m.granted for m in quorum.flying if isinstance(m, VoteResponse)]


def candidate(*node_ids: int) -> Quorum:
    """Make node 1 a candidate of epoch 1 with a durable vote and lost requests."""
    quorum = Quorum(node_ids or (1, 2, 3))
    quorum.campaign(1)
    quorum.deliver_all()
    quorum.deliver_all()
    quorum.persist(1)
    quorum.flying.clear()
    assert quorum.raft(1).role.name == "candidate"
    return quorum


@pytest.mark.parametrize("crash", ["before", "during", "after"])
def test_b01_a_vote_is_not_given_twice_whenever_the_node_crashes(crash: str) -> None:
    """A node grants its vote, crashes, restarts and gets another request: two leaders of one
    epoch."""
    quorum = Quorum()
    quorum.step(vote(2, 1, epoch=1))
    if crash == "during":
        quorum.persist(1, only="hard_state")
    elif crash == "after":
        quorum.persist(1)
    heard = votes_in_flight(quorum)
    quorum.flying.clear()
    quorum.restart(1)
    quorum.step(vote(3, 1, epoch=1))
    quorum.persist(1)
    assert heard == ([True] if crash == "after" else [])
    assert votes_in_flight(quorum) == ([True] if crash == "before" else [False])


def test_b02_epoch_and_vote_are_one_value_on_the_disk() -> None:
    """If they are written apart, a crash in between leaves the new epoch with the old vote."""
    quorum = Quorum()
    quorum.step(vote(2, 1, epoch=1))
    quorum.persist(1)
    quorum.step(vote(3, 1, epoch=2))
    ready = quorum.members[1].writing
    assert ready is not None
    assert ready.hard_state == HardState(Epoch(2), voter(3))
    quorum.restart(1)
    assert (quorum[1].epoch, quorum[1].vote) == (1, voter(2))


def test_b03_a_vote_that_comes_twice_counts_once() -> None:
    quorum = candidate(1, 2, 3, 4, 5)
    for _ in range(5):
        quorum.step(grant(2, epoch=1))
    assert not quorum[1].is_leader
    quorum.step(grant(3, epoch=1))
    assert quorum[1].is_leader


def test_b03_a_vote_for_itself_cannot_be_delivered_to_it() -> None:
    quorum = candidate(1, 2, 3, 4, 5)
    quorum.step(grant(2, epoch=1))
    quorum.step(grant(1, epoch=1))
    assert not quorum[1].is_leader


def test_b04_a_candidate_has_voted() -> None:
    """Its vote for itself is recorded and durable, and it grants no other vote."""
    quorum = candidate()
    assert quorum.members[1].disk.hard_state == HardState(Epoch(1), voter(1))
    quorum.step(vote(2, 1, epoch=1, log=LogEnd(Epoch(0), Offset(99))))
    quorum.persist(1)
    assert votes_in_flight(quorum) == [False]
    quorum.flying.clear()
    quorum.restart(1)
    quorum.step(vote(2, 1, epoch=1))
    quorum.persist(1)
    assert votes_in_flight(quorum) == [False]


def test_b04_a_candidate_is_not_elected_before_its_own_vote_is_durable() -> None:
    quorum = Quorum()
    quorum.campaign(1)
    quorum.deliver_all()
    quorum.deliver_all()
    for sender in (2, 3):
        quorum.step(grant(sender, epoch=1))
    assert not quorum[1].is_leader
    quorum.persist(1)
    assert quorum[1].is_leader


def test_b04_completion_of_another_write_does_not_confirm_the_own_vote() -> None:
    """Entries were being written when the campaign began; they become durable first."""
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.deliver_all(to=2)
    quorum.flying.clear()
    quorum.tick(2_000, 3)
    quorum.campaign(2)
    quorum.deliver_all(to=3)
    quorum.deliver_all(to=2)
    assert quorum.raft(2).role.name == "candidate"
    vote_of_three = VoteResponse(
        sender=voter(3), receiver=voter(2), epoch=Epoch(2), granted=True, pre_vote=False
    )
    quorum.step(vote_of_three)
    quorum.persist(2)
    assert quorum.raft(2).role.name == "candidate", "the entries are durable, the vote is not"
    quorum.persist(2)
    assert quorum[2].is_leader


def test_b05_a_candidate_that_asks_again_gets_the_same_answer() -> None:
    """A refusal would cost another epoch."""
    quorum = Quorum()
    for _ in range(2):
        quorum.step(vote(2, 1, epoch=1))
        quorum.persist(1)
    assert votes_in_flight(quorum) == [True, True]
    quorum.flying.clear()
    quorum.restart(1)
    quorum.step(vote(2, 1, epoch=1))
    quorum.persist(1)
    assert votes_in_flight(quorum) == [True]


def test_b09_a_later_epoch_outweighs_any_length() -> None:
    """If each field is compared by itself, a long old log and a short new one each refuse the
    other, or each accept it."""
    for own, other, yes in (([1, 1, 1, 1], (2, 1), True), ([2], (1, 4), False)):
        quorum = Quorum()
        quorum.prepare(1, own)
        quorum.restart(1)
        quorum.step(vote(2, 1, epoch=5, log=LogEnd(Epoch(other[0]), Offset(other[1]))))
        quorum.persist(1)
        assert votes_in_flight(quorum) == [yes]


def test_b15_a_wiped_node_does_not_vote_under_its_old_id() -> None:
    """An entry is on {1, 2, 3} of five voters. Node 3 is wiped, 1 dies, and 5 requests votes of {3,
    4}. If 5 won, the entry would be lost."""
    quorum = quorum_with_leader(1, 2, 3, 4, 5)
    quorum.split({1, 2, 3}, {4, 5})
    quorum.propose(1, "committed")
    quorum.settle()
    assert quorum.members[1].state == ["committed"]
    quorum.wipe(3)
    quorum.crash(1)
    quorum.split({3, 4, 5}, {2})
    for _ in range(4):
        for node_id in (4, 5):
            quorum.tick(2_500, 4, 5)
            quorum.settle()
            assert not quorum[node_id].is_leader
    quorum.heal()
    quorum.run(5_000)
    assert quorum[2].is_leader
    assert quorum.members[2].state == ["committed"]


def test_b15_a_wiped_node_that_was_removed_and_added_again_is_another_voter() -> None:
    """Promises of (3, old disk) do not bind (3, new disk), which has the log before it votes."""
    quorum = quorum_with_leader(1, 2, 3)
    quorum.propose(1, "committed")
    quorum.settle()
    quorum.wipe(3)
    quorum.run(400)
    quorum.remove_voter(1, 3)
    quorum.settle()
    quorum.add_voter(1, 3)
    quorum.settle()
    assert quorum.members[3].state == ["committed"]
    quorum.step(
        AppendResponse(  # a late message of the old disk
            sender=voter(3),
            receiver=voter(1),
            epoch=quorum[1].epoch,
            match_end=quorum[1].log.end_offset,
            received_end=quorum[1].log.end_offset,
        )
    )
    end = quorum[1].high_watermark
    quorum.isolate(1)
    quorum.propose(1, "on one disk")
    quorum.persist(1)
    quorum.step(
        AppendResponse(
            sender=voter(3),
            receiver=voter(1),
            epoch=quorum[1].epoch,
            match_end=quorum[1].log.end_offset,
            received_end=quorum[1].log.end_offset,
        )
    )
    assert quorum[1].high_watermark == end, "the old disk does not count"


def test_b16_returning_node_does_not_depose_the_leader() -> None:
    """Also with an epoch that it opened alone. Pre-vote prevents such epochs."""
    quorum = quorum_with_leader()
    quorum.isolate(3)
    quorum.run(30_000)
    assert quorum[3].epoch == quorum[1].epoch
    quorum.heal()
    quorum.run(5_000)
    assert (quorum[1].is_leader, quorum[1].epoch) == (True, 1)


def test_b17_partial_partition_does_not_alternate_elections() -> None:
    """Nodes 1 and 2 are partitioned from each other. Node 3 reaches both and has a leader, so it
    refuses pre-votes."""
    quorum = quorum_with_leader()
    quorum.cut = {(1, 2), (2, 1)}
    quorum.run(60_000)
    assert (quorum[1].is_leader, quorum[1].epoch) == (True, 1)
    for value in "abc":
        quorum.propose(1, value)
    quorum.run(500)
    assert quorum.members[3].state == ["a", "b", "c"]


@pytest.mark.parametrize("direction", ["out", "in"])
def test_b17_leader_with_a_one_way_link_is_replaced(direction: str) -> None:
    """Check-quorum ends a leader without incoming messages; an election replaces one whose messages
    are lost."""
    quorum = quorum_with_leader()
    for other in (2, 3):
        quorum.cut.add((1, other) if direction == "out" else (other, 1))
    quorum.run(8_000)
    leaders = [node_id for node_id in (2, 3) if quorum[node_id].is_leader]
    assert len(leaders) == 1
    assert not quorum[1].is_leader
    quorum.propose(leaders[0], "a")
    quorum.run(500)
    assert quorum.members[leaders[0]].state == ["a"]


def test_b18a_follower_that_lost_its_pre_vote_returns_to_its_leader() -> None:
    """Regression: it alternated between follower and pre-candidate."""
    quorum = quorum_with_leader()
    for _ in range(5):
        quorum.campaign(3)
        quorum.settle()
        quorum.run(300)
        assert quorum.raft(3).role.name == "follower"
    events = [getattr(event, "role", "") for event in quorum.members[3].events]
    assert events.count("pre_candidate") == 5
    assert quorum[1].epoch == 1


def test_b18b_votes_are_granted_after_the_leader_resigned() -> None:
    quorum = quorum_with_leader()
    before = [quorum.members[node_id].now_ms for node_id in (2, 3)]
    quorum.resign(1)
    quorum.settle()
    assert any(quorum[node_id].is_leader for node_id in (2, 3))
    assert [quorum.members[node_id].now_ms for node_id in (2, 3)] == before, (
        "no voter waited for its election timeout"
    )


def test_b18c_follower_grants_its_restarted_leader_a_pre_vote() -> None:
    """Its follower received a heartbeat lately, which must not block the pre-vote of the same
    node."""
    quorum = quorum_with_leader(1, 2, 3)
    quorum.crash(3)
    quorum.restart(1)
    quorum.flying.clear()
    quorum.campaign(1)
    quorum.settle()
    assert quorum[1].is_leader


def test_b18d_follower_that_receives_messages_of_its_leader_does_not_campaign() -> None:
    """Also while it catches up from far behind, by entries or by a snapshot."""
    quorum = Quorum(snapshot_chunk_bytes=1)
    quorum.elect(1)
    quorum.isolate(3)
    for value in "abc":
        quorum.propose(1, value * 30)
        quorum.settle()
        quorum.snapshot(1)
    quorum.heal()
    before = len(quorum.members[3].events)
    for _ in range(200):
        quorum.tick(100)
        for message in [m for m in quorum.flying if not isinstance(m, SnapshotResponse)][:4]:
            quorum.deliver(message)
        quorum.deliver_all(to=1)
        quorum.persist(3)
    roles = [getattr(event, "role", "") for event in quorum.members[3].events[before:]]
    assert roles.count("pre_candidate") <= 1, (
        "at most once, before it received a message of the leader"
    )
    assert quorum[1].is_leader


def test_b18e_a_late_message_of_a_dead_leader_delays_an_election_only_once() -> None:
    quorum = quorum_with_leader(1, 2)
    quorum.tick(100, 1)
    late = [m for m in quorum.flying if isinstance(m, Heartbeat)]
    quorum.flying.clear()
    quorum.crash(1)
    quorum.tick(1_000, 2)
    quorum.step(late[0])
    quorum.restart(1)
    quorum.flying.clear()
    quorum.run(5_000)
    assert sum(quorum[node_id].is_leader for node_id in (1, 2)) == 1


def test_b19_leader_without_a_majority_resigns() -> None:
    """Otherwise its clients would hang. The timeout is between the two election timeouts."""
    quorum = quorum_with_leader()
    quorum.isolate(1)
    quorum.read(1, 5)
    quorum.run(1_400)
    assert quorum.raft(1).role.name == "leader"
    quorum.run(300)
    assert quorum[1].leader is None
    assert quorum.members[1].reads_lost == [5]


def test_b19_lone_voter_never_resigns() -> None:
    quorum = Quorum([1])
    quorum.elect(1)
    quorum.observer(2)
    quorum.run(60_000)
    assert (quorum[1].is_leader, quorum[1].epoch) == (True, 1)


def test_b24_restarted_leader_does_not_lead_its_old_epoch() -> None:
    """Its unflushed tail is lost, so one (epoch, offset) would identify two records."""
    quorum = quorum_with_leader()
    quorum.propose(1, "lost")
    lost_at = quorum[1].log.end_offset - 1
    quorum.flying.clear()
    quorum.restart(1)
    assert quorum.raft(1).role.name == "unattached"
    quorum.run(5_000)
    (leader,) = (node_id for node_id in (1, 2, 3) if quorum[node_id].is_leader)
    quorum.propose(leader, "new")
    quorum.settle()
    assert quorum[leader].epoch > 1
    assert quorum[leader].log.epoch_at(Offset(lost_at)) > 1


@pytest.mark.parametrize("kind", ["progress", "vote", "pre-vote", "snapshot"])
def test_b34_an_answer_to_an_earlier_leadership_counts_for_nothing(kind: str) -> None:
    """Node 1 leads epoch 1, then epoch 3. The late messages are of epoch 1."""
    quorum = quorum_with_leader()
    taken = quorum.snapshot(1)
    quorum.transfer(1, 2)
    quorum.settle()
    quorum.transfer(2, 1)
    quorum.settle()
    assert (quorum[1].is_leader, quorum[1].epoch) == (True, 3)
    quorum.isolate(1)
    quorum.propose(1, "a")
    quorum.persist(1)
    end, committed = quorum[1].log.end_offset, quorum[1].high_watermark
    late: dict[str, Message] = {
        "progress": AppendResponse(
            sender=voter(2),
            receiver=voter(1),
            epoch=Epoch(1),
            match_end=end,
            received_end=end,
        ),
        "vote": grant(2, epoch=1),
        "pre-vote": grant(2, epoch=1, pre_vote=True),
        "snapshot": SnapshotResponse(
            sender=voter(2), receiver=voter(1), epoch=Epoch(1), snapshot=taken, position=0
        ),
    }
    quorum.step(late[kind])
    assert quorum[1].high_watermark == committed
    assert quorum.raft(1).role.name == "leader"


def test_b34_votes_of_a_lost_election_do_not_win_the_next_one() -> None:
    quorum = candidate(1, 2, 3, 4, 5)
    quorum.step(grant(2, epoch=1))
    quorum.campaign(1)
    for sender in (2, 3):
        quorum.step(grant(sender, epoch=1, pre_vote=True))
    quorum.persist(1)
    assert (quorum.raft(1).role.name, quorum[1].epoch) == ("candidate", 2)
    for sender in (3, 4, 5):
        quorum.step(grant(sender, epoch=1))
    assert quorum.raft(1).role.name == "candidate"
    for sender in (3, 4):
        quorum.step(grant(sender, epoch=2))
    assert quorum[1].is_leader
