"""A stretch of a partition as one Arrow table, over one Subscribe stream.

The stream is opened anew where it broke; only offsets decide what comes next, so nothing is read
twice. Bounded by the end that was the high watermark when the call began, unless one is given.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidRequest, OffsetOutOfRange, QuorumlogError, StreamBroken
from ..proto import log_pb2
from ..records.arrow import arrow_schema, decode_arrow
from ..services import LOG_SUBSCRIBE
from .connection import Connection
from .offsets import Position, resolve
from .topology import Leader

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
OWN_COLUMNS = ("topic", "partition")  # known here, not in the records
CHUNK_BYTES = 4 << 20  # of one answer of the stream


async def read_arrow(
    connection: Connection,
    topic: str,
    *,
    partition: int,
    start: Position,
    end: Position | None,
    columns: Sequence[str],
) -> "pa.Table":
    """See `AsyncLog.read_arrow`."""
    import pyarrow as pa

    schema = table_schema(columns)
    first = (await resolve(connection, topic, [partition], start))[partition]
    end_offset = (await resolve(connection, topic, [partition], "latest"))[partition]
    if first > end_offset:
        raise OffsetOutOfRange(
            f"start is {first}, the partition ends at {end_offset}",
            topic=topic,
            partition=partition,
        )
    if end is not None:
        wanted_end = (await resolve(connection, topic, [partition], end))[partition]
        end_offset = min(end_offset, wanted_end)
    reading = _Reading(connection, topic, partition, first, end_offset, tuple(columns))
    while reading.next_offset < end_offset:
        await connection.call_leader(topic, partition, reading.read_on)
    return pa.Table.from_batches(reading.batches, schema=schema)


def table_schema(columns: Sequence[str]) -> "pa.Schema":
    """Return the schema of a table of these columns; raises InvalidRequest for an unknown one."""
    import pyarrow as pa

    if isinstance(columns, str):
        raise InvalidRequest(f"columns is {columns!r}: give a list of names, [{columns!r}]")
    own = {"topic": pa.string(), "partition": pa.int32()}
    stored = arrow_schema([name for name in columns if name not in own])
    fields = [pa.field(name, own[name]) if name in own else stored.field(name) for name in columns]
    return pa.schema(fields)


class _Reading:
    """One call's progress."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        partition: int,
        next_offset: int,
        end_offset: int,
        columns: tuple[str, ...],
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._partition = partition
        self._end_offset = end_offset
        self._columns = columns
        self._stored_columns = [name for name in columns if name not in OWN_COLUMNS]
        self._schema = table_schema(columns)
        self.next_offset = next_offset
        self.batches: list[pa.RecordBatch] = []

    async def read_on(self, leader: Leader, timeout_ms: int) -> None:
        """Read until the end, or until the stream breaks; raises only when nothing was read."""
        began = self.next_offset
        channel = self._connection.channel(leader.address)
        stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=0)
        try:
            await stream.send(
                log_pb2.SubscribeRequest(
                    topic=self._topic,
                    partition=self._partition,
                    offset=self.next_offset,
                    end_offset=self._end_offset,
                    max_bytes=CHUNK_BYTES,
                )
            )
            await stream.finish()
            while self.next_offset < self._end_offset:
                async with asyncio.timeout(timeout_ms / 1000):
                    response = await stream.receive()
                if response is None:
                    raise StreamBroken(f"{leader.address} ended the stream early")
                self._take(response)
        except TimeoutError:
            if self.next_offset == began:
                raise StreamBroken(f"{leader.address} sends nothing") from None
        except QuorumlogError as error:
            if self.next_offset == began or not error.retriable:
                raise
            self._connection.doubt(self._topic)
        finally:
            stream.abort("read")

    def _take(self, response: log_pb2.SubscribeResponse) -> None:
        self._connection.topology.saw_offset(response.metadata_offset)
        if response.next_offset < self.next_offset:
            raise InvalidRequest(
                f"the broker went back from {self.next_offset} to {response.next_offset}",
                topic=self._topic,
                partition=self._partition,
            )
        if response.batches:
            self.batches.append(
                self._with_own_columns(
                    decode_arrow(
                        response.batches,
                        start_offset=self.next_offset,
                        end_offset=self._end_offset,
                        columns=self._stored_columns,
                    )
                )
            )
        self.next_offset = response.next_offset

    def _with_own_columns(self, decoded: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        own = {"topic": self._topic, "partition": self._partition}
        rows = decoded.num_rows
        arrays = [
            pa.repeat(pa.scalar(own[name], self._schema.field(name).type), rows)
            if name in own
            else decoded.column(name)
            for name in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
