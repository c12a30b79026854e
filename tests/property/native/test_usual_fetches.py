"""Both codecs of usual Fetch requests read and encode like the general one."""

from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.errors import InvalidRequest
from quorumlog.frontends.kafka.apis.fetch import API
from quorumlog.frontends.kafka.codecs import fetch
from quorumlog.native import _plain_fetch as plain
from quorumlog.records import Record, encode_batch

compiled: Any = pytest.importorskip("quorumlog.native._fetch", exc_type=ImportError)

Part = tuple[int, int, int, int, int]

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
parts_of = st.lists(st.tuples(I32, I32, I64, I32, I32), max_size=3)
topics_of = st.lists(st.tuples(st.text("topic-ä", min_size=1, max_size=8), parts_of), max_size=3)
versions = st.integers(4, 18)


def varint(value: int, least: int = 1) -> bytes:
    """Return a varint of at least so many bytes; five are valid."""
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < least:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def count(value: int, *, flexible: bool, least: int = 1) -> bytes:
    return varint(value + 1, least) if flexible else pack(">i", value)


def title_of(version: int, name: str) -> bytes:
    content = name.encode()
    if version >= 13:
        return content.ljust(16, b"-")[:16]
    if version >= 12:
        return varint(len(content) + 1) + content
    return pack(">h", len(content)) + content


def body_of(
    version: int, head: tuple[int, ...], topics: list[tuple[str, list[Part]]], oddity: str
) -> bytes:
    flexible = version >= 12
    tags = (b"\1\5\0" if oddity == "tags" else b"\0") if flexible else b""
    max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = head
    out = b"" if version >= 15 else pack(">i", 1 if oddity == "replica" else -1)
    out += pack(">iiib", max_wait_ms, min_bytes, max_bytes, isolation)
    if version >= 7:
        out += pack(">ii", session_id, session_epoch)
    least = int(oddity.removeprefix("varint ")) if oddity.startswith("varint ") else 1
    out += count(len(topics), flexible=flexible, least=least)
    for name, parts in topics:
        out += title_of(version, name) + count(len(parts), flexible=flexible)
        for index, leader_epoch, offset, last_epoch, part_bytes in parts:
            out += pack(">i", index) + (pack(">i", leader_epoch) if version >= 9 else b"")
            out += pack(">q", offset) + (pack(">i", last_epoch) if version >= 12 else b"")
            out += (pack(">q", -1) if version >= 5 else b"") + pack(">i", part_bytes) + tags
        out += tags
    if version >= 7:
        out += count(0, flexible=flexible)
    if version >= 11:
        rack = b"r" if oddity == "rack" else b""
        out += (varint(len(rack) + 1) if flexible else pack(">h", len(rack))) + rack
    return out + tags + (b"?" if oddity == "behind" else b"")


def general(version: int, body: bytes) -> Any:
    """Return a request as the general codec reads it, in the form of the compiled one."""
    try:
        read = fetch.read_fetch(version, memoryview(body))
    except InvalidRequest:
        return None
    topics = [
        (topic.topic_id or topic.name.encode(), [tuple(part) for part in topic.parts])
        for topic in read.topics
    ]
    session = (read.session_id, read.session_epoch)
    return (read.max_wait_ms, read.min_bytes, read.max_bytes, read.isolation, *session, topics)


def is_text(title: bytes) -> bool:
    """Return True for a valid name; no topic has another one."""
    try:
        title.decode()
    except UnicodeDecodeError:
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(
    versions,
    st.tuples(I32, I32, I32, st.integers(-128, 127), I32, I32),
    topics_of,
    st.sampled_from(["", "", "", "tags", "replica", "rack", "behind", "varint 5", "varint 6"]),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2),
    st.integers(0, 4),
)
def test_a_usual_request_has_the_fields_that_the_general_codec_reads(
    version: int,
    head: tuple[int, ...],
    topics: list[tuple[str, list[Part]]],
    oddity: str,
    changes: list[tuple[int, int]],
    cut: int,
) -> None:
    content = bytearray(body_of(version, head, topics, oddity))
    for at, value in changes:
        content[at % len(content)] = value
    body = bytes(content[: len(content) - cut])
    usual = compiled.read_fetch(version, body)
    assert plain.read_fetch(version, body) == usual
    if not (oddity or changes or cut) and topics and all(parts for _, parts in topics):
        assert usual is not None
    if usual is not None and (version >= 13 or all(is_text(title) for title, _ in usual[6])):
        assert usual == general(version, body)


@settings(max_examples=300, deadline=None)
@given(versions, topics_of, st.booleans(), st.data())
def test_a_response_has_the_bytes_of_the_general_codec(
    version: int, topics: list[tuple[str, list[Part]]], tells_aborted: bool, data: st.DataObject
) -> None:
    titles = [
        (title_of(version, name) if version >= 13 else name.encode(), parts)
        for name, parts in topics
    ]
    sizes = st.sampled_from([0, 1, 127, 128, 20_000, 2**31 - 2])
    results: list[Any] = [
        (*(data.draw(I64) for _ in range(3)), size, (b"records", size) if size else None)
        for _, parts in topics
        for _ in parts
        for size in (data.draw(sizes),)
    ]
    chunks: list[Any] = [
        fetch.encode_top(
            version, throttle_ms=0, error_code=0, session_id=0, topic_count=len(topics)
        )
    ]
    left = iter(results)
    for title, parts in titles:
        name = "" if version >= 13 else title.decode()
        chunks[-1] += fetch.encode_topic(version, name=name, topic_id=title, part_count=len(parts))
        for part in parts:
            high_watermark, stable, start, size, records = next(left)
            before, behind = fetch.encode_result(
                version,
                fetch.FetchResult(
                    part[0],
                    0,
                    high_watermark,
                    stable,
                    start,
                    [] if tells_aborted else None,
                    -1,
                    size,
                ),
            )
            chunks[-1] += before
            if size:
                chunks += (records, b"")
            chunks[-1] += behind
        chunks[-1] += b"\0" if version >= 12 else b""
    chunks[-1] += fetch.encode_end(version)
    assert compiled.encode_fetch(version, titles, results, tells_aborted) == chunks
    assert plain.encode_fetch(version, titles, results, tells_aborted) == chunks


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whole_batches_end_before_the_offset_and_the_end_of_the_window(data: st.DataObject) -> None:
    offset, window, ends = data.draw(st.integers(0, 1_000)), b"", [(0, -1)]
    for count in data.draw(st.lists(st.integers(1, 5), max_size=5)):
        window += encode_batch([Record(0, 1, None, b"v")] * count, base_offset=offset)
        offset += count
        ends.append((len(window), offset))
    end_offset = data.draw(st.integers(0, offset + 1))
    size = data.draw(st.integers(0, len(window)))
    expected = max(end for end in ends if end[0] <= size and end[1] <= end_offset)
    for codec in (compiled, plain):
        assert codec.whole_batches(window[:size], end_offset) == expected


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whole_batches_of_changed_bytes_are_those_of_the_plain_twin(data: st.DataObject) -> None:
    record = Record(0, 1, None, b"v")
    window = bytearray(encode_batch([record] * 2) + encode_batch([record], base_offset=2))
    for _ in range(data.draw(st.integers(1, 4))):
        # the fields that are read: base offset, length, last offset delta
        at = data.draw(st.sampled_from([*range(12), *range(23, 27)]))
        window[at] = data.draw(st.integers(0, 255))
    end_offset = data.draw(st.sampled_from([0, 1, 2**40, 2**63 - 1]))
    found = compiled.whole_batches(window, end_offset)
    assert found == plain.whole_batches(window, end_offset)
    assert 0 <= found[0] <= len(window)


def test_both_codecs_have_the_same_versions() -> None:
    for name, number in compiled.NUMBERS.items():
        assert getattr(plain, name) == number, name
    assert (plain.FLEXIBLE, plain.BY_ID) == (fetch.FLEXIBLE, fetch.BY_ID)
    assert (API.low, API.high) == (plain.VERSION_MIN, plain.VERSION_MAX)
