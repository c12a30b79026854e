"""Positions, ranges, splits and rate limits, without a broker and without Spark."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.errors import InvalidConfig, OffsetOutOfRange
from quorumlog.ids import TopicPartition
from quorumlog.spark.admission import limit_rows
from quorumlog.spark.offsets import from_json, to_json
from quorumlog.spark.options import (
    AtEarliest,
    AtLatest,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    NoMatch,
)
from quorumlog.spark.plan import (
    Bounds,
    Range,
    check_progress,
    plan_batch,
    plan_stream,
    resolve,
    split,
    times_wanted,
)

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


def bounds(earliest: int, latest: int) -> Bounds:
    return Bounds(earliest=earliest, latest=latest)


def span(place: TopicPartition, start: int, end: int) -> Range:
    return Range(place=place, start=start, end=end)


# --- offsets as JSON ---------------------------------------------------------------------------


def test_offset_json_has_sorted_keys() -> None:
    many = {TopicPartition(topic, index): index for topic in "ba" for index in (10, 2, 0)}
    text = json.dumps(to_json(many))
    assert text == json.dumps(json.loads(text), sort_keys=True)
    assert from_json(json.loads(text)) == many


# --- positions ---------------------------------------------------------------------------------

LOG = {A: bounds(5, 20), B: bounds(0, 8)}


def test_earliest_and_latest_are_the_bounds() -> None:
    assert resolve(AtEarliest(), LOG, {}, no_match=NoMatch.ERROR) == {A: 5, B: 0}
    assert resolve(AtLatest(), LOG, {}, no_match=NoMatch.ERROR) == {A: 20, B: 8}


def test_explicit_offsets_may_name_the_bounds() -> None:
    position = AtOffsets({A: -2, B: -1})
    assert resolve(position, LOG, {}, no_match=NoMatch.ERROR) == {A: 5, B: 8}


def test_offsets_for_some_of_the_partitions_are_refused_naming_the_others() -> None:
    with pytest.raises(InvalidConfig, match="none given for t-1"):
        resolve(AtOffsets({A: 7}), LOG, {}, no_match=NoMatch.ERROR)
    with pytest.raises(InvalidConfig, match="given for t-2, which are not read"):
        resolve(AtOffsets({A: 7, B: 7, C: 7}), LOG, {}, no_match=NoMatch.ERROR)
    with pytest.raises(InvalidConfig, match="none given for t-1"):
        times_wanted(AtTimestamps({A: 7}), LOG)


def test_times_are_looked_up_and_a_time_without_record_follows_the_strategy() -> None:
    assert times_wanted(AtTimestamp(99), LOG) == {A: 99, B: 99}
    assert times_wanted(AtEarliest(), LOG) == {}
    found = {A: 12, B: None}
    assert resolve(AtTimestamp(99), LOG, found, no_match=NoMatch.LATEST) == {A: 12, B: 8}
    with pytest.raises(OffsetOutOfRange, match=r"t-1: no offset matched.*99 ms"):
        resolve(AtTimestamp(99), LOG, found, no_match=NoMatch.ERROR)


# --- ranges of a batch -------------------------------------------------------------------------


def test_batch_ranges_leave_out_empty_partitions() -> None:
    planned = plan_batch({A: 5, B: 8}, {A: 20, B: 8}, LOG, fail_on_data_loss=True)
    assert planned.ranges == (span(A, 5, 20),)
    assert planned.losses == ()


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_start_beyond_the_end_always_raises(fail_on_data_loss: bool) -> None:
    with pytest.raises(
        OffsetOutOfRange, match=r"t-0: .*offset 21, beyond the end of the log at 20"
    ):
        plan_batch({A: 21, B: 0}, {A: 30, B: 8}, LOG, fail_on_data_loss=fail_on_data_loss)
    with pytest.raises(OffsetOutOfRange, match="offset 9, beyond the end asked for at 7"):
        plan_batch({A: 9, B: 0}, {A: 7, B: 8}, LOG, fail_on_data_loss=fail_on_data_loss)


def test_offsets_outside_the_log_raise_or_are_moved_and_reported() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"t-0: records from offset 3 are gone"):
        plan_batch({A: 3, B: 0}, {A: 20, B: 8}, LOG, fail_on_data_loss=True)
    with pytest.raises(OffsetOutOfRange, match=r"t-1: offset 9 was asked for, the log ends at 8"):
        plan_batch({A: 5, B: 0}, {A: 20, B: 9}, LOG, fail_on_data_loss=True)
    planned = plan_batch({A: 3, B: 0}, {A: 20, B: 9}, LOG, fail_on_data_loss=False)
    assert planned.ranges == (span(A, 5, 20), span(B, 0, 8))
    assert len(planned.losses) == 2


# --- ranges of a micro-batch -------------------------------------------------------------------


def test_a_new_partition_is_read_from_its_log_start() -> None:
    planned = plan_stream({A: 5}, {A: 9, B: 3}, {B: 0}, fail_on_data_loss=True)
    assert planned.ranges == (span(A, 5, 9), span(B, 0, 3))


def test_a_deleted_partition_and_lost_first_records_count_as_data_loss() -> None:
    with pytest.raises(OffsetOutOfRange, match="t-1: the partition is gone"):
        plan_stream({A: 5, B: 2}, {A: 9}, {}, fail_on_data_loss=True)
    with pytest.raises(OffsetOutOfRange, match="t-1: a new partition whose records below"):
        plan_stream({A: 5}, {A: 9, B: 3}, {B: 2}, fail_on_data_loss=True)
    planned = plan_stream({A: 5, C: 1}, {A: 9, B: 3}, {B: 2}, fail_on_data_loss=False)
    assert planned.ranges == (span(A, 5, 9), span(B, 2, 3))
    assert len(planned.losses) == 2


def test_new_partition_without_its_records_is_a_loss_and_the_query_continues() -> None:
    """Planned before the query stopped; retention deleted the records before its restart."""
    with pytest.raises(OffsetOutOfRange, match="t-1: a new partition whose records below offset 7"):
        plan_stream({A: 5}, {A: 9, B: 3}, {B: 7}, fail_on_data_loss=True)
    planned = plan_stream({A: 5}, {A: 9, B: 3}, {B: 7}, fail_on_data_loss=False)
    assert planned.ranges == (span(A, 5, 9),)
    assert len(planned.losses) == 1


def test_a_micro_batch_that_starts_beyond_its_end_raises() -> None:
    with pytest.raises(OffsetOutOfRange, match="offset 20, beyond the end of this micro-batch"):
        plan_stream({A: 20}, {A: 13}, {}, fail_on_data_loss=False)
    with pytest.raises(OffsetOutOfRange, match="offset 20, beyond the end of the log at 13"):
        check_progress({A: 20}, {A: 13})


# --- splitting ---------------------------------------------------------------------------------


def test_without_hints_each_partition_is_one_task() -> None:
    ranges = [span(A, 0, 10), span(B, 3, 4)]
    assert split(ranges, min_partitions=None, max_records=None) == ranges
    assert split(ranges, min_partitions=2, max_records=None) == ranges


def test_one_range_is_split_into_the_requested_number() -> None:
    tasks = split([span(A, 0, 10)], min_partitions=3, max_records=None)
    assert tasks == [span(A, 0, 3), span(A, 3, 6), span(A, 6, 10)]


def test_small_ranges_stay_whole_and_the_large_one_is_split() -> None:
    tasks = split(
        [span(A, 0, 10_000), span(B, 0, 1), span(C, 0, 1)], min_partitions=6, max_records=None
    )
    assert [task.place for task in tasks] == [A, A, A, A, B, C]


def test_no_task_holds_more_than_the_maximum() -> None:
    tasks = split([span(A, 0, 10), span(B, 5, 8)], min_partitions=None, max_records=4)
    assert [task.size for task in tasks] == [3, 3, 4, 3]


def test_maximum_and_hint_together_split_further() -> None:
    tasks = split([span(A, 0, 40)], min_partitions=8, max_records=10)
    assert [task.size for task in tasks] == [5] * 8


def test_tasks_never_outnumber_offsets() -> None:
    assert len(split([span(A, 0, 3)], min_partitions=50, max_records=None)) == 3


def test_absurd_numbers_of_tasks_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"'maxRecordsPerPartition' would cut .* raise it"):
        split([span(A, 0, 10**9)], min_partitions=None, max_records=1)
    with pytest.raises(InvalidConfig, match=r"'minPartitions' would cut .* lower it"):
        split([span(A, 0, 10**9)], min_partitions=10**8, max_records=None)


SIZES = st.lists(st.integers(0, 5_000), min_size=1, max_size=8)


@given(SIZES, st.none() | st.integers(1, 60), st.none() | st.integers(50, 900))
def test_splitting_keeps_every_offset_once_and_in_order(
    sizes: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [span(TopicPartition("t", index), 7, 7 + size) for index, size in enumerate(sizes)]
    tasks = split(ranges, min_partitions=min_partitions, max_records=max_records)
    assert all(task.size > 0 for task in tasks)
    joined: list[Range] = []
    for task in tasks:
        if joined and joined[-1].place == task.place:
            assert joined[-1].end == task.start
            joined[-1] = span(task.place, joined[-1].start, task.end)
        else:
            joined.append(task)
    assert joined == [part for part in ranges if part.size]
    if max_records is not None:
        assert all(task.size <= max_records for task in tasks)


# --- rate limit --------------------------------------------------------------------------------


def test_limit_is_shared_by_backlog_without_starving_small_partitions() -> None:
    """The Kafka connector's example: backlogs of 101, 11 and 1 with a limit of 10."""
    limited = limit_rows({A: 0, B: 0, C: 0}, {A: 101, B: 11, C: 1}, 10)
    assert limited == {A: 8, B: 1, C: 1}


def test_a_limit_above_the_backlog_changes_nothing() -> None:
    assert limit_rows({A: 3}, {A: 9}, 2**63 - 1) == {A: 9}


@given(SIZES, st.integers(1, 2_000))
def test_limited_batches_reach_the_end(sizes: list[int], rows_max: int) -> None:
    ends = {TopicPartition("t", index): size for index, size in enumerate(sizes)}
    at = dict.fromkeys(ends, 0)
    rounds = 0
    while at != ends:
        after = limit_rows(at, ends, rows_max)
        assert after != at
        assert sum(after.values()) - sum(at.values()) <= rows_max + len(ends)
        at = after
        rounds += 1
    assert rounds <= sum(sizes) + 1
