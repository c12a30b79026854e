"""Arrow sources: reading as record batches of bounded size, and rows as JSON objects.

Accepts pyarrow's Table, RecordBatch and RecordBatchReader, an iterable of RecordBatches, and
objects with the Arrow C stream or array (pandas, polars, DuckDB, ...), which are not imported.

JSON is made column by column, without Python objects per cell: Arrow kernels convert every column
to JSON text; the texts are joined row by row. Columns of nested types are converted cell by cell,
which is slow. NaN and infinities become null; times become ISO 8601 text; bytes become text if
they are UTF-8, else base64.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    ArrowSource: TypeAlias = (
        pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch] | Any
    )

SLICE_BYTES = 8 << 20  # encoded in one step


class ArrowColumns(NamedTuple):
    """The columns of the source by purpose; None: not given."""

    key: str | None
    value: str | None
    timestamp: str | None
    headers: str | None
    partition: str | None


def iter_slices(data: "ArrowSource") -> "Iterator[pa.RecordBatch]":
    """Yield the rows in order as batches of about SLICE_BYTES.

    Raises InvalidRequest if the source has no Arrow data, and any error of the source.
    """
    import pyarrow as pa

    if isinstance(data, pa.Table):
        yield from _cut(data)
        return
    for batch in _batches(data):
        if not isinstance(batch, pa.RecordBatch | pa.Table):
            raise InvalidRequest(
                f"send_arrow takes an iterable of pyarrow RecordBatches, not of "
                f"{type(batch).__name__}"
            )
        yield from _cut(batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch]))


def is_in_memory(data: "ArrowSource") -> bool:
    """Return True if reading the source cannot block."""
    import pyarrow as pa

    return isinstance(data, pa.Table | pa.RecordBatch)


def _batches(data: Any) -> "Iterable[Any]":
    """Return an iterable of the source's batches."""
    import pyarrow as pa

    batches: Iterable[Any]

    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.RecordBatchReader):
        batches = data
        return batches
    if hasattr(data, "__arrow_c_stream__"):
        batches = pa.RecordBatchReader.from_stream(data)
        return batches
    if hasattr(data, "__arrow_c_array__"):
        return [pa.record_batch(data)]
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray | dict):
        batches = data
        return batches
    raise InvalidRequest(
        "send_arrow takes a pyarrow Table, RecordBatch or RecordBatchReader, an iterable of "
        f"RecordBatches, or a frame with the Arrow C stream, not {type(data).__name__}"
    )


def _cut(table: "pa.Table") -> "Iterator[pa.RecordBatch]":
    rows = table.num_rows
    size = max(1, rows * SLICE_BYTES // max(1, table.nbytes))
    for start in range(0, rows, size):
        yield from table.slice(start, size).combine_chunks().to_batches()


def value_column(part: "pa.RecordBatch", columns: ArrowColumns) -> "pa.Array":
    """Return the values: a column, or the unnamed columns of each row as JSON."""
    if columns.value is not None:
        return text_or_bytes(find_column(part, columns.value))
    return json_rows(part, [name for name in part.schema.names if name not in set(columns)])


def find_column(part: "pa.RecordBatch", name: str) -> "pa.Array":
    """Return a column; raise InvalidRequest if none or several have this name."""
    count = part.schema.names.count(name)
    if count > 1:
        raise InvalidRequest(f"the table has {count} columns called {name!r}: rename them")
    if not count:
        raise InvalidRequest(f"the table has no column {name!r}: {', '.join(part.schema.names)}")
    return part.column(name)


def text_or_bytes(array: "pa.Array") -> "pa.Array":
    """Return text and bytes unchanged, numbers and dates as text."""
    import pyarrow as pa

    kinds, kind = pa.types, array.type
    if kinds.is_primitive(kind) or kinds.is_decimal(kind):
        return array.cast(pa.string())
    return array


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
