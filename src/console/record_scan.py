"""Reads of records for pages: a window of each partition, a bounded search, the end of the log.

Every read is one consumer of the user's client, with small buffers, and has bounds of records,
bytes and time. The consumer is closed at the end of the read, also by the cancellation after the
browser has disconnected.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..aio import AsyncLog
from ..clients.consumer.record import ConsumerRecord
from ..clients.offsets import Position
from ..errors import InvalidRequest, QuorumlogError
from .record_filter import RecordFilter

KIB: Final = 1024
MIB: Final = 1024 * KIB
PARTITIONS_MAX: Final = 64  # of one page; a topic with more is shown by partition
POLL_RECORDS: Final = 100
POLL_MS: Final = 500
BUSY_S: Final = 0.02  # of the event loop, at most about, before other pages have their turn
FETCH: Final[Mapping[str, Any]] = {
    "fetch_max_bytes": MIB,
    "max_partition_fetch_bytes": 256 * KIB,
    "max_partition_prefetch_bytes": 256 * KIB,
    "prefetch_max_bytes": 4 * MIB,
}
"""Settings of the consumers: a page needs few records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanBounds:
    """The limits of one read."""

    found: int  # records
    records: int  # read
    content_bytes: int  # read
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRange:
    """The part of a topic to read: offsets [start, end) by partition."""

    topic: str
    partitions: int  # of the topic
    isolation: str
    firsts: Mapping[int, int]  # log start offsets
    starts: Mapping[int, int]
    ends: Mapping[int, int]


def numbers_of(topic: str, partition: int | None, count: int) -> list[int]:
    """Return the partitions of a page: the chosen one, without one all `count` of the topic, of a
    large topic the first. Raises InvalidRequest for an unknown partition."""
    if partition is None:
        return list(range(count)) if count <= PARTITIONS_MAX else [0]
    if not 0 <= partition < count:
        raise InvalidRequest(
            f"{topic}: no partition {partition}; the topic has partitions 0 to {count - 1}"
        )
    return [partition]


async def open_span(
    log: AsyncLog,
    topic: str,
    *,
    partition: int | None,
    start: Position | Mapping[int, int],
    back: int = 0,
    isolation: str,
) -> ScanRange:
    """Look up the offsets of a span. It begins at `start`, with "latest" `back` offsets before the
    end of all partitions together. Raises InvalidRequest for an unknown partition."""
    count = await log.partition_count(topic)
    numbers = numbers_of(topic, partition, count)
    firsts, ends = await asyncio.gather(
        log.list_offsets(topic, at="earliest", partitions=numbers),
        log.list_offsets(topic, at="latest", partitions=numbers, isolation_level=isolation),
    )
    if isinstance(start, Mapping):
        wanted = {number: start.get(number, firsts[number]) for number in numbers}
    elif start == "latest":
        wanted = {number: ends[number] - max(1, back // len(numbers)) for number in numbers}
    elif start == "earliest":
        wanted = dict(firsts)
    elif isinstance(start, int):
        wanted = dict.fromkeys(numbers, start)
    else:
        wanted = await log.list_offsets(topic, at=start, partitions=numbers)
    starts = {each: min(max(wanted[each], firsts[each]), ends[each]) for each in numbers}
    return ScanRange(
        topic=topic, partitions=count, isolation=isolation, firsts=firsts, starts=starts, ends=ends
    )


@dataclass(slots=True, kw_only=True)
class Scan:
    """One read of a span, with its progress."""

    log: AsyncLog
    span: ScanRange
    bounds: ScanBounds
    matches: RecordFilter | None = None  # None: every record
    quota: int | None = None  # records of each partition; None: any number
    records: int = 0  # read
    content_bytes: int = 0  # read
    found: int = 0
    stop: str = ""  # the reason for the end before the end of the span
    has_timed_out: bool = False
    error: QuorumlogError | None = None
    positions: dict[int, int] = field(default_factory=dict)  # next offsets
    _taken: dict[int, int] = field(default_factory=dict)  # records by partition
    _until_s: float = 0.0

    async def read(self, take: Callable[[list[ConsumerRecord]], Awaitable[None]]) -> None:
        """Call `take` with the found records, also with empty lists as progress; an error of the
        cluster ends the read as `error`."""
        span = self.span
        self.positions = dict(span.starts)
        self._until_s = time.monotonic() + self.bounds.seconds
        places = [(span.topic, each) for each in span.starts if span.starts[each] < span.ends[each]]
        if not places:
            return
        try:
            async with self.log.consumer(
                places, start="latest", until_end=True, isolation_level=span.isolation, **FETCH
            ) as consumer:
                for topic, partition in places:
                    await consumer.seek((topic, partition), span.starts[partition])
                while places:
                    began_s = time.monotonic()
                    records = await consumer.poll(max_records=POLL_RECORDS, timeout_ms=POLL_MS)
                    is_idle = not records and time.monotonic() - began_s < POLL_MS / 2_000
                    await take(await self._found(records))
                    self._check(time.monotonic())
                    if self.stop:
                        break
                    for (_, partition), offset in consumer.positions().items():
                        self._advance(partition, span.ends[partition] if is_idle else offset)
                    ended = [place for place in places if self._is_done(place[1])]
                    places = [place for place in places if place not in ended]
                    if ended and places:
                        await consumer.unassign(ended)
        except QuorumlogError as error:
            self.error = error

    async def _found(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the found ones of some records, up to the bounds."""
        found = []
        busy_s = time.monotonic()
        for record in records:
            if self.stop:
                break
            if self._is_done(record.partition):
                continue
            if record.offset >= self.span.ends[record.partition]:
                self._advance(record.partition, record.offset)
                continue
            self.positions[record.partition] = record.offset + 1
            self.records += 1
            self.content_bytes += len(record.key or b"") + len(record.value or b"")
            if self.matches is None or self.matches(record):
                found.append(record)
                self.found += 1
                self._taken[record.partition] = self._taken.get(record.partition, 0) + 1
            now_s = time.monotonic()
            self._check(now_s)
            if now_s - busy_s > BUSY_S:
                await asyncio.sleep(0)
                busy_s = time.monotonic()
        return found

    def _check(self, now_s: float) -> None:
        bounds = self.bounds
        if self.found >= bounds.found:
            self.stop = f"the limit of {bounds.found:,} found records"
        elif self.records >= bounds.records:
            self.stop = f"the limit of {bounds.records:,} records read"
        elif self.content_bytes >= bounds.content_bytes:
            self.stop = f"the limit of {bounds.content_bytes // MIB:,} MiB read"
        elif now_s >= self._until_s:
            self.stop = f"the time limit of {bounds.seconds:g} s"
            self.has_timed_out = True

    def _advance(self, partition: int, offset: int) -> None:
        """Move the position of a partition over offsets without records."""
        if not self._is_full(partition) and offset >= self.span.ends[partition]:
            self.positions[partition] = self.span.ends[partition]

    def _is_full(self, partition: int) -> bool:
        return self.quota is not None and self._taken.get(partition, 0) >= self.quota

    def _is_done(self, partition: int) -> bool:
        """Return True if the partition's quota or the end of its span is reached."""
        return self._is_full(partition) or self.positions[partition] >= self.span.ends[partition]

    @property
    def is_whole(self) -> bool:
        """True if every partition was read to the end of the span."""
        return all(self.positions.get(each, 0) >= end for each, end in self.span.ends.items())


async def read_one(log: AsyncLog, topic: str, partition: int, offset: int) -> ConsumerRecord:
    """Return the record at an offset, of an aborted transaction too. Raises InvalidRequest if it
    has no record, OffsetOutOfRange outside the log."""
    places = [(topic, partition)]
    async with log.consumer(
        places, start=offset, until_end=True, isolation_level="read_uncommitted", **FETCH
    ) as consumer:
        until_s = time.monotonic() + 10
        records: list[ConsumerRecord] = []
        while not records and time.monotonic() < until_s:
            records = await consumer.poll(max_records=1, timeout_ms=1_000)
            if not records and (await consumer.position((topic, partition))) > offset:
                break
    if records and records[0].offset == offset:
        return records[0]
    after = f"; the next one has offset {records[0].offset}" if records else ""
    raise InvalidRequest(
        f"{topic}-{partition}: no record at offset {offset}{after}; it was removed by compaction,"
        " is the marker of a transaction, or does not exist yet"
    )
