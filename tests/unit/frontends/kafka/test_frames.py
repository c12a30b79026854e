"""Frames: cut alike however the bytes come, judged before memory is taken, kept by nobody else."""

import struct
import tracemalloc
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.errors import InvalidRequest
from quorumlog.frontends.kafka.frames import LARGE_BYTES, SCRATCH_BYTES, RequestFrameReader

BYTES_MAX = 1 << 20


def reader(scratch: memoryview | None = None, bytes_max: int = BYTES_MAX) -> RequestFrameReader:
    if scratch is None:
        scratch = memoryview(bytearray(SCRATCH_BYTES))
    return RequestFrameReader(scratch, lambda key: bytes_max)


def feed(frames: RequestFrameReader, data: bytes) -> list[bytes]:
    """Give a reader bytes as a socket would; returns the frames that became whole."""
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
def test_frames_come_out_alike_wherever_the_bytes_are_split(
    sizes: list[int], splits: list[int]
) -> None:
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
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    requests = [[bytes([65 + index]) * size for size in (8, 90, 33) * 10] for index in (0, 1)]
    flows = [framed(*of_one) for of_one in requests]
    sides = [reader(scratch), reader(scratch)]
    found: list[list[bytes]] = [[], []]
    for index, size in turns:
        found[index] += feed(sides[index], flows[index][:size])
        flows[index] = flows[index][size:]
    for index in (0, 1):
        found[index] += feed(sides[index], flows[index])
    assert found == requests


def test_a_frame_outlives_what_is_read_after_it() -> None:
    frames = reader()
    buffer = frames.buffer()
    first = framed(b"a" * 20)
    buffer[: len(first)] = first
    frames.received(len(first))
    kept = frames.next()
    assert kept is not None
    feed(frames, framed(b"b" * 20))
    assert bytes(kept) == b"a" * 20


def test_a_buffer_that_was_asked_for_and_not_filled_loses_nothing() -> None:
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    frames = reader(scratch)
    flow = framed(b"a" * 20)
    assert feed(frames, flow[:7]) == []
    frames.buffer()  # and then there was nothing to read
    scratch[:] = b"x" * SCRATCH_BYTES  # another connection reads
    assert feed(frames, flow[7:]) == [b"a" * 20]


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 7, BYTES_MAX + 1, 0x7FFFFFFF])
def test_a_size_that_no_request_has_is_refused(size: int) -> None:
    with pytest.raises(InvalidRequest):
        feed(reader(), struct.pack(">ih", size, 3))


def test_the_bound_is_that_of_the_frames_key() -> None:
    bounds = {0: 5_000, 3: 100}
    frames = RequestFrameReader(memoryview(bytearray(SCRATCH_BYTES)), bounds.__getitem__)
    assert feed(frames, framed(struct.pack(">h", 0) + bytes(4_998))) != []
    with pytest.raises(InvalidRequest, match="key 3"):
        feed(frames, struct.pack(">ih", 101, 3))


def test_other_protocols_are_told_from_this_one() -> None:
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        with pytest.raises(InvalidRequest, match="Kafka protocol"):
            feed(reader(), greeting)


def test_a_claimed_frame_takes_memory_only_as_bytes_come() -> None:
    """Many claim the largest frame, and send nothing of it: that must not fill the machine."""
    claims = [reader(bytes_max=64 << 20) for _ in range(40)]
    before = _resident_bytes()
    for frames in claims:
        feed(frames, struct.pack(">ih", 64 << 20, 0))
        assert frames.large_bytes == 64 << 20
    assert _resident_bytes() - before < 128 << 20  # of 2.5 GiB that were claimed


def test_a_small_frame_that_has_begun_holds_the_bytes_that_came_and_no_buffer() -> None:
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    readers = [reader(scratch) for _ in range(1_000)]
    tracemalloc.start()
    try:
        for frames in readers:
            feed(frames, struct.pack(">ih", LARGE_BYTES, 3))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1_000 * 1_000


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
