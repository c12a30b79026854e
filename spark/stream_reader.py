"""The stream reader: offsets of micro-batches, and their tasks.

Spark keeps one instance in a driver process for the life of a query, which returns offsets and
plans tasks. Other instances read, so `read` uses no mutable state.

Spark logs only the end of a micro-batch. After a failed first batch it requests the initial offset
again, so that offset must not change: a start at `latest` is stored under the query's group. A
batch that would start beyond its end is an error.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from quorumlog.clients.topology import PartitionLeader
from quorumlog.errors import (
    InvalidConfig,
    OffsetOutOfRange,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.ids import NO_EPOCH, TopicPartition
from quorumlog.spark.admission import Admission, Density, Pace
from quorumlog.spark.broker_calls import Cluster, now_ms
from quorumlog.spark.offsets import (
    NUMBER_MAX,
    Offsets,
    OffsetsJson,
    StreamOffsets,
    to_json,
    topic_id_text,
)
from quorumlog.spark.options import Assigned, ReadOptions, Subscribed, SubscribedPattern
from quorumlog.spark.plan import (
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
from quorumlog.spark.values.bad_values import check_dead_letter_topic
from quorumlog.spark.values.plan import ValuePlan
from quorumlog.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

LEADERS_AGE_MAX_S: Final = 1.0
"""Maximum age of cached partitions and leaders: Spark requests the latest offset up to a hundred
times a second."""

DENSITIES_AGE_MAX_S: Final = 60.0
"""Maximum age of cached log sizes."""

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of one query: offsets, plans and reads."""

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
        self._leaders: dict[TopicPartition, PartitionLeader] = {}
        self._leaders_until = 0.0  # on time.monotonic()
        self._cluster = Cluster(options.access, patience_ms=options.poll_timeout_ms)
        self._cluster_id = ""  # empty: not looked up yet
        self._first: StreamOffsets | None = None  # the result of initialOffset
        self._latest: Offsets | None = None  # the last looked-up end offsets
        self._target: StreamOffsets | None = None  # with Trigger.AvailableNow: the query's end
        self._absent: frozenset[str] = frozenset()  # topics that were read and do not exist now
        self._admission = Admission(options.limits)
        self._pace = Pace()
        self._densities: dict[TopicPartition, Density] = {}
        self._densities_until = 0.0  # on time.monotonic()
        self._group: QueryGroup | None = None
        self._lease: RetentionLease | None = None
        self._has_checked_dead_letters = False
        if options.group_id is not None:
            self._group = QueryGroup(Cluster(options.access), options)
            if options.hold is not None:
                self._lease = RetentionLease(
                    Cluster(options.access), options.group_id, bytes_max=options.hold.bytes_max
                )

    # --- offsets, on the driver ---

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query. A second call returns the same start while no records
        are deleted, at `latest` until the first micro-batch is committed.

        Raises OffsetOutOfRange for a start beyond the end of the log, and with failOnDataLoss for
        one below its start; also the errors of storing the start and of taking the lease.
        """
        leaders = self._look_up_leaders(must_exist=True)
        may_move = not self._options.fail_on_data_loss and not self._options.starts_at_end
        if self._first is not None and not may_move:  # Spark calls this twice in a run
            now = self._of(leaders)
            if self._options.fail_on_data_loss:
                self._check_not_recreated(self._first, now)
            self._replace_start(self._first.recreated_in(now))
        if self._group is not None and self._options.starts_at_end:
            starts = self._group.start(lambda: self._resolved_start(leaders))
        else:
            starts = self._resolved_start(leaders)
        if self._group is not None:
            self._group.commit_start(starts, must=self._lease is not None)
        if self._lease is not None:
            self._lease.take(_topics(leaders))
        self._first = self._of(leaders, starts)
        return as_dict(self._first.to_json())

    def _resolved_start(self, leaders: Mapping[TopicPartition, PartitionLeader]) -> Offsets:
        options = self._options
        cluster = self._cluster
        times = times_wanted(options.start, leaders)
        found = cluster.offsets_at(times, leaders, options.isolation)
        bounds = cluster.bounds(leaders, options.isolation)
        starts = resolve(options.start, bounds, found, no_match=options.start_no_match)
        ends = {place: bound.latest for place, bound in bounds.items()}
        planned = plan_batch(starts, ends, bounds, fail_on_data_loss=options.fail_on_data_loss)
        _warn(planned.losses)
        return {place: max(starts[place], bounds[place].earliest) for place in bounds}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, or `start` while there are too few records.

        Unless Spark's `limit` is ReadAllAvailable, all limits of the options apply. Records deleted
        by retention do not count if failOnDataLoss is off. Raises OffsetOutOfRange for a partition
        that ends before `start`, and with failOnDataLoss for a recreated topic; InvalidConfig for
        offsets of another cluster.
        """
        time.sleep(self._pace.pause_ms(now_ms()) / 1000)
        end = self._next_end(start, limit)
        self._pace.polled(now_ms(), found=end != start)
        return end

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = self._decoded(start)
        latest = self._target or self._fetch_latest()
        if self._options.fail_on_data_loss:
            self._check_not_recreated(at, latest)
        recreated = at.recreated_in(latest)
        if self._group is not None and self._options.starts_at_end:
            if self._first is not None and at.offsets == self._first.offsets:
                self._replace_start(recreated)
            self._group.mark_planned()
        self._follow(at, recreated)
        at = at.without(recreated)
        if self._target is not None:
            latest = self._end_of_query(at, self._target)
        latest = self._with_absent(at, latest)
        self._latest = latest.offsets
        check_progress(at.offsets, latest.offsets)
        if isinstance(limit, ReadAllAvailable) or not self._options.limits.has_any:
            return as_dict(latest.to_json())
        ends = self._admission.end_of(
            self._read_from(at.offsets, latest.offsets),
            latest.offsets,
            self._known_densities(),
            now_ms=now_ms(),
            waits=self._target is None,
        )
        return start if ends is None else as_dict(replace(latest, offsets=ends).to_json())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ReadMaxRows if any limit is set: Spark has no limit by bytes or with a wait.
        Trigger.Once does not call this."""
        limits = self._options.limits
        return (
            ReadMaxRows(limits.offsets_max or NUMBER_MAX) if limits.has_any else ReadAllAvailable()
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offsets, for the query's progress."""
        return None if self._latest is None else as_dict(to_json(self._latest))

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the offsets that are the latest now."""
        self._target = self._fetch_latest()

    def _end_of_query(self, at: StreamOffsets, target: StreamOffsets) -> StreamOffsets:
        """Return the query's end with Trigger.AvailableNow. Spark requests it before the start of a
        new query, which may be later and have new partitions."""
        ends = target.offsets
        there = {place: start for place, start in at.offsets.items() if place in self._leaders}
        if any(start > ends.get(place, -1) for place, start in there.items()):
            now = self._fetch_latest()
            check_progress(there, now.offsets)
            beyond = {place: max(start, ends.get(place, start)) for place, start in there.items()}
            ids = {**now.topic_ids, **target.topic_ids}
            target = self._target = replace(target, offsets=ends | beyond, topic_ids=ids)
        return target

    # --- plans, on the driver ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the micro-batch in [start, end); there may be none.

        Raises OffsetOutOfRange for a start beyond its end. With failOnDataLoss also for lost
        records: deleted by retention, or of a topic recreated before or after `end` was found.
        InvalidConfig for offsets of another cluster, and for a first micro-batch whose start at
        `latest` is unknown.
        """
        options = self._options
        self._check_dead_letters()
        at, to = self._decoded(start), self._decoded(end)
        self._renew_lease()
        if any(place not in self._known_leaders() for place in to.offsets):
            self._leaders_until = 0.0
        log_starts = self._asked(self._log_starts({*at.offsets, *to.offsets}))
        leaders = self._leaders
        losses = self._losses_by_name(at, to, self._of(leaders))
        gone = to.recreated_in(self._of(leaders))
        at, to = at.without(gone | at.recreated_in(to)), to.without(gone)
        if (
            self._group is not None
            and options.starts_at_end
            and (options.fail_on_data_loss or to.offsets)
        ):
            self._group.check_planned()  # without records to read no start is needed
        planned = plan_stream(
            at.offsets,
            to.offsets,
            log_starts,
            fail_on_data_loss=options.fail_on_data_loss,
            losses=losses,
        )
        _warn(planned.losses)
        ranges = split(
            planned.ranges,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        # A partition deleted since still gets a task, which fails or skips it.
        anywhere = {
            part.place: PartitionLeader(
                options.access.bootstrap[0], NO_EPOCH, to.id_of(part.place.topic)
            )
            for part in ranges
        }
        return input_partitions(ranges, anywhere | leaders)

    def _losses_by_name(
        self, at: StreamOffsets, to: StreamOffsets, now: StreamOffsets
    ) -> list[str]:
        """Return the losses of a micro-batch caused by recreated topics."""
        gone, losses = to.recreated_in(now), []
        for place, end in to.offsets.items():
            if place.topic in gone and at.offsets.get(place, 0) != end:
                losses.append(
                    f"{place}: records up to offset {end} are lost, the topic was deleted and "
                    "recreated; its new records are in the next micro-batch"
                )
        recreated = at.recreated_in(to) - gone
        for place, start in at.offsets.items():
            if place.topic in recreated:
                losses.append(
                    f"{place}: the topic was deleted and recreated after it was read up to offset "
                    f"{start}; the new one is read from its first record"
                )
        return losses

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the progress to the query's group. The checkpoint has the progress, so this commit
        is informative only; Spark calls it with the next micro-batch."""
        if self._group is not None:
            to = self._decoded(end)
            present = to.without(to.recreated_in(self._of(self._leaders)))
            self._group.commit_progress(present.offsets, is_end=True)

    def stop(self) -> None:
        """Do nothing: the process ends with the query, and its lease expires."""

    # --- reading, on executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_task(self._options, self._schema, self._columns, self._values, partition)

    # --- the query's group ---

    def _follow(self, at: StreamOffsets, recreated: Collection[str]) -> None:
        """Commit the progress to the group, unless topics were recreated, whose offsets in the
        group are invalid; renew the lease."""
        if self._group is not None and not recreated:
            self._group.commit_progress(at.offsets, is_end=False)
        self._renew_lease()

    def _replace_start(self, topics: Collection[str]) -> None:
        """Set the stored start of recreated topics to their log start, if they were recreated
        before the first micro-batch was committed."""
        if self._group is None or not topics:
            return
        there = {place for place in self._leaders if place.topic in topics}
        self._group.replace_start(topics, self._asked(self._log_starts(there)))

    def _renew_lease(self) -> None:
        if self._lease is not None:
            self._lease.renew(_topics(self._known_leaders()))

    # --- broker calls ---

    def _check_dead_letters(self) -> None:
        """Raise UnknownTopicOrPartition for a missing dead letter topic, once in a run."""
        if not self._has_checked_dead_letters and self._options.values is not None:
            check_dead_letter_topic(self._cluster, self._options.values)
        self._has_checked_dead_letters = True

    def _decoded(self, nested: Mapping[str, Mapping[str, Any]]) -> StreamOffsets:
        """Return Spark's offsets. Raise InvalidConfig if they are of another cluster, except the
        source cluster of option mirrorOf, whose topic ids are dropped."""
        found = StreamOffsets.from_json(nested)
        if found.cluster and not self._cluster_id:
            self._cluster_id = self._cluster.cluster_id()
        if found.cluster in ("", self._cluster_id):
            return found
        if found.cluster == self._options.mirror_of:
            return replace(found, cluster="", topic_ids={})
        raise InvalidConfig(
            f"the checkpoint is of cluster {found.cluster!r}, the brokers (option 'bootstrap') are "
            f"of cluster {self._cluster_id!r}; if their topics mirror the former, set option "
            f"'mirrorOf' to {found.cluster!r}, otherwise use a new checkpoint"
        )

    def _of(
        self, leaders: Mapping[TopicPartition, PartitionLeader], offsets: Offsets | None = None
    ) -> StreamOffsets:
        """Return offsets with the current ids of cluster and topics."""
        if not self._cluster_id:
            self._cluster_id = self._cluster.cluster_id()
        ids = {topic: topic_id_text(topic_id) for topic, topic_id in _topics(leaders).items()}
        return StreamOffsets(offsets=offsets or {}, cluster=self._cluster_id, topic_ids=ids)

    def _check_not_recreated(self, before: StreamOffsets, now: StreamOffsets) -> None:
        for topic in sorted(before.recreated_in(now)):
            raise OffsetOutOfRange(
                "the topic was deleted and recreated, so the offsets of the query are invalid; use "
                "a new checkpoint, or set failOnDataLoss to false to read the new topic from its "
                "first record",
                topic=topic,
            )

    def _known_leaders(self) -> dict[TopicPartition, PartitionLeader]:
        if time.monotonic() >= self._leaders_until:
            self._look_up_leaders(must_exist=self._options.fail_on_data_loss)
        return self._leaders

    def _look_up_leaders(self, *, must_exist: bool) -> dict[TopicPartition, PartitionLeader]:
        selection = self._options.selection
        self._leaders = self._cluster.leaders(selection, must_exist=must_exist)
        self._leaders_until = time.monotonic() + LEADERS_AGE_MAX_S
        return self._leaders

    def _asked(self, ask: Callable[[Mapping[TopicPartition, PartitionLeader]], Offsets]) -> Offsets:
        """Return the result of `ask` for the current leaders; look them up again if a partition was
        deleted or its topic recreated."""
        try:
            return ask(self._known_leaders())
        except (UnknownTopicOrPartition, OffsetOutOfRange):
            self._leaders_until = 0.0
            return ask(self._known_leaders())

    def _fetch_latest(self) -> StreamOffsets:
        self._check_dead_letters()
        latest = self._asked(lambda there: self._cluster.latest(there, self._options.isolation))
        return self._of(self._leaders, latest)

    def _log_starts(
        self, places: Collection[TopicPartition]
    ) -> Callable[[Mapping[TopicPartition, PartitionLeader]], Offsets]:
        """Return the function that looks up the log starts of some partitions that exist."""

        def ask(there: Mapping[TopicPartition, PartitionLeader]) -> Offsets:
            asked = {place: leader for place, leader in there.items() if place in places}
            return self._cluster.earliest(asked, self._options.isolation)

        return ask

    def _with_absent(self, at: StreamOffsets, latest: StreamOffsets) -> StreamOffsets:
        """Return the latest offsets, plus those of selected partitions that do not exist now, so
        that their position is known if they appear again."""
        if isinstance(self._options.selection, SubscribedPattern):
            return latest
        names = _names(self._options.selection)
        away = {
            place: offset
            for place, offset in at.offsets.items()
            if place not in latest.offsets and (place.topic in names or place in names)
        }
        absent = frozenset(str(place) for place in away)
        if absent - self._absent:
            logger.warning(
                "spark.data_loss %s: does not exist now, its unread records are lost; it is read "
                "from its first record if it is created again",
                ", ".join(sorted(absent - self._absent)),
            )
        self._absent = absent
        return replace(
            latest,
            offsets=latest.offsets | away,
            topic_ids={**at.topic_ids, **latest.topic_ids},
        )

    def _read_from(self, starts: Offsets, latest: Offsets) -> Offsets:
        """Return the offsets from which records up to `latest` are read. New partitions start at
        their log start; so do those with deleted records if failOnDataLoss is off."""
        behind = {
            place
            for place, end in latest.items()
            if place not in starts or (starts[place] < end and not self._options.fail_on_data_loss)
        }
        log_starts = self._asked(self._log_starts(behind)) if behind else {}
        return {place: max(starts.get(place, 0), log_starts.get(place, 0)) for place in latest}

    def _known_densities(self) -> dict[TopicPartition, Density]:
        if self._options.limits.bytes_max is None or time.monotonic() < self._densities_until:
            return self._densities
        try:
            self._densities = self._cluster.densities(self._known_leaders())
        except QuorumlogError as error:
            logger.warning("spark.densities error=%s: the cached log sizes are used", error)
        self._densities_until = time.monotonic() + DENSITIES_AGE_MAX_S
        return self._densities


class UnlimitedStreamReader(StreamReader):
    """The stream reader for Spark below 4.2, which passes `latestOffset` neither the position of
    the query nor a limit.

    The position is that of the last call that has one. A run begins without it, and then
    `partitions` makes all checks. Spark requests the end of the first micro-batch before its start:
    a start at `latest` beyond this end, which Spark has logged, is this end.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        columns: tuple[str, ...],
        values: ValuePlan | None = None,
    ) -> None:
        """Take the arguments of StreamReader."""
        super().__init__(options, schema, columns, values)
        self._position: dict[str, Any] | None = None  # where the next micro-batch starts
        self._is_first = False  # the next micro-batch is the query's first

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query, as StreamReader does."""
        self._position = super().initialOffset()
        self._is_first = True
        if self._group is not None:
            self._group.mark_planned()
        return self._position

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # Spark's old interface
        """Return the end of the next micro-batch: of all records."""
        if self._position is not None:
            return super().latestOffset(self._position, ReadAllAvailable())
        time.sleep(self._pace.pause_ms(now_ms()) / 1000)
        latest = self._fetch_latest()
        self._renew_lease()
        self._pace.polled(now_ms(), found=False)
        return as_dict(latest.to_json())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the micro-batch in [start, end), as StreamReader does."""
        if self._is_first and self._options.starts_at_end:
            at, ends = self._decoded(start), self._decoded(end).offsets
            starts = {
                place: min(at.offsets[place], ends[place]) for place in at.offsets.keys() & ends
            }
            start = as_dict(replace(at, offsets=starts).to_json())
        tasks = super().partitions(start, end)
        self._position = end
        self._is_first = False
        return tasks


def _topics(leaders: Mapping[TopicPartition, PartitionLeader]) -> dict[str, bytes]:
    return {place.topic: leader.topic_id for place, leader in leaders.items()}


def as_dict(offsets: OffsetsJson) -> dict[str, Any]:
    """Return a copy with the type of Spark's interface."""
    return dict(offsets)


def _names(selection: Assigned | Subscribed) -> frozenset[str | TopicPartition]:
    return frozenset(selection.places if isinstance(selection, Assigned) else selection.topics)


def _warn(losses: Sequence[str]) -> None:
    for loss in losses:
        logger.warning("spark.data_loss %s", loss)
