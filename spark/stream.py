"""The stream reader: offsets between micro-batches, and the tasks of each.

Spark keeps one instance in a process of the driver for the life of a query: it answers for
offsets and plans tasks. Other instances read, so nothing that `read` needs is state of this one.

Spark logs only where a micro-batch ends. After a failed first batch it asks for the initial offset
again, so that must not move: it is `earliest`, explicit, or that of a time, and a batch that would
start beyond its end raises.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quorumlog.errors import UnknownTopicOrPartition
from quorumlog.spark.cluster import Cluster, Leader, check_same_topic
from quorumlog.spark.offsets import Offsets, OffsetsJson, TopicPartition, from_json, to_json
from quorumlog.spark.options import ReadOptions
from quorumlog.spark.planning import (
    check_progress,
    limit_rows,
    plan_batch,
    plan_stream,
    resolve,
    split,
    times_wanted,
)
from quorumlog.spark.tasks import input_partitions, read_task

LEADERS_AGE_MAX_S: Final = 1.0
"""How long the partitions and leaders of a selection are taken for known: Spark asks for the latest
offset up to a hundred times a second."""

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Answers for offsets, plans tasks and reads them."""

    def __init__(self, options: ReadOptions, schema: StructType, columns: tuple[str, ...]) -> None:
        """`columns` are the source's names of the schema's fields."""
        self._options = options
        self._schema = schema
        self._columns = columns
        self._leaders: dict[TopicPartition, Leader] = {}
        self._leaders_until = 0.0  # on time.monotonic()
        self._topic_ids: dict[str, bytes] = {}  # of the topics that Spark's newest offsets are of
        self._asked_ids: dict[str, bytes] = {}  # likewise, of `_latest` or `_target`
        self._latest: Offsets | None = None  # as last asked for
        self._target: Offsets | None = None  # with Trigger.AvailableNow: where the query ends

    # --- offsets, on the driver ---

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts; the same answer again while nothing is removed.

        Raises OffsetOutOfRange for a start beyond the end of the log, or below its start when
        failOnDataLoss is set.
        """
        options = self._options
        leaders = self._known_leaders()
        cluster = self._cluster()
        times = times_wanted(options.start, leaders)
        found = cluster.offsets_at(times, leaders, options.isolation)
        bounds = cluster.bounds(leaders, options.isolation)
        starts = resolve(options.start, bounds, found, no_match=options.start_no_match)
        ends = {place: bound.latest for place, bound in bounds.items()}
        planned = plan_batch(starts, ends, bounds, fail_on_data_loss=options.fail_on_data_loss)
        _warn(planned.losses)
        self._topic_ids = _topic_ids(leaders)
        return as_dict(
            to_json({place: max(starts[place], bounds[place].earliest) for place in bounds})
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends, at most `limit` behind `start`.

        Raises OffsetOutOfRange when a partition ends before `start`, or when `start` is of a topic
        that was deleted and created anew since this query knows it.
        """
        starts = from_json(start)
        self._check_topics(starts)
        latest = self._target if self._target is not None else self._ask_latest()
        self._latest = latest
        check_progress(starts, latest)
        self._topic_ids = self._asked_ids
        if not isinstance(limit, ReadMaxRows):
            return as_dict(to_json(latest))
        starts = self._with_new(starts, latest)
        return as_dict(to_json(limit_rows(starts, latest, limit.max_rows)))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxOffsetsPerTrigger, if it is set."""
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offsets, for the query's progress."""
        return None if self._latest is None else as_dict(to_json(self._latest))

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the offsets that are the latest now."""
        self._target = self._ask_latest()

    # --- plans, on the driver ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the micro-batch in [start, end); there may be none.

        Raises OffsetOutOfRange for a start beyond its end, for a topic that was created anew since
        `end` was found, and for lost records when failOnDataLoss is set.
        """
        options = self._options
        starts, ends = from_json(start), from_json(end)
        self._check_topics(ends)
        starts = self._without_unread(starts, ends)
        with_new = self._with_new(starts, ends)
        new = {place: offset for place, offset in with_new.items() if place not in starts}
        planned = plan_stream(starts, ends, new, fail_on_data_loss=options.fail_on_data_loss)
        _warn(planned.losses)
        ranges = split(
            planned.ranges,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        leaders = self._known_leaders()
        if any(part.place not in leaders for part in ranges):
            self._leaders_until = 0.0
            leaders = self._known_leaders()
        # A partition deleted since is still asked for: its task says so, or skips it.
        anywhere = {
            part.place: Leader(options.bootstrap[0], self._topic_ids.get(part.place.topic, b""))
            for part in ranges
        }
        return input_partitions(ranges, anywhere | leaders)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint holds the progress."""

    def stop(self) -> None:
        """Do nothing: the process ends with the query."""

    # --- reading, on executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_task(self._options, self._schema, self._columns, partition)

    # --- what the brokers say ---

    def _cluster(self) -> Cluster:
        return Cluster(self._options.bootstrap)

    def _check_topics(self, places: Iterable[TopicPartition]) -> None:
        leaders = self._known_leaders()
        for place in places:
            before, now = self._topic_ids.get(place.topic), leaders.get(place)
            if before is not None and now is not None:
                check_same_topic(place, before, now.topic_id)

    def _known_leaders(self) -> dict[TopicPartition, Leader]:
        if time.monotonic() >= self._leaders_until:
            self._leaders = self._cluster().leaders(self._options.selection)
            self._leaders_until = time.monotonic() + LEADERS_AGE_MAX_S
        return self._leaders

    def _ask_latest(self) -> Offsets:
        try:
            latest = self._cluster().latest(self._known_leaders(), self._options.isolation)
        except UnknownTopicOrPartition:  # of what a pattern matched before, maybe
            self._leaders_until = 0.0
            latest = self._cluster().latest(self._known_leaders(), self._options.isolation)
        self._asked_ids = _topic_ids(self._leaders)
        return latest

    def _without_unread(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Offsets:
        """Return the starts without the partitions that exist, that nothing was read of and that
        `ends` has not: they were made after a first batch was planned that failed, before Spark
        asked for the initial offset again. They are not gone, the next batch has them."""
        leaders = self._known_leaders()
        absent = [place for place in starts if place not in ends and place in leaders]
        asked = {place: leaders[place] for place in absent}
        log_starts = self._cluster().earliest(asked, self._options.isolation)
        return {place: start for place, start in starts.items() if log_starts.get(place) != start}

    def _with_new(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Offsets:
        """Return the starts, with the log start of partitions that only `ends` has; 0 for those
        that are gone again."""
        leaders = self._known_leaders()
        new = {place: leaders[place] for place in ends if place not in starts and place in leaders}
        found = self._cluster().earliest(new, self._options.isolation)
        return dict.fromkeys(ends, 0) | dict(starts) | found


def as_dict(offsets: OffsetsJson) -> dict[str, Any]:
    """Return the same object under the type that Spark's interface names."""
    return dict(offsets)


def _topic_ids(leaders: Mapping[TopicPartition, Leader]) -> dict[str, bytes]:
    return {place.topic: leader.topic_id for place, leader in leaders.items()}


def _warn(losses: Sequence[str]) -> None:
    for loss in losses:
        logger.warning("spark.data_loss %s", loss)
