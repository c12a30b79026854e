"""The compiled and the plain twin place the same produce requests, byte for byte."""

from struct import pack
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.native import _plain_produce as plain
from quorumlog.records import Codec, Record, encode_batch

compiled: Any = pytest.importorskip("quorumlog.native._produce", exc_type=ImportError)

NOW_MS = 1_000_000
KNOWN = {7: (3, -1, 0, -1), 8: (0, -1, 2**31 - 2, -1), 9: (0, -1, 0, 4)}
"""Producers by id: epoch, coordinator epoch, next sequence, first offset of the transaction."""

Title = tuple[bool, bytes, int]


class Batch(NamedTuple):
    """A batch before it is encoded."""

    values: list[bytes]
    producer: int
    epoch: int
    gap: int  # added to the next sequence
    kind: str
    ms: int


class Part(NamedTuple):
    """One partition of a request."""

    partition: int
    batch: Batch


class Request(NamedTuple):
    """A request before it is encoded."""

    version: int
    acks: int
    title: bytes
    parts: list[Part]
    client_id: bytes | None
    transactional_id: bytes | None
    oddity: str


batches = st.builds(
    Batch,
    st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    st.sampled_from([-1, -1, 7, 7, 7, 8, 9, 10]),
    st.sampled_from([0, 3, 3, 3]),
    st.sampled_from([0, 0, 0, 0, 1, -1]),
    st.sampled_from(["plain"] * 12 + ["lz4", "crc", "transactional", "cut", "two", "none"]),
    st.sampled_from([NOW_MS, NOW_MS, NOW_MS + 5, NOW_MS - 5, NOW_MS + 10**6, -1]),
)
requests = st.builds(
    Request,
    st.sampled_from([3, 5, 7, 8, 9, 9, 11, 12, 13, 2, 14]),
    st.sampled_from([1, 1, 1, -1, 0, 2]),
    st.sampled_from([b"t", b"t", b"topic-" * 30, b"unknown", b""]),
    st.lists(st.builds(Part, st.integers(0, 2), batches), max_size=3),
    st.sampled_from([b"client", None, b"", b"\xff", b"c" * 1_025]),
    st.sampled_from([None, None, None, None, None, b"", b"id"]),
    st.sampled_from(["", "", "", "", "", "tags", "behind", "key", "no topics", "size"]),
)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def records_of(batch: Batch, sequences: dict[int, int]) -> bytes | None:
    """Return the encoded batch, and count its sequence."""
    first = -1 if batch.producer < 0 else sequences.get(batch.producer, 0)
    sequences[batch.producer] = (first + len(batch.values)) & 0x7FFFFFFF
    if batch.kind == "none":
        return None
    content = encode_batch(
        [Record(at, batch.ms, None, value) for at, value in enumerate(batch.values)],
        codec=Codec.LZ4 if batch.kind == "lz4" else Codec.NONE,
        producer_id=batch.producer,
        producer_epoch=batch.epoch if batch.producer >= 0 else -1,
        base_sequence=max(0, first + batch.gap) if batch.producer >= 0 else -1,
        is_transactional=batch.kind == "transactional" and batch.producer >= 0,
    )
    if batch.kind == "crc":
        return content[:-1] + bytes([content[-1] ^ 1])
    return {"cut": content[:-1], "two": content * 2}.get(batch.kind, content)


def frame_of(request: Request, number: int, sequences: dict[int, int]) -> bytes:
    """Return a request with its size."""
    flexible = request.version >= 9

    def string(value: bytes | None) -> bytes:
        if flexible:
            return varint(0 if value is None else len(value) + 1) + (value or b"")
        return pack(">h", -1 if value is None else len(value)) + (value or b"")

    def count(value: int) -> bytes:
        return varint(value + 1) if flexible else pack(">i", value)

    tags = (b"\1\0\0" if request.oddity == "tags" else b"\0") if flexible else b""
    title = request.title.ljust(16, b"-")[:16] if request.version >= 13 else string(request.title)
    parts = b""
    for part in request.parts:
        records = records_of(part.batch, sequences)
        size = varint(len(records) + 1) if flexible and records is not None else b"\0"
        if not flexible:
            size = pack(">i", -1 if records is None else len(records))
        parts += pack(">i", part.partition) + size + (records or b"") + tags
    topics = count(1) + title + count(len(request.parts)) + parts + tags
    client_id = request.client_id
    head = pack(">hhi", 1 if request.oddity == "key" else 0, request.version, number)
    head += pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"") + tags
    body = string(request.transactional_id) + pack(">hi", request.acks, 30_000)
    body += (count(0) if request.oddity == "no topics" else topics) + tags
    frame = head + body + (b"?" if request.oddity == "behind" else b"")
    return pack(">i", 3 if request.oddity == "size" else len(frame)) + frame


def play(twin: Any, content: bytes, limits: dict[str, int], *, is_large: bool) -> list[Any]:
    """Return all that a run of one twin gives, with the calls that it makes."""
    calls: list[Any] = []

    def entry_of(producer_id: int) -> tuple[int, ...] | None:
        calls.append(producer_id)
        return KNOWN.get(producer_id)

    tails: dict[int, Any] = {}

    def find(acks: int, by_id: bool, title: bytes, partition: int) -> Any:
        calls.append((acks, by_id, title, partition))
        if title.startswith(b"unknown"):
            return None
        if partition not in tails:
            tails[partition] = twin.LogTail(
                calls,
                entry_of,
                batch_bytes_max=400,
                keys_required=partition == 2,
                position_max=limits["position_max"],
                offset_max=1_000 + limits["offsets"],
                index_base=900,
                interval_bytes=limits["interval"],
            )
            tails[partition].begin(
                1_000, 4_096, 5, 17, limits["bytes_max"], NOW_MS - 100, NOW_MS + 100, NOW_MS + 2,
                limits["entries"], limits["since"], 40, 950, 39,
            )  # fmt: skip
        return tails[partition]

    run = twin.ProduceRun(find, limits["frame"], limits["count"])
    buffer = memoryview(bytearray(content))
    taken: Any = run.take_frame(buffer[4:]) if is_large else run.take(buffer, 0, len(buffer))
    order = {id(tail): partition for partition, tail in tails.items()}
    placed = [
        (number, version, [(title, [(p, order[id(t)], o) for p, t, o in parts])
                           for title, parts in topics])
        for number, version, topics in run.requests()
    ]  # fmt: skip
    ends = [
        (
            order[id(tail)],
            (tail.base_offset, tail.next_offset, tail.position, tail.size, tail.count),
            (tail.log_start_offset, tail.max_timestamp, tail.max_timestamp_offset),
            (tail.bytes_since_entry, tail.index_entries(), tail.has_producers, tail.producers()),
            [bytes(view) for view in tail.buffers],
        )
        for tail in run.tails
    ]
    counts = (taken, run.count, run.size, run.acks, run.timeout_ms, run.responses)
    return [counts, placed, ends, bytes(buffer), calls]


limits_of = st.fixed_dictionaries(
    {
        "position_max": st.sampled_from([1 << 30, 5_000]),
        "offsets": st.sampled_from([1 << 20, 6]),
        "interval": st.sampled_from([0, 100, 4_096]),
        "bytes_max": st.sampled_from([1 << 20, 700]),
        "entries": st.sampled_from([1 << 20, 2, 0]),
        "since": st.sampled_from([0, 150]),
        "frame": st.sampled_from([1 << 20, 300]),
        "count": st.sampled_from([100, 2]),
    }
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(requests, min_size=1, max_size=6),
    limits_of,
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=2),
    st.booleans(),
)
def test_both_twins_place_the_same_requests(
    asked: list[Request],
    limits: dict[str, int],
    cut: int,
    changes: list[tuple[int, int]],
    is_large: bool,
) -> None:
    sequences = {producer: entry[2] for producer, entry in KNOWN.items()}
    frames = [frame_of(one, number, sequences) for number, one in enumerate(asked)]
    content = bytearray(frames[0] if is_large else b"".join(frames))
    for at, value in changes:
        content[at % len(content)] = value
    content = content[: max(8, len(content) - cut)]
    first = play(compiled, bytes(content), limits, is_large=is_large)
    assert first == play(plain, bytes(content), limits, is_large=is_large)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([3, 8, 9, 13]))
def test_a_request_that_is_cut_anywhere_changes_nothing(data: st.DataObject, version: int) -> None:
    batch = Batch([b"value"], 7, 3, 0, "plain", NOW_MS)
    sequences = {7: 0}
    whole = frame_of(Request(version, 1, b"t", [Part(0, batch)], b"c", None, ""), 1, sequences)
    limits = {"position_max": 1 << 30, "offsets": 100, "interval": 0, "bytes_max": 1 << 20}
    limits |= {"entries": 10, "since": 0, "frame": 1 << 20, "count": 10}
    assert play(compiled, whole, limits, is_large=False)[0][1] == 1
    size = data.draw(st.integers(8, len(whole) - 5))
    claimed = pack(">i", size) + whole[4 : 4 + size]
    for twin in (compiled, plain):
        counts, placed, ends, left, _ = play(twin, claimed, limits, is_large=False)
        assert (counts[:2], placed, left) == ((0, 0), [], claimed)
        assert all(end[1][4] == 0 for end in ends)


def test_both_twins_have_the_same_limits() -> None:
    for name, number in compiled.NUMBERS.items():
        assert getattr(plain, name) == number, name
