"""XXH64 and the record hash of `verify`, written from their definitions, in plain Python."""

import struct
from collections.abc import Collection, Sequence

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
MASK = 2**64 - 1


def _rotl(number: int, bits: int) -> int:
    return ((number << bits) | (number >> (64 - bits))) & MASK


def _round(lane: int, word: int) -> int:
    return _rotl((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(content: bytes, seed: int) -> int:
    """Return the hash of some bytes."""
    at = 0
    if len(content) >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= len(content):
            for lane, word in enumerate(struct.unpack_from("<4Q", content, at)):
                lanes[lane] = _round(lanes[lane], word)
            at += 32
        found = sum(_rotl(lanes[i], bits) for i, bits in enumerate((1, 7, 12, 18))) & MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * P1 + P4) & MASK
    else:
        found = (seed + P5) & MASK
    found = (found + len(content)) & MASK
    while at + 8 <= len(content):
        found ^= _round(0, struct.unpack_from("<Q", content, at)[0])
        found = (_rotl(found, 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(content):
        found ^= struct.unpack_from("<I", content, at)[0] * P1 & MASK
        found = (_rotl(found, 23) * P2 + P3) & MASK
        at += 4
    for byte in content[at:]:
        found = _rotl(found ^ (byte * P5 & MASK), 11) * P1 & MASK
    for shift, prime in ((33, P2), (29, P3)):
        found = (found ^ (found >> shift)) * prime & MASK
    return found ^ (found >> 32)


def record_hash(
    columns: Collection[str],
    *,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] | None,
) -> int:
    """Return the hash of a record over some of its columns."""
    parts: list[bytes | None] = []
    if "timestamp" in columns:
        parts.append(struct.pack("<q", timestamp_ms))
    for name, content in (("key", key), ("value", value)):
        if name in columns:
            parts += [struct.pack("<i", content is None), content]
    if "headers" in columns:
        parts.append(struct.pack("<i", len(headers or ())))
        for name, content in headers or ():
            parts += [name.encode(), struct.pack("<i", content is None), content]
    found = 42
    for part in parts:
        if part is not None:
            found = xxh64(part, found)
    return found
