"""The global state of the quorum: leaders, committed entries, votes and disks.

An entry counts as committed when a leader's high watermark first passes it. The harness and the
invariants maintain the state, at O(1) per event.
"""

from bisect import bisect_right

from quorumlog.raftlog.log_view import Entry
from quorumlog.raftlog.voters import Voter, VoterSet

from .disks import MemberDisk, RunningLog
from .member import CoreMember


class Oracle:
    """The global state that invariants compare with."""

    def __init__(
        self, members: list[CoreMember], formatted: VoterSet, *, release_us: int, late_us: int
    ) -> None:
        self.members = members
        self.release_us = release_us  # after a write or a decision, until its messages are sent
        self.late_us = late_us  # of timers
        self.now_us = 0  # virtual time
        self.committed = RunningLog()  # never truncated or cleaned
        self.committed_voters: list[tuple[int, VoterSet]] = [(0, formatted)]  # (end of record, set)
        self.leaders: dict[int, Voter] = {}  # epoch -> its leader
        self.newest_leader_epoch = 0
        self.votes: dict[tuple[Voter, int], Voter] = {}  # (voter, epoch) -> candidate, as sent
        # Every disk of the run; wiped ones in their last state.
        self.disks: dict[Voter, MemberDisk] = {member.me: member.disk for member in members}

    def commit(self, entry: Entry) -> None:
        """Append an entry that was committed for the first time."""
        self.committed.append(entry)
        if entry.voters is not None:
            self.committed_voters.append((self.committed.end, entry.voters))

    def voters_at(self, end: int) -> VoterSet:
        """Return the committed voter set in force in the log [0, end)."""
        index = bisect_right(self.committed_voters, end, key=lambda each: each[0])
        return self.committed_voters[index - 1][1]

    def member_of(self, voter: Voter) -> CoreMember | None:
        """Return the machine with this disk; None if the disk is gone."""
        index = voter.node_id - 1
        if not 0 <= index < len(self.members):
            return None  # unknown node id
        member = self.members[index]
        return member if member.me == voter else None

    def known_voter_sets(self) -> list[VoterSet]:
        """Return every voter set in force in some log, in memory or on disk."""
        sets: list[VoterSet] = []
        for member in self.members:
            if member.raft is not None:
                sets.append(member.state.voters.latest)
            sets.append(member.disk.history().latest)
        return [each for index, each in enumerate(sets) if len(each) and each not in sets[:index]]

    def is_gone(self, voter: Voter) -> bool:
        """Return True if its disk was wiped."""
        disk = self.disks.get(voter)
        return disk is None or disk.is_wiped
