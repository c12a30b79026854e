"""Decisions of a follower about entries and snapshots, one message at a time.

The test sends node 3 the messages of leader 1 in epoch 1; the responses stay in flight.
"""

from dataclasses import replace

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import SnapshotFile, data, voter, voters

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import LOG_START, Entry, LogEnd, SnapshotId
from quorumlog.raftlog.messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
    VoteRequest,
)

from .snapshot_transfer import drop_reasons, quorum_sending_snapshot

CONTENT = SnapshotFile.of(["v0", "v1", "v2"], voters(1, 2, 3)).content
HALF = len(CONTENT) // 2
SNAPSHOT = SnapshotId(Offset(3), Epoch(1))


def append(base: int, *entries: Entry, commit: int = 0, epoch: int = 1) -> AppendRequest:
    """Build a request of the leader whose entries start at `base`, after an entry of epoch 1."""
    return AppendRequest(
        sender=voter(1),
        receiver=voter(3),
        epoch=Epoch(epoch),
        prev=LogEnd(Epoch(1), Offset(base)) if base else LOG_START,
        entries=entries,
        high_watermark=Offset(commit),
    )


def beat(*, commit: int = 0, number: int = 1) -> Heartbeat:
    return Heartbeat(
        sender=voter(1),
        receiver=voter(3),
        epoch=Epoch(1),
        high_watermark=Offset(commit),
        round=number,
    )


def piece(start: int, end: int | None = None, snapshot: SnapshotId = SNAPSHOT) -> SnapshotChunk:
    """Build a chunk of a snapshot of v0 to v2."""
    return SnapshotChunk(
        sender=voter(1),
        receiver=voter(3),
        epoch=Epoch(1),
        snapshot=snapshot,
        voters=voters(1, 2, 3),
        size=len(CONTENT),
        position=start,
        content=CONTENT[start:end],
    )


def following(*values: int, commit: int = 0) -> Quorum:
    """Return a quorum whose node 3 has a durable entry of each of the epochs; responses are
    dropped."""
    quorum = Quorum()
    quorum.step(append(0, *(data(base, epoch) for base, epoch in enumerate(values)), commit=commit))
    quorum.persist(3)
    quorum.flying.clear()
    return quorum


def take_sent(quorum: Quorum) -> list[Message]:
    """Return the messages of node 3 since the last call."""
    sent, quorum.flying = list(quorum.flying), []
    return sent


def installing(quorum: Quorum) -> None:
    """Start the installation of a complete snapshot."""
    quorum.step(piece(0))
    writing = quorum.members[3].writing
    assert writing is not None
    assert writing.install == SNAPSHOT


# --- entries -------------------------------------------------------------------------------------


def test_late_shorter_request_truncates_nothing() -> None:
    quorum = following(1, 1, 1)
    quorum.step(append(0, data(0, 1)))
    quorum.step(beat())
    acknowledged, answer = take_sent(quorum)
    assert isinstance(acknowledged, AppendResponse)
    assert acknowledged.match_end == acknowledged.received_end == 3
    assert isinstance(answer, HeartbeatResponse)
    assert (answer.match_end, answer.received_end) == (3, 3)


def test_offset_inside_a_batch_is_rejected() -> None:
    quorum = Quorum()
    quorum.step(append(0, replace(data(0, 1), count=4)))
    quorum.persist(3)
    take_sent(quorum)
    quorum.step(append(2, data(2, 1)))
    (refused,) = take_sent(quorum)
    assert isinstance(refused, AppendRejected)
    assert refused.hint == LOG_START
    assert quorum[3].log.end_offset == 4


def test_a_refusal_names_the_request_and_the_place_below_it() -> None:
    quorum = following(1, 1)
    asked = append(5)
    quorum.step(asked)
    (refused,) = take_sent(quorum)
    assert refused == AppendRejected(
        sender=voter(3),
        receiver=voter(1),
        epoch=Epoch(1),
        prev=asked.prev,
        hint=LogEnd(Epoch(1), Offset(2)),
    )


def test_entries_at_the_very_start_of_a_cleaned_log_are_taken_in() -> None:
    quorum = Quorum()
    installing(quorum)
    quorum.persist(3)
    take_sent(quorum)
    quorum.step(append(1, *(data(base, 1) for base in range(1, 5)), commit=5))
    quorum.persist(3)
    assert quorum.members[3].state == ["v0", "v1", "v2", "v3", "v4"]
    (answer,) = take_sent(quorum)
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (5, 5)


# --- during the installation of a snapshot -------------------------------------------------------


def test_entries_are_not_taken_in_while_a_snapshot_is_installed() -> None:
    quorum = following(1)
    installing(quorum)
    quorum.step(append(1, data(1, 1)))
    assert quorum[3].log.end_offset == 1
    assert not take_sent(quorum)


def test_pieces_of_any_snapshot_are_not_taken_in_while_one_is_installed() -> None:
    quorum = following(1)
    installing(quorum)
    quorum.step(piece(0, HALF))
    quorum.step(piece(0, HALF, snapshot=SnapshotId(Offset(9), Epoch(1))))
    assert not take_sent(quorum)
    quorum.persist(3)
    assert quorum[3].snapshots == (SNAPSHOT,)
    (answer,) = take_sent(quorum)
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (3, 3)


def test_nothing_commits_while_a_snapshot_is_installed() -> None:
    quorum = following(1, 1)
    installing(quorum)
    quorum.step(beat(commit=2))
    assert quorum[3].high_watermark == 0
    quorum.persist(3)
    assert quorum[3].high_watermark == 3
    assert quorum.members[3].state == ["v0", "v1", "v2"]


def test_entries_that_arrive_after_a_heartbeat_are_committed_up_to_its_high_watermark() -> None:
    """The leader read the entries from its disk, with the high watermark of before."""
    quorum = following(1)
    quorum.step(beat(commit=3))
    assert quorum[3].high_watermark == 1
    quorum.step(append(1, *(data(offset, 1) for offset in (1, 2, 3)), commit=1))
    assert quorum[3].high_watermark == 3


# --- snapshots that are not needed ---------------------------------------------------------------


def test_a_snapshot_of_entries_that_are_there_commits_them_and_keeps_what_follows() -> None:
    quorum = following(1, 1, 1, 1)
    quorum.step(piece(0, HALF))
    assert quorum.members[3].writing is None
    assert (quorum[3].high_watermark, quorum[3].log.end_offset) == (3, 4)
    (answer,) = take_sent(quorum)
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (4, 4)


def test_snapshot_of_committed_entries_is_answered_with_the_matching_end() -> None:
    """Node 3 restarted and has received no entry of this leader yet."""
    quorum = following(1, 1, 1, 1, commit=3)
    quorum.members[3].take_snapshot()
    quorum.restart(3)
    assert quorum[3].high_watermark == 3
    quorum.step(piece(0, HALF))
    quorum.persist(3)
    answer = take_sent(quorum)[-1]
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (3, 3)
    assert quorum[3].log.end_offset == 4


def test_snapshot_of_entries_being_written_is_answered_once_they_are_durable() -> None:
    quorum = Quorum()
    quorum.step(beat())
    quorum.persist(3)
    take_sent(quorum)
    quorum.step(append(0, *(data(base, 1) for base in range(4))))
    quorum.step(piece(0, HALF))
    assert quorum[3].high_watermark == 3
    assert not take_sent(quorum)
    quorum.persist(3)
    (answer,) = take_sent(quorum)
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (4, 4)


def test_entries_received_during_a_snapshot_replace_it() -> None:
    """Later chunks are answered like entries. A later snapshot is received from its start."""
    quorum = following(1)
    quorum.step(piece(0, HALF))
    quorum.persist(3)
    take_sent(quorum)
    quorum.step(append(1, data(1, 1), data(2, 1)))
    quorum.persist(3)
    take_sent(quorum)
    quorum.step(piece(HALF))
    (answer,) = take_sent(quorum)
    assert isinstance(answer, AppendResponse)
    assert answer.match_end == 3
    later = SnapshotId(Offset(9), Epoch(1))
    quorum.step(piece(HALF, snapshot=later))
    (asked,) = take_sent(quorum)
    assert isinstance(asked, SnapshotResponse)
    assert (asked.snapshot, asked.position) == (later, 0)
    quorum.step(piece(0, HALF, snapshot=SnapshotId(Offset(8), Epoch(1))))
    assert not take_sent(quorum), "an older snapshot of the same leader"


# --- chunks --------------------------------------------------------------------------------------


def test_chunks_of_different_snapshots_are_not_mixed() -> None:
    later = SnapshotId(Offset(9), Epoch(1))
    for other in (
        piece(HALF, snapshot=later),
        replace(piece(HALF), size=len(CONTENT) + 1),
    ):
        quorum = Quorum()
        quorum.step(piece(0, HALF))
        quorum.persist(3)
        take_sent(quorum)
        quorum.step(other)
        (asked,) = take_sent(quorum)
        assert isinstance(asked, SnapshotResponse)
        assert (asked.snapshot, asked.position) == (other.snapshot, 0)


def test_unwritten_chunks_of_a_replaced_snapshot_are_dropped() -> None:
    quorum = Quorum()
    quorum.step(beat())
    assert quorum.members[3].writing is not None, "the epoch is being written, so chunks wait"
    quorum.step(piece(0, HALF))
    later = piece(0, HALF, snapshot=SnapshotId(Offset(9), Epoch(1)))
    quorum.step(later)
    quorum.persist(3)
    writing = quorum.members[3].writing
    assert writing is not None
    assert writing.chunks == (later,)


def test_new_leader_continues_the_snapshot_of_the_old_one() -> None:
    """Node 2 continues the snapshot of node 1. After that, only node 2's chunks count."""
    quorum = Quorum()
    quorum.step(piece(0, HALF))
    quorum.persist(3)
    take_sent(quorum)
    second = replace(piece(HALF, HALF + 4), sender=voter(2), epoch=Epoch(2))
    quorum.step(second)
    quorum.persist(3)
    (answer,) = take_sent(quorum)
    assert isinstance(answer, SnapshotResponse)
    assert answer.position == HALF + 4
    older = SnapshotId(Offset(2), Epoch(1))
    quorum.step(replace(second, snapshot=older, position=0))
    assert not take_sent(quorum)
    assert quorum.members[3].writing is None


def test_another_leader_may_have_an_older_snapshot_only() -> None:
    quorum = Quorum()
    quorum.step(piece(0, HALF, snapshot=SnapshotId(Offset(9), Epoch(1))))
    quorum.persist(3)
    take_sent(quorum)
    quorum.step(replace(piece(0), sender=voter(2), epoch=Epoch(2)))
    quorum.persist(3)
    assert quorum.members[3].state == ["v0", "v1", "v2"]


@pytest.mark.parametrize("twice", [False, True])
def test_invalid_snapshot_is_requested_from_its_start(twice: bool) -> None:
    quorum = Quorum()
    quorum.members[3].refuses_snapshots = True
    for _ in range(2 if twice else 1):
        installing(quorum)
        quorum.persist(3)
        (asked,) = take_sent(quorum)
        assert isinstance(asked, SnapshotResponse)
        assert (asked.snapshot, asked.position) == (SNAPSHOT, 0)
    quorum.members[3].refuses_snapshots = False
    installing(quorum)
    quorum.persist(3)
    assert quorum.members[3].state == ["v0", "v1", "v2"]


def test_second_leader_of_one_epoch_is_ignored() -> None:
    quorum = quorum_with_leader()
    beat = Heartbeat(
        sender=voter(3), receiver=voter(2), epoch=Epoch(1), high_watermark=Offset(0), round=1
    )
    quorum.step(beat)
    quorum.step(replace(beat, receiver=voter(1)))
    assert "leads epoch 1" in drop_reasons(quorum, 2)[0]
    assert "this node leads epoch 1" in drop_reasons(quorum, 1)[0]
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
    (take_sent,) = (m for m in quorum.flying if isinstance(m, AppendResponse))
    assert take_sent.match_end == end
    assert quorum.members[2].writing is None


def test_a_late_piece_of_an_older_snapshot_of_the_same_leader_is_not_taken() -> None:
    quorum = quorum_sending_snapshot()
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


def test_snapshot_found_invalid_without_a_leader_is_received_again_later() -> None:
    quorum = quorum_sending_snapshot()
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
    assert quorum.raft(3).role.name == "unattached"
    quorum.persist(3)
    quorum.members[3].refuses_snapshots = False
    quorum.flying.clear()
    quorum.run(8_000)
    assert quorum.members[3].state == ["a", "b"]


def test_a_snapshot_is_installed_although_its_leader_is_gone() -> None:
    quorum = quorum_sending_snapshot()
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
    assert (quorum.raft(3).role.name, quorum.members[3].state) == ("unattached", ["a", "b"])
    quorum.run(8_000)
    assert quorum.members[3].state == ["a", "b"]


def test_resignation_that_names_other_successors_keeps_the_timer() -> None:
    quorum = quorum_with_leader()
    before = quorum.members[3].now_ms
    quorum.step(
        EndEpoch(sender=voter(1), receiver=voter(3), epoch=Epoch(1), successors=(voter(2),))
    )
    assert quorum.raft(3).role.name == "unattached"
    deadline_ms = quorum.raft(3).next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms >= before + 1_000


def test_repeated_chunk_during_the_installation_waits() -> None:
    quorum = quorum_sending_snapshot()
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
