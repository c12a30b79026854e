"""The roles of a voter, each with the state that is valid in it alone, and every legal transition.

The table is the whole truth about role changes: `next_role` refuses what it does not list. The
epoch is not here: it belongs to the node and only grows.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from ..ids import NodeId, Offset
from .config import Voter


class RoleName(StrEnum):
    """The roles, in the field's words."""

    UNATTACHED = "unattached"  # knows an epoch, has perhaps voted in it, knows no leader
    FOLLOWER = "follower"  # knows the leader of its epoch
    PRE_CANDIDATE = "pre_candidate"  # asks whether it would be elected; changes nothing durable
    CANDIDATE = "candidate"  # has opened a new epoch with a vote for itself
    LEADER = "leader"  # was elected in this epoch


class Trigger(StrEnum):
    """What may change a role."""

    NEWER_EPOCH = "newer_epoch"  # a message of a later epoch
    LEADER_HEARD = "leader_heard"  # a message of this epoch's leader
    ELECTION_TIMEOUT = "election_timeout"  # the election timer ran out
    PRE_VOTES_WON = "pre_votes_won"  # a majority would vote for this node
    PRE_VOTES_LOST = "pre_votes_lost"  # a majority would not
    VOTES_WON = "votes_won"  # a majority voted for this node
    RESIGNED = "resigned"  # the leader gives up its leadership


_U, _F, _P, _C, _L = RoleName
TRANSITIONS: Final[dict[tuple[RoleName, Trigger], RoleName]] = {
    (_U, Trigger.NEWER_EPOCH): _U,
    (_U, Trigger.LEADER_HEARD): _F,
    (_U, Trigger.ELECTION_TIMEOUT): _P,
    (_F, Trigger.NEWER_EPOCH): _U,
    (_F, Trigger.ELECTION_TIMEOUT): _P,
    (_P, Trigger.NEWER_EPOCH): _U,
    (_P, Trigger.LEADER_HEARD): _F,
    (_P, Trigger.ELECTION_TIMEOUT): _P,
    (_P, Trigger.PRE_VOTES_WON): _C,
    (_P, Trigger.PRE_VOTES_LOST): _U,
    (_C, Trigger.NEWER_EPOCH): _U,
    (_C, Trigger.LEADER_HEARD): _F,
    (_C, Trigger.ELECTION_TIMEOUT): _P,
    (_C, Trigger.VOTES_WON): _L,
    (_L, Trigger.NEWER_EPOCH): _U,
    (_L, Trigger.RESIGNED): _U,
}


def next_role(role: RoleName, trigger: Trigger) -> RoleName:
    """Return the role after the trigger; a transition that is not in the table is a bug."""
    after = TRANSITIONS.get((role, trigger))
    assert after is not None, f"no transition from {role} on {trigger}"
    return after


@dataclass(slots=True, kw_only=True)
class Unattached:
    """Waits for a leader or for its own election timer."""

    deadline_ms: int  # then it campaigns


@dataclass(slots=True, kw_only=True)
class Follower:
    """Follows the leader of its epoch."""

    leader: Voter
    deadline_ms: int  # moved on by every message of the leader


@dataclass(slots=True, kw_only=True)
class PreCandidate:
    """Collects promises of votes."""

    deadline_ms: int
    granted: set[Voter] = field(default_factory=set)  # itself included
    refused: set[Voter] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Collects votes in the epoch it opened."""

    deadline_ms: int
    # Its own vote enters only once it is durable: a vote that a crash can take back counts for
    # nobody, its own caster included.
    granted: set[Voter] = field(default_factory=set)
    refused: set[Voter] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Leader:
    """Leads its epoch."""

    epoch_start_offset: Offset  # base offset of the no-op that opened the epoch
    # Durable end offset of each voter's log as this leader knows it; its own moves with its fsync.
    match_end: dict[Voter, Offset]
    # (next offset, size) of every uncommitted batch of this epoch, in order.
    uncommitted: deque[tuple[Offset, int]] = field(default_factory=deque)
    uncommitted_bytes: int = 0  # always the sum of the sizes above


Role: TypeAlias = Unattached | Follower | PreCandidate | Candidate | Leader


def role_name(role: Role) -> RoleName:
    """The name of a role's state."""
    match role:
        case Unattached():
            return RoleName.UNATTACHED
        case Follower():
            return RoleName.FOLLOWER
        case PreCandidate():
            return RoleName.PRE_CANDIDATE
        case Candidate():
            return RoleName.CANDIDATE
        case Leader():
            return RoleName.LEADER


def leader_of(role: Role, *, me: Voter) -> NodeId | None:
    """The leader that a role knows of."""
    match role:
        case Follower(leader=leader):
            return leader.node_id
        case Leader():
            return me.node_id
        case Unattached() | PreCandidate() | Candidate():
            return None
