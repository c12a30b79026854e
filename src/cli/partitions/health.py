"""What can be said of a partition in a word; pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...clients import Partition, Topic

STATES: Mapping[str, str] = {
    "offline": "nobody leads it: it can be neither read nor written",
    "under-min-isr": "it refuses acks=all for want of replicas in sync",
    "under-replicated": "a replica is not in sync",
    "recovering": "its leader was elected with possible loss",
    "moving": "a reassignment is under way",
    "led-elsewhere": "its leader is not the first replica of the assignment",
}
"""By name, the worst first."""

IN_ORDER: frozenset[str] = frozenset({"led-elsewhere"})
"""States that call for nothing."""


def states_of(partition: "Partition") -> list[str]:
    """Return every state that holds, the worst first; empty: all is as it should be."""
    holds = {
        "offline": partition.leader is None,
        "under-min-isr": partition.is_under_min_isr,
        "under-replicated": partition.is_under_replicated,
        "recovering": partition.recovering,
        "moving": partition.is_moving,
        "led-elsewhere": partition.leader not in (None, partition.replicas[0]),
    }
    return [state for state in STATES if holds[state]]


def needs_a_look(states: Iterable[str]) -> bool:
    """Whether any of these states calls for something."""
    return not set(states) <= IN_ORDER


def summary(topics: Iterable["Topic"]) -> dict[str, int]:
    """Count the partitions of topics, and those in each state."""
    counts = {"partitions": 0, **dict.fromkeys(STATES, 0)}
    for topic in topics:
        for partition in topic.partitions:
            counts["partitions"] += 1
            for state in states_of(partition):
                counts[state] += 1
    return counts
