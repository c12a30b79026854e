"""Codec of Produce requests and responses, versions 3 to 13.

    request   transactional id, acks i16, timeout ms i32, topics [name or (13+) id, partitions [
              index i32, records]]
    response  topics [name or id, partitions [index i32, error i16, base offset i64, append time
              i64, (5+) log start i64, (8+) record errors [index i32, message], message, (10+) tag
              0: leader]], throttle ms i32, (10+) tag 0: endpoints

From version 9 on lengths are varints and structs end with tagged fields.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from ....errors.requests import RecordError
from ....runtime import Buffer
from .leaders import CurrentLeader, NodeEndpoint, encode_endpoints, encode_leader
from .primitives import (
    I32,
    check_entries,
    count_of,
    cut_short,
    read_bytes,
    read_count,
    read_i32,
    read_id,
    read_string,
    skip_tags,
    string_of,
    tags_of,
)

FLEXIBLE: Final = 9
_BY_ID: Final = 13  # topics by id
_ACKS_TIMEOUT: Final = Struct(">hi")
_PLAIN_END: Final = Struct(">Bxxxix")  # no record errors, no message, no tags; throttle time
_RESULT: Final = Struct(">ihqq")
_RESULT_5: Final = Struct(">ihqqq")


class ProducePart(NamedTuple):
    """The batches of one partition."""

    partition: int
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """One topic of a request."""

    name: str  # empty in version 13
    topic_id: bytes  # empty before
    parts: list[ProducePart]
    title: Buffer  # name or id as encoded in the request, for the response


class ProduceRequest:
    """A decoded request; records are views of its frame. `outcomes` are those of its first
    partitions, which are queued in their logs."""

    __slots__ = ("acks", "outcomes", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: list[ProduceTopic],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics
        self.outcomes: list[Any] = []


class ProduceResult(NamedTuple):
    """The result of one partition."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader: CurrentLeader | None = None
    record_errors: Sequence[RecordError] = ()


def read_produce(version: int, body: memoryview) -> ProduceRequest:
    """Decode a request; raises InvalidRequest. Bytes after it are ignored."""
    flexible = version >= FLEXIBLE
    transactional_id, at = read_string(body, 0, flexible=flexible)
    try:
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, at)
    except StructError:
        raise cut_short() from None
    count, at = read_count(body, at + _ACKS_TIMEOUT.size, flexible=flexible, size_min=3)
    topics, entries = [], count
    for _ in range(count):
        topic, at = _read_topic(version, body, at)
        topics.append(topic)
        entries += len(topic.parts)
        check_entries(entries)
    if flexible:
        skip_tags(body, at)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_topic(version: int, body: memoryview, at: int) -> tuple[ProduceTopic, int]:
    flexible = version >= FLEXIBLE
    name: str | None = ""
    topic_id, begin = b"", at
    if version >= _BY_ID:
        topic_id, at = read_id(body, at)
    else:
        name, at = read_string(body, at, flexible=flexible)
    title = body[begin:at]
    count, at = read_count(body, at, flexible=flexible, size_min=5)
    parts = []
    for _ in range(count):
        index, at = read_i32(body, at)
        records, at = read_bytes(body, at, flexible=flexible)
        if flexible:
            at = skip_tags(body, at)
        parts.append(ProducePart(index, records))
    if flexible:
        at = skip_tags(body, at)
    return ProduceTopic(name or "", topic_id, parts, title), at


def encode_produce(
    version: int,
    topics: Sequence[tuple[ProduceTopic, Sequence[ProduceResult]]],
    *,
    throttle_ms: int,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return the body of a response."""
    flexible = version >= FLEXIBLE
    if flexible and len(topics) == 1 and not endpoints:
        topic, results = topics[0]
        if len(results) == 1 and _is_plain(results[0]):
            result = _RESULT_5.pack(*results[0][:5])
            return b"".join((b"\2", topic.title, b"\2", result, _PLAIN_END.pack(1, throttle_ms)))
    out: list[Buffer] = [count_of(len(topics), flexible=flexible)]
    for topic, results in topics:
        out += (topic.title, count_of(len(results), flexible=flexible))
        out += [_encode_result(version, result) for result in results]
        if flexible:
            out.append(b"\x00")
    out.append(I32.pack(throttle_ms))
    if flexible:
        has_endpoints = version >= 10 and endpoints
        out.append(tags_of([(0, encode_endpoints(list(endpoints)))] if has_endpoints else []))
    return b"".join(out)


def _is_plain(result: ProduceResult) -> bool:
    return result.error_message is None and result.leader is None and not result.record_errors


def _encode_result(version: int, result: ProduceResult) -> bytes:
    if version < 5:
        return _RESULT.pack(*result[:4])
    fixed = _RESULT_5.pack(*result[:5])
    if version < 8:
        return fixed
    flexible = version >= FLEXIBLE
    if flexible and _is_plain(result):
        return fixed + b"\x01\x00\x00"  # no record errors, no message, no tagged fields
    out = [fixed, count_of(len(result.record_errors), flexible=flexible)]
    for index, message in result.record_errors:
        out += (I32.pack(index), string_of(message, flexible=flexible))
        if flexible:
            out.append(b"\x00")
    out.append(string_of(result.error_message, flexible=flexible))
    if flexible:
        leader = result.leader if version >= 10 else None
        out.append(tags_of([(0, encode_leader(leader))] if leader is not None else []))
    return b"".join(out)
