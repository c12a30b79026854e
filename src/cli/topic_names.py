"""A topic that does not exist: which one was meant, and how to make it."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

from ..errors import QuorumlogError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from ..clients.blocking import Log


def partitions_of(log: "Log", topic: str, *, wanted: int | None = None) -> int:
    """Return the number of a topic's partitions; raises UnknownTopicOrPartition with the nearest
    names, or where there is no partition `wanted`."""
    try:
        count = log.partitions(topic)
    except UnknownTopicOrPartition:
        raise unknown_topic(log, topic) from None
    if wanted is not None:
        check_partition(topic, wanted, count)
    return count


def check_partition(topic: str, partition: int, count: int) -> None:
    """Raise UnknownTopicOrPartition unless a topic of so many partitions has this one."""
    if partition >= count:
        there = f"there is 0 to {count - 1}" if count > 1 else "there is 0 only"
        raise UnknownTopicOrPartition(
            f"there is no such partition, {there}", topic=topic, partition=partition
        )


def unknown_topic(
    log: "Log", topic: str, *, remedy: str = "`quorumlog topics create {topic}` makes it"
) -> UnknownTopicOrPartition:
    """Return the error that says what to do about a topic that does not exist; `remedy`: where no
    name is near."""
    try:
        names = [each.name for each in log.admin.list_topics(internal=True)]
    except QuorumlogError:
        names = []
    near = get_close_matches(topic, names, n=3)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = f"{remedy.format(topic=topic)}, `quorumlog topics list` shows all"
    return UnknownTopicOrPartition(f"there is no such topic: {hint}", topic=topic)
