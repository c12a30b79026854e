"""One partition, pure: leadership, high watermark, in-sync replicas and produce waits.

`partition.py` is the entry. `leading.py` holds the leader's view of the replicas, `following.py` a
follower's handling of an answer, `waits.py` the waiting produce requests, `states.py` the shared
types. No files, clocks or tasks.
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
    Progress,
    ReplicaStatus,
    Reset,
    Skip,
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
    "Skip",
    "Partition",
    "Progress",
    "ReplicaStatus",
    "Reset",
    "Truncate",
    "Wait",
    "divergence",
]
