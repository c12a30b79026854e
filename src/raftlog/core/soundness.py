"""What no member can have meant: messages that are dropped before they touch anything.

A network delivers late, twice and out of order; that is not looked for here. This is about other
receivers, absurd numbers, and what contradicts itself.
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


def problem_of(message: Message, *, me: Voter, epoch: Epoch, log_end: Offset) -> str:
    """Why the message is not for this node, or absurd; "" when it is neither."""
    if message.sender == me:
        return "it is from this node itself"
    if isinstance(message, FollowRequest):
        return ""
    if message.receiver != me:
        return f"it is for {message.receiver}, this is {me}"
    if not 0 <= message.epoch <= min(EPOCH_MAX, epoch + EPOCH_JUMP_MAX):
        return f"its epoch {message.epoch} is absurd, the present one is {epoch}"
    match message:
        case AppendRequest():
            return _append_problem(message)
        case AppendResponse(match_end=match_end, received_end=received_end):
            return _acknowledged(match_end, received_end, message.epoch == epoch, log_end)
        case HeartbeatResponse():
            received, match = message.received_end or 0, message.match_end or 0
            return _acknowledged(match, received, message.epoch == epoch, log_end)
        case SnapshotChunk():
            return _chunk_problem(message)
        case _:
            return ""


def _append_problem(request: AppendRequest) -> str:
    """Why no leader can have sent these entries."""
    offset, epoch = request.prev.offset, request.prev.epoch
    if offset < 0 or epoch < 0:
        return f"it begins at {request.prev}"
    for entry in request.entries:
        if entry.base_offset != offset or entry.count < 1:
            return f"an entry at {entry.base_offset} follows offset {offset}"
        if not epoch <= entry.epoch <= request.epoch:
            return f"an entry of epoch {entry.epoch} follows epoch {epoch}"
        offset, epoch = entry.next_offset, entry.epoch
    return ""


def _acknowledged(match_end: int, received_end: int, is_present: bool, log_end: Offset) -> str:
    """Why no follower can hold this much of the present leader's log."""
    if not 0 <= match_end <= received_end:
        return f"{match_end} are durable of {received_end} received"
    if is_present and received_end > log_end:
        return f"it acknowledges {received_end}, the log ends at {log_end}"
    return ""


def _chunk_problem(chunk: SnapshotChunk) -> str:
    """Why it can be no piece of a snapshot."""
    end = chunk.position + len(chunk.content)
    if chunk.position < 0 or not chunk.content or end > chunk.size:
        return f"a piece [{chunk.position}, {end}) of {chunk.size} bytes"
    if chunk.snapshot.end_offset < 1 or chunk.snapshot.epoch > chunk.epoch:
        return f"a piece of {chunk.snapshot}"
    return ""
