"""A scan for the causes of offsets without a record, by the headers of stored batches.

Markers of transactions and records of aborted transactions have offsets, and a read_committed read
does not return them. Headers are enough to count them, so nothing is decompressed or decoded.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from quorumlog.ids import TopicPartition
from quorumlog.records.batch import iterate_batches
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.options import Isolation
from quorumlog.spark.plan import Range
from quorumlog.spark.tasks import RangeFetcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quorumlog.spark.pipelines.topic_scan import TopicRanges

_RANGES: Final = "topic string, partition int, start long, end long"
_COUNTS: Final = "topic string, partition int, stored long"
_SCHEMA: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("stored", pa.int64())]
)


def count_stored(spark: "SparkSession", ranges: "TopicRanges") -> dict[TopicPartition, int]:
    """Return the number of stored records of each partition's range, of every kind: markers and
    records of aborted transactions too."""
    rows = [(*each.place, each.start, each.end) for each in ranges.ranges.values() if each.size > 0]
    if not rows:
        return {}
    frame = spark.createDataFrame(rows, _RANGES).repartition(len(rows))
    bootstrap = tuple(ranges.bootstrap.split(","))
    counted = frame.mapInArrow(partial(_count_ranges, bootstrap=bootstrap), _COUNTS).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["stored"] for row in counted}


def _count_ranges(
    batches: Iterator[pa.RecordBatch], *, bootstrap: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    cluster = Cluster(bootstrap)
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            place = TopicPartition(row["topic"], row["partition"])
            part = Range(place=place, start=row["start"], end=row["end"])
            rows.append({**place._asdict(), "stored": count_range(cluster, part)})
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


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
