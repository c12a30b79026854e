"""The consensus core: a pure state machine that takes messages, time and proposals and returns
`Ready` rounds. `raft.py` has the entry point, `ready.py` the order of the effects in a round."""

from .config import EPOCH_JUMP_MAX, EPOCH_MAX, RaftConfig
from .log_view import LOG_START, Entry, EntryKind, LogEnd, LogView, SnapshotId
from .messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    FollowRequest,
    FollowResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from .raft import Raft
from .ready import (
    Committed,
    Event,
    HardState,
    MessageDropped,
    Outgoing,
    ReadReady,
    Ready,
    RoleChanged,
    SendChunk,
    SendEntries,
    Token,
    VotersChanged,
)
from .replica import EncodeControl
from .roles import TRANSITIONS, RoleName, Trigger
from .status import MemberStatus, QuorumStatus
from .voters import Voter, VoterHistory, VoterSet

__all__ = [
    "EPOCH_JUMP_MAX",
    "EPOCH_MAX",
    "LOG_START",
    "TRANSITIONS",
    "AppendRejected",
    "AppendRequest",
    "AppendResponse",
    "Committed",
    "EncodeControl",
    "EndEpoch",
    "Entry",
    "EntryKind",
    "Event",
    "FollowRequest",
    "FollowResponse",
    "HardState",
    "Heartbeat",
    "HeartbeatResponse",
    "LogEnd",
    "LogView",
    "MemberStatus",
    "Message",
    "MessageDropped",
    "Outgoing",
    "QuorumStatus",
    "Raft",
    "RaftConfig",
    "ReadReady",
    "Ready",
    "RoleChanged",
    "RoleName",
    "SendChunk",
    "SendEntries",
    "SnapshotChunk",
    "SnapshotId",
    "SnapshotResponse",
    "TimeoutNow",
    "Token",
    "Trigger",
    "VoteRequest",
    "VoteResponse",
    "Voter",
    "VoterHistory",
    "VoterSet",
    "VotersChanged",
]
