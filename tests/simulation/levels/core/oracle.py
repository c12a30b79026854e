"""What is known of the quorum from outside: who led when, what was committed, who holds what.

The committed log is learned when a leader's high watermark first passes an entry; it never changes
afterwards. Everything here is filled in by the harness and the invariants, and is O(1) an event.
"""

from bisect import bisect_right

from quorumlog.raftlog.log_view import Entry
from quorumlog.raftlog.voters import Voter, VoterSet

from .disks import MemberDisk, RunningLog
from .member import Member


class Oracle:
    """The whole truth."""

    def __init__(self, members: list[Member], formatted: VoterSet) -> None:
        self.members = members
        self.now_us = 0  # virtual time
        self.committed = RunningLog()  # nothing is ever cleaned from it
        self.committed_voters: list[tuple[int, VoterSet]] = [(0, formatted)]  # (end of record, set)
        self.leaders: dict[int, Voter] = {}  # epoch -> who led it
        self.newest_leader_epoch = 0
        self.votes: dict[tuple[Voter, int], Voter] = {}  # (voter, epoch) -> candidate, as told
        # Every disk there ever was, wiped ones as they were at that moment.
        self.disks: dict[Voter, MemberDisk] = {member.me: member.disk for member in members}

    def commit(self, entry: Entry) -> None:
        """An entry was committed for the first time."""
        self.committed.append(entry)
        if entry.voters is not None:
            self.committed_voters.append((self.committed.end, entry.voters))

    def voters_at(self, end: int) -> VoterSet:
        """The committed voter set in force in the log [0, end)."""
        index = bisect_right(self.committed_voters, end, key=lambda each: each[0])
        return self.committed_voters[index - 1][1]

    def member_of(self, voter: Voter) -> Member | None:
        """The machine with this disk; None when the disk is gone."""
        index = voter.node_id - 1
        if not 0 <= index < len(self.members):
            return None  # a stranger
        member = self.members[index]
        return member if member.me == voter else None

    def known_voter_sets(self) -> list[VoterSet]:
        """Every set that is in force in some log, in memory or on a disk."""
        sets: list[VoterSet] = []
        for member in self.members:
            if member.raft is not None:
                sets.append(member.raft.voters.latest)
            sets.append(member.disk.history().latest)
        return [each for index, each in enumerate(sets) if len(each) and each not in sets[:index]]

    def is_gone(self, voter: Voter) -> bool:
        """Whether its disk was wiped."""
        disk = self.disks.get(voter)
        return disk is None or disk.is_wiped
