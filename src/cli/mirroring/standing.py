"""How far the copies of a cluster are, asked of the cluster, and of the one that they copy."""

from typing import Any

from ...clients.blocking import Log
from ...clients.mirroring.source import source_name, topic_id_text
from ...errors import QuorumlogError


def standing(log: Log, source: Log | None) -> list[dict[str, Any]]:
    """Return a row for each partition of each mirror; `source_end` and `lag` are None where the
    source is not asked, is another cluster, or has no such topic, but perhaps a new one of its
    name."""
    cluster = None if source is None else source.admin.describe_cluster().cluster_id
    rows: list[dict[str, Any]] = []
    for topic in log.admin.describe_topics():
        mirrors = topic.configs.get("mirror.source")
        if mirrors is None:
            continue
        ends = log.list_offsets(topic.name)
        theirs: dict[int, int] = {}
        if source is not None and cluster is not None:
            try:
                topic_id = topic_id_text(source.admin.describe_topic(topic.name).topic_id)
                if mirrors == source_name(cluster, topic_id):
                    theirs = source.list_offsets(topic.name)
            except QuorumlogError:
                theirs = {}
        for partition, end in sorted(ends.items()):
            there = theirs.get(partition)
            rows.append(
                {
                    "topic": topic.name,
                    "partition": partition,
                    "source": mirrors,
                    "copied_to": end,
                    "source_end": there,
                    "lag": None if there is None else max(0, there - end),
                }
            )
    return rows
