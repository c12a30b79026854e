"""The list of invariants."""

from typing import Any, Final

from .commits import CommittedOnQuorum, DurableAnswer, OneHistory, OneState, OwnEpochCommit
from .contact import Answered, CheckQuorum, StableLeader
from .elections import (
    DurableVote,
    ElectedByQuorum,
    ElectionSafety,
    LeaderCompleteness,
    NoResumedLeadership,
    OneVote,
    PreVoteChangesNothing,
    UpToDateVote,
)
from .logs import CommittedImmutable, LeaderAppendOnly, LogMatching, Monotonic, Ordered, SameView
from .membership import Identity, OneChange, OnlyVotersCampaign, VotersFollowCommit
from .messages import HonestEpoch, OneSender, ReadAfterQuorum
from .snapshots import (
    HonestChunk,
    InstallKeepsCommitted,
    NewestSnapshot,
    SameSnapshot,
    StartInSnapshot,
)

# In the order of the checks: the most specific explanation first.
INVARIANTS: Final[tuple[type[Any], ...]] = (
    ElectionSafety,
    ElectedByQuorum,
    NoResumedLeadership,
    LeaderCompleteness,
    OneVote,
    DurableVote,
    UpToDateVote,
    PreVoteChangesNothing,
    StableLeader,
    LeaderAppendOnly,
    LogMatching,
    CommittedImmutable,
    Ordered,
    Monotonic,
    SameView,
    OwnEpochCommit,
    CommittedOnQuorum,
    OneHistory,
    OneState,
    DurableAnswer,
    OneChange,
    VotersFollowCommit,
    OnlyVotersCampaign,
    Identity,
    SameSnapshot,
    StartInSnapshot,
    InstallKeepsCommitted,
    HonestChunk,
    NewestSnapshot,
    HonestEpoch,
    OneSender,
    ReadAfterQuorum,
    Answered,
    CheckQuorum,
)
