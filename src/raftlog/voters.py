"""Voters, voter sets and the history of the sets in the log.

A voter is a node with its data directory. A voter set is the value of one log record. The history
has the set in force at every offset: a set is in force from the append of its record, committed or
not, until the record is truncated (thesis 4.1).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ..errors import DuplicateVoter, InvalidRequest, VoterNotFound
from ..ids import DirectoryId, NodeId, Offset


@dataclass(frozen=True, slots=True, order=True)
class Voter:
    """A node and its data directory. A node with a wiped disk is a different voter (KIP-853).

    It identifies observers as well: a voter is a member of the voter set.
    """

    node_id: NodeId
    directory_id: DirectoryId

    def __str__(self) -> str:
        return f"node {self.node_id} with directory {self.directory_id.hex()}"


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters and their addresses. Raise InvalidRequest if a node id occurs twice.

    It is empty on a node that has not received a voter set yet.
    """

    members: tuple[tuple[Voter, str], ...]  # (voter, "host:port"), ascending, unique node ids

    def __post_init__(self) -> None:
        ids = [voter.node_id for voter, _ in self.members]
        if any(left >= right for left, right in pairwise(ids)):
            raise InvalidRequest(f"voters: node ids {ids} are not ascending and unique")

    @classmethod
    def of(cls, members: Iterable[tuple[Voter, str]]) -> "VoterSet":
        """Return a set of (voter, address) pairs in any order."""
        return cls(tuple(sorted(members)))

    def __iter__(self) -> Iterator[Voter]:
        return (voter for voter, _ in self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, voter: object) -> bool:
        return any(member == voter for member, _ in self.members)

    @property
    def majority(self) -> int:
        """The number of voters that make a majority."""
        return len(self.members) // 2 + 1

    def address_of(self, voter: Voter) -> str | None:
        """Return the address of the voter, or None if it is not in the set."""
        return next((address for member, address in self.members if member == voter), None)

    def with_node_id(self, node_id: NodeId) -> Voter | None:
        """Return the voter with a node id, whatever its directory id."""
        return next((member for member, _ in self.members if member.node_id == node_id), None)

    def adding(self, voter: Voter, address: str) -> "VoterSet":
        """Return this set with a new voter. Raise DuplicateVoter if its node id is in the set."""
        if self.with_node_id(voter.node_id) is not None:
            raise DuplicateVoter(f"node {voter.node_id}: already a voter; remove it first")
        return VoterSet.of((*self.members, (voter, address)))

    def removing(self, voter: Voter) -> "VoterSet":
        """Return this set without a voter.

        Raise VoterNotFound if it is not in the set, InvalidRequest if it is the last one.
        """
        if voter not in self:
            raise VoterNotFound(f"node {voter.node_id}: not a voter with this directory id")
        if len(self) == 1:
            raise InvalidRequest(
                f"node {voter.node_id}: the last voter cannot be removed; add another one first"
            )
        return VoterSet(tuple(member for member in self.members if member[0] != voter))

    def moving(self, voter: Voter, address: str) -> "VoterSet":
        """Return this set with another address of a voter. Raise VoterNotFound if it is not in the
        set."""
        if voter not in self:
            raise VoterNotFound(f"node {voter.node_id}: not a voter with this directory id")
        others = (member for member in self.members if member[0] != voter)
        return VoterSet.of((*others, (voter, address)))


@dataclass(frozen=True, slots=True)
class VoterAddition:
    """Make an observer a voter."""

    voter: Voter
    address: str


@dataclass(frozen=True, slots=True)
class VoterRemoval:
    """Make a voter an observer."""

    voter: Voter


@dataclass(frozen=True, slots=True)
class VoterMove:
    """Change the address of a voter."""

    voter: Voter
    address: str


VoterChange: TypeAlias = VoterAddition | VoterRemoval | VoterMove


class VoterHistory:
    """The voter sets of a log by the offsets of their records."""

    __slots__ = ("_offsets", "_sets")

    def __init__(self, initial: VoterSet, *, start_offset: Offset) -> None:
        """Start with the set in force at the log's start: of the snapshot there, or as
        formatted."""
        self._offsets: list[int] = [start_offset - 1]  # of the records, ascending
        self._sets: list[VoterSet] = [initial]

    @property
    def latest(self) -> VoterSet:
        """The newest set in the log, which is in force."""
        return self._sets[-1]

    @property
    def latest_offset(self) -> Offset:
        """The offset of the latest set's record; below the log's start if a snapshot has it."""
        return Offset(self._offsets[-1])

    def append(self, offset: Offset, voters: VoterSet) -> None:
        """Add the set of the record at this offset. It is in force."""
        assert offset > self._offsets[-1], f"voters at {offset} after {self._offsets[-1]}"
        self._offsets.append(offset)
        self._sets.append(voters)

    def truncate_to(self, offset: Offset) -> bool:
        """Remove the sets at and above the offset. Return True if the latest set changed."""
        keep = max(1, bisect_left(self._offsets, offset))
        changed = keep < len(self._offsets)
        # sometimes if changed: an uncommitted voter change is truncated
        del self._offsets[keep:], self._sets[keep:]
        return changed

    def at(self, end_offset: Offset) -> VoterSet:
        """Return the set in force in the log [.., end_offset), which a snapshot that ends there
        stores."""
        return self._sets[max(1, bisect_left(self._offsets, end_offset)) - 1]

    def clean_to(self, offset: Offset) -> None:
        """Remove the sets that are not in force at or after the log's new start."""
        drop = max(1, bisect_left(self._offsets, offset)) - 1
        del self._offsets[:drop], self._sets[:drop]
