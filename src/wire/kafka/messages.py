"""Messages of the protocol by key and version, from the schemas of `kio`.

A schema is loaded when its key and version are first used. Every version has classes of its own;
so handlers read attributes with a default where older versions have none, and answer with plain
fields, from which the message of the caller's version takes what it has.
"""

from functools import cache
from typing import Any, Final

from ...errors import InvalidRequest, QuorumlogError
from .api import Api, Fields
from .claims import Step, Walk, step_over, walked, without_cuts
from .schemas import Reader, reader_of, request_schema, response_schema
from .writing import PartWriter

_THROTTLE: Final = "throttle_time"


def judged(api: Api, version: int, frame: memoryview, begin: int) -> Walk:
    """Look through the request in a frame from `begin` on; raises InvalidRequest for what claims
    more than there is, or more than anybody may."""
    try:
        return walked(_step(api.key, version), frame, begin)
    except InvalidRequest as error:
        raise _invalid(api, version, error) from None


def decode(api: Api, version: int, frame: memoryview, begin: int, walk: Walk) -> Any:
    """Return the request in a frame that was judged; raises InvalidRequest for what is none."""
    if walk.cuts:
        frame, begin = memoryview(without_cuts(frame, begin, walk.cuts)), 0
    try:
        message, size = _reader(api.key, version)(frame, begin)
    except Exception as error:  # the reader raises many kinds, also its own
        raise _invalid(api, version, error) from error
    if begin + size != len(frame):
        raise _invalid(api, version, f"{size} of {len(frame) - begin} bytes are used")
    return message


def encode(
    api: Api,
    version: int,
    answer: Fields,
    *,
    throttle_ms: int = 0,
    errors: list[int] | None = None,
) -> bytes:
    """Return an answer as the body of a response of this version.

    Fields that the version lacks are left out; those that no version has are a mistake. Durations
    and times are whole milliseconds, ids 16 bytes, error codes numbers. `throttle_ms` stands where
    the answer can say for how long a client has to wait; `errors` gets the codes other than 0.
    """
    writer = _writer(api.key, version, api.high)
    if throttle_ms and _THROTTLE in writer.names:
        answer = {**answer, _THROTTLE: throttle_ms}
    out = bytearray()
    writer.put(out, answer, [] if errors is None else errors)
    return bytes(out)


def begins_with_throttle_time(api: Api, version: int) -> bool:
    """Whether four bytes at the start of an answer of this version say how long a client has to
    wait."""
    return _writer(api.key, version, api.high).names[0] == _THROTTLE


def _invalid(api: Api, version: int, reason: object) -> InvalidRequest:
    return InvalidRequest(f"this is no {api.name} request of version {version}: {reason}")


def code_of(error: QuorumlogError | None) -> int:
    """Return the error code that the protocol has for an error, 0 for none."""
    return 0 if error is None else error.code


def error_fields(error: QuorumlogError | None) -> Fields:
    """Return the two fields that most results have."""
    return {
        "error_code": code_of(error),
        "error_message": None if error is None else str(error),
    }


# --- schemas -------------------------------------------------------------------------------------


@cache
def _step(key: int, version: int) -> Step:
    return step_over(request_schema(key, version))


@cache
def _reader(key: int, version: int) -> Reader:
    return reader_of(request_schema(key, version))


@cache
def _writer(key: int, version: int, newest: int) -> PartWriter:
    return PartWriter(response_schema(key, version), response_schema(key, newest))
