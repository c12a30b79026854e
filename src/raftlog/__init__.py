"""Consensus: one log that a majority of voters agrees on, and the node that keeps it in `shell`.

A pure core (`core`, the door is `Raft`) takes messages, time and proposals in and gives `Ready`
rounds out; the shell carries them out over a data directory and a network. `formats` are the bytes
of both. Knows nothing of topics or brokers: the metadata is one state machine that hangs on its
log.
"""

from .core import (
    Entry,
    EntryKind,
    HardState,
    LogEnd,
    LogView,
    MemberStatus,
    Message,
    QuorumStatus,
    Raft,
    RaftConfig,
    Ready,
    RoleName,
    SnapshotId,
    Voter,
    VoterHistory,
    VoterSet,
)
from .formats.names import METADATA_LOG_NAME
from .formats.quorum_state import QUORUM_STATE_NAME

__all__ = [
    "METADATA_LOG_NAME",
    "QUORUM_STATE_NAME",
    "Entry",
    "EntryKind",
    "HardState",
    "LogEnd",
    "LogView",
    "MemberStatus",
    "Message",
    "QuorumStatus",
    "Raft",
    "RaftConfig",
    "Ready",
    "RoleName",
    "SnapshotId",
    "Voter",
    "VoterHistory",
    "VoterSet",
]
