"""JSON values: whole columns by pyarrow's reader, single rows where that fails.

pyarrow reads a column at once but fails at the first bad value, without its exact row. So a column
that fails is read again in parts, and a part that fails row by row. The reader of rows decides: the
bulk reader accepts a value only if the reader of rows returns the same for it. Maps and binaries
(base64) exist only in rows.

As in Spark's from_json, fields that the schema lacks are ignored, absent ones are null, names are
case-sensitive, and a fraction or an exponent is no integer. Other than there, a string is not made
of a number or an object, and a time without a zone is in UTC. The last of duplicate keys counts.
"""

import base64
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from .decoder import DATES, TIMES_US, Decoded, decode_rows

PART_ROWS: Final = 1_000
"""Rows of a part of a column that fails. The bulk reader has a fixed cost, that of 100 rows one by
one, so smaller parts are slower."""

DEPTH_MAX: Final = 500
"""Levels of objects and arrays of a value. Parsers differ in what they accept: the bulk reader any
depth, the reader of rows as much as Python's stack has left."""

JOINED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes that the bulk reader reads at once; more are read in parts."""

_NAN: Final = re.compile(rb"(?:NaN|Inf(?:inity)?)\s*[,\]}]")
"""Numbers that pyarrow accepts and JSON does not have."""

_FRAME_END: Final = r'(?:\}|null)\s*\]\s*,\s*"'
"""Text by which a value that is no JSON can close its frame and hide its rest in another field."""

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_LEVELS: Final = bytes.maketrans(b"{}", b"[]")
_NO_LEVELS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")

_SYNTAX: Final = msgspec.json.Decoder(msgspec.Raw)

_PREFIX: Final = pa.scalar(b'{"v":[')
_SUFFIX: Final = pa.scalar(b"]}\n")

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""Strings that pyarrow reads as decimals; Python also accepts blanks, underscores and more."""

_FLOAT32: Final = struct.Struct("<f")

Convert = Callable[[Any], Any]


class JsonDecoder:
    """Decodes JSON objects to a struct type."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._physical = _physical(kind)  # None: rows only
        self._convert = _converter(kind)
        # Decimals are exact only if the parser makes no floats.
        hook = Decimal if _has(kind, pa.types.is_decimal) else None
        self._parser = msgspec.json.Decoder(float_hook=hook)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values without nulls."""
        if not len(values):
            return Decoded(pa.nulls(0, self._kind))
        array = self._bulk(values)
        if array is not None:
            return Decoded(array)
        if len(values) <= PART_ROWS:
            return decode_rows(values, self._kind, self._row, (ValueError, RecursionError))
        decoded = Decoded(pa.nulls(0, self._kind))
        parts = []
        for first in range(0, len(values), PART_ROWS):
            part = self.decode(values.slice(first, PART_ROWS))
            parts.append(part.array)
            decoded.reasons |= {first + row: reason for row, reason in part.reasons.items()}
        decoded.array = pa.concat_arrays(parts)
        return decoded

    # --- columns ---

    def _bulk(self, values: pa.BinaryArray) -> pa.Array | None:
        """Return the decoded column, None if a value may be bad."""
        if self._physical is None or values.nbytes > JOINED_BYTES_MAX:
            return None
        try:
            for long in values.filter(pc.greater(pc.binary_length(values), 2 * DEPTH_MAX)):
                _check_depth(long.as_py())
            text = values.cast(pa.string())  # the reader checks no UTF-8
            for suspect in values.filter(pc.match_substring_regex(text, _FRAME_END)):
                _SYNTAX.decode(suspect.as_py())
            joined = _joined(values)
            if _has_nan(joined):
                return None
            table = pj.read_json(
                joined,
                read_options=pj.ReadOptions(use_threads=False, block_size=joined.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([("v", pa.list_(self._physical))]),
                    unexpected_field_behavior="ignore",
                ),
            )
            lists = table["v"].combine_chunks()
            if isinstance(lists, pa.ChunkedArray):
                lists = pa.concat_arrays(lists.chunks)
            # Each line has at least one row and one value, since a value cannot continue in the
            # next line: the frame's brackets close in each. So equal numbers are one each.
            if not len(lists) == len(values) == len(lists.flatten()):
                return None
            if not pc.all(pc.equal(pc.list_value_length(lists), 1)).as_py():
                return None
            array = _finish(lists.flatten(), self._kind)
            return array if _is_in_range(array) else None
        except (pa.ArrowException, ValueError, RecursionError):
            return None

    # --- rows ---

    def _row(self, value: bytes) -> Any:
        """Return the row of one value; raise ValueError with the reason."""
        _check_depth(value)
        parsed = self._parser.decode(value)
        return None if parsed is None else self._convert(parsed)


def _check_depth(value: bytes) -> None:
    """Raise ValueError for a value with more than DEPTH_MAX levels; one that is no JSON may pass.

    Most values have too few brackets. Of the others, each step removes the innermost level.
    """
    if value.count(b"[") + value.count(b"{") <= DEPTH_MAX:
        return
    levels = _STRING.sub(b"", value).translate(_LEVELS, _NO_LEVELS)
    for _ in range(DEPTH_MAX):
        outer = levels.replace(b"[]", b"")
        if len(outer) == len(levels):  # nothing is left, or the brackets have no pairs
            return
        levels = outer
    if levels:
        raise ValueError(f"it has more than {DEPTH_MAX} levels of objects and arrays")


def _joined(values: pa.BinaryArray) -> pa.Buffer:
    """Return the values framed as one line each, without a copy of its own per value."""
    lines = pc.binary_join_element_wise(_PREFIX, values, _SUFFIX, pa.scalar(b""))
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("i")
    start, end = ends[lines.offset], ends[lines.offset + len(lines)]
    return data.slice(start, end - start)


def _has_nan(joined: pa.Buffer) -> bool:
    """Return True if a number, or a text like one, is not finite."""
    text = joined.to_pybytes()
    # The search for a fixed text is ten times as fast as the expression.
    return (b"NaN" in text or b"Inf" in text) and _NAN.search(text) is not None


def _has(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Return True if a type or one inside it is wanted."""
    return is_wanted(kind) or any(
        _has(kind.field(index).type, is_wanted) for index in range(kind.num_fields)
    )


def _physical(kind: pa.DataType) -> pa.DataType | None:
    """Return the type to read for a type, None if the bulk reader has none.

    It reads dates from numbers only, and a float in one rounding where rows have two.
    """
    if _has(kind, lambda each: pa.types.is_map(each) or pa.types.is_binary(each)):
        return None
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _physical(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _physical(kind.value_type)))
    if pa.types.is_date32(kind):
        return pa.string()
    return pa.float64() if pa.types.is_float32(kind) else kind


def _finish(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a physical array to its type."""
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        children = [
            _finish(child, each.type) for child, each in zip(array.flatten(), kind, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _finish(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    return array.cast(kind)


def _is_in_range(array: pa.Array) -> bool:
    """Return False if a float is infinite, or a time outside of the years 1 to 9999: the reader of
    rows refuses both."""
    kind = array.type
    if pa.types.is_struct(kind):
        return all(_is_in_range(child) for child in array.flatten())
    if pa.types.is_list(kind):
        return _is_in_range(array.flatten())
    if pa.types.is_timestamp(kind):
        return _is_within(array.cast(pa.int64()), TIMES_US)
    if pa.types.is_date32(kind):
        return _is_within(array.cast(pa.int32()), DATES)
    return not pa.types.is_floating(kind) or pc.all(pc.is_finite(array)).as_py() is not False


def _is_within(numbers: pa.Array, allowed: range) -> bool:
    found = pc.min_max(numbers).as_py()
    return found["min"] is None or (found["min"] in allowed and found["max"] in allowed)


# --- the reader of rows ------------------------------------------------------------------------


def _converter(kind: pa.DataType) -> Convert:
    """Return the conversion of a parsed JSON value that is not null; it raises ValueError."""
    if pa.types.is_struct(kind):
        return _struct_converter(kind)
    if pa.types.is_list(kind):
        return _list_converter(_converter(kind.value_type))
    if pa.types.is_map(kind):
        return _map_converter(_converter(kind.item_type))
    if pa.types.is_integer(kind):
        return _integer_converter(kind.bit_width)
    if pa.types.is_decimal(kind):
        return _decimal_converter(kind.precision, kind.scale)
    if pa.types.is_float32(kind):
        return _to_float32
    for is_kind, convert in _LEAVES:
        if is_kind(kind):
            return convert
    raise AssertionError(f"JSON has no {kind}; the plan refuses it")


def _struct_converter(kind: pa.StructType) -> Convert:
    fields = [(each.name, _converter(each.type)) for each in kind]

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _mismatch(value, "an object")
        row = {}
        for name, converted in fields:
            inner = value.get(name)
            if inner is not None:
                try:
                    row[name] = converted(inner)
                except ValueError as error:
                    raise _inside(name, error) from None
        return row

    return convert


def _list_converter(converted: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _mismatch(value, "an array")
        try:
            return [None if each is None else converted(each) for each in value]
        except ValueError as error:
            raise _inside("[]", error) from None

    return convert


def _map_converter(converted: Convert) -> Convert:
    def convert(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise _mismatch(value, "an object")
        try:
            return [(key, None if each is None else converted(each)) for key, each in value.items()]
        except ValueError as error:
            raise _inside("{}", error) from None

    return convert


def _integer_converter(bits: int) -> Convert:
    lowest, beyond = -(1 << (bits - 1)), 1 << (bits - 1)

    def convert(value: Any) -> int:
        if type(value) is not int:
            raise _mismatch(value, "an integer")
        if not lowest <= value < beyond:
            raise ValueError(f"the number does not fit in {bits} bits")
        return value

    return convert


def _decimal_converter(precision: int, scale: int) -> Convert:
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if type(value) not in (int, Decimal, str):
            raise _mismatch(value, "a number")
        if type(value) is str and _DECIMAL.fullmatch(value) is None:
            raise ValueError("the string is no decimal number")
        try:
            return context.quantize(Decimal(value), unit)
        except DecimalException:
            raise ValueError(f"the number does not fit in DECIMAL({precision},{scale})") from None

    return convert


def _to_float(value: Any) -> float:
    if type(value) not in (int, float, Decimal):
        raise _mismatch(value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number in (float("inf"), float("-inf")):
        raise ValueError("the number is beyond the range of DOUBLE")
    return number


def _to_float32(value: Any) -> float:
    number = _to_float(value)
    try:
        _FLOAT32.pack(number)
    except OverflowError:
        raise ValueError("the number is beyond the range of FLOAT") from None
    return number


def _to_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _mismatch(value, "true or false")
    return value


def _to_text(value: Any) -> str:
    if type(value) is not str:
        raise _mismatch(value, "a string")
    return value


def _to_bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_to_text(value), validate=True)
    except ValueError as error:
        raise ValueError(f"the string is not base64: {error}") from None


def _to_date(value: Any) -> date:
    try:
        return date.fromisoformat(_to_text(value))
    except ValueError as error:
        raise ValueError(f"the string is no ISO 8601 date: {error}") from None


def _to_time(value: Any) -> datetime:
    """Return a time in UTC; digits below a microsecond are cut off."""
    try:
        time = datetime.fromisoformat(_to_text(value))
        return time.astimezone(UTC) if time.tzinfo is not None else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"the string is no ISO 8601 time: {error}") from None


def _to_local_time(value: Any) -> datetime:
    return _to_time(value).replace(tzinfo=None)


_LEAVES: Final[tuple[tuple[Callable[[pa.DataType], bool], Convert], ...]] = (
    (pa.types.is_boolean, _to_bool),
    (pa.types.is_float64, _to_float),
    (pa.types.is_string, _to_text),
    (pa.types.is_binary, _to_bytes),
    (pa.types.is_date32, _to_date),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is None, _to_local_time),
    (pa.types.is_timestamp, _to_time),
)

_NAMES: Final = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction or an exponent",
    Decimal: "a number with a fraction or an exponent",
}


class _Mismatch(ValueError):
    """A reason with the path of a field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def _mismatch(value: Any, wanted: str) -> ValueError:
    return _Mismatch("", f"{_NAMES[type(value)]}, not {wanted}")


def _inside(name: str, error: ValueError) -> ValueError:
    if not isinstance(error, _Mismatch):
        return _Mismatch(name, str(error))
    dot = "." if error.path and not error.path.startswith(("[", "{")) else ""
    return _Mismatch(f"{name}{dot}{error.path}", error.reason)
