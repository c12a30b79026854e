"""The offsets and lag of mirror topics, from the target and the source cluster."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from ..clients.admin.descriptions import Topic
from ..clients.blocking import Log
from ..clients.mirror.source import source_name, topic_id_text
from ..errors import QuorumlogError, TimedOut, TransportError

END_TIMEOUT_MS: Final = 3_000
"""Timeout for the end offsets of one leader, so that a failed leader does not hide the others."""

TAIL_OFFSETS_MAX: Final = 10_000
"""Offsets at the end of a source that are checked for records: markers of transactions and aborted
records are not copied, so a complete copy may end before its source."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """The end offsets of a topic's partitions, and the errors of those without one."""

    found: dict[int, int]
    problems: dict[int, str]


def mirror_status(log: Log, source: Log | None) -> list[dict[str, Any]]:
    """Return a row for each partition of each mirror topic. `source_end` and `lag` are None without
    a source, and if the source is another cluster or has recreated the topic. `problem` is the
    error of a partition whose end offset is not available, else None."""
    cluster = None if source is None else source.admin.describe_cluster().cluster_id
    rows: list[dict[str, Any]] = []
    for topic in log.admin.describe_topics():
        mirrors = topic.configs.get("mirror.source")
        if mirrors is None:
            continue
        ours, theirs = _ends(log, topic), _Ends({}, {})
        if source is not None and cluster is not None:
            try:
                there = source.admin.describe_topic(topic.name)
                if mirrors == source_name(cluster, topic_id_text(there.topic_id)):
                    theirs = _ends(source, there)
            except QuorumlogError:
                pass
        for partition in sorted(each.partition for each in topic.partitions):
            end, source_end = ours.found.get(partition), theirs.found.get(partition)
            problem = ours.problems.get(partition)
            if problem is None and partition in theirs.problems:
                problem = f"source: {theirs.problems[partition]}"
            rows.append(
                {
                    "topic": topic.name,
                    "partition": partition,
                    "source": mirrors,
                    "copied_to": end,
                    "source_end": source_end,
                    "lag": _lag(source, (topic.name, partition), end, source_end),
                    "problem": problem,
                }
            )
    return rows


def _lag(
    source: Log | None, place: tuple[str, int], end: int | None, source_end: int | None
) -> int | None:
    """Return the offsets that are not copied; 0 if they have no committed records, None if an end
    is unknown."""
    if source is None or end is None or source_end is None:
        return None
    lag = max(0, source_end - end)
    if not 0 < lag <= TAIL_OFFSETS_MAX:
        return lag
    try:
        with source.consumer([place], start=end, until_end=True) as consumer:
            records = consumer.poll(max_records=1, timeout_ms=END_TIMEOUT_MS)
            return 0 if not records and consumer.position(place) >= source_end else lag
    except QuorumlogError:
        return lag


def _ends(log: Log, topic: Topic) -> _Ends:
    """Request the end offsets of a topic, once per leader."""
    ends = _Ends({}, {})
    by_leader: dict[int, list[int]] = defaultdict(list)
    for each in topic.partitions:
        if each.leader is None:
            ends.problems[each.partition] = (
                "it has no leader: its replicas are down, or an election is under way"
            )
        else:
            by_leader[each.leader].append(each.partition)
    for led in by_leader.values():
        error = _list_ends(log, topic.name, led, ends)
        if error is not None and not isinstance(
            error, TransportError | TimedOut
        ):  # perhaps of one partition
            for partition in led:
                _list_ends(log, topic.name, [partition], ends)
    return ends


def _list_ends(log: Log, topic: str, partitions: list[int], ends: _Ends) -> QuorumlogError | None:
    try:
        ends.found.update(
            log.list_offsets(
                topic,
                partitions=partitions,
                isolation_level="read_committed",
                timeout_ms=END_TIMEOUT_MS,
            )
        )
    except QuorumlogError as error:
        ends.problems.update(dict.fromkeys(partitions, error.message))
        return error
    for partition in partitions:
        ends.problems.pop(partition, None)
    return None
