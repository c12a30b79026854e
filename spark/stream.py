"""The stream reader: offsets between micro-batches, and the tasks of each.

Spark keeps one instance in a process of the driver for the life of a query: it answers for
offsets and plans tasks. Other instances read, so nothing that `read` needs is state of this one.

Spark logs only where a micro-batch ends. After a failed first batch it asks for the initial offset
again, so that must not move: one at `latest` is stored under the query's group. A batch that would
start beyond its end raises.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
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

from quorumlog.errors import (
    InvalidConfig,
    OffsetOutOfRange,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.spark.admission import Admission, Density, Pace
from quorumlog.spark.cluster import Cluster, Leader
from quorumlog.spark.offsets import (
    NUMBER_MAX,
    Offsets,
    OffsetsJson,
    StreamOffsets,
    TopicPartition,
    to_json,
    topic_id_text,
)
from quorumlog.spark.options import Assigned, ReadOptions, Subscribed, SubscribedPattern
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
        self._cluster = Cluster(options.bootstrap, patience_ms=options.poll_timeout_ms)
        self._cluster_id = ""  # not asked for yet
        self._first: StreamOffsets | None = None  # what initialOffset has returned
        self._latest: Offsets | None = None  # as last asked for
        self._target: StreamOffsets | None = None  # with Trigger.AvailableNow: where the query ends
        self._absent: frozenset[str] = frozenset()  # topics that were read and are away now
        self._admission = Admission(options.limits)
        self._pace = Pace()
        self._densities: dict[TopicPartition, Density] = {}
        self._densities_until = 0.0  # on time.monotonic()
        self._group: QueryGroup | None = None
        self._lease: RetentionLease | None = None
        if options.group_id is not None:
            self._group = QueryGroup(Cluster(options.bootstrap), options)
            if options.hold is not None:
                self._lease = RetentionLease(
                    Cluster(options.bootstrap), options.group_id, bytes_max=options.hold.bytes_max
                )

    # --- offsets, on the driver ---

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts; the same answer again while nothing is removed, at
        `latest` until its first micro-batch is committed.

        Raises OffsetOutOfRange for a start beyond the end of the log, or below its start when
        failOnDataLoss is set; and what keeps a start from being stored, or retention from being
        held.
        """
        leaders = self._look_up_leaders(must_exist=True)
        may_move = not self._options.fail_on_data_loss and not self._options.starts_at_end
        if self._first is not None and not may_move:  # it is asked for twice in a run
            now = self._of(leaders)
            if self._options.fail_on_data_loss:
                self._check_made_anew(self._first, now)
            self._start_anew(self._first.made_anew(now))
        if self._group is not None and self._options.starts_at_end:
            starts = self._group.start(lambda: self._resolved_start(leaders))
        else:
            starts = self._resolved_start(leaders)
        if self._group is not None:
            self._group.begins(starts, must=self._lease is not None)
        if self._lease is not None:
            self._lease.take(_topics(leaders))
        self._first = self._of(leaders, starts)
        return as_dict(self._first.to_json())

    def _resolved_start(self, leaders: Mapping[TopicPartition, Leader]) -> Offsets:
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
        """Return where the next micro-batch ends: `start` while there are too few records for one.

        Spark's `limit` says whether there are any; then all limits of the options count. What
        retention has taken counts for none of them when failOnDataLoss is off. Raises
        OffsetOutOfRange when a partition ends before `start`, or when `start` is of a topic that
        was deleted and created anew, if failOnDataLoss is set; InvalidConfig when it is of another
        cluster.
        """
        time.sleep(self._pace.rest_ms(_now_ms()) / 1000)
        end = self._next_end(start, limit)
        self._pace.looked(_now_ms(), found=end != start)
        return end

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = self._decoded(start)
        latest = self._target or self._ask_latest()
        if self._options.fail_on_data_loss:
            self._check_made_anew(at, latest)
        anew = at.made_anew(latest)
        if self._group is not None and self._options.starts_at_end:
            if self._first is not None and at.offsets == self._first.offsets:
                self._start_anew(anew)
            self._group.plans()
        self._follow(at, anew)
        at = at.without(anew)
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
            now_ms=_now_ms(),
            waits=self._target is None,
        )
        return start if ends is None else as_dict(replace(latest, offsets=ends).to_json())

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

    def _end_of_query(self, at: StreamOffsets, target: StreamOffsets) -> StreamOffsets:
        """Return where the query ends with Trigger.AvailableNow. Spark asks for that before it asks
        where a new query starts, which may be further on, and have partitions that are new."""
        ends = target.offsets
        there = {place: start for place, start in at.offsets.items() if place in self._leaders}
        if any(start > ends.get(place, -1) for place, start in there.items()):
            now = self._ask_latest()
            check_progress(there, now.offsets)
            beyond = {place: max(start, ends.get(place, start)) for place, start in there.items()}
            ids = {**now.topic_ids, **target.topic_ids}
            target = self._target = replace(target, offsets=ends | beyond, topic_ids=ids)
        return target

    # --- plans, on the driver ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the micro-batch in [start, end); there may be none.

        Raises OffsetOutOfRange for a start beyond its end, and for lost records when failOnDataLoss
        is set: those that retention has taken, and those of a topic that was deleted and created
        anew, before `end` was found or since. InvalidConfig for offsets of another cluster, and for
        a first micro-batch whose start at `latest` is not known any more.
        """
        options = self._options
        at, to = self._decoded(start), self._decoded(end)
        self._renew_lease()
        if any(place not in self._known_leaders() for place in to.offsets):
            self._leaders_until = 0.0
        log_starts = self._asked(self._log_starts({*at.offsets, *to.offsets}))
        leaders = self._leaders
        losses = self._losses_by_name(at, to, self._of(leaders))
        gone = to.made_anew(self._of(leaders))
        at, to = at.without(gone | at.made_anew(to)), to.without(gone)
        if (
            self._group is not None
            and options.starts_at_end
            and (options.fail_on_data_loss or to.offsets)
        ):
            self._group.check_planned()  # where nothing is left to read, no start is needed
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
        # A partition deleted since is still asked for: its task says so, or skips it.
        anywhere = {
            part.place: Leader(options.bootstrap[0], to.id_of(part.place.topic)) for part in ranges
        }
        return input_partitions(ranges, anywhere | leaders)

    def _losses_by_name(
        self, at: StreamOffsets, to: StreamOffsets, now: StreamOffsets
    ) -> list[str]:
        """Return what a micro-batch loses of topics that have only their name from those before."""
        gone, losses = to.made_anew(now), []
        for place, end in to.offsets.items():
            if place.topic in gone and at.offsets.get(place, 0) != end:
                losses.append(
                    f"{place}: records up to offset {end} are gone, the topic was deleted and "
                    "created anew; what there is now comes with the next micro-batch"
                )
        anew = at.made_anew(to) - gone
        for place, start in at.offsets.items():
            if place.topic in anew:
                losses.append(
                    f"{place}: the topic was deleted and created anew after it was read up to "
                    f"offset {start}; the new one is read from its first record"
                )
        return losses

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the query's group how far it has come. The checkpoint holds the progress: nothing
        rests on this, and Spark calls it with the next micro-batch, if there is one."""
        if self._group is not None:
            to = self._decoded(end)
            present = to.without(to.made_anew(self._of(self._leaders)))
            self._group.reached(present.offsets, is_end=True)

    def stop(self) -> None:
        """Do nothing: the process ends with the query, and a lease runs out."""

    # --- reading, on executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_task(self._options, self._schema, self._columns, partition)

    # --- the query's group ---

    def _follow(self, at: StreamOffsets, anew: Collection[str]) -> None:
        """What is below these offsets is in micro-batches that are committed: say so, unless some
        are of topics that were created anew, whose offsets are none of the group's any more."""
        if self._group is not None and not anew:
            self._group.reached(at.offsets, is_end=False)
        self._renew_lease()

    def _start_anew(self, topics: Collection[str]) -> None:
        """Topics in which the query was to start at `latest` were created anew before its first
        micro-batch was committed: those are read from their first record, there too."""
        if self._group is None or not topics:
            return
        there = {place for place in self._leaders if place.topic in topics}
        self._group.starts_anew(topics, self._asked(self._log_starts(there)))

    def _renew_lease(self) -> None:
        if self._lease is not None:
            self._lease.renew(_topics(self._known_leaders()))

    # --- what the brokers say ---

    def _decoded(self, nested: Mapping[str, Mapping[str, Any]]) -> StreamOffsets:
        """Return offsets of Spark's; raises InvalidConfig where they are of another cluster, unless
        that is the one which this one mirrors: then nothing is said of which topics they are."""
        found = StreamOffsets.from_json(nested)
        if found.cluster and not self._cluster_id:
            self._cluster_id = self._cluster.cluster_id()
        if found.cluster in ("", self._cluster_id):
            return found
        if found.cluster == self._options.mirror_of:
            return replace(found, cluster="", topic_ids={})
        raise InvalidConfig(
            f"the checkpoint's offsets are of the cluster {found.cluster!r}, and the brokers "
            f"(option 'bootstrap') are of {self._cluster_id!r}. Where they mirror that cluster, so "
            f"that their topics have its offsets, set the option 'mirrorOf' to {found.cluster!r}; "
            "else begin with a new checkpoint"
        )

    def _of(
        self, leaders: Mapping[TopicPartition, Leader], offsets: Offsets | None = None
    ) -> StreamOffsets:
        """Return offsets of topics as they are now."""
        if not self._cluster_id:
            self._cluster_id = self._cluster.cluster_id()
        ids = {topic: topic_id_text(topic_id) for topic, topic_id in _topics(leaders).items()}
        return StreamOffsets(offsets=offsets or {}, cluster=self._cluster_id, topic_ids=ids)

    def _check_made_anew(self, before: StreamOffsets, now: StreamOffsets) -> None:
        for topic in sorted(before.made_anew(now)):
            raise OffsetOutOfRange(
                "the topic was deleted and created anew: the offsets of the read are those of the "
                "topic before, and nothing of the new one is read. Begin with a new checkpoint; or "
                "set failOnDataLoss to false, and the new one is read from its first record",
                topic=topic,
            )

    def _known_leaders(self) -> dict[TopicPartition, Leader]:
        if time.monotonic() >= self._leaders_until:
            self._look_up_leaders(must_exist=self._options.fail_on_data_loss)
        return self._leaders

    def _look_up_leaders(self, *, must_exist: bool) -> dict[TopicPartition, Leader]:
        selection = self._options.selection
        self._leaders = self._cluster.leaders(selection, must_exist=must_exist)
        self._leaders_until = time.monotonic() + LEADERS_AGE_MAX_S
        return self._leaders

    def _asked(self, ask: Callable[[Mapping[TopicPartition, Leader]], Offsets]) -> Offsets:
        """Return what is asked of the partitions there are; once more, where one that was there
        before is gone, or of a topic that was created anew."""
        try:
            return ask(self._known_leaders())
        except (UnknownTopicOrPartition, OffsetOutOfRange):
            self._leaders_until = 0.0
            return ask(self._known_leaders())

    def _ask_latest(self) -> StreamOffsets:
        latest = self._asked(lambda there: self._cluster.latest(there, self._options.isolation))
        return self._of(self._leaders, latest)

    def _log_starts(
        self, places: Collection[TopicPartition]
    ) -> Callable[[Mapping[TopicPartition, Leader]], Offsets]:
        """Return what asks where the logs of some partitions start, as far as they exist."""

        def ask(there: Mapping[TopicPartition, Leader]) -> Offsets:
            asked = {place: leader for place, leader in there.items() if place in places}
            return self._cluster.earliest(asked, self._options.isolation)

        return ask

    def _with_absent(self, at: StreamOffsets, latest: StreamOffsets) -> StreamOffsets:
        """Return the latest offsets, with those of partitions which the options name and which are
        away: so it is known what they were, should they come again."""
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
                "spark.data_loss %s: does not exist now, and what was not read of it is lost; "
                "it is read from its first record when it is created anew",
                ", ".join(sorted(absent - self._absent)),
            )
        self._absent = absent
        return replace(
            latest,
            offsets=latest.offsets | away,
            topic_ids={**at.topic_ids, **latest.topic_ids},
        )

    def _read_from(self, starts: Offsets, latest: Offsets) -> Offsets:
        """Return from where the records up to `latest` are read: partitions that are new from their
        log start, and those that retention has overtaken too when failOnDataLoss is off."""
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
            logger.warning("spark.densities error=%s: those from before are used", error)
        self._densities_until = time.monotonic() + DENSITIES_AGE_MAX_S
        return self._densities


def _topics(leaders: Mapping[TopicPartition, Leader]) -> dict[str, bytes]:
    return {place.topic: leader.topic_id for place, leader in leaders.items()}


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def as_dict(offsets: OffsetsJson) -> dict[str, Any]:
    """Return the same object under the type that Spark's interface names."""
    return dict(offsets)


def _names(selection: Assigned | Subscribed) -> frozenset[str | TopicPartition]:
    return frozenset(selection.places if isinstance(selection, Assigned) else selection.topics)


def _warn(losses: Sequence[str]) -> None:
    for loss in losses:
        logger.warning("spark.data_loss %s", loss)
