"""The sizes that a request claims are checked before its decoder allocates memory."""

import struct
from random import Random
from typing import Any

import pytest
from tests.kit.kafka_client import body_of

from quorumlog.errors import InvalidRequest
from quorumlog.frontends.kafka import messages
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.request_limits import (
    ELEMENTS_MAX,
    RequestCut,
    step_over,
    walk_message,
)

from .any_request import OFFERED, any_message, bytes_of, schema_of

METADATA, API_VERSIONS, CREATE_TOPICS = 3, 18, 19
SAID = {"client_software_name": "a", "client_software_version": "b"}


def decoded(key: int, version: int, body: bytes) -> Any:
    (api,) = (api for api in APIS if api.key == key)
    frame = memoryview(b"head" + body)
    walk = messages.check_lengths(api, version, frame, 4)
    return messages.decode(api, version, frame, 4, walk)


@pytest.mark.slow
def test_every_offered_request_is_walked_to_its_very_end() -> None:
    """The check and the schema decoder agree about the end of a message."""
    random = Random(7)
    for key, version in OFFERED:
        step = step_over(schema_of(key, version))
        for _ in range(8):
            body = bytes_of(any_message(schema_of(key, version), random))
            walk = walk_message(step, memoryview(body), 0)
            assert walk.cuts == []
            for size in (len(body) - 1, len(body) // 2):
                if size >= 0 and size != len(body):
                    with pytest.raises(InvalidRequest):
                        walk_message(step, memoryview(body[:size]), 0)
            longer = walk_message(step, memoryview(body + b"\0\1"), 0)
            assert longer.cuts == [RequestCut(len(body), len(body) + 2, b"")]


def test_walk_covers_the_decoded_bytes() -> None:
    random = Random(8)
    for key, version in OFFERED:
        message = any_message(schema_of(key, version), random)
        assert decoded(key, version, bytes_of(message)) == message


def test_bytes_behind_a_request_are_not_read() -> None:
    """librdkafka 2.16 requests all topics with an array of the old encoding in a compact field."""
    all_topics = decoded(METADATA, 13, bytes(7))
    assert all_topics == decoded(METADATA, 13, bytes(4))
    assert all_topics.topics is None


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, struct.pack(">i", 0x7FFFFFFF)),
        (1, struct.pack(">i", 1_000_000) + b"\0\0"),
        (9, b"\xff\xff\xff\xff\x0f" + bytes(20)),  # 2**32 - 2: kills the process in the decoder
        (9, b"\xff\xff\xff\xff\xff\x0f" + bytes(20)),
        (9, b"\x80\x80\x80\x80\x08" + bytes(20)),
    ],
)
def test_an_array_longer_than_its_frame_is_refused_before_it_is_read(
    version: int, body: bytes
) -> None:
    with pytest.raises(InvalidRequest, match="Metadata request of version"):
        decoded(METADATA, version, body)


def test_arrays_of_a_request_may_not_have_too_many_elements_together() -> None:
    """Also if the frame has space for them: each element becomes an object."""
    empty_names = struct.pack(">i", ELEMENTS_MAX + 1) + bytes(2 * (ELEMENTS_MAX + 1))
    with pytest.raises(InvalidRequest, match=f"{ELEMENTS_MAX + 1} elements"):
        decoded(METADATA, 0, empty_names)
    # A topic without name and counts, with one assignment of so many replicas, and no configs.
    replicas = struct.pack(">i", 20_000) + bytes(4 * 20_000)
    topic = struct.pack(">hih", 0, -1, -1) + struct.pack(">ii", 1, 0) + replicas + bytes(4)
    body = struct.pack(">i", 3) + topic * 3 + bytes(5)
    with pytest.raises(InvalidRequest, match="elements"):
        decoded(CREATE_TOPICS, 2, body)


def test_null_for_a_required_array_is_refused() -> None:
    """The schema decoder accepts it and returns a value that handlers do not expect."""
    for version, missing in ((2, struct.pack(">i", -1)), (5, b"\0")):
        rest = struct.pack(">ib", 1_000, 0) + (b"\0" if version >= 5 else b"")
        with pytest.raises(InvalidRequest, match="length -1; the least is 0"):
            decoded(CREATE_TOPICS, version, missing + rest)
    assert decoded(METADATA, 1, struct.pack(">i", -1)).topics is None
    with pytest.raises(InvalidRequest, match="length -2; the least is -1"):
        decoded(METADATA, 1, struct.pack(">i", -2))


def tagged(*tags: tuple[int, bytes], count: int | None = None) -> bytes:
    """Return a list of tagged fields."""
    out = _varint(len(tags) if count is None else count)
    for tag, value in tags:
        out += _varint(tag) + _varint(len(value)) + value
    return out


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = body_of(API_VERSIONS, 3, SAID)[:-1]
    for tags in (((0, b""),), ((3, b"xyz"), (9, b"1" * 200)), ((1 << 30, b"z"),)):
        read = decoded(API_VERSIONS, 3, plain + tagged(*tags))
        assert (read.client_software_name, read.client_software_version) == ("a", "b")


def test_unknown_tagged_fields_are_skipped_in_every_part_of_a_request() -> None:
    topics = [{"name": "one"}, {"name": "two"}]
    said = {"topics": topics, "allow_auto_topic_creation": True}
    wants = ("include_cluster_authorized_operations", "include_topic_authorized_operations")
    plain = body_of(METADATA, 9, {**said, **dict.fromkeys(wants, False)})
    with_tags = b"\x03\x04one" + tagged((7, b"q")) + b"\x04two" + tagged((1, b"w"), (2, b""))
    with_tags += b"\x01\x00\x00" + tagged((5, b"end"))
    assert decoded(METADATA, 9, with_tags) == decoded(METADATA, 9, plain)


@pytest.mark.parametrize(
    "tags",
    [
        tagged((5, b""), (5, b"")),  # duplicate
        tagged((5, b""), (4, b"")),  # not ascending
        tagged((5, b"abc"))[:-1],  # ends behind the frame
        tagged(count=10_001) + b"".join(_varint(n) + b"\0" for n in range(10_001)),
        tagged(count=0xFFFFFFFF),
        b"\x01\x05\xff\xff\xff\xff\x0f",
    ],
)
def test_invalid_list_of_tagged_fields_is_refused(tags: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decoded(API_VERSIONS, 3, body_of(API_VERSIONS, 3, SAID)[:-1] + tags)


def test_a_string_that_is_no_text_is_refused() -> None:
    for body in (b"\x03\xff\xfe\x01\x00", b"\x00\x01\x00", b"\x03\xed\xa0\x80\x01\x00"):
        with pytest.raises(InvalidRequest):
            decoded(API_VERSIONS, 3, body)
