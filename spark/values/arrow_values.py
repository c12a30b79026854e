"""Arrow values: each value is an IPC stream, a table; the column has an array of its rows.

A value of one row would be almost all schema, so a record has a table, and `inline(value)` makes
rows of it. Columns are found by name and cast to the type of the read without loss; an absent one
is null.

The buffers of a stream may be compressed, which the size of a record does not bound: read such
values from trusted producers only.
"""

from typing import Final

import pyarrow as pa

from .decoder import Decoded

ROWS_PER_BYTE_MAX: Final = 8
"""Rows that a byte of a value may have: a column that is not compressed has a bit for each."""


class ArrowDecoder:
    """Decodes IPC streams to arrays of structs."""

    def __init__(self, kind: pa.ListType) -> None:
        self._kind = kind
        self._fields = kind.value_type

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values without nulls."""
        reasons: dict[int, str] = {}
        tables: list[pa.Table | None] = []
        for index, value in enumerate(values):
            try:
                tables.append(self._table(value.as_buffer()))
            except (pa.ArrowException, OSError, ValueError) as error:
                tables.append(None)
                reasons[index] = str(error)
        found = [table for table in tables if table is not None]
        try:
            rows = self._rows(pa.concat_tables(found)) if found else self._no_rows()
        except (pa.ArrowException, ValueError):  # one of them, or they have several schemas
            rows = self._rows_of_each(tables, reasons)
        ends = [0]
        for table in tables:
            ends.append(ends[-1] + (0 if table is None else table.num_rows))
        is_bad = pa.array([table is None for table in tables], pa.bool_())
        array = pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), rows, type=self._kind, mask=is_bad
        )
        return Decoded(array, reasons)

    def _table(self, value: pa.Buffer) -> pa.Table:
        batches = []
        count = 0
        with pa.ipc.open_stream(value) as stream:
            if not stream.schema.names:  # joined tables without a column have no rows
                raise ValueError("the stream has no column")
            for batch in stream:
                count += batch.num_rows
                if count > ROWS_PER_BYTE_MAX * value.size:
                    raise ValueError(
                        f"the stream has more than {ROWS_PER_BYTE_MAX} rows for each of its "
                        f"{value.size} bytes"
                    )
                batch.validate(full=True)  # lengths and offsets come from the record
                batches.append(batch)
            return pa.Table.from_batches(batches, schema=stream.schema)

    def _rows(self, table: pa.Table) -> pa.Array:
        """Return the rows as structs; raise ArrowException or ValueError for another schema."""
        children = []
        for field in self._fields:
            count = table.schema.names.count(field.name)
            if count > 1:
                raise ValueError(f"{field.name}: the stream has {count} columns of this name")
            if not count:
                children.append(pa.nulls(table.num_rows, field.type))
                continue
            column = pa.concat_arrays(
                [pa.nulls(0, table[field.name].type), *table[field.name].chunks]
            )
            try:
                children.append(column.cast(field.type))
            except pa.ArrowException as error:
                raise ValueError(f"{field.name}: {error}") from None
        return pa.StructArray.from_arrays(children, fields=list(self._fields))

    def _no_rows(self) -> pa.Array:
        return pa.nulls(0, self._fields)

    def _rows_of_each(self, tables: list[pa.Table | None], reasons: dict[int, str]) -> pa.Array:
        """Convert table by table; a table that does not fit becomes None with a reason."""
        parts = [self._no_rows()]
        for index, table in enumerate(tables):
            if table is None:
                continue
            try:
                parts.append(self._rows(table))
            except (pa.ArrowException, ValueError) as error:
                tables[index] = None
                reasons[index] = str(error)
        return pa.concat_arrays(parts)
