"""Codec of frequent group requests: classic heartbeats in versions 0 to 4, heartbeats of KIP-848 in
versions 0 to 1, commits in versions 6 to 9.

    Heartbeat                group, generation i32, member, (3+) static name
              response       (1+) throttle ms i32, error i16
    ConsumerGroupHeartbeat   group, member, epoch i32, static name, rack, rebalance ms i32,
                             topics [], (1+) pattern, assignor, owned [topic id, partitions []]
              response       throttle ms i32, error i16, message, member, epoch i32,
                             interval ms i32, assignment
    OffsetCommit             group, generation i32, member, (7+) static name, topics [name,
                             partitions [index i32, offset i64, leader epoch i32, note]]
              response       throttle ms i32, topics [name, partitions [index i32, error i16]]

From version 4 (of commits: 8), and of KIP-848 always, lengths are varints and structs end with
tagged fields. Of KIP-848, only requests without arrays are decoded here, as nearly all are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ....broker.groups.formats import PLAIN_OFFSETS_MAX
from ....broker.groups.requests import PlainCommit, PlainOffsets
from ....errors import InvalidRequest
from .primitives import (
    I32,
    count_of,
    cut_short,
    read_count,
    read_i32,
    read_string,
    read_varint,
    skip_tags,
    string_of,
)

FLEXIBLE: Final = 4
COMMIT_LOW: Final = 6
COMMIT_FLEXIBLE: Final = 8
COMMIT_HIGH: Final = 9
COMMIT_ENTRIES_MAX: Final = 1_000
USUAL_BYTES_MAX: Final = 1 << 10
"""Of a heartbeat that is answered at once. Decoded ones are cached, before their client's rights
are checked."""
"""The limit of topics and partitions of a commit; larger ones are decoded by the schema, and their
memory counts."""
_COMMIT_NAMES_STATIC: Final = 7  # the first version of commits with static members
_NAMES_STATIC: Final = 3  # the first version of heartbeats with static members
_SAYS_THROTTLE: Final = 1  # the first version with a throttle time
_NAMES_PATTERN: Final = 1  # the first version of KIP-848 heartbeats with a pattern

_PART: Final = Struct(">iqi")
_PLAIN_PART: Final = Struct(">iqibb")  # with a note's length and a count of tagged fields
_PART_CODE: Final = Struct(">ih")
_FLEXIBLE_PART_CODE: Final = Struct(">ihx")  # no tagged fields
_CODE: Final = Struct(">h")
_FLEXIBLE_EMPTY: Final = 0x0100
"""An empty string and no tagged fields, as one number of two bytes."""
_THROTTLE_CODE: Final = Struct(">ih")
_FLEXIBLE_ANSWER: Final = Struct(">ihx")  # no tagged fields
_EPOCH_INTERVAL_END: Final = Struct(">iibx")  # ends with a null assignment; no tags


class ClassicHeartbeatBody(NamedTuple):
    """A classic heartbeat."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(slots=True)
class CommittedPart:
    """The committed offset of one partition. Fields are named as in the schema."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class CommittedTopic(NamedTuple):
    """The committed offsets of one topic; fields are named as in the schema."""

    name: str
    partitions: list[CommittedPart]


class Commit(NamedTuple):
    """A commit; fields are named as in the schema."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: list[CommittedTopic]


class PlainHeartbeatBody(NamedTuple):
    """A heartbeat of KIP-848 without arrays."""

    group: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack: str | None
    rebalance_timeout_ms: int
    pattern: str | None
    assignor: str | None


def read_heartbeat(version: int, body: memoryview) -> ClassicHeartbeatBody:
    """Decode a classic heartbeat; raises InvalidRequest. Bytes after it are ignored."""
    flexible = version >= FLEXIBLE
    group, at = _text(body, 0, flexible=flexible)
    generation, at = read_i32(body, at)
    member_id, at = _text(body, at, flexible=flexible)
    instance_id = None
    if version >= _NAMES_STATIC:
        instance_id, at = read_string(body, at, flexible=flexible)
    if flexible:
        skip_tags(body, at)
    return ClassicHeartbeatBody(group, generation, member_id, instance_id)


def read_plain_heartbeat(version: int, body: memoryview) -> PlainHeartbeatBody | None:
    """Decode a heartbeat of KIP-848; None if it has arrays. Raises InvalidRequest."""
    group, at = _text(body, 0, flexible=True)
    member_id, at = _text(body, at, flexible=True)
    member_epoch, at = read_i32(body, at)
    instance_id, at = read_string(body, at, flexible=True)
    rack, at = read_string(body, at, flexible=True)
    rebalance_timeout_ms, at = read_i32(body, at)
    topics, at = read_varint(body, at)
    if topics:
        return None
    pattern = None
    if version >= _NAMES_PATTERN:
        pattern, at = read_string(body, at, flexible=True)
    assignor, at = read_string(body, at, flexible=True)
    owned, at = read_varint(body, at)
    if owned:
        return None
    skip_tags(body, at)
    return PlainHeartbeatBody(
        group, member_id, member_epoch, instance_id, rack, rebalance_timeout_ms, pattern, assignor
    )


def read_commit(version: int, body: memoryview) -> Commit | None:
    """Decode a commit; None if its version is not supported here or it is large. Raises
    InvalidRequest. Bytes after it are ignored."""
    if not COMMIT_LOW <= version <= COMMIT_HIGH:
        return None
    flexible = version >= COMMIT_FLEXIBLE
    group, at = _text(body, 0, flexible=flexible)
    generation, at = read_i32(body, at)
    member_id, at = _text(body, at, flexible=flexible)
    instance_id = None
    if version >= _COMMIT_NAMES_STATIC:
        instance_id, at = read_string(body, at, flexible=flexible)
    count, at = read_count(body, at, flexible=flexible, size_min=2)
    topics, entries = [], count
    for _ in range(count):
        name, at = _text(body, at, flexible=flexible)
        size, at = read_count(body, at, flexible=flexible, size_min=_PART.size + 1)
        entries += size
        if entries > COMMIT_ENTRIES_MAX:
            return None
        parts, at = _read_parts(body, at, size, flexible=flexible)
        if flexible:
            at = skip_tags(body, at)
        topics.append(CommittedTopic(name, parts))
    if flexible:
        skip_tags(body, at)
    return Commit(group, generation, member_id, instance_id, topics)


def _read_parts(
    body: memoryview, at: int, count: int, *, flexible: bool
) -> tuple[list[CommittedPart], int]:
    parts: list[CommittedPart] = []
    end = len(body)
    for _ in range(count):
        behind = at + _PLAIN_PART.size
        if flexible and behind <= end and body[behind - 2] == 1 and body[behind - 1] == 0:
            # The usual case: an empty note, no tagged fields.
            index, offset, leader_epoch, _, _ = _PLAIN_PART.unpack_from(body, at)
            parts.append(CommittedPart(index, offset, leader_epoch, ""))
            at = behind
            continue
        try:
            index, offset, leader_epoch = _PART.unpack_from(body, at)
        except StructError:
            raise cut_short() from None
        note, at = read_string(body, at + _PART.size, flexible=flexible)
        if flexible:
            at = skip_tags(body, at)
        parts.append(CommittedPart(index, offset, leader_epoch, note))
    return parts, at


def read_plain_commit(version: int, body: bytes) -> PlainCommit | None:
    """Decode a commit of at most PLAIN_OFFSETS_MAX offsets without metadata strings, as
    `read_commit` does; None for any other, and for some invalid ones. Raises InvalidRequest,
    IndexError, UnicodeDecodeError or struct.error for the rest."""
    if not COMMIT_LOW <= version <= COMMIT_HIGH:
        return None
    flexible = version >= COMMIT_FLEXIBLE
    if flexible:
        at = body[0] + 4  # of the member id; a string of n bytes has a length byte of n + 1
        at += body[at]
        at += body[at] or 1
        # Bytes after a length byte above 127 belong to the length, so the head is not valid then.
        member = _read_flexible_head(body[:at])
        count, at = body[at] - 1, at + 1
    else:
        member, at = _read_head(version, memoryview(body))
        (count,) = I32.unpack_from(body, at)
        at += 4
    if member is None or not 0 < count <= PLAIN_OFFSETS_MAX:
        return None
    group, member_id, instance_id, generation = member
    topics: list[PlainOffsets] = []
    left = PLAIN_OFFSETS_MAX
    for _ in range(count):
        topic, left, at = _read_plain_topic(body, at, left, flexible=flexible)
        if topic is None:
            return None
        topics.append(topic)
    if flexible and body[at]:
        return None  # tagged fields
    return PlainCommit(group, member_id, instance_id, generation, tuple(topics))


def _read_plain_topic(
    body: bytes, at: int, left: int, *, flexible: bool
) -> tuple[PlainOffsets | None, int, int]:
    """Return the offsets of a topic, the limit of later ones, and the end; None: not plain."""
    if flexible:
        end = at + body[at]
        name, size, at = _decoded(body[at:end]), body[end] - 1, end + 1
    else:
        name, at = read_string(memoryview(body), at, flexible=False)
        (size,) = I32.unpack_from(body, at)
        at += 4
    left -= size
    if not name or size <= 0 or left < 0:
        return None, left, at
    layout = plain_parts(size, flexible=flexible)
    values = layout.unpack_from(body, at)
    at += layout.size
    if values[3::4].count(_FLEXIBLE_EMPTY if flexible else 0) != size:
        return None, left, at  # metadata strings, or tagged fields of partitions
    if flexible:
        if body[at]:
            return None, left, at  # tagged fields
        at += 1
    return PlainOffsets(name, values[::4], values[1::4], values[2::4]), left, at


@lru_cache(maxsize=4_096)  # the commits of a member begin with it until the next generation
def _read_flexible_head(head: bytes) -> tuple[str, str, str | None, int] | None:
    member, end = _read_head(COMMIT_FLEXIBLE, memoryview(head))
    return member if end == len(head) else None


def _read_head(
    version: int, body: memoryview
) -> tuple[tuple[str, str, str | None, int] | None, int]:
    """Return group, member id, instance id and generation, and their end; None: no member."""
    flexible = version >= COMMIT_FLEXIBLE
    group, at = read_string(body, 0, flexible=flexible)
    generation, at = read_i32(body, at)
    member_id, at = read_string(body, at, flexible=flexible)
    instance_id = None
    if version >= _COMMIT_NAMES_STATIC:
        instance_id, at = read_string(body, at, flexible=flexible)
    if not (group and member_id):
        return None, at
    return (group, member_id, instance_id, generation), at


@lru_cache(maxsize=4_096)
def _decoded(text: bytes) -> str | None:
    """Return a string with its length byte; None if it is null or longer than 126 bytes."""
    if not 0 < text[0] < 128 or text[0] != len(text):
        return None
    return str(text[1:], "utf-8")


@cache  # for each number of parts up to PLAIN_OFFSETS_MAX
def plain_parts(count: int, *, flexible: bool) -> Struct:
    """Return the layout of the partitions of a topic in a commit; the last number of each is that
    of an empty metadata string, in flexible versions with a count of tagged fields."""
    return Struct(">" + ("iqiH" if flexible else "iqih") * count)


def _text(body: memoryview, at: int, *, flexible: bool) -> tuple[str, int]:
    text, at = read_string(body, at, flexible=flexible)
    if text is None:
        raise InvalidRequest(f"string before byte {at}: null is not allowed")
    return text, at


# --- responses -----------------------------------------------------------------------------------


def encode_heartbeat(version: int, error_code: int, *, throttle_ms: int) -> bytes:
    """Return the response to a classic heartbeat."""
    if version >= FLEXIBLE:
        return _FLEXIBLE_ANSWER.pack(throttle_ms, error_code)
    if version >= _SAYS_THROTTLE:
        return _THROTTLE_CODE.pack(throttle_ms, error_code)
    return _CODE.pack(error_code)


def encode_plain_heartbeat(
    member_id: str, member_epoch: int, heartbeat_interval_ms: int, *, throttle_ms: int
) -> bytes:
    """Return the response to a heartbeat of KIP-848 without a new assignment."""
    return b"".join(
        (
            I32.pack(throttle_ms),
            b"\0\0\0",  # no error, no message
            string_of(member_id, flexible=True),
            _EPOCH_INTERVAL_END.pack(member_epoch, heartbeat_interval_ms, -1),
        )
    )


def encode_plain_commit(version: int, topics: Sequence[PlainOffsets]) -> bytes:
    """Return the response to a commit without errors and without a throttle time."""
    answered = tuple([(topic.topic, topic.partitions) for topic in topics])
    return _encode_plain_answer(version, answered)


@lru_cache(maxsize=1_024)  # a member commits the same partitions repeatedly
def _encode_plain_answer(version: int, topics: tuple[tuple[str, tuple[int, ...]], ...]) -> bytes:
    parts = [
        CommittedTopic(name, [CommittedPart(index, 0, 0, None) for index in partitions])
        for name, partitions in topics
    ]
    codes = [0] * sum(len(partitions) for _, partitions in topics)
    return encode_commit(version, parts, codes, throttle_ms=0)


def encode_commit(
    version: int, topics: Sequence[CommittedTopic], codes: Sequence[int], *, throttle_ms: int
) -> bytes:
    """Return the response to a commit; `codes` are those of its partitions, in their order."""
    flexible = version >= COMMIT_FLEXIBLE
    result = _FLEXIBLE_PART_CODE if flexible else _PART_CODE
    end = b"\0" if flexible else b""
    out = [I32.pack(throttle_ms), count_of(len(topics), flexible=flexible)]
    left = iter(codes)
    for name, parts in topics:
        out += (string_of(name, flexible=flexible), count_of(len(parts), flexible=flexible))
        out += [result.pack(part.partition_index, next(left)) for part in parts]
        out.append(end)
    out.append(end)
    return b"".join(out)
