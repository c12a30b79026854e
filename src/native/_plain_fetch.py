"""Usual Fetch requests in plain Python: what `_fetch` does in C, and its documentation.

A request is usual without a replica id, forgotten topics, a rack, tagged fields and bytes behind
its last field; a response without errors, aborted transactions and preferred replicas.
`frontends/kafka/codecs/fetch.py` has all fields.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias

from ..records.batch import EXTENT, HEADER_SIZE, LENGTH_END
from ..records.compression import Buffer
from ._plain_produce import FrameCursor, Unusual, encode_count

FetchPart: TypeAlias = tuple[int, int, int, int, int]
"""Index, leader epoch, offset, epoch of the last record, max bytes; -1: not given."""

FetchTopic: TypeAlias = tuple[bytes, list[FetchPart]]
"""A name or, from version 13 on, an id, and its partitions."""

UsualFetch: TypeAlias = tuple[int, int, int, int, int, int, list[FetchTopic]]
"""Max wait ms, min bytes, max bytes, isolation, session id, session epoch, topics."""

FetchResult: TypeAlias = tuple[int, int, int, int, Any]
"""High watermark, last stable offset, log start offset, and the size of the records in bytes, and
these in a form of the caller; None if the size is 0."""

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
FLEXIBLE: Final = 12
BY_ID: Final = 13
NO_REPLICA_ID: Final = 15  # the first version without the field

_ID_BYTES: Final = 16
_PART_BYTES_MIN: Final = 16
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_LIMITS: Final = Struct(">iiib")
_SESSION: Final = Struct(">ii")
_TOP: Final = Struct(">ihi")  # throttle time, error code, session id
_RESULT: Final = Struct(">ihqq")  # partition, error code, high watermark, last stable offset


def read_fetch(version: int, body: Buffer) -> UsualFetch | None:
    """Return the fields of a usual request, None for every other one."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        return None
    cursor = FrameCursor(memoryview(body))
    cursor.is_flexible = version >= FLEXIBLE
    try:
        return _read_body(version, cursor)
    except (Unusual, StructError, IndexError):
        return None


def _read_body(version: int, cursor: FrameCursor) -> UsualFetch:
    if version < NO_REPLICA_ID and cursor.next(_I32) != (-1,):
        raise Unusual
    max_wait_ms, min_bytes, max_bytes, isolation = cursor.next(_LIMITS)
    session_id, session_epoch = cursor.next(_SESSION) if version >= 7 else (0, -1)
    count = cursor.count()
    if not 1 <= count <= cursor.left // _PART_BYTES_MIN:
        raise Unusual
    topics = [_read_topic(version, cursor) for _ in range(count)]
    if version >= 7 and cursor.count() != 0:
        raise Unusual  # forgotten topics
    if version >= 11 and _string_size(cursor) != 0:
        raise Unusual  # a rack
    cursor.no_tags()
    if cursor.left:
        raise Unusual
    return max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics


def _string_size(cursor: FrameCursor) -> int:
    return cursor.count() if cursor.is_flexible else cursor.next(_I16)[0]


def _read_topic(version: int, cursor: FrameCursor) -> FetchTopic:
    title = cursor.take(_ID_BYTES if version >= BY_ID else _string_size(cursor))
    count = cursor.count()
    if count * _PART_BYTES_MIN > cursor.left:
        raise Unusual
    parts = []
    for _ in range(count):
        (partition,) = cursor.next(_I32)
        (leader_epoch,) = cursor.next(_I32) if version >= 9 else (-1,)
        (offset,) = cursor.next(_I64)
        (last_epoch,) = cursor.next(_I32) if version >= FLEXIBLE else (-1,)
        if version >= 5:
            cursor.next(_I64)  # the log start offset of a follower
        (max_bytes,) = cursor.next(_I32)
        cursor.no_tags()
        parts.append((partition, leader_epoch, offset, last_epoch, max_bytes))
    cursor.no_tags()
    return title, parts


def encode_fetch(
    version: int,
    topics: Sequence[FetchTopic],
    results: Sequence[FetchResult],
    tells_aborted: bool,
) -> list[Any]:
    """Return the body of a response without errors: for each partition that has records, in order,
    the bytes before them and the records; then the bytes behind all. `topics` are those of
    `read_fetch`, `results` those of their partitions in order. `tells_aborted`: the request asks
    for aborted transactions; there are none."""
    flexible = version >= FLEXIBLE
    no_tags = b"\0" if flexible else b""
    aborted = 0 if tells_aborted else -1
    chunks: list[Any] = []
    out = [_TOP.pack(0, 0, 0) if version >= 7 else _I32.pack(0)]
    out.append(encode_count(len(topics), flexible))
    left = iter(results)
    for title, parts in topics:
        if version < BY_ID:
            size = len(title)
            out.append(encode_count(size, flexible) if flexible else _I16.pack(size))
        out += (title, encode_count(len(parts), flexible))
        for part in parts:
            high_watermark, stable, start, records_size, records = next(left)
            out.append(_RESULT.pack(part[0], 0, high_watermark, stable))
            if version >= 5:
                out.append(_I64.pack(start))
            out.append(encode_count(aborted, flexible))
            if version >= 11:
                out.append(_I32.pack(-1))  # preferred replica
            out.append(encode_count(records_size, flexible))
            if records is not None:
                chunks += (b"".join(out), records)
                out = []
            out.append(no_tags)
        out.append(no_tags)
    out.append(no_tags)
    chunks.append(b"".join(out))
    return chunks


def whole_batches(window: Buffer, end_offset: int) -> tuple[int, int]:
    """Return the size of the complete batches at the start of `window` that end below `end_offset`,
    and the offset after the last one, -1 without any. Invalid batches count as incomplete."""
    at, next_offset, size = 0, -1, len(window)
    while size - at >= HEADER_SIZE:
        base_offset, length, last_delta = EXTENT.unpack_from(window, at)
        if not HEADER_SIZE <= length + LENGTH_END <= size - at:
            break
        if not 0 <= base_offset <= base_offset + last_delta < end_offset:
            break
        at += length + LENGTH_END
        next_offset = base_offset + last_delta + 1
    return at, next_offset
