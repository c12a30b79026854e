"""Runs one member of the quorum over a data directory and a network; no decision of the protocol
is made here."""

from .disk.formatting import format_directory
from .gathering import Proposal
from .node import RaftNode
from .node_config import RaftNodeConfig
from .peers.links import TransportConfig
from .peers.transport import TransportStatistics
from .proposals import ProposalService
from .state_machine import StateMachine

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
