"""Filters as ranges: the option pushdown=true of a batch read, with Spark 4.1 or later.

A filter on topic, partition or offset selects exactly the records of a range, so Spark does not
evaluate it again, except a list of offsets, which may have gaps. A lower bound of `timestamp` moves
the start of a range to the first record at or after that time, which a broker looks up. Later
records may be older, since producers set timestamps, so Spark evaluates the filter too. An upper
bound of `timestamp` narrows nothing: the last record before a time is not known without a read to
the end. Clocks of leaders differ, so this holds for LogAppendTime as well.

Ranges are narrowed after the plan, so a read fails for lost data with filters as without.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from quorumlog.clients.topology import PartitionLeader
from quorumlog.ids import TopicPartition
from quorumlog.spark.batch_reader import BatchReader
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.offsets import NUMBER_MAX
from quorumlog.spark.plan import Range

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """The records that the filters so far leave; the default leaves all."""

    topics: frozenset[str] | None = None  # None: all
    partitions: frozenset[int] | None = None  # None: all
    partition_min: int = 0
    partition_end: int = NUMBER_MAX  # exclusive
    offset_min: int = 0
    offset_end: int = NUMBER_MAX  # exclusive
    time_ms: int = 0  # starts move to the first record at or after it; 0 moves none

    def narrow(self, part: Range) -> Range | None:
        """Return the rest of a range, None if it is empty; `time_ms` is not applied."""
        place = part.place
        if self.topics is not None and place.topic not in self.topics:
            return None
        if self.partitions is not None and place.partition not in self.partitions:
            return None
        if not self.partition_min <= place.partition < self.partition_end:
            return None
        start, end = max(part.start, self.offset_min), min(part.end, self.offset_end)
        return Range(place=place, start=start, end=end) if start < end else None

    # --- one filter each; the result, and True if Spark need not evaluate the filter ---

    def with_values(self, column: str, values: Iterable[Any]) -> tuple["Narrowing", bool]:
        """Add a filter for a column that equals one of these values; a null equals nothing."""
        wanted = [value for value in values if value is not None]
        match column:
            case "topic" if all(type(value) is str for value in wanted):
                topics = frozenset(wanted)
                rest = topics if self.topics is None else topics & self.topics
                return replace(self, topics=rest), True
            case "partition" if all(type(value) is int for value in wanted):
                numbers = frozenset(wanted)
                kept = numbers if self.partitions is None else numbers & self.partitions
                return replace(self, partitions=kept), True
            case "offset" if wanted and all(type(value) is int for value in wanted):
                lower, _ = self.with_bound("offset", min(wanted), is_lower=True, is_open=False)
                both, _ = lower.with_bound("offset", max(wanted), is_lower=False, is_open=False)
                return both, len(set(wanted)) == 1
            case "timestamp" if wanted and all(_is_time(value) for value in wanted):
                earliest = min(wanted)
                return self.with_bound("timestamp", earliest, is_lower=True, is_open=False)
            case _:
                return self, False

    def with_bound(
        self, column: str, value: Any, *, is_lower: bool, is_open: bool
    ) -> tuple["Narrowing", bool]:
        """Add a filter for a column above (`is_lower`) or below a value; `is_open` excludes it."""
        match column:
            case "partition" | "offset" if type(value) is int:
                # The first number of the rest, or the first one beyond it.
                number = value + 1 if is_open is is_lower else value
                name = f"{column}_{'min' if is_lower else 'end'}"
                limit = max if is_lower else min
                return replace(self, **{name: limit(getattr(self, name), number)}), True
            case "timestamp" if is_lower and _is_time(value):
                microseconds = (value - _EPOCH) // _MICROSECOND
                # Records have milliseconds: the first one that passes.
                time_ms = microseconds // 1_000 + 1 if is_open else -(-microseconds // 1_000)
                return replace(self, time_ms=max(self.time_ms, time_ms)), False
            case _:
                return self, False


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def apply_filter(
    so_far: Narrowing, each: Filter, columns: Mapping[str, str]
) -> tuple[Narrowing, bool]:
    """Return the narrowing with a filter, and True if Spark need not evaluate the filter.

    `columns` has the source's name of each column of the schema. An unsupported filter changes
    nothing.
    """
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1 or path[0] not in columns:
        return so_far, False
    column = columns[path[0]]
    match each:
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return (so_far, False) if value is None else so_far.with_values(column, [value])
        case In(value=values):
            return so_far.with_values(column, values)
        case GreaterThan(value=value):
            return so_far.with_bound(column, value, is_lower=True, is_open=True)
        case GreaterThanOrEqual(value=value):
            return so_far.with_bound(column, value, is_lower=True, is_open=False)
        case LessThan(value=value):
            return so_far.with_bound(column, value, is_lower=False, is_open=True)
        case LessThanOrEqual(value=value):
            return so_far.with_bound(column, value, is_lower=False, is_open=False)
        case IsNotNull():
            return so_far, column in _NEVER_NULL
        case _:
            return so_far, False


class FilteringBatchReader(BatchReader):
    """A batch reader that narrows its ranges by the filters of a query.

    A class of its own: Spark refuses a reader with `pushFilters` while the config
    spark.sql.python.filterPushdown.enabled is false, its default.
    """

    _narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters of a query; return those that Spark must evaluate."""
        names = dict(zip(self._schema.names, self._columns, strict=True))
        left: list[Filter] = []
        for each in filters:
            self._narrowing, is_exact = apply_filter(self._narrowing, each, names)
            if not is_exact:
                left.append(each)
        return left

    def _narrowed(
        self,
        ranges: Sequence[Range],
        cluster: Cluster,
        leaders: Mapping[TopicPartition, PartitionLeader],
    ) -> list[Range]:
        """Return the ranges that the filters leave. May raise the errors of a time lookup."""
        rest = [part for each in ranges if (part := self._narrowing.narrow(each)) is not None]
        if self._narrowing.time_ms <= 0:
            return rest
        times = dict.fromkeys((part.place for part in rest), self._narrowing.time_ms)
        found = cluster.offsets_at(times, leaders, self._options.isolation)
        started = []
        for part in rest:
            first = found[part.place]  # None: no record is at or after the time
            if first is not None and first < part.end:
                started.append(replace(part, start=max(part.start, first)))
        return started
