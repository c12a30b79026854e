"""A quorum under any order of deliveries, losses, crashes, proposals and voter changes, against
slow and obvious oracles: log matching, quorums by counting disks, voters by reading logs.

Hypothesis searches for the shortest history that violates one. The quorum itself checks that an
epoch has one leader, that committed entries stay, and that no message promises state that is not
durable. tests/simulation searches with time, randomness and size; a history of this test is short
enough to read.
"""

from contextlib import suppress
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.quorum import Quorum
from tests.kit.raft_member import voters

from quorumlog.errors import QuorumlogError
from quorumlog.raftlog.log_view import Entry
from quorumlog.raftlog.ready import CommittedRange
from quorumlog.raftlog.voters import Voter, VoterSet

NODES = st.integers(1, 5)


def log_of(quorum: Quorum, node_id: int) -> list[Entry]:
    """Return every entry in the node's log, written or not."""
    member = quorum.members[node_id]
    log = member.raft_state.log
    return list(member.entries(log.start_offset, log.end_offset))


class QuorumModel(RuleBasedStateMachine):
    """Voters 1 to 3, and observers 4 and 5 that may become voters."""

    def __init__(self) -> None:
        super().__init__()
        self.quorum = Quorum((1, 2, 3), snapshot_chunk_bytes=40, append_bytes_max=30)
        self.quorum.happened = self.happened
        self.proposed = 0

    @initialize()
    def observers(self) -> None:
        self.quorum.elect(1)
        for node_id in (4, 5):
            self.quorum.observer(node_id)
        self.quorum.run(300)

    # --- rules -----------------------------------------------------------------------------------

    def is_up(self, node_id: int) -> bool:
        return self.quorum.members[node_id].core is not None

    @precondition(lambda self: self.quorum.flying)
    @rule(data=st.data(), count=st.integers(1, 6))
    def deliver(self, data: Any, count: int) -> None:
        for _ in range(min(count, len(self.quorum.flying))):
            index = data.draw(st.integers(0, min(3, len(self.quorum.flying) - 1)))
            self.quorum.deliver(self.quorum.flying[index])
            if not self.quorum.flying:
                break

    @rule()
    def deliver_everything(self) -> None:
        self.quorum.deliver_all()

    @precondition(lambda self: self.quorum.flying)
    @rule(data=st.data(), again=st.booleans())
    def lose_or_repeat(self, data: Any, again: bool) -> None:
        index = data.draw(st.integers(0, len(self.quorum.flying) - 1))
        message = self.quorum.flying[index]
        if again:
            self.quorum.flying.append(message)
        else:
            del self.quorum.flying[index]

    @rule(node_id=NODES)
    def persist(self, node_id: int) -> None:
        if self.is_up(node_id):
            self.quorum.persist(node_id)

    @rule()
    def settle(self) -> None:
        self.quorum.settle()

    @rule(node_id=NODES, part=st.sampled_from(["", "hard_state", "truncate"]))
    def crash(self, node_id: int, part: str) -> None:
        if self.is_up(node_id):
            if part:
                self.quorum.persist(node_id, only=part)
            self.quorum.crash(node_id)

    @rule(node_id=NODES)
    def restart(self, node_id: int) -> None:
        self.quorum.restart(node_id)

    @rule(node_id=NODES, ms=st.sampled_from([100, 1_000, 2_500]))
    def pass_time(self, node_id: int, ms: int) -> None:
        if self.is_up(node_id):
            self.quorum.tick(ms, node_id)

    @rule(ms=st.sampled_from([100, 1_000]))
    def pass_time_for_all(self, ms: int) -> None:
        self.quorum.tick(ms)

    @rule(node_id=NODES)
    def propose(self, node_id: int) -> None:
        if self.is_up(node_id):
            with suppress(QuorumlogError):
                self.quorum.propose(node_id, f"v{self.proposed}")
                self.proposed += 1

    @rule(node_id=NODES, other=NODES, adds=st.booleans())
    def change_voters(self, node_id: int, other: int, adds: bool) -> None:
        if self.is_up(node_id):
            with suppress(QuorumlogError):
                (self.quorum.add_voter if adds else self.quorum.remove_voter)(node_id, other)

    @rule(node_id=NODES, to=NODES)
    def transfer(self, node_id: int, to: int) -> None:
        if self.is_up(node_id):
            with suppress(QuorumlogError):
                self.quorum.transfer(node_id, to)

    @rule(node_id=NODES)
    def snapshot(self, node_id: int) -> None:
        member = self.quorum.members[node_id]
        if member.core is None or not 0 < member.raft_state.applied_end <= member.disk.end_offset:
            return
        if all(each.end_offset < member.raft_state.applied_end for each in member.disk.snapshots):
            self.quorum.snapshot(node_id)

    # --- invariants ------------------------------------------------------------------------------

    def happened(self, node_id: int, what: object) -> None:
        """Check a commit of a leader: count the disks of the voters of its newest set."""
        member = self.quorum.members[node_id]
        if not isinstance(what, CommittedRange) or not member.raft_state.is_leader:
            return
        last = member.tail[max(base for base in member.tail if base < what.end)]
        assert last.epoch == member.raft_state.epoch, (
            "an entry of an older epoch was committed by counting"
        )
        holders = [
            each
            for each in member.raft_state.voters.latest
            if self.holds(each, last) or each == member.config.me
        ]
        assert 2 * len(holders) > len(member.raft_state.voters.latest), (
            f"{last} is only on {holders}"
        )

    def holds(self, of: Voter, entry: Entry) -> bool:
        """Return True if the voter's disk has the entry, or a snapshot that includes it."""
        disk = self.quorum.members[of.node_id].disk
        return entry in disk.entries or disk.start.offset >= entry.next_offset

    @invariant()
    def one_offset_and_epoch_name_one_prefix(self) -> None:
        """Check log matching, entry by entry (paper, figure 3)."""
        logs = {
            n: {e.base_offset: e for e in log_of(self.quorum, n)} for n, _ in self.quorum.running()
        }
        for left, right in combinations(logs.values(), 2):
            shared = sorted(left.keys() & right.keys())
            same = [left[offset].epoch == right[offset].epoch for offset in shared]
            last = max((i for i, is_same in enumerate(same) if is_same), default=-1)
            assert all(left[offset] == right[offset] for offset in shared[: last + 1])

    @invariant()
    def voters_are_those_of_the_log(self) -> None:
        """Check that the current set is the last one in the log; consecutive sets differ by at most
        one member, so that any majority of one intersects any majority of the other."""
        for node_id, member in self.quorum.running():
            sets: list[VoterSet] = [member.raft_state.voters.at(member.raft_state.log.start_offset)]
            sets += [e.voters for e in log_of(self.quorum, node_id) if e.voters is not None]
            assert member.raft_state.voters.latest == sets[-1]
            for before, after in pairwise(sets):
                if before and after:
                    changed = set(before) ^ set(after)
                    assert len(changed) <= 1, f"{before} became {after}"

    @invariant()
    def leaders_have_all_committed_entries(self) -> None:
        """Check leader completeness (paper 5.4.3)."""
        newest = max(self.quorum.leaders, default=0)
        for node_id, member in self.quorum.running():
            if member.raft_state.is_leader and member.raft_state.epoch == newest:
                log = {int(e.base_offset): e for e in log_of(self.quorum, node_id)}
                for offset, (epoch, payload) in self.quorum.committed.items():
                    if offset >= member.raft_state.log.start_offset:
                        assert (log[offset].epoch, log[offset].payload) == (epoch, payload)

    def teardown(self) -> None:
        """Restart all members and stop all losses: one leads, and all logs agree."""
        for node_id in sorted(self.quorum.members):
            self.quorum.restart(node_id)
        self.quorum.run(12_000)
        leaders = [n for n, member in self.quorum.running() if member.raft_state.is_leader]
        assert len(leaders) == 1, [m.raft.role.name for _, m in self.quorum.running()]
        self.quorum.propose(leaders[0], "last")
        self.quorum.run(2_000)
        assert {tuple(member.state) for _, member in self.quorum.running()} == {
            tuple(self.quorum.members[leaders[0]].state)
        }
        assert self.quorum.members[leaders[0]].state[-1] == "last"


QuorumModel.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
TestQuorumModel = pytest.mark.slow(QuorumModel.TestCase)


@pytest.mark.parametrize("size", range(1, 8))
def test_majorities_of_neighbouring_sets_meet(size: int) -> None:
    """Single-member changes are safe (thesis 4.1): verified for all sets of this size."""
    before = voters(*range(1, size + 1))
    after = before.adding(voters(size + 1).members[0][0], "x")
    for left in combinations(before, before.majority):
        for right in combinations(after, after.majority):
            assert set(left) & set(right)
