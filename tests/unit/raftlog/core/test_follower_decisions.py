"""Small decisions of a follower about entries and snapshots, one message at a time.

Node 3 is told everything by hand, as by a leader 1 of epoch 1; what it says stays in flight.
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
    """A request of the leader whose entries begin at `base`, behind an entry of epoch 1."""
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
    """A part of a snapshot that holds v0 to v2."""
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
    """Node 3 holds an entry for each of the epochs, durably, and what it said is forgotten."""
    quorum = Quorum()
    quorum.step(append(0, *(data(base, epoch) for base, epoch in enumerate(values)), commit=commit))
    quorum.persist(3)
    quorum.flying.clear()
    return quorum


def said(quorum: Quorum) -> list[Message]:
    """What node 3 sent since."""
    sent, quorum.flying = list(quorum.flying), []
    return sent


def installing(quorum: Quorum) -> None:
    """Have a whole snapshot on its way into the log's place."""
    quorum.step(piece(0))
    writing = quorum.members[3].writing
    assert writing is not None
    assert writing.install == SNAPSHOT


# --- entries -------------------------------------------------------------------------------------


def test_a_short_request_that_comes_late_takes_nothing_back() -> None:
    quorum = following(1, 1, 1)
    quorum.step(append(0, data(0, 1)))
    quorum.step(beat())
    acknowledged, answer = said(quorum)
    assert isinstance(acknowledged, AppendResponse)
    assert acknowledged.match_end == acknowledged.received_end == 3
    assert isinstance(answer, HeartbeatResponse)
    assert (answer.match_end, answer.received_end) == (3, 3)


def test_a_place_inside_a_batch_is_no_place_to_append() -> None:
    quorum = Quorum()
    quorum.step(append(0, replace(data(0, 1), count=4)))
    quorum.persist(3)
    said(quorum)
    quorum.step(append(2, data(2, 1)))
    (refused,) = said(quorum)
    assert isinstance(refused, AppendRejected)
    assert refused.hint == LOG_START
    assert quorum[3].log.end_offset == 4


def test_a_refusal_names_the_request_and_the_place_below_it() -> None:
    quorum = following(1, 1)
    asked = append(5)
    quorum.step(asked)
    (refused,) = said(quorum)
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
    said(quorum)
    quorum.step(append(1, *(data(base, 1) for base in range(1, 5)), commit=5))
    quorum.persist(3)
    assert quorum.members[3].state == ["v0", "v1", "v2", "v3", "v4"]
    (answer,) = said(quorum)
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (5, 5)


# --- while a snapshot goes into the log's place --------------------------------------------------


def test_entries_are_not_taken_in_while_a_snapshot_is_installed() -> None:
    quorum = following(1)
    installing(quorum)
    quorum.step(append(1, data(1, 1)))
    assert quorum[3].log.end_offset == 1
    assert not said(quorum)


def test_pieces_of_any_snapshot_are_not_taken_in_while_one_is_installed() -> None:
    quorum = following(1)
    installing(quorum)
    quorum.step(piece(0, HALF))
    quorum.step(piece(0, HALF, snapshot=SnapshotId(Offset(9), Epoch(1))))
    assert not said(quorum)
    quorum.persist(3)
    assert quorum[3].snapshots == (SNAPSHOT,)
    (answer,) = said(quorum)
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


# --- snapshots that are not needed ---------------------------------------------------------------


def test_a_snapshot_of_entries_that_are_there_commits_them_and_keeps_what_follows() -> None:
    quorum = following(1, 1, 1, 1)
    quorum.step(piece(0, HALF))
    assert quorum.members[3].writing is None
    assert (quorum[3].high_watermark, quorum[3].log.end_offset) == (3, 4)
    (answer,) = said(quorum)
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (4, 4)


def test_a_snapshot_of_what_is_committed_here_is_answered_by_what_is_known_of_the_log() -> None:
    """Node 3 was started anew and has heard of no entry of this leader yet."""
    quorum = following(1, 1, 1, 1, commit=3)
    quorum.members[3].take_snapshot()
    quorum.restart(3)
    assert quorum[3].high_watermark == 3
    quorum.step(piece(0, HALF))
    quorum.persist(3)
    answer = said(quorum)[-1]
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (3, 3)
    assert quorum[3].log.end_offset == 4


def test_a_snapshot_of_entries_under_way_to_the_disk_is_answered_when_they_are_there() -> None:
    quorum = Quorum()
    quorum.step(beat())
    quorum.persist(3)
    said(quorum)
    quorum.step(append(0, *(data(base, 1) for base in range(4))))
    quorum.step(piece(0, HALF))
    assert quorum[3].high_watermark == 3
    assert not said(quorum)
    quorum.persist(3)
    (answer,) = said(quorum)
    assert isinstance(answer, AppendResponse)
    assert (answer.match_end, answer.received_end) == (4, 4)


def test_entries_that_came_while_a_snapshot_was_received_make_it_needless() -> None:
    """Its later pieces are answered as entries; a later snapshot is received from its start."""
    quorum = following(1)
    quorum.step(piece(0, HALF))
    quorum.persist(3)
    said(quorum)
    quorum.step(append(1, data(1, 1), data(2, 1)))
    quorum.persist(3)
    said(quorum)
    quorum.step(piece(HALF))
    (answer,) = said(quorum)
    assert isinstance(answer, AppendResponse)
    assert answer.match_end == 3
    later = SnapshotId(Offset(9), Epoch(1))
    quorum.step(piece(HALF, snapshot=later))
    (asked,) = said(quorum)
    assert isinstance(asked, SnapshotResponse)
    assert (asked.snapshot, asked.position) == (later, 0)
    quorum.step(piece(0, HALF, snapshot=SnapshotId(Offset(8), Epoch(1))))
    assert not said(quorum), "an older one of the same leader"


# --- pieces --------------------------------------------------------------------------------------


def test_pieces_of_two_files_of_one_size_or_of_one_name_are_not_mixed() -> None:
    later = SnapshotId(Offset(9), Epoch(1))
    for other in (
        piece(HALF, snapshot=later),
        replace(piece(HALF), size=len(CONTENT) + 1),
    ):
        quorum = Quorum()
        quorum.step(piece(0, HALF))
        quorum.persist(3)
        said(quorum)
        quorum.step(other)
        (asked,) = said(quorum)
        assert isinstance(asked, SnapshotResponse)
        assert (asked.snapshot, asked.position) == (other.snapshot, 0)


def test_what_waited_to_be_written_of_one_snapshot_is_not_written_into_another() -> None:
    quorum = Quorum()
    quorum.step(beat())
    assert quorum.members[3].writing is not None, "the epoch is under way: pieces wait"
    quorum.step(piece(0, HALF))
    later = piece(0, HALF, snapshot=SnapshotId(Offset(9), Epoch(1)))
    quorum.step(later)
    quorum.persist(3)
    writing = quorum.members[3].writing
    assert writing is not None
    assert writing.chunks == (later,)


def test_another_leader_goes_on_with_a_snapshot_and_then_only_its_own_is_older() -> None:
    """2 goes on with what 1 began. A late piece of an older one is 1's no more, but 2's."""
    quorum = Quorum()
    quorum.step(piece(0, HALF))
    quorum.persist(3)
    said(quorum)
    second = replace(piece(HALF, HALF + 4), sender=voter(2), epoch=Epoch(2))
    quorum.step(second)
    quorum.persist(3)
    (answer,) = said(quorum)
    assert isinstance(answer, SnapshotResponse)
    assert answer.position == HALF + 4
    older = SnapshotId(Offset(2), Epoch(1))
    quorum.step(replace(second, snapshot=older, position=0))
    assert not said(quorum)
    assert quorum.members[3].writing is None


def test_another_leader_may_have_an_older_snapshot_only() -> None:
    quorum = Quorum()
    quorum.step(piece(0, HALF, snapshot=SnapshotId(Offset(9), Epoch(1))))
    quorum.persist(3)
    said(quorum)
    quorum.step(replace(piece(0), sender=voter(2), epoch=Epoch(2)))
    quorum.persist(3)
    assert quorum.members[3].state == ["v0", "v1", "v2"]


@pytest.mark.parametrize("twice", [False, True])
def test_a_snapshot_that_proved_bad_is_asked_for_from_its_start(twice: bool) -> None:
    quorum = Quorum()
    quorum.members[3].refuses_snapshots = True
    for _ in range(2 if twice else 1):
        installing(quorum)
        quorum.persist(3)
        (asked,) = said(quorum)
        assert isinstance(asked, SnapshotResponse)
        assert (asked.snapshot, asked.position) == (SNAPSHOT, 0)
    quorum.members[3].refuses_snapshots = False
    installing(quorum)
    quorum.persist(3)
    assert quorum.members[3].state == ["v0", "v1", "v2"]


def test_a_second_leader_of_one_epoch_is_not_believed() -> None:
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
    (said,) = (m for m in quorum.flying if isinstance(m, AppendResponse))
    assert said.match_end == end
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


def test_a_snapshot_that_proves_bad_when_nobody_leads_is_received_anew_later() -> None:
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


def test_a_farewell_that_names_others_only_leaves_the_own_timer() -> None:
    quorum = quorum_with_leader()
    before = quorum.members[3].now_ms
    quorum.step(
        EndEpoch(sender=voter(1), receiver=voter(3), epoch=Epoch(1), successors=(voter(2),))
    )
    assert quorum.raft(3).role.name == "unattached"
    deadline_ms = quorum.raft(3).next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms >= before + 1_000


def test_a_piece_that_comes_again_while_the_snapshot_is_installed_waits() -> None:
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
