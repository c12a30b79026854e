"""Validation of received messages. Invalid messages are dropped before they change any state.

Late, duplicate and reordered messages are valid. Invalid are messages for other receivers, numbers
out of bounds, and contradictions.
"""

from ...ids import Epoch, Offset
from .config import EPOCH_JUMP_MAX, EPOCH_MAX
from .messages import (
    AppendRequest,
    AppendResponse,
    FollowRequest,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
)
from .voters import Voter


def validate_message(message: Message, *, me: Voter, epoch: Epoch, log_end: Offset) -> str:
    """Return the reason for which the message is invalid, or ""."""
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
