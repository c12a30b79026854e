"""The pipeline `mirror`: copies topics to another cluster, exactly once, for large backfills.

A streaming query reads the source, and each of its micro-batches is one numbered staged commit in
the target. The query's checkpoint maps numbers to offsets, so a run that is killed anywhere is
continued by the next. A plan beside the checkpoint, written before the first record, fixes the
topics and the first offsets of both sides; the comparison at the end begins there.

Records keep their partition, order, key, value, headers and timestamp, and get new offsets. The
pipeline `quorumlog mirror` also keeps offsets, from one process.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as f

from quorumlog.clients.mirror.target import OWN
from quorumlog.clients.topology import PartitionLeader
from quorumlog.errors import InvalidConfig, OffsetOutOfRange, UnknownTopicOrPartition
from quorumlog.ids import TopicPartition
from quorumlog.spark.broker_calls import Cluster
from quorumlog.spark.cluster_access import SECURITY_NAMES, ClusterAccess
from quorumlog.spark.offsets import Offsets, StreamOffsets, from_json, to_json, topic_id_text
from quorumlog.spark.options import Isolation, Mode, ReadOptions, Subscribed, parse_options
from quorumlog.spark.pipelines.query_run import (
    NumberedWrites,
    pipeline_session,
    run_batches,
    with_limit,
)
from quorumlog.spark.pipelines.record_digest import COLUMNS
from quorumlog.spark.pipelines.report import OnProgress, PipelineProgress, PipelineReport
from quorumlog.spark.pipelines.topic_scan import (
    TopicRanges,
    compacted_topics,
    deleted_records,
    scan_digests,
)
from quorumlog.spark.pipelines.topic_verification import TopicPair, compare_pair
from quorumlog.spark.pipelines.verification import Comparison, TopicDifference
from quorumlog.spark.plan import Range, resolve, times_wanted, within
from quorumlog.spark.process_client import client_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quorumlog.clients.admin.descriptions import Topic

PLAN_VERSION: Final = 1
CONNECT_TIMEOUT_MS: Final = 5_000

_REFUSED: Final = {
    "minpartitions": "splits partitions between tasks, which write at the same time",
    "maxrecordsperpartition": "splits partitions between tasks, which write at the same time",
    "includeheaders": "is always true here",
}
_STREAM_ONLY: Final = (
    "groupid",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxbytespertrigger",
    "maxtriggerdelay",
    "retentionhold",
    "retentionholdbytes",
)
_POSITIONS: Final = (
    "assign",
    "subscribe",
    "subscribepattern",
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
)
_SINK_RESERVED: Final = ("delivery", "partitioner")
"""Options of the sink that would end exactly-once copies, or have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """The topics of a mirror and the offsets at which its two sides begin."""

    source: str  # cluster id
    target: str
    prefix: str  # of the topics' names in the target
    starts: Offsets  # in the source
    target_starts: Offsets  # by the partitions in the target
    target_ids: Mapping[str, str] = field(default_factory=dict)
    """The id of each topic in the target; a plan of an earlier release has none."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics in the source, sorted."""
        return tuple(sorted({place.topic for place in self.starts}))

    def to_json(self) -> str:
        """Return the stored form."""
        return json.dumps(
            {
                "version": PLAN_VERSION,
                "source": self.source,
                "target": self.target,
                "prefix": self.prefix,
                "starts": to_json(self.starts),
                "target_starts": to_json(self.target_starts),
                "target_ids": dict(self.target_ids),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "CopyPlan":
        """Return a stored plan; raise InvalidConfig for one of a newer release."""
        found = json.loads(text)
        if found["version"] > PLAN_VERSION:
            raise InvalidConfig(
                f"the plan of the checkpoint has version {found['version']}, this release reads"
                f" {PLAN_VERSION}; run the mirror with the release that made it"
            )
        return cls(
            source=found["source"],
            target=found["target"],
            prefix=found["prefix"],
            starts=from_json(found["starts"]),
            target_starts=from_json(found["target_starts"]),
            target_ids=found.get("target_ids", {}),
        )


def mirror(
    *,
    bootstrap: str,
    to: str,
    checkpoint: str,
    subscribe: str | None = None,
    prefix: str = "",
    create: bool = True,
    append: bool = False,
    verify: bool = True,
    options: Mapping[str, str] | None = None,
    to_options: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    on_progress: OnProgress | None = None,
) -> PipelineReport:
    """Copy topics of the cluster `bootstrap` to the cluster `to`; return the counts.

    Copies the records that exist now, then compares both sides. A later run with the same
    `checkpoint`, a folder that Spark can read and write, continues: after an interruption, or for
    the records since. `subscribe` names topics; `options` of the data source may choose them
    otherwise, and limit a micro-batch (4 GiB by default, from Spark 4.2 on). `to_options` are those
    of the sink. `prefix` precedes the topics' names in the target. `create`
    creates missing topics and partitions, with the source's configs. A new checkpoint needs empty
    topics in the target, unless `append`.

    Raises InvalidConfig, UnknownTopicOrPartition, OffsetOutOfRange, FencedWrite if another run uses
    the checkpoint; ConnectionFailed, OutcomeUnknown or TimedOut if no broker responds.
    """
    given = {"bootstrap": bootstrap, **(options or {})}
    if subscribe is not None:
        given["subscribe"] = subscribe
    _check_options(given)
    writes = NumberedWrites("mirror", to, options=to_options, reserved=_SINK_RESERVED)
    with pipeline_session(spark) as session:
        begun = time.monotonic()
        plan = _stored_plan(session, checkpoint)
        if plan is None:
            plan = _new_plan(given, to, writes.access, prefix, create=create, append=append)
            _store_plan(session, checkpoint, plan)
        else:
            _check_plan(plan, given, to, writes.access, prefix, create=create)
        reader = session.readStream.format("quorumlog").options(**stream_options(plan, given))
        copied = run_batches(
            reader.load(),
            lambda rows, number, query: writes.write(_copies(rows, prefix), number, query),
            checkpoint=f"{checkpoint}/query",
            on_progress=on_progress,
        )
        verified = "no"
        problems: list[str] = []
        if verify and not copied.is_interrupted:
            if on_progress is not None:
                on_progress(PipelineProgress(records=copied.records, step="verify"))
            target = {"bootstrap": to, **(to_options or {})}
            verified, problems = _verify(session, plan, given, target, checkpoint)
        return PipelineReport(
            pipeline="mirror",
            records=copied.records,
            seconds=time.monotonic() - begun,
            where=f"{', '.join(plan.prefix + topic for topic in plan.topics)} at {to}",
            details={
                "topics": len(plan.topics),
                "partitions": len(plan.starts),
                "batches": copied.batches,
                "verified": verified,
            },
            is_interrupted=copied.is_interrupted,
            problems=tuple(problems),
        )


def _check_options(given: Mapping[str, str]) -> None:
    for name in given:
        if name.lower() in _REFUSED:
            raise InvalidConfig(
                f"option {name!r}: {_REFUSED[name.lower()]}; a mirror keeps the order of each"
                " partition; remove it"
            )


def _without(given: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.lower() not in names}


def _only(given: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.lower() in names}


# --- the plan ------------------------------------------------------------------------------------


def _stored_plan(spark: "SparkSession", checkpoint: str) -> CopyPlan | None:
    """Return the plan of a checkpoint, None for a new one."""
    try:
        rows = spark.read.text(f"{checkpoint}/plan", wholetext=True).collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    texts = [row["value"] for row in rows if row["value"].strip()]
    return CopyPlan.from_json(texts[0]) if texts else None  # a torn write has no file


def _store_plan(spark: "SparkSession", checkpoint: str, plan: CopyPlan) -> None:
    frame = spark.createDataFrame([(plan.to_json(),)], "value string").coalesce(1)
    frame.write.mode("overwrite").text(f"{checkpoint}/plan")


def _new_plan(
    given: Mapping[str, str],
    to: str,
    target_access: ClusterAccess,
    prefix: str,
    *,
    create: bool,
    append: bool,
) -> CopyPlan:
    """Return the plan of a first run. Create the missing topics."""
    parsed = parse_options(_without(given, _STREAM_ONLY), Mode.BATCH)
    cluster = Cluster(parsed.access)
    starts = _starts(cluster, parsed)
    if not starts:
        raise UnknownTopicOrPartition("no topic matches the option 'subscribePattern'; correct it")
    target = Cluster(target_access)
    ids = cluster.cluster_id(), target.cluster_id()
    if ids[0] == ids[1] and not prefix:
        raise InvalidConfig(
            f"{to} and {given['bootstrap']} are one cluster, {ids[0]}; give the copies other names"
            " with a prefix"
        )
    topics = sorted({place.topic for place in starts})
    prepare_topics(parsed.access, target_access, topics, prefix, create=create)
    leaders = target.leaders(Subscribed(tuple(prefix + topic for topic in topics)))
    # An undecided batch of another run counts: read_committed bounds do not include it.
    bounds = target.bounds(leaders, Isolation.READ_UNCOMMITTED)
    filled = sorted(place for place, found in bounds.items() if found.latest > 0)
    if filled and not append:
        raise InvalidConfig(
            f"{filled[0]} at {to} has records, and the checkpoint is new; use the checkpoint of"
            " the mirror that wrote them, another prefix, or allow to append"
        )
    return CopyPlan(
        source=ids[0],
        target=ids[1],
        prefix=prefix,
        starts=starts,
        target_starts={place: found.latest for place, found in bounds.items()},
        target_ids=topic_ids(leaders),
    )


def topic_ids(leaders: Mapping[TopicPartition, PartitionLeader]) -> dict[str, str]:
    """Return the id of each topic as text."""
    return {place.topic: topic_id_text(leader.topic_id) for place, leader in leaders.items()}


def check_target_ids(plan: CopyPlan, target: Cluster, to: str) -> None:
    """Raise InvalidConfig if a topic in the target was deleted after the first run."""
    names = tuple(plan.target_ids)
    found = topic_ids(target.leaders(Subscribed(names), must_exist=False))
    for name, topic_id in plan.target_ids.items():
        if found.get(name) != topic_id:
            event = "deleted and created again" if name in found else "deleted"
            raise InvalidConfig(
                f"{name} at {to}: the topic was {event} after the mirror began, and the checkpoint"
                " continues with later records; use a new checkpoint to copy all records"
            )


def _starts(cluster: Cluster, parsed: ReadOptions) -> Offsets:
    """Return the offset of each partition that the options start at."""
    leaders = cluster.leaders(parsed.selection)
    bounds = cluster.bounds(leaders, parsed.isolation)
    times = times_wanted(parsed.start, leaders)
    found = within(cluster.offsets_at(times, leaders, parsed.isolation), bounds)
    return resolve(parsed.start, bounds, found, no_match=parsed.start_no_match)


def _check_plan(
    plan: CopyPlan,
    given: Mapping[str, str],
    to: str,
    target_access: ClusterAccess,
    prefix: str,
    *,
    create: bool,
) -> None:
    """Raise InvalidConfig if a checkpoint is of another mirror. Create added partitions."""
    parsed = parse_options(_without(given, _STREAM_ONLY), Mode.BATCH)
    cluster, target = Cluster(parsed.access), Cluster(target_access)
    ids = cluster.cluster_id(), target.cluster_id()
    if ids != (plan.source, plan.target) or prefix != plan.prefix:
        raise InvalidConfig(
            f"the checkpoint is of a mirror from cluster {plan.source} to {plan.target} with prefix"
            f" {plan.prefix!r}, and this one is from {ids[0]} to {ids[1]} with prefix {prefix!r};"
            " use another checkpoint"
        )
    topics = sorted({place.topic for place in cluster.leaders(parsed.selection)})
    if set(topics) != set(plan.topics):
        raise InvalidConfig(
            f"the checkpoint is of a mirror of {', '.join(plan.topics)}, and the options choose"
            f" {', '.join(topics)}; use another checkpoint for other topics"
        )
    check_target_ids(plan, target, to)
    prepare_topics(parsed.access, target_access, topics, prefix, create=create)


def prepare_topics(
    origin: ClusterAccess,
    to: ClusterAccess,
    topics: Sequence[str],
    prefix: str,
    *,
    create: bool,
) -> None:
    """Create missing topics and partitions in the target. Raise UnknownTopicOrPartition without
    `create`, and InvalidConfig for a topic with more partitions than its source."""
    there = ",".join(to.bootstrap)
    source = client_of(origin, connect_timeout_ms=CONNECT_TIMEOUT_MS)
    target = client_of(to, connect_timeout_ms=CONNECT_TIMEOUT_MS)
    found = {topic.name: topic for topic in target.admin.describe_topics()}
    for topic in source.admin.describe_topics(topics):
        name, partitions = prefix + topic.name, len(topic.partitions)
        have = len(found[name].partitions) if name in found else 0
        if have > partitions:
            raise InvalidConfig(
                f"{name} has {have} partitions at {there}, its source {partitions}; a mirror keeps"
                " the partition of each record; use another prefix"
            )
        if have < partitions and not create:
            raise UnknownTopicOrPartition(
                f"{there} has {have} of {partitions} partitions; create them, or let the mirror"
                " create them",
                topic=name,
            )
        if have == 0:
            target.admin.create_topic(name, partitions=partitions, configs=_configs(topic))
        elif have < partitions:
            target.admin.create_partitions(name, partitions)


def _configs(topic: "Topic") -> dict[str, str]:
    return {name: value for name, value in topic.configs.items() if name not in OWN}


# --- copying -------------------------------------------------------------------------------------


def stream_options(plan: CopyPlan, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the stream that reads the source."""
    return {
        **with_limit(_without(given, _POSITIONS)),
        "subscribe": ",".join(plan.topics),
        "startingOffsets": json.dumps(to_json(plan.starts)),
        "includeHeaders": "true",
    }


def _copies(frame: "DataFrame", prefix: str) -> "DataFrame":
    """Return the rows that the sink writes."""
    name = f.concat(f.lit(prefix), f.col("topic"))
    return frame.select(name.alias("topic"), "partition", "key", "value", "headers", "timestamp")


# --- verification --------------------------------------------------------------------------------


def _verify(
    spark: "SparkSession",
    plan: CopyPlan,
    given: Mapping[str, str],
    target: Mapping[str, str],
    checkpoint: str,
) -> tuple[str, list[str]]:
    """Compare both sides since their starts. Return the outcome, and the differences."""
    ends = _copied_ends(spark, f"{checkpoint}/query")
    here = TopicRanges(
        bootstrap=given["bootstrap"],
        ranges=_ranges(plan.starts, ends),
        options=_only(given, {"isolationlevel", *SECURITY_NAMES}),
    )
    copies = tuple(plan.prefix + topic for topic in plan.topics)
    there = TopicRanges(
        bootstrap=target["bootstrap"], ranges={}, options=_only(target, SECURITY_NAMES)
    )
    copied = Cluster(there.access)
    target_ends = copied.latest(copied.leaders(Subscribed(copies)), Isolation.READ_COMMITTED)
    there = replace(there, ranges=_ranges(plan.target_starts, target_ends))
    compacted = (
        compacted_topics(here.access, plan.topics),
        compacted_topics(there.access, copies),
    )
    configs = copied.configs(copies)
    records, differences = 0, []
    gone: list[str] = []
    for topic in plan.topics:
        copy = plan.prefix + topic
        columns: Sequence[str] = COLUMNS
        if configs.get(copy, {}).get("message.timestamp.type") == "LogAppendTime":
            columns = tuple(name for name in COLUMNS if name != "timestamp")
        pair = TopicPair(
            _of_topic(here, topic), _of_topic(there, copy), is_live=topic in compacted[0]
        )
        found = _compare(spark, pair, columns, is_compacted=copy in compacted[1] or pair.is_live)
        if isinstance(found, str):
            gone.append(found)
            continue
        records += found.records
        differences += found.differences
    if differences:
        return "different", [str(each) for each in differences]
    retention = f"retention deleted records since the mirror began ({'; '.join(gone)})"
    if len(gone) == len(plan.topics):
        return f"no: {retention}", []
    outcome = f"in part: {retention}; of the other topics," if gone else "yes:"
    return f"{outcome} {records:,} records are equal", []


@dataclass(frozen=True, slots=True)
class _Comparison:
    records: int
    differences: list[TopicDifference]


def _compare(
    spark: "SparkSession", pair: TopicPair, columns: Sequence[str], *, is_compacted: bool
) -> _Comparison | str:
    """Compare two topics. Return a text if retention deleted records of the ranges."""
    gone = deleted_records(pair.here) or deleted_records(pair.there)
    if gone is not None:
        return gone
    comparison = Comparison.LATEST if is_compacted else Comparison.ORDERED
    try:
        digests = [scan_digests(spark, side, columns) for side in (pair.here, pair.there)]
        found = compare_pair(spark, pair, digests[0], digests[1], comparison, columns)
    except PySparkException as error:  # Spark has the errors of its tasks and planner as text
        gone = deleted_records(pair.here) or deleted_records(pair.there)
        if gone is None or OffsetOutOfRange.__name__ not in str(error):
            raise
        return gone
    return _Comparison(sum(each.records for each in digests[0].values()), found)


def _of_topic(ranges: TopicRanges, topic: str) -> TopicRanges:
    return replace(
        ranges,
        ranges={place: each for place, each in ranges.ranges.items() if place.topic == topic},
    )


def _ranges(starts: Offsets, ends: Offsets) -> dict[TopicPartition, Range]:
    """Return the ranges up to these ends. A partition added later begins at 0."""
    return {
        place: Range(place=place, start=min(starts.get(place, 0), end), end=end)
        for place, end in ends.items()
    }


def _copied_ends(spark: "SparkSession", query: str) -> Offsets:
    """Return the end offsets of the last committed micro-batch, from the query's checkpoint."""
    committed = {row["name"] for row in _log_files(spark, f"{query}/commits")}
    offsets = {row["name"]: row["value"] for row in _log_files(spark, f"{query}/offsets")}
    last = max((name for name in offsets if name in committed), key=int, default=None)
    if last is None:
        return {}
    text = offsets[last].splitlines()[-1]  # a version, metadata, and one line for each source
    return StreamOffsets.from_json(json.loads(text)).offsets


def _log_files(spark: "SparkSession", folder: str) -> list[Any]:
    read = spark.read.text(folder, wholetext=True)
    return read.select(f.col("_metadata.file_name").alias("name"), "value").collect()
