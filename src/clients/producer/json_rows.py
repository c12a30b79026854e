"""Rows of an Arrow batch as JSON objects, column by column, without Python objects per cell.

Arrow kernels convert every column to JSON text; the texts are joined row by row. Columns of nested
types are converted cell by cell, which is slow. NaN and infinities become null; times become ISO
8601 text; bytes become text if they are UTF-8, else base64.
"""

import base64
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

NEEDS_ESCAPE = r'[\x00-\x1f"\\]'
CONTROL = r"[\x00-\x1f]"


def json_rows(batch: "pa.RecordBatch", columns: list[str]) -> "pa.Array":
    """Return one JSON object per row, as a string array, with the columns in the given order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not columns:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    parts: list[Any] = []
    for index, name in enumerate(columns):
        parts.append(f"{',' if index else '{'}{json.dumps(name)}:")
        parts.append(json_cells(batch.column(name)))
    return pc.binary_join_element_wise(*parts, "}", "")


def json_cells(array: "pa.Array") -> "pa.Array":
    """Return the JSON text of each cell; null becomes `null`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.types
    kind = array.type
    if kinds.is_dictionary(kind):
        array = array.cast(kind.value_type)
        kind = array.type
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_decimal(kind):
        text = array.cast(pa.string())
    elif kinds.is_floating(kind):
        text = pc.if_else(pc.is_finite(array), array, pa.scalar(None, kind)).cast(pa.string())
    elif kinds.is_string(kind) or kinds.is_large_string(kind):
        text = _quoted(array.cast(pa.string()))
    elif kinds.is_timestamp(kind):
        text = _quoted(pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1))
    elif kinds.is_date(kind) or kinds.is_time(kind):
        text = _quoted(array.cast(pa.string()))
    elif kinds.is_duration(kind):
        text = array.cast(pa.int64()).cast(pa.string())
    else:
        text = pa.array([_cell(value) for value in array.to_pylist()], pa.string())
    return pc.fill_null(text, "null")


def _quoted(text: "pa.Array") -> "pa.Array":
    """Return strings as JSON strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if _any(pc.match_substring_regex(text, NEEDS_ESCAPE)):
        if _any(pc.match_substring_regex(text, CONTROL)):
            return pa.array(
                [None if cell is None else json.dumps(cell) for cell in text.to_pylist()],
                pa.string(),
            )
        text = pc.replace_substring(text, "\\", "\\\\")
        text = pc.replace_substring(text, '"', '\\"')
    return pc.binary_join_element_wise('"', text, '"', "")


def _any(flags: "pa.Array") -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(flags).as_py())


def _cell(value: Any) -> str | None:
    return None if value is None else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Convert a cell of a nested or binary column to a value for the json module."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
