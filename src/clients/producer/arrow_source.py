"""Arrow sources: reading as record batches of bounded size, and access to their columns.

Accepts pyarrow's Table, RecordBatch and RecordBatchReader, an iterable of RecordBatches, and
objects with the Arrow C stream or array (pandas, polars, DuckDB, ...), which are not imported.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...errors import InvalidRequest
from .json_rows import json_rows

if TYPE_CHECKING:
    import pyarrow as pa

    ArrowSource: TypeAlias = (
        pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch] | Any
    )

SLICE_BYTES = 8 << 20  # encoded in one step


class Columns(NamedTuple):
    """The columns of the source by purpose; None: not given."""

    key: str | None
    value: str | None
    timestamp: str | None
    headers: str | None
    partition: str | None


def slices_of(data: "ArrowSource") -> "Iterator[pa.RecordBatch]":
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


def values_of(part: "pa.RecordBatch", columns: Columns) -> "pa.Array":
    """Return the values: a column, or the unnamed columns of each row as JSON."""
    if columns.value is not None:
        return text_or_bytes(column_of(part, columns.value))
    return json_rows(part, [name for name in part.schema.names if name not in set(columns)])


def column_of(part: "pa.RecordBatch", name: str) -> "pa.Array":
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
