"""Messages of the protocol by key and version, with the schemas of `kio`.

A schema is loaded when its key and version are first used. Every version has its own classes. So
handlers read attributes with a default for older versions, and return plain fields, from which the
message of the request's version takes those it has.
"""

from functools import cache
from typing import Any, Final

from ...errors import InvalidRequest
from .api import Fields, KafkaApi
from .request_limits import FieldWalk, RequestWalk, step_over, walk_message, without_cuts
from .response_encoder import StructEncoder
from .schemas import Reader, reader_of, request_schema, response_schema

_THROTTLE: Final = "throttle_time"


def check_lengths(api: KafkaApi, version: int, frame: memoryview, begin: int) -> RequestWalk:
    """Validate the lengths and counts of the request in a frame from `begin` on. Raises
    InvalidRequest if they exceed the frame or a limit."""
    try:
        return walk_message(_step(api.key, version), frame, begin, api.elements_max)
    except InvalidRequest as error:
        raise _invalid(api, version, error) from None


def decode(api: KafkaApi, version: int, frame: memoryview, begin: int, walk: RequestWalk) -> Any:
    """Return the validated request in a frame; raises InvalidRequest if it cannot be decoded."""
    if walk.cuts:
        frame, begin = memoryview(without_cuts(frame, begin, walk.cuts)), 0
    try:
        message, size = _reader(api.key, version)(frame, begin)
    except Exception as error:  # the reader raises many types, also its own
        raise _invalid(api, version, error) from error
    if begin + size != len(frame):
        raise _invalid(api, version, f"{size} of {len(frame) - begin} bytes were decoded")
    return message


def encode(
    api: KafkaApi,
    version: int,
    answer: Fields,
    *,
    throttle_ms: int = 0,
    errors: list[int] | None = None,
) -> bytes:
    """Return a response as the body of this version.

    Fields that this version lacks are left out; a field that no version has is a programming error.
    Durations and times are whole milliseconds, ids 16 bytes, error codes numbers. `throttle_ms`
    fills the throttle time if the version has one; `errors` receives the codes other than 0.
    """
    writer = _writer(api.key, version, api.high)
    if throttle_ms and _THROTTLE in writer.names:
        answer = {**answer, _THROTTLE: throttle_ms}
    out = bytearray()
    writer.put(out, answer, [] if errors is None else errors)
    return bytes(out)


def begins_with_throttle_time(api: KafkaApi, version: int) -> bool:
    """Return True if the throttle time is the first field (four bytes) of this version."""
    return _writer(api.key, version, api.high).names[0] == _THROTTLE


def _invalid(api: KafkaApi, version: int, reason: object) -> InvalidRequest:
    return InvalidRequest(f"not a valid {api.name} request of version {version}: {reason}")


# --- schemas -------------------------------------------------------------------------------------


@cache
def _step(key: int, version: int) -> FieldWalk:
    return step_over(request_schema(key, version))


@cache
def _reader(key: int, version: int) -> Reader:
    return reader_of(request_schema(key, version))


@cache
def _writer(key: int, version: int, newest: int) -> StructEncoder:
    return StructEncoder(response_schema(key, version), response_schema(key, newest))
