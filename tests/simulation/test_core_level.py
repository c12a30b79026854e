"""Level `core`: consensus cores alone. What a run draws, records and demands, and that its parts
can fail; the planted bugs of tests/planted show that its invariants do."""

import re
from pathlib import Path

import pytest
from tests.simulation.checkers.violation import Violation
from tests.simulation.levels.core.clients import CoreHistory, PendingProposal, PendingRead
from tests.simulation.levels.core.disks import MemberDisk, RunningLog, SnapshotFile
from tests.simulation.levels.core.invariants.every import INVARIANTS
from tests.simulation.levels.core.options import MEMBERS_MAX, CoreOptions, draw
from tests.simulation.levels.core.run import CoreRun
from tests.simulation.levels.core.trace import (
    Delivered,
    HighWatermark,
    RoleTaken,
    Sent,
    TraceEvent,
    VotersSet,
)

from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog.log_view import Entry, EntryKind, LogEnd, SnapshotId
from quorumlog.raftlog.messages import SnapshotChunk
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.simulation.entropy import SimEntropy

ME = Voter(NodeId(1), DirectoryId(b"1" * 16))
VOTERS = VoterSet.of([(ME, "n1:1")])
CALM = CoreOptions(events=600)


def entry(base_offset: int, *, epoch: int = 1, count: int = 1, payload: bytes = b"x") -> Entry:
    return Entry(
        kind=EntryKind.DATA,
        epoch=Epoch(epoch),
        base_offset=Offset(base_offset),
        count=count,
        payload=payload,
    )


def test_three_cores_without_faults_commit_and_answer() -> None:
    run = CoreRun(0, options=CALM)
    run.play()
    assert run.facts["answered"] > 20
    assert run.facts["reads"] > 2
    assert run.facts["epochs"] == 2  # the first one, and that of the transfer at the end


def test_the_seeds_draw_every_class_of_faults_and_none_always() -> None:
    drawn = [draw(SimEntropy(f"{seed}")) for seed in range(60)]
    for fault in ("loss", "duplicate", "reorder", "clog_every_ms", "partition_every_ms", "one_way"):
        assert 0 < sum(bool(getattr(each, fault)) for each in drawn) < len(drawn), fault
    for fault in ("crash_every_ms", "wipe", "pause_every_ms", "jump_every_ms", "disk_stall"):
        assert 0 < sum(bool(getattr(each, fault)) for each in drawn) < len(drawn), fault
    assert {each.voters for each in drawn} == set(range(1, MEMBERS_MAX + 1))
    assert max(each.voters + each.observers for each in drawn) == MEMBERS_MAX


def test_a_failed_seed_is_reported_with_what_was_drawn_and_its_last_events() -> None:
    def refuse(_: object) -> None:
        raise Violation("Planted", "it does not hold")

    run = CoreRun(3)
    run.harness.checks.settled.append(refuse)
    with pytest.raises(Violation, match="Planted"):
        run.play()
    assert "events=" in run.options.differing()


def test_the_page_names_every_invariant_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "core_simulation.md").read_text()
    rows = re.findall(r"^\| [0-9, ]+ \| (.*?) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    of_the_end = {"StableLeadership", "Liveness", "Prompt", "Quiet"}
    assert named == {each.__name__ for each in INVARIANTS} | of_the_end | {"Linearizable"}


# --- disks ---------------------------------------------------------------------------------------


def test_equal_running_hashes_mean_equal_histories() -> None:
    logs = [RunningLog(), RunningLog(), RunningLog()]
    for log in logs[:2]:
        log.append(entry(0))
        log.append(entry(1, epoch=2))
    logs[2].append(entry(0, payload=b"y"))
    logs[2].append(entry(1, epoch=2))
    assert logs[1].holds(2, logs[0].chains[2])
    assert not logs[2].holds(2, logs[0].chains[2])


def test_a_truncated_log_goes_on_from_there() -> None:
    log, other = RunningLog(), RunningLog()
    for base in (0, 2, 4):
        log.append(entry(base, count=2))
    log.truncate_to(2)
    log.append(entry(2, epoch=3))
    other.append(entry(0, count=2))
    other.append(entry(2, epoch=3))
    assert (log.end, log.last_epoch) == (3, 3)
    assert log.chains == other.chains


def test_a_damaged_snapshot_is_refused_and_changes_nothing() -> None:
    disk = MemberDisk(ME.node_id, ME.directory_id, VOTERS)
    disk.log.append(entry(0))
    snapshot = SnapshotId(Offset(5), Epoch(1))
    content = bytearray(SnapshotFile.of(snapshot, 77, VOTERS, size=200).content)
    content[60] ^= 1
    disk.write_chunk(chunk_of(snapshot, bytes(content)))
    assert not disk.install(snapshot)
    assert (disk.log.end, disk.newest) == (1, None)
    content[60] ^= 1
    disk.write_chunk(chunk_of(snapshot, bytes(content)))
    assert disk.install(snapshot)
    assert (disk.log.start, disk.log.end) == (LogEnd(Epoch(1), Offset(5)), 5)


def chunk_of(snapshot: SnapshotId, content: bytes) -> SnapshotChunk:
    return SnapshotChunk(
        sender=ME,
        receiver=ME,
        epoch=Epoch(1),
        snapshot=snapshot,
        voters=VOTERS,
        size=len(content),
        position=0,
        content=content,
    )


# --- histories -----------------------------------------------------------------------------------


def test_a_read_that_misses_an_answered_write_is_a_violation() -> None:
    history = CoreHistory()
    history.proposal_answered(PendingProposal(1, 0, end=9, epoch=1))
    stale = PendingRead(2, history.floor, began_us=0)
    with pytest.raises(Violation, match="saw the state at offset 8"):
        history.read_answered(stale, 8)
    history.read_answered(PendingRead(3, 0, began_us=0), 8)  # it began before that was answered


def test_a_write_placed_before_an_answered_one_is_a_violation() -> None:
    history = CoreHistory()
    history.read_answered(PendingRead(1, 0, began_us=0), 9)
    with pytest.raises(Violation, match="ends at offset 9"):
        history.proposal_answered(PendingProposal(2, history.floor, end=9, epoch=1))


# --- the story -----------------------------------------------------------------------------------


def test_the_story_of_a_run_has_every_arrow_and_every_leader() -> None:
    story: list[TraceEvent] = []
    run = CoreRun(0, options=CALM, tracer=story.append)
    run.play()
    sent = {each.number: each for each in story if isinstance(each, Sent)}
    arrived = [each for each in story if isinstance(each, Delivered)]
    assert {each.number for each in arrived} <= set(sent)
    assert all(sent[each.number].at_us < each.at_us for each in arrived)
    roles = [each.role for each in story if isinstance(each, RoleTaken)]
    assert roles.index("pre_candidate") < roles.index("candidate") < roles.index("leader")
    assert any(isinstance(each, HighWatermark) for each in story)
    assert any(isinstance(each, VotersSet) and each.voters == (1, 2, 3) for each in story)
