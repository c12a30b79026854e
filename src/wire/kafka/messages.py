"""Messages of the protocol by key and version, from the schemas of `kio`.

A schema is loaded when its key and version are first used. Every version has classes of its own;
so handlers read attributes with a default where older versions have none, and answer with plain
fields, from which the message of the caller's version takes what it has.
"""

from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any

from ...errors import InvalidRequest, QuorumlogError
from .api import Api, Fields
from .shapes import MessageShape


def decode(api: Api, version: int, body: memoryview) -> Any:
    """Return the request in a body; raises InvalidRequest for what is none, or has more."""
    content = bytes(body)
    try:
        message, size = _reader(api.key, version)(content, 0)
    except Exception as error:  # the reader raises many kinds, also its own
        raise InvalidRequest(f"this is no {api.name} request of version {version}") from error
    if size != len(content):
        raise InvalidRequest(
            f"a {api.name} request of version {version} has {len(content) - size} bytes behind it"
        )
    return message


def encode(api: Api, version: int, answer: Fields) -> bytes:
    """Return an answer as the body of a response of this version.

    Fields that the version lacks are left out; those that no version has are a mistake. Durations
    and times are whole milliseconds, ids 16 bytes, error codes numbers.
    """
    newest, shape = _response(api.key, api.high), _response(api.key, version)
    out = BytesIO()
    shape.write(out, shape.build(answer, newest))
    return out.getvalue()


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
def _reader(key: int, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    from kio.index import load_request_schema
    from kio.serial import entity_reader

    reader: Callable[[bytes, int], tuple[Any, int]] = entity_reader(
        load_request_schema(key, version)
    )
    return reader


@cache
def _response(key: int, version: int) -> MessageShape:
    from kio.index import load_response_schema

    return MessageShape(load_response_schema(key, version))
