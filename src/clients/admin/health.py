"""Health states of partitions. Pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .descriptions import Partition, Topic

STATES: Mapping[str, str] = {
    "offline": "no leader: neither readable nor writable",
    "under-min-isr": "the ISR is below min.insync.replicas: acks=all fails",
    "under-replicated": "a replica is not in sync",
    "recovering": "the leader was elected uncleanly and may have lost records",
    "moving": "a reassignment is in progress",
    "led-elsewhere": "the leader is not the preferred replica",
}
"""Descriptions by state, the worst first."""

HEALTHY: frozenset[str] = frozenset({"led-elsewhere"})
"""States that need no attention."""


def states_of(partition: "Partition") -> list[str]:
    """Return the states of a partition, the worst first; empty: healthy."""
    holds = {
        "offline": partition.leader is None,
        "under-min-isr": partition.is_under_min_isr,
        "under-replicated": partition.is_under_replicated,
        "recovering": partition.recovering,
        "moving": partition.is_moving,
        "led-elsewhere": partition.leader not in (None, partition.replicas[0]),
    }
    return [state for state in STATES if holds[state]]


def needs_attention(states: Iterable[str]) -> bool:
    """Return True if any of these states needs attention."""
    return not set(states) <= HEALTHY


def summary(topics: Iterable["Topic"]) -> dict[str, int]:
    """Return the number of partitions, and of those in each state."""
    counts = {"partitions": 0, **dict.fromkeys(STATES, 0)}
    for topic in topics:
        for partition in topic.partitions:
            counts["partitions"] += 1
            for state in states_of(partition):
                counts[state] += 1
    return counts
