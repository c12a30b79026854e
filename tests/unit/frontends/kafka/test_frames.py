"""Frames are cut from chunks of any size and checked before memory is allocated."""

import struct
import tracemalloc
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.errors import InvalidRequest
from quorumlog.frontends.kafka.frames import (
    LARGE_BYTES,
    LARGE_KEPT_BYTES,
    SCRATCH_BYTES,
    ReadBuffers,
    RequestFrameReader,
)

BYTES_MAX = 1 << 20


def reader(buffers: ReadBuffers | None = None, bytes_max: int = BYTES_MAX) -> RequestFrameReader:
    return RequestFrameReader(buffers or ReadBuffers(), lambda key: bytes_max)


def feed(frames: RequestFrameReader, data: bytes) -> list[bytes]:
    """Feed bytes to a reader as a socket does. Return the completed frames."""
    found = []
    while data:
        buffer = frames.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        frames.received(count)
        while (frame := frames.next()) is not None:
            found.append(bytes(frame))
        frames.keep()
    return found


def framed(*requests: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(request)) + request for request in requests)


@given(
    sizes=st.lists(
        st.one_of(st.integers(8, 300), st.integers(LARGE_BYTES - 4, LARGE_BYTES + 300)),
        min_size=1,
        max_size=6,
    ),
    splits=st.lists(st.integers(1, 70_000), min_size=1, max_size=20),
)
def test_frames_are_equal_for_every_split_of_the_bytes(sizes: list[int], splits: list[int]) -> None:
    requests = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    flow = framed(*requests)
    frames, found, at = reader(), [], 0
    for size in cycle([*splits, 3_000]):
        found += feed(frames, flow[at : at + size])
        at += size
        if at >= len(flow):
            break
    assert found == requests
    assert not frames.is_within_frame


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 200)), min_size=1, max_size=40))
def test_two_connections_never_see_each_others_bytes_in_the_shared_buffer(
    turns: list[tuple[int, int]],
) -> None:
    buffers = ReadBuffers()
    requests = [[bytes([65 + index]) * size for size in (8, 90, 33) * 10] for index in (0, 1)]
    flows = [framed(*of_one) for of_one in requests]
    sides = [reader(buffers), reader(buffers)]
    found: list[list[bytes]] = [[], []]
    for index, size in turns:
        found[index] += feed(sides[index], flows[index][:size])
        flows[index] = flows[index][size:]
    for index in (0, 1):
        found[index] += feed(sides[index], flows[index])
    assert found == requests


def test_frame_stays_valid_after_further_reads() -> None:
    frames = reader()
    buffer = frames.buffer()
    first = framed(b"a" * 20)
    buffer[: len(first)] = first
    frames.received(len(first))
    kept = frames.next()
    assert kept is not None
    feed(frames, framed(b"b" * 20))
    assert bytes(kept) == b"a" * 20


def test_unfilled_buffer_loses_nothing() -> None:
    buffers = ReadBuffers()
    frames = reader(buffers)
    flow = framed(b"a" * 20)
    assert feed(frames, flow[:7]) == []
    frames.buffer()  # and then there was nothing to read
    buffers.scratch[:] = b"x" * SCRATCH_BYTES  # another connection reads
    assert feed(frames, flow[7:]) == [b"a" * 20]


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 7, BYTES_MAX + 1, 0x7FFFFFFF])
def test_invalid_frame_size_is_refused(size: int) -> None:
    with pytest.raises(InvalidRequest):
        feed(reader(), struct.pack(">ih", size, 3))


def test_frame_size_limit_depends_on_the_api_key() -> None:
    bounds = {0: 5_000, 3: 100}
    frames = RequestFrameReader(ReadBuffers(), bounds.__getitem__)
    assert feed(frames, framed(struct.pack(">h", 0) + bytes(4_998))) != []
    with pytest.raises(InvalidRequest, match="key 3"):
        feed(frames, struct.pack(">ih", 101, 3))


def test_other_protocols_are_detected() -> None:
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        with pytest.raises(InvalidRequest, match="Kafka protocol"):
            feed(reader(), greeting)


def test_claimed_frame_takes_memory_only_as_bytes_arrive() -> None:
    """Many connections claim the largest frame and send nothing: that must not fill the memory."""
    claims = [reader(bytes_max=64 << 20) for _ in range(40)]
    before = _resident_bytes()
    for frames in claims:
        feed(frames, struct.pack(">ih", 64 << 20, 0))
        assert frames.large_bytes == 64 << 20
    assert _resident_bytes() - before < 128 << 20  # of 2.5 GiB that were claimed


def test_partial_small_frame_holds_its_bytes_and_no_buffer() -> None:
    buffers = ReadBuffers()
    readers = [reader(buffers) for _ in range(1_000)]
    tracemalloc.start()
    try:
        for frames in readers:
            feed(frames, struct.pack(">ih", LARGE_BYTES, 3))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1_000 * 1_000


def feed_where_it_lies(frames: RequestFrameReader, content: bytes) -> None:
    """Feed one large frame, and cut it after a check, as a produce run does."""
    feed_part(frames, framed(content))
    found = frames.large_frame()
    assert found is not None
    assert bytes(found) == content
    frames.drop_first()
    frames.keep()


def feed_part(frames: RequestFrameReader, data: bytes) -> None:
    """Feed bytes without cutting a complete frame."""
    while data:
        buffer = frames.buffer()
        count = min(len(buffer), len(data), SCRATCH_BYTES // 2)
        buffer[:count] = data[:count]
        data = data[count:]
        if frames.received(count) and data:
            assert frames.next() is None
            frames.keep()


@given(st.lists(st.integers(SCRATCH_BYTES, 4 * SCRATCH_BYTES), min_size=2, max_size=4))
def test_memory_of_a_cut_frame_is_reused_without_its_bytes(sizes: list[int]) -> None:
    buffers = ReadBuffers()
    for number, size in enumerate(sizes):
        feed_where_it_lies(reader(buffers), bytes([number + 1]) * size)
    kept = buffers.take_large(SCRATCH_BYTES)
    assert kept[0] == len(sizes), "the last frame wrote to it"
    assert buffers.take_large(SCRATCH_BYTES)[0] in range(len(sizes))


def test_memory_of_a_frame_in_use_is_not_reused() -> None:
    buffers = ReadBuffers()
    (first,) = feed(reader(buffers), framed(b"a" * SCRATCH_BYTES))
    feed_where_it_lies(reader(buffers), b"b" * SCRATCH_BYTES)
    assert first == b"a" * SCRATCH_BYTES


def test_memory_of_large_frames_is_bounded_and_released() -> None:
    buffers = ReadBuffers()
    ones = [buffers.take_large(4 << 20) for _ in range(6)]
    for one in ones:
        one[:1] = b"x"
        buffers.give_large(one)
    again = [buffers.take_large(4 << 20) for _ in range(6)]
    assert sum(len(one) for one in again if one[0]) == LARGE_KEPT_BYTES
    for one in again:
        buffers.give_large(one)
    buffers.trim()  # all were needed since the start
    buffers.give_large(buffers.take_large(4 << 20))
    buffers.trim()
    assert [buffers.take_large(4 << 20)[0] for _ in range(2)] == [ord("x"), 0]


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
