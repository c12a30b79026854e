"""The compiled and the plain twin place the same produce requests, byte for byte."""

import re
from struct import pack
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from quorumlog.native import _plain_produce as plain
from quorumlog.records import Codec, Record, encode_batch
from quorumlog.records.checksum import crc32c
from quorumlog.records.compression import compress

compiled: Any = pytest.importorskip("quorumlog.native._produce", exc_type=ImportError)

NOW_MS = 1_000_000
KNOWN = {7: (3, -1, 0, -1), 8: (0, -1, 2**31 - 2, -1), 9: (0, -1, 0, 4)}
"""Producers by id: epoch, coordinator epoch, next sequence, first offset of the transaction."""


class Batch(NamedTuple):
    """A batch before it is encoded."""

    values: list[bytes]
    producer: int
    ms: int = NOW_MS
    epoch_step: int = 0  # added to the producer's epoch
    gap: int = 0  # added to its next sequence
    kind: str = "plain"
    has_keys: bool = True


class Request(NamedTuple):
    """A request before it is encoded."""

    version: int
    acks: int
    parts: dict[int, Batch]  # by partition
    title: bytes = b"t"
    client_id: bytes | None = b"client"
    transactional_id: bytes | None = None
    oddity: str = ""


CODECS = {codec.name.lower(): codec for codec in Codec}
CODEC_BITS = {"codec 5": 5, "no frame": Codec.ZSTD}
OTHER_BITS = {"append time": 0x08, "control": 0x20, "horizon": 0x40, "unused": 0x80}
UNUSUAL_BATCHES: list[dict[str, Any]] = [
    *({"kind": kind} for kind in ("crc", "transactional", "cut", "two", "none")),
    *({"kind": kind} for kind in ("codec 5", "no frame", "lz4 records")),
    *({"kind": kind} for kind in OTHER_BITS),
    *({"gap": gap} for gap in (1, -1)),
    *({"epoch_step": step} for step in (1, -1)),
    *({"ms": ms} for ms in (NOW_MS + 2, NOW_MS + 3, NOW_MS - 101, NOW_MS + 10**6, -1)),
    *({"producer": producer} for producer in (9, 10)),
    {"has_keys": False},
    {"values": [bytes(500)]},
]
UNUSUAL_REQUESTS: list[dict[str, Any]] = [
    *({"version": version} for version in (2, 14)),
    *({"acks": acks} for acks in (0, 1, -1, 2)),
    *({"title": title} for title in (b"topic-" * 30, b"unknown", b"")),
    *({"client_id": name} for name in (None, b"", b"\xff", b"c" * 1_024, b"c" * 1_025)),
    *({"transactional_id": name} for name in (b"", b"id")),
    *({"oddity": what} for what in ("tags", "behind", "key", "no topics", "size", "twice")),
    *({"oddity": f"varint of {size} bytes"} for size in (2, 5, 6)),
    {"parts": {}},
]

batches = st.tuples(
    st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    st.sampled_from([-1, 7, 7, 8]),
    st.sampled_from([NOW_MS, NOW_MS + 1, NOW_MS - 5]),
    st.sampled_from(["plain", "plain", "gzip", "snappy", "lz4", "zstd"]),
).map(lambda fields: Batch(*fields[:3], kind=fields[3]))


@st.composite
def unusual(draw: st.DrawFn, usual: Request) -> Request:
    """Return a request that differs from a usual one in one field, or one of its batches does."""
    if draw(st.booleans()):
        return usual._replace(**draw(st.sampled_from(UNUSUAL_REQUESTS)))
    partition = draw(st.sampled_from(sorted(usual.parts)))
    batch = usual.parts[partition]._replace(**draw(st.sampled_from(UNUSUAL_BATCHES)))
    return usual._replace(parts={**usual.parts, partition: batch})


@st.composite
def requests_of(draw: st.DrawFn) -> list[Request]:
    """Return usual requests with the same acks, often with an unusual one."""
    acks = draw(st.sampled_from([1, 1, -1, 0]))
    parts = st.dictionaries(st.integers(0, 2), batches, min_size=1, max_size=3)
    fields = st.tuples(st.integers(3, 13), st.just(acks), parts)
    asked = [Request(*each) for each in draw(st.lists(fields, min_size=1, max_size=7))]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(asked) - 1))
        asked[at] = draw(unusual(asked[at]))
    return asked


def varint(value: int, least: int = 1) -> bytes:
    """Return a varint of at least so many bytes; five are valid."""
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < least:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


Sequences = dict[tuple[int, int], int]
"""The next sequence of a partition's producer."""


def records_of(partition: int, batch: Batch, sequences: Sequences) -> bytes | None:
    """Return the encoded batch, and count its sequence."""
    if batch.kind == "none":
        return None
    is_known = batch.producer >= 0
    epoch, _, first, _ = KNOWN.get(batch.producer, (0, -1, 0, -1))
    first = sequences.get((partition, batch.producer), first)
    sequences[partition, batch.producer] = (first + len(batch.values)) & 0x7FFFFFFF
    content = encode_batch(
        [
            Record(at, batch.ms, b"key" if batch.has_keys else None, value)
            for at, value in enumerate(batch.values)
        ],
        codec=CODECS.get(batch.kind, Codec.NONE),
        producer_id=batch.producer,
        producer_epoch=max(0, epoch + batch.epoch_step) if is_known else -1,
        base_sequence=max(0, first + batch.gap) if is_known else -1,
        is_transactional=batch.kind == "transactional" and is_known,
    )
    if batch.kind == "crc":
        return content[:-1] + bytes([content[-1] ^ 1])
    if batch.kind in CODEC_BITS:  # the records cannot be decompressed
        return sealed(content, CODEC_BITS[batch.kind], content[61:])
    if batch.kind in OTHER_BITS:
        return sealed(content, OTHER_BITS[batch.kind], content[61:])
    if batch.kind == "lz4 records":  # they decompress to other bytes
        return sealed(content, Codec.LZ4, compress(Codec.LZ4, content[61:-1]))
    return {"cut": content[:-1], "two": content * 2}.get(batch.kind, content)


def sealed(batch: bytes, codec: int, records: bytes) -> bytes:
    """Return the batch with other records of a codec, and a valid size and CRC."""
    checked = pack(">h", codec) + batch[23:61] + records
    size, crc = pack(">i", 49 + len(records)), pack(">I", crc32c(checked))
    return batch[:8] + size + batch[12:17] + crc + checked


def frame_of(request: Request, number: int, sequences: Sequences) -> bytes:
    """Return a request with its size."""
    flexible = request.version >= 9
    padded = re.fullmatch(r"varint of (\d) bytes", request.oddity)
    least = int(padded[1]) if padded else 1

    def string(value: bytes | None) -> bytes:
        if flexible:
            return varint(0 if value is None else len(value) + 1) + (value or b"")
        return pack(">h", -1 if value is None else len(value)) + (value or b"")

    def count(value: int) -> bytes:
        return varint(value + 1, least) if flexible else pack(">i", value)

    tags = (b"\1\0\0" if request.oddity == "tags" else b"\0") if flexible else b""
    title = request.title.ljust(16, b"-")[:16] if request.version >= 13 else string(request.title)
    parts = []
    for partition, batch in request.parts.items():
        records = records_of(partition, batch, sequences)
        size = varint(len(records) + 1) if flexible and records is not None else b"\0"
        if not flexible:
            size = pack(">i", -1 if records is None else len(records))
        parts.append(pack(">i", partition) + size + (records or b"") + tags)
    if request.oddity == "twice":
        parts.append(parts[0])
    topics = count(1) + title + count(len(parts)) + b"".join(parts) + tags
    client_id = request.client_id
    head = pack(">hhi", 1 if request.oddity == "key" else 0, request.version, number)
    head += pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"") + tags
    body = string(request.transactional_id) + pack(">hi", request.acks, 30_000)
    body += (count(0) if request.oddity == "no topics" else topics) + tags
    frame = head + body + (b"?" if request.oddity == "behind" else b"")
    return pack(">i", 3 if request.oddity == "size" else len(frame)) + frame


def begun(twin: Any, entry_of: Any, limits: dict[str, int], *, keys_required: bool = False) -> Any:
    """Return a tail at offset 1,000 in leader epoch 5."""
    tail = twin.RunTail(
        entry_of,
        entry_of,
        batch_bytes_max=limits["batch"],
        keys_required=keys_required,
        takes_compressed=bool(limits["compressed"]),
        position_max=limits["position_max"],
        offset_max=1_000 + limits["offsets"],
        index_base=900,
        interval_bytes=limits["interval"],
    )
    begin(tail, limits, next_offset=1_000)
    return tail


def begin(tail: Any, limits: dict[str, int], *, next_offset: int) -> None:
    tail.begin(
        next_offset, 4_096, 5, 17, limits["bytes_max"], NOW_MS - 100, NOW_MS + 100, NOW_MS + 2,
        limits["entries"], limits["since"], 40, 950, 39,
    )  # fmt: skip


def end_of(tail: Any) -> tuple[Any, ...]:
    """Return the whole state of a tail after a run."""
    return (
        (tail.base_offset, tail.next_offset, tail.position, tail.size, tail.count),
        (tail.log_start_offset, tail.max_timestamp, tail.max_timestamp_offset),
        (tail.bytes_since_entry, tail.index_entries(), tail.has_producers, tail.producers()),
        [bytes(view) for view in tail.take_buffers()],
    )


def play(twin: Any, content: bytes, limits: dict[str, int], *, is_large: bool) -> list[Any]:
    """Return the result of a run of one twin, with the calls that it makes."""
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
            tails[partition] = begun(twin, entry_of, limits, keys_required=partition == 2)
        return tails[partition]

    run = twin.ProduceRun(find, limits["frame"], limits["count"], limits["inflated"])
    buffer = memoryview(bytearray(content))
    taken: Any = run.take_frame(buffer[4:]) if is_large else run.take(buffer, 0, len(buffer))
    order = {id(tail): partition for partition, tail in tails.items()}
    placed = [
        (number, version, [(title, [(p, order[id(t)], o) for p, t, o in parts])
                           for title, parts in topics])
        for number, version, topics in run.requests()
    ]  # fmt: skip
    ends = [(order[id(tail)], *end_of(tail)) for tail in run.tails]
    counts = (taken, run.count, run.size, run.acks, run.timeout_ms, run.responses)
    return [counts, placed, ends, bytes(buffer), calls]


USUAL = {"position_max": 1 << 30, "offsets": 1 << 20, "interval": 100, "bytes_max": 1 << 20}
USUAL |= {"entries": 1 << 20, "since": 0, "frame": 1 << 20, "count": 100}
USUAL |= {"compressed": 1, "inflated": 1 << 20, "batch": 400}
LARGE = {**USUAL, "batch": 1 << 20}  # the GIL is released for the check of a large batch
LIMITS = [
    USUAL,
    *(
        {**USUAL, name: value}
        for name, values in {
            "position_max": [4_096 + 150, 4_096 + 400],
            "offsets": [2, 6],
            "interval": [0, 4_096],
            "bytes_max": [100, 400],
            "entries": [0, 2],
            "since": [150],
            "frame": [150, 300],
            "count": [2],
            "compressed": [0],
            "inflated": [0, 120, 600],
        }.items()
        for value in values
    ),
]
limits_of = st.one_of(st.just(USUAL), st.sampled_from(LIMITS))


@settings(max_examples=300, deadline=None)
@given(
    requests_of(),
    limits_of,
    st.one_of(st.just(0), st.integers(0, 12)),
    st.one_of(
        st.just([]), st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), max_size=2)
    ),
    st.booleans(),
)
def test_both_twins_place_the_same_requests(
    asked: list[Request],
    limits: dict[str, int],
    cut: int,
    changes: list[tuple[int, int]],
    is_large: bool,
) -> None:
    sequences: Sequences = {}
    frames = [frame_of(one, number, sequences) for number, one in enumerate(asked)]
    content = bytearray(frames[0] if is_large else b"".join(frames))
    for at, value in changes:
        content[at % len(content)] = value
    content = content[: max(8, len(content) - cut)]
    first = play(compiled, bytes(content), limits, is_large=is_large)
    event(f"{first[0][1]} placed")
    assert first == play(plain, bytes(content), limits, is_large=is_large)


def variants(usual: Request) -> list[Request]:
    """Return the requests that differ from a usual one in one field, itself or its batch."""
    batch = usual.parts[0]
    return [
        *(usual._replace(**change) for change in UNUSUAL_REQUESTS),
        *(usual._replace(parts={0: batch._replace(**change)}) for change in UNUSUAL_BATCHES),
    ]


@pytest.mark.parametrize("version", [3, 5, 8, 9, 13])
@pytest.mark.parametrize("producer", [-1, 7, 8])
def test_both_twins_end_a_run_at_the_same_request(version: int, producer: int) -> None:
    batch = Batch([b"first", b"second"], producer)
    usual = Request(version, 1, {0: batch})
    taken = []
    for unusual_one in variants(usual):
        sequences: Sequences = {}
        asked = [usual, unusual_one, usual._replace(parts={1: batch}), usual]
        content = b"".join(frame_of(one, at, sequences) for at, one in enumerate(asked))
        for limits in LIMITS:
            first = play(compiled, content, limits, is_large=False)
            assert first == play(plain, content, limits, is_large=False)
            taken.append(first[0][1])
    assert set(taken) >= {0, 1, 4}


@pytest.mark.parametrize("change", [{}, *UNUSUAL_BATCHES])
def test_large_batches_are_checked_like_small_ones(change: dict[str, Any]) -> None:
    """From 64 KiB on the check runs without the GIL."""
    batch = Batch([bytes(70_000)], 7)._replace(**change)
    asked = Request(9, 1, {2: batch, 1: batch})
    first = play(compiled, frame_of(asked, 0, {}), LARGE, is_large=True)
    assert first == play(plain, frame_of(asked, 0, {}), LARGE, is_large=True)
    content, _ = answer_of([Copied(batch)])
    assert copy(compiled, content, LARGE) == copy(plain, content, LARGE)


@pytest.mark.parametrize("twin", [compiled, plain], ids=["compiled", "plain"])
@pytest.mark.parametrize("kind", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_placed_until_they_inflate_too_far(twin: Any, kind: str) -> None:
    batch = Batch([bytes(800), b"second"], 7, kind=kind)
    size = len(records_of(0, batch._replace(kind="plain"), {}) or b"") - 61
    sequences: Sequences = {}
    frames = [frame_of(Request(9, 1, {0: batch}), at, sequences) for at in range(5)]
    placed = {
        limit: play(twin, b"".join(frames), {**USUAL, "inflated": limit}, is_large=False)[0][1]
        for limit in (0, size - 1, size, 3 * size - 1, 5 * size)
    }
    assert list(placed.values()) == [0, 0, 1, 2, 5]


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([3, 8, 9, 13]))
def test_a_truncated_request_changes_nothing(data: st.DataObject, version: int) -> None:
    whole = frame_of(Request(version, 1, {0: Batch([b"value"], 7)}), 1, {})
    limits = USUAL
    assert play(compiled, whole, limits, is_large=False)[0][1] == 1
    size = data.draw(st.integers(8, len(whole) - 5))
    claimed = pack(">i", size) + whole[4 : 4 + size]
    for twin in (compiled, plain):
        counts, placed, ends, left, _ = play(twin, claimed, limits, is_large=False)
        assert (counts[:2], placed, left) == ((0, 0), [], claimed)
        assert all(end[1][4] == 0 for end in ends)


# --- batches of a leader --------------------------------------------------------------------------


class Copied(NamedTuple):
    """A batch as its leader has stored it."""

    batch: Batch
    offset_step: int = 0  # added to its base offset
    leader_epoch: int = 5
    is_control: bool = False


usual_copies = batches.map(Copied)


def odd_copies(usual: Copied) -> list[Copied]:
    """Return the batches that differ from a usual one so that they are not placed."""
    odd: list[dict[str, Any]] = [
        *({"kind": kind} for kind in ("crc", "transactional")),
        *({"ms": ms} for ms in (NOW_MS + 3, -1)),
        *({"producer": producer} for producer in (9, 10)),
        *({"gap": gap, "producer": 7} for gap in (1, 2)),
        *({"epoch_step": step, "producer": 7} for step in (1, -1)),
    ]
    found = [usual._replace(batch=usual.batch._replace(**change)) for change in odd]
    found += [usual._replace(offset_step=step) for step in (1, -1)]
    found += [usual._replace(leader_epoch=epoch) for epoch in (4, 6)]
    return [*found, usual._replace(is_control=True)]


def answer_of(copies: list[Copied]) -> tuple[bytes, list[int]]:
    """Return stored batches, one after the other, and the position after each."""
    sequences: Sequences = {}
    content, ends, next_offset = bytearray(), [], 1_000
    for copied in copies:
        stored = bytearray(records_of(0, copied.batch, sequences) or b"")
        stored[:8] = pack(">q", next_offset + copied.offset_step)
        stored[12:16] = pack(">i", copied.leader_epoch)
        if copied.is_control:
            stored[22] |= 0x20
            stored[17:21] = pack(">I", crc32c(stored[21:]))
        content += stored
        ends.append(len(content))
        next_offset += len(copied.batch.values)
    return bytes(content), ends


def copy(twin: Any, content: bytes, limits: dict[str, int]) -> list[Any]:
    """Return the result of one twin for the batches of a leader, with the calls that it makes."""
    calls: list[Any] = []

    def entry_of(producer_id: int) -> tuple[int, ...] | None:
        calls.append(producer_id)
        return KNOWN.get(producer_id)

    tail = begun(twin, entry_of, limits)
    return [tail.place_replicated(memoryview(content)), *end_of(tail), calls]


def copy_again(twin: Any, content: bytes, limits: dict[str, int]) -> list[Any]:
    """Return all that a tail gives that begins again after these batches, with the same ones."""
    tail = begun(twin, KNOWN.get, limits)
    tail.place_replicated(memoryview(content))
    begin(tail, limits, next_offset=1_000)
    fresh = end_of(tail)
    return [fresh, tail.place_replicated(memoryview(content)), *end_of(tail)]


@settings(max_examples=300, deadline=None)
@given(st.data(), st.lists(usual_copies, min_size=1, max_size=7), limits_of)
def test_both_twins_place_the_same_batches_of_a_leader(
    data: st.DataObject, copies: list[Copied], limits: dict[str, int]
) -> None:
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(copies) - 1))
        copies[at] = data.draw(st.sampled_from(odd_copies(copies[at])))
    content, _ = answer_of(copies)
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(0, 2))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    changed = changed[: data.draw(st.one_of(st.just(len(changed)), st.integers(0, len(changed))))]
    first = copy(compiled, bytes(changed), limits)
    event(f"{first[1][4]} of {len(copies)} placed")
    assert first == copy(plain, bytes(changed), limits)
    again = copy_again(compiled, bytes(changed), limits)
    assert again == copy_again(plain, bytes(changed), limits)
    assert again[1:] == first[:-1]


@pytest.mark.parametrize("twin", [compiled, plain], ids=["compiled", "plain"])
@pytest.mark.parametrize("producer", [-1, 7])
def test_usual_batches_of_a_leader_are_placed_unchanged(twin: Any, producer: int) -> None:
    """Also compressed ones, without keys, and larger than a client may send."""
    large = Batch([bytes(500)], producer)
    same = [Copied(Batch([b"1"], producer, kind="lz4")), Copied(large._replace(has_keys=False))]
    content, _ = answer_of([Copied(Batch([b"1", b"2"], producer)), *same])
    placed, ends, _, _, buffers, _ = copy(twin, content, USUAL)
    assert (placed, ends) == (len(content), (1_000, 1_004, 4_096, len(content), 3))
    assert buffers == [content]


@pytest.mark.parametrize("twin", [compiled, plain], ids=["compiled", "plain"])
@pytest.mark.parametrize("number", range(len(odd_copies(Copied(Batch([b"1"], 7))))))
def test_batches_are_placed_up_to_the_first_odd_one(twin: Any, number: int) -> None:
    usual = Copied(Batch([b"first", b"second"], 7))
    content, ends = answer_of([usual, odd_copies(usual)[number], usual])
    placed, counts, _, _, buffers, _ = copy(twin, content, USUAL)
    assert (placed, counts[4], buffers) == (ends[0], 1, [content[: ends[0]]])


def test_both_twins_have_the_same_limits() -> None:
    for name, number in compiled.NUMBERS.items():
        assert getattr(plain, name) == number, name
