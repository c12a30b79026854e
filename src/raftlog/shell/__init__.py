"""Drives the consensus core over a data directory; no decision of the protocol is made here."""

from .delivery import CommitListener, Proposal
from .node import RaftNode

__all__ = ["CommitListener", "Proposal", "RaftNode"]
