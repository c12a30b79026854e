"""Rows of a DataFrame as records of a producer, without an object per row.

Spark's Arrow batches are joined to pieces of some megabytes, which the producer encodes in one step
each. Rows keep their order within each partition. The columns are chosen by position, since Spark
passes their names in the case of the query.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorumlog.clients.blocking import Producer
from quorumlog.clients.producer.record_input import TIMESTAMP_MS_MAX
from quorumlog.errors import (
    InvalidConfig,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    QuorumlogError,
    RowsNotDelivered,
    UnknownTopicOrPartition,
)
from quorumlog.spark.versions import to_arrow_schema

PIECE_BYTES: Final = 8 << 20
"""Arrow batches are joined up to this size, which the producer encodes in one step."""

ROWS_MAX: Final = 1_000
"""Rows of an Arrow batch that is made of rows."""

_TYPES: Final = {
    "topic": "string",
    "partition": "int",
    "key": "binary or string",
    "value": "binary or string",
    "headers": "array<struct<key: string, value: binary>>",
    "timestamp": "timestamp",
}
"""The columns that are written, with their types in words."""

_READ_ALONE: Final = frozenset({"offset", "timestamptype"})
"""Columns of a read that a write ignores, so that a topic can be copied as it is read."""


TOPICS_AT_ONCE: Final = 8
"""Topics of a piece that are sent at the same time."""

_FAULTS_OF_INPUT: Final = (
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnknownTopicOrPartition,
)


@dataclass(frozen=True, slots=True)
class WrittenColumns:
    """The columns of a DataFrame that are written, and the topic of rows without that column."""

    positions: dict[str, int]
    topic: str | None  # of every row; None: the column names each row's


def written_columns(schema: StructType, topic: str | None) -> WrittenColumns:
    """Return the columns of a schema by name, case-insensitively.

    Raises InvalidConfig for a column that is unknown, repeated or of a wrong type, and if `value`
    or the topic is missing. With `topic` the column topic is not written.
    """
    positions: dict[str, int] = {}
    for position, field in enumerate(schema.fields):
        name = field.name.lower()
        if name in _READ_ALONE:
            continue
        if name not in _TYPES:
            raise InvalidConfig(
                f"column {field.name!r} is unknown; a write takes {', '.join(_TYPES)}: rename or "
                "drop it"
            )
        if name in positions:
            raise InvalidConfig(f"column {name!r} occurs more than once; drop one")
        if not _fits(name, field.dataType):
            raise InvalidConfig(
                f"column {name!r} is {field.dataType.simpleString()}, not {_TYPES[name]}; cast it"
            )
        positions[name] = position
    if "value" not in positions:
        raise InvalidConfig(
            "column 'value' is missing; name what is written, for example: "
            "df.selectExpr('to_json(struct(*)) AS value')"
        )
    if topic is not None:
        positions.pop("topic", None)
    elif "topic" not in positions:
        raise InvalidConfig("no topic is given; set option 'topic', or add a column 'topic'")
    return WrittenColumns(positions, topic)


def _fits(name: str, kind: DataType) -> bool:
    match name:
        case "topic":
            return isinstance(kind, StringType)
        case "partition":
            return isinstance(kind, IntegerType)
        case "key" | "value":
            return isinstance(kind, StringType | BinaryType)
        case "timestamp":
            return isinstance(kind, TimestampType)
        case _:
            entry = kind.elementType if isinstance(kind, ArrayType) else None
            return (
                isinstance(entry, StructType)
                and [field.name for field in entry] == ["key", "value"]
                and isinstance(entry["key"].dataType, StringType)
                and isinstance(entry["value"].dataType, BinaryType)
            )


def send_rows(
    producer: Producer, batches: Iterable[pa.RecordBatch], columns: WrittenColumns
) -> int:
    """Send all rows in their order, and wait until they are stored; return their number.

    Holds one Arrow batch and PIECE_BYTES besides the producer's buffer, which blocks when it is
    full. Raises InvalidRecord for a row without a topic, InvalidTimestamp for a time before 1970 or
    after 9999, UnknownTopicOrPartition for a partition that does not exist, MessageTooLarge, and
    the producer's errors.
    """
    rows = _Rows(batches, columns)
    named = {name: name for name in columns.positions if name != "topic"}

    def send(topic: str, tables: Iterable[pa.Table]) -> None:
        failure: BaseException | None = None
        try:
            producer.send_arrow(topic, tables, **named)
        except RowsNotDelivered as error:
            failure = rows.failure or _root(error)
        if failure is not None:
            raise failure

    with ThreadPoolExecutor(TOPICS_AT_ONCE, thread_name_prefix="quorumlog-topics") as threads:
        for topic, pieces in groupby(rows.pieces(), key=_only_topic):
            if topic is not None:  # one call, so that encoding overlaps with sending
                send(topic, (piece[topic] for piece in pieces))
                continue
            for piece in pieces:
                sent = [threads.submit(send, name, [table]) for name, table in piece.items()]
                wait(sent)
                for each in sent:
                    each.result()
    return rows.count


def _only_topic(piece: dict[str, pa.Table]) -> str | None:
    return next(iter(piece)) if len(piece) == 1 else None


def batches_of(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Arrow batches of at most ROWS_MAX rows."""
    arrow_schema = to_arrow_schema(schema)
    iterator = iter(rows)
    while held := list(islice(iterator, ROWS_MAX)):
        arrays = [
            pa.array(map(_arrow_value(field), column), kind)
            for field, kind, column in zip(
                schema.fields, arrow_schema.types, zip(*held, strict=True), strict=True
            )
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)


def _arrow_value(field: StructField) -> Callable[[Any], Any]:
    """Return the conversion of a field's values to what pyarrow takes."""
    match field.dataType:
        case TimestampType():  # Spark passes local times without a zone
            return lambda time: None if time is None else time.astimezone(UTC)
        case ArrayType():  # of headers, as rows
            return lambda headers: (
                None if headers is None else [each and each.asDict() for each in headers]
            )
        case _:
            return lambda value: value


def _root(error: QuorumlogError) -> BaseException:
    """Return the error that made rows fail; of a lost attempt its cause, if the input is at
    fault."""
    first = error.__cause__ or error
    return first.__cause__ if isinstance(first.__cause__, _FAULTS_OF_INPUT) else first


class _Rows:
    """The rows of a task, checked."""

    def __init__(self, batches: Iterable[pa.RecordBatch], columns: WrittenColumns) -> None:
        self.count = 0
        self.failure: Exception | None = None  # that ended `pieces`
        self._batches = batches
        self._positions = columns.positions
        self._topic = columns.topic

    def pieces(self) -> Iterator[dict[str, pa.Table]]:
        """Yield the rows in order, some megabytes at a time, by their topics."""
        try:
            for table in self._joined():
                self._check_times(table)
                self.count += table.num_rows
                if self._topic is not None:
                    yield {self._topic: table}
                else:
                    self._check_topics(table)
                    yield _by_topic(table)
        except Exception as error:
            self.failure = error
            raise

    def _joined(self) -> Iterator[pa.Table]:
        """Yield tables of about PIECE_BYTES, with the written columns."""
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in self._batches:
            arrays = [batch.column(position) for position in self._positions.values()]
            chosen = pa.RecordBatch.from_arrays(arrays, names=list(self._positions))
            if held and held_bytes + chosen.nbytes > PIECE_BYTES:
                yield pa.Table.from_batches(held)
                held, held_bytes = [], 0
            held.append(chosen)
            held_bytes += chosen.nbytes
        if held:
            yield pa.Table.from_batches(held)

    def _check_times(self, table: pa.Table) -> None:
        """Raise InvalidTimestamp for a time that no record can have."""
        if "timestamp" not in self._positions:
            return
        times = table["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        bounds = pc.min_max(times).as_py()
        for found_us in (bounds["min"], bounds["max"]):
            if found_us is not None and not 0 <= found_us // 1000 <= TIMESTAMP_MS_MAX:
                raise InvalidTimestamp(
                    f"column 'timestamp': {found_us // 1000} ms since 1970 is outside of 0 to "
                    f"{TIMESTAMP_MS_MAX} (the years 1970 to 9999); correct it, or leave it null "
                    "for the time of the write"
                )

    def _check_topics(self, table: pa.Table) -> None:
        if table["topic"].null_count:
            raise InvalidRecord(
                f"column 'topic' is null in {table['topic'].null_count} rows; give each row a "
                "topic, or set option 'topic'"
            )


def _by_topic(table: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of each topic, in their order."""
    names = pc.dictionary_encode(table["topic"].cast(pa.string())).combine_chunks()
    table = table.drop_columns(["topic"])
    topics: list[str] = names.dictionary.to_pylist()
    if len(topics) == 1:
        return {topics[0]: table}
    table, first = table.take(pc.sort_indices(names.indices)), 0  # a stable sort
    found: dict[str, pa.Table] = {}
    for each in sorted(pc.value_counts(names.indices).to_pylist(), key=itemgetter("values")):
        found[topics[each["values"]]] = table.slice(first, each["counts"])
        first += each["counts"]
    return found
