"""The roles of a Raft node, the triggers that change them, and every legal transition.

`next_role` rejects every transition that the table does not list. Each role's behavior and state
are a class in `candidate.py`, `follower.py` or `leader.py`. The epoch belongs to the node, not to a
role, and only grows.
"""

from enum import StrEnum
from typing import Final


class RoleName(StrEnum):
    """The roles of Raft and KIP-595."""

    UNATTACHED = "unattached"  # has an epoch, may have voted in it, has no leader
    FOLLOWER = "follower"  # has the leader of its epoch
    PRE_CANDIDATE = "pre_candidate"  # collects pre-votes; changes nothing durable
    CANDIDATE = "candidate"  # has opened a new epoch and voted for itself
    LEADER = "leader"  # has won the election of its epoch


class Trigger(StrEnum):
    """The causes of role changes."""

    NEWER_EPOCH = "newer_epoch"  # received a message of a later epoch
    LEADER_HEARD = "leader_heard"  # received a message from the leader of this epoch
    LEADER_ENDED = "leader_ended"  # the leader announced its resignation
    LEADER_LOST = "leader_lost"  # an observer's leader is silent
    VOTED = "voted"  # granted its vote to another candidate
    ELECTION_TIMEOUT = "election_timeout"  # the election timer expired
    CAMPAIGN_NOW = "campaign_now"  # the leader asked for an immediate campaign
    PRE_VOTES_WON = "pre_votes_won"  # a majority granted pre-votes
    PRE_VOTES_LOST = "pre_votes_lost"  # a majority refused pre-votes
    VOTES_WON = "votes_won"  # a majority granted votes
    # the leader received no responses from a majority within the quorum timeout
    QUORUM_LOST = "quorum_lost"
    RESIGNED = "resigned"  # the leader resigned
    REMOVED = "removed"  # the leader's removal from the voter set is committed


_U, _F, _P, _C, _L = RoleName
TRANSITIONS: Final[dict[tuple[RoleName, Trigger], RoleName]] = {
    (_U, Trigger.NEWER_EPOCH): _U,
    (_U, Trigger.LEADER_HEARD): _F,
    (_U, Trigger.ELECTION_TIMEOUT): _P,
    (_F, Trigger.NEWER_EPOCH): _U,
    (_F, Trigger.LEADER_ENDED): _U,
    (_F, Trigger.LEADER_LOST): _U,
    (_F, Trigger.ELECTION_TIMEOUT): _P,
    (_F, Trigger.CAMPAIGN_NOW): _C,
    (_P, Trigger.NEWER_EPOCH): _U,
    (_P, Trigger.LEADER_HEARD): _F,
    (_P, Trigger.VOTED): _U,
    (_P, Trigger.ELECTION_TIMEOUT): _P,
    (_P, Trigger.PRE_VOTES_WON): _C,
    (_P, Trigger.PRE_VOTES_LOST): _U,
    (_C, Trigger.NEWER_EPOCH): _U,
    (_C, Trigger.LEADER_HEARD): _F,
    (_C, Trigger.ELECTION_TIMEOUT): _P,
    (_C, Trigger.VOTES_WON): _L,
    (_L, Trigger.NEWER_EPOCH): _U,
    (_L, Trigger.QUORUM_LOST): _U,
    (_L, Trigger.RESIGNED): _U,
    (_L, Trigger.REMOVED): _U,
}


def next_role(role: RoleName, trigger: Trigger) -> RoleName:
    """Return the role after the trigger. A transition outside the table is a bug."""
    after = TRANSITIONS.get((role, trigger))
    assert after is not None, f"no transition from {role} on {trigger}"
    return after
