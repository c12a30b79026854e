"""One partition, pure: who leads, what is committed, who is in sync, and who waits for what.

`partition.py` is the door. `leading.py` holds what a leader knows, `following.py` what a follower
does with an answer, `waits.py` the produce requests that wait, `states.py` the words of all of it.
Numbers in, numbers out: no file, no clock, no task.
"""

from .following import divergence
from .partition import Partition
from .states import (
    NO_PROGRESS,
    Acks,
    Append,
    BrokerFacts,
    FollowAnswer,
    FollowerFetch,
    FollowerState,
    FollowStep,
    IsrProposal,
    LeaderState,
    Nothing,
    Progress,
    ReplicaStanding,
    Reset,
    Truncate,
)
from .waits import Wait

__all__ = [
    "NO_PROGRESS",
    "Acks",
    "Append",
    "BrokerFacts",
    "FollowAnswer",
    "FollowStep",
    "FollowerFetch",
    "FollowerState",
    "IsrProposal",
    "LeaderState",
    "Nothing",
    "Partition",
    "Progress",
    "ReplicaStanding",
    "Reset",
    "Truncate",
    "Wait",
    "divergence",
]
