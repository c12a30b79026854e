"""The schemas of `kio`. Only this module imports it: at the first request, and each schema when its
key and version are first used."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any, Final
from uuid import UUID

UNKNOWN_SERVER_ERROR: Final = -1

Reader = Callable[[memoryview, int], tuple[Any, int]]
Writer = Callable[[BytesIO, Any], None]

_STRATEGIES: Final = "hypothesis"


def request_schema(key: int, version: int) -> type[Any]:
    """Return the class of a request."""
    return _index().load_request_schema(key, version)  # type: ignore[no-any-return]


def response_schema(key: int, version: int) -> type[Any]:
    """Return the class of a response."""
    return _index().load_response_schema(key, version)  # type: ignore[no-any-return]


def reader_of(schema: type[Any]) -> Reader:
    """Return a function that decodes a message at a position and returns its size."""
    reader: Reader = _serial().entity_reader(schema)
    return reader


def writer_of(schema: type[Any]) -> Writer:
    """Return a function that writes the bytes of a message."""
    writer: Writer = _serial().entity_writer(schema)
    return writer


def error_code(code: int) -> Any:
    """Return an error code as `kio`'s messages carry it."""
    known = _codes()
    return known[code if code in known else UNKNOWN_SERVER_ERROR]


def id_of(raw: bytes) -> Any:
    """Return an id as `kio`'s messages carry it; 16 zero bytes mean None."""
    return UUID(bytes=raw) if any(raw) else None


@cache
def _index() -> Any:
    with _without_strategies():
        from kio import index
    return index


@cache
def _serial() -> Any:
    with _without_strategies():
        from kio import serial
    return serial


@cache
def _codes() -> dict[int, Any]:
    _index()
    from kio.schema.errors import ErrorCode

    return {code.value: code for code in ErrorCode}


@contextmanager
def _without_strategies() -> Iterator[None]:
    """Hide hypothesis from `kio` unless it is loaded already: with it, the types register test
    strategies, which takes three times as long as all other imports."""
    if _STRATEGIES in sys.modules:
        yield
        return
    sys.modules[_STRATEGIES] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[_STRATEGIES]
