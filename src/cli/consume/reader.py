"""Consumption of a range of offsets of several partitions, bounded or unbounded."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...clients.times import FromEnd, OffsetSpec
from ...errors import OffsetOutOfRange
from ..names import check_partition, partitions_of

if TYPE_CHECKING:
    from ...clients.blocking import Log
    from ...clients.blocking.consumer import Consumer
    from ...clients.consumer.record import ConsumerRecord

POLL_RECORDS_MAX = 500  # per poll, with a maximum number of records
END_CHECK_MS = 500  # idle time before the check whether a partition ends in an offset gap

Partitions = dict[str, list[int]]
Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """The range to read of each partition, [start, end), and when to stop."""

    start: OffsetSpec
    end: OffsetSpec | None = None  # None: unbounded
    until_end: bool = False  # stop at the end that each partition has at the start
    records: int | None = None  # stop after this number, of all partitions together
    idle_ms: int | None = None  # stop after this time without records
    isolation_level: str = "read_committed"


def choose_partitions(log: "Log", topics: Sequence[str], wanted: Sequence[int]) -> Partitions:
    """Return the partitions to read by topic, all if none are given. Raise
    UnknownTopicOrPartition."""
    chosen: Partitions = {}
    for topic in topics:
        count = partitions_of(log, topic)
        for partition in wanted:
            check_partition(topic, partition, count)
        chosen[topic] = sorted(set(wanted)) or list(range(count))
    return chosen


def read(
    log: "Log", partitions: Partitions, bounds: ReadBounds
) -> "Iterator[list[ConsumerRecord]]":
    """Yield the records of a range as they arrive."""
    start = bounds.start
    begins = (
        _from_end(log, partitions, start.records, bounds.isolation_level)
        if isinstance(start, FromEnd)
        else {}
    )
    ends = (
        {} if bounds.end is None else _offsets(log, partitions, bounds.end, bounds.isolation_level)
    )
    consumer = log.consumer(
        partitions,
        start="latest" if isinstance(start, FromEnd) else start,
        until_end=bounds.until_end,
        isolation_level=bounds.isolation_level,
    )
    with consumer, explain_out_of_range():
        for (topic, partition), offset in begins.items():
            consumer.seek((topic, partition), offset)
        if ends:
            yield from _limited(_read_to(consumer, ends, bounds), bounds.records)
        else:
            yield from read_on(consumer, bounds)


@contextmanager
def explain_out_of_range() -> Iterator[None]:
    """Add a remedy to OffsetOutOfRange."""
    try:
        yield
    except OffsetOutOfRange as error:
        what = error.message.partition("; seek")[0]  # the remedy for programs
        raise OffsetOutOfRange(
            f"{what}; give --from earliest, latest or an offset between",
            topic=error.topic,
            partition=error.partition,
        ) from None


def read_on(consumer: "Consumer", bounds: ReadBounds) -> "Iterator[list[ConsumerRecord]]":
    """Yield records up to the maximum number, or until the idle time is over."""
    left = bounds.records
    while left is None or left > 0:
        count = None if left is None else min(left, POLL_RECORDS_MAX)
        records = consumer.poll(max_records=count, timeout_ms=bounds.idle_ms)
        if not records:
            return
        yield records
        left = None if left is None else left - len(records)


def _limited(
    chunks: "Iterator[list[ConsumerRecord]]", limit: int | None
) -> "Iterator[list[ConsumerRecord]]":
    left = limit
    for records in chunks:
        if left is None:
            yield records
            continue
        yield records[:left]
        left -= len(records)
        if left <= 0:
            return


def _read_to(
    consumer: "Consumer", ends: Offsets, bounds: ReadBounds
) -> "Iterator[list[ConsumerRecord]]":
    """Yield the records below each partition's end; a partition that has reached it is paused."""
    left = dict(ends)
    idle_ms = 0
    _drop_reached(consumer, left)
    while left:
        records = consumer.poll(timeout_ms=END_CHECK_MS)
        wanted = [
            record
            for record in records
            if record.offset < left.get((record.topic, record.partition), -1)
        ]
        if wanted:
            yield wanted
        for partition, offset in {(r.topic, r.partition): r.offset for r in records}.items():
            if offset + 1 >= left.get(partition, offset + 2):
                del left[partition]
                consumer.pause(partition)
        idle_ms = 0 if records else idle_ms + END_CHECK_MS
        if not records:
            _drop_reached(consumer, left)
            if bounds.until_end or (bounds.idle_ms is not None and idle_ms >= bounds.idle_ms):
                return


def _drop_reached(consumer: "Consumer", left: Offsets) -> None:
    """Remove and pause the partitions whose position is at their end, across offset gaps."""
    for partition, end in list(left.items()):
        if consumer.position(partition) >= end:
            del left[partition]
            consumer.pause(partition)


def _from_end(log: "Log", partitions: Partitions, records: int, isolation_level: str) -> Offsets:
    begins: Offsets = {}
    for topic, wanted in partitions.items():
        first = log.list_offsets(topic, at="earliest", partitions=wanted)
        end = log.list_offsets(
            topic, at="latest", partitions=wanted, isolation_level=isolation_level
        )
        for partition in wanted:
            begins[topic, partition] = max(first[partition], end[partition] - records)
    return begins


def _offsets(log: "Log", partitions: Partitions, spec: OffsetSpec, isolation_level: str) -> Offsets:
    if isinstance(spec, FromEnd):
        return _from_end(log, partitions, spec.records, isolation_level)
    found: Offsets = {}
    for topic, wanted in partitions.items():
        offsets = log.list_offsets(
            topic, at=spec, partitions=wanted, isolation_level=isolation_level
        )
        found |= {(topic, partition): offset for partition, offset in offsets.items()}
    return found
