"""A topic that does not exist: which one was meant, and how to make it."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

from ..errors import QuorumlogError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from ..clients.blocking import Log


def partitions_of(log: "Log", topic: str) -> int:
    """Return the number of a topic's partitions; raises UnknownTopicOrPartition with the nearest
    names."""
    try:
        return log.partitions(topic)
    except UnknownTopicOrPartition:
        raise unknown_topic(log, topic) from None


def unknown_topic(log: "Log", topic: str) -> UnknownTopicOrPartition:
    """Return the error that says what to do about a topic that does not exist."""
    try:
        names = [each.name for each in log.admin.list_topics()]
    except QuorumlogError:
        names = []
    near = get_close_matches(topic, names, n=3)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = f"`quorumlog topics create {topic}` makes it, `quorumlog topics list` shows all"
    return UnknownTopicOrPartition(f"there is no such topic: {hint}", topic=topic)
