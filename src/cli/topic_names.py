"""Checks of topic and partition names, with suggestions for unknown topics."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

from ..errors import QuorumlogError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from ..clients.blocking import Log


def partitions_of(log: "Log", topic: str, *, wanted: int | None = None) -> int:
    """Return the partition count of a topic. Raise UnknownTopicOrPartition, with similar names, if
    the topic does not exist or has no partition `wanted`."""
    try:
        count = log.partition_count(topic)
    except UnknownTopicOrPartition:
        raise unknown_topic(log, topic) from None
    if wanted is not None:
        check_partition(topic, wanted, count)
    return count


def check_partition(topic: str, partition: int, count: int) -> None:
    """Raise UnknownTopicOrPartition if `partition` is not in [0, count)."""
    if partition >= count:
        existing = f"partitions 0 to {count - 1}" if count > 1 else "partition 0 only"
        raise UnknownTopicOrPartition(
            f"the partition does not exist; the topic has {existing}",
            topic=topic,
            partition=partition,
        )


def unknown_topic(
    log: "Log", topic: str, *, remedy: str = "create it with `quorumlog topics create {topic}`"
) -> UnknownTopicOrPartition:
    """Return the error for a topic that does not exist. It suggests similar names, or `remedy` if
    there are none."""
    try:
        names = [each.name for each in log.admin.list_topics(internal=True)]
    except QuorumlogError:
        names = []
    near = get_close_matches(topic, names, n=3)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = f"{remedy.format(topic=topic)}; `quorumlog topics list` lists all topics"
    return UnknownTopicOrPartition(f"the topic does not exist; {hint}", topic=topic)
