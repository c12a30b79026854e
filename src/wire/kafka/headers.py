"""Request and response headers, whose versions hang on the request's (KIP-482).

The client id keeps its two-byte length in flexible headers too. The response header of ApiVersions
never has tagged fields, since whoever reads it may not know the broker's version yet.
"""

from struct import Struct, error
from typing import Final, TypeAlias

from ...errors import InvalidRequest

API_VERSIONS: Final = 18
TAGS_MAX: Final = 10_000  # tagged fields of one header
CLIENT_ID_BYTES_MAX: Final = 1_024

_START: Final = Struct(">hhih")  # key, version, correlation id, length of the client id
_START_SIZE: Final = _START.size
_SIZE_AND_ID: Final = Struct(">ii")


Header: TypeAlias = tuple[int, int, int, str, int]
"""Key, version, correlation id, client id (empty: none), bytes of it without its tagged fields."""


def read_header(frame: memoryview) -> Header:
    """Read what every request begins with; raises InvalidRequest."""
    try:
        key, version, correlation_id, length = _START.unpack_from(frame)
    except error:
        raise InvalidRequest(
            f"a request of {len(frame)} bytes is shorter than its header"
        ) from None
    end = _START_SIZE + length if length > 0 else _START_SIZE
    if length > CLIENT_ID_BYTES_MAX or end > len(frame):
        raise InvalidRequest(
            f"the client id has {length} bytes, the frame {len(frame)}; give at most "
            f"{CLIENT_ID_BYTES_MAX}"
        )
    try:
        client_id = str(frame[_START_SIZE:end], "utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest("the client id is not UTF-8") from None
    return key, version, correlation_id, client_id, end


def skip_tags(frame: memoryview, at: int) -> int:
    """Return where the tagged fields at a position end; raises InvalidRequest."""
    if at < len(frame) and not frame[at]:
        return at + 1  # there is none
    count, at = _read_varint(frame, at)
    if count > TAGS_MAX:
        raise InvalidRequest(f"the header has {count} tagged fields; give at most {TAGS_MAX}")
    for _ in range(count):
        _, at = _read_varint(frame, at)
        size, at = _read_varint(frame, at)
        at += size
        if at > len(frame):
            raise InvalidRequest("a tagged field of the header ends behind its frame")
    return at


def answer_head(correlation_id: int, body_size: int, *, flexible: bool) -> bytes:
    """Return what goes in front of an answer's body: size and response header; `flexible`: with an
    empty list of tagged fields."""
    if flexible:
        return _SIZE_AND_ID.pack(body_size + 5, correlation_id) + b"\x00"
    return _SIZE_AND_ID.pack(body_size + 4, correlation_id)


def _read_varint(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(frame) and shift < 35:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise InvalidRequest("a number of the header does not end")
