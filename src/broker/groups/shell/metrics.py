"""Counters of group coordination, and a census of groups, for the metrics."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class GroupCensus:
    """Numbers of groups, members and offsets of a broker at one moment."""

    groups_by_state: dict[str, int] = field(default_factory=dict)
    members: int = 0
    offsets: int = 0
    partitions_served: int = 0
    partitions_read: int = 0  # being loaded


class GroupMetrics:
    """Counters since the start; times in ms."""

    __slots__ = ("commits", "decisions", "generations", "load_ms_total", "loads", "reloads")

    def __init__(self) -> None:
        self.decisions = 0  # with records
        self.commits = 0  # committed offsets
        self.generations = 0  # generations of classic groups, and group epochs of KIP-848 groups
        self.loads = 0
        self.load_ms_total = 0
        self.reloads = 0  # reloads after a failed append

    def decided(self, *, commits: int, generations: int) -> None:
        """Count a decision with records, and its commits and generations."""
        self.decisions += 1
        self.commits += commits
        self.generations += generations

    def loaded(self, took_ms: int) -> None:
        """Count a loaded partition."""
        self.loads += 1
        self.load_ms_total += took_ms
