"""Arrow batches of a topic's records: scans of offset ranges, and the polls of a consumer.

A scan reads over one Subscribe stream at a time. A broken stream is opened again at the next
offset, so no record is read twice. Without an explicit end a range ends at the end of the readable
records when reading began. Memory use is one response and the data that the stream's flow
control lets the broker send.

pyarrow is imported when a function is called.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from ...errors import (
    CorruptionError,
    InvalidRequest,
    OffsetOutOfRange,
    QuorumlogError,
    StreamBroken,
    TimedOut,
)
from ...proto import log_pb2
from ...records.arrow import arrow_schema, decode_arrow
from ...records.batch import iterate_batches
from ...runtime import Buffer, Method, Stream
from ...runtime.protobuf_fields import number_of, take_out
from ...services import LOG_SUBSCRIBE
from ..config import check_isolation_level
from ..connection import Connection
from ..offsets import (
    ISOLATION_NUMBERS,
    Bound,
    PartitionLike,
    Position,
    check_position,
    look_up,
)
from ..topology import PartitionLeader
from .partition_reader import FetchedChunk, PartitionReader, unreadable, unreadable_error, window

if TYPE_CHECKING:
    import pyarrow as pa

_BATCHES: Final = number_of(log_pb2.SubscribeResponse, "batches")


class SubscribedBatches:
    """A `SubscribeResponse` with its batches as a view of the received bytes."""

    __slots__ = ("batches", "metadata_offset", "next_offset")

    def __init__(self, batches: memoryview, next_offset: int, metadata_offset: int) -> None:
        self.batches = batches
        self.next_offset = next_offset
        self.metadata_offset = metadata_offset

    @classmethod
    def FromString(cls, raw: bytes) -> "SubscribedBatches":
        """Parse; raise DecodeError as the message class does."""
        head, found = take_out(raw, _BATCHES, 0, len(raw))
        begin, end = found[-1] if found else (0, 0)
        response = log_pb2.SubscribeResponse.FromString(head)
        return cls(memoryview(raw)[begin:end], response.next_offset, response.metadata_offset)


SUBSCRIBE: Final[Method[log_pb2.SubscribeRequest, Any]] = Method(
    LOG_SUBSCRIBE.path, LOG_SUBSCRIBE.request, cast("Any", SubscribedBatches), streaming=True
)
"""The call Subscribe with responses of class SubscribedBatches."""

SubscribeCall: TypeAlias = Stream[log_pb2.SubscribeRequest, Any]

CHUNK_BYTES = 4 << 20  # of one response of the stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """The validated arguments of a scan."""

    topic: str
    partitions: tuple[int, ...] | None  # None: all
    start: Bound
    end: Bound | None  # None: the high watermarks, or last stable offsets
    columns: tuple[str, ...]
    max_records: int | None
    max_bytes: int | None  # of Arrow data; the batch that reaches it is the last
    isolation_level: str


def scan_request(
    topic: str,
    *,
    partitions: int | Sequence[int] | None,
    start: Bound,
    end: Bound | None,
    columns: Sequence[str],
    max_records: int | None,
    max_bytes: int | None,
    isolation_level: str,
) -> ScanRequest:
    """Return the validated request; raise InvalidRequest or InvalidConfig if an argument is
    invalid."""
    check_isolation_level(isolation_level)
    if isinstance(partitions, int):
        partitions = [partitions]
    for each in partitions or ():
        if type(each) is not int or each < 0:
            raise InvalidRequest(f"{each!r} is not a partition: give numbers >= 0", topic=topic)
    for bound in (start, end):
        positions = bound.values() if isinstance(bound, Mapping) else [bound]
        for position in positions:
            if position is not None:
                check_position(position)
    for name, limit in (("max_records", max_records), ("max_bytes", max_bytes)):
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidRequest(f"{name} is {limit!r}: give a whole number, 0 or more")
    return ScanRequest(
        topic=topic,
        partitions=None if partitions is None else tuple(dict.fromkeys(partitions)),
        start=start,
        end=end,
        columns=(columns,) if isinstance(columns, str) else tuple(columns),
        max_records=max_records,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
    )


class ArrowScan:
    """The result of `AsyncLog.scan_arrow`: an asynchronous iterator of `pa.RecordBatch`.

    Batches are sorted by partition and offset. If iteration may end early, use it in `async with`
    or call `close`; it closes itself at its end and after an error. For one task at a time.
    """

    def __init__(self, connection: Connection, request: ScanRequest) -> None:
        self.schema = table_schema(request.columns)
        self._connection = connection
        self._request = request
        self._readings: list[_Reading] | None = None  # the remaining ones, the next one last
        self._records_left = request.max_records
        self._bytes_left = request.max_bytes

    def __aiter__(self) -> "ArrowScan":
        return self

    async def __anext__(self) -> "pa.RecordBatch":
        """Return the next non-empty batch."""
        batch = await self.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def next_batch(self) -> "pa.RecordBatch | None":
        """Return the next non-empty batch; None at the end."""
        if self._readings is None:
            self._readings = (await _readings(self._connection, self._request, self.schema))[::-1]
        while self._readings and not self._is_full:
            batch = await self._readings[-1].next_batch()
            if batch is not None:
                return self._within_limits(batch)
            self._readings.pop()
        self.close()
        return None

    def close(self) -> None:
        """Stop reading. Idempotent."""
        readings, self._readings = self._readings, []
        for reading in readings or []:
            reading.close()

    async def __aenter__(self) -> "ArrowScan":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _is_full(self) -> bool:
        return self._records_left == 0 or (self._bytes_left is not None and self._bytes_left <= 0)

    def _within_limits(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        if self._records_left is not None:
            batch = batch.slice(0, self._records_left)
            self._records_left -= batch.num_rows
        if self._bytes_left is not None:
            self._bytes_left -= batch.nbytes
        return batch


async def read_table(scan: ArrowScan) -> "pa.Table":
    """Return all batches of a scan as one table."""
    import pyarrow as pa

    async with scan:
        batches = []
        while (batch := await scan.next_batch()) is not None:
            batches.append(batch)
    return pa.Table.from_batches(batches, schema=scan.schema)


async def _readings(
    connection: Connection, request: ScanRequest, schema: "pa.Schema"
) -> list["_Reading"]:
    """Resolve the start and end offset of each partition."""
    topic, partitions = request.topic, request.partitions
    layout = await connection.layout(topic)
    if partitions is None:
        partitions = tuple(range(len(layout.partitions)))
    starts = await look_up(connection, _bounds(topic, partitions, request.start, "earliest"))
    ends = await look_up(
        connection,
        {(topic, partition): "latest" for partition in partitions},
        isolation_level=request.isolation_level,
    )
    for place, first in starts.items():
        if first > ends[place]:
            raise OffsetOutOfRange(
                f"start is {first}, the partition ends at {ends[place]}; give a smaller start",
                topic=topic,
                partition=place[1],
            )
    if request.end is not None:
        wanted = await look_up(
            connection,
            _bounds(topic, partitions, request.end, "latest"),
            isolation_level=request.isolation_level,
        )
        ends = {place: min(end, wanted[place]) for place, end in ends.items()}
    now = connection.topology.topic(topic)
    if now is None or now.topic_id != layout.topic_id:  # some offsets are of the deleted topic
        raise OffsetOutOfRange(
            "the topic was deleted and created again while reading began: retry", topic=topic
        )
    return [
        _Reading(
            connection,
            schema,
            place,
            layout.topic_id,
            next_offset=first,
            end_offset=ends[place],
            isolation_level=request.isolation_level,
        )
        for place, first in starts.items()
    ]


def _bounds(
    topic: str, partitions: Sequence[int], bound: Bound, otherwise: Position
) -> dict[PartitionLike, Position]:
    if isinstance(bound, Mapping):
        return {(topic, each): bound.get(each, otherwise) for each in partitions}
    return {(topic, each): bound for each in partitions}


class _Reading:
    """The progress in one partition."""

    def __init__(
        self,
        connection: Connection,
        schema: "pa.Schema",
        place: PartitionLike,
        topic_id: bytes,
        *,
        next_offset: int,
        end_offset: int,
        isolation_level: str,
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._isolation = ISOLATION_NUMBERS[isolation_level]
        self._topic, self._partition = place
        self._topic_id = topic_id
        self._next_offset = next_offset
        self._end_offset = end_offset
        self._stream: SubscribeCall | None = None
        self._error: QuorumlogError | None = None  # raised after the batches before it

    async def next_batch(self) -> "pa.RecordBatch | None":
        """Return the next non-empty batch; None at the end."""
        while self._next_offset < self._end_offset:
            if self._error is not None:
                raise self._error.with_traceback(None)
            response = await self._next_response()
            rows = None if response is None else self._take(response)
            if rows is not None and rows.num_rows:
                return rows
        self.close()
        return None

    @property
    def _is_committed_only(self) -> bool:
        return self._isolation == log_pb2.ISOLATION_READ_COMMITTED

    def close(self) -> None:
        """Abort the stream, if one is open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort("read")

    async def _next_response(self) -> SubscribedBatches | None:
        """Return a response that advances; None if the stream broke (the next call opens
        another)."""
        if self._stream is None:
            return await self._connection.call_leader(self._topic, self._partition, self._open)
        timeout_ms = self._connection.config.request_timeout_ms
        is_well = False
        try:
            response = await self._receive(self._stream, timeout_ms)
            is_well = True
            return response
        except QuorumlogError as error:
            if not error.retriable:
                raise
            self._connection.topology.mark_stale(self._topic)
            return None
        finally:
            if not is_well:
                self.close()

    async def _open(self, leader: PartitionLeader, timeout_ms: int) -> SubscribedBatches:
        """Open the stream and return its first response that advances."""
        if leader.topic_id != self._topic_id:
            raise OffsetOutOfRange(
                f"the topic was deleted and created again while it was read, up to offset "
                f"{self._next_offset}; start again",
                topic=self._topic,
                partition=self._partition,
            )
        channel = self._connection.channel(leader.address)
        stream: SubscribeCall = await channel.stream(SUBSCRIBE, timeout_ms=0)
        try:
            await stream.send(
                log_pb2.SubscribeRequest(
                    topic=self._topic,
                    partition=self._partition,
                    offset=self._next_offset,
                    end_offset=self._end_offset,
                    max_bytes=CHUNK_BYTES,
                    isolation=self._isolation,
                    topic_id=self._topic_id,
                )
            )
            await stream.finish()
            response = await self._receive(stream, timeout_ms)
            self._stream = stream
            return response
        finally:
            if self._stream is not stream:
                stream.abort("gave up")

    async def _receive(self, stream: SubscribeCall, timeout_ms: int) -> SubscribedBatches:
        """Return the next response that advances; raise StreamBroken if none comes in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    response: SubscribedBatches | None = await stream.receive()
                    if response is None:
                        raise StreamBroken("the broker ended the stream early")
                    self._connection.topology.record_offset(response.metadata_offset)
                    if response.next_offset < self._next_offset:
                        raise CorruptionError(
                            f"the stream went back from offset {self._next_offset} to "
                            f"{response.next_offset}",
                            topic=self._topic,
                            partition=self._partition,
                        )
                    if not _is_in_order(response, may_end_early=self._is_committed_only):
                        raise CorruptionError(
                            f"the batches from offset {self._next_offset} are out of order, or "
                            f"end before offset {response.next_offset}",
                            topic=self._topic,
                            partition=self._partition,
                        )
                    if response.next_offset > self._next_offset:
                        return response
        except TimedOut:
            raise
        except TimeoutError:
            raise StreamBroken(f"the broker sent no response within {timeout_ms} ms") from None

    def _take(self, response: SubscribedBatches) -> "pa.RecordBatch | None":
        """Decode a response; if a batch is corrupt, return the rows before it and keep the
        error."""
        start, end = self._next_offset, min(response.next_offset, self._end_offset)
        self._next_offset = response.next_offset
        if not response.batches:
            return None
        try:
            return self._decode(response.batches, start, end)
        except QuorumlogError as error:
            end, last, cause = unreadable(response.batches, start, error)
            self._error = unreadable_error(
                cause, self._topic, self._partition, first=end, last=last
            )
            self._next_offset = end
            self.close()
            return self._decode(response.batches, start, end)

    def _decode(self, batches: Buffer, start: int, end: int) -> Any:
        return decode_rows(
            batches,
            self._schema,
            topic=self._topic,
            partition=self._partition,
            start_offset=start,
            end_offset=end,
        )


def _is_in_order(response: SubscribedBatches, *, may_end_early: bool) -> bool:
    """Return True if the batches are in offset order and reach the stated end.

    `may_end_early`: aborted batches before the end are left out. A truncated batch counts as in
    order: decoding reports it.
    """
    end = 0
    try:
        for _, header in iterate_batches(response.batches):
            if header.base_offset < end:
                return False
            end = header.next_offset
    except CorruptionError:
        return True
    return may_end_early or not response.batches or response.next_offset <= end


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


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows decoded in one step, to be delivered by several polls: row i has the offset `first` +
    i."""

    rows: "pa.RecordBatch"
    first: int

    def has(self, schema: "pa.Schema", start: int, end: int) -> bool:
        """Return True if they contain these columns of [start, end)."""
        behind = self.first + self.rows.num_rows
        return self.first <= start and end <= behind and bool(self.rows.schema == schema)


class ArrowPoll:
    """The rows of one poll; see `AsyncConsumer.poll_arrow`."""

    def __init__(self, columns: Sequence[str], *, max_records: int | None, max_bytes: int) -> None:
        self._schema = table_schema(columns)
        self._batches: list[pa.RecordBatch] = []
        self._records_left = max_records  # None: no limit
        self._bytes_left = max_bytes
        self.rows = 0
        self.starts: dict[
            PartitionLike, int
        ] = {}  # position of each partition before its first row

    @property
    def is_full(self) -> bool:
        """True if a limit is reached."""
        return self._bytes_left <= 0 or self._records_left == 0

    def take(self, reader: PartitionReader) -> bool:
        """Take rows of one chunk of a partition; return True if there were any.

        A batch that cannot be decoded ends the partition's reading, see `PartitionReader.cut`.
        """
        rows = 0
        self.starts.setdefault((reader.topic, reader.partition), reader.position)
        while reader.chunks and not rows and not self.is_full:
            rows = self._take(reader, reader.chunks.oldest)
        return rows > 0

    def table(self) -> "pa.Table":
        """Return the rows as a table."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches, schema=self._schema)

    def _take(self, reader: PartitionReader, chunk: FetchedChunk) -> int:
        start, end, size = window(chunk, reader.position, self._bytes_left)
        whole = end
        if self._records_left is not None:
            end = min(end, start + self._records_left)
        try:
            rows = self._kept(reader, chunk, start, end, whole)
            if rows is None:
                rows = self._decode(reader, chunk, start, end)
        except QuorumlogError as error:
            end = min(end, reader.cut(chunk, error))
            reader.fetch_offset = reader.position  # in case that decoding fails again
            rows = self._decode(reader, chunk, start, end)
            reader.fetch_offset = end
        reader.skip_to(end)
        if rows.num_rows:
            self._batches.append(rows)
            self.rows += rows.num_rows
            self._bytes_left -= size
            if self._records_left is not None:
                self._records_left -= rows.num_rows
        return int(rows.num_rows)

    def _kept(
        self, reader: PartitionReader, chunk: FetchedChunk, start: int, end: int, whole: int
    ) -> "pa.RecordBatch | None":
        """Return the rows of [start, end) from a slice of the rows up to `whole`, decoded once.

        None if that is not possible: offsets are missing in the range, or a batch cannot be
        decoded.
        """
        end, whole = reader.end.limit(end), reader.end.limit(whole)
        kept = reader.chunks.rows if isinstance(reader.chunks.rows, DecodedRows) else None
        if kept is None or not kept.has(self._schema, start, end):
            if end >= whole:
                return None  # one poll takes all
            try:
                kept = DecodedRows(self._decode(reader, chunk, start, whole), start)
            except QuorumlogError:
                return None  # raised when the batch is reached
            if kept.rows.num_rows != whole - start:
                return None
            reader.chunks.rows = kept
        return kept.rows.slice(start - kept.first, end - start)

    def _decode(
        self, reader: PartitionReader, chunk: FetchedChunk, start: int, end: int
    ) -> "pa.RecordBatch":
        return decode_rows(
            chunk.batches,
            self._schema,
            topic=reader.topic,
            partition=reader.partition,
            start_offset=start,
            end_offset=reader.end.limit(end),
        )
