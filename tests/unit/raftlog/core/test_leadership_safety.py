"""Elections, leaderships and membership changes in which a wrong decision loses records."""

from typing import Any

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import address_of, voter

from quorumlog.errors import VoterLagging
from quorumlog.ids import Epoch
from quorumlog.raftlog.log_view import LOG_START
from quorumlog.raftlog.messages import (
    FollowRequest,
    Message,
    SnapshotChunk,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.progress import ROUNDS_MAX

# --- campaigns -----------------------------------------------------------------------------------


def test_pre_candidate_continues_when_it_refuses_a_candidate_of_its_epoch() -> None:
    quorum = quorum_with_leader()
    quorum.crash(1)
    quorum.step(
        VoteResponse(
            sender=voter(3), receiver=voter(2), epoch=Epoch(2), granted=False, pre_vote=False
        )
    )
    quorum.campaign(2)
    quorum.tick(1_000, 3)
    asked = quorum.flying.copy()
    quorum.step(
        VoteRequest(
            sender=voter(3),
            receiver=voter(2),
            epoch=Epoch(2),
            log_end=LOG_START,
            pre_vote=False,
        )
    )
    (refusal,) = (message for message in quorum.flying if message not in asked)
    assert isinstance(refusal, VoteResponse)
    assert not refusal.granted
    assert quorum.raft(2).role.name == "pre_candidate"
    quorum.settle()
    assert quorum[2].is_leader


# --- leaderships ---------------------------------------------------------------------------------


def test_follow_requests_do_not_count_for_check_quorum() -> None:
    """The leader's messages are lost. The voters that send it follow requests do not follow it."""
    quorum = quorum_with_leader()
    quorum.cut = {(1, 2), (1, 3)}
    for _ in range(20):
        quorum.tick(100, 1)
        for asking in (2, 3):
            quorum.step(
                FollowRequest(
                    sender=voter(asking),
                    receiver_address=address_of(1),
                    epoch=Epoch(1),
                    address=address_of(asking),
                )
            )
    assert not quorum[1].is_leader


def test_an_observer_that_died_does_not_become_the_second_of_two_voters() -> None:
    """Otherwise nothing could be committed again, nor could the change be reverted."""
    quorum = quorum_with_leader(1)
    quorum.observer(2)
    quorum.run(1_000)
    quorum.crash(2)
    quorum.run(2_000)
    with pytest.raises(VoterLagging, match="node 2: no response for"):
        quorum.add_voter(1, 2)
    quorum.propose(1, "a")
    quorum.settle()
    assert quorum.members[1].state == ["a"]
    quorum.restart(2)
    quorum.run(1_000)
    quorum.add_voter(1, 2)
    quorum.settle()
    assert quorum[2].is_voter


def test_a_voter_that_the_majority_needs_is_not_removed_while_another_one_is_down() -> None:
    quorum = quorum_with_leader()
    quorum.crash(3)
    quorum.run(2_000)
    for needed in (1, 2):
        with pytest.raises(VoterLagging, match="node 3: no response for"):
            quorum.remove_voter(1, needed)
    quorum.remove_voter(1, 3)
    quorum.settle()
    quorum.propose(1, "a")
    quorum.settle()
    assert quorum.members[2].state == ["a"]


# --- reads ---------------------------------------------------------------------------------------


def test_read_sends_observers_no_heartbeat() -> None:
    """A busy leader would send every round to up to a thousand observers."""
    quorum = quorum_with_leader()
    quorum.observer(4)
    quorum.run(1_000)
    for context in range(10):
        quorum.read(1, context)
        assert {quorum.target(message) for message in quorum.flying} == {2, 3}
        quorum.settle()
    assert len(quorum.members[1].reads) == 10
    quorum.run(1_000)
    assert quorum[4].leader == voter(1)


def test_a_loss_on_a_long_link_is_found_while_reads_make_hundreds_of_rounds() -> None:
    """The far voter's responses belong to rounds of hundreds of rounds ago."""
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.flying = [message for message in quorum.flying if quorum.target(message) == 2]
    far: list[Message] = []
    for step in range(4):
        late, far = far, []
        for number in range(2 * ROUNDS_MAX):
            quorum.read(1, 1_000 * step + number)
            while quorum.flying:
                far += [each for each in quorum.flying if quorum.target(each) == 3]
                quorum.flying = [each for each in quorum.flying if quorum.target(each) != 3]
                quorum.deliver_all()
                quorum.persist(1)
                quorum.persist(2)
        for message in late:
            quorum.flying.append(message)
            quorum.deliver(message)
            while quorum.persist(3):
                pass
            for answer in [each for each in quorum.flying if quorum.target(each) == 1]:
                quorum.deliver(answer)
            far += [each for each in quorum.flying if quorum.target(each) == 3]
            quorum.flying = [each for each in quorum.flying if quorum.target(each) != 3]
    assert quorum.members[3].state == ["a"]


# --- snapshots -----------------------------------------------------------------------------------


def behind(**options: Any) -> tuple[Quorum, list[SnapshotChunk]]:
    """Voter 3 needs a snapshot of several chunks. Record the chunks that are sent."""
    quorum = quorum_with_leader(snapshot_chunk_bytes=20, **options)
    quorum.isolate(3)
    for value in "abcdefgh":
        quorum.propose(1, value)
        quorum.settle()
    quorum.snapshot(1)
    quorum.propose(1, "i")
    quorum.settle()
    quorum.snapshot(1)
    pieces: list[SnapshotChunk] = []

    def note(_: int, message: Message) -> None:
        if isinstance(message, SnapshotChunk):
            pieces.append(message)

    quorum.sent = note
    quorum.heal()
    return quorum, pieces


def test_permanently_damaged_snapshot_is_sent_at_long_intervals() -> None:
    quorum, pieces = behind()
    quorum.members[3].refuses_snapshots = True
    quorum.run(20_000)
    attempts = sum(1 for piece in pieces if piece.position == 0)
    assert 4 < attempts < 16
    quorum.members[3].refuses_snapshots = False
    quorum.run(10_000)
    assert quorum.members[3].state == list("abcdefghi")


def run_with_stalled_disk(quorum: Quorum, ms: int) -> None:
    """Let time pass and messages arrive while voter 3 writes nothing."""
    for _ in range(ms // 100):
        quorum.tick(100)
        for _ in range(10):
            quorum.deliver_all()
            quorum.persist(1)
            quorum.persist(2)


def test_chunk_to_a_slow_peer_is_repeated_with_backoff() -> None:
    quorum, pieces = behind()
    run_with_stalled_disk(quorum, 5_000)
    assert 2 < len(pieces) < 9
    quorum.run(10_000)
    assert quorum.members[3].state == list("abcdefghi")


def test_chunks_do_not_accumulate_in_memory_before_a_stalled_disk() -> None:
    quorum, pieces = behind()
    run_with_stalled_disk(quorum, 5_000)
    assert {piece.position for piece in pieces} == {0}


def test_rounds_for_reads_do_not_send_a_piece_again() -> None:
    quorum, pieces = behind()
    run_with_stalled_disk(quorum, 200)
    before = len(pieces)
    for number in range(50):
        quorum.read(1, number)
        quorum.deliver_all()
        quorum.deliver_all()
    assert len(quorum.members[1].reads) == 50
    assert len(pieces) == before


# --- successors and pre-votes --------------------------------------------------------------------


@pytest.mark.parametrize("resigns", [False, True])
def test_a_voter_that_is_down_is_not_the_best_successor(resigns: bool) -> None:
    """It has as many entries as the others as long as nothing is proposed."""
    quorum = quorum_with_leader()
    quorum.crash(2)
    quorum.run(2_000)
    if resigns:
        quorum.resign(1)
    else:
        quorum.transfer(1, None)
    quorum.settle()
    assert quorum[3].is_leader


def test_vote_overtaken_by_a_later_epoch_is_not_sent() -> None:
    """It never becomes durable, and no candidate waits for it."""
    quorum = Quorum()
    for epoch, candidate in ((1, 1), (2, 3), (3, 1)):
        quorum.step(
            VoteRequest(
                sender=voter(candidate),
                receiver=voter(2),
                epoch=Epoch(epoch),
                log_end=LOG_START,
                pre_vote=False,
            )
        )
    while quorum.persist(2):
        pass
    assert [message.epoch for message in quorum.flying] == [1, 3]


# --- windows -------------------------------------------------------------------------------------


def test_a_link_that_breaks_again_and_again_does_not_refill_the_window_of_a_slow_disk() -> None:
    """Received entries that are not durable yet stay in the follower's memory."""
    quorum = quorum_with_leader(inflight_bytes_max=100, append_bytes_max=50)
    quorum.propose(1, "x" * 40)
    for _ in range(20):
        quorum.propose(1, "y" * 40)
        run_with_stalled_disk(quorum, 200)
        quorum.unreachable(1, 3)
        run_with_stalled_disk(quorum, 200)
    assert sum(entry.size for entry in quorum[3].writes.unwritten) <= 200
    quorum.run(2_000)
    assert len(quorum.members[3].state) == 21
