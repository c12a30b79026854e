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
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

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
_THROTTLE_CODE: Final = Struct(">ih")
_FLEXIBLE_ANSWER: Final = Struct(">ihx")  # no tagged fields
_EPOCH_INTERVAL_END: Final = Struct(">iibx")  # ends with a null assignment; no tags


class ClassicHeartbeatBody(NamedTuple):
    """A classic heartbeat."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(init=False, slots=True)
class CommittedPart:
    """The committed offset of one partition. Fields are named as in the schema. Its hand-written
    `__init__` is compiled, unlike those of a generated dataclass or a named tuple."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None

    def __init__(
        self,
        partition_index: int,
        committed_offset: int,
        committed_leader_epoch: int,
        committed_metadata: str | None,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata


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
