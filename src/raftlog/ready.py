"""The one door out of the core: what to persist, send, log and apply, and in which order."""

from dataclasses import dataclass
from typing import NewType, TypeAlias

from ..ids import Epoch, NodeId, Offset
from .config import Voter
from .log_view import Entry
from .messages import Message

Token = NewType("Token", int)
"""Names one write; counts up by one."""


@dataclass(frozen=True, slots=True)
class HardState:
    """What must never be forgotten: the epoch, and who got this node's vote in it."""

    epoch: Epoch
    vote: Voter | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanged:
    """The node took another role."""

    role: str
    epoch: Epoch
    leader_id: NodeId | None
    log_end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDropped:
    """A message was not for this node or not of its quorum; says why."""

    sender: Voter
    reason: str


Event: TypeAlias = RoleChanged | MessageDropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Newly committed batches [start, end), both batch boundaries."""

    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One round of effects. The caller carries them out in the order of the fields.

    At most one round with a token is out at a time: until persisted(token) the following rounds
    carry no persistence and no `messages_after`, and what is proposed meanwhile is gathered into
    the next write (group commit).
    """

    # Set when any of the next three is: call persisted(token) once all of them are durable.
    token: Token | None
    hard_state: HardState | None  # 1. made durable before anything below is written
    truncate_to: Offset | None  # 2. before `append`; everything from it on is dropped
    append: tuple[Entry, ...]  # 3. in order, contiguous, then one fsync
    messages_now: tuple[Message, ...]  # sent at once, they depend on nothing above
    messages_after: tuple[Message, ...]  # sent only after persisted(token)
    events: tuple[Event, ...]  # logged, in order
    committed: Committed | None  # applied in order, then applied(end); already durable by quorum
