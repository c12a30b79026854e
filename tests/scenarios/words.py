"""The text of a transcript: messages, writes, events and states in one line each.

An offset with its epoch is written `7@2`: offset 7, the end of an entry of epoch 2. A node with a
wiped disk has a prime for each wipe: `3'`.
"""

from typing import Final, TypeAlias

from quorumlog.ids import Offset
from quorumlog.raftlog.log_view import Entry, EntryKind, LogEnd, SnapshotId
from quorumlog.raftlog.messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    FollowRequest,
    FollowResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.ready import (
    CommittedRange,
    MessageDropped,
    ReadReady,
    Ready,
    RoleChanged,
    VotersChanged,
)
from quorumlog.raftlog.voters import Voter, VoterSet


def name(of: Voter | None) -> str:
    """Return the name of a node, with primes for its disk."""
    return "nobody" if of is None else f"{of.node_id}{chr(39) * of.directory_id[-1]}"


def names(of: VoterSet) -> str:
    """Return the names of the voters."""
    return " ".join(name(each) for each in of) or "unknown"


def place(end: LogEnd) -> str:
    return f"{end.offset}@{end.epoch}"


def snapshot_name(snapshot: SnapshotId) -> str:
    return place(snapshot.log_end)


def short(value: str) -> str:
    """Return a value, abbreviated if it is long."""
    return value if len(value) <= 16 else f"{value[:4]}..({len(value)} bytes)"


def entry_text(entry: Entry) -> str:
    """Return `5@2 abc`: the base offset of the entry, its epoch and its content."""
    match entry.kind:
        case EntryKind.LEADER_CHANGE:
            what = "(leader)"
        case EntryKind.VOTERS:
            assert entry.voters is not None
            what = f"(voters {names(entry.voters)})"
        case EntryKind.DATA:
            what = short(entry.payload.decode())
    many = f" x{entry.count}" if entry.count > 1 else ""
    return f"{entry.base_offset}@{entry.epoch} {what}{many}"


def entries_text(entries: tuple[Entry, ...]) -> str:
    return ", ".join(entry_text(entry) for entry in entries)


Request: TypeAlias = (
    VoteRequest | AppendRequest | Heartbeat | SnapshotChunk | TimeoutNow | EndEpoch | FollowRequest
)
Answer: TypeAlias = (
    VoteResponse
    | AppendResponse
    | AppendRejected
    | HeartbeatResponse
    | SnapshotResponse
    | FollowResponse
)
KIND_OF: Final[dict[type[Message], str]] = {
    VoteRequest: "vote",
    VoteResponse: "vote-answer",
    AppendRequest: "append",
    AppendResponse: "append-answer",
    AppendRejected: "append-answer",
    Heartbeat: "heartbeat",
    HeartbeatResponse: "heartbeat-answer",
    SnapshotChunk: "chunk",
    SnapshotResponse: "chunk-answer",
    TimeoutNow: "campaign-now",
    EndEpoch: "end-epoch",
    FollowRequest: "follow",
    FollowResponse: "follow-answer",
}
KINDS: Final = frozenset((*KIND_OF.values(), "pre-vote", "pre-vote-answer", "commit"))


def kind_of(message: Message) -> str:
    """Return the word of the commands for a kind of message."""
    word = KIND_OF[type(message)]
    match message:
        case VoteRequest(pre_vote=True) | VoteResponse(pre_vote=True):
            return f"pre-{word}"
        case Heartbeat(round=0):
            return "commit"
        case _:
            return word


def message_text(message: Message) -> str:
    """Return the content of a message without its sender and receiver."""
    said = _asked(message) if isinstance(message, Request) else _answered(message)
    return f"{kind_of(message)} epoch {message.epoch}{said}"


def _asked(message: Request) -> str:
    match message:
        case VoteRequest():
            why = ", the leader asked for it" if message.is_transfer else ""
            return f", log ends at {place(message.log_end)}{why}"
        case AppendRequest():
            what = entries_text(message.entries) or "nothing"
            return f", after {place(message.prev)}: {what}; hw {message.high_watermark}"
        case Heartbeat():
            number = f", round {message.round}" if message.round else ""
            return f"{number}, hw {message.high_watermark}"
        case SnapshotChunk():
            last = message.position + len(message.content)
            part = f"[{message.position}, {last}) of {message.size}"
            return f", snapshot {snapshot_name(message.snapshot)}, bytes {part}"
        case TimeoutNow():
            return ""
        case EndEpoch():
            return f", successors {' '.join(name(each) for each in message.successors)}"
        case FollowRequest():
            return f", reached at {message.address}"


def _answered(message: Answer) -> str:
    match message:
        case VoteResponse():
            return ", yes" if message.granted else ", no"
        case AppendResponse():
            return _received(message.received_end, message.match_end)
        case AppendRejected():
            return f", no match at {place(message.prev)}, try {place(message.hint)}"
        case HeartbeatResponse():
            return f", round {message.round}{_received(message.received_end, message.match_end)}"
        case SnapshotResponse():
            return f", snapshot {snapshot_name(message.snapshot)}, go on at {message.position}"
        case FollowResponse():
            return f", leader {name(message.leader)}"


def _received(received: Offset | None, durable: Offset | None) -> str:
    if received is None:
        return ", nothing received"
    return f", received {received}, durable {'unknown' if durable is None else durable}"


def happening_text(what: object) -> str:
    """Return the text of an event, a started write, a commit, or a completed read."""
    match what:
        case RoleChanged():
            return f"{what.role} in epoch {what.epoch} ({what.reason.replace('_', ' ')})"
        case VotersChanged():
            return f"voters {names(what.voters)}"
        case MessageDropped():
            return f"drops a message of {name(what.sender)}: {what.reason}"
        case Ready():
            return f"writes {write_text(what)}"
        case CommittedRange():
            return f"commits [{what.start}, {what.end})"
        case ReadReady():
            return f"read {what.context} may be answered, at {what.offset}"
        case SnapshotId():
            return f"log starts at {snapshot_name(what)}"
        case int():
            return f"read {what} is lost"
        case _:
            raise AssertionError(f"no words for {what!r}")


def write_text(ready: Ready) -> str:
    """Return the parts of a pending write in order, and the requests that wait for it."""
    parts = []
    if ready.hard_state is not None:
        parts.append(f"epoch {ready.hard_state.epoch} vote {name(ready.hard_state.vote)}")
    if ready.chunks:
        first, last = ready.chunks[0], ready.chunks[-1]
        end = last.position + len(last.content)
        parts.append(f"bytes [{first.position}, {end}) of {snapshot_name(first.snapshot)}")
    if ready.install is not None:
        parts.append(f"install {snapshot_name(ready.install)}")
    if ready.truncate_to is not None:
        parts.append(f"truncate to {ready.truncate_to}")
    if ready.append:
        parts.append(f"append {entries_text(ready.append)}")
    return "; ".join(parts) or "nothing"
