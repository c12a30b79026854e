"""Messages of the protocol by key and version, from the schemas of `kio`.

A schema is loaded when its key and version are first used. Every version has classes of its own;
so handlers read attributes with a default where older versions have none, and answer with plain
fields, from which the message of the caller's version takes what it has.
"""

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from ...errors import InvalidRequest, QuorumlogError
from .api import Api, Fields

UNKNOWN_SERVER_ERROR: Final = -1


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
def _response(key: int, version: int) -> "_Root":
    from kio.index import load_response_schema

    return _Root(load_response_schema(key, version))


class _Shape:
    """How plain fields become one class of a schema."""

    def __init__(self, schema: type[Any]) -> None:
        self.schema = schema
        hints = typing.get_type_hints(schema)
        self.slots: dict[str, _Slot] = {
            field.name: _Slot(field, hints[field.name]) for field in fields(schema)
        }

    def build(self, values: Mapping[str, Any], newest: "_Shape | None") -> Any:
        """Return an instance; `newest`: the same class in the newest version."""
        known = newest.slots if newest is not None else {}
        for name in values:
            assert name in self.slots or name in known, f"no {name} in {self.schema}"
        made = {}
        for name, slot in self.slots.items():
            if name in values:
                other = known.get(name)
                made[name] = slot.build(values[name], None if other is None else other.nested)
            elif not slot.has_default:
                made[name] = slot.empty()
        return self.schema(**made)


class _Root(_Shape):
    """The class of a whole message."""

    def __init__(self, schema: type[Any]) -> None:
        from kio.serial import entity_writer

        super().__init__(schema)
        self.write: Callable[[BytesIO, Any], None] = entity_writer(schema)


class _Slot:
    """One field of a class."""

    def __init__(self, field: Field[Any], hint: Any) -> None:
        self.has_default = field.default is not MISSING or field.default_factory is not MISSING
        kind, self.is_optional = _without_none(hint)
        self.is_array = typing.get_origin(kind) is tuple
        if self.is_array:
            kind = typing.get_args(kind)[0]
        self.nested = _Shape(kind) if hasattr(kind, "__dataclass_fields__") else None
        self.kafka_type: str = field.metadata.get("kafka_type", "")
        self._name = field.name

    def build(self, value: Any, newest: _Shape | None) -> Any:
        """Return what the class takes for a plain value."""
        if value is None:
            return None
        if self.is_array:
            return tuple(self._one(each, newest) for each in value)
        return self._one(value, newest)

    def empty(self) -> Any:
        """What an answer that does not speak of this field means by that."""
        if self.is_array:
            return None if self.is_optional else ()
        if self.is_optional:
            return None
        if self._name.startswith("throttle_time"):
            return timedelta()
        if self.kafka_type == "error_code":
            return self._one(0, None)
        raise AssertionError(f"an answer without {self._name}")

    def _one(self, value: Any, newest: _Shape | None) -> Any:
        if self.nested is not None:
            return self.nested.build(value, newest)
        convert = _CONVERSIONS.get(self.kafka_type)
        return value if convert is None else convert(value)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        if len(kinds) == 1:
            return kinds[0], True
    return hint, False


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _time(milliseconds: int) -> datetime | None:
    if milliseconds < 0:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _uuid(raw: bytes) -> UUID | None:
    return UUID(bytes=raw) if any(raw) else None


def _error_code(code: int) -> Any:
    from kio.schema.errors import ErrorCode

    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode(UNKNOWN_SERVER_ERROR)


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _time,
    "uuid": _uuid,
    "error_code": _error_code,
}
