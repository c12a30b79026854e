"""Avro's binary encoding: readers of values by the writer's schema.

fastavro's reader accepts some bytes that are no Avro, and returns wrong values for them: a negative
index of a union or an enum, a number of more than 64 bits, a block of another length than it has.
These readers refuse them. Dates, times and decimals are read as what pyarrow takes for them.
"""

import struct
from collections.abc import Callable, Collection, Sequence
from decimal import Context, Decimal
from typing import Any, Final

from .decoder import DATES, TIMES_US

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads the value at a position; returns it and the position behind it. Raises ValueError, or
IndexError and struct.error at the end of the bytes."""

_INT: Final = range(-(1 << 31), 1 << 31)
_LONG_BITS: Final = 64

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_EXACT: Final = Context(prec=76)


def record_reader(schema: dict[str, Any], fields: Collection[str]) -> Callable[[bytes], Any]:
    """Return the reader of whole values of a parsed schema, a record, with these fields as a dict;
    it raises ValueError for bytes that are not exactly one record."""
    read = _Readers().record(schema, fields)

    def read_all(data: bytes) -> Any:
        try:
            row, end = read(data, 0)
        except (IndexError, struct.error):
            raise ValueError(f"the value ends before the record, after {len(data)} bytes") from None
        except RecursionError:
            raise ValueError("the record is nested too deeply") from None
        if end != len(data):
            raise ValueError(f"{len(data) - end} bytes are left after the record")
        return row

    return read_all


class _Readers:
    """Readers of a schema's types."""

    def __init__(self) -> None:
        self._named: dict[str, Read] = {}

    def record(self, schema: dict[str, Any], fields: Collection[str] | None = None) -> Read:
        """Return the reader of a record, with these fields only (None: all)."""
        readers = [
            (each["name"], self._of(each["type"]), fields is None or each["name"] in fields)
            for each in schema["fields"]
        ]

        def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
            row = {}
            for name, read_field, is_wanted in readers:
                value, at = read_field(data, at)
                if is_wanted:
                    row[name] = value
            return row, at

        self._named[schema["name"]] = read
        return read

    def _of(self, schema: Any) -> Read:
        if isinstance(schema, list):
            return _union_reader([self._of(each) for each in schema])
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._reference(schema)
        match schema["type"]:
            case "record" | "error":
                return self.record(schema)
            case "enum":
                return self._keep(schema, _enum_reader(schema["symbols"]))
            case "fixed":
                return self._keep(schema, _logical(schema, _fixed_reader(schema["size"])))
            case "array":
                return _array_reader(self._of(schema["items"]))
            case "map":
                return _map_reader(self._of(schema["values"]))
            case inner:
                return _logical(schema, self._of(inner))

    def _keep(self, schema: dict[str, Any], read: Read) -> Read:
        self._named[schema["name"]] = read
        return read

    def _reference(self, name: str) -> Read:
        """Return the reader of a named type, which may be around this reference."""
        named = self._named
        return lambda data, at: named[name](data, at)


# --- primitive types ----------------------------------------------------------------------------


def _read_null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise ValueError(f"a boolean is the byte {byte}, neither 0 nor 1")
    return byte == 1, at + 1


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte >= 0x80 and shift < _LONG_BITS:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    if byte >= 0x80 or number >> _LONG_BITS:
        raise ValueError("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _read_long(data, at)
    if number not in _INT:
        raise ValueError(f"an int is {number}, which has more than 32 bits")
    return number, at


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + _FLOAT.size


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + _DOUBLE.size


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError(f"a length is {size}, and {len(data) - at} bytes are left")
    return data[at:end], end


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    text, at = _read_bytes(data, at)
    return text.decode(), at


_PRIMITIVES: Final[dict[str, Read]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}


# --- complex types ------------------------------------------------------------------------------


def _union_reader(branches: Sequence[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _read_long(data, at)
        return branches[_checked(index, branches, "a union", "branches")](data, at)

    return read


def _enum_reader(symbols: Sequence[str]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = _read_long(data, at)
        return symbols[_checked(index, symbols, "an enum", "symbols")], at

    return read


def _checked(index: int, parts: Sequence[Any], what: str, kind: str) -> int:
    if not 0 <= index < len(parts):
        raise ValueError(f"the index of {what} is {index}; it has {len(parts)} {kind}")
    return index


def _fixed_reader(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise ValueError(f"a fixed has {size} bytes, and {len(data) - at} bytes are left")
        return data[at:end], end

    return read


def _array_reader(read_item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, end, at = _read_block(data, at, len(items))
            if not count:
                return items, at
            for _ in range(count):
                item, at = read_item(data, at)
                items.append(item)
            _check_end(at, end)

    return read


def _map_reader(read_value: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        entries: dict[str, Any] = {}  # of duplicate keys the last counts
        while True:
            count, end, at = _read_block(data, at, 0)
            if not count:
                return entries, at
            for _ in range(count):
                key, at = _read_string(data, at)
                entries[key], at = read_value(data, at)
            _check_end(at, end)

    return read


def _read_block(data: bytes, at: int, before: int) -> tuple[int, int | None, int]:
    """Return a block's number of items, its end if it has a length, and the position of its first
    item; `before` items came before it. A negative count is that of a block with a length."""
    count, at = _read_long(data, at)
    end = None
    if count < 0:
        count = -count
        size, at = _read_long(data, at)
        end = at + size
    # Items have a byte or more, but for nulls, of which a few bytes could have any number.
    if before + count > len(data):
        raise ValueError(f"a block has {count} items, and the value {len(data)} bytes")
    return count, end, at


def _check_end(at: int, end: int | None) -> None:
    if end is not None and at != end:
        raise ValueError(f"the length of a block is wrong by {abs(at - end)} bytes")


# --- logical types ------------------------------------------------------------------------------


def _logical(schema: dict[str, Any], read: Read) -> Read:
    """Return the reader of a logical type; on another type than its own it has no effect."""
    match schema["type"], schema.get("logicalType"):
        case "int", "date":
            return _within(read, 1, DATES, "date")
        case "long", "timestamp-millis" | "local-timestamp-millis":
            return _within(read, 1_000, TIMES_US, "time")
        case "long", "timestamp-micros" | "local-timestamp-micros":
            return _within(read, 1, TIMES_US, "time")
        case "bytes" | "fixed", "decimal":
            return _decimal_reader(read, schema["precision"], schema.get("scale", 0))
        case _:
            return read


def _within(read: Read, factor: int, allowed: range, what: str) -> Read:
    def read_checked(data: bytes, at: int) -> tuple[int, int]:
        number, at = read(data, at)
        number *= factor
        if number not in allowed:
            raise ValueError(f"a {what} is outside of the years 1 to 9999")
        return number, at

    return read_checked


def _decimal_reader(read: Read, precision: int, scale: int) -> Read:
    beyond = 10**precision

    def read_decimal(data: bytes, at: int) -> tuple[Decimal, int]:
        raw, at = read(data, at)
        number = int.from_bytes(raw, "big", signed=True)
        if not -beyond < number < beyond:
            raise ValueError(f"a number does not fit in DECIMAL({precision},{scale})")
        return _EXACT.scaleb(Decimal(number), -scale), at

    return read_decimal
