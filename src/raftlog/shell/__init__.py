"""The shell of one Raft node: it runs the core on a data directory and a network.

It makes no protocol decision.
"""

from .directory_format import format_directory
from .driver import RaftNodeConfig
from .link import TransportConfig
from .node import RaftNode
from .proposal_queue import Proposal
from .propose_service import ProposalService
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
