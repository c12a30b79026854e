"""The output of the core: effects to persist, send, log and apply, in order."""

from dataclasses import dataclass
from typing import NewType, TypeAlias

from ..ids import Epoch, NodeId, Offset
from .hard_state import HardState
from .log_view import Entry, LogEnd, SnapshotId
from .messages import Message, SnapshotChunk
from .voters import Voter, VoterSet

Token = NewType("Token", int)
"""The id of one write; consecutive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEntries:
    """Send an AppendRequest with the entries [start, end) of this node's log, both batch
    boundaries.

    The shell reads the bytes. It drops the request if this node no longer leads `epoch` after the
    read.
    """

    receiver: Voter
    epoch: Epoch
    prev: LogEnd  # prev.offset is `start`
    end: Offset
    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SendChunk:
    """Send a SnapshotChunk from this node's snapshot file, with the same rule for `epoch`.

    If the snapshot was deleted nothing is sent: the core retries with a newer one.
    """

    receiver: Voter
    epoch: Epoch
    snapshot: SnapshotId
    voters: VoterSet
    position: int
    bytes_max: int


Outgoing: TypeAlias = Message | SendEntries | SendChunk


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanged:
    """A change of this node's role or epoch."""

    role: str
    epoch: Epoch
    leader_id: NodeId | None
    log_end_offset: Offset
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersChanged:
    """A change of the voter set in force: its record was appended or truncated."""

    voters: VoterSet
    offset: Offset  # of the record in force; below the log's start if a snapshot has it


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDropped:
    """A message that was invalid or not for this node, with the reason."""

    sender: Voter
    reason: str


Event: TypeAlias = RoleChanged | VotersChanged | MessageDropped


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRange:
    """The newly committed batches [start, end), both batch boundaries."""

    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class ReadReady:
    """A read that may be served from the state once [0, offset) is applied."""

    context: int  # as given to read_index()
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One round of effects. The caller performs them in the order of the fields.

    At most one round with a token is outstanding: until persisted(token) the following rounds have
    no effects 1 to 5 and no `messages_after`. Later changes are combined into the next write (group
    commit).
    """

    # Set if any of 1 to 5 or `messages_after` is: call persisted(token) after all is durable.
    token: Token | None
    hard_state: HardState | None  # 1. made durable before the following writes
    # 2. Chunks of a snapshot, written to its unfinished file; position 0 starts a new file.
    chunks: tuple[SnapshotChunk, ...]
    # 3. The unfinished file is complete: verify it, make it durable under its name, replace the log
    # by an empty one that starts at the snapshot's end, load the state from it, then call
    # persisted(). If it is corrupt: delete it, change nothing else, and call persisted() with
    # is_snapshot_damaged.
    install: SnapshotId | None
    truncate_to: Offset | None  # 4. before `append`; everything from it on is removed
    append: tuple[Entry, ...]  # 5. in order, contiguous, then one fsync
    messages_now: tuple[Outgoing, ...]  # sent at once; independent of the effects above
    messages_after: tuple[Message, ...]  # sent only after persisted(token)
    events: tuple[Event, ...]  # logged, in order
    # applied in order, then applied(end); already durable on a majority
    committed: CommittedRange | None
    reads: tuple[ReadReady, ...]  # served after the apply reaches the offset
    # contexts of reads whose leadership ended; failed with NotController
    reads_lost: tuple[int, ...]
    # Segments below may be deleted, after all above: the log now starts at the end of the oldest
    # retained snapshot.
    clean_to: SnapshotId | None
