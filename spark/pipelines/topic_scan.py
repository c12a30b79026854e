"""Parallel scans of topics in Spark that return digests, not records.

Every scan reads fixed ranges of offsets, so repeated scans read the same records. Records do not
leave Spark: the JVM hashes them, and the tasks' Python joins the hashes to digests.
"""

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from quorumlog.ids import TopicPartition
from quorumlog.records.batch import iterate_batches
from quorumlog.spark.batch_reader import BatchReader
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.cluster_access import SECURITY_NAMES, ClusterAccess, parse_access
from quorumlog.spark.offsets import to_json
from quorumlog.spark.options import Assigned, GivenOptions, Isolation, Mode, parse_options
from quorumlog.spark.pipelines.record_digest import (
    DIGESTS,
    Digest,
    digest_batches,
    digest_of_row,
    join_all,
    record_hash_sql,
)
from quorumlog.spark.pipelines.verification import Duplicates
from quorumlog.spark.plan import Range
from quorumlog.spark.tasks import RangeFetcher, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

BUCKET_BITS: Final = range(12, 19)
"""Buckets of records have the first bits of the hash in common: at least 12, at most 18."""
BUCKET_RECORDS: Final = 25_000
"""The average number of offsets of a bucket, within these bits."""
EXAMINED_MAX: Final = 100_000
"""The greatest number of records' hashes of one side that the driver takes to compare them."""

TASK_RECORDS: Final = 2_000_000
"""Offsets of one task, so that all cores have work and progress can be seen."""
FOLLOW_S: Final = 0.5

_SPLITS: Final = ("minpartitions", "maxrecordsperpartition")
_KEPT: Final = ("isolationlevel", "polltimeoutms", "failondataloss", *_SPLITS, *SECURITY_NAMES)
"""Options that do not choose topics or positions."""

_COLUMN_TYPES: Final = {
    "topic": "topic string",
    "partition": "partition int",
    "offset": "offset bigint",
    "key": "key binary",
    "value": "value binary",
    "timestamp": "timestamp timestamp",
    "headers": "headers array<struct<key: string, value: binary>>",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRanges:
    """Ranges of offsets of one or more topics of one cluster, at most one range a partition."""

    bootstrap: str
    ranges: Mapping[TopicPartition, Range]  # also empty ones
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may have a password
    """Options of the data source that do not choose records, such as isolationLevel."""

    @property
    def access(self) -> ClusterAccess:
        """The access to the cluster."""
        return parse_access(GivenOptions({**self.options, "bootstrap": self.bootstrap}))

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, sorted."""
        return tuple(sorted({place.topic for place in self.ranges}))

    def only(self, places: Sequence[TopicPartition]) -> "TopicRanges":
        """Return the ranges of some partitions."""
        return replace(self, ranges={place: self.ranges[place] for place in places})

    def narrow(self, place: TopicPartition, start: int, end: int) -> "TopicRanges":
        """Return a range of one partition."""
        return replace(self, ranges={place: Range(place=place, start=start, end=end)})

    def load(self, spark: "SparkSession", columns: Sequence[str], **options: str) -> "DataFrame":
        """Return a DataFrame of the records with these columns of the data source."""
        ranges = [each for each in self.ranges.values() if each.size > 0]
        assigned: dict[str, list[int]] = {}
        for each in ranges:
            assigned.setdefault(each.place.topic, []).append(each.place.partition)
        schema = ", ".join(_COLUMN_TYPES[name] for name in columns)
        if not ranges:
            return spark.createDataFrame([], schema)
        reader = spark.read.format("quorumlog").schema(schema).option("bootstrap", self.bootstrap)
        positions = {
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(to_json({each.place: each.start for each in ranges})),
            "endingOffsets": json.dumps(to_json({each.place: each.end for each in ranges})),
        }
        return reader.options(**{**self.options, **options, **positions}).load()


def resolve_ranges(options: Mapping[str, str]) -> TopicRanges:
    """Return the ranges that a batch read with these options of the data source has now.

    Raises InvalidConfig, UnknownTopicOrPartition or OffsetOutOfRange; ConnectionFailed,
    OutcomeUnknown or TimedOut if no broker responds.
    """
    parsed = parse_options(options, Mode.BATCH)
    whole = replace(parsed, min_partitions=None, max_records_per_partition=None)
    planned = BatchReader(whole, StructType([]), ()).partitions()
    ranges = [each.value.range for each in planned if isinstance(each.value, Task)]
    places = Cluster(parsed.access).leaders(parsed.selection)
    return TopicRanges(
        bootstrap=",".join(parsed.access.bootstrap),
        ranges={place: Range(place=place, start=0, end=0) for place in places}
        | {each.place: each for each in ranges},
        options={name: value for name, value in options.items() if name.lower() in _KEPT},
    )


def compacted_topics(access: ClusterAccess, topics: Sequence[str]) -> frozenset[str]:
    """Return the topics that are compacted."""
    configs = Cluster(access).configs(topics)
    policies = {name: found.get("cleanup.policy", "") for name, found in configs.items()}
    return frozenset(name for name, policy in policies.items() if "compact" in policy)


def deleted_records(ranges: TopicRanges) -> str | None:
    """Return a text on the first partition with deleted records in its range, None without one."""
    cluster = Cluster(ranges.access)
    places = tuple(sorted(place for place, each in ranges.ranges.items() if each.size > 0))
    earliest = cluster.earliest(cluster.leaders(Assigned(places)), Isolation.READ_UNCOMMITTED)
    for place in places:
        start = ranges.ranges[place].start
        if earliest[place] > start:
            return (
                f"{place} at {ranges.bootstrap}: records from offset {start} are deleted, the log"
                f" starts at {earliest[place]}"
            )
    return None


@contextmanager
def follow_tasks(spark: "SparkSession", on_share: Callable[[float], None]) -> Iterator[None]:
    """Report the share of finished tasks of the running jobs from a thread, while the block runs.

    A session of Spark Connect has no such report.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    is_over = threading.Event()

    def follow() -> None:
        while not is_over.wait(FOLLOW_S):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            tasks = sum(each.numTasks for each in stages if each is not None)
            done = sum(each.numCompletedTasks for each in stages if each is not None)
            if tasks:
                on_share(done / tasks)

    thread = threading.Thread(target=follow, name="quorumlog-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


# --- digests of partitions -----------------------------------------------------------------------


def scan_digests(
    spark: "SparkSession", ranges: TopicRanges, columns: Sequence[str]
) -> dict[TopicPartition, Digest]:
    """Return the digest of each partition with records."""
    found: dict[TopicPartition, list[Digest]] = {}
    split = {"maxRecordsPerPartition": str(TASK_RECORDS), **ranges.options}
    for place, each in _digests(spark, replace(ranges, options=split), columns, block=None):
        found.setdefault(place, []).append(each)
    joined = {place: join_all(parts) for place, parts in found.items()}
    return {place: each for place, each in joined.items() if each is not None}


def scan_blocks(
    spark: "SparkSession",
    ranges: TopicRanges,
    place: TopicPartition,
    columns: Sequence[str],
    *,
    block: int,
) -> list[Digest]:
    """Return the digest of each `block` records of a partition, the last of the rest."""
    unsplit = {name: value for name, value in ranges.options.items() if name.lower() not in _SPLITS}
    one = replace(ranges.only([place]), options=unsplit)
    return [each for _, each in _digests(spark, one, columns, block=block)]


def _digests(
    spark: "SparkSession", ranges: TopicRanges, columns: Sequence[str], *, block: int | None
) -> list[tuple[TopicPartition, Digest]]:
    topics = ranges.topics
    names = f.array(*(f.lit(name) for name in topics))
    # One topic needs no column of names, which would be copied for each record.
    number = (f.array_position(names, f.col("topic")) - 1) if len(topics) > 1 else f.lit(0)
    read = ranges.load(spark, [*["topic"] * (len(topics) > 1), "partition", "offset", *columns])
    hashed = read.select(
        number.cast("int").alias("topic"),
        "partition",
        "offset",
        f.expr(record_hash_sql(columns)).alias("hash"),
    )
    rows = hashed.mapInArrow(partial(digest_batches, block=block), DIGESTS).collect()
    found = [(TopicPartition(topics[row[0]], row[1]), digest_of_row(row[2:])) for row in rows]
    # The rows of one task are in order; tasks by their first offset.
    return sorted(found, key=lambda each: (each[0], each[1].first))


# --- records in any order ------------------------------------------------------------------------


def hashed_records(
    spark: "SparkSession",
    ranges: TopicRanges,
    columns: Sequence[str],
    *,
    latest_by_key: bool = False,
    without: "DataFrame | None" = None,
) -> "DataFrame":
    """Return (partition, offset, hash) of the records of one topic.

    With `latest_by_key` only of the last record of each key in each partition, if it has a value:
    the records that compaction never removes. `without` has the (partition, key) of keys to leave
    out then.
    """
    hashed = f.expr(record_hash_sql(columns)).alias("hash")
    if not latest_by_key:
        read = ranges.load(spark, ["partition", "offset", *columns])
        return read.select("partition", "offset", hashed)
    needed = ["partition", "offset", *dict.fromkeys(["key", "value", *columns])]
    read = ranges.load(spark, needed).where("key IS NOT NULL")
    if without is not None:
        read = read.join(without, ["partition", "key"], "left_anti")
    last = f.max(f.struct("offset", hashed, f.isnull("value").alias("is_tombstone"))).alias("last")
    latest = read.groupBy("partition", "key").agg(last).where("NOT last.is_tombstone")
    return latest.select("partition", "last.offset", "last.hash")


def later_keys(spark: "SparkSession", ranges: TopicRanges) -> "DataFrame | None":
    """Return the (partition, key) with a record after the ranges of one topic, None without a later
    record.

    Compaction may have removed the records of these keys in the ranges.
    """
    cluster = Cluster(ranges.access)
    leaders = cluster.leaders(Assigned(tuple(sorted(ranges.ranges))))
    later = {}
    for place, bound in cluster.bounds(leaders, Isolation.READ_COMMITTED).items():
        start = max(ranges.ranges[place].end, bound.earliest)
        if start < bound.latest:
            later[place] = Range(place=place, start=start, end=bound.latest)
    if not later:
        return None
    read = replace(ranges, ranges=later).load(spark, ["partition", "key"])
    return read.where("key IS NOT NULL").distinct()


@dataclass(frozen=True, slots=True)
class HashSum:
    """The number of records and the sum of their hashes, modulo 2**64."""

    records: int
    unordered: int


def sum_hashes(hashed: "DataFrame", by: str) -> dict[int, HashSum]:
    """Return the sums of the records by the value of an integer expression."""
    # Halves: a sum of 64-bit numbers would overflow.
    sums = hashed.groupBy(f.expr(by).alias("by")).agg(
        f.count("*").alias("records"),
        f.sum(f.expr("shiftrightunsigned(hash, 32)")).alias("high"),
        f.sum(f.expr("hash & 4294967295")).alias("low"),
    )
    return {
        row["by"]: HashSum(row["records"], ((row["high"] << 32) + row["low"]) % 2**64)
        for row in sums.collect()
    }


def bucket_bits(records: int) -> int:
    """Return the number of bits of a bucket for this number of records."""
    wanted = max(records // BUCKET_RECORDS, 1).bit_length()
    return min(max(wanted, BUCKET_BITS[0]), BUCKET_BITS[-1])


def sum_buckets(hashed: "DataFrame", bits: int) -> dict[int, HashSum]:
    """Return the sums of the records by the first bits of their hashes."""
    return sum_hashes(hashed, f"shiftrightunsigned(hash, {64 - bits})")


def examined_buckets(
    here: Mapping[int, HashSum], there: Mapping[int, HashSum], differing: Sequence[int]
) -> list[int]:
    """Return the smallest of the differing buckets, with EXAMINED_MAX records of a side at most.

    Equal records are in one bucket, so a bucket may have any number of records.
    """
    none = HashSum(0, 0)
    sizes = {
        bucket: max(here.get(bucket, none).records, there.get(bucket, none).records)
        for bucket in differing
    }
    smallest_first = sorted(differing, key=sizes.__getitem__)
    totals = itertools.accumulate(sizes[bucket] for bucket in smallest_first)
    return [
        bucket
        for bucket, total in zip(smallest_first, totals, strict=True)
        if total <= EXAMINED_MAX
    ]


def records_of_buckets(hashed: "DataFrame", buckets: Sequence[int], bits: int) -> list["Row"]:
    """Return (partition, offset, hash) of the records in some buckets."""
    bucket = f.expr(f"shiftrightunsigned(hash, {64 - bits})")
    return hashed.where(bucket.isin(list(buckets))).collect()


# --- duplicates ----------------------------------------------------------------------------------

_OFFSET_BITS: Final = 44


def find_duplicates(
    spark: "SparkSession", ranges: TopicRanges, expressions: Sequence[str]
) -> list[Duplicates]:
    """Return the duplicates of each topic by SQL expressions over the data source's columns.

    Records are equal if 128 bits of hashes of the values are. Only records with a value of the
    first expression count.
    """
    text = " ".join(expressions)
    used = [name for name in _COLUMN_TYPES if re.search(rf"\b{name}\b", text, re.IGNORECASE)]
    read = ranges.load(spark, list(dict.fromkeys(["topic", "partition", "offset", *used])))
    values = [f.expr(each) for each in expressions]
    nulls = [f.isnull(each).cast("int") for each in values]
    # Numbers only, so that Spark aggregates by hash and not by sorting.
    place = f.shiftleft(f.col("partition").cast("long"), _OFFSET_BITS) + f.col("offset")
    counted = (
        read.where(values[0].isNotNull())
        .select(
            "topic",
            f.xxhash64(*nulls, *values).alias("one"),
            f.xxhash64(f.lit("second"), *values, *nulls).alias("other"),
            place.alias("place"),
        )
        .groupBy("topic", "one", "other")
        .agg(f.count("*").alias("n"), f.min("place").alias("first"), f.max("place").alias("last"))
        .where("n > 1")
    )
    rows = counted.groupBy("topic").agg(
        f.count("*").alias("values"),
        f.sum(f.col("n") - 1).alias("surplus"),
        f.max(f.struct("n", "first", "last")).alias("most"),
    )
    found = {row["topic"]: row for row in rows.collect()}
    by = ", ".join(expressions)
    return [
        _duplicates(topic, by, found[topic])
        if topic in found
        else Duplicates(topic=topic, by=by, values=0, surplus=0)
        for topic in ranges.topics
    ]


def _duplicates(topic: str, by: str, row: "Row") -> Duplicates:
    def place(number: int) -> tuple[TopicPartition, int]:
        partition, offset = divmod(number, 1 << _OFFSET_BITS)
        return TopicPartition(topic, partition), offset

    return Duplicates(
        topic=topic,
        by=by,
        values=row["values"],
        surplus=row["surplus"],
        most=row["most"]["n"],
        first=place(row["most"]["first"]),
        last=place(row["most"]["last"]),
    )


# --- the causes of gaps --------------------------------------------------------------------------

_STORED_RANGES: Final = "topic string, partition int, start long, end long"
_STORED_COUNTS: Final = "topic string, partition int, stored long"
_STORED_SCHEMA: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("stored", pa.int64())]
)


def count_stored(spark: "SparkSession", ranges: TopicRanges) -> dict[TopicPartition, int]:
    """Return the number of stored records of each partition's range, of every kind.

    Markers of transactions and records of aborted transactions have offsets, and a read_committed
    read does not return them. Headers of batches are enough to count them.
    """
    rows = [(*each.place, each.start, each.end) for each in ranges.ranges.values() if each.size > 0]
    if not rows:
        return {}
    frame = spark.createDataFrame(rows, _STORED_RANGES).repartition(len(rows))
    count = partial(_count_ranges, access=ranges.access)
    counted = frame.mapInArrow(count, _STORED_COUNTS).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["stored"] for row in counted}


def _count_ranges(
    batches: Iterator[pa.RecordBatch], *, access: ClusterAccess
) -> Iterator[pa.RecordBatch]:
    cluster = Cluster(access)
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            place = TopicPartition(row["topic"], row["partition"])
            part = Range(place=place, start=row["start"], end=row["end"])
            rows.append({**place._asdict(), "stored": count_range(cluster, part)})
        yield pa.RecordBatch.from_pylist(rows, schema=_STORED_SCHEMA)


def count_range(cluster: Cluster, part: Range) -> int:
    """Return the number of stored records of a range."""
    fetcher = RangeFetcher(
        cluster,
        part,
        leader=cluster.leader(part.place),
        isolation=Isolation.READ_UNCOMMITTED,
        fail_on_data_loss=False,
    )
    stored = 0
    for batches, _ in fetcher.responses():
        for _, header in iterate_batches(batches):
            # The first and the last batch may extend beyond the range.
            inside = min(header.next_offset, part.end) - max(header.base_offset, part.start)
            stored += min(header.record_count, max(inside, 0))
    return stored
