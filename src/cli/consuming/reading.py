"""Reading stretches of several partitions: from a place, to a place, or for ever."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import OffsetOutOfRange
from ..times import FromEnd, Place
from ..topic_names import check_partition, partitions_of

if TYPE_CHECKING:
    from ...clients import ConsumerRecord
    from ...clients.blocking import Log
    from ...clients.blocking.consumer import Consumer

POLL_RECORDS_MAX = 500  # at a time, where an end of the records is named
END_CHECK_MS = 500  # a partition may end in a gap: looked for when nothing came for so long

Partitions = dict[str, list[int]]
Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What is wanted of each partition: [start, end), at most `records` of all together."""

    start: Place
    end: Place | None = None  # None: no end
    until_end: bool = False  # also ends where a partition ended when the reading began
    records: int | None = None
    idle_ms: int | None = None  # ends when nothing came for so long


def choose_partitions(log: "Log", topics: Sequence[str], wanted: Sequence[int]) -> Partitions:
    """Return the partitions to read by topic, all where none are named; raises
    UnknownTopicOrPartition."""
    chosen: Partitions = {}
    for topic in topics:
        count = partitions_of(log, topic)
        for partition in wanted:
            check_partition(topic, partition, count)
        chosen[topic] = sorted(set(wanted)) or list(range(count))
    return chosen


def read(log: "Log", partitions: Partitions, stretch: Stretch) -> "Iterator[list[ConsumerRecord]]":
    """Yield what is read, as it comes; ends as the stretch says."""
    start = stretch.start
    begins = _from_end(log, partitions, start.records) if isinstance(start, FromEnd) else {}
    ends = {} if stretch.end is None else _places(log, partitions, stretch.end)
    consumer = log.consumer(
        assign=partitions,
        start="latest" if isinstance(start, FromEnd) else start,
        until_end=stretch.until_end,
    )
    with consumer, places_explained():
        for (topic, partition), offset in begins.items():
            consumer.seek(topic, partition, offset)
        if ends:
            yield from _limited(_read_to(consumer, ends, stretch), stretch.records)
        else:
            yield from read_on(consumer, stretch)


@contextmanager
def places_explained() -> Iterator[None]:
    """Say what to type where an offset is none of the log."""
    try:
        yield
    except OffsetOutOfRange as error:
        what = error.message.partition(";")[0]
        raise OffsetOutOfRange(
            f"{what}: begin at --from earliest, latest or an offset between",
            topic=error.topic,
            partition=error.partition,
        ) from None


def read_on(consumer: "Consumer", stretch: Stretch) -> "Iterator[list[ConsumerRecord]]":
    """Yield what comes, so many records, or until nothing has come for a while."""
    left = stretch.records
    while left is None or left > 0:
        count = None if left is None else min(left, POLL_RECORDS_MAX)
        records = consumer.poll(max_records=count, timeout_ms=stretch.idle_ms)
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
    consumer: "Consumer", ends: Offsets, stretch: Stretch
) -> "Iterator[list[ConsumerRecord]]":
    """Yield what is below each partition's end; a partition that has reached it is paused."""
    left = dict(ends)
    silent_ms = 0
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
        for place, offset in {(r.topic, r.partition): r.offset for r in records}.items():
            if offset + 1 >= left.get(place, offset + 2):
                del left[place]
                consumer.pause(*place)
        silent_ms = 0 if records else silent_ms + END_CHECK_MS
        if not records:
            _drop_reached(consumer, left)
            if stretch.until_end or (stretch.idle_ms is not None and silent_ms >= stretch.idle_ms):
                return


def _drop_reached(consumer: "Consumer", left: Offsets) -> None:
    """Forget the partitions whose position is at their end already."""
    for place, end in list(left.items()):
        if consumer.position(*place) >= end:
            del left[place]
            consumer.pause(*place)


def _from_end(log: "Log", partitions: Partitions, records: int) -> Offsets:
    begins: Offsets = {}
    for topic, wanted in partitions.items():
        first = log.list_offsets(topic, at="earliest", partitions=wanted)
        end = log.list_offsets(topic, at="latest", partitions=wanted)
        for partition in wanted:
            begins[topic, partition] = max(first[partition], end[partition] - records)
    return begins


def _places(log: "Log", partitions: Partitions, place: Place) -> Offsets:
    if isinstance(place, FromEnd):
        return _from_end(log, partitions, place.records)
    found: Offsets = {}
    for topic, wanted in partitions.items():
        offsets = log.list_offsets(topic, at=place, partitions=wanted)
        found |= {(topic, partition): offset for partition, offset in offsets.items()}
    return found
