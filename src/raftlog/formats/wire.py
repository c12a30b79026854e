"""Messages of the consensus <-> protobuf, both ways. Pure.

A message's sender and receiver are not in its encoding: a stream or a call names them once, in its
introduction. Entries travel as they are stored, record batches back to back; of each the header is
read, its CRC is checked and it must continue the one before, but no record is looked into, except
in a control batch. Bytes that are damaged raise CorruptionError, well-formed nonsense raises
InvalidRequest: nothing that arrives is checked by `assert`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import CorruptionError, InconsistentClusterId, InvalidRequest, VoterMismatch
from ...ids import ClusterId, DirectoryId, Epoch, NodeId, Offset
from ...proto import raft_pb2 as pb
from ...records.batch import CONTROL_BIT, CRC_START, LENGTH_END, check_crc, parse_header
from ...records.checksum import crc32c
from ..core.log_view import Entry, EntryKind, LogEnd, SnapshotId
from ..core.messages import (
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
from ..core.voters import Voter, VoterSet
from .control import entry_kind

DIRECTORY_ID_SIZE: Final = 16
INCARNATION_SIZE: Final = 8
VOTERS_MAX: Final = 1_000  # named by one message: more would hold the loop up
ADDRESS_LENGTH_MAX: Final = 300  # characters: a longest host name, a colon, a port


# --- introductions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """Who talks to whom, on which of the caller's streams."""

    sender: Voter
    incarnation: bytes  # 8 bytes, drawn when the sender started
    stream_number: int  # of one kind, to one receiver, in one incarnation; 0 of a call
    is_snapshot: bool = False  # the stream's kind: a snapshot, or entries and heartbeats


def encode_introduction(
    introduction: Introduction, *, cluster_id: ClusterId, receiver: Voter | None
) -> pb.Introduction:
    """Return the message; without a receiver it is for whoever is there."""
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
    """Return who calls; raises InconsistentClusterId when it is of another cluster, VoterMismatch
    when it calls another node or another disk, InvalidRequest when it does not say who it is."""
    if message.cluster_id != cluster_id:
        raise InconsistentClusterId(
            f"node {me.node_id} is of cluster {cluster_id}, the caller of"
            f" {message.cluster_id[:40] or 'none'}: check the addresses"
        )
    sender = decode_voter(message.sender)
    if message.HasField("receiver") and (called := decode_voter(message.receiver)) != me:
        what = "another disk" if called.node_id == me.node_id else "another node"
        raise VoterMismatch(
            f"node {sender.node_id} calls node {called.node_id} with directory id"
            f" {called.directory_id.hex()}; here is node {me.node_id} with"
            f" {me.directory_id.hex()}, {what}: remove the voter that is gone, or mend its address"
        )
    if sender == me:
        raise VoterMismatch(f"node {me.node_id} is called by itself: mend the voters' addresses")
    if len(message.incarnation) != INCARNATION_SIZE or message.stream_number < 0:
        raise InvalidRequest(
            f"an incarnation has {INCARNATION_SIZE} bytes and a stream a number >= 0, not"
            f" {len(message.incarnation)} and {message.stream_number}"
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
    """Write the message, without its sender and receiver, into an empty one: in a frame that spares
    a copy."""
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
    """Return the message between the two; the address is a FollowRequest's.

    Raises CorruptionError for damaged bytes, InvalidRequest for nonsense and for a kind of message
    that only a newer peer knows.
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
            raise InvalidRequest("a message of a kind that is unknown here: is the peer newer?")


# --- votes and followers, which are calls --------------------------------------------------------


def encode_vote_request(request: VoteRequest) -> pb.VoteRequest:
    """Return the message without its sender and receiver, as all below."""
    return pb.VoteRequest(
        epoch=request.epoch,
        log_end=pb.LogEnd(epoch=request.log_end.epoch, offset=request.log_end.offset),
        pre_vote=request.pre_vote,
        is_transfer=request.is_transfer,
    )


def decode_vote_request(message: pb.VoteRequest, *, sender: Voter, receiver: Voter) -> VoteRequest:
    """Return the request; raises InvalidRequest for nonsense, as all below."""
    return VoteRequest(
        sender=sender,
        receiver=receiver,
        epoch=_epoch(message.epoch),
        log_end=_log_end(message.log_end),
        pre_vote=message.pre_vote,
        is_transfer=message.is_transfer,
    )


def encode_vote_response(response: VoteResponse) -> pb.VoteResponse:
    """Return the message."""
    return pb.VoteResponse(
        epoch=response.epoch, granted=response.granted, pre_vote=response.pre_vote
    )


def decode_vote_response(
    message: pb.VoteResponse, *, sender: Voter, receiver: Voter
) -> VoteResponse:
    """Return the response."""
    return VoteResponse(
        sender=sender,
        receiver=receiver,
        epoch=_epoch(message.epoch),
        granted=message.granted,
        pre_vote=message.pre_vote,
    )


def encode_follow_request(request: FollowRequest) -> pb.FollowQuorumRequest:
    """Return the message; the address that it goes to is not in it."""
    return pb.FollowQuorumRequest(epoch=request.epoch, address=request.address)


def decode_follow_request(
    message: pb.FollowQuorumRequest, *, sender: Voter, receiver_address: str
) -> FollowRequest:
    """Return the request, which came to the address."""
    return FollowRequest(
        sender=sender,
        receiver_address=receiver_address,
        epoch=_epoch(message.epoch),
        address=_address(message.address),
    )


def encode_follow_response(response: FollowResponse) -> pb.FollowQuorumResponse:
    """Return the message, which says who answers: the asking one knew an address alone."""
    return pb.FollowQuorumResponse(
        epoch=response.epoch,
        sender=encode_voter(response.sender),
        leader=None if response.leader is None else encode_voter(response.leader),
        leader_address=response.leader_address,
    )


def decode_follow_response(message: pb.FollowQuorumResponse, *, receiver: Voter) -> FollowResponse:
    """Return the response."""
    return FollowResponse(
        sender=decode_voter(message.sender),
        receiver=receiver,
        epoch=_epoch(message.epoch),
        leader=decode_voter(message.leader) if message.HasField("leader") else None,
        leader_address=_address(message.leader_address),
    )


# --- entries -------------------------------------------------------------------------------------


def decode_entries(batches: bytes, *, prev: LogEnd, epoch: Epoch) -> tuple[Entry, ...]:
    """Return the batches, which lie back to back, as entries right behind `prev`.

    Raises CorruptionError for a torn or damaged batch, InvalidRequest when one does not continue
    the one before or is of an epoch that the sender has not reached. 3 us a batch, and its bytes.
    """
    entries: list[Entry] = []
    position, offset, last_epoch = 0, prev.offset, prev.epoch
    end, view = len(batches), memoryview(batches)
    while position < end:
        header = parse_header(batches, position)
        base_offset, length, batch_epoch, _, crc, attributes, last_delta = header[:7]
        next_position = position + length + LENGTH_END
        if next_position > end or crc32c(view[position + CRC_START : next_position]) != crc:
            check_crc(batches, position, header)  # says what is wrong
        count = last_delta + 1
        if base_offset != offset or header.record_count != count or count < 1:
            raise InvalidRequest(
                f"a batch of {header.record_count} records over {count} offsets from"
                f" {base_offset} on, where one from {offset} on belongs"
            )
        if not last_epoch <= batch_epoch <= epoch:
            raise InvalidRequest(
                f"a batch of epoch {batch_epoch} at offset {offset}, behind one of epoch"
                f" {last_epoch}, from a leader of epoch {epoch}"
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
            f"a piece of {len(content)} bytes at {position} of a snapshot of {size} bytes"
        )
    if crc32c(content) != message.crc:
        raise CorruptionError(
            f"the CRC-32C of the snapshot's {len(content)} bytes at {position} is wrong"
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
        raise InvalidRequest(f"a message names {voters} voters, over {VOTERS_MAX}")


# --- what messages are made of -------------------------------------------------------------------


def encode_voter(voter: Voter) -> pb.Voter:
    """Return the message for a voter."""
    return pb.Voter(node_id=voter.node_id, directory_id=voter.directory_id)


def decode_voter(message: pb.Voter) -> Voter:
    """Return the voter; raises InvalidRequest when it can be none."""
    if message.node_id < 0 or len(message.directory_id) != DIRECTORY_ID_SIZE:
        raise InvalidRequest(
            f"a voter has a node id >= 0 and a directory id of {DIRECTORY_ID_SIZE} bytes, not"
            f" {message.node_id} and {len(message.directory_id)} bytes"
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
        raise InvalidRequest(f"an epoch is >= 0, not {value}")
    return Epoch(value)


def _offset(value: int) -> Offset:
    if value < 0:
        raise InvalidRequest(f"an offset is >= 0, not {value}")
    return Offset(value)


def _count(value: int) -> int:
    if value < 0:
        raise InvalidRequest(f"a round or a position is >= 0, not {value}")
    return value


def _check_ends(match_end: Offset, received_end: Offset) -> None:
    if match_end > received_end:
        raise InvalidRequest(f"{match_end} is durable of a log that was received to {received_end}")


def _address(value: str) -> str:
    """A "host:port", or "" for none; anything else raises InvalidRequest."""
    if not value:
        return value
    host, _, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16
    if not host or not is_port or len(value) > ADDRESS_LENGTH_MAX or not host.isprintable():
        raise InvalidRequest(f"an address is host:port, not {value[:ADDRESS_LENGTH_MAX]!r}")
    return value
