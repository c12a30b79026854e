"""Checks of names that a user gives, and errors of unknown names that suggest similar ones."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..errors import (
    GroupNotFound,
    QuorumlogError,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)

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
    otherwise = f"{remedy.format(topic=topic)}; `quorumlog topics list` lists all topics"
    hint = suggestion(
        topic, lambda: [each.name for each in log.admin.list_topics(internal=True)], otherwise
    )
    return UnknownTopicOrPartition(f"the topic does not exist; {hint}", topic=topic)


def unknown_group(log: "Log", group: str) -> GroupNotFound:
    """Return the error for a group that does not exist, with similar names."""
    hint = suggestion(
        group,
        lambda: [each.name for each in log.admin.list_groups()],
        "`quorumlog groups list` lists all groups",
    )
    return GroupNotFound(f"group {group} does not exist; {hint}")


def unknown_commits(log: "Log", name: str) -> TransactionalIdNotFound:
    """Return the error for a name of staged commits that does not exist, with similar names."""
    hint = suggestion(
        name,
        lambda: [each.name for each in log.admin.list_commits()],
        "`quorumlog commits list` lists all names",
    )
    return TransactionalIdNotFound(f"staged commits {name}: the name does not exist; {hint}")


def suggestion(name: str, list_names: Callable[[], Iterable[str]], otherwise: str) -> str:
    """Return the remedy for an unknown name: up to three similar names, or `otherwise` if there are
    none or they cannot be listed."""
    from difflib import get_close_matches  # slow to import, and needed only for errors

    try:
        names = list(list_names())
    except QuorumlogError:  # the unknown name is the error to report
        return otherwise
    near = get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else otherwise
