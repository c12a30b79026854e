"""The batch reader of `spark.read`: planning on the driver, reading on executors.

Spark plans a DataFrame once, at its first action: a second action on the same DataFrame (or on a
view of it) reads the same offsets, even if `latest` has advanced. A new `load()` plans again.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quorumlog.clients.topology import PartitionLeader
from quorumlog.ids import TopicPartition
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.options import NoMatch, ReadOptions
from quorumlog.spark.plan import Range, plan_batch, resolve, split, times_wanted, within
from quorumlog.spark.tasks import input_partitions, read_task
from quorumlog.spark.values.bad_values import check_dead_letter_topic
from quorumlog.spark.values.plan import ValuePlan

logger = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """Plans ranges of offsets and reads them."""

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        columns: tuple[str, ...],
        values: ValuePlan | None = None,
    ) -> None:
        """`columns` are the source's names of the schema's fields; `values` is the decoding of the
        column `value`, if any."""
        self._options = options
        self._schema = schema
        self._columns = columns
        self._values = values

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve every position and return one task per range.

        Raises InvalidConfig, UnknownTopicOrPartition or OffsetOutOfRange; ConnectionFailed,
        OutcomeUnknown or TimedOut if no broker responds.
        """
        options = self._options
        cluster = Cluster(options.access)
        if options.values is not None:
            check_dead_letter_topic(cluster, options.values)
        leaders = cluster.leaders(options.selection)
        start_times = times_wanted(options.start, leaders)
        end_times = times_wanted(options.end, leaders)
        # The bounds first: records that arrive during the lookup are not part of this read.
        bounds = cluster.bounds(leaders, options.isolation)
        started = within(cluster.offsets_at(start_times, leaders, options.isolation), bounds)
        ended = within(cluster.offsets_at(end_times, leaders, options.isolation), bounds)
        planned = plan_batch(
            resolve(options.start, bounds, started, no_match=options.start_no_match),
            resolve(options.end, bounds, ended, no_match=NoMatch.LATEST),
            bounds,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for loss in planned.losses:
            logger.warning("spark.data_loss %s", loss)
        ranges = split(
            self._narrowed(planned.ranges, cluster, leaders),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return input_partitions(ranges, leaders)

    def _narrowed(
        self,
        ranges: Sequence[Range],
        cluster: Cluster,
        leaders: Mapping[TopicPartition, PartitionLeader],
    ) -> Sequence[Range]:
        """Return the ranges to read; all of them without filters."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_task(self._options, self._schema, self._columns, self._values, partition)
