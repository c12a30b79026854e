"""The one door out of the core: what to persist, send, log and apply, and in which order."""

from dataclasses import dataclass
from typing import NewType, TypeAlias

from ...ids import Epoch, NodeId, Offset
from .log_view import Entry, LogEnd, SnapshotId
from .messages import Message, SnapshotChunk
from .voters import Voter, VoterSet

Token = NewType("Token", int)
"""Names one write; counts up by one."""


@dataclass(frozen=True, slots=True)
class HardState:
    """What must never be forgotten: the epoch, and who got this node's vote in it."""

    epoch: Epoch
    vote: Voter | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEntries:
    """Send an AppendRequest with the entries [start, end) of the own log, both batch boundaries.

    The bytes are the shell's to read. It drops the request when this node does not lead `epoch`
    any more by the time it has them.
    """

    receiver: Voter
    epoch: Epoch
    prev: LogEnd  # prev.offset is `start`
    end: Offset
    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SendChunk:
    """Send a SnapshotChunk from the own file of the snapshot; dropped as above. When the snapshot
    is gone meanwhile nothing is sent: the core comes back to it."""

    receiver: Voter
    epoch: Epoch
    snapshot: SnapshotId
    voters: VoterSet
    position: int
    bytes_max: int


Outgoing: TypeAlias = Message | SendEntries | SendChunk


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanged:
    """The node took another role, or another epoch in it."""

    role: str
    epoch: Epoch
    leader_id: NodeId | None
    log_end_offset: Offset
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersChanged:
    """Another voter set is in force: its record was appended or truncated."""

    voters: VoterSet
    offset: Offset  # of the record in force, below the log's start when it is older


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDropped:
    """A message was not for this node or made no sense; says why."""

    sender: Voter
    reason: str


Event: TypeAlias = RoleChanged | VotersChanged | MessageDropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Newly committed batches [start, end), both batch boundaries."""

    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class ReadReady:
    """A read may be answered from the state once [0, offset) is applied."""

    context: int  # as given to read_index()
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One round of effects. The caller carries them out in the order of the fields.

    At most one round with a token is out at a time: until persisted(token) the following rounds
    carry nothing of 1 to 5 and no `messages_after`, and what comes meanwhile is gathered into the
    next write (group commit).
    """

    # Set when any of 1 to 5 or `messages_after` is: call persisted(token) once all is durable.
    token: Token | None
    hard_state: HardState | None  # 1. made durable before anything below is written
    # 2. Pieces of a snapshot, written to its unfinished file; position 0 begins that anew.
    chunks: tuple[SnapshotChunk, ...]
    # 3. The unfinished file is whole: prove it, make it durable under its name, replace the log by
    # an empty one that starts where the snapshot ends, load the state from it, then persisted().
    # When it proves bad: delete it, leave all else as it is, and call snapshot_refused(token).
    install: SnapshotId | None
    truncate_to: Offset | None  # 4. before `append`; everything from it on is dropped
    append: tuple[Entry, ...]  # 5. in order, contiguous, then one fsync
    messages_now: tuple[Outgoing, ...]  # sent at once, they depend on nothing above
    messages_after: tuple[Message, ...]  # sent only after persisted(token)
    events: tuple[Event, ...]  # logged, in order
    committed: Committed | None  # applied in order, then applied(end); already durable by quorum
    reads: tuple[ReadReady, ...]  # answered once applied that far
    reads_lost: tuple[int, ...]  # contexts whose leadership ended: answered with NotController
    # Files below may go: the log starts here now, at the oldest snapshot kept. After all above.
    clean_to: SnapshotId | None
