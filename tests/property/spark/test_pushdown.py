"""The ranges of random filters, with the filters left to Spark, select the same records as a full
scan."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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

from quorumlog.ids import TopicPartition
from quorumlog.spark.options import Mode, parse_options
from quorumlog.spark.plan import Range
from quorumlog.spark.pushdown import FilteringBatchReader
from quorumlog.spark.source import full_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OPTIONS = parse_options({"bootstrap": "h:1", "subscribe": "t", "pushdown": "true"}, Mode.BATCH)
SCHEMA = full_schema(include_headers=False)
Row = dict[str, Any]
# By partition the timestamp in ms of each offset, in any order: producers set them.
LOGS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 2)),
    st.lists(st.integers(0, 6), max_size=6),
    max_size=4,
)
VALUES = {
    "topic": st.one_of(st.sampled_from(["t", "u", "v"]), st.none()),
    "partition": st.one_of(st.integers(-1, 4), st.none()),
    "offset": st.one_of(st.integers(-1, 7), st.none()),
    "timestamp": st.integers(-1_500, 7_500).map(lambda us: EPOCH + timedelta(microseconds=us)),
}
COMPARED: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: lambda left, right: left == right,
    EqualNullSafe: lambda left, right: left == right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from([In, IsNotNull, *COMPARED]))
    made: Filter
    if kind is In:
        made = In((column,), tuple(draw(st.lists(VALUES[column], max_size=3))))
    elif kind is IsNotNull:
        made = IsNotNull((column,))
    else:
        made = kind((column,), draw(VALUES[column]))
    return made


def passes(each: Any, row: Row) -> bool:
    """Evaluate a filter as SQL does: a comparison with null is not true."""
    value = row[each.attribute[0]]
    if isinstance(each, IsNotNull):
        return value is not None
    if isinstance(each, In):
        return value in [one for one in each.value if one is not None]
    return each.value is not None and COMPARED[type(each)](value, each.value)


class Times:
    """The time lookup of a broker: the first record at or after each timestamp."""

    def __init__(self, logs: dict[TopicPartition, list[int]]) -> None:
        self._logs = logs

    def offsets_at(
        self, times_ms: dict[TopicPartition, int], leaders: Any, isolation: Any
    ) -> dict[TopicPartition, int | None]:
        assert all(time_ms >= 0 for time_ms in times_ms.values()), "negative times are positions"
        return {
            place: next((i for i, at in enumerate(self._logs[place]) if at >= time_ms), None)
            for place, time_ms in times_ms.items()
        }


@pytest.mark.slow
@given(LOGS, st.lists(filters(), max_size=4))
def test_pushdown_changes_no_result(
    logs: dict[TopicPartition, list[int]], conjuncts: list[Filter]
) -> None:
    def rows(place: TopicPartition, start: int, end: int) -> list[Row]:
        return [
            {
                "topic": place.topic,
                "partition": place.partition,
                "offset": offset,
                "timestamp": EPOCH + timedelta(milliseconds=logs[place][offset]),
            }
            for offset in range(start, end)
        ]

    reader = FilteringBatchReader(OPTIONS, SCHEMA, tuple(SCHEMA.names))
    left = list(reader.pushFilters(conjuncts))
    ids = [id(each) for each in conjuncts]
    assert all(id(each) in ids for each in left), "filters are returned by identity"
    ranges = [Range(place=place, start=0, end=len(times)) for place, times in logs.items() if times]
    narrowed = reader._narrowed(ranges, Times(logs), {})  # type: ignore[arg-type]
    found = [
        row
        for part in narrowed
        for row in rows(part.place, part.start, part.end)
        if all(passes(each, row) for each in left)
    ]
    every = [row for part in ranges for row in rows(part.place, part.start, part.end)]
    assert found == [row for row in every if all(passes(each, row) for each in conjuncts)]
