"""Arguments of assignments, subscriptions and selections."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import InvalidRequest
from ..offsets import PARTITION_END, PartitionLike, Partitions, parse_partition

Assignment: TypeAlias = Mapping[str, Sequence[int] | None]
"""Partitions by topic; None: all partitions."""

Wanted: TypeAlias = Partitions | Assignment
"""Topics with all their partitions, partitions, or an `Assignment`."""


def parse_assignment(wanted: Any) -> dict[str, tuple[int, ...] | None]:
    """Return the partitions by topic, without duplicates; raise InvalidRequest if it is
    malformed."""
    if isinstance(wanted, Mapping):
        return {_topic(topic): _partitions(topic, wanted) for topic in wanted}
    found: dict[str, tuple[int, ...] | None] = {}
    for each in _listed(wanted):
        if isinstance(each, tuple):
            topic, partition = parse_partition(each)
            listed = found.setdefault(topic, ())
            if listed is not None and partition not in listed:
                found[topic] = (*listed, partition)
        else:
            found[_topic(each)] = None
    return found


def parse_partitions(wanted: Partitions) -> list[str | PartitionLike]:
    """Return the topics and the partitions of a selection; raise InvalidRequest if it is
    malformed."""
    return [
        parse_partition(each) if isinstance(each, tuple) else _topic(each)
        for each in _listed(wanted)
    ]


def _listed(wanted: Any) -> Iterable[Any]:
    if isinstance(wanted, str) or _is_partition(wanted):
        return (wanted,)
    if isinstance(wanted, bytes | Mapping) or not isinstance(wanted, Iterable):
        raise InvalidRequest(
            f"{wanted!r} is not a list of topics or partitions: give names as str, or "
            "TopicPartition(topic, partition)"
        )
    return wanted


def _is_partition(wanted: Any) -> bool:
    """Return True for a tuple (topic, partition), False for a tuple of topics."""
    return isinstance(wanted, tuple) and len(wanted) == 2 and not isinstance(wanted[1], str | tuple)


def _topic(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{name!r} is not a topic: give its name as a str")
    return name


def _partitions(topic: Any, wanted: Mapping[Any, Any]) -> tuple[int, ...] | None:
    partitions = wanted[topic]
    if partitions is None:
        return None
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Sequence | range):
        raise InvalidRequest(
            f"{dict(wanted)!r} is not an assignment: give partitions by topic, e.g. "
            "{'flights': [0, 1]}"
        )
    for partition in partitions:
        if type(partition) is not int or not 0 <= partition < PARTITION_END:
            raise InvalidRequest(
                f"{partition!r} is not a partition: give numbers >= 0", topic=str(topic)
            )
    return tuple(dict.fromkeys(partitions))
