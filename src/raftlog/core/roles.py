"""The roles of a member, what may change them, and every legal transition.

The table is the whole truth about role changes: `next_role` refuses what it does not list. Each
role's behaviour and the state that is valid in it alone are a class: `electing.py`, `following.py`,
`leading.py`. The epoch belongs to the node, not to a role, and only grows.
"""

from enum import StrEnum
from typing import Final


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
    LEADER_ENDED = "leader_ended"  # the leader said that it gave up its leadership
    LEADER_LOST = "leader_lost"  # an observer's leader is silent
    VOTED = "voted"  # gave its vote to another candidate
    ELECTION_TIMEOUT = "election_timeout"  # the election timer ran out
    CAMPAIGN_NOW = "campaign_now"  # the leader asked for a campaign at once
    PRE_VOTES_WON = "pre_votes_won"  # a majority would vote for this node
    PRE_VOTES_LOST = "pre_votes_lost"  # a majority would not
    VOTES_WON = "votes_won"  # a majority voted for this node
    QUORUM_LOST = "quorum_lost"  # the leader has not heard of a majority for too long
    RESIGNED = "resigned"  # the leader gives up its leadership
    REMOVED = "removed"  # the leader is no voter any more, and that is committed


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
    """Return the role after the trigger; a transition that is not in the table is a bug."""
    after = TRANSITIONS.get((role, trigger))
    assert after is not None, f"no transition from {role} on {trigger}"
    return after
