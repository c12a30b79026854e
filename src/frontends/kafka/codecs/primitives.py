"""Readers and writers of the protocol's types for the hand-written codecs.

A reader returns the value and the position after it. It raises InvalidRequest if the bytes end
early; a count is checked against the bytes that are left before memory is allocated. A decoded
entry takes hundreds of times the bytes of the smallest encoded one, and time of the event loop: a
request of the most entries takes some 50 ms.
"""

from struct import Struct
from struct import error as StructError
from typing import Final

from ....errors import InvalidRequest

ENTRIES_MAX: Final = 10_000  # of all arrays of a request together
TAGS_MAX: Final = 10  # tagged fields of one struct, which are skipped on the event loop
ID_SIZE: Final = 16
TEXT_BYTES_MAX: Final = 32_767  # the largest two-byte length: a response of an older version has it

I16: Final = Struct(">h")
I32: Final = Struct(">i")
_VARINT_BITS_MAX: Final = 35

Bytes = bytes | memoryview


def read_varint(body: memoryview, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes."""
    try:
        byte = body[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        while shift < _VARINT_BITS_MAX:
            at += 1
            byte = body[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at + 1
            shift += 7
    except IndexError:
        raise cut_short() from None
    raise InvalidRequest("varint: longer than 5 bytes")


def read_count(body: memoryview, at: int, *, flexible: bool, size_min: int) -> tuple[int, int]:
    """Read the length of an array with entries of `size_min` bytes or more; null counts as 0."""
    if flexible:
        count, at = read_varint(body, at)
        count -= 1
    else:
        count, at = read_i32(body, at)
    if count < 0:
        return 0, at
    if count * size_min > len(body) - at:
        raise InvalidRequest(
            f"array: {count} entries are claimed and {len(body) - at} bytes are left of the request"
        )
    check_entries(count)
    return count, at


def check_entries(count: int) -> None:
    """Raise InvalidRequest if the arrays of a request have too many entries."""
    if count > ENTRIES_MAX:
        raise InvalidRequest(
            f"request: its arrays claim {count} entries; send at most {ENTRIES_MAX} in one request"
        )


def read_i32(body: memoryview, at: int) -> tuple[int, int]:
    """Read a four-byte integer."""
    try:
        (value,) = I32.unpack_from(body, at)
    except StructError:
        raise cut_short() from None
    return value, at + 4


def read_string(body: memoryview, at: int, *, flexible: bool) -> tuple[str | None, int]:
    """Read a string of at most TEXT_BYTES_MAX bytes, which may be null."""
    if flexible:
        size, at = read_varint(body, at)
        size -= 1
    else:
        try:
            (size,) = I16.unpack_from(body, at)
        except StructError:
            raise cut_short() from None
        at += 2
    if size < 0:
        return None, at
    if size > TEXT_BYTES_MAX:
        raise InvalidRequest(
            f"string at byte {at}: it has {size} bytes; send at most {TEXT_BYTES_MAX}"
        )
    end = at + size
    if end > len(body):
        raise cut_short()
    try:
        return str(body[at:end], "utf-8"), end
    except UnicodeDecodeError:
        raise InvalidRequest("string: not valid UTF-8") from None


def read_bytes(body: memoryview, at: int, *, flexible: bool) -> tuple[memoryview | None, int]:
    """Read bytes without copying them; they may be null."""
    if flexible:
        size, at = read_varint(body, at)
        size -= 1
    else:
        size, at = read_i32(body, at)
    if size < 0:
        return None, at
    end = at + size
    if end > len(body):
        raise cut_short()
    return body[at:end], end


def read_id(body: memoryview, at: int) -> tuple[bytes, int]:
    """Read a uuid."""
    end = at + ID_SIZE
    if end > len(body):
        raise cut_short()
    return bytes(body[at:end]), end


def skip_tags(body: memoryview, at: int) -> int:
    """Return the position after the tagged fields."""
    if at < len(body) and body[at] == 0:
        return at + 1
    count, at = read_varint(body, at)
    if count > TAGS_MAX:
        raise InvalidRequest(f"struct: {count} tagged fields; send at most {TAGS_MAX}")
    for _ in range(count):
        _, at = read_varint(body, at)
        size, at = read_varint(body, at)
        at += size
        if at > len(body):
            raise cut_short()
    return at


def cut_short() -> InvalidRequest:
    """Return the error of a request that ends early."""
    return InvalidRequest("request: it ends in the middle of a field")


# --- writing -------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def count_of(count: int, *, flexible: bool) -> bytes:
    """Encode the length of an array that is not null."""
    return varint(count + 1) if flexible else I32.pack(count)


def string_of(text: str | None, *, flexible: bool) -> bytes:
    """Encode a string or null."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    content = text.encode()
    if flexible:
        return varint(len(content) + 1) + content
    return I16.pack(len(content)) + content


def tags_of(fields: list[tuple[int, bytes]]) -> bytes:
    """Encode tagged fields, given by ascending tag."""
    if not fields:
        return b"\x00"
    parts = [varint(len(fields))]
    for tag, content in fields:
        parts += (varint(tag), varint(len(content)), content)
    return b"".join(parts)
