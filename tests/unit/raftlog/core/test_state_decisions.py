"""Decisions that all roles share: commits, kept snapshots, start of the log."""

from dataclasses import replace

import pytest
from tests.kit.raft_member import Drawn, encode_control, log_view, voter, voters

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.config import RaftConfig
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LOG_START, LogEnd, SnapshotId
from quorumlog.raftlog.messages import SnapshotChunk, validate_message
from quorumlog.raftlog.raft import Raft
from quorumlog.raftlog.state import RaftState, Reception
from quorumlog.raftlog.voters import VoterHistory

ME = voter(1)


def snapshot(end: int) -> SnapshotId:
    return SnapshotId(Offset(end), Epoch(1))


def replica(*snapshots: int, start: int = 0, end: int = 10) -> RaftState:
    """Return a log of batches of one record in epoch 1; the voters change at offset 3."""
    log_start = LogEnd(Epoch(1), Offset(start)) if start else LOG_START
    batches = [(Offset(base), Offset(base + 1), Epoch(1), 10) for base in range(start, end)]
    history = VoterHistory(voters(1, 2), start_offset=Offset(start))
    if start <= 3:
        history.append(Offset(3), voters(1, 2, 3))
    made = RaftState(
        RaftConfig(node_id=ME.node_id, directory_id=ME.directory_id),
        log_view(log_start, batches),
        HardState(Epoch(1), None),
        history,
        Drawn(0),
        snapshots=tuple(snapshot(each) for each in snapshots),
        encode_control=encode_control,
    )
    made.commit_to(Offset(end))
    made.output.take(None, made.high_watermark)
    made.applied_end = Offset(end)
    return made


def test_commit_is_reported_once() -> None:
    held = replica(end=4)
    assert held.high_watermark == 4
    assert not held.commit_to(Offset(4))
    assert not held.commit_to(Offset(3))
    held.log.append(Offset(4), Offset(5), Epoch(1), 10)
    assert held.commit_to(Offset(5))


def test_the_newest_two_snapshots_are_kept_and_the_log_from_the_older_one_on() -> None:
    held = replica()
    Raft(held, now_ms=0).snapshot_taken(snapshot(2))
    assert (held.snapshots, held.output.clean_to, held.log.start_offset) == (
        (snapshot(2),),
        None,
        0,
    )
    Raft(held, now_ms=0).snapshot_taken(snapshot(4))
    assert held.snapshots == (snapshot(2), snapshot(4))
    assert (held.output.clean_to, held.log.start_offset) == (snapshot(2), 2)
    assert held.voters.at(Offset(2)) == voters(1, 2)
    Raft(held, now_ms=0).snapshot_taken(snapshot(6))
    assert held.snapshots == (snapshot(4), snapshot(6))
    assert (held.output.clean_to, held.log.start_offset) == (snapshot(4), 4)
    assert held.voters.at(Offset(2)) == voters(1, 2, 3), "nothing older is kept"


@pytest.mark.parametrize("end", [2, 3, 4])
def test_a_snapshot_that_is_no_newer_than_the_newest_is_not_kept(end: int) -> None:
    held = replica()
    for each in (2, 4):
        Raft(held, now_ms=0).snapshot_taken(snapshot(each))
    held.output.clean_to = None
    Raft(held, now_ms=0).snapshot_taken(snapshot(end))
    assert held.snapshots == (snapshot(2), snapshot(4))
    assert held.output.clean_to is None


def test_the_same_snapshot_is_kept_once() -> None:
    held = replica()
    for _ in range(2):
        Raft(held, now_ms=0).snapshot_taken(snapshot(2))
    assert held.snapshots == (snapshot(2),)


def test_a_log_that_begins_at_the_older_snapshot_is_not_cleaned_again() -> None:
    held = replica(4, start=4)
    Raft(held, now_ms=0).snapshot_taken(snapshot(6))
    assert held.snapshots == (snapshot(4), snapshot(6))
    assert (held.output.clean_to, held.log.start_offset) == (None, 4)


def test_installed_snapshot_cancels_the_pending_cleaning() -> None:
    held = replica()
    for each in (2, 4):
        Raft(held, now_ms=0).snapshot_taken(snapshot(each))
    held.reception = Reception(snapshot(20), voters(1, 2), 1, Epoch(1), is_whole=True)
    held.writes.install(snapshot(20))
    write = held.writes.begin(held.hard_state, bytes_max=100)
    held.writes.complete(write.token)
    held.installed(write)
    assert held.output.clean_to is None
    assert (held.snapshots, held.log.start_offset) == ((snapshot(20),), 20)
    assert not held.is_installing


@pytest.mark.parametrize(("end", "is_sound"), [(0, False), (1, True), (2, True)])
def test_a_snapshot_holds_one_record_at_least(end: int, is_sound: bool) -> None:
    piece = SnapshotChunk(
        sender=voter(2),
        receiver=ME,
        epoch=Epoch(1),
        snapshot=snapshot(end),
        voters=voters(1, 2),
        size=4,
        position=0,
        content=b"half",
    )
    for each in (piece, replace(piece, epoch=Epoch(2))):
        said = validate_message(each, me=ME, epoch=Epoch(2), log_end=Offset(0))
        assert (said == "") is is_sound
