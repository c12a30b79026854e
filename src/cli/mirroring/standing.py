"""How far the copies of a cluster are, asked of the cluster, and of the one that they copy."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from ...clients.admin.descriptions import Topic
from ...clients.blocking import Log
from ...clients.mirror.source import source_name, topic_id_text
from ...errors import Lost, QuorumlogError, TimedOut

END_MS: Final = 3_000
"""For one broker to tell the ends of what it leads; one that has just died shall not hide what is
known of the others."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where partitions of a topic end, and of those that do not say so, why."""

    found: dict[int, int]
    problems: dict[int, str]


def standing(log: Log, source: Log | None) -> list[dict[str, Any]]:
    """Return a row for each partition of each mirror; `source_end` and `lag` are None where the
    source is not asked, is another cluster, or has no such topic, but perhaps a new one of its
    name. A partition whose end nobody tells has `problem`, which is None for the others."""
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
                problem = f"of the source: {theirs.problems[partition]}"
            rows.append(
                {
                    "topic": topic.name,
                    "partition": partition,
                    "source": mirrors,
                    "copied_to": end,
                    "source_end": source_end,
                    "lag": None if end is None or source_end is None else max(0, source_end - end),
                    "problem": problem,
                }
            )
    return rows


def _ends(log: Log, topic: Topic) -> _Ends:
    """Ask each leader of a topic once for what it leads."""
    ends = _Ends({}, {})
    by_leader: dict[int, list[int]] = defaultdict(list)
    for each in topic.partitions:
        if each.leader is None:
            ends.problems[each.partition] = (
                "it has no leader now: its replicas are down or being elected"
            )
        else:
            by_leader[each.leader].append(each.partition)
    for led in by_leader.values():
        error = _ask(log, topic.name, led, ends)
        if error is not None and not isinstance(error, Lost | TimedOut):  # of one of them, perhaps
            for partition in led:
                _ask(log, topic.name, [partition], ends)
    return ends


def _ask(log: Log, topic: str, partitions: list[int], ends: _Ends) -> QuorumlogError | None:
    try:
        ends.found.update(log.list_offsets(topic, partitions=partitions, timeout_ms=END_MS))
    except QuorumlogError as error:
        ends.problems.update(dict.fromkeys(partitions, error.message))
        return error
    for partition in partitions:
        ends.problems.pop(partition, None)
    return None
