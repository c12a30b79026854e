"""Regressions of bugs in other implementations, the log: B6 to B8, B22, B23, B25 to B31."""

from collections import Counter

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import SnapshotFile, data, voter, voters

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import LogEnd, SnapshotId
from quorumlog.raftlog.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
)
from quorumlog.raftlog.voters import VoterSet


def heartbeat(*, epoch: int, hw: int, sender: int = 1, receiver: int = 2) -> Heartbeat:
    return Heartbeat(
        sender=voter(sender),
        receiver=voter(receiver),
        epoch=Epoch(epoch),
        high_watermark=Offset(hw),
        round=1,
    )


def values(quorum: Quorum) -> list[list[str]]:
    return [member.state for _, member in quorum.running()]


def test_b06_figure_8_an_old_entry_on_a_majority_is_not_committed() -> None:
    """1 leads epoch 2, 5 epoch 3, 1 epoch 4. The entry of epoch 2 is on a majority now, and 5 can
    still overwrite it."""
    quorum = Quorum(range(1, 6), append_bytes_max=1)
    for node_id, epochs in enumerate(([1, 2], [1, 2], [1], [1], [1, 3]), 1):
        quorum.prepare(node_id, epochs)
    for node_id in range(1, 6):
        quorum.restart(node_id)
    quorum.split({1, 2, 3, 4}, {5})
    quorum.campaign(1)
    for _ in range(12):
        for node_id in (2, 3, 4):
            quorum.persist(node_id)
        if not quorum[1].is_leader:
            quorum.persist(1)
        quorum.flying = [
            m for m in quorum.flying if not isinstance(m, AppendRequest) or m.end_offset <= 2
        ]
        quorum.deliver_all()
    assert quorum.members[3].disk.end_offset == 2
    assert quorum[1].high_watermark == 0
    quorum.crash(1)
    quorum.heal()
    quorum.flying.clear()
    quorum.run(200)
    quorum.tick(3_000, 2, 3, 4)
    quorum.flying.clear()
    quorum.campaign(5)  # receives epoch 4
    quorum.settle()
    quorum.run(5_000)
    quorum.restart(1)
    quorum.run(2_000)
    logs = [quorum.members[node_id].disk.entries for node_id in range(1, 6)]
    assert all(log == logs[0] for log in logs), "all nodes have the log of one of the two leaders"


def test_b07_a_late_shorter_request_truncates_nothing_that_was_acknowledged() -> None:
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    late = next(m for m in quorum.flying if isinstance(m, AppendRequest) and m.receiver == voter(2))
    quorum.propose(1, "b")
    quorum.settle()
    assert values(quorum) == [["a", "b"]] * 3
    end = quorum[2].log.end_offset
    quorum.step(late)
    empty = AppendRequest(
        sender=voter(1),
        receiver=voter(2),
        epoch=late.epoch,
        prev=late.prev,
        entries=(),
        high_watermark=Offset(0),
    )
    quorum.step(empty)
    assert quorum[2].log.end_offset == end
    assert quorum.members[2].writing is None


def test_b08_a_heartbeat_commits_nothing_that_was_not_compared() -> None:
    """The follower's tail is as long as the leader's committed log, but of other entries."""
    quorum = Quorum()
    quorum.prepare(2, [1, 2, 2, 2])
    quorum.restart(2)
    quorum.step(heartbeat(epoch=5, hw=4))
    quorum.persist(2)
    quorum.step(heartbeat(epoch=5, hw=4))
    assert quorum[2].high_watermark == 0
    probe = AppendRequest(
        sender=voter(1),
        receiver=voter(2),
        epoch=Epoch(5),
        prev=LogEnd(Epoch(1), Offset(1)),
        entries=(),
        high_watermark=Offset(4),
    )
    quorum.step(probe)
    assert quorum[2].high_watermark == 1, "up to the compared offset"


def test_b08_match_under_the_last_leader_does_not_count_for_the_next() -> None:
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.deliver_all(to=2)
    quorum.persist(2)
    end = quorum[2].log.end_offset
    quorum.step(heartbeat(epoch=2, hw=end, sender=3))
    assert quorum[2].high_watermark < end


def test_b22_late_completion_does_not_confirm_overwritten_entries() -> None:
    """Offset 2 is being written when the next leader overwrites it; then the write completes."""
    quorum = quorum_with_leader()
    quorum.propose(1, "old")
    quorum.deliver_all(to=2)
    base = quorum[2].log.end_offset - 1
    quorum.flying.clear()
    quorum.step(heartbeat(epoch=2, hw=0, sender=3))
    quorum.step(
        AppendRequest(
            sender=voter(3),
            receiver=voter(2),
            epoch=Epoch(2),
            prev=LogEnd(Epoch(1), Offset(base)),
            entries=(data(base, 2, "new"),),
            high_watermark=Offset(0),
        )
    )
    quorum.flying.clear()
    quorum.persist(2)
    assert quorum.members[2].disk.entries[-1].payload == b"old"
    assert quorum[2].writes.durable_end == base
    ends = [m.match_end for m in quorum.flying if isinstance(m, AppendResponse)]
    assert all(end <= base for end in ends)
    quorum.persist(2)
    assert quorum.members[2].disk.entries[-1].payload == b"new"
    assert quorum[2].writes.durable_end == base + 1


def test_b23_a_lone_voter_commits_nothing_before_its_fsync() -> None:
    quorum = quorum_with_leader(1)
    quorum.propose(1, "a")
    assert quorum.members[1].state == []
    quorum.restart(1)
    quorum.run(1_000)
    assert quorum.members[1].state == []
    quorum.propose(1, "b")
    quorum.persist(1)
    assert quorum.members[1].state == ["b"]


def test_b23_a_leader_counts_its_own_disk_and_not_its_memory() -> None:
    quorum = quorum_with_leader()
    end = quorum[1].high_watermark
    quorum.propose(1, "a")
    quorum.deliver_all(to=2)
    quorum.persist(2)
    quorum.deliver_all(to=1)
    assert quorum[1].high_watermark == end
    quorum.persist(1)
    assert quorum[1].high_watermark == end + 1


def test_b25_a_log_cleaned_under_a_slow_follower_matches_nothing_by_accident() -> None:
    """The epoch below the log start is the snapshot's, never 0, which would match an empty log."""
    quorum = quorum_with_leader(inflight_requests_max=1)
    quorum.isolate(3)
    for value in "abc":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    assert quorum[1].log.epoch_before(quorum[1].log.start_offset) == 1
    quorum.heal()
    quorum.wipe(3)
    quorum.run(1_000)
    assert quorum.members[3].state == ["a", "b", "c"]
    assert quorum[3].log.start_offset > 0, "the follower received a snapshot"


@pytest.mark.parametrize("lost", ["requests", "answers", "heartbeats"])
def test_b26_no_follower_is_stuck_whatever_was_lost(lost: str) -> None:
    """A counter of requests in flight that is never decremented stalls a peer forever."""
    kinds = {
        "requests": AppendRequest,
        "answers": AppendResponse,
        "heartbeats": Heartbeat | HeartbeatResponse,
    }[lost]
    quorum = quorum_with_leader(inflight_requests_max=2, inflight_bytes_max=10)
    for turn in range(20):
        quorum.propose(1, f"value {turn}")
        quorum.persist(1)
        quorum.tick(100, 1)
        quorum.flying = [m for m in quorum.flying if not isinstance(m, kinds)]
        quorum.deliver_all()
        quorum.persist(2)
        quorum.persist(3)
        quorum.flying = [m for m in quorum.flying if not isinstance(m, kinds)]
        quorum.deliver_all(to=1)
        for node_id in (2, 3):
            quorum.tick(0, node_id)
    quorum.run(500)
    assert values(quorum) == [[f"value {turn}" for turn in range(20)]] * 3


def test_b26_a_peer_that_was_reported_unreachable_in_every_state_catches_up() -> None:
    quorum = quorum_with_leader(snapshot_chunk_bytes=8)
    for turn in range(12):
        quorum.propose(1, f"v{turn}")
        quorum.unreachable(1, 3)
        quorum.flying = [m for m in quorum.flying if getattr(m, "receiver", None) != voter(3)]
        quorum.tick(100, 1)
        for message in [m for m in quorum.flying if quorum.target(m) != 2][:1]:
            quorum.deliver(message)
        quorum.settle()
        if turn == 5:
            quorum.snapshot(1)
        if turn == 7:
            quorum.snapshot(1)
    quorum.run(500)
    assert values(quorum) == [[f"v{turn}" for turn in range(12)]] * 3


def test_b26_new_node_catches_up_with_a_log_cleaned_to_its_end() -> None:
    """The range in which the leader searches for the divergence is empty."""
    quorum = quorum_with_leader()
    for value in "ab":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    quorum.snapshot(1)
    quorum.observer(4)
    quorum.isolate(4)
    quorum.run(200)
    quorum.heal()
    quorum.run(1_000)
    assert quorum.members[4].state == ["a", "b"]
    quorum.add_voter(1, 4)
    quorum.settle()
    assert quorum[4].is_voter


def chunk(
    snapshot: SnapshotId, file: SnapshotFile, position: int, size: int, *, of: VoterSet
) -> SnapshotChunk:
    """Build a chunk from node 1 to node 3."""
    return SnapshotChunk(
        sender=voter(1),
        receiver=voter(3),
        epoch=Epoch(1),
        snapshot=snapshot,
        voters=of,
        size=len(file.content),
        position=position,
        content=file.content[position : position + size],
    )


def behind() -> tuple[Quorum, list[SnapshotId]]:
    """Node 3 follows its leader and lacks the contents of two snapshots."""
    quorum = quorum_with_leader()
    quorum.isolate(3)
    taken = []
    for value in "ab":
        quorum.propose(1, value)
        quorum.settle()
        taken.append(quorum.snapshot(1))
    quorum.flying.clear()
    return quorum, taken


def test_b27_repeated_chunk_does_not_restart_the_snapshot() -> None:
    quorum, (_, newest) = behind()
    file, of = quorum.members[1].disk.snapshots[newest], voters(1, 2, 3)
    for position in (0, 0, 8, 0, 8, 16):
        quorum.step(chunk(newest, file, position, 8, of=of))
        quorum.persist(3)
    assert len(quorum.members[3].disk.unfinished) == 24
    quorum.step(chunk(newest, file, 24, 1_000, of=of))
    quorum.persist(3)
    assert quorum.members[3].state == ["a", "b"]


@pytest.mark.parametrize("first", [8, 24, 10_000])
def test_b27_a_piece_that_leaves_a_hole_is_not_taken(first: int) -> None:
    quorum, (_, newest) = behind()
    file = SnapshotFile(quorum.members[1].disk.snapshots[newest].content + bytes(20_000))
    quorum.step(chunk(newest, file, first, 8, of=voters(1, 2, 3)))
    assert quorum.members[3].writing is None
    assert quorum.members[3].disk.unfinished == b""


def test_b27_older_snapshot_never_replaces_newer_state() -> None:
    quorum, (older, _) = behind()
    file = quorum.members[1].disk.snapshots[older]
    quorum.heal()
    quorum.run(300)
    before = (quorum[3].log.start, quorum[3].high_watermark, quorum.members[3].state)
    quorum.step(chunk(older, file, 0, 1_000, of=voters(1, 2, 3)))
    quorum.persist(3)
    assert (quorum[3].log.start, quorum[3].high_watermark, quorum.members[3].state) == before


def test_b27_entries_and_commits_wait_while_a_snapshot_is_installed() -> None:
    """Otherwise the installed state would replace entries that were applied during the
    installation."""
    quorum, (_, newest) = behind()
    file = quorum.members[1].disk.snapshots[newest]
    quorum.step(chunk(newest, file, 0, 1_000, of=voters(1, 2, 3)))
    writing = quorum.members[3].writing
    assert writing is not None
    assert writing.install == newest
    end = quorum[3].log.end_offset
    quorum.step(
        AppendRequest(
            sender=voter(1),
            receiver=voter(3),
            epoch=Epoch(1),
            prev=LogEnd(Epoch(1), end),
            entries=(data(end, 1, "a"),),
            high_watermark=Offset(end + 1),
        )
    )
    assert quorum.members[3].state == []
    quorum.persist(3)
    assert quorum.members[3].state == ["a", "b"]
    quorum.heal()
    quorum.run(300)
    assert values(quorum) == [["a", "b"]] * 3


def test_b27_no_node_campaigns_during_an_installation() -> None:
    quorum, (_, newest) = behind()
    file = quorum.members[1].disk.snapshots[newest]
    quorum.step(chunk(newest, file, 0, 1_000, of=voters(1, 2, 3)))
    quorum.tick(10_000, 3)
    assert quorum.raft(3).role.name not in ("pre_candidate", "candidate")
    quorum.persist(3)
    quorum.tick(10_000, 3)
    assert quorum.raft(3).role.name == "pre_candidate"


def test_b28_a_snapshots_end_is_exclusive_everywhere() -> None:
    """The entry at the end offset is the first one outside of the snapshot: it is neither lost nor
    applied twice, after a restart or an installation."""
    quorum = quorum_with_leader()
    quorum.propose(1, "in")
    quorum.settle()
    first = quorum.snapshot(1)
    quorum.propose(1, "behind")
    quorum.settle()
    assert quorum.members[1].disk.snapshots[first].state == ["in"]
    assert quorum[1].log.epoch_at(first.end_offset) == 1, "the next entry starts there"
    quorum.restart(1)
    assert quorum[1].applied_end == first.end_offset
    quorum.run(5_000)
    assert values(quorum) == [["in", "behind"]] * 3


def test_b29_offset_and_epoch_of_an_unwritten_entry_are_not_reused() -> None:
    """Followers have the entry, but the leader's disk failed, so its node stops. The next leader
    has the entry or overwrites it in a later epoch."""
    quorum = quorum_with_leader()
    quorum.propose(1, "sent")
    base = quorum[1].log.end_offset - 1
    quorum.deliver_all(to=2)
    quorum.persist(2)
    quorum.crash(1)
    quorum.run(5_000)
    (leader,) = (node_id for node_id in (2, 3) if quorum[node_id].is_leader)
    quorum.propose(leader, "next")
    quorum.run(500)
    quorum.restart(1)
    quorum.run(2_000)
    entries = [
        [(e.base_offset, e.epoch, e.payload) for e in quorum.members[n].disk.entries]
        for n in (1, 2, 3)
    ]
    assert entries[0] == entries[1] == entries[2]
    named = Counter((offset, epoch) for offset, epoch, _ in entries[0])
    assert max(named.values()) == 1
    assert (base, 1, b"sent") in entries[0]


def test_b30_a_majority_that_loses_its_power_loses_nothing_that_was_committed() -> None:
    """If entries were acknowledged from memory, committed ones could be lost. Only fsynced entries
    are acknowledged."""
    quorum = quorum_with_leader()
    end = quorum[1].high_watermark
    for value in "abc":
        quorum.propose(1, value)
    quorum.persist(1)
    for _ in range(5):
        quorum.deliver_all()
    assert quorum[1].high_watermark == end, "two nodes have it in memory, one on its disk"
    for node_id in (2, 3):
        quorum.restart(node_id)
    quorum.flying.clear()
    quorum.crash(1)
    quorum.run(5_000)
    assert sum(quorum[node_id].is_leader for node_id in (2, 3)) == 1


@pytest.mark.parametrize("cut_at", range(12))
def test_b30_a_power_cut_of_all_at_any_moment_keeps_what_was_committed(cut_at: int) -> None:
    quorum = quorum_with_leader()
    steps = 0
    for value in "abcd":
        quorum.propose(1, value)
        for node_id in (1, 2, 3):
            if steps < cut_at:
                quorum.persist(node_id)
                quorum.deliver_all()
            steps += 1
    committed = max((state for state in values(quorum)), key=len)
    for node_id in (1, 2, 3):
        quorum.restart(node_id)
    quorum.flying.clear()
    quorum.run(6_000)
    assert all(state[: len(committed)] == committed for state in values(quorum))
    assert values(quorum)[0] == values(quorum)[1] == values(quorum)[2]


def test_b31_time_alone_changes_nothing() -> None:
    """A timer with its own thread would change state concurrently. Here time is an argument, and
    only tick() checks timers."""
    quorum = quorum_with_leader()
    late_ms = quorum.members[2].now_ms + 1_000_000
    before = (quorum.raft(2).role, quorum.raft(2).next_deadline_ms())
    assert not quorum.raft(2).has_ready()
    quorum.raft(2).step(heartbeat(epoch=0, hw=0, sender=3), late_ms)
    assert (quorum.raft(2).role, quorum.raft(2).next_deadline_ms()) == before
    quorum.raft(2).tick(late_ms)
    assert quorum.raft(2).role.name == "pre_candidate"
