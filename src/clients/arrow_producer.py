"""A whole Arrow table into the log: slices become batches in a few calls, never records.

Slices of some megabytes are encoded one after another in the cpu lane, each row going to its key's
partition, and queued like any other batch; the producer's bounded buffer paces the reading of the
source.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import InvalidRequest, MessageTooLarge
from ..records.arrow import encode_partitions, record_columns
from ..records.batch import parse_header
from ..records.codec import Envelope, encode_columns
from .batches import Batch
from .json_rows import json_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from .producer import AsyncProducer

    ArrowSource: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader

SLICE_BYTES = 8 << 20  # of the source that are encoded at a time


class DeliveredRange(NamedTuple):
    """Offsets [first, end) of a partition that hold rows of the table, in row order; -1 and -1
    where no answer was asked for (acks="none")."""

    topic: str
    partition: int
    first: int
    end: int


class Columns(NamedTuple):
    """Which columns of the source mean what; None: there is none."""

    key: str | None
    value: str | None
    timestamp: str | None
    headers: str | None


async def send_arrow(
    producer: "AsyncProducer",
    topic: str,
    data: "ArrowSource",
    *,
    columns: Columns,
    partition: int | None,
) -> list[DeliveredRange]:
    """See `AsyncProducer.send_arrow`."""
    await producer.know(topic)
    runtime = producer.connection.runtime
    count = producer.accumulator.partitions(topic)
    turn = runtime.entropy.stream("arrow").below(count)  # where rows without a key begin
    sent: list[Batch] = []
    for part in _slices(data):
        await producer.know(topic)  # it may be deleted meanwhile
        encoded = await runtime.tasks.offload(
            "cpu",
            _encoding(producer, topic, part, columns, partition, turn),
            cost_bytes=part.nbytes,
        )
        for target, batch in encoded:
            _check_size(producer, topic, target, batch)
            sent.append(await producer.send_encoded(topic, target, batch, _count(batch)))
        if partition is None:
            turn = (turn + (part.num_rows if columns.key else len(encoded))) % count
    await producer.deliver(sent)
    return _ranges(sent)


def _check_size(producer: "AsyncProducer", topic: str, partition: int, batch: bytes) -> None:
    """Refuse what would break the stream for everybody, as `send` does."""
    limit = producer.config.request_size_max
    if len(batch) > limit:
        raise MessageTooLarge(
            f"a row needs a batch of {len(batch)} bytes, larger than request_size_max ({limit})",
            topic=topic,
            partition=partition,
        )


def _encoding(
    producer: "AsyncProducer",
    topic: str,
    part: "pa.RecordBatch",
    columns: Columns,
    partition: int | None,
    turn: int,
) -> Any:
    """Return the job that encodes a slice into (partition, batch) pairs."""
    envelope = Envelope(codec=producer.config.codec)
    wall_ms = producer.connection.runtime.clock.wall_ms()
    count = producer.accumulator.partitions(topic)
    batch_bytes = producer.accumulator.batch_size(topic)

    def job() -> list[tuple[int, bytes]]:
        records = record_columns(
            _values(part, columns),
            keys=None if columns.key is None else _text_or_bytes(_column(part, columns.key)),
            timestamps_ms=None if columns.timestamp is None else _column(part, columns.timestamp),
            headers=None if columns.headers is None else _column(part, columns.headers),
            timestamp_ms=wall_ms,
        )
        if partition is None and columns.key is not None:
            by_partition = encode_partitions(
                records,
                partitions=count,
                null_start=turn,
                envelope=envelope,
                batch_bytes=batch_bytes,
            )
            return [
                (target, batch) for target, batches in enumerate(by_partition) for batch in batches
            ]
        batches = encode_columns(records, envelope=envelope, batch_bytes=batch_bytes)
        if partition is not None:
            return [(partition, batch) for batch in batches]
        return [((turn + index) % count, batch) for index, batch in enumerate(batches)]

    return job


def _slices(data: "ArrowSource") -> "Iterator[pa.RecordBatch]":
    """Yield the rows as batches of about SLICE_BYTES, in order."""
    import pyarrow as pa

    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        yield from _table_slices(data)
        return
    if not isinstance(data, pa.RecordBatchReader):
        if not hasattr(data, "__arrow_c_stream__"):
            raise InvalidRequest(
                f"send_arrow takes a pyarrow Table, RecordBatch or RecordBatchReader, not "
                f"{type(data).__name__}"
            )
        data = pa.RecordBatchReader.from_stream(data)
    for batch in data:
        yield from _table_slices(pa.Table.from_batches([batch]))


def _table_slices(table: "pa.Table") -> "Iterator[pa.RecordBatch]":
    rows = table.num_rows
    size = max(1, rows * SLICE_BYTES // max(1, table.nbytes))
    for start in range(0, rows, size):
        yield from table.slice(start, size).combine_chunks().to_batches()


def _values(part: "pa.RecordBatch", columns: Columns) -> "pa.Array":
    if columns.value is not None:
        return _text_or_bytes(_column(part, columns.value))
    named = {columns.key, columns.timestamp, columns.headers}
    return json_rows(part, [name for name in part.schema.names if name not in named])


def _column(part: "pa.RecordBatch", name: str) -> "pa.Array":
    if name not in part.schema.names:
        raise InvalidRequest(f"the table has no column {name!r}: {', '.join(part.schema.names)}")
    return part.column(name)


def _text_or_bytes(array: "pa.Array") -> "pa.Array":
    """Return numbers, dates and the like as their text; text and bytes as they are."""
    import pyarrow as pa

    kinds, kind = pa.types, array.type
    if kinds.is_primitive(kind) or kinds.is_decimal(kind):
        return array.cast(pa.string())
    return array


def _count(batch: bytes) -> int:
    return parse_header(batch).record_count


def _ranges(sent: list[Batch]) -> list[DeliveredRange]:
    """Return where the batches are: by partition, adjacent ranges joined."""
    ranges: list[DeliveredRange] = []
    for batch in sorted(sent, key=lambda batch: (batch.queue.partition, batch.base_offset)):
        topic, partition = batch.queue.topic, batch.queue.partition
        first, end = batch.base_offset, batch.base_offset + batch.count
        last = ranges[-1] if ranges else None
        if first < 0:
            end = first
        if last is not None and last.partition == partition and last.end == first:
            ranges[-1] = last._replace(end=end)
        else:
            ranges.append(DeliveredRange(topic, partition, first, end))
    return ranges
