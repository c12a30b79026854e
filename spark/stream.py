"""The stream reader: offsets between micro-batches, and the tasks of each.

Spark keeps one instance in a process of the driver for the life of a query: it answers for
offsets and plans tasks. Other instances read, so nothing that `read` needs is state of this one.

Spark logs only where a micro-batch ends. After a failed first batch it asks for the initial offset
again, so that must not move: one at `latest` is stored under the query's group. A batch that would
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

from quorumlog.errors import QuorumlogError, UnknownTopicOrPartition
from quorumlog.spark.admission import Admission, Density
from quorumlog.spark.cluster import Cluster, Leader, check_same_topic
from quorumlog.spark.offsets import (
    NUMBER_MAX,
    Offsets,
    OffsetsJson,
    TopicPartition,
    from_json,
    to_json,
)
from quorumlog.spark.options import ReadOptions
from quorumlog.spark.planning import (
    check_progress,
    plan_batch,
    plan_stream,
    resolve,
    split,
    times_wanted,
)
from quorumlog.spark.query_group import QueryGroup
from quorumlog.spark.retention_lease import RetentionLease
from quorumlog.spark.tasks import input_partitions, read_task

LEADERS_AGE_MAX_S: Final = 1.0
"""How long the partitions and leaders of a selection are taken for known: Spark asks for the latest
offset up to a hundred times a second."""

DENSITIES_AGE_MAX_S: Final = 60.0
"""How long it is taken for known what a partition's records take on disk."""

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
        self._admission = Admission(options.limits)
        self._densities: dict[TopicPartition, Density] = {}
        self._densities_until = 0.0  # on time.monotonic()
        self._group: QueryGroup | None = None
        self._lease: RetentionLease | None = None
        if options.group_id is not None:
            self._group = QueryGroup(self._cluster(), options)
            if options.hold is not None:
                self._lease = RetentionLease(
                    self._cluster(), options.group_id, bytes_max=options.hold.bytes_max
                )

    # --- offsets, on the driver ---

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts; the same answer again while nothing is removed, at
        `latest` until its first micro-batch is committed.

        Raises OffsetOutOfRange for a start beyond the end of the log, or below its start when
        failOnDataLoss is set; and what keeps a start from being stored, or retention from being
        held.
        """
        leaders = self._known_leaders()
        self._check_topics(leaders)
        if self._group is not None and self._options.starts_at_end:
            starts = self._group.start(lambda: self._resolved_start(leaders))
        else:
            starts = self._resolved_start(leaders)
        self._topic_ids = _topic_ids(leaders)
        if self._group is not None:
            self._group.begins(starts, must=self._lease is not None)
        if self._lease is not None:
            self._lease.take(place.topic for place in starts)
        return as_dict(to_json(starts))

    def _resolved_start(self, leaders: Mapping[TopicPartition, Leader]) -> Offsets:
        options = self._options
        cluster = self._cluster()
        times = times_wanted(options.start, leaders)
        found = cluster.offsets_at(times, leaders, options.isolation)
        bounds = cluster.bounds(leaders, options.isolation)
        starts = resolve(options.start, bounds, found, no_match=options.start_no_match)
        ends = {place: bound.latest for place, bound in bounds.items()}
        planned = plan_batch(starts, ends, bounds, fail_on_data_loss=options.fail_on_data_loss)
        _warn(planned.losses)
        return {place: max(starts[place], bounds[place].earliest) for place in bounds}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends: `start` while there are too few records for one.

        Spark's `limit` says whether there are any; then all limits of the options count.
        Raises OffsetOutOfRange when a partition ends before `start`, or when `start` is of a topic
        that was deleted and created anew since this query knows it.
        """
        starts = from_json(start)
        self._check_topics(starts)
        if self._group is not None and self._options.starts_at_end:
            self._group.plans()
        self._follow(starts)
        latest = self._end_of_query(starts) if self._target is not None else self._ask_latest()
        self._latest = latest
        check_progress(starts, latest)
        self._topic_ids = self._asked_ids
        if isinstance(limit, ReadAllAvailable) or not self._options.limits.has_any:
            return as_dict(to_json(latest))
        ends = self._admission.end_of(
            self._with_new(starts, latest),
            latest,
            self._known_densities(),
            now_ms=time.monotonic_ns() // 1_000_000,
            waits=self._target is None,
        )
        return as_dict(to_json(starts if ends is None else ends))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return that there is a limit, if one is set: Spark knows none that has bytes, or waits.
        Trigger.Once does not ask."""
        limits = self._options.limits
        return (
            ReadMaxRows(limits.offsets_max or NUMBER_MAX) if limits.has_any else ReadAllAvailable()
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offsets, for the query's progress."""
        return None if self._latest is None else as_dict(to_json(self._latest))

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the offsets that are the latest now."""
        self._target = self._ask_latest()

    def _end_of_query(self, starts: Offsets) -> Offsets:
        """Return where the query ends with Trigger.AvailableNow. Spark asks for that before it asks
        where a new query starts, which may be further on, and have partitions that are new."""
        target = self._target
        assert target is not None, "the query has no end"
        there = {place: start for place, start in starts.items() if place in self._known_leaders()}
        if any(start > target.get(place, -1) for place, start in there.items()):
            check_progress(starts, self._ask_latest())
            beyond = {place: max(start, target.get(place, start)) for place, start in there.items()}
            target = self._target = target | beyond
        return target

    # --- plans, on the driver ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the micro-batch in [start, end); there may be none.

        Raises OffsetOutOfRange for a start beyond its end, for a topic that was created anew since
        `end` was found, and for lost records when failOnDataLoss is set; InvalidConfig for a first
        micro-batch whose start at `latest` is not known any more.
        """
        options = self._options
        if self._group is not None and options.starts_at_end:
            self._group.check_planned()
        self._renew_lease()
        starts, ends = from_json(start), from_json(end)
        self._check_topics(ends)
        starts = self._without_unread(starts, ends)
        with_new = self._with_new(starts, ends)
        new = {place: offset for place, offset in with_new.items() if place not in starts}
        planned = plan_stream(
            starts,
            ends,
            new,
            fail_on_data_loss=options.fail_on_data_loss,
            overtaken=self._overtaken(starts, ends),
        )
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
        """Tell the query's group how far it has come. The checkpoint holds the progress: nothing
        rests on this, and Spark calls it with the next micro-batch, if there is one."""
        if self._group is not None:
            self._group.reached(from_json(end), is_end=True)

    def stop(self) -> None:
        """Do nothing: the process ends with the query, and a lease runs out."""

    # --- reading, on executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_task(self._options, self._schema, self._columns, partition)

    # --- the query's group ---

    def _follow(self, starts: Offsets) -> None:
        """What is below these offsets is in micro-batches that are committed: say so."""
        if self._group is not None:
            self._group.reached(starts, is_end=False)
        self._renew_lease()

    def _renew_lease(self) -> None:
        if self._lease is not None:
            self._lease.renew(place.topic for place in self._known_leaders())

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

    def _known_densities(self) -> dict[TopicPartition, Density]:
        if self._options.limits.bytes_max is None or time.monotonic() < self._densities_until:
            return self._densities
        try:
            self._densities = self._cluster().densities(self._known_leaders())
        except QuorumlogError as error:
            logger.warning("spark.densities error=%s: those from before are used", error)
        self._densities_until = time.monotonic() + DENSITIES_AGE_MAX_S
        return self._densities

    def _overtaken(self, starts: Offsets, ends: Offsets) -> set[TopicPartition]:
        """Return the partitions that start beyond their end because their log does by now."""
        leaders = self._known_leaders()
        beyond = {
            place: leaders[place]
            for place, end in ends.items()
            if starts.get(place, end) > end and place in leaders
        }
        log_starts = self._cluster().earliest(beyond, self._options.isolation)
        return {place for place in beyond if log_starts[place] >= starts[place]}

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
