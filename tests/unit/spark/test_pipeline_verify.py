"""The parts of `verify` and `mirror` that need no session: findings, display, plans, ranges."""

import json
from typing import Any

import pytest
from pyspark.sql import Row

from quorumlog.errors import InvalidConfig
from quorumlog.ids import TopicPartition
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.pipelines.record_digest import Digest
from quorumlog.spark.pipelines.topic_mirror import CopyPlan
from quorumlog.spark.pipelines.topic_scan import count_range, resolve_ranges
from quorumlog.spark.pipelines.topic_verification import unequal_records, verify
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


def test_offsets_without_a_record_count_at_both_ends_too() -> None:
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
        source="a", target="b", prefix="p.", starts={A: 5, B: 0}, target_starts={A: 1, B: 2}
    )
    assert CopyPlan.from_json(plan.to_json()) == plan
    newer = plan.to_json().replace('"version": 1', '"version": 2')
    with pytest.raises(InvalidConfig, match="version 2, this release reads 1"):
        CopyPlan.from_json(newer)


def test_stored_records_of_every_kind_are_counted(script: Any) -> None:
    script.add(A, 10, 10)
    script.mark(A)
    script.add(A, 4)
    cluster = Cluster((script.address,))
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


@pytest.mark.parametrize("columns", [[], ["value", "offset"]])
def test_unknown_columns_are_refused(columns: list[str]) -> None:
    with pytest.raises(InvalidConfig, match="give some of timestamp, key, value, headers"):
        verify(bootstrap="localhost:1", subscribe="t", columns=columns)
