"""Arguments of assignments and subscriptions: topics by name, or partitions by topic."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import InvalidRequest

Assignment: TypeAlias = Mapping[str, Sequence[int] | None]
"""Partitions by topic; None: all partitions."""

Wanted: TypeAlias = str | Sequence[str] | Assignment
"""Topics with all their partitions, or an `Assignment`."""

PARTITION_END = 2**31


def parse_assignment(wanted: Any) -> dict[str, tuple[int, ...] | None]:
    """Return the partitions by topic, without duplicates; raise InvalidRequest if it is
    malformed."""
    if isinstance(wanted, Mapping):
        return {_topic(topic): _partitions(topic, wanted) for topic in wanted}
    if isinstance(wanted, bytes) or not isinstance(wanted, Sequence):
        raise InvalidRequest(
            f"{wanted!r} is not a list of topics: give names as str, or partitions by topic, e.g. "
            "{'flights': [0, 1]}"
        )
    names = (wanted,) if isinstance(wanted, str) else wanted
    return {_topic(name): None for name in names}


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
