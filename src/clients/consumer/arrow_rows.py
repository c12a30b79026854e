"""Arrow rows of fetched batches: stored columns plus topic and partition.

pyarrow is imported when a function is called.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InvalidRequest
from ...records.arrow import arrow_schema, decode_arrow
from ...runtime import Buffer

if TYPE_CHECKING:
    import pyarrow as pa


def table_schema(columns: Sequence[str]) -> "pa.Schema":
    """Return the schema of a table of these columns; raise InvalidRequest for an unknown column."""
    import pyarrow as pa

    if isinstance(columns, str):
        raise InvalidRequest(f"columns is {columns!r}: give a list of names, [{columns!r}]")
    own = {"topic": pa.string(), "partition": pa.int32()}
    stored = arrow_schema([name for name in columns if name not in own])
    fields = [pa.field(name, own[name]) if name in own else stored.field(name) for name in columns]
    return pa.schema(fields)


def decode_rows(
    batches: Buffer,
    schema: "pa.Schema",
    *,
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int,
) -> "pa.RecordBatch":
    """Return the records of [start_offset, end_offset) with the columns of a `table_schema`."""
    import pyarrow as pa

    own = {"topic": topic, "partition": partition}
    decoded = decode_arrow(
        batches,
        start_offset=start_offset,
        end_offset=end_offset,
        columns=[name for name in schema.names if name not in own],
    )
    arrays = [
        pa.repeat(pa.scalar(own[name], schema.field(name).type), decoded.num_rows)
        if name in own
        else decoded.column(name)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
