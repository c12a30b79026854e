"""Translation between Raft messages and protobuf. Pure.

A message's sender and receiver are not encoded: the introduction of a stream or call identifies
them. Entries are sent as stored, as consecutive record batches. Each batch's header and CRC are
checked, and it must continue the one before. Only records of control batches are decoded. Damaged
bytes raise CorruptionError, other invalid input raises InvalidRequest; input never fails an assert.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import CorruptionError, InconsistentClusterId, InvalidRequest, VoterMismatch
from ..ids import ClusterId, DirectoryId, Epoch, NodeId, Offset
from ..proto import raft_pb2 as pb
from ..records.batch import CONTROL_BIT, CRC_START, LENGTH_END, check_crc, parse_header
from ..records.checksum import crc32c
from .control_records import entry_kind
from .log_view import Entry, EntryKind, LogEnd, SnapshotId
from .messages import (
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
from .voters import Voter, VoterSet

DIRECTORY_ID_SIZE: Final = 16
INCARNATION_SIZE: Final = 8
VOTERS_MAX: Final = 1_000  # per message; more would block the event loop too long
ADDRESS_LENGTH_MAX: Final = 300  # characters: the longest host name, a colon, a port


# --- introductions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """The identity of a caller and its stream."""

    sender: Voter
    incarnation: bytes  # 8 bytes, drawn when the sender started
    stream_number: int  # increasing per kind, receiver and incarnation; 0 in a call
    is_snapshot: bool = False  # the stream sends a snapshot instead of entries and heartbeats


def encode_introduction(
    introduction: Introduction, *, cluster_id: ClusterId, receiver: Voter | None
) -> pb.Introduction:
    """Return the message. Without a receiver it addresses any node."""
    return pb.Introduction(
        cluster_id=cluster_id,
        sender=encode_voter(introduction.sender),
        receiver=None if receiver is None else encode_voter(receiver),
        incarnation=introduction.incarnation,
        stream_number=introduction.stream_number,
        is_snapshot=introduction.is_snapshot,
    )


def decode_introduction(
    message: pb.Introduction, *, cluster_id: ClusterId, me: Voter
) -> Introduction:
    """Return the caller's introduction.

    Raise InconsistentClusterId if it is of another cluster, VoterMismatch if it addresses another
    node or data directory, InvalidRequest if it is invalid.
    """
    if message.cluster_id != cluster_id:
        raise InconsistentClusterId(
            f"node {me.node_id}: its cluster is {cluster_id}, the caller's is"
            f" {message.cluster_id[:40]!r}; check the addresses"
        )
    sender = decode_voter(message.sender)
    if message.HasField("receiver") and (called := decode_voter(message.receiver)) != me:
        what = "another directory" if called.node_id == me.node_id else "another node"
        raise VoterMismatch(
            f"node {sender.node_id} called node {called.node_id} with directory id"
            f" {called.directory_id.hex()}, but this is {what}: node {me.node_id} with"
            f" {me.directory_id.hex()}; remove the old voter or correct its address"
        )
    if sender == me:
        raise VoterMismatch(f"node {me.node_id}: called itself; correct the voters' addresses")
    if len(message.incarnation) != INCARNATION_SIZE or message.stream_number < 0:
        raise InvalidRequest(
            f"introduction: {len(message.incarnation)} bytes of incarnation and stream"
            f" {message.stream_number}; expected {INCARNATION_SIZE} bytes and a stream >= 0"
        )
    return Introduction(
        sender=sender,
        incarnation=message.incarnation,
        stream_number=message.stream_number,
        is_snapshot=message.is_snapshot,
    )


# --- messages ------------------------------------------------------------------------------------


def encode_message(message: Message) -> pb.RaftMessage:
    """Return the message without its sender and receiver."""
    encoded = pb.RaftMessage()
    fill_message(encoded, message)
    return encoded


def fill_message(target: pb.RaftMessage, message: Message) -> None:  # noqa: C901, PLR0912 (a dispatch)
    """Write the message without its sender and receiver into an empty one. In a frame this avoids a
    copy."""
    match message:
        case AppendRequest():
            _fill_append_request(target.append_request, message)
        case Heartbeat():
            beat = target.heartbeat
            beat.epoch = message.epoch
            beat.high_watermark = message.high_watermark
            beat.round = message.round
        case AppendResponse():
            response = target.append_response
            response.epoch = message.epoch
            response.match_end = message.match_end
            response.received_end = message.received_end
        case HeartbeatResponse():
            _fill_heartbeat_response(target.heartbeat_response, message)
        case AppendRejected():
            rejected = target.append_rejected
            rejected.epoch = message.epoch
            _fill_place(rejected.prev, message.prev)
            _fill_place(rejected.hint, message.hint)
        case SnapshotChunk():
            _fill_chunk(target.snapshot_chunk, message)
        case SnapshotResponse():
            received = target.snapshot_response
            received.epoch = message.epoch
            _fill_place(received.snapshot, message.snapshot.log_end)
            received.position = message.position
        case TimeoutNow():
            target.timeout_now.epoch = message.epoch
        case EndEpoch():
            target.end_epoch.epoch = message.epoch
            target.end_epoch.successors.extend(encode_voter(v) for v in message.successors)
        case VoteRequest():
            target.vote_request.CopyFrom(encode_vote_request(message))
        case VoteResponse():
            target.vote_response.CopyFrom(encode_vote_response(message))
        case FollowRequest():
            target.follow_request.CopyFrom(encode_follow_request(message))
        case FollowResponse():
            target.follow_response.CopyFrom(encode_follow_response(message))


def decode_message(  # noqa: C901, PLR0912 (a dispatch)
    message: pb.RaftMessage, *, sender: Voter, receiver: Voter, receiver_address: str = ""
) -> Message:
    """Return the message from the sender to the receiver; `receiver_address` is a FollowRequest's.

    Raise CorruptionError for damaged bytes, InvalidRequest for invalid content or an unknown kind
    of message.
    """
    match message.WhichOneof("message"):
        case "append_request":
            return _decode_append_request(message.append_request, sender, receiver)
        case "append_response":
            return _decode_append_response(message.append_response, sender, receiver)
        case "heartbeat":
            beat = message.heartbeat
            return Heartbeat(
                sender=sender,
                receiver=receiver,
                epoch=_epoch(beat.epoch),
                high_watermark=_offset(beat.high_watermark),
                round=_count(beat.round),
            )
        case "heartbeat_response":
            return _decode_heartbeat_response(message.heartbeat_response, sender, receiver)
        case "append_rejected":
            rejected = message.append_rejected
            return AppendRejected(
                sender=sender,
                receiver=receiver,
                epoch=_epoch(rejected.epoch),
                prev=_log_end(rejected.prev),
                hint=_log_end(rejected.hint),
            )
        case "snapshot_chunk":
            return _decode_chunk(message.snapshot_chunk, sender, receiver)
        case "snapshot_response":
            received = message.snapshot_response
            return SnapshotResponse(
                sender=sender,
                receiver=receiver,
                epoch=_epoch(received.epoch),
                snapshot=_snapshot(received.snapshot),
                position=_count(received.position),
            )
        case "timeout_now":
            epoch = _epoch(message.timeout_now.epoch)
            return TimeoutNow(sender=sender, receiver=receiver, epoch=epoch)
        case "end_epoch":
            return EndEpoch(
                sender=sender,
                receiver=receiver,
                epoch=_epoch(message.end_epoch.epoch),
                successors=_decode_successors(message.end_epoch.successors),
            )
        case "vote_request":
            return decode_vote_request(message.vote_request, sender=sender, receiver=receiver)
        case "vote_response":
            return decode_vote_response(message.vote_response, sender=sender, receiver=receiver)
        case "follow_request":
            return decode_follow_request(
                message.follow_request, sender=sender, receiver_address=receiver_address
            )
        case "follow_response":
            return decode_follow_response(message.follow_response, receiver=receiver)
        case _:
            raise InvalidRequest("message: unknown kind; the peer may run a newer version")


# --- votes and follow requests (calls) ----------------------------------------------------------


def encode_vote_request(request: VoteRequest) -> pb.VoteRequest:
    """Return the message without its sender and receiver. So do all functions below."""
    return pb.VoteRequest(
        epoch=request.epoch,
        log_end=pb.LogEnd(epoch=request.log_end.epoch, offset=request.log_end.offset),
        pre_vote=request.pre_vote,
        is_transfer=request.is_transfer,
    )


def decode_vote_request(message: pb.VoteRequest, *, sender: Voter, receiver: Voter) -> VoteRequest:
    """Return the request. Raise InvalidRequest if it is invalid, as all functions below."""
    return VoteRequest(
        sender=sender,
        receiver=receiver,
        epoch=_epoch(message.epoch),
        log_end=_log_end(message.log_end),
        pre_vote=message.pre_vote,
        is_transfer=message.is_transfer,
    )


def encode_vote_response(response: VoteResponse) -> pb.VoteResponse:
    return pb.VoteResponse(
        epoch=response.epoch, granted=response.granted, pre_vote=response.pre_vote
    )


def decode_vote_response(
    message: pb.VoteResponse, *, sender: Voter, receiver: Voter
) -> VoteResponse:
    return VoteResponse(
        sender=sender,
        receiver=receiver,
        epoch=_epoch(message.epoch),
        granted=message.granted,
        pre_vote=message.pre_vote,
    )


def encode_follow_request(request: FollowRequest) -> pb.FollowQuorumRequest:
    """Return the message. The receiver's address is not encoded."""
    return pb.FollowQuorumRequest(epoch=request.epoch, address=request.address)


def decode_follow_request(
    message: pb.FollowQuorumRequest, *, sender: Voter, receiver_address: str
) -> FollowRequest:
    """Return the request that was sent to the address."""
    return FollowRequest(
        sender=sender,
        receiver_address=receiver_address,
        epoch=_epoch(message.epoch),
        address=_address(message.address),
    )


def encode_follow_response(response: FollowResponse) -> pb.FollowQuorumResponse:
    """Return the message with the responder's identity, since the caller has only an address."""
    return pb.FollowQuorumResponse(
        epoch=response.epoch,
        sender=encode_voter(response.sender),
        leader=None if response.leader is None else encode_voter(response.leader),
        leader_address=response.leader_address,
    )


def decode_follow_response(message: pb.FollowQuorumResponse, *, receiver: Voter) -> FollowResponse:
    return FollowResponse(
        sender=decode_voter(message.sender),
        receiver=receiver,
        epoch=_epoch(message.epoch),
        leader=decode_voter(message.leader) if message.HasField("leader") else None,
        leader_address=_address(message.leader_address),
    )


# --- entries -------------------------------------------------------------------------------------


def decode_entries(batches: bytes, *, prev: LogEnd, epoch: Epoch) -> tuple[Entry, ...]:
    """Return consecutive batches as entries after `prev`.

    Raise CorruptionError for a truncated or damaged batch, InvalidRequest if a batch does not
    continue the one before or has an epoch above the sender's. Takes 3 us per batch, plus its CRC.
    """
    entries: list[Entry] = []
    position, offset, last_epoch = 0, prev.offset, prev.epoch
    end, view = len(batches), memoryview(batches)
    while position < end:
        header = parse_header(batches, position)
        base_offset, length, batch_epoch, _, crc, attributes, last_delta = header[:7]
        next_position = position + length + LENGTH_END
        if next_position > end or crc32c(view[position + CRC_START : next_position]) != crc:
            check_crc(batches, position, header)  # raises with the reason
        count = last_delta + 1
        if base_offset != offset or header.record_count != count or count < 1:
            raise InvalidRequest(
                f"batch of {header.record_count} records over {count} offsets at"
                f" {base_offset}; expected a batch at offset {offset}"
            )
        if not last_epoch <= batch_epoch <= epoch:
            raise InvalidRequest(
                f"batch at offset {offset}: its epoch {batch_epoch} is not in"
                f" [{last_epoch}, {epoch}]"
            )
        last_epoch = Epoch(batch_epoch)
        kind, voters = EntryKind.DATA, None
        if attributes & CONTROL_BIT:
            kind, voters = entry_kind(batches, position, header)
        entries.append(
            Entry(
                kind=kind,
                epoch=last_epoch,
                base_offset=offset,
                count=count,
                payload=batches[position:next_position],
                voters=voters,
            )
        )
        offset = Offset(offset + count)
        position = next_position
    return tuple(entries)


def _fill_append_request(target: pb.AppendRequest, request: AppendRequest) -> None:
    target.epoch = request.epoch
    _fill_place(target.prev, request.prev)
    if request.entries:
        target.batches = b"".join([entry.payload for entry in request.entries])
    target.high_watermark = request.high_watermark


def _decode_append_request(
    message: pb.AppendRequest, sender: Voter, receiver: Voter
) -> AppendRequest:
    epoch, prev = _epoch(message.epoch), _log_end(message.prev)
    return AppendRequest(
        sender=sender,
        receiver=receiver,
        epoch=epoch,
        prev=prev,
        entries=decode_entries(message.batches, prev=prev, epoch=epoch),
        high_watermark=_offset(message.high_watermark),
    )


def _decode_append_response(
    message: pb.AppendResponse, sender: Voter, receiver: Voter
) -> AppendResponse:
    match_end, received_end = _offset(message.match_end), _offset(message.received_end)
    _check_ends(match_end, received_end)
    return AppendResponse(
        sender=sender,
        receiver=receiver,
        epoch=_epoch(message.epoch),
        match_end=match_end,
        received_end=received_end,
    )


def _fill_heartbeat_response(target: pb.HeartbeatResponse, response: HeartbeatResponse) -> None:
    target.epoch = response.epoch
    target.round = response.round
    if response.match_end is not None:
        target.match_end = response.match_end
    if response.received_end is not None:
        target.received_end = response.received_end


def _decode_heartbeat_response(
    message: pb.HeartbeatResponse, sender: Voter, receiver: Voter
) -> HeartbeatResponse:
    match_end = _offset(message.match_end) if message.HasField("match_end") else None
    received_end = _offset(message.received_end) if message.HasField("received_end") else None
    if match_end is not None and received_end is not None:
        _check_ends(match_end, received_end)
    return HeartbeatResponse(
        sender=sender,
        receiver=receiver,
        epoch=_epoch(message.epoch),
        round=_count(message.round),
        match_end=match_end,
        received_end=received_end,
    )


# --- snapshots -----------------------------------------------------------------------------------


def _fill_chunk(target: pb.SnapshotChunk, chunk: SnapshotChunk) -> None:
    target.epoch = chunk.epoch
    _fill_place(target.snapshot, chunk.snapshot.log_end)
    for voter, address in chunk.voters.members:
        target.voters.add(voter=encode_voter(voter), address=address)
    target.size = chunk.size
    target.position = chunk.position
    target.content = chunk.content
    target.crc = crc32c(chunk.content)


def _decode_chunk(message: pb.SnapshotChunk, sender: Voter, receiver: Voter) -> SnapshotChunk:
    content, size, position = message.content, message.size, _count(message.position)
    if position + len(content) > size or size < 1:
        raise InvalidRequest(
            f"snapshot chunk: {len(content)} bytes at {position} of a file of {size} bytes"
        )
    if crc32c(content) != message.crc:
        raise CorruptionError(
            f"snapshot chunk: CRC-32C mismatch in {len(content)} bytes at {position}"
        )
    return SnapshotChunk(
        sender=sender,
        receiver=receiver,
        epoch=_epoch(message.epoch),
        snapshot=_snapshot(message.snapshot),
        voters=_decode_voters(message.voters),
        size=size,
        position=position,
        content=content,
    )


def _decode_voters(members: Sequence[pb.VoterAddress]) -> VoterSet:
    _check_number(len(members))
    return VoterSet(tuple((decode_voter(m.voter), m.address) for m in members))


def _decode_successors(voters: Sequence[pb.Voter]) -> tuple[Voter, ...]:
    _check_number(len(voters))
    return tuple(decode_voter(voter) for voter in voters)


def _check_number(voters: int) -> None:
    if voters > VOTERS_MAX:
        raise InvalidRequest(f"message: {voters} voters; the limit is {VOTERS_MAX}")


# --- parts of messages -------------------------------------------------------------------------


def encode_voter(voter: Voter) -> pb.Voter:
    """Return the protobuf message of a voter."""
    return pb.Voter(node_id=voter.node_id, directory_id=voter.directory_id)


def decode_voter(message: pb.Voter) -> Voter:
    """Return the voter. Raise InvalidRequest if it is invalid."""
    if message.node_id < 0 or len(message.directory_id) != DIRECTORY_ID_SIZE:
        raise InvalidRequest(
            f"voter: node id {message.node_id} with a directory id of"
            f" {len(message.directory_id)} bytes; expected >= 0 and {DIRECTORY_ID_SIZE}"
        )
    return Voter(NodeId(message.node_id), DirectoryId(message.directory_id))


def _fill_place(target: pb.LogEnd, place: LogEnd) -> None:
    target.epoch = place.epoch
    target.offset = place.offset


def _log_end(message: pb.LogEnd) -> LogEnd:
    return LogEnd(_epoch(message.epoch), _offset(message.offset))


def _snapshot(message: pb.LogEnd) -> SnapshotId:
    return SnapshotId(_offset(message.offset), _epoch(message.epoch))


def _epoch(value: int) -> Epoch:
    if value < 0:
        raise InvalidRequest(f"epoch: {value} is below 0")
    return Epoch(value)


def _offset(value: int) -> Offset:
    if value < 0:
        raise InvalidRequest(f"offset: {value} is below 0")
    return Offset(value)


def _count(value: int) -> int:
    if value < 0:
        raise InvalidRequest(f"round or position: {value} is below 0")
    return value


def _check_ends(match_end: Offset, received_end: Offset) -> None:
    if match_end > received_end:
        raise InvalidRequest(f"match end: {match_end} is above the received end {received_end}")


def _address(value: str) -> str:
    """Return a "host:port", or "" for none. Raise InvalidRequest for other text."""
    if not value:
        return value
    host, _, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16
    if not host or not is_port or len(value) > ADDRESS_LENGTH_MAX or not host.isprintable():
        raise InvalidRequest(f"address: {value[:ADDRESS_LENGTH_MAX]!r} is not host:port")
    return value
