"""Python data sources without a broker: the ceilings of Spark's interface.

The rest of their time is Spark's own, so no source or sink in Python is faster.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

PARTITIONS: Final = 4
VALUE_BYTES: Final = 100
BATCH_ROWS: Final = 40_000
SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
_TIME: Final = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
_ROW: Final[dict[str, Any]] = {
    "key": b"key-000001",
    "value": b"x" * VALUE_BYTES,
    "topic": "bench",
    "partition": 0,
    "offset": 0,
    "timestamp": _TIME,
    "timestampType": 0,
}


def prepared(schema: StructType, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of one batch, `rows` rows in all."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    count = min(BATCH_ROWS, rows)
    columns = [pa.array([_ROW[field.name]] * count, field.type) for field in arrow]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow)
    for start in range(0, rows, BATCH_ROWS):
        yield batch.slice(0, min(BATCH_ROWS, rows - start))


class PreparedReader(DataSourceReader):
    """Yields one prepared Arrow batch repeatedly."""

    def __init__(self, rows: int, schema: StructType) -> None:
        self._rows = rows // PARTITIONS
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return one task for each partition."""
        return [InputPartition(index) for index in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return prepared(self._schema, self._rows)


class PreparedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Yields one prepared Arrow batch repeatedly; offsets count rows."""

    def __init__(self, rows: int, rows_per_batch: int, schema: StructType) -> None:
        self._rows = rows
        self._rows_per_batch = rows_per_batch
        self._schema = schema

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"rows": min(start["rows"] + self._rows_per_batch, self._rows)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((end["rows"] - start["rows"]) // PARTITIONS)] * PARTITIONS

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return prepared(self._schema, partition.value)


@dataclass(frozen=True, slots=True)
class Counted(WriterCommitMessage):
    """The number of rows of a task."""

    rows: int


class CountingWriter(DataSourceArrowWriter):
    """Counts the rows and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class PreparedSource(DataSource):
    """The ceiling of batch reads, streams and batch writes; its name is `prepared`."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return PreparedReader(int(self.options["rows"]), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PreparedStreamReader(int(self.options["rows"]), int(self.options["batch"]), schema)

    def writer(self, schema: StructType, overwrite: bool) -> CountingWriter:
        return CountingWriter()
