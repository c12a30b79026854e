"""The shell of one Raft node: it runs the core on a data directory and a network.

It makes no protocol decision.
"""

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
