"""Plans of reads: positions to offsets, offsets to ranges, ranges to tasks. Pure.

Ranges are split by the rules of Spark's Kafka connector, in integer arithmetic.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from quorumlog.errors import InvalidConfig, OffsetOutOfRange
from quorumlog.ids import TopicPartition
from quorumlog.spark.offsets import EARLIEST, LATEST, Offsets
from quorumlog.spark.options import (
    AtEarliest,
    AtLatest,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    NoMatch,
    Position,
)

TASKS_MAX: Final = 100_000
"""The maximum number of ranges of one read; the driver holds and pickles all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The readable offsets of a partition, [earliest, latest)."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The offsets [start, end) of one partition; a compacted log may have fewer records."""

    place: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Planned:
    """The ranges to read, and descriptions of lost records for the log."""

    ranges: tuple[Range, ...]
    losses: tuple[str, ...] = ()


# --- positions -> offsets ----------------------------------------------------------------------


def times_wanted(position: Position, places: Iterable[TopicPartition]) -> Offsets:
    """Return the time in milliseconds to look up for each partition; empty if none is needed.

    Raises InvalidConfig if times per partition do not have exactly the partitions.
    """
    match position:
        case AtTimestamp(timestamp_ms):
            return dict.fromkeys(places, timestamp_ms)
        case AtTimestamps(timestamps_ms):
            _check_named(timestamps_ms, places)
            return timestamps_ms
        case AtEarliest() | AtLatest() | AtOffsets():
            return {}
        case _:
            assert_never(position)


def resolve(
    position: Position,
    bounds: Mapping[TopicPartition, Bounds],
    found: Mapping[TopicPartition, int | None],
    *,
    no_match: NoMatch,
) -> Offsets:
    """Return the offset of each partition of `bounds`.

    `found` has the results for `times_wanted`: an offset, or None if no record is at or after the
    time. Raises OffsetOutOfRange for None with NoMatch.ERROR, InvalidConfig if explicit offsets do
    not have exactly the partitions.
    """
    match position:
        case AtEarliest():
            return {place: bound.earliest for place, bound in bounds.items()}
        case AtLatest():
            return {place: bound.latest for place, bound in bounds.items()}
        case AtOffsets(offsets):
            _check_named(offsets, bounds)
            return {place: _concrete(offsets[place], bound) for place, bound in bounds.items()}
        case AtTimestamp() | AtTimestamps():
            times = times_wanted(position, bounds)
            return {
                place: _matched(place, found[place], bound, times[place], no_match)
                for place, bound in bounds.items()
            }
        case _:
            assert_never(position)


def within(
    found: Mapping[TopicPartition, int | None], bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int | None]:
    """Return the offsets found by time, limited to the end of each partition."""
    return {
        place: None if offset is None else min(offset, bounds[place].latest)
        for place, offset in found.items()
    }


def _concrete(offset: int, bound: Bounds) -> int:
    if offset == EARLIEST:
        return bound.earliest
    return bound.latest if offset == LATEST else offset


def _matched(
    place: TopicPartition, offset: int | None, bound: Bounds, time_ms: int, no_match: NoMatch
) -> int:
    if offset is not None:
        return offset
    match no_match:
        case NoMatch.LATEST:
            return bound.latest
        case NoMatch.ERROR:
            raise OffsetOutOfRange(
                f"no offset matched: no record is at or after {time_ms} ms; give an earlier time, "
                "or set startingOffsetsByTimestampStrategy to latest",
                topic=place.topic,
                partition=place.partition,
            )


def _check_named(named: Iterable[TopicPartition], read: Iterable[TopicPartition]) -> None:
    missing = sorted(set(read) - set(named))
    unknown = sorted(set(named) - set(read))
    if missing or unknown:
        wrong = [f"none given for {_list(missing)}"] if missing else []
        wrong += [f"given for {_list(unknown)}, which are not read"] if unknown else []
        raise InvalidConfig(
            "starting and ending positions must name exactly the partitions read "
            f"({_list(sorted(read))}): {'; '.join(wrong)}"
        )


def _list(places: Sequence[TopicPartition]) -> str:
    shown = ", ".join(str(place) for place in places[:10])
    return shown if len(places) <= 10 else f"{shown} and {len(places) - 10} more"


# --- offsets -> ranges -------------------------------------------------------------------------


def plan_batch(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    *,
    fail_on_data_loss: bool,
) -> Planned:
    """Return the non-empty ranges of a batch read, within the bounds of the logs.

    Raises OffsetOutOfRange for a start beyond its end. An offset outside [earliest, latest] raises
    it too with `fail_on_data_loss`; otherwise it is moved to the bound and reported as a loss.
    """
    ranges: list[Range] = []
    losses: list[str] = []
    for place in sorted(bounds):
        bound, start, end = bounds[place], starts[place], ends[place]
        if start > bound.latest:
            raise _beyond(place, start, bound.latest, "the end of the log")
        if start > end:
            raise _beyond(place, start, end, "the end asked for")
        losses += _outside(place, start, end, bound)
        if losses and fail_on_data_loss:
            raise _lost(place, losses[-1])
        start, end = max(start, bound.earliest), min(end, bound.latest)
        if start < end:
            ranges.append(Range(place=place, start=start, end=end))
    return Planned(tuple(ranges), tuple(losses))


def _outside(place: TopicPartition, start: int, end: int, bound: Bounds) -> list[str]:
    losses: list[str] = []
    if start < bound.earliest:
        losses.append(
            f"{place}: records from offset {start} are gone, the log starts at {bound.earliest}"
        )
    if end > bound.latest:
        losses.append(f"{place}: offset {end} was asked for, the log ends at {bound.latest}")
    return losses


def plan_stream(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    log_starts: Mapping[TopicPartition, int],
    *,
    fail_on_data_loss: bool,
    losses: Sequence[str] = (),
) -> Planned:
    """Return the non-empty ranges of one micro-batch, within the bounds of the logs.

    `log_starts` has the log start of each existing partition. A partition only in `ends` is new and
    read from its log start. A partition only in `starts` is lost, unless it exists and none of it
    was read: then it was created after the first micro-batch was planned. `losses` are known
    losses. Raises OffsetOutOfRange for a start beyond its end, unless retention deleted all records
    up to it. Records deleted by retention and lost partitions raise it too with
    `fail_on_data_loss`; otherwise they are reported as losses.
    """
    ranges: list[Range] = []
    losses = list(losses)
    for place in sorted(set(starts) - set(ends)):
        if log_starts.get(place) != starts[place]:
            losses.append(
                f"{place}: the partition is gone, or not among what the options read any more; "
                f"read up to offset {starts[place]}"
            )
    for place in sorted(ends):
        log_start, end = log_starts.get(place, 0), ends[place]
        start = starts.get(place, log_start)
        if place not in starts and start > 0:
            losses.append(f"{place}: a new partition whose records below offset {start} are gone")
        elif start > end and log_start >= start:
            losses.append(
                f"{place}: records below offset {end} are gone, the log starts at {log_start}"
            )
        elif start > end:
            raise _beyond(place, start, end, "the end of this micro-batch")
        elif start < min(log_start, end):
            losses.append(
                f"{place}: records from offset {start} are gone, the log starts at {log_start}"
            )
        start = max(start, log_start)
        if start < end:
            ranges.append(Range(place=place, start=start, end=end))
    if losses and fail_on_data_loss:
        raise OffsetOutOfRange(f"{losses[0]}. {FAIL_ON_DATA_LOSS}")
    return Planned(tuple(ranges), tuple(losses))


FAIL_ON_DATA_LOSS: Final = "To go on without these records, set failOnDataLoss to false"


def _beyond(place: TopicPartition, start: int, end: int, what: str) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"the read would start at offset {start}, beyond {what} at {end}; nothing can be there. "
        "Was the topic deleted and created anew, or is the starting position wrong?",
        topic=place.topic,
        partition=place.partition,
    )


def _lost(place: TopicPartition, loss: str) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"{loss.removeprefix(f'{place}: ')}. {FAIL_ON_DATA_LOSS}",
        topic=place.topic,
        partition=place.partition,
    )


def check_progress(
    starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> None:
    """Raise OffsetOutOfRange if a partition ends below the stream's position."""
    for place in sorted(set(starts) & set(latest)):
        if starts[place] > latest[place]:
            raise _beyond(place, starts[place], latest[place], "the end of the log")


# --- ranges -> tasks ---------------------------------------------------------------------------


def split(
    ranges: Sequence[Range], *, min_partitions: int | None, max_records: int | None
) -> list[Range]:
    """Split ranges into tasks in order, without losing offsets.

    First, ranges are split to at most `max_records` offsets. If there are then fewer than
    `min_partitions` ranges, large ones are split in proportion to their size into approximately
    `min_partitions`. Raises InvalidConfig above TASKS_MAX.
    """
    tasks = [part for part in ranges if part.size > 0]
    if max_records is not None:
        _check_tasks("maxRecordsPerPartition", sum(-(-part.size // max_records) for part in tasks))
        tasks = [cut for part in tasks for cut in _cut(part, -(-part.size // max_records))]
    if min_partitions is None or len(tasks) >= min_partitions:
        return tasks
    _check_tasks("minPartitions", min(min_partitions, sum(part.size for part in tasks)))
    return _split_in_proportion(tasks, min_partitions)


def _split_in_proportion(tasks: Sequence[Range], wanted: int) -> list[Range]:
    total = sum(part.size for part in tasks)
    small = {part for part in tasks if _share(part.size, total, wanted) == 1}
    large_total = total - sum(part.size for part in small)
    large_wanted = wanted - len(small)
    counts = [
        1 if part in small else min(part.size, _share(part.size, large_total, large_wanted))
        for part in tasks
    ]
    return [cut for part, count in zip(tasks, counts, strict=True) for cut in _cut(part, count)]


def _share(size: int, total: int, wanted: int) -> int:
    """Return size / total * wanted, rounded half up, at least 1."""
    return max((2 * size * wanted + total) // (2 * total), 1)


def _cut(part: Range, count: int) -> list[Range]:
    """Cut a range into `count` pieces whose sizes differ by one at most."""
    cuts = [part.start + part.size * index // count for index in range(count + 1)]
    return [
        Range(place=part.place, start=start, end=end)
        for start, end in itertools.pairwise(cuts)
        if start < end
    ]


def _check_tasks(option: str, count: int) -> None:
    if count > TASKS_MAX:
        raise InvalidConfig(
            f"option {option!r} would cut this read into {count} tasks, more than {TASKS_MAX}; "
            + ("raise it" if option == "maxRecordsPerPartition" else "lower it")
        )
