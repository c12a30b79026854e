"""Frames between followers and leaders are decoded from chunks of any size."""

from collections.abc import Iterable
from struct import Struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.broker.replication_frames import (
    FIRST_FRAME_BYTES_MAX,
    ReplicationFrame,
    ReplicationFrameFormat,
    encode_frame,
)
from quorumlog.errors import CorruptionError, InvalidRequest, QuorumlogError, StreamBroken
from quorumlog.proto import replica_pb2 as pb
from quorumlog.runtime.frame_stream import BUFFER_BYTES, FrameReader


def reader(*, is_unidentified: bool = False) -> FrameReader[ReplicationFrame[pb.FollowResponse]]:
    frames = ReplicationFrameFormat(pb.FollowResponse, is_unidentified=is_unidentified)
    return FrameReader(frames)


def encoded(partition: int, records: bytes) -> bytes:
    message = pb.FollowResponse(
        results=[pb.FollowResult(partition=partition, records_len=len(records))]
    )
    return b"".join(encode_frame(message, [records] if records else []))


def feed(
    frames: FrameReader[ReplicationFrame[pb.FollowResponse]], content: bytes, piece: int
) -> list[tuple[int, bytes]]:
    """Feed the bytes in chunks of at most this size. Return the decoded frames."""
    found, at = [], 0
    while at < len(content):
        room = frames.buffer()
        size = min(piece, len(room), len(content) - at)
        room[:size] = content[at : at + size]
        room.release()
        at += size
        for frame in frames.received(size):
            assert isinstance(frame, ReplicationFrame)
            found.append((frame.message.results[0].partition, bytes(frame.records)))
    return found


def records_of(
    frames: Iterable[ReplicationFrame[pb.FollowResponse] | QuorumlogError],
) -> list[memoryview]:
    return [frame.records for frame in frames if isinstance(frame, ReplicationFrame)]


SIZES = (0, 1, 1_000, BUFFER_BYTES - 30, BUFFER_BYTES, 3 * BUFFER_BYTES)


@given(
    sizes=st.lists(st.sampled_from(SIZES), max_size=6),
    piece=st.sampled_from((1_000, 4_096, BUFFER_BYTES, 1 << 20)),
)
def test_frames_of_any_size_round_trip(sizes: list[int], piece: int) -> None:
    sent = [(number, bytes([number]) * size) for number, size in enumerate(sizes)]
    frames = reader()
    assert feed(frames, b"".join(encoded(*each) for each in sent), piece) == sent
    assert not frames.is_within_frame


def test_a_byte_at_a_time_is_enough() -> None:
    assert feed(reader(), encoded(7, b"records"), 1) == [(7, b"records")]


def test_records_stay_as_they_are_while_the_next_frame_arrives() -> None:
    frames = reader()
    kept = []
    for content in (b"a" * 100, b"b" * 100):
        frame = encoded(1, content)
        frames.buffer()[: len(frame)] = frame
        kept += records_of(frames.received(len(frame)))
    assert [bytes(each) for each in kept] == [b"a" * 100, b"b" * 100]


def test_released_memory_is_reused_for_frames_that_fit() -> None:
    frames = reader()
    for size in (3 * BUFFER_BYTES, 2 * BUFFER_BYTES, 4 * BUFFER_BYTES):
        content, at = encoded(1, b"x" * size), 0
        taken: list[memoryview] = []
        while at < len(content):
            room = frames.buffer()
            count = min(len(room), len(content) - at)
            room[:count] = content[at : at + count]
            at += count
            taken += records_of(frames.received(count))
        (records,) = taken
        assert bytes(records) == b"x" * size
        frames.recycle(records)


def test_error_keeps_its_type() -> None:
    frames = reader()
    content = b"".join(frames.format.encode_error(StreamBroken("why")))
    frames.buffer()[: len(content)] = content
    (error,) = frames.received(len(content))
    assert isinstance(error, StreamBroken)


def test_a_changed_byte_of_a_message_is_found() -> None:
    content = bytearray(encoded(7, b""))
    content[-1] ^= 1
    with pytest.raises(CorruptionError, match="CRC-32C"):
        feed(reader(), bytes(content), 1 << 20)


def test_unauthenticated_peer_may_send_small_frames_only() -> None:
    content = encoded(7, bytes(FIRST_FRAME_BYTES_MAX))
    with pytest.raises(InvalidRequest, match="is a node of this cluster"):
        feed(reader(is_unidentified=True), content, 1 << 20)
    assert len(feed(reader(), content, 1 << 20)) == 1


def test_invalid_message_is_refused() -> None:
    head = b"\xff\xff"
    header = Struct(">IIIB").pack(len(head), 0, crc32c(head), 0)
    with pytest.raises(InvalidRequest, match="cannot be parsed"):
        feed(reader(), header + head, 1 << 20)
