"""The pipeline `verify`: counts, gaps, duplicates and checksums of topics, and their comparison.

A comparison scans both topics once. Only partitions with other counts or checksums are read
again, to find their first difference: in order, by blocks of records that get smaller; in any
order, by buckets of hashes.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from quorumlog.errors import InvalidConfig
from quorumlog.ids import TopicPartition
from quorumlog.spark.cluster_access import SECURITY_NAMES
from quorumlog.spark.pipelines.query_run import pipeline_session
from quorumlog.spark.pipelines.record_digest import COLUMNS, Digest
from quorumlog.spark.pipelines.report import OnProgress, PipelineProgress
from quorumlog.spark.pipelines.topic_scan import (
    EXAMINED_MAX,
    HashSum,
    TopicRanges,
    bucket_bits,
    compacted_topics,
    count_stored,
    examined_buckets,
    find_duplicates,
    follow_tasks,
    hashed_records,
    later_keys,
    records_of_buckets,
    resolve_ranges,
    scan_blocks,
    scan_digests,
    sum_buckets,
    sum_hashes,
)
from quorumlog.spark.pipelines.verification import (
    Comparison,
    Duplicates,
    Gaps,
    PartitionFindings,
    TopicDifference,
    VerifyReport,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

BLOCKS: Final = 256
"""Blocks of records that a step of the search compares."""

_SELECTIONS: Final = ("assign", "subscribe", "subscribepattern")
_POSITIONS: Final = (
    "startingoffsets",
    "endingoffsets",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
)
"""Options that may have a JSON object by topic."""


def verify(
    *,
    bootstrap: str,
    subscribe: str | None = None,
    against: str | None = None,
    comparison: Comparison | str = Comparison.ORDERED,
    columns: Sequence[str] = COLUMNS,
    duplicates_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    against_options: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """Return counts, gaps and checksums of the partitions of topics, and compare them.

    `subscribe` names topics; `options` of the data source may choose them otherwise, and limit the
    offsets. `against` is a second cluster, `host:port`, with topics of the same names, or one topic
    of it, `host:port/topic`, to compare with the only topic. Its partitions are those scanned here;
    it takes the other `options` too, and `against_options` above them. `columns` are those that the
    checksums cover. `duplicates_by` has SQL expressions; each is a search for records with equal
    values. A tuple such as "key, value" is one expression.

    Raises InvalidConfig, UnknownTopicOrPartition or OffsetOutOfRange; ConnectionFailed,
    OutcomeUnknown or TimedOut if no broker responds.
    """
    chosen = _check_columns(columns)
    wanted = Comparison(comparison)
    given = {"bootstrap": bootstrap, **(options or {})}
    if subscribe is not None:
        given["subscribe"] = subscribe
    with pipeline_session(spark) as session:
        begun = time.monotonic()
        steps = _Steps(session, on_progress)
        here = resolve_ranges(given)
        pairs = _pairs(here, against, given, against_options or {})
        with steps.run("scan", here):
            digests = scan_digests(session, here, chosen)
        compared = _Compared({}, [])
        for pair in pairs:
            with steps.run(f"compare {pair.there.topics[0]}", pair.there):
                _compare(session, pair, digests, wanted, chosen, compared)
        with steps.run("explain gaps"):
            partitions = _findings(session, here, digests, compared.digests)
        duplicates: list[Duplicates] = []
        for expression in duplicates_by:
            with steps.run(f"duplicates by {expression}", here):
                duplicates += find_duplicates(session, here, _expressions(expression))
        return VerifyReport(
            bootstrap=bootstrap,
            against=against,
            comparison=wanted if against is not None else None,
            columns=chosen,
            partitions=partitions,
            differences=tuple(compared.differences),
            duplicates=tuple(duplicates),
            seconds=time.monotonic() - begun,
        )


class _Steps:
    """Reports the progress of a run's steps, by their finished tasks."""

    def __init__(self, spark: "SparkSession", on_progress: OnProgress | None) -> None:
        self._spark = spark
        self._on_progress = on_progress

    @contextmanager
    def run(self, step: str, ranges: TopicRanges | None = None) -> Iterator[None]:
        """Report progress while the block runs jobs over these ranges."""
        if self._on_progress is None:
            yield
            return
        report = self._on_progress
        total = sum(each.size for each in ranges.ranges.values()) if ranges else 0

        def on_share(share: float) -> None:
            report(PipelineProgress(records=round(share * total), total=total or None, step=step))

        on_share(0.0)
        with follow_tasks(self._spark, on_share):
            yield


def _check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    unknown = sorted(set(columns) - set(COLUMNS))
    if unknown or not columns:
        raise InvalidConfig(
            f"columns of the checksums: {', '.join(unknown) or 'none'}; give some of"
            f" {', '.join(COLUMNS)}"
        )
    return tuple(name for name in COLUMNS if name in columns)


def _expressions(text: str) -> list[str]:
    """Return the SQL expressions of one search; "key, value" are two."""
    names = [part.strip() for part in text.split(",")]
    return names if all(name.isidentifier() for name in names) else [text]


# --- the topics compared -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicPair:
    """Two topics to compare: the ranges of one topic each."""

    here: TopicRanges
    there: TopicRanges
    is_live: bool = False
    """True if later records here may have replaced records in the ranges. A comparison of the last
    records of keys then leaves out keys with a later record."""

    def counterpart(self, place: TopicPartition) -> TopicPartition:
        """Return the partition there of a partition here."""
        return TopicPartition(self.there.topics[0], place.partition)


def _pairs(
    here: TopicRanges,
    against: str | None,
    options: Mapping[str, str],
    against_options: Mapping[str, str],
) -> tuple[TopicPair, ...]:
    """Return each topic with the topic that it is compared with."""
    if against is None:
        return ()
    bootstrap, _, topic = against.partition("/")
    if topic and len(here.topics) != 1:
        raise InvalidConfig(
            f"against {against!r} names one topic, and {len(here.topics)} are scanned; remove"
            " the topic to compare topics of the same names"
        )
    for name in against_options:
        if name.lower() in (*_SELECTIONS, "bootstrap"):
            raise InvalidConfig(
                f"option {name!r} of the other side: {against!r} and the topics here give it;"
                " remove the option"
            )
    pairs = []
    for name in here.topics:
        other = topic or name
        mine = here.only([place for place in here.ranges if place.topic == name])
        there = options_of_counterpart(mine, other, options, against_options)
        pairs.append(TopicPair(mine, resolve_ranges({**there, "bootstrap": bootstrap})))
    return tuple(pairs)


def options_of_counterpart(
    here: TopicRanges, other: str, options: Mapping[str, str], against_options: Mapping[str, str]
) -> dict[str, str]:
    """Return the options that read the topic `other` as one topic here is read.

    Positions by topic are cut to the one topic. With option assign the same partitions are read.
    A security option of the other side replaces all security options here.
    """
    topic = here.topics[0]
    chosen = {name: _of_topic(name, value, topic, other) for name, value in options.items()}
    found = {name: value for name, value in chosen.items() if name.lower() not in _SELECTIONS}
    found.pop("bootstrap", None)
    if any(name.lower() in SECURITY_NAMES for name in against_options):
        found = {name: each for name, each in found.items() if name.lower() not in SECURITY_NAMES}
    for name, value in against_options.items():
        found[name] = _of_topic(name, value, other, other)
    if any(name.lower() == "assign" for name in options):
        partitions = sorted(place.partition for place in here.ranges)
        return {**found, "assign": json.dumps({other: partitions})}
    return {**found, "subscribe": other}


def _of_topic(option: str, value: str, topic: str, name: str) -> str:
    """Return a JSON object of positions with one of its topics only, under another name; other
    values, and an object without the topic, as they are."""
    if option.lower() not in _POSITIONS:
        return value
    try:
        positions = json.loads(value)
    except ValueError:
        return value
    if not isinstance(positions, dict) or topic not in positions:
        return value
    return json.dumps({name: positions[topic]})


@dataclass(frozen=True, slots=True)
class _Compared:
    digests: dict[TopicPartition, Digest]  # of the counterparts, by the partition here
    differences: list[TopicDifference]


def _compare(
    spark: "SparkSession",
    pair: TopicPair,
    digests: Mapping[TopicPartition, Digest],
    comparison: Comparison,
    columns: Sequence[str],
    compared: _Compared,
) -> None:
    """Compare a pair of topics; add to `compared`."""
    there = scan_digests(spark, pair.there, columns)
    for place in pair.here.ranges:
        found = there.get(pair.counterpart(place))
        if found is not None:
            compared.digests[place] = found
    compared.differences.extend(compare_pair(spark, pair, digests, there, comparison, columns))


def compare_pair(
    spark: "SparkSession",
    pair: TopicPair,
    here: Mapping[TopicPartition, Digest],
    there: Mapping[TopicPartition, Digest],
    comparison: Comparison,
    columns: Sequence[str],
) -> list[TopicDifference]:
    """Return the differences of two topics with these digests, one per partition at most."""
    if comparison is Comparison.TOPIC:
        mine = [here[place] for place in pair.here.ranges if place in here]
        if _sum(mine) == _sum(list(there.values())):
            return []
        return _differing_records(spark, pair, None, columns, latest_by_key=False)
    counts = len(pair.here.ranges), len(pair.there.ranges)
    if {pair.counterpart(place) for place in pair.here.ranges} != set(pair.there.ranges):
        return [
            TopicDifference(
                topic=pair.here.topics[0],
                partition=None,
                text=f"{counts[0]} partitions here, {counts[1]} there; compare the whole topics"
                f" with {Comparison.TOPIC!r}",
                records=(
                    sum(here[place].records for place in pair.here.ranges if place in here),
                    sum(each.records for each in there.values()),
                ),
            )
        ]
    if comparison is Comparison.LATEST:
        return _compare_latest(spark, pair, columns)
    differences = []
    for place in sorted(pair.here.ranges):
        one, other = here.get(place), there.get(pair.counterpart(place))
        if comparison is Comparison.ORDERED and _ordered(one) != _ordered(other):
            differences.append(_first_difference(spark, pair, place, one, other, columns))
        elif comparison is Comparison.UNORDERED and _sum([one]) != _sum([other]):
            differences += _differing_records(spark, pair, place, columns, latest_by_key=False)
    return differences


def _ordered(digest: Digest | None) -> tuple[int, int]:
    return (digest.records, digest.ordered) if digest else (0, 0)


def _sum(digests: Sequence[Digest | None]) -> HashSum:
    present = [each for each in digests if each is not None]
    return HashSum(
        sum(each.records for each in present), sum(each.unordered for each in present) % 2**64
    )


def _compare_latest(
    spark: "SparkSession", pair: TopicPair, columns: Sequence[str]
) -> list[TopicDifference]:
    hashed = _hashed_pair(spark, pair, (pair.here, pair.there), columns, latest_by_key=True)
    sums = [sum_hashes(each, "partition") for each in hashed]
    differences: list[TopicDifference] = []
    for place in sorted(pair.here.ranges):
        if sums[0].get(place.partition) != sums[1].get(place.partition):
            differences += _differing_records(spark, pair, place, columns, latest_by_key=True)
    return differences


# --- the first difference ------------------------------------------------------------------------


def _first_difference(
    spark: "SparkSession",
    pair: TopicPair,
    place: TopicPartition,
    here: Digest | None,
    there: Digest | None,
    columns: Sequence[str],
) -> TopicDifference:
    """Return the first difference of two partitions that are not equal in order."""
    counts = here.records if here else 0, there.records if there else 0
    other = pair.counterpart(place)
    mine, theirs = pair.here.only([place]), pair.there.only([other])
    number, block = 0, max(counts)  # records that are equal; records per block
    while True:
        block = -(-block // BLOCKS)
        blocks = [scan_blocks(spark, mine, place, columns, block=block)]
        blocks += [scan_blocks(spark, theirs, other, columns, block=block)]
        equal = _equal_blocks(*blocks)
        number += block * equal
        one, two = (each[equal] if equal < len(each) else None for each in blocks)
        if block == 1 or one is None or two is None:
            break
        mine = mine.narrow(place, one.first, one.last + 1)
        theirs = theirs.narrow(other, two.first, two.last + 1)
    offsets = one.first if one else None, two.first if two else None
    return TopicDifference(
        topic=place.topic,
        partition=place.partition,
        text=_difference_text(number, offsets, counts, _names(spark, pair, place, offsets)),
        records=counts,
        offsets=offsets,
    )


def _equal_blocks(here: Sequence[Digest], there: Sequence[Digest]) -> int:
    """Return the number of equal blocks before the first different one."""
    for index, (one, other) in enumerate(zip(here, there, strict=False)):
        if _ordered(one) != _ordered(other):
            return index
    return min(len(here), len(there))


def _names(
    spark: "SparkSession",
    pair: TopicPair,
    place: TopicPartition,
    offsets: tuple[int | None, int | None],
) -> list[str]:
    """Return the columns in which two records differ."""
    if offsets[0] is None or offsets[1] is None:
        return []
    sides = (
        (pair.here, place, offsets[0]),
        (pair.there, pair.counterpart(place), offsets[1]),
    )
    one, two = (
        side.narrow(at, offset, offset + 1).load(spark, COLUMNS).collect()
        for side, at, offset in sides
    )
    return [name for name in COLUMNS if one and two and one[0][name] != two[0][name]]


def _difference_text(
    number: int,
    offsets: tuple[int | None, int | None],
    counts: tuple[int, int],
    names: Sequence[str],
) -> str:
    equal = f"the first {number:,} records are equal; then " if number else ""
    if offsets[0] is None:
        return f"{equal}{counts[1] - number:,} records are only there, from offset {offsets[1]}"
    if offsets[1] is None:
        return f"{equal}{counts[0] - number:,} records are only here, from offset {offsets[0]}"
    what = f" ({', '.join(names)})" if names else ""
    return (
        f"{equal}offset {offsets[0]} here differs from offset {offsets[1]} there{what};"
        f" {counts[0]:,} records here, {counts[1]:,} there"
    )


def _differing_records(
    spark: "SparkSession",
    pair: TopicPair,
    place: TopicPartition | None,
    columns: Sequence[str],
    *,
    latest_by_key: bool,
) -> list[TopicDifference]:
    """Return the difference of the records of two partitions, or of the topics, in any order.

    Empty if they are equal now: compaction or a later record of a key made the difference.
    """
    sides = (pair.here, pair.there)
    if place is not None:
        sides = (pair.here.only([place]), pair.there.only([pair.counterpart(place)]))
    hashed = _hashed_pair(spark, pair, sides, columns, latest_by_key=latest_by_key)
    bits = bucket_bits(max(sum(each.size for each in side.ranges.values()) for side in sides))
    here, there = (sum_buckets(each, bits) for each in hashed)
    differing = sorted(
        bucket for bucket in here.keys() | there.keys() if here.get(bucket) != there.get(bucket)
    )
    if not differing:
        return []
    counts = tuple(sum(each.records for each in side.values()) for side in (here, there))
    examined = examined_buckets(here, there, differing)
    only_here, only_there = unequal_records(
        *(records_of_buckets(each, examined, bits) if examined else [] for each in hashed)
    )
    at_least = "at least " if len(examined) < len(differing) else ""
    parts = [
        f"{at_least}{len(found):,} records are only {side}, such as {found[0]}"
        for side, found in (("here", only_here), ("there", only_there))
        if found
    ]
    if not examined:
        parts = [
            f"the records differ; none is named, because more than {EXAMINED_MAX:,} records have"
            " similar hashes"
        ]
    return [
        TopicDifference(
            topic=pair.here.topics[0],
            partition=None if place is None else place.partition,
            text=f"{'; '.join(parts)}; {counts[0]:,} records here, {counts[1]:,} there",
            records=(counts[0], counts[1]),
            offsets=(
                only_here[0].offset if only_here else None,
                only_there[0].offset if only_there else None,
            ),
        )
    ]


def _hashed_pair(
    spark: "SparkSession",
    pair: TopicPair,
    sides: tuple[TopicRanges, TopicRanges],
    columns: Sequence[str],
    *,
    latest_by_key: bool,
) -> list["DataFrame"]:
    """Return `hashed_records` of all or some partitions of a pair."""
    without = later_keys(spark, sides[0]) if pair.is_live and latest_by_key else None
    return [
        hashed_records(spark, side, columns, latest_by_key=latest_by_key, without=without)
        for side in sides
    ]


@dataclass(frozen=True, slots=True, order=True)
class _Location:
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"partition {self.partition} offset {self.offset}"


def unequal_records(
    here: Sequence["Row"], there: Sequence["Row"]
) -> tuple[list[_Location], list[_Location]]:
    """Return the records without an equal one on the other side, sorted."""
    sides: list[dict[int, list[_Location]]] = [{}, {}]
    for side, rows in zip(sides, (here, there), strict=True):
        for row in rows:
            at = _Location(row["partition"], row["offset"])
            side.setdefault(row["hash"], []).append(at)
    found: list[list[_Location]] = []
    for mine, theirs in (sides, sides[::-1]):
        found.append(
            sorted(
                at
                for number, places in mine.items()
                for at in sorted(places)[len(theirs.get(number, ())) :]
            )
        )
    return found[0], found[1]


# --- gaps ----------------------------------------------------------------------------------------


def _findings(
    spark: "SparkSession",
    here: TopicRanges,
    digests: Mapping[TopicPartition, Digest],
    others: Mapping[TopicPartition, Digest],
) -> tuple[PartitionFindings, ...]:
    """Return the findings of each partition, with the cause of its gaps."""
    found = {
        place: PartitionFindings(
            range=here.ranges[place],
            digest=digests.get(place),
            gaps=Gaps.NONE,
            other=others.get(place),
        )
        for place in sorted(here.ranges)
    }
    with_gaps = [place for place, each in found.items() if each.missing > 0]
    if not with_gaps:
        return tuple(found.values())
    compacted = compacted_topics(here.access, sorted({place.topic for place in with_gaps}))
    stored = count_stored(
        spark, here.only([place for place in with_gaps if place.topic not in compacted])
    )
    for place in with_gaps:
        each = found[place]
        # Markers, and records of aborted transactions; a concurrent compaction may delete some.
        explained = min(max(stored.get(place, 0) - each.records, 0), each.missing)
        gaps = Gaps.TRANSACTIONS if explained == each.missing else Gaps.UNEXPLAINED
        if place.topic in compacted:
            gaps = Gaps.COMPACTION
        found[place] = replace(each, gaps=gaps, explained=explained)
    return tuple(found.values())
