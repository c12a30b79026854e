"""The metadata quorum: a Raft log, and the node in `shell` that stores and replicates it.

A pure core (entry point `Raft` in `raft`) takes messages, time and proposals and returns `Ready`
rounds. The shell performs them on a data directory and a network. `codec`, `frames`,
`control_records`, `snapshot` and `hard_state` have the byte formats. The package is independent
of topics and brokers: the metadata is one state machine on its log.
"""

from .config import METADATA_LOG_NAME, RaftConfig
from .hard_state import QUORUM_STATE_NAME, HardState
from .log_view import Entry, EntryKind, LogEnd, LogView, SnapshotId
from .messages import Message
from .raft import Raft
from .ready import Ready
from .roles import RoleName
from .state import RaftState
from .status import MemberStatus, QuorumStatus
from .voters import Voter, VoterHistory, VoterSet

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
    "RaftState",
    "Ready",
    "RoleName",
    "SnapshotId",
    "Voter",
    "VoterHistory",
    "VoterSet",
]
