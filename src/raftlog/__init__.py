"""Consensus: one log that a majority of voters agrees on, and its driver in `shell`.

A pure core (`Raft`) takes messages, time and proposals in and gives `Ready` rounds out; the shell
carries them out over a data directory. Knows nothing of topics or brokers: the metadata is one
state machine that hangs on its log.
"""

from .config import METADATA_LOG_NAME, QUORUM_STATE_NAME, RaftConfig, Voter
from .log_view import Entry, EntryKind, LogView
from .messages import LogEnd, Message, VoteRequest, VoteResponse
from .raft import Raft
from .ready import Committed, Event, HardState, MessageDropped, Ready, RoleChanged, Token
from .roles import TRANSITIONS, RoleName, Trigger

__all__ = [
    "METADATA_LOG_NAME",
    "QUORUM_STATE_NAME",
    "TRANSITIONS",
    "Committed",
    "Entry",
    "EntryKind",
    "Event",
    "HardState",
    "LogEnd",
    "LogView",
    "Message",
    "MessageDropped",
    "Raft",
    "RaftConfig",
    "Ready",
    "RoleChanged",
    "RoleName",
    "Token",
    "Trigger",
    "VoteRequest",
    "VoteResponse",
    "Voter",
]
