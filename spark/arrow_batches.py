"""Conversion of stored record batches to Arrow batches for Spark.

Spark works best with 10,000 to 65,000 rows per batch: smaller batches have a fixed cost each,
larger ones exceed its caches. So small responses are joined before decoding, and large results are
sliced. Slices and constant columns (topic, partition) share memory. Performs no I/O.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from quorumlog.ids import TopicPartition
from quorumlog.records.arrow import decode_arrow
from quorumlog.records.batch import iterate_batches
from quorumlog.runtime import Buffer
from quorumlog.spark.values.plan import TaskValues
from quorumlog.spark.versions import to_arrow_schema

ROWS_MIN: Final = 10_000
ROWS_MAX: Final = 65_000
BYTES_MAX: Final = 8 * 1024 * 1024
"""Joined responses of this size are decoded, even with fewer than ROWS_MIN rows."""

_DECODED_AS: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
"""The codec's name of each column of the source; the other columns are constant."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole record batches to decode together, from offset `start`."""

    batches: Buffer
    start: int


class Gather:
    """Joins responses of a broker into chunks that decode to at least ROWS_MIN rows.

    Holds at most BYTES_MAX bytes and one response.
    """

    def __init__(self) -> None:
        self._waiting: list[Buffer] = []
        self._start = 0
        self._bytes = 0
        self._rows = 0

    def add(self, batches: Buffer, start: int) -> Iterator[Chunk]:
        """Add a response read from offset `start`; yield full chunks.

        Cuts only between record batches, so that the last batch of a chunk may exceed ROWS_MAX.
        Raises CorruptionError if the response has an incomplete batch.
        """
        taken = 0
        for position, header in iterate_batches(batches):
            if not self._rows:
                self._start = max(start, header.base_offset)
            self._rows += header.record_count
            self._bytes += header.size
            end = position + header.size
            if self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX:
                self._hold(batches, taken, end)
                taken = end
                yield self._cut()
        if taken < len(batches):
            self._hold(batches, taken, len(batches))
            if self._rows >= ROWS_MIN:
                yield self._cut()

    def rest(self) -> Iterator[Chunk]:
        """Yield the last chunk, if there is one."""
        if self._waiting:
            yield self._cut()

    def _hold(self, batches: Buffer, start: int, end: int) -> None:
        whole = start == 0 and end == len(batches)
        self._waiting.append(batches if whole else batches[start:end])

    def _cut(self) -> Chunk:
        chunk = Chunk(
            self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting), self._start
        )
        self._waiting, self._bytes, self._rows = [], 0, 0
        return chunk


class Assembler:
    """Builds Arrow batches with the columns of a schema, for one partition."""

    def __init__(
        self,
        schema: StructType,
        columns: tuple[str, ...],
        place: TopicPartition,
        values: TaskValues | None = None,
    ) -> None:
        """`columns` are the source's names of the schema's fields, in order."""
        self._values = values
        self._schema = to_arrow_schema(schema)
        self._columns = columns
        # At least one column, whose length is the number of rows.
        self._decoded = tuple(_DECODED_AS[name] for name in columns if name in _DECODED_AS)
        self._decoded = self._decoded or ("offset",)
        if values is not None:
            self._decoded = tuple(dict.fromkeys((*self._decoded, *values.columns)))
        self._same = {
            "topic": pa.repeat(pa.scalar(place.topic, pa.string()), ROWS_MAX),
            "partition": pa.repeat(pa.scalar(place.partition, pa.int32()), ROWS_MAX),
        }

    def decode(self, chunk: Chunk, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the chunk's records below offset `end`, in non-empty batches of at most ROWS_MAX
        rows. Raise CorruptionError, and the errors of `TaskValues.decode`."""
        decoded = decode_arrow(
            chunk.batches, start_offset=chunk.start, end_offset=end, columns=self._decoded
        )
        for first in range(0, decoded.num_rows, ROWS_MAX):
            records = decoded.slice(first, ROWS_MAX)
            if self._values is not None:
                records = self._values.decode(records)
            if records.num_rows:
                yield self._assemble(records)

    def _assemble(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            self._as_asked(self._column(name, decoded), field.type)
            for name, field in zip(self._columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, decoded: pa.RecordBatch) -> pa.Array:
        if name in self._same:
            return self._same[name].slice(0, decoded.num_rows)
        return decoded.column(_DECODED_AS[name])

    @staticmethod
    def _as_asked(array: pa.Array, wanted: pa.DataType) -> pa.Array:
        return array if array.type.equals(wanted) else array.cast(wanted)
