"""Filters as ranges of a read, and the filters that are left to Spark."""

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import LongType, StructField, StructType

from quorumlog.errors import InvalidConfig, OffsetOutOfRange
from quorumlog.ids import TopicPartition
from quorumlog.spark.options import Mode, parse_options
from quorumlog.spark.source import QuorumlogSource

A, B, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def time(ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def plan(
    script: Any, *filters: Filter, **options: str
) -> tuple[list[tuple[str, int, int]], list[Filter]]:
    """Return the planned ranges, and the filters left to Spark."""
    given = {"bootstrap": script.address, "subscribe": "t,u", "pushdown": "true", **options}
    made = QuorumlogSource(given)
    reader: Any = made.reader(made.schema())
    left = list(reader.pushFilters(list(filters)))
    ranges = [task.value.range for task in pickle.loads(pickle.dumps(reader)).partitions()]
    return [(str(part.place), part.start, part.end) for part in ranges], left


@pytest.fixture
def filled(script: Any) -> Any:
    """Create three partitions of 10 records whose timestamps are 1000 + offset."""
    for place in (A, B, OTHER):
        script.add(place, 10)
    return script


ALL = [("t-0", 0, 10), ("t-1", 0, 10), ("u-0", 0, 10)]


@pytest.mark.parametrize(
    ("each", "ranges"),
    [
        (EqualTo(("topic",), "u"), ALL[2:]),
        (In(("topic",), ("u", "absent", None)), ALL[2:]),
        (EqualTo(("partition",), 1), ALL[1:2]),
        (EqualNullSafe(("partition",), 1), ALL[1:2]),
        (In(("partition",), (1, 7)), ALL[1:2]),
        (GreaterThan(("partition",), 0), ALL[1:2]),
        (GreaterThanOrEqual(("partition",), 1), ALL[1:2]),
        (LessThan(("partition",), 1), [ALL[0], ALL[2]]),
        (LessThanOrEqual(("partition",), 0), [ALL[0], ALL[2]]),
        (EqualTo(("partition",), -1), []),
        (EqualTo(("offset",), 3), [(name, 3, 4) for name, _, _ in ALL]),
        (In(("offset",), (3,)), [(name, 3, 4) for name, _, _ in ALL]),
        (GreaterThan(("offset",), 3), [(name, 4, 10) for name, _, _ in ALL]),
        (GreaterThanOrEqual(("offset",), 3), [(name, 3, 10) for name, _, _ in ALL]),
        (LessThan(("offset",), 3), [(name, 0, 3) for name, _, _ in ALL]),
        (LessThanOrEqual(("offset",), 3), [(name, 0, 4) for name, _, _ in ALL]),
        (LessThan(("offset",), -3), []),
        (GreaterThan(("offset",), 2**63 - 1), []),
        (IsNotNull(("offset",)), ALL),
        (IsNotNull(("timestamp",)), ALL),
    ],
)
def test_exact_filters_are_not_left_to_spark(filled: Any, each: Filter, ranges: list[Any]) -> None:
    assert plan(filled, each) == (ranges, [])


@pytest.mark.parametrize(
    ("each", "start"),
    [
        (GreaterThanOrEqual(("timestamp",), time(1004)), 4),
        (GreaterThanOrEqual(("timestamp",), time(1003.001)), 4),
        (GreaterThan(("timestamp",), time(1003)), 4),
        (GreaterThan(("timestamp",), time(1003.999)), 4),
        (EqualTo(("timestamp",), time(1004)), 4),
        (In(("timestamp",), (time(1008), time(1004), None)), 4),
        (GreaterThan(("timestamp",), time(-1)), 0),
        (GreaterThan(("timestamp",), time(2000)), None),
        (LessThan(("timestamp",), time(1004)), 0),
        (GreaterThan(("timestamp",), datetime(2024, 1, 1)), 0),  # without a zone
    ],
)
def test_time_moves_starts_and_is_left_to_spark(filled: Any, each: Filter, start: Any) -> None:
    ranges = [] if start is None else [(name, start, 10) for name, _, _ in ALL]
    found, left = plan(filled, each)
    assert found == ranges
    assert [id(one) for one in left] == [id(each)]


@pytest.mark.parametrize(
    "each",
    [
        EqualNullSafe(("partition",), None),
        EqualTo(("partition",), True),
        EqualTo(("partition",), 1.0),
        EqualTo(("topic",), 1),
        EqualTo(("key",), b"k"),
        EqualTo(("value", "offset"), 1),
        EqualTo(("unknown",), 1),
        GreaterThan(("topic",), "t"),
        StringStartsWith(("topic",), "t"),
        Not(EqualTo(("partition",), 0)),
        IsNull(("offset",)),
        IsNotNull(("key",)),
        In(("offset",), ()),
    ],
)
def test_other_filters_are_left_to_spark(filled: Any, each: Filter) -> None:
    found, left = plan(filled, each)
    assert found == ALL
    assert [id(one) for one in left] == [id(each)]


def test_a_list_of_offsets_is_narrowed_and_left_to_spark(filled: Any) -> None:
    each = In(("offset",), (7, 2))
    assert plan(filled, each) == ([(name, 2, 8) for name, _, _ in ALL], [each])


def test_filters_are_joined_and_split_ranges_come_last(filled: Any) -> None:
    filters = [
        In(("topic",), ("t", "u")),
        EqualTo(("topic",), "t"),
        In(("partition",), (0, 1)),
        LessThan(("partition",), 1),
        GreaterThan(("offset",), 2),
        GreaterThanOrEqual(("timestamp",), time(1005)),
        LessThan(("offset",), 9),
    ]
    found, left = plan(filled, *filters, minPartitions="2")
    assert found == [("t-0", 5, 7), ("t-0", 7, 9)]
    assert left == [filters[5]]


def test_a_read_fails_for_lost_data_with_filters_as_without(filled: Any) -> None:
    filled.log_starts[A] = 5
    starts = '{"t": {"0": 0, "1": 0}}'
    with pytest.raises(OffsetOutOfRange, match="records from offset 0 are gone"):
        plan(filled, EqualTo(("partition",), 1), subscribe="t", startingOffsets=starts)


def test_columns_of_a_schema_are_known_by_their_own_names(filled: Any) -> None:
    given = {"bootstrap": filled.address, "subscribe": "t", "pushdown": "true"}
    reader: Any = QuorumlogSource(given).reader(StructType([StructField("OFFSET", LongType())]))
    assert list(reader.pushFilters([EqualTo(("OFFSET",), 3), EqualTo(("partition",), 9)])) == [
        EqualTo(("partition",), 9)
    ]
    assert [task.value.range.start for task in reader.partitions()] == [3, 3]


def test_only_the_option_makes_a_reader_with_filters() -> None:
    """Spark refuses a reader with pushFilters while its own config is off."""
    base = {"bootstrap": "h:1", "subscribe": "t"}
    for given in (base, base | {"pushdown": "false"}):
        made = QuorumlogSource(given)
        from pyspark.sql.datasource import DataSourceReader

        assert type(made.reader(made.schema())).pushFilters is DataSourceReader.pushFilters
    with pytest.raises(InvalidConfig, match="'pushdown' is not for a stream read"):
        parse_options(base | {"pushdown": "true", "startingOffsets": "earliest"}, Mode.STREAM)
