"""The consensus core with one voter, driven by hand: what is durable before what."""

from dataclasses import dataclass, field, replace

import pytest

from quorumlog.errors import NotController, Overloaded
from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog import (
    Entry,
    EntryKind,
    HardState,
    LogView,
    Raft,
    RaftConfig,
    Ready,
    RoleChanged,
    Token,
    Voter,
)
from quorumlog.raftlog.roles import Candidate, Leader
from quorumlog.simulation.entropy import SimEntropy

ME = Voter(NodeId(1), DirectoryId(b"d" * 16))
CONFIG = RaftConfig(node_id=ME.node_id, directory_id=ME.directory_id, voters=(ME,))
NEW = HardState(Epoch(0), None)


@dataclass
class Disk:
    """What survives: a slow, obvious disk that a write reaches only in `persist`."""

    hard_state: HardState = NEW
    entries: list[Entry] = field(default_factory=list)

    def persist(self, ready: Ready) -> None:
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        self.entries.extend(ready.append)

    def open(self, config: RaftConfig = CONFIG) -> Raft:
        batches = [(e.base_offset, e.next_offset, e.epoch) for e in self.entries]
        view = LogView.of(Offset(0), batches)
        return Raft(config, view, self.hard_state, SimEntropy("test"), now_ms=0)


def settle(raft: Raft, disk: Disk) -> list[Ready]:
    """Carry out everything that is ready, durably; return the rounds."""
    rounds = []
    while raft.has_ready():
        ready = raft.ready()
        rounds.append(ready)
        disk.persist(ready)
        if ready.token is not None:
            raft.persisted(ready.token, 0)
        if ready.committed is not None:
            raft.applied(ready.committed.end)
        raft.check_invariants()
    return rounds


def elected(disk: Disk | None = None, config: RaftConfig = CONFIG) -> tuple[Raft, Disk]:
    disk = disk or Disk()
    raft = disk.open(config)
    raft.tick(0)
    settle(raft, disk)
    return raft, disk


def test_lone_voter_elects_itself_at_start_without_waiting() -> None:
    raft, disk = elected()
    assert raft.leader_id == ME.node_id
    assert raft.epoch == 1
    assert disk.hard_state == HardState(Epoch(1), ME)
    assert raft.next_deadline_ms() is None, "a lone leader has nothing to wait for"


def test_own_vote_counts_only_once_it_is_durable() -> None:
    raft = Disk().open()
    raft.tick(0)
    ready = raft.ready()
    assert ready.hard_state == HardState(Epoch(1), ME)
    assert ready.append == (), "no entry of an epoch whose vote could be forgotten"
    candidate = raft.role
    assert isinstance(candidate, Candidate)
    assert candidate.granted == set()
    assert ready.token is not None
    raft.persisted(ready.token, 0)
    assert raft.leader_id == ME.node_id


def test_epoch_opens_with_a_no_op() -> None:
    _, disk = elected()
    assert [(entry.kind, entry.epoch) for entry in disk.entries] == [(EntryKind.LEADER_CHANGE, 1)]


def test_nothing_is_committed_before_its_fsync() -> None:
    raft, _ = elected()
    entry = raft.propose(count=3, payload=b"abc")
    assert (entry.base_offset, entry.next_offset) == (1, 4)
    ready = raft.ready()
    assert ready.append == (entry,)
    assert ready.committed is None
    assert raft.high_watermark == 1
    assert not raft.has_ready()
    assert ready.token is not None
    raft.persisted(ready.token, 0)
    committed = raft.ready().committed
    assert committed is not None
    assert (committed.start, committed.end) == (1, 4)


def test_proposals_during_a_write_share_the_next_one() -> None:
    raft, disk = elected()
    raft.propose(count=1, payload=b"first")
    ready = raft.ready()
    later = [raft.propose(count=1, payload=b"later") for _ in range(3)]
    assert not raft.has_ready(), "one write in flight"
    assert ready.token is not None
    disk.persist(ready)
    raft.persisted(ready.token, 0)
    following = raft.ready()
    assert following.append == tuple(later)
    assert following.committed is not None
    assert following.committed.end == 2, "only the first write is durable"


def test_a_write_is_bounded() -> None:
    config = replace(CONFIG, write_bytes_max=10)
    raft, _ = elected(config=config)
    for _ in range(3):
        raft.propose(count=1, payload=b"12345")
    ready = raft.ready()
    assert len(ready.append) == 2
    assert ready.token is not None
    raft.persisted(ready.token, 0)
    assert len(raft.ready().append) == 1


def test_a_late_completion_confirms_nothing() -> None:
    raft, _ = elected()
    raft.propose(count=1, payload=b"x")
    ready = raft.ready()
    assert ready.token is not None
    with pytest.raises(AssertionError, match="is in flight"):
        raft.persisted(Token(ready.token - 1), 0)
    raft.persisted(ready.token, 0)
    with pytest.raises(AssertionError, match="none is in flight"):
        raft.persisted(ready.token, 0)


def test_restart_begins_a_new_epoch_and_commits_the_past_only_with_it() -> None:
    """A restarted leader resumes nothing; the old tail commits through the new no-op (B6, B24)."""
    raft, disk = elected()
    raft.propose(count=2, payload=b"x")
    settle(raft, disk)
    again = disk.open()
    assert again.leader_id is None
    assert again.high_watermark == 0
    again.tick(0)
    vote = again.ready()
    disk.persist(vote)
    assert vote.token is not None
    again.persisted(vote.token, 0)
    no_op = again.ready()
    assert again.epoch == 2
    assert no_op.committed is None, "the past is durable here, but not committed in this epoch"
    disk.persist(no_op)
    assert no_op.token is not None
    again.persisted(no_op.token, 0)
    committed = again.ready().committed
    assert committed is not None
    assert (committed.start, committed.end) == (0, 4)


@pytest.mark.parametrize("writes", range(6))
def test_crash_at_any_write_loses_no_commit(writes: int) -> None:
    """Torn persist order: the disk stops after some writes; whatever was committed is there."""
    disk = Disk()
    raft = disk.open()
    raft.tick(0)
    committed = 0
    for step in range(writes):
        if not raft.has_ready():
            raft.propose(count=1, payload=bytes([step]))
        ready = raft.ready()
        if ready.committed is not None:
            committed = ready.committed.end
        disk.persist(ready)
        if ready.token is not None:
            raft.persisted(ready.token, 0)
    raft.propose(count=1, payload=b"lost") if raft.leader_id is not None else None
    kept = list(disk.entries)
    again, after = elected(disk)
    assert after.entries[: len(kept)] == kept
    assert again.high_watermark >= committed
    assert again.epoch == after.entries[-1].epoch


def test_epoch_of_a_vote_that_survived_is_not_used_again() -> None:
    """Crash between the vote and the no-op: the next epoch is a new one (B1)."""
    disk = Disk()
    raft = disk.open()
    raft.tick(0)
    disk.persist(raft.ready())
    again, _ = elected(disk)
    assert again.epoch == 2


def test_uncommitted_bytes_are_bounded_and_freed_by_commits() -> None:
    config = replace(CONFIG, uncommitted_bytes_max=10)
    raft, disk = elected(config=config)
    raft.propose(count=1, payload=b"1" * 25)  # alone it may be larger
    with pytest.raises(Overloaded):
        raft.propose(count=1, payload=b"1")
    end = raft.log.end_offset
    settle(raft, disk)
    assert raft.high_watermark == end, "the refused one left nothing behind"
    raft.propose(count=1, payload=b"1" * 10)


def test_proposal_without_leadership_is_refused() -> None:
    raft = Disk().open()
    with pytest.raises(NotController):
        raft.propose(count=1, payload=b"x")


def test_resigned_leader_takes_no_more_and_campaigns_later() -> None:
    raft, disk = elected()
    raft.resign(100)
    settle(raft, disk)
    assert not isinstance(raft.role, Leader)
    deadline_ms = raft.next_deadline_ms()
    assert deadline_ms is not None
    assert 1100 <= deadline_ms <= 2100
    raft.tick(deadline_ms)
    settle(raft, disk)
    assert raft.leader_id == ME.node_id
    assert raft.epoch == 2


def test_role_changes_are_events_for_the_log() -> None:
    disk = Disk()
    raft = disk.open()
    raft.tick(0)
    events = [event for ready in settle(raft, disk) for event in ready.events]
    roles = [(e.role, e.epoch) for e in events if isinstance(e, RoleChanged)]
    assert roles == [("pre_candidate", 0), ("candidate", 1), ("leader", 1)]
