"""Encoding of plain fields as the bytes of a response, along a `kio` schema.

`kio`'s own writer needs an object for every struct of a response, and takes three times as long.
The bytes are identical.
"""

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime, timedelta
from struct import Struct
from typing import Any, Final, TypeAlias

from .shapes import without_none

Codes: TypeAlias = list[int]
Put: TypeAlias = Callable[[bytearray, Any, Codes], None]
"""Appends a value's bytes to the buffer, and error codes other than 0 to the list."""

_FORMATS: Final = {
    **{"int8": "b", "int16": "h", "int32": "i", "int64": "q", "bool": "?", "float64": "d"},
    **{"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "error_code": "h"},
    **{"timedelta_i32": "i", "timedelta_i64": "q"},
}
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_MAY_BE_MISSING: Final = ("string", "bytes", "records")
_NO_ID: Final = bytes(16)
_ABSENT: Final = object()


class StructEncoder:
    """Writes one class of a schema from the field names of the newest version."""

    def __init__(self, schema: type[Any], newest: type[Any] | None) -> None:
        hints = typing.get_type_hints(schema)
        later = {} if newest is None else typing.get_type_hints(newest)
        self._schema = schema
        self._is_flexible: bool = schema.__flexible__
        self._plain: list[tuple[str, Put, bytes | None]] = []  # name, writer, bytes if absent
        # name, tag, writer, bytes of the default
        self._tagged: list[tuple[str, int, Put, bytes]] = []
        for field in fields(schema):
            put = _field_writer(field, hints[field.name], later.get(field.name), self._is_flexible)
            absent = _bytes_of_absence(field, hints[field.name], put)
            tag = field.metadata.get("tag")
            if tag is None:
                self._plain.append((field.name, put, absent))
            else:
                assert absent is not None, f"the tagged field {field.name} has no default"
                self._tagged.append((field.name, tag, put, absent))
        self._tagged.sort(key=lambda each: each[1])
        self.names = tuple(field.name for field in fields(schema))
        self._known = frozenset(self.names) | frozenset(
            () if newest is None else (field.name for field in fields(newest))
        )

    def put(self, out: bytearray, values: Mapping[str, Any], codes: Codes) -> None:
        """Append a struct; raises AssertionError if it lacks a field or has an unknown one."""
        unknown = values.keys() - self._known
        assert not unknown, f"{self._schema} has no {unknown}"
        for name, put, absent in self._plain:
            value = values.get(name, _ABSENT)
            if value is not _ABSENT:
                put(out, value, codes)
            else:
                assert absent is not None, f"a struct of {self._schema} lacks {name}"
                out += absent
        if self._is_flexible:
            self._put_tagged(out, values, codes)

    def _put_tagged(self, out: bytearray, values: Mapping[str, Any], codes: Codes) -> None:
        found: list[tuple[int, bytearray]] = []
        for name, tag, put, default in self._tagged:
            value = values.get(name, _ABSENT)
            if value is not _ABSENT:
                content = bytearray()
                put(content, value, codes)
                if content != default:
                    found.append((tag, content))
        _put_varint(out, len(found))
        for tag, content in found:
            _put_varint(out, tag)
            _put_varint(out, len(content))
            out += content


# --- fields --------------------------------------------------------------------------------------


def _field_writer(field: Field[Any], hint: Any, later: Any, flexible: bool) -> Put:
    kind, is_optional = without_none(hint)
    newest, _ = without_none(later)
    kafka_type = field.metadata.get("kafka_type", "")
    if typing.get_origin(kind) is tuple:
        element, _ = without_none(typing.get_args(kind)[0])
        if hasattr(element, "__dataclass_fields__"):
            arguments = typing.get_args(newest)
            part = StructEncoder(element, without_none(arguments[0])[0] if arguments else None)
            put = _array_of(part.put, flexible)
        elif kafka_type in _FORMATS:
            put = _array_of_numbers(_FORMATS[kafka_type], flexible)
        else:
            put = _array_of(_value_writer(kafka_type, flexible), flexible)
        return put if is_optional else _present(put)
    if hasattr(kind, "__dataclass_fields__"):
        put = StructEncoder(kind, newest).put
        return _nullable(put) if is_optional and "tag" not in field.metadata else put
    put = _value_writer(kafka_type, flexible)
    return _present(put) if kafka_type in _MAY_BE_MISSING and not is_optional else put


def _value_writer(kafka_type: str, flexible: bool) -> Put:
    if kafka_type == "error_code":
        return _put_error_code
    if kafka_type in _FORMATS:
        return _number(_FORMATS[kafka_type])
    match kafka_type:
        case "uuid":
            return _put_id
        case "datetime_i64":
            return _put_time
        case "string":
            return _put_compact_text if flexible else _put_text
        case "bytes" | "records":
            return _put_compact_bytes if flexible else _put_bytes
        case _:
            raise AssertionError(f"fields of type {kafka_type}")


def _bytes_of_absence(field: Field[Any], hint: Any, put: Put) -> bytes | None:
    """Return the bytes of a field that a response does not set; None if it must be set."""
    kind, is_optional = without_none(hint)
    if field.default is not MISSING:
        value = _plain(field.default)
    elif is_optional:
        value = None
    elif typing.get_origin(kind) is tuple:
        value = ()
    elif field.name.startswith("throttle_time") or field.metadata.get("kafka_type") == "error_code":
        value = 0
    else:
        return None
    out = bytearray()
    put(out, value, [])
    return bytes(out)


def _plain(default: Any) -> Any:
    """Return a schema's default as a plain value."""
    if isinstance(default, timedelta):
        return default // timedelta(milliseconds=1)
    if isinstance(default, datetime):
        return int(default.timestamp() * 1000)
    if hasattr(default, "__dataclass_fields__"):
        return {}
    return default


# --- values --------------------------------------------------------------------------------------


def _number(form: str) -> Put:
    pack = Struct(f">{form}").pack

    def put(out: bytearray, value: Any, codes: Codes) -> None:
        out += pack(value)

    return put


def _put_error_code(out: bytearray, value: Any, codes: Codes) -> None:
    out += _INT16.pack(value)
    if value:
        codes.append(int(value))


def _put_id(out: bytearray, value: bytes | None, codes: Codes) -> None:
    raw = value or _NO_ID  # empty: no id
    assert len(raw) == 16, f"an id of {len(raw)} bytes"
    out += raw


def _put_time(out: bytearray, value: int | None, codes: Codes) -> None:
    out += _INT64.pack(-1 if value is None else max(value, -1))


def _put_compact_text(out: bytearray, value: str | None, codes: Codes) -> None:
    _put_compact_bytes(out, None if value is None else value.encode(), codes)


def _put_compact_bytes(out: bytearray, value: bytes | None, codes: Codes) -> None:
    if value is None:
        out.append(0)
    else:
        _put_varint(out, len(value) + 1)
        out += value


def _put_text(out: bytearray, value: str | None, codes: Codes) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        raw = value.encode()
        out += _INT16.pack(len(raw))
        out += raw


def _put_bytes(out: bytearray, value: bytes | None, codes: Codes) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += _INT32.pack(len(value))
        out += value


def _nullable(put: Put) -> Put:
    """Return a writer of a nullable struct, which has a marker in front (KIP-893)."""

    def put_or_not(out: bytearray, value: Any, codes: Codes) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            put(out, value, codes)

    return put_or_not


def _present(put: Put) -> Put:
    def put_what_is_there(out: bytearray, value: Any, codes: Codes) -> None:
        assert value is not None, "a required value is None"
        put(out, value, codes)

    return put_what_is_there


def _array_of(put: Put, flexible: bool) -> Put:
    def put_all(out: bytearray, values: Iterable[Any] | None, codes: Codes) -> None:
        if values is None:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        each = values if isinstance(values, tuple | list) else tuple(values)
        _put_count(out, len(each), flexible)
        for value in each:
            put(out, value, codes)

    return put_all


def _array_of_numbers(form: str, flexible: bool) -> Put:
    def put_all(out: bytearray, values: Iterable[int] | None, codes: Codes) -> None:
        if values is None:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        each = values if isinstance(values, tuple | list) else tuple(values)
        _put_count(out, len(each), flexible)
        out += Struct(f">{len(each)}{form}").pack(*each)

    return put_all


def _put_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        _put_varint(out, count + 1)
    else:
        out += _INT32.pack(count)


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
