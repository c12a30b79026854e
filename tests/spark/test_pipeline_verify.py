"""`verify` on real topics, compared with a computation record by record."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.xxh64 import record_hash

import quorumlog
from quorumlog.ids import TopicPartition
from quorumlog.spark.pipelines.record_digest import FACTOR
from quorumlog.spark.pipelines.topic_scan import TopicRanges
from quorumlog.spark.pipelines.topic_verification import TopicPair, compare_pair, verify
from quorumlog.spark.pipelines.verification import (
    Comparison,
    Gaps,
    as_json,
    summary_lines,
    table_rows,
)
from quorumlog.spark.plan import Range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quorumlog.spark.pipelines.verification import VerifyReport

MakeTopic = Callable[..., str]
Records = dict[int, list[dict[str, Any]]]
COLUMNS = ("timestamp", "key", "value", "headers")


@pytest.fixture
def run(spark: "SparkSession", broker: Any) -> Callable[..., "VerifyReport"]:
    def run(topic: str, other: str | None = None, **settings: Any) -> "VerifyReport":
        against = None if other is None else f"{broker.address}/{other}"
        return verify(
            bootstrap=broker.address, subscribe=topic, against=against, spark=spark, **settings
        )

    return run


Run = Callable[..., "VerifyReport"]


def sample(partitions: int, count: int) -> Records:
    """Return records with null and empty keys and values, and headers, of all lengths of XXH64."""
    return {
        partition: [
            {
                "key": None if row % 7 == 3 else b"k%d" % (row % 20),
                "value": None if row % 11 == 5 else bytes([row % 251]) * (row % 90),
                "timestamp_ms": 1_600_000_000_000 + row * 1_001,
                "headers": [("trace", b"\xff"), ("é", None), ("", b"")] if row % 3 == 0 else None,
            }
            for row in range(partition, count + partition)
        ]
        for partition in range(partitions)
    }


def produce(log: quorumlog.Log, topic: str, records: Records) -> None:
    with log.producer() as producer:
        for partition, rows in records.items():
            for row in rows:
                producer.send(topic, partition=partition, **row)


def copies(log: quorumlog.Log, topic: MakeTopic, records: Records, *others: Records) -> list[str]:
    """Create topics with these records."""
    names = [topic(partitions=len(each)) for each in (records, *others)]
    for name, each in zip(names, (records, *others), strict=True):
        produce(log, name, each)
    return names


def checksums(rows: Iterable[dict[str, Any]]) -> tuple[str, str]:
    ordered = unordered = 0
    for row in rows:
        number = record_hash(COLUMNS, **row)
        ordered = (ordered * FACTOR + number) % 2**64
        unordered = (unordered + number) % 2**64
    return f"{ordered:016x}", f"{unordered:016x}"


def test_checksums_equal_those_of_an_independent_computation(
    log: quorumlog.Log, topic: MakeTopic, run: Run
) -> None:
    records = sample(3, 200) | {3: []}
    one, other = copies(log, topic, records, records)
    report = run(one, other)
    assert report.is_sound
    assert report.records == 600
    found = as_json(report)
    for each in found["partitions"]:
        rows = records[each["partition"]]
        assert (each["ordered"], each["unordered"]) == checksums(rows)
        assert each["against"] == {
            name: each[name] for name in ("records", "first", "last", "ordered", "unordered")
        }
        assert (each["records"], each["offsets_without_record"]) == (len(rows), 0)
    json.dumps(found)
    headings, lines = table_rows(report)
    assert "gaps" not in headings
    assert [line[-1] for line in lines] == ["yes"] * 4
    assert summary_lines(report)[-1].startswith("verify: equal to ")


@pytest.mark.long
def test_the_first_difference_of_each_partition_is_found(
    log: quorumlog.Log, topic: MakeTopic, run: Run
) -> None:
    records = sample(4, 700)
    changed = {partition: list(rows) for partition, rows in records.items()}
    changed[1][430] = changed[1][430] | {"value": b"other", "headers": [("x", b"")]}
    del changed[2][300]
    del changed[3][650:]
    one, other = copies(log, topic, records, changed)
    report = run(one, other)
    assert not report.is_sound
    found = {each.partition: (each.records, each.offsets) for each in report.differences}
    assert found == {
        1: ((700, 700), (430, 430)),
        2: ((700, 699), (300, 300)),
        3: ((700, 650), (650, None)),
    }
    texts = [str(each) for each in report.differences]
    assert texts[0].startswith(f"{one}-1: the first 430 records are equal; then offset 430 here")
    assert "(value, headers)" in texts[0]
    assert texts[2].endswith("then 50 records are only here, from offset 650")
    assert run(one, other, columns=["timestamp", "key"]).differences[0].partition == 2


@pytest.mark.long
def test_records_in_another_order_are_equal_unless_the_order_counts(
    log: quorumlog.Log, topic: MakeTopic, run: Run
) -> None:
    records = sample(2, 300)
    reversed_, repartitioned = (
        {partition: rows[::-1] for partition, rows in records.items()},
        {0: records[1] + records[0], 1: []},
    )
    lacking = {0: reversed_[0], 1: reversed_[1][:200] + reversed_[1][201:]}
    names = copies(log, topic, records, reversed_, repartitioned, lacking)
    assert len(run(names[0], names[1]).differences) == 2
    assert run(names[0], names[1], comparison="unordered").is_sound
    assert not run(names[0], names[2], comparison="unordered").is_sound
    assert run(names[0], names[2], comparison="topic").is_sound
    (difference,) = run(names[0], names[3], comparison="unordered").differences
    assert (difference.partition, difference.records) == (1, (300, 299))
    assert difference.offsets == (99, None)
    assert "1 records are only here, such as partition 1 offset 99" in difference.text


def test_gaps_of_transactions_are_explained(log: quorumlog.Log, topic: MakeTopic, run: Run) -> None:
    name = topic()
    with log.producer(transactional_id=f"{name}.writer") as producer:
        for commits in (True, False, True):
            producer.begin_transaction()
            producer.send_many(name, [b"v"] * 5).result()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    with log.producer() as plain:
        plain.send(name, b"v").result()
    (found,) = run(name).partitions
    assert (found.records, found.missing, found.explained) == (11, 8, 8)
    assert found.largest_gap == (7, 5)
    assert found.gaps is Gaps.TRANSACTIONS


def test_duplicates_are_counted_by_expressions(
    log: quorumlog.Log, topic: MakeTopic, run: Run
) -> None:
    name = topic(partitions=2)
    rows = [(b"a", b"1"), (b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (None, b"3"), (None, b"3")]
    with log.producer() as producer:
        for index, (key, value) in enumerate(rows):
            producer.send(name, value, key=key, partition=index % 2)
    by = ["key", "key, value", "cast(value AS string) || '!'"]
    report = run(name, duplicates_by=by)
    found = [(each.values, each.surplus, each.most) for each in report.duplicates]
    assert found == [(1, 2, 3), (1, 1, 2), (2, 3, 3)]
    assert report.duplicates[1].first == ((name, 0), 0)
    assert report.duplicates[1].last == ((name, 1), 0)
    assert "2 duplicates by key, of 1 values" in "\n".join(summary_lines(report))
    assert report.is_sound


def ranges(bootstrap: str, topic: str, end: int) -> TopicRanges:
    """Return the first records of partition 0."""
    place = TopicPartition(topic, 0)
    return TopicRanges(bootstrap=bootstrap, ranges={place: Range(place=place, start=0, end=end)})


@pytest.mark.long
def test_the_latest_records_of_keys_are_compared(
    log: quorumlog.Log, topic: MakeTopic, run: Run, spark: "SparkSession"
) -> None:
    def row(key: bytes, value: bytes | None) -> dict[str, Any]:
        return {"key": key, "value": value, "timestamp_ms": 1_000}

    history = {0: [row(b"a", b"1"), row(b"b", b"1"), row(b"a", b"2"), row(b"c", b"1")]}
    history[0].append(row(b"c", None))
    latest = {0: [row(b"b", b"1"), row(b"a", b"2")]}
    names = copies(log, topic, history, latest, {0: latest[0][:1]})
    assert run(names[0], names[1], comparison="latest").is_sound
    (difference,) = run(names[0], names[2], comparison="latest").differences
    assert difference.offsets == (2, None)
    # The cleaner of an active source has removed records with a later one of the key.
    cleaned = copies(log, topic, {0: [row(b"b", b"1"), row(b"a", b"2"), row(b"a", b"3")]})[0]
    cluster = run(cleaned).bootstrap
    pair = TopicPair(ranges(cluster, cleaned, 1), ranges(cluster, names[1], 2), is_live=True)
    for live, differences in ((pair, 0), (replace(pair, is_live=False), 1)):
        compared = compare_pair(spark, live, {}, {}, Comparison.LATEST, COLUMNS)
        assert len(compared) == differences
