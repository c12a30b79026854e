"""Runs one member of the quorum over a data directory and a network; no decision of the protocol
is made here."""

from .formatting import format_directory
from .gathering import Proposal
from .links import TransportConfig
from .node import RaftNode
from .node_config import RaftNodeConfig
from .proposals import ProposalService
from .state_machine import StateMachine
from .transport import TransportStatistics

__all__ = [
    "Proposal",
    "ProposalService",
    "RaftNode",
    "RaftNodeConfig",
    "StateMachine",
    "TransportConfig",
    "TransportStatistics",
    "format_directory",
]
