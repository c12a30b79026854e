"""The parts that all formats of values share.

A decoder converts a column at once. A value that does not decode has a null in the result and a
reason, and does not affect the other rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

REASON_LENGTH_MAX: Final = 500
"""The length of a reason, which goes to logs and headers; a schema may have names of any length."""

DATES: Final = range(-719_162, 2_932_897)
TIMES_US: Final = range(DATES.start * 86_400_000_000, DATES.stop * 86_400_000_000)
"""The years 1 to 9999, in days and in microseconds since 1970."""

CONFLUENT_MAGIC: Final = b"\x00"
CONFLUENT_HEADER_BYTES: Final = 5
"""The frame of Confluent's serializers: the magic byte and the schema's id, 4 bytes."""


@dataclass(slots=True)
class Decoded:
    """A decoded column, and the reason of each bad row by its position; bad rows are null."""

    array: pa.Array
    reasons: dict[int, str] = field(default_factory=dict)


class Decoder(Protocol):
    """Decodes the values of one format and schema."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values without nulls."""
        ...


def decode_column(decoder: Decoder, values: pa.BinaryArray, *, header_bytes: int) -> Decoded:
    """Decode a column after removing `header_bytes` from each value. A null stays null."""
    reasons: dict[int, str] = {}
    is_decoded = values.is_valid()
    if header_bytes:
        is_long = pc.greater_equal(pc.binary_length(values), header_bytes).fill_null(True)
        for row in pc.indices_nonzero(pc.invert(is_long)).to_pylist():
            size = len(values[row].as_py())
            reasons[row] = f"it has {size} bytes, fewer than valueHeaderBytes={header_bytes}"
        is_decoded = pc.and_(is_decoded, is_long)
    rows = None
    if pc.all(is_decoded).as_py() is False:
        rows = pc.indices_nonzero(is_decoded)
        values = values.filter(is_decoded)
    if header_bytes:  # after the short values are gone, which binary_slice does not take
        values = pc.binary_slice(values, start=header_bytes)
    decoded = decoder.decode(values)
    assert len(decoded.array) == len(values), "a decoder returns a row for each value"
    for row, reason in decoded.reasons.items():
        hinted = reason if header_bytes else reason + _frame_hint(values[row].as_py())
        reasons[row if rows is None else rows[row].as_py()] = hinted[:REASON_LENGTH_MAX]
    if rows is None:
        return Decoded(decoded.array, reasons)
    return Decoded(decoded.array.take(_places(rows, len(is_decoded))), reasons)


def _places(rows: pa.Array, count: int) -> pa.Array:
    """Return for each of `count` rows its position in `rows`, null if it has none."""
    places: list[int | None] = [None] * count
    for position, row in enumerate(rows.to_pylist()):
        places[row] = position
    return pa.array(places, pa.int64())


def _frame_hint(value: bytes) -> str:
    if value[:1] != CONFLUENT_MAGIC or len(value) < CONFLUENT_HEADER_BYTES:
        return ""
    return (
        "; it begins like the frame of a schema registry, which is not asked: set valueHeaderBytes "
        f"to {CONFLUENT_HEADER_BYTES} and valueSchema to the writer's schema"
    )


def rows_to_array(rows: Sequence[Any], kind: pa.DataType, reasons: dict[int, str]) -> pa.Array:
    """Return Python rows as an array; a row that does not fit becomes null with a reason."""
    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        fitting = list(rows)
    for index, row in enumerate(fitting):
        try:
            pa.array([row], kind)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            fitting[index] = None
            reasons[index] = str(error)
    return pa.array(fitting, kind)


def decode_rows(
    values: pa.BinaryArray,
    kind: pa.DataType,
    decode: Callable[[bytes], Any],
    errors: tuple[type[Exception], ...],
) -> Decoded:
    """Decode row by row: `decode` returns the row as Python objects, or raises one of `errors`."""
    rows: list[Any] = []
    reasons: dict[int, str] = {}
    for index, value in enumerate(values.to_pylist()):
        try:
            rows.append(decode(value))
        except errors as error:
            rows.append(None)
            reasons[index] = str(error) or type(error).__name__
    return Decoded(rows_to_array(rows, kind, reasons), reasons)
