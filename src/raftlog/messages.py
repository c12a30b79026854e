"""The messages between Raft nodes: frozen values, one class per message.

The transport encodes them. `epoch` is always the sender's and is checked first: a newer epoch is
adopted, an older one is answered with the receiver's. A message is addressed to one node with one
data directory; any other receiver drops it.
"""

from dataclasses import dataclass
from typing import TypeAlias

from ..ids import Epoch, Offset
from .config import EPOCH_JUMP_MAX, EPOCH_MAX
from .log_view import Entry, LogEnd, SnapshotId
from .voters import Voter, VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate's request for a vote, or for a pre-vote that changes no state (thesis 9.6,
    KIP-996)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch  # a pre-vote has the sender's current epoch, not the next one
    log_end: LogEnd
    pre_vote: bool
    # The former leader requested this campaign: the receiver ignores its leader lease (thesis
    # 4.2.3).
    is_transfer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """The response to a VoteRequest. A granted vote is durable before it is sent."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    granted: bool
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """The leader's entries after `prev`. Without entries it is a probe for a match at `prev`."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    prev: LogEnd
    entries: tuple[Entry, ...]  # contiguous from prev.offset
    high_watermark: Offset

    @property
    def end_offset(self) -> Offset:
        """The offset after its last entry."""
        return self.entries[-1].next_offset if self.entries else self.prev.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResponse:
    """The follower's log matches the leader's up to `received_end` and is durable up to
    `match_end`.

    Both hold in `epoch`, which is durable on the follower.
    """

    sender: Voter
    receiver: Voter
    epoch: Epoch
    match_end: Offset  # <= received_end
    received_end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRejected:
    """The follower's log differs at `prev`; `hint` is a possible divergence offset (KIP-595)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    prev: LogEnd  # copied from the request
    hint: LogEnd  # largest epoch of the follower's log at or below prev's, and its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The leader's heartbeat with its high watermark."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    high_watermark: Offset
    round: int  # increasing; 0: a high watermark update that needs no response


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """The immediate response to a heartbeat, independent of pending writes.

    It also answers every message of a deposed leader; then only `epoch` counts.
    """

    sender: Voter
    receiver: Voter
    epoch: Epoch
    round: int
    # As in AppendResponse. None if no entry of this leader was accepted, or the epoch is not
    # durable.
    match_end: Offset | None
    received_end: Offset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    """A chunk of the leader's snapshot, for a peer whose next entry was removed from the log."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    snapshot: SnapshotId
    voters: VoterSet  # in force at the snapshot's end
    size: int  # bytes of the whole file, >= 1
    position: int  # of this chunk in the file
    content: bytes

    @property
    def is_last(self) -> bool:
        """Return True if the chunk is the file's last."""
        return self.position + len(self.content) >= self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResponse:
    """The durable position of a snapshot that is received. An AppendResponse confirms the
    install."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    snapshot: SnapshotId
    position: int  # of the next chunk; 0: from the start


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow:
    """The leader's request to a caught-up voter to campaign at once (thesis 3.10)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEpoch:
    """The resignation of a leader, with its preferred successors, best first (KIP-595)."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    successors: tuple[Voter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowRequest:
    """A request for replication, or for the leader's address, by a node without a leader.

    Observers, new voters and dropped nodes find the leader with it.
    """

    sender: Voter
    receiver_address: str
    epoch: Epoch
    address: str  # of the sender


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowResponse:
    """The leader as known to the responder. A leader names itself and starts to replicate."""

    sender: Voter
    receiver: Voter
    epoch: Epoch
    leader: Voter | None
    leader_address: str  # "" if unknown


Message: TypeAlias = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | AppendRejected
    | Heartbeat
    | HeartbeatResponse
    | SnapshotChunk
    | SnapshotResponse
    | TimeoutNow
    | EndEpoch
    | FollowRequest
    | FollowResponse
)


def validate_message(message: Message, *, me: Voter, epoch: Epoch, log_end: Offset) -> str:
    """Return the reason for which the message is invalid, or "".

    Late, duplicate and reordered messages are valid. Invalid are messages for other receivers,
    numbers out of bounds, and contradictions.
    """
    if message.sender == me:
        return "the sender is this node"
    if isinstance(message, FollowRequest):
        return ""
    if message.receiver != me:
        return f"the receiver is {message.receiver}, this is {me}"
    if not 0 <= message.epoch <= min(EPOCH_MAX, epoch + EPOCH_JUMP_MAX):
        return f"epoch {message.epoch} is out of bounds, the current one is {epoch}"
    match message:
        case AppendRequest():
            return _validate_append(message)
        case AppendResponse(match_end=match_end, received_end=received_end):
            return _validate_acknowledgement(
                match_end, received_end, message.epoch == epoch, log_end
            )
        case HeartbeatResponse():
            received, match = message.received_end or 0, message.match_end or 0
            return _validate_acknowledgement(match, received, message.epoch == epoch, log_end)
        case SnapshotChunk():
            return _validate_chunk(message)
        case _:
            return ""


def _validate_append(request: AppendRequest) -> str:
    """Return the reason for which no leader can have sent these entries, or ""."""
    offset, epoch = request.prev.offset, request.prev.epoch
    if offset < 0 or epoch < 0:
        return f"the entries begin at {request.prev}"
    for entry in request.entries:
        if entry.base_offset != offset or entry.count < 1:
            return f"an entry at {entry.base_offset} follows offset {offset}"
        if not epoch <= entry.epoch <= request.epoch:
            return f"an entry of epoch {entry.epoch} follows epoch {epoch}"
        offset, epoch = entry.next_offset, entry.epoch
    return ""


def _validate_acknowledgement(
    match_end: int, received_end: int, is_present: bool, log_end: Offset
) -> str:
    """Return the reason for which no follower can have acknowledged these offsets, or ""."""
    if not 0 <= match_end <= received_end:
        return f"match end {match_end} is not in [0, received end {received_end}]"
    if is_present and received_end > log_end:
        return f"received end {received_end} is above the log end {log_end}"
    return ""


def _validate_chunk(chunk: SnapshotChunk) -> str:
    """Return the reason for which the chunk is invalid, or ""."""
    end = chunk.position + len(chunk.content)
    if chunk.position < 0 or not chunk.content or end > chunk.size:
        return f"chunk [{chunk.position}, {end}) of {chunk.size} bytes"
    if chunk.snapshot.end_offset < 1 or chunk.snapshot.epoch > chunk.epoch:
        return f"chunk of {chunk.snapshot} in epoch {chunk.epoch}"
    return ""
