"""The parts of `verify` and `mirror` without a session: findings, display, plans, ranges."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import Row

from quorumlog.errors import InvalidConfig
from quorumlog.ids import TopicPartition
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.options import Subscribed
from quorumlog.spark.pipelines.record_digest import Digest
from quorumlog.spark.pipelines.topic_mirror import (
    CopyPlan,
    check_target_ids,
    mirror,
    stream_options,
    topic_ids,
)
from quorumlog.spark.pipelines.topic_scan import (
    EXAMINED_MAX,
    HashSum,
    TopicRanges,
    bucket_bits,
    count_range,
    deleted_records,
    examined_buckets,
    resolve_ranges,
)
from quorumlog.spark.pipelines.topic_verification import (
    options_of_counterpart,
    unequal_records,
    verify,
)
from quorumlog.spark.pipelines.verification import (
    ROWS_MAX,
    Comparison,
    Gaps,
    PartitionFindings,
    TopicDifference,
    VerifyReport,
    as_json,
    summary_lines,
    table_rows,
)
from quorumlog.spark.plan import Range

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def findings(partition: int, digest: Digest | None, **changes: Any) -> PartitionFindings:
    place = TopicPartition("t", partition)
    given: dict[str, Any] = {"range": Range(place=place, start=10, end=20), "gaps": Gaps.NONE}
    return PartitionFindings(**(given | {"digest": digest} | changes))


def report(*partitions: PartitionFindings, **changes: Any) -> VerifyReport:
    given: dict[str, Any] = {
        "bootstrap": "here:1",
        "against": "there:1",
        "comparison": Comparison.UNORDERED,
        "columns": ("key", "value"),
        "partitions": partitions,
        "differences": (),
        "duplicates": (),
        "seconds": 2.0,
    }
    return VerifyReport(**(given | changes))


def test_offsets_without_a_record_count_at_both_ends() -> None:
    digest = Digest(records=4, first=11, last=16, gap=2, gap_start=13, unordered=1, ordered=2)
    found = findings(0, digest)
    assert (found.missing, found.largest_gap) == (6, (3, 17))
    assert findings(0, None).largest_gap == (10, 10)


def test_the_screen_has_the_differing_partitions_first() -> None:
    digest = Digest(records=10, first=10, last=19, unordered=0xA, ordered=0xB)
    partitions = [findings(number, digest, other=digest) for number in range(ROWS_MAX + 5)]
    last = ROWS_MAX + 4
    difference = TopicDifference(topic="t", partition=last, text="it differs", records=(10, 10))
    made = report(*partitions, differences=(difference,))
    headings, rows = table_rows(made)
    assert headings == [
        "partition", "records", "first", "last", "checksum", "records there", "same",
    ]  # fmt: skip
    assert len(rows) == ROWS_MAX
    assert rows[0] == [f"t-{last}", "10", "10", "19", "000000000000000a", "10", "NO"]
    lines = summary_lines(made)
    assert lines[0] == "5 more partitions; --output json has all"
    assert lines[1] == f"t-{last}: it differs"
    assert lines[-1] == "verify: different from there:1 (unordered)"
    assert len(json.loads(json.dumps(as_json(made)))["partitions"]) == ROWS_MAX + 5


def test_a_difference_of_whole_topics_is_one_of_each_partition() -> None:
    difference = TopicDifference(topic="t", partition=None, text="it differs", records=(2, 1))
    partitions = [findings(0, None, other=None), findings(1, None, other=None)]
    _, rows = table_rows(report(*partitions, differences=(difference,)))
    assert [row[-1] for row in rows] == ["NO", "NO"]


def test_unexplained_gaps_and_disorder_are_named() -> None:
    digest = Digest(records=8, first=10, last=19, disordered=1, unordered=0, ordered=0)
    made = report(findings(0, digest, gaps=Gaps.UNEXPLAINED), against=None, comparison=None)
    assert not made.is_sound
    lines = summary_lines(made)
    assert lines[0].startswith("unexplained gaps: t-0; ")
    assert lines[1] == "t-0: 1 records are out of offset order"
    assert lines[-1] == "verify: failed"


def test_records_without_an_equal_one_are_found() -> None:
    def rows(*pairs: tuple[int, int]) -> list[Row]:
        return [Row(partition=0, offset=offset, hash=number) for offset, number in pairs]

    here, there = unequal_records(rows((0, 7), (1, 7), (2, 8)), rows((5, 7), (6, 9)))
    assert [str(each) for each in here] == ["partition 0 offset 1", "partition 0 offset 2"]
    assert [str(each) for each in there] == ["partition 0 offset 6"]


def test_a_plan_is_stored_and_a_newer_one_is_refused() -> None:
    plan = CopyPlan(
        source="a",
        target="b",
        prefix="p.",
        starts={A: 5, B: 0},
        target_starts={A: 1, B: 2},
        target_ids={"p.t": "id"},
    )
    assert CopyPlan.from_json(plan.to_json()) == plan
    newer = plan.to_json().replace('"version": 1', '"version": 2')
    with pytest.raises(InvalidConfig, match="version 2, this release reads 1"):
        CopyPlan.from_json(newer)


def test_stored_records_of_every_kind_are_counted(script: Any) -> None:
    script.add(A, 10, 10)
    script.mark(A)
    script.add(A, 4)
    cluster = Cluster(ClusterAccess(bootstrap=(script.address,)))
    assert count_range(cluster, Range(place=A, start=0, end=25)) == 25
    assert count_range(cluster, Range(place=A, start=3, end=22)) == 19


def test_ranges_are_those_of_a_read_and_empty_partitions(script: Any) -> None:
    script.add(A, 10, 10)
    script.batches[B] = []
    found = resolve_ranges(
        {
            "bootstrap": script.address,
            "subscribe": "t",
            "startingOffsets": '{"t": {"0": 3, "1": -2}}',
            "minPartitions": "8",
        }
    )
    assert found.ranges == {A: Range(place=A, start=3, end=20), B: Range(place=B, start=0, end=0)}
    assert found.options == {"minPartitions": "8"}


PLAN = CopyPlan(source="a", target="b", prefix="p.", starts={A: 5}, target_starts={A: 1})


def test_a_mirror_limits_its_micro_batches() -> None:
    assert stream_options(PLAN, {"assign": "{}", "groupId": "g"}) == {
        "maxBytesPerTrigger": str(4 << 30),
        "groupId": "g",
        "subscribe": "t",
        "startingOffsets": '{"t": {"0": 5}}',
        "includeHeaders": "true",
    }
    assert "maxBytesPerTrigger" not in stream_options(PLAN, {"MAXOFFSETSPERTRIGGER": "9"})


@pytest.mark.parametrize(
    "options", [{"commitName": "x"}, {"TOPIC": "x"}, {"delivery": "atleastonce"}, {"nonsense": "1"}]
)
def test_wrong_options_of_the_sink_are_refused(options: Mapping[str, str]) -> None:
    with pytest.raises(InvalidConfig, match=f"(?i)option '{next(iter(options))}'"):
        mirror(bootstrap="h:1", to="h:2", checkpoint="c", subscribe="t", to_options=options)


def test_a_target_topic_that_is_not_the_first_one_is_refused(script: Any) -> None:
    place = TopicPartition("p.t", 0)
    script.add(place, 1)
    target = Cluster(ClusterAccess(bootstrap=(script.address,)))
    plan = replace(PLAN, target_ids=topic_ids(target.leaders(Subscribed(("p.t",)))))
    check_target_ids(plan, target, "to:1")
    script.make_anew(1)
    with pytest.raises(InvalidConfig, match="the topic was deleted and created again"):
        check_target_ids(plan, target, "to:1")
    script.batches.clear()
    with pytest.raises(InvalidConfig, match="the topic was deleted after the mirror began"):
        check_target_ids(plan, target, "to:1")
    check_target_ids(PLAN, target, "to:1")  # of an earlier release


def test_deleted_records_of_a_range_are_named(script: Any) -> None:
    script.add(A, 10)
    script.add(B, 10)

    def deleted(a: tuple[int, int], b: tuple[int, int]) -> str | None:
        ranges = {
            place: Range(place=place, start=start, end=end)
            for place, (start, end) in {A: a, B: b}.items()
        }
        return deleted_records(TopicRanges(bootstrap=script.address, ranges=ranges))

    assert deleted((0, 10), (0, 10)) is None
    script.log_starts = {A: 3, B: 10}
    assert deleted((3, 10), (4, 4)) is None
    assert deleted((3, 10), (9, 10)) == (
        f"t-1 at {script.address}: records from offset 9 are deleted, the log starts at 10"
    )


def test_the_other_side_gets_the_partitions_and_positions_of_its_topic() -> None:
    here = resolved("t", 0, 2)
    found = options_of_counterpart(
        here,
        "u",
        {
            "bootstrap": "h:1",
            "assign": '{"t": [0, 2], "v": [1]}',
            "startingOffsets": '{"t": {"0": 5, "2": 6}, "v": {"1": 7}}',
            "endingOffsets": "latest",
        },
        {"endingOffsetsByTimestamp": '{"u": {"0": 8}, "w": {"0": 9}}', "isolationLevel": "x"},
    )
    assert found == {
        "assign": '{"u": [0, 2]}',
        "startingOffsets": '{"u": {"0": 5, "2": 6}}',
        "endingOffsets": "latest",
        "endingOffsetsByTimestamp": '{"u": {"0": 8}}',
        "isolationLevel": "x",
    }
    wrong = {"subscribePattern": "t.*", "startingOffsets": '{"v": {"0": 1}}'}
    assert options_of_counterpart(here, "t", wrong, {}) == {
        "subscribe": "t",
        "startingOffsets": '{"v": {"0": 1}}',
    }


def resolved(topic: str, *partitions: int) -> TopicRanges:
    places = [TopicPartition(topic, partition) for partition in partitions]
    return TopicRanges(
        bootstrap="h:1", ranges={place: Range(place=place, start=0, end=9) for place in places}
    )


def test_the_smallest_differing_buckets_are_examined() -> None:
    here = {1: HashSum(EXAMINED_MAX + 1, 0), 2: HashSum(5, 1), 3: HashSum(EXAMINED_MAX - 5, 2)}
    there = {4: HashSum(1, 0), 2: HashSum(4, 1)}
    assert examined_buckets(here, there, [1, 2, 3]) == [2, 3]
    assert examined_buckets(here, there, [1, 2, 3, 4]) == [4, 2]
    assert examined_buckets(here, there, [1]) == []


def test_large_topics_have_more_buckets() -> None:
    assert [bucket_bits(count) for count in (0, 10**6, 10**9, 10**12)] == [12, 12, 16, 18]


@pytest.mark.parametrize("columns", [[], ["value", "offset"]])
def test_unknown_columns_are_refused(columns: list[str]) -> None:
    with pytest.raises(InvalidConfig, match="give some of timestamp, key, value, headers"):
        verify(bootstrap="localhost:1", subscribe="t", columns=columns)
