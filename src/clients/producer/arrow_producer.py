"""Sending of an Arrow source: slices are encoded as batches without record objects.

Slices of several MB are encoded in sequence on the cpu lane, each row for its partition, and
queued like other batches. The producer's buffer limits the reading, so an endless reader takes
bounded memory. The row numbers of a batch are kept until it is stored. The first failure ends the
reading; the error has the outcome of every row.
"""

import base64
import json
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...errors import (
    InvalidRequest,
    MessageTooLarge,
    QuorumlogError,
    RowsNotDelivered,
    UnknownTopicOrPartition,
)
from ...records.arrow import partition_table, record_columns
from ...records.batch import parse_header
from ...records.codec import Envelope, encode_columns
from ...records.columns import RecordColumns
from .batches import Batch, DeliveredRange, ranges_of, settled
from .partitioner import KeyPartitioner, choose

if TYPE_CHECKING:
    import pyarrow as pa

    from .producer import AsyncProducer

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


def convert_rows(
    part: "pa.RecordBatch", columns: ArrowColumns, timestamp_ms: int
) -> "tuple[pa.Array | None, pa.Array, RecordColumns]":
    """Return the keys, the values and the records of a slice; raise InvalidRequest for a missing
    column."""
    keys = None if columns.key is None else text_or_bytes(find_column(part, columns.key))
    values = value_column(part, columns)
    records = record_columns(
        values,
        keys=keys,
        timestamps_ms=_optional(part, columns.timestamp),
        headers=_optional(part, columns.headers),
        timestamp_ms=timestamp_ms,
    )
    return keys, values, records


class EncodedRows(NamedTuple):
    """A batch of rows; `rows` are their ascending numbers in the source."""

    partition: int
    records: bytes
    rows: Sequence[int]


class SourceSlice(NamedTuple):
    """A part of the source, with the number of its first row."""

    part: "pa.RecordBatch"
    first_row: int


async def send_arrow(
    producer: "AsyncProducer",
    topic: str,
    data: "ArrowSource",
    *,
    columns: ArrowColumns,
    partition: int | None,
) -> list[DeliveredRange]:
    """See `AsyncProducer.send_arrow`."""
    return await _Sending(producer, topic, data, columns, partition).run()


class _Sending:
    """One call of send_arrow."""

    def __init__(
        self,
        producer: "AsyncProducer",
        topic: str,
        data: "ArrowSource",
        columns: ArrowColumns,
        partition: int | None,
    ) -> None:
        self._producer = producer
        self._runtime = producer.connection.runtime
        self._topic = topic
        self._data = data
        self._columns = columns
        self._partition = partition
        self._transaction = producer.transactions.begun
        self._turn = 0  # next partition for rows without a key
        self._read_rows = 0  # rows read from the source
        self._queued: deque[tuple[Batch, Sequence[int]]] = deque()  # without an outcome, or failed
        self._stored: list[Batch] = []  # merged into `_ranges` by `_fold`
        self._ranges: list[DeliveredRange] = []
        self._stored_count = 0

    async def run(self) -> list[DeliveredRange]:
        """Send everything; before the first row is queued raise the error itself, then
        RowsNotDelivered."""
        error: Exception | None = None
        refused: Sequence[EncodedRows] = ()
        is_whole = False
        try:
            await self._producer.ensure_topic(self._topic)
            count = self._producer.accumulator.topic_queues(self._topic).partition_count
            self._turn = self._runtime.entropy.stream("arrow").below(count)
            is_whole, refused, error = await self._send_slices()
        except Exception as failure:
            error = failure
        if error is not None and not self._queued and not self._stored_count:
            raise error
        for batch, _ in self._queued:
            await settled(batch)
        self._fold()
        if error is not None or self._queued:
            raise self._rows_not_delivered(error, refused, is_whole=is_whole)
        return sorted(self._ranges)

    async def _send_slices(self) -> tuple[bool, Sequence[EncodedRows], Exception | None]:
        """Return True if the source was read to its end; else the batches not queued, and the
        error."""
        source = iter_slices(self._data)
        while (part := await self._next(source)) is not None:
            encoded = await self._encode(SourceSlice(part, self._read_rows))
            self._read_rows += part.num_rows
            for index, each in enumerate(encoded):
                try:
                    batch = await self._queue(each)
                except QuorumlogError as error:
                    return False, encoded[index:], error
                batch.observe_run(0, batch.count)
                self._queued.append((batch, each.rows))
                if self._fold():
                    return False, encoded[index + 1 :], None
        return True, (), None

    async def _next(self, source: "Iterator[pa.RecordBatch]") -> "pa.RecordBatch | None":
        """Return the next slice, None at the end; a source that may block is read on a lane."""
        if is_in_memory(self._data):
            return next(source, None)
        return await self._runtime.tasks.offload("read", lambda: next(source, None))

    async def _encode(self, piece: SourceSlice) -> list[EncodedRows]:
        # The topic may have been deleted, or have more partitions than in the cached metadata.
        await self._producer.ensure_topic(self._topic, partition=self._last_partition(piece.part))
        return await self._runtime.tasks.offload(
            "cpu", self._encoding(piece), cost_bytes=piece.part.nbytes
        )

    def _last_partition(self, part: "pa.RecordBatch") -> int | None:
        """Return the highest partition that the caller names for a row, None if there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self._columns.partition
        if name is None:
            return self._partition
        named = find_column(part, name)
        last: int | None = pc.max(named).as_py() if pa.types.is_integer(named.type) else None
        return last

    async def _queue(self, encoded: EncodedRows) -> Batch:
        limit = self._producer.config.max_request_size
        if len(encoded.records) > limit:  # it would break the stream, and fail other batches
            raise MessageTooLarge(
                f"row {encoded.rows[0]} needs a batch of {len(encoded.records)} bytes, larger than "
                f"max_request_size ({limit}): raise it on the producer, and max.message.bytes on "
                "the topic",
                topic=self._topic,
                partition=encoded.partition,
            )
        return await self._producer.send_encoded(
            self._topic,
            encoded.partition,
            encoded.records,
            len(encoded.rows),
            transaction=self._transaction,
        )

    def _encoding(self, piece: SourceSlice) -> Any:
        """Return the job that encodes a slice, each row for its partition."""
        producer, columns = self._producer, self._columns
        config = producer.config
        envelope = Envelope(
            codec=config.codec,
            level=config.compression_level,
            is_transactional=config.transactional_id is not None,
        )
        wall_ms = self._runtime.clock.wall_ms()
        queues = producer.accumulator.topic_queues(self._topic)
        count, batch_bytes = len(queues.queues), queues.batch_size

        def job() -> list[EncodedRows]:
            part = piece.part
            keys, values, records = convert_rows(part, columns, wall_ms)
            groups = self._groups(part, keys, values, count)
            encoded: list[EncodedRows] = []
            for target, rows in groups:
                encoded.extend(_encode_rows(records, target, rows, envelope, batch_bytes))
            if groups and groups[0][0] is None:  # batches go to the partitions in turn
                encoded = [
                    each._replace(partition=(self._turn + index) % count)
                    for index, each in enumerate(encoded)
                ]
                self._turn = (self._turn + len(encoded)) % count
            first = piece.first_row
            return [each._replace(rows=_shifted(each.rows, first)) for each in encoded]

        return job

    def _groups(
        self, part: "pa.RecordBatch", keys: "pa.Array | None", values: "pa.Array", count: int
    ) -> "list[tuple[int | None, pa.Array | None]]":
        """Return (partition, its ascending rows) pairs; None: any partition, all rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self._columns.partition
        if self._partition is not None:
            return [(self._partition, None)]
        if name is None:
            return self._chosen_groups(part, keys, values, count)
        named = find_column(part, name)
        if named.null_count and pa.types.is_integer(named.type):
            groups = self._chosen_groups(part, keys, values, count)
            named = pc.coalesce(
                named.cast(pa.int64()), _targets(groups, part.num_rows, self._turn % count)
            )
        return _by_column(self._topic, named, count)

    def _chosen_groups(
        self, part: "pa.RecordBatch", keys: "pa.Array | None", values: "pa.Array", count: int
    ) -> "list[tuple[int | None, pa.Array | None]]":
        """Return the groups of the partitioner's choice, as `_groups` does."""
        partitioner = self._producer.accumulator.partitioner
        if isinstance(partitioner, KeyPartitioner):
            if keys is None:
                return [(None, None)]
            turn, self._turn = self._turn, (self._turn + part.num_rows) % count
            by_partition = partition_table(keys, partitions=count, null_start=turn)
            return [(target, rows) for target, rows in enumerate(by_partition) if len(rows)]
        targets = array("q")
        for key, value in zip(_bytes_of(keys, part.num_rows), _bytes_of(values, 0), strict=True):
            chosen = choose(partitioner, self._topic, key, value, count)
            targets.append(self._turn if chosen is None else chosen)
        self._turn = (self._turn + 1) % count  # sticky rows keep a partition for one slice
        return _by_column(self._topic, _as_int64(targets), count)

    # --- outcomes --------------------------------------------------------------------------

    def _fold(self) -> bool:
        """Merge stored batches into ranges; return True if a batch has failed."""
        kept: deque[tuple[Batch, Sequence[int]]] = deque()
        has_failed = False
        for batch, rows in self._queued:
            if batch.is_done and not batch.has_failed():
                self._stored_count += len(rows)
                self._stored.append(batch)
            else:
                kept.append((batch, rows))
                has_failed = has_failed or batch.is_done
        self._queued = kept
        if self._stored:
            found = ranges_of((batch, 0, batch.count) for batch in self._stored)
            self._ranges = _joined([*self._ranges, *found])
            self._stored.clear()
        return has_failed

    def _rows_not_delivered(
        self, error: Exception | None, refused: Sequence[EncodedRows], *, is_whole: bool
    ) -> RowsNotDelivered:
        """Return the error with the outcome of every row."""
        failed, unknown = array("q"), array("q")
        first: QuorumlogError | None = error if isinstance(error, QuorumlogError) else None
        for batch, rows in self._queued:
            for index, row in enumerate(rows):
                reason = batch.error_of(index)
                if reason is None:
                    self._stored_count += 1
                    continue
                first = first or reason
                (unknown if _may_be_stored(batch, index) else failed).append(row)
            self._ranges = _joined([*self._ranges, *_stored_ranges(batch)])
        for each in refused:
            failed.extend(each.rows)
        failed, unknown = array("q", sorted(failed)), array("q", sorted(unknown))
        if error is not None and first is not error:
            first = InvalidRequest(f"the source failed: {type(error).__name__}: {error}")
            first.__cause__ = error
        left = "" if is_whole else f"; the source was read up to row {self._read_rows}"
        return RowsNotDelivered(
            f"{self._stored_count} rows are stored, {len(failed)} are not, {len(unknown)} may be "
            f"(no response){left}: {first}",
            topic=self._topic,
            first=first,
            ranges=sorted(self._ranges),
            stored_count=self._stored_count,
            failed=failed,
            unknown=unknown,
            unsent_from=None if is_whole else self._read_rows,
        )


def _encode_rows(
    records: RecordColumns,
    target: int | None,
    rows: "pa.Array | None",
    envelope: Envelope,
    batch_bytes: int,
) -> list[EncodedRows]:
    """Encode rows (None: all) as batches for one partition."""
    if rows is None:
        numbers: Sequence[int] = range(records.values.length)
        batches = _encode_columns(records, envelope=envelope, batch_bytes=batch_bytes)
    else:
        view = memoryview(rows.buffers()[1]).cast("B").cast("q")
        numbers = view[rows.offset : rows.offset + len(rows)]
        batches = _encode_columns(
            records, envelope=envelope, batch_bytes=batch_bytes, rows=numbers.cast("B")
        )
    encoded, first = [], 0
    for batch in batches:
        count = parse_header(batch).record_count
        encoded.append(
            EncodedRows(-1 if target is None else target, batch, numbers[first : first + count])
        )
        first += count
    return encoded


def _encode_columns(records: RecordColumns, **how: Any) -> list[bytes]:
    try:
        return encode_columns(records, **how)
    except ValueError as error:  # a header without a key; timestamps out of range
        raise InvalidRequest(f"the table cannot be encoded: {error}") from None


def _by_column(
    topic: str, targets: "pa.Array", count: int
) -> "list[tuple[int | None, pa.Array | None]]":
    """Return the rows of each partition that a column of integers names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(targets.type):
        raise InvalidRequest(f"a column of {targets.type} holds no partitions: give integers")
    groups: list[tuple[int | None, pa.Array | None]] = []
    for target in sorted(pc.unique(targets).to_pylist()):
        if not 0 <= target < count:
            raise UnknownTopicOrPartition(
                f"the partition column has {target}, the topic has {count} partitions, numbered "
                "from 0",
                topic=topic,
                partition=target,
            )
        rows = pc.indices_nonzero(pc.equal(targets, pa.scalar(target, targets.type)))
        groups.append((target, rows.cast(pa.int64())))
    return groups


def _targets(
    groups: "list[tuple[int | None, pa.Array | None]]", count: int, default: int
) -> "pa.Array":
    """Return the partition of each of `count` rows; `default` if the groups name none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    named = [(target, rows) for target, rows in groups if target is not None and rows is not None]
    if not named:
        return pa.repeat(pa.scalar(default, pa.int64()), count)
    targets = pa.concat_arrays(
        [pa.repeat(pa.scalar(target, pa.int64()), len(rows)) for target, rows in named]
    )
    return targets.take(pc.sort_indices(pa.concat_arrays([rows for _, rows in named])))


def _optional(part: "pa.RecordBatch", name: str | None) -> "pa.Array | None":
    return None if name is None else find_column(part, name)


def _shifted(rows: Sequence[int], first: int) -> Sequence[int]:
    """Convert row numbers of a slice to those of the source."""
    if isinstance(rows, range):
        return range(rows.start + first, rows.stop + first)
    return array("q", [row + first for row in rows])


def _bytes_of(column: "pa.Array | None", rows: int) -> "list[bytes | None]":
    import pyarrow as pa

    if column is None:
        return [None] * rows
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return list(column.to_pylist())


def _as_int64(numbers: "array[int]") -> "pa.Array":
    import pyarrow as pa

    return pa.array(numbers, pa.int64())


def _may_be_stored(batch: Batch, index: int) -> bool:
    while batch.parts:
        first, batch = next(pair for pair in reversed(batch.parts) if pair[0] <= index)
        index -= first
    return batch.may_be_stored


def _stored_ranges(batch: Batch) -> list[DeliveredRange]:
    """Return the offset ranges of a batch's stored parts."""
    if batch.parts:
        return [each for _, part in batch.parts for each in _stored_ranges(part)]
    return [] if batch.error is not None else ranges_of([(batch, 0, batch.count)])


def _joined(ranges: list[DeliveredRange]) -> list[DeliveredRange]:
    """Return the ranges sorted by partition and offset, adjacent ones merged."""
    joined: list[DeliveredRange] = []
    for each in sorted(ranges):
        last = joined[-1] if joined else None
        if last is not None and last[:2] == each[:2] and last.end == each.first:
            joined[-1] = last._replace(end=each.end)
        else:
            joined.append(each)
    return joined
