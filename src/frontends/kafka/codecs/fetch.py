"""Codec of Fetch requests and responses, versions 4 to 18. Records stay where they are.

    request   (to 14) replica id i32, max wait ms i32, min bytes i32, max bytes i32, isolation i8,
              (7+) session id i32, epoch i32, topics [name or (13+) id, partitions [index i32, (9+)
              leader epoch i32, offset i64, (12+) last fetched epoch i32, (5+) log start i64,
              max bytes i32]], (7+) forgotten topics [name or id, indexes [i32]], (11+) rack
    response  throttle ms i32, (7+) error i16, session id i32, topics [name or id, partitions [
              index i32, error i16, high watermark i64, last stable i64, (5+) log start i64, aborted
              [producer id i64, first offset i64], (11+) preferred replica i32, records, (12+) tags
              0: diverging epoch, 1: leader]], (16+) tag 0: endpoints

From version 12 on lengths are varints and structs end with tagged fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from .leaders import CurrentLeader, NodeEndpoint, encode_endpoints, encode_leader
from .primitives import (
    I32,
    check_entries,
    count_of,
    cut_short,
    read_count,
    read_i32,
    read_id,
    read_string,
    read_varint,
    skip_tags,
    string_of,
    tags_of,
    varint,
)

FLEXIBLE: Final = 12
BY_ID: Final = 13
_REPLICA_STATE: Final = 1  # tag of the request, 15+
CONSUMER: Final = -1  # replica id of consumers

_HEAD: Final = Struct(">iiib")  # max wait, min bytes, max bytes, isolation
_SESSION: Final = Struct(">ii")
_PARTS: Final = {  # by the first version that has it
    4: Struct(">iqi"),
    5: Struct(">iqqi"),
    9: Struct(">iiqqi"),
    12: Struct(">iiqiqi"),
}
# a partition of version 12 with its count of tagged fields, which is 0
_UNTAGGED: Final = Struct(">iiqiqiB")
_TOP_7: Final = Struct(">ihi")
_RESULT_4: Final = Struct(">ihqq")
_RESULT_5: Final = Struct(">ihqqq")
_FOUND_5: Final = Struct(">ihqqqii")  # with null or no aborted transactions, and the size
_FOUND_11: Final = Struct(">ihqqqiii")  # and the preferred replica before it
_FOUND_12: Final = Struct(">ihqqqBi")
_ABORTED: Final = Struct(">qq")
_DIVERGING: Final = Struct(">iqx")


class FetchPart(NamedTuple):
    """One partition of a request."""

    partition: int
    leader_epoch: int  # -1: not checked
    offset: int
    last_epoch: int  # of the last record that the reader has, -1: unknown
    max_bytes: int


class FetchTopic(NamedTuple):
    """One topic of a request."""

    name: str  # empty from version 13 on
    topic_id: bytes  # empty before
    parts: list[FetchPart]


@dataclass(slots=True)
class FetchRequest:
    """A decoded request."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[tuple[str | bytes, list[int]]]
    rack: str


class FetchResult(NamedTuple):
    """The result of one partition; its records follow as a file range."""

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None  # producer id, first offset
    preferred_replica: int = -1
    records_size: int = 0
    diverging: tuple[int, int] | None = None  # epoch, its end offset
    leader: CurrentLeader | None = None


def read_fetch(version: int, body: memoryview) -> FetchRequest:
    """Decode a request; raises InvalidRequest. Bytes after it are ignored."""
    flexible = version >= FLEXIBLE
    at, replica_id = 0, CONSUMER
    if version < 15:
        replica_id, at = read_i32(body, at)
    try:
        max_wait_ms, min_bytes, max_bytes, isolation = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        session_id, session_epoch = 0, -1
        if version >= 7:
            session_id, session_epoch = _SESSION.unpack_from(body, at)
            at += _SESSION.size
    except StructError:
        raise cut_short() from None
    count, at = read_count(body, at, flexible=flexible, size_min=3)
    topics, entries = [], count
    for _ in range(count):
        topic, at = _read_topic(version, body, at)
        topics.append(topic)
        entries += len(topic.parts)
        check_entries(entries)
    forgotten: list[tuple[str | bytes, list[int]]] = []
    if version >= 7:
        forgotten, at = _read_forgotten(version, body, at)
    rack: str | None = ""
    if version >= 11:
        rack, at = read_string(body, at, flexible=flexible)
    if flexible:
        replica_id, at = _read_tags(version, body, at, replica_id)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack or "",
    )


def _read_name(version: int, body: memoryview, at: int) -> tuple[str, bytes, int]:
    if version >= BY_ID:
        topic_id, at = read_id(body, at)
        return "", topic_id, at
    name, at = read_string(body, at, flexible=version >= FLEXIBLE)
    return name or "", b"", at


def _read_topic(version: int, body: memoryview, at: int) -> tuple[FetchTopic, int]:
    flexible = version >= FLEXIBLE
    name, topic_id, at = _read_name(version, body, at)
    shape = _PARTS[12 if version >= 12 else 9 if version >= 9 else 5 if version >= 5 else 4]
    count, at = read_count(body, at, flexible=flexible, size_min=shape.size)
    parts: list[FetchPart] = []
    if flexible and count:
        parts = _untagged(body, at, count)
        at += len(parts) * _UNTAGGED.size
        count -= len(parts)
    try:
        for _ in range(count):
            values = shape.unpack_from(body, at)
            at += shape.size
            if flexible:
                at = skip_tags(body, at)
                index, leader_epoch, offset, last_epoch, _, max_bytes = values
            else:
                index, offset, max_bytes = values[0], values[1], values[-1]
                leader_epoch, last_epoch = -1, -1
                if version >= 9:
                    leader_epoch, offset = values[1], values[2]
            parts.append(FetchPart(index, leader_epoch, offset, last_epoch, max_bytes))
    except StructError:
        raise cut_short() from None
    if flexible:
        at = skip_tags(body, at)
    return FetchTopic(name, topic_id, parts), at


def _untagged(body: memoryview, at: int, count: int) -> list[FetchPart]:
    """Decode the partitions of a topic if none has tagged fields, as clients send them. Otherwise
    return none: the position of the next one is not known then."""
    end = at + count * _UNTAGGED.size
    if end > len(body):
        return []
    rows = list(_UNTAGGED.iter_unpack(body[at:end]))
    for row in rows:
        if row[6]:
            return []
    return [FetchPart(row[0], row[1], row[2], row[3], row[5]) for row in rows]


def _read_forgotten(
    version: int, body: memoryview, at: int
) -> tuple[list[tuple[str | bytes, list[int]]], int]:
    flexible = version >= FLEXIBLE
    count, at = read_count(body, at, flexible=flexible, size_min=3)
    forgotten: list[tuple[str | bytes, list[int]]] = []
    entries = count
    for _ in range(count):
        name, topic_id, at = _read_name(version, body, at)
        indexes, at = read_count(body, at, flexible=flexible, size_min=4)
        entries += indexes
        check_entries(entries)
        if indexes:
            forgotten.append((topic_id or name, list(Struct(f">{indexes}i").unpack_from(body, at))))
            at += 4 * indexes
        if flexible:
            at = skip_tags(body, at)
    return forgotten, at


def _read_tags(version: int, body: memoryview, at: int, replica_id: int) -> tuple[int, int]:
    """Return the replica id from the tagged fields, and the position after them."""
    end = skip_tags(body, at)
    if version < 15 or body[at] == 0:
        return replica_id, end
    count, at = read_varint(body, at)
    for _ in range(count):
        tag, at = read_varint(body, at)
        size, at = read_varint(body, at)
        if tag == _REPLICA_STATE and size >= I32.size:
            replica_id, _ = read_i32(body, at)
        at += size
    return replica_id, end


def encode_top(
    version: int, *, throttle_ms: int, error_code: int, session_id: int, topic_count: int
) -> bytes:
    """Return the start of a response."""
    top = I32.pack(throttle_ms) if version < 7 else _TOP_7.pack(throttle_ms, error_code, session_id)
    return top + count_of(topic_count, flexible=version >= FLEXIBLE)


def encode_topic(version: int, *, name: str, topic_id: bytes, part_count: int) -> bytes:
    """Return the start of a topic in a response."""
    flexible = version >= FLEXIBLE
    title = topic_id if version >= BY_ID else string_of(name, flexible=flexible)
    return title + count_of(part_count, flexible=flexible)


def encode_result(version: int, result: FetchResult) -> tuple[bytes, bytes]:
    """Return the bytes before and after the records of a partition."""
    flexible = version >= FLEXIBLE
    head = _RESULT_4.pack(*result[:4]) if version < 5 else _RESULT_5.pack(*result[:5])
    parts = [head, _encode_aborted(result.aborted, flexible=flexible)]
    if version >= 11:
        parts.append(I32.pack(result.preferred_replica))
    if not flexible:
        parts.append(I32.pack(result.records_size))
        return b"".join(parts), b""
    parts.append(varint(result.records_size + 1))
    tags = []
    if result.diverging is not None:
        tags.append((0, _DIVERGING.pack(*result.diverging)))
    if result.leader is not None:
        tags.append((1, encode_leader(result.leader)))
    return b"".join(parts), tags_of(tags)


def encode_found(
    version: int,
    *,
    partition: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    tells_aborted: bool,
    preferred_replica: int,
    records_size: int,
) -> bytes:
    """Return the bytes before the records of a partition without an error or aborted transactions,
    as `encode_result` does. `tells_aborted`: the request asks for aborted transactions. From
    version 12 on, `tags_of(())` follows the records."""
    if version >= FLEXIBLE:
        return _FOUND_12.pack(
            partition,
            0,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            1 if tells_aborted else 0,
            preferred_replica,
        ) + varint(records_size + 1)
    place = (partition, 0, high_watermark, last_stable_offset)
    aborted = 0 if tells_aborted else -1
    if version >= 11:
        return _FOUND_11.pack(*place, log_start_offset, aborted, preferred_replica, records_size)
    if version >= 5:
        return _FOUND_5.pack(*place, log_start_offset, aborted, records_size)
    return _RESULT_4.pack(*place) + _SESSION.pack(aborted, records_size)


def encode_end(version: int, endpoints: Sequence[NodeEndpoint] = ()) -> bytes:
    """Return the end of a response, after the last topic."""
    if version < FLEXIBLE:
        return b""
    if version < 16 or not endpoints:
        return b"\x00"
    return tags_of([(0, encode_endpoints(list(endpoints)))])


def _encode_aborted(aborted: Sequence[tuple[int, int]] | None, *, flexible: bool) -> bytes:
    if aborted is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    parts = [count_of(len(aborted), flexible=flexible)]
    for entry in aborted:
        parts.append(_ABORTED.pack(*entry))
        if flexible:
            parts.append(b"\x00")
    return b"".join(parts)
