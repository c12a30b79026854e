"""Regressions of bugs in other implementations, members and reads: B10 to B14, B20, B21, B32, B33.

A last part maps each of B1 to B34 to its tests.
"""

import ast
import re
from itertools import combinations
from pathlib import Path

import pytest
from tests.kit.quorum import Quorum, quorum_with_leader
from tests.kit.raft_member import data, voter, voters

from quorumlog.errors import VoterChangePending
from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import LogEnd
from quorumlog.raftlog.messages import AppendRequest, AppendResponse, Heartbeat, HeartbeatResponse

ROOT = Path(__file__).parents[4]


def acknowledge(quorum: Quorum, node_id: int) -> None:
    """The node acknowledges all of node 1's log as durable."""
    end = quorum[1].log.end_offset
    quorum.step(
        AppendResponse(
            sender=quorum.me(node_id),
            receiver=voter(1),
            epoch=quorum[1].epoch,
            match_end=end,
            received_end=end,
        )
    )


def applied_by(quorum: Quorum, node_id: int) -> list[str]:
    return quorum.members[node_id].state


# --- B10, B11: majorities ------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 8))
def test_b10_every_majority_commits_and_nothing_less(size: int) -> None:
    """All subsets of all sizes: a majority that is off by one in either direction fails."""
    others = range(2, size + 1)
    for count in range(size):
        for have in combinations(others, count):
            quorum = Quorum(range(1, size + 1))
            quorum.elect(1)
            end = quorum[1].high_watermark
            quorum.propose(1, "a")
            quorum.persist(1)
            for node_id in have:
                acknowledge(quorum, node_id)
            commits = 2 * (len(have) + 1) > size
            assert quorum[1].high_watermark == end + commits, f"{have} of {size}"


def test_b10_a_leader_that_is_no_voter_is_not_assumed_to_be_one() -> None:
    quorum = quorum_with_leader(1, 2, 3, 4)
    quorum.remove_voter(1, 1)
    quorum.persist(1)
    end = quorum[1].log.end_offset
    acknowledge(quorum, 2)
    assert quorum[1].high_watermark < end, "1 and 2 are not two of {2, 3, 4}"
    acknowledge(quorum, 3)
    assert quorum[1].high_watermark == end


def test_b10_progress_that_overtakes_is_counted_in_order() -> None:
    """A sorted list of progress that is updated wrongly commits an entry of a single voter."""
    quorum = quorum_with_leader(1, 2, 3, 4, 5)
    start = quorum[1].log.end_offset
    for value in "abcd":
        quorum.propose(1, value)
    quorum.persist(1)
    quorum.persist(1)
    for node_id, end, committed in ((2, 4, 0), (3, 1, 1), (4, 2, 2), (3, 3, 3), (5, 4, 4)):
        quorum.step(
            AppendResponse(
                sender=voter(node_id),
                receiver=voter(1),
                epoch=Epoch(1),
                match_end=Offset(start + end),
                received_end=Offset(start + end),
            )
        )
        assert quorum[1].high_watermark == start + committed


def test_b11_observers_do_not_count_for_commits_or_elections() -> None:
    quorum = quorum_with_leader(observers=(4, 5, 6))
    end = quorum[1].high_watermark
    quorum.propose(1, "a")
    quorum.persist(1)
    for node_id in (4, 5, 6):
        acknowledge(quorum, node_id)
    assert quorum[1].high_watermark == end
    quorum.crash(2)
    quorum.crash(3)
    quorum.flying.clear()
    quorum.run(3_000)
    assert not any(quorum[node_id].is_leader for node_id in (1, 4, 5, 6))


def test_b11_removed_voter_does_not_count() -> None:
    quorum = quorum_with_leader(1, 2, 3, 4, 5)
    quorum.remove_voter(1, 5)
    quorum.settle()
    end = quorum[1].high_watermark
    quorum.propose(1, "a")
    quorum.persist(1)
    acknowledge(quorum, 5)
    acknowledge(quorum, 2)
    assert quorum[1].high_watermark == end, "two of {1, 2, 3, 4}"


# --- B12 to B14: changes of the voters -----------------------------------------------------------


@pytest.mark.parametrize("variant", ["add/remove", "add/add", "remove/remove"])
def test_b12_two_leaders_do_not_change_one_set_into_two(variant: str) -> None:
    """Node 1 appends its change on its own disk. Node 2 is elected by the other nodes and commits
    another change. Then node 1 campaigns among the nodes that would still follow it."""
    first, second = variant.split("/")
    quorum = quorum_with_leader(1, 2, 3, 4, observers=(5, 6))
    quorum.isolate(1)
    quorum.add_voter(1, 5) if first == "add" else quorum.remove_voter(1, 3)
    quorum.persist(1)
    quorum.crash(1)
    quorum.tick(1_000, 2, 3, 4)
    quorum.elect(2)
    quorum.run(3_000)
    quorum.add_voter(2, 6) if second == "add" else quorum.remove_voter(2, 1)
    quorum.settle()
    quorum.propose(2, "committed")
    quorum.settle()
    assert applied_by(quorum, 2) == ["committed"]
    quorum.restart(1)
    quorum.split({1, 4, 5}, {2, 3, 6})
    quorum.run(8_000)
    assert not any(quorum[node_id].is_leader for node_id in (1, 4, 5))
    quorum.heal()
    quorum.run(8_000)
    for node_id in (2, 3, 4):
        assert applied_by(quorum, node_id) == ["committed"]


def test_b12_no_change_before_the_first_commit_of_the_epoch() -> None:
    quorum = quorum_with_leader()
    quorum.tick(1_000, 2, 3)
    quorum.isolate(1)
    quorum.campaign(2)
    for _ in range(4):
        quorum.persist(2)
        quorum.persist(3)
        if quorum[2].is_leader:
            break
        quorum.deliver_all()
    with pytest.raises(VoterChangePending):
        quorum.remove_voter(2, 1)


def test_b13_truncated_change_of_voters_is_reverted() -> None:
    """It has no effect in the running node nor after a restart."""
    quorum = quorum_with_leader(observers=(4,))
    quorum.isolate(1)
    quorum.add_voter(1, 4)
    quorum.persist(1)
    quorum.restart(1)
    assert quorum[1].voters.latest == voters(1, 2, 3, 4), "it is in the log, so it is in effect"
    quorum.tick(1_000, 2, 3)
    quorum.elect(2)
    quorum.heal()
    quorum.run(2_000)
    assert quorum[1].voters.latest == voters(1, 2, 3)
    quorum.restart(1)
    assert quorum[1].voters.latest == voters(1, 2, 3)
    assert quorum[1].voters.latest.majority == 2


def test_b14_a_snapshot_taken_during_a_change_keeps_both_sets_apart() -> None:
    """The snapshot has the set below its end, the log the one above. A node that loads both has
    both."""
    quorum = quorum_with_leader(observers=(4,))
    quorum.propose(1, "a")
    quorum.settle()
    quorum.add_voter(1, 4)
    quorum.snapshot(1)
    quorum.settle()
    quorum.propose(1, "b")
    quorum.settle()
    quorum.snapshot(1)
    quorum.restart(1)
    assert quorum[1].voters.latest == voters(1, 2, 3, 4)
    assert quorum[1].voters.at(quorum[1].log.start_offset) == voters(1, 2, 3)
    quorum.run(5_000)
    quorum.observer(5)
    quorum.run(1_000)
    assert quorum[5].voters.latest == voters(1, 2, 3, 4)


def test_b14_a_removed_voter_stays_removed_when_the_log_is_cleaned() -> None:
    quorum = quorum_with_leader(1, 2, 3, 4)
    quorum.remove_voter(1, 4)
    quorum.settle()
    for value in "ab":
        quorum.propose(1, value)
        quorum.settle()
        quorum.snapshot(1)
    quorum.restart(1)
    assert quorum[1].voters.latest == voters(1, 2, 3)
    assert quorum[1].log.start_offset > 0


# --- B20, B21: reads -----------------------------------------------------------------------------


def test_b20_a_leader_that_was_paused_answers_nothing_stale() -> None:
    """The leader resumes with the clock of before the pause; another leader has led since. Reads
    need a confirmation by a majority that was requested after the read, not a lease."""
    quorum = quorum_with_leader()
    quorum.isolate(1)
    quorum.tick(1_000, 2, 3)
    quorum.elect(2)
    quorum.propose(2, "newer")
    quorum.settle()
    assert quorum[1].is_leader
    quorum.heal()
    quorum.read(1, 7)
    quorum.settle()
    assert quorum.members[1].reads == []
    assert quorum.members[1].reads_lost == [7]


def test_b21_read_waits_for_a_heartbeat_round_after_it() -> None:
    """A response that was sent before the read does not confirm the leadership now. The same
    response does not count twice."""
    quorum = quorum_with_leader()
    quorum.tick(100, 1)
    quorum.deliver_all(to=2)
    (earlier,) = (m for m in quorum.flying if isinstance(m, HeartbeatResponse))
    quorum.flying.clear()
    quorum.read(1, 7)
    quorum.flying.clear()
    for _ in range(3):
        quorum.step(earlier)
    assert quorum.members[1].reads == []
    quorum.tick(100, 1)
    quorum.settle()
    assert [context for context, _ in quorum.members[1].reads] == [7]


def test_b21_a_read_of_a_new_leader_waits_for_its_first_commit() -> None:
    """It may not have the high watermark of the last leader yet."""
    quorum = quorum_with_leader()
    quorum.propose(1, "a")
    quorum.persist(1)
    quorum.deliver_all(to=2)
    quorum.persist(2)
    quorum.deliver_all(to=1)
    assert applied_by(quorum, 1) == ["a"]
    quorum.crash(1)
    quorum.flying.clear()
    quorum.tick(1_000, 3)
    quorum.campaign(2)
    for _ in range(4):
        quorum.persist(2)
        quorum.persist(3)
        if quorum[2].is_leader:
            break
        quorum.deliver_all()
    assert quorum[2].is_leader
    quorum.read(2, 7)
    assert not any(isinstance(m, Heartbeat) and m.round for m in quorum.flying)
    quorum.settle()
    assert applied_by(quorum, 2) == ["a"]
    assert quorum.members[2].reads == [(7, quorum[2].high_watermark)]


# --- B32, B33: faults above the core, the part of the core ---------------------------------------


def test_b32_every_committed_entry_is_delivered_once_in_order() -> None:
    """A state machine without a committed record must not lead. A node whose state machine raises
    stops (see WHERE)."""
    quorum = quorum_with_leader()
    for value in "abc":
        quorum.propose(1, value)
    quorum.settle()
    assert [applied_by(quorum, node_id) for node_id in (1, 2, 3)] == [["a", "b", "c"]] * 3
    with pytest.raises(AssertionError, match="above the handed out"):
        quorum.raft(2).applied(Offset(quorum[2].high_watermark + 1))


def test_b33_node_that_lost_acknowledged_entries_does_not_truncate_others() -> None:
    """Damage is found when the log is opened, and the node does not start (see WHERE). If a log is
    too short anyway, a node with a higher high watermark stops instead of truncating."""
    quorum = quorum_with_leader()
    quorum.propose(1, "committed")
    quorum.settle()
    end = quorum[2].high_watermark
    quorum.step(
        Heartbeat(
            sender=voter(3),
            receiver=voter(2),
            epoch=Epoch(7),
            high_watermark=Offset(0),
            round=0,
        )
    )
    conflicting = data(end - 1, 7, "other")
    request = AppendRequest(
        sender=voter(3),
        receiver=voter(2),
        epoch=Epoch(7),
        prev=LogEnd(Epoch(1), Offset(end - 1)),
        entries=(conflicting,),
        high_watermark=Offset(0),
    )
    with pytest.raises(AssertionError, match="below the high watermark"):
        quorum.members[2].raft.step(request, 0)


# --- the tests of each bug -----------------------------------------------------------------------

WHERE = {
    "B29": [
        "tests/unit/raftlog/shell/test_storage_failures.py"
        "::test_failed_write_stops_the_node_unacknowledged",
    ],
    "B30": [
        "tests/unit/raftlog/shell/test_power_cuts.py"
        "::test_committed_proposals_survive_a_power_cut_at_any_file_operation",
    ],
    "B32": [
        "tests/unit/raftlog/shell/test_state_machine_errors.py"
        "::test_b32_a_node_whose_state_machine_raises_stops_and_acknowledges_nothing_more",
    ],
    "B33": [
        "tests/unit/raftlog/test_metadata_log.py::test_damaged_durable_state_prevents_a_start",
    ],
}
"""Tests of a bug that do not bear its number: what lies above the core."""


def test_every_known_bug_has_a_test_by_its_number() -> None:
    numbers = set()
    for path in Path(__file__).parent.glob("test_known_bugs_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and (
                found := re.match(r"test_b(\d\d)", node.name)
            ):
                numbers.add(int(found[1]))
    assert numbers == set(range(1, 35))


def test_tests_that_are_named_elsewhere_are_there() -> None:
    for names in WHERE.values():
        for name in names:
            path, _, function = name.partition("::")
            assert f"def {function}(" in (ROOT / path).read_text()
