"""Every message of the quorum is unchanged after encoding and decoding with protobuf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.errors import CorruptionError, InvalidRequest
from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.proto import raft_pb2 as pb
from quorumlog.raftlog.codec import decode_message, encode_message
from quorumlog.raftlog.control_records import LeaderChange, control_batch
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
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.records import Codec, Record, encode_batch

VOTERS = st.builds(
    Voter,
    st.integers(0, 2**31 - 1).map(NodeId),
    st.binary(min_size=16, max_size=16).map(DirectoryId),
)
EPOCHS = st.integers(0, 2**31 - 1).map(Epoch)
OFFSETS = st.integers(0, 2**63 - 1).map(Offset)
COUNTS = st.integers(0, 2**63 - 1)
LOG_ENDS = st.builds(LogEnd, EPOCHS, OFFSETS)
SNAPSHOTS = st.builds(SnapshotId, OFFSETS, EPOCHS)
ADDRESSES = st.one_of(
    st.just(""),
    st.builds(
        "{}:{}".format,
        st.sampled_from(["localhost", "10.0.0.1", "[::1]", "b\u00fccher.example"]),
        st.integers(1, 65535),
    ),
)
VOTER_SETS = st.dictionaries(
    st.integers(0, 9), st.tuples(st.binary(min_size=16, max_size=16), ADDRESSES), max_size=4
).map(
    lambda members: VoterSet.of(
        (Voter(NodeId(node), DirectoryId(disk)), address)
        for node, (disk, address) in members.items()
    )
)
ENDS = st.tuples(OFFSETS, OFFSETS).map(sorted)


@st.composite
def entries(draw: st.DrawFn, base_offset: int, first_epoch: int) -> tuple[Entry, ...]:
    """Return consecutive batches of rising epochs."""
    made: list[Entry] = []
    offset, epoch = base_offset, first_epoch
    for _ in range(draw(st.integers(0, 5))):
        epoch += draw(st.integers(0, 3))
        kind = draw(st.sampled_from(EntryKind))
        count, voters = 1, None
        if kind is EntryKind.DATA:
            values = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
            count = len(values)
            payload = encode_batch(
                [Record(offset=0, timestamp_ms=0, key=None, value=v, headers=()) for v in values],
                base_offset=offset,
                leader_epoch=epoch,
                codec=draw(st.sampled_from([Codec.NONE, Codec.GZIP])),
            )
        elif kind is EntryKind.VOTERS:
            voters = draw(VOTER_SETS.filter(lambda some: all(a.isascii() for _, a in some.members)))
            payload = control_batch(voters, base_offset=offset, epoch=epoch)
        else:
            change = LeaderChange(NodeId(1), (), ())
            payload = control_batch(change, base_offset=offset, epoch=epoch)
        made.append(
            Entry(
                kind=kind,
                epoch=Epoch(epoch),
                base_offset=Offset(offset),
                count=count,
                payload=payload,
                voters=voters,
            )
        )
        offset += count
    return tuple(made)


@st.composite
def append_requests(draw: st.DrawFn) -> AppendRequest:
    prev = LogEnd(Epoch(draw(st.integers(0, 1000))), Offset(draw(st.integers(0, 2**40))))
    batches = draw(entries(prev.offset, prev.epoch))
    last = batches[-1].epoch if batches else prev.epoch
    return AppendRequest(
        sender=draw(VOTERS),
        receiver=draw(VOTERS),
        epoch=Epoch(last + draw(st.integers(0, 5))),
        prev=prev,
        entries=batches,
        high_watermark=draw(OFFSETS),
    )


@st.composite
def chunks(draw: st.DrawFn) -> SnapshotChunk:
    content = draw(st.binary(max_size=100))
    position = draw(st.integers(0, 2**40))
    return SnapshotChunk(
        sender=draw(VOTERS),
        receiver=draw(VOTERS),
        epoch=draw(EPOCHS),
        snapshot=draw(SNAPSHOTS),
        voters=draw(VOTER_SETS),
        size=max(1, position + len(content) + draw(st.integers(0, 2**40))),
        position=position,
        content=content,
    )


ENVELOPE = {"sender": VOTERS, "receiver": VOTERS, "epoch": EPOCHS}
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    append_requests(),
    chunks(),
    ENDS.flatmap(
        lambda ends: st.builds(
            AppendResponse,
            **ENVELOPE,
            match_end=st.just(ends[0]),
            received_end=st.just(ends[1]),
        )
    ),
    st.builds(AppendRejected, **ENVELOPE, prev=LOG_ENDS, hint=LOG_ENDS),
    st.builds(Heartbeat, **ENVELOPE, high_watermark=OFFSETS, round=COUNTS),
    st.tuples(st.none() | OFFSETS, st.none() | OFFSETS).flatmap(
        lambda ends: st.builds(
            HeartbeatResponse,
            **ENVELOPE,
            round=COUNTS,
            match_end=st.just(ends[0]),
            received_end=st.just(
                ends[1] if None in ends else max(end for end in ends if end is not None)
            ),
        )
    ),
    st.builds(SnapshotResponse, **ENVELOPE, snapshot=SNAPSHOTS, position=COUNTS),
    st.builds(TimeoutNow, **ENVELOPE),
    st.builds(EndEpoch, **ENVELOPE, successors=st.lists(VOTERS, max_size=4).map(tuple)),
    st.builds(
        VoteRequest,
        **ENVELOPE,
        log_end=LOG_ENDS,
        pre_vote=st.booleans(),
        is_transfer=st.booleans(),
    ),
    st.builds(VoteResponse, **ENVELOPE, granted=st.booleans(), pre_vote=st.booleans()),
    st.builds(
        FollowRequest,
        sender=VOTERS,
        receiver_address=ADDRESSES,
        epoch=EPOCHS,
        address=ADDRESSES,
    ),
    st.builds(FollowResponse, **ENVELOPE, leader=st.none() | VOTERS, leader_address=ADDRESSES),
)


def round_trip(message: Message) -> Message:
    """Encode and decode a message."""
    encoded = pb.RaftMessage.FromString(encode_message(message).SerializeToString())
    if isinstance(message, FollowRequest):
        return decode_message(
            encoded,
            sender=message.sender,
            receiver=Voter(NodeId(0), DirectoryId(b"r" * 16)),
            receiver_address=message.receiver_address,
        )
    return decode_message(encoded, sender=message.sender, receiver=message.receiver)


@given(MESSAGES)
def test_a_message_is_unchanged_after_encoding_and_decoding(message: Message) -> None:
    assert round_trip(message) == message


@pytest.mark.slow
@given(append_requests().filter(lambda request: request.entries), st.data())
def test_a_changed_bit_of_the_entries_is_detected_or_changes_no_stored_entry(
    request: AppendRequest, data: st.DataObject
) -> None:
    encoded = encode_message(request)
    batches = bytearray(encoded.append_request.batches)
    position = data.draw(st.integers(0, len(batches) - 1))
    batches[position] ^= 1 << data.draw(st.integers(0, 7))
    encoded.append_request.batches = bytes(batches)
    try:
        arrived = decode_message(encoded, sender=request.sender, receiver=request.receiver)
    except (CorruptionError, InvalidRequest):
        return
    # The epoch of a batch is outside its CRC, as in the Kafka format.
    assert isinstance(arrived, AppendRequest)
    assert [e.payload[16:] for e in arrived.entries] == [e.payload[16:] for e in request.entries]


@given(st.binary(max_size=300))
def test_garbage_is_rejected_with_a_typed_error_or_is_a_message(content: bytes) -> None:
    message = pb.RaftMessage()
    try:
        message.ParseFromString(content)
    except Exception:
        return
    someone = Voter(NodeId(0), DirectoryId(b"r" * 16))
    try:
        decode_message(message, sender=someone, receiver=someone)
    except (CorruptionError, InvalidRequest):
        return


@given(st.binary(max_size=200))
def test_garbage_instead_of_batches_is_rejected(content: bytes) -> None:
    message = pb.RaftMessage(append_request=pb.AppendRequest(epoch=1, batches=content))
    someone = Voter(NodeId(0), DirectoryId(b"r" * 16))
    if not content:
        return
    with pytest.raises((CorruptionError, InvalidRequest)):
        decode_message(message, sender=someone, receiver=someone)
