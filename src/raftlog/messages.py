"""What voters say to each other: frozen values, one class a message.

The transport translates them; the core neither knows nor cares how. `epoch` is always the sender's
and is looked at first: a newer one is adopted, an older one answered with the receiver's.
"""

from dataclasses import dataclass
from typing import TypeAlias

from ..ids import Epoch, Offset
from .config import Voter


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """How far a log reaches, ordered as the up-to-date rule orders logs (Raft §5.4.1)."""

    epoch: Epoch  # of the last batch
    offset: Offset  # log end offset


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks for a vote; with `pre_vote` it only asks whether it would get one
    (thesis 9.6, KIP-996)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch  # a pre-vote carries the sender's present epoch, not the one it would open
    log_end: LogEnd
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """The answer; sent only after the vote is durable."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    granted: bool
    pre_vote: bool


Message: TypeAlias = VoteRequest | VoteResponse
