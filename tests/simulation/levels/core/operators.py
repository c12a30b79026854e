"""Users of the quorum: clients that propose and read, and operators that change voters."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from quorumlog.errors import QuorumlogError
from quorumlog.raftlog.log_view import Entry
from quorumlog.raftlog.voters import Voter, VoterAddition, VoterRemoval

from .faults import CoreFaultInjector
from .harness import Harness
from .member import CoreMember
from .options import MEMBERS_MAX
from .recorder import EventKind

LIVENESS_SLOWNESS: Final = 5
"""Factor by which clients operate less often once the faults have ended: progress suffices then."""


class Operators:
    """Load and changes; refusals are typed errors, and counted."""

    def __init__(self, harness: Harness, faults: CoreFaultInjector, random: Random) -> None:
        self._harness = harness
        self._faults = faults
        self._random = random
        self.changes = self.transfers = 0
        self.slowness = LIVENESS_SLOWNESS  # of proposals once the faults have ended
        self.is_over = False  # no operation follows

    def begin(self) -> None:
        """Start the load. Clients continue after the faults."""
        options = self._harness.options
        self._again(options.proposals_per_s, self.propose)
        self._again(options.reads_per_s, self.read)
        self._faults.every(options.churn_every_ms, self.change_voters)
        self._faults.every(options.transfer_every_ms, self._transfer)
        self._faults.every(options.resign_every_ms, self._resign)

    def _again(self, per_s: float, action: Callable[[], None]) -> None:
        if per_s:
            self._harness.later(self._harness.now_us, partial(self._happen, action, per_s))

    def _happen(self, action: Callable[[], None], per_s: float) -> None:
        if self.is_over:
            return
        action()
        calm = self.slowness if action == self.propose else LIVENESS_SLOWNESS
        slower = calm if self._faults.is_over else 1
        wait_us = 1 + int(slower * 2_000_000 / per_s * self._random.random())
        happen = partial(self._happen, action, per_s)
        self._harness.later(self._harness.now_us + wait_us, happen)

    def _target(self) -> CoreMember | None:
        """Return a member for a request: mostly a leader, sometimes any."""
        running = [m for m in self._harness.members if m.raft is not None]
        running = [m for m in running if m.paused_until_us <= self._harness.now_us]
        leaders = [m for m in running if m.raft is not None and m.state.is_leader]
        chosen = leaders if leaders and self._random.random() < 0.95 else running
        return chosen[int(self._random.random() * len(chosen))] if chosen else None

    def propose(self) -> None:
        """Send one proposal, or a few at once."""
        member = self._target()
        if member is None:
            return
        options, random = self._harness.options, self._random.random
        for _ in range(1 if random() < 0.8 else 1 + int(random() * 5)):
            if member.raft is None:
                return
            count = 1 + int(random() * options.records_max)
            try:
                self._harness.propose(member, count, int(random() * options.payload_bytes_max))
            except QuorumlogError:
                self._harness.history.refused += 1

    def read(self) -> None:
        """Send one linearizable read."""
        member = self._target()
        if member is not None:
            try:
                self._harness.read(member)
            except QuorumlogError:
                self._harness.history.refused += 1

    # --- changes -------------------------------------------------------------------------------

    def change_voters(self) -> bool:
        """Add or remove a voter. Return True if a leader accepted it."""
        member = self._target()
        if member is None or member.raft is None or not member.state.is_leader:
            return False
        voters = member.state.voters.latest
        outside = [m for m in self._harness.members if m.me not in voters]
        gone = [voter for voter in voters if self._harness.oracle.is_gone(voter)]
        removes = len(voters) > 1 and (self._random.random() < 0.5 or not outside or bool(gone))
        if removes:
            every = gone or list(voters)
            return self._remove(member, every[int(self._random.random() * len(every))])
        if not outside or len(voters) >= MEMBERS_MAX:
            return False
        other = outside[int(self._random.random() * len(outside))]
        return self._add(member, other)

    def _add(self, member: CoreMember, other: CoreMember) -> bool:
        raft = member.raft
        assert raft is not None, "a change without a process"
        try:
            change = VoterAddition(other.me, other.address)
            entry = raft.change_voters(change, member.now_ms(self._harness.now_us))
        except QuorumlogError:
            self._harness.history.refused += 1
            return False
        self._changed(member, entry, EventKind.ADD_VOTER)
        return True

    def _remove(self, member: CoreMember, voter: Voter) -> bool:
        raft, oracle = member.raft, self._harness.oracle
        assert raft is not None, "a change without a process"
        rest = [each for each in member.state.voters.latest if each != voter]
        living = sum(1 for each in rest if not oracle.is_gone(each))
        if living < len(rest) // 2 + 1:
            return False  # the rest would have no majority for ever
        try:
            entry = raft.change_voters(VoterRemoval(voter), member.now_ms(self._harness.now_us))
        except QuorumlogError:
            self._harness.history.refused += 1
            return False
        self._changed(member, entry, EventKind.REMOVE_VOTER)
        return True

    def _changed(self, member: CoreMember, entry: Entry, what: EventKind) -> None:
        self.changes += 1
        for check in self._harness.checks.voters_proposed:
            check(member, entry)
        self._harness.settle(member, what << 16)

    def _transfer(self) -> None:
        member = self._target()
        if member is None or member.raft is None:
            return
        voters = list(member.state.voters.latest)
        if not voters:
            return
        to = voters[int(self._random.random() * len(voters))].node_id
        try:
            member.raft.transfer_leadership(
                None if self._random.random() < 0.5 else to, member.now_ms(self._harness.now_us)
            )
        except QuorumlogError:
            return
        self.transfers += 1
        self._harness.settle(member, EventKind.TRANSFER << 16)

    def _resign(self) -> None:
        """Stop a leader's node cleanly: it resigns, its messages are sent, then it ends."""
        member = self._target()
        if member is None or member.raft is None:
            return
        member.raft.resign(member.now_ms(self._harness.now_us))
        self._harness.settle(member, EventKind.RESIGN << 16)
        if self._random.random() < 0.5:
            self._harness.crash(member)
