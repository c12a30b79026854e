"""From record batches as the broker stores them to Arrow batches as Spark takes them.

Spark wants 10,000 to 65,000 rows at a time: fewer cost it a fixed price each, more do not fit its
caches. So small answers are joined before decoding, and what decodes to more is sliced. Slices and
the columns that are equal in every row (topic, partition) share memory. Knows no broker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quorumlog.records.arrow import decode_arrow
from quorumlog.records.batch import iterate_batches
from quorumlog.spark.offsets import TopicPartition

ROWS_MIN: Final = 10_000
ROWS_MAX: Final = 65_000
BYTES_MAX: Final = 8 * 1024 * 1024
"""Joined answers are decoded once they hold this many bytes, however few rows those are."""

_DECODED_AS: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
"""From a column of the source to the codec's name of it; the others are equal in every row."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole record batches to decode together, from offset `start` on."""

    batches: bytes
    start: int


class Gather:
    """Joins answers of a broker into chunks that decode to a good number of rows.

    Holds at most BYTES_MAX bytes and one answer.
    """

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._start = 0
        self._bytes = 0
        self._rows = 0

    def add(self, batches: bytes, start: int) -> Iterator[Chunk]:
        """Take an answer read from offset `start`; yield the chunks that are full.

        Cuts only between record batches, so a chunk has more than ROWS_MAX rows when one batch
        takes it there. Raises CorruptionError when the answer is not whole batches.
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
        """Yield what is left, if anything is."""
        if self._waiting:
            yield self._cut()

    def _hold(self, batches: bytes, start: int, end: int) -> None:
        whole = start == 0 and end == len(batches)
        self._waiting.append(batches if whole else batches[start:end])

    def _cut(self) -> Chunk:
        chunk = Chunk(
            self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting), self._start
        )
        self._waiting, self._bytes, self._rows = [], 0, 0
        return chunk


class Assembler:
    """Makes Arrow batches of exactly the columns that a schema asks for, of one partition."""

    def __init__(self, schema: StructType, columns: tuple[str, ...], place: TopicPartition) -> None:
        """`columns` are the source's names of the schema's fields, in order."""
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._columns = columns
        # At least one column, whose length says how many rows there are.
        self._decoded = tuple(_DECODED_AS[name] for name in columns if name in _DECODED_AS)
        self._decoded = self._decoded or ("offset",)
        self._same = {
            "topic": pa.repeat(pa.scalar(place.topic, pa.string()), ROWS_MAX),
            "partition": pa.repeat(pa.scalar(place.partition, pa.int32()), ROWS_MAX),
        }

    def decode(self, chunk: Chunk, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the chunk's records below offset `end`, at most ROWS_MAX at a time; never an empty
        batch. Raises CorruptionError."""
        decoded = decode_arrow(
            chunk.batches, start_offset=chunk.start, end_offset=end, columns=self._decoded
        )
        for first in range(0, decoded.num_rows, ROWS_MAX):
            yield self._assemble(decoded.slice(first, ROWS_MAX))

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
