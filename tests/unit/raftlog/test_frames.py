"""Frames are decoded from chunks of any size, and invalid ones are rejected."""

from struct import pack

import pytest
from crc32c import crc32c

from quorumlog.errors import CorruptionError, InvalidRequest, MessageTooLarge, QuorumlogError
from quorumlog.proto import raft_pb2 as pb
from quorumlog.raftlog.frames import (
    FIRST_FRAME_BYTES_MAX,
    FRAME_BYTES_MAX,
    RAFT_FRAMES,
    encode_frame,
)
from quorumlog.runtime.frame_stream import BUFFER_BYTES, FrameReader


def frame(size: int) -> pb.RaftFrame:
    """Build a frame of about this many bytes."""
    request = pb.AppendRequest(epoch=1, batches=bytes(range(256)) * (size // 256))
    return pb.RaftFrame(messages=[pb.RaftMessage(append_request=request)])


def feed(
    reader: FrameReader[pb.RaftFrame], data: bytes, *, piece: int
) -> list[pb.RaftFrame | QuorumlogError]:
    """Return the frames that result from bytes in chunks."""
    found: list[pb.RaftFrame | QuorumlogError] = []
    while data:
        buffer = reader.buffer()
        count = min(piece, len(buffer), len(data))
        buffer[:count], data = data[:count], data[count:]
        found += reader.received(count)
    return found


@pytest.mark.parametrize("piece", [1, 7, 8, 9, 4096, 1 << 30])
def test_frames_of_all_sizes_arrive_whole_in_whatever_pieces(piece: int) -> None:
    sizes = [0, 0, 300, 5_000, 0, BUFFER_BYTES - 20, 70_000, 256, 1, 40_000, 40_000]
    if piece > 9:
        sizes += [1 << 20, 300, 3 << 20]
    sent = [frame(size) for size in sizes]
    reader = FrameReader(RAFT_FRAMES)
    data = b"".join(part for each in sent for part in encode_frame(each))
    assert feed(reader, data, piece=piece) == sent
    assert not reader.is_within_frame


def test_truncated_frame_is_detected() -> None:
    reader = FrameReader(RAFT_FRAMES)
    header, message = encode_frame(frame(1_000))
    assert feed(reader, header + message[:-1], piece=100) == []
    assert reader.is_within_frame


def test_a_large_frame_leaves_no_large_buffer_behind() -> None:
    reader = FrameReader(RAFT_FRAMES)
    feed(reader, b"".join([*encode_frame(frame(0)), *encode_frame(frame(4 << 20))]), piece=1 << 30)
    assert len(reader.buffer()) == BUFFER_BYTES


def test_invalid_frames_are_rejected_and_those_before_are_kept() -> None:
    header, message = encode_frame(frame(1_000))
    flipped = bytearray(message)
    flipped[500] ^= 1
    nonsense = b"\xff" * 40
    cases = (
        (header + bytes(flipped), CorruptionError),
        (pack(">II", len(nonsense), crc32c(nonsense)) + nonsense, InvalidRequest),
        (pack(">II", FRAME_BYTES_MAX + 1, 0), InvalidRequest),
        (b"GET / HTTP/1.1\r\n\r\n", InvalidRequest),
        (b"PRI * HTTP/2.0\r\n\r\n", InvalidRequest),
    )
    for data, error in cases:
        reader = FrameReader(RAFT_FRAMES)
        found = feed(reader, header + message, piece=100)
        assert found == [frame(1_000)]
        with pytest.raises(error):
            feed(reader, data, piece=1 << 30)


def test_large_first_frame_of_an_unknown_peer_reserves_no_memory() -> None:
    with pytest.raises(InvalidRequest, match=str(FIRST_FRAME_BYTES_MAX)):
        feed(FrameReader(RAFT_FRAMES), pack(">II", FIRST_FRAME_BYTES_MAX + 1, 0), piece=8)


def test_a_frame_over_the_bound_is_not_encoded() -> None:
    with pytest.raises(MessageTooLarge):
        encode_frame(frame(FRAME_BYTES_MAX))
