"""Who votes: a voter is a node together with its disk, a voter set is what one record of the log
says, and the history says which set is in force at every offset.

A set is in force from the moment its record is in the log, committed or not, and no longer once
that record is truncated (thesis 4.1). So a node asks the history, never a field that somebody has
to remember to set back.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ...errors import DuplicateVoter, InvalidRequest, VoterNotFound
from ...ids import DirectoryId, NodeId, Offset


@dataclass(frozen=True, slots=True, order=True)
class Voter:
    """A node together with its disk, so that a wiped disk is somebody else (KIP-853).

    Names observers as well: what makes a voter is being in the voter set.
    """

    node_id: NodeId
    directory_id: DirectoryId

    def __str__(self) -> str:
        return f"node {self.node_id} with directory {self.directory_id.hex()}"


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters and where each is reached; raises InvalidRequest when it contradicts itself.

    Empty on a node that has not learned yet who votes.
    """

    members: tuple[tuple[Voter, str], ...]  # (voter, "host:port"), ascending; a node id once

    def __post_init__(self) -> None:
        ids = [voter.node_id for voter, _ in self.members]
        if any(left >= right for left, right in pairwise(ids)):
            raise InvalidRequest(f"the voters' node ids {ids} must be ascending, each once")

    @classmethod
    def of(cls, members: Iterable[tuple[Voter, str]]) -> "VoterSet":
        """Make a set of (voter, address) in any order."""
        return cls(tuple(sorted(members)))

    def __iter__(self) -> Iterator[Voter]:
        return (voter for voter, _ in self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, voter: object) -> bool:
        return any(member == voter for member, _ in self.members)

    @property
    def majority(self) -> int:
        """How many voters make a quorum."""
        return len(self.members) // 2 + 1

    def address_of(self, voter: Voter) -> str | None:
        """Where the voter is reached, None when it is none."""
        return next((address for member, address in self.members if member == voter), None)

    def with_node_id(self, node_id: NodeId) -> Voter | None:
        """The voter of a node id, whatever its disk."""
        return next((member for member, _ in self.members if member.node_id == node_id), None)

    def adding(self, voter: Voter, address: str) -> "VoterSet":
        """This set and one more; raises DuplicateVoter when its node id votes already."""
        if self.with_node_id(voter.node_id) is not None:
            raise DuplicateVoter(f"node {voter.node_id} is a voter already: remove it first")
        return VoterSet.of((*self.members, (voter, address)))

    def removing(self, voter: Voter) -> "VoterSet":
        """This set without one; raises VoterNotFound when it does not vote, InvalidRequest for the
        last."""
        if voter not in self:
            raise VoterNotFound(f"node {voter.node_id} with this directory id is no voter")
        if len(self) == 1:
            raise InvalidRequest("the last voter cannot be removed: add another one first")
        return VoterSet(tuple(member for member in self.members if member[0] != voter))

    def moving(self, voter: Voter, address: str) -> "VoterSet":
        """This set with one voter reached elsewhere; raises VoterNotFound when it does not vote."""
        if voter not in self:
            raise VoterNotFound(f"node {voter.node_id} with this directory id is no voter")
        others = (member for member in self.members if member[0] != voter)
        return VoterSet.of((*others, (voter, address)))


class VoterHistory:
    """The voter sets of a log, by the offset of the record that brought each into force."""

    __slots__ = ("_offsets", "_sets")

    def __init__(self, initial: VoterSet, *, start_offset: Offset) -> None:
        """`initial` is in force at the log's start: from the snapshot there, or as formatted."""
        self._offsets: list[int] = [start_offset - 1]  # of the record, ascending
        self._sets: list[VoterSet] = [initial]

    @property
    def latest(self) -> VoterSet:
        """The set in force: the newest one in the log."""
        return self._sets[-1]

    @property
    def latest_offset(self) -> Offset:
        """Offset of the record of the latest set; below the log's start when it is older."""
        return Offset(self._offsets[-1])

    def append(self, offset: Offset, voters: VoterSet) -> None:
        """The record at this offset brings the set into force."""
        assert offset > self._offsets[-1], f"voters at {offset} after {self._offsets[-1]}"
        self._offsets.append(offset)
        self._sets.append(voters)

    def truncate_to(self, offset: Offset) -> bool:
        """Forget the sets at and above the offset; whether the latest one changed."""
        keep = max(1, bisect_left(self._offsets, offset))
        changed = keep < len(self._offsets)
        del self._offsets[keep:], self._sets[keep:]
        return changed

    def at(self, end_offset: Offset) -> VoterSet:
        """The set in force in the log [.., end_offset): what a snapshot that ends there says."""
        return self._sets[max(1, bisect_left(self._offsets, end_offset)) - 1]

    def clean_to(self, offset: Offset) -> None:
        """The log starts at the offset now: keep what is in force from there on."""
        drop = max(1, bisect_left(self._offsets, offset)) - 1
        del self._offsets[:drop], self._sets[:drop]
