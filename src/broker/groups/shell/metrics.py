"""Counters of group coordination, and a census of groups, for the metrics."""

from dataclasses import dataclass, field

from ...coordinator.shell.metrics import CoordinatorMetrics


@dataclass(slots=True)
class GroupCensus:
    """Numbers of groups, members and offsets of a broker at one moment."""

    groups_by_state: dict[str, int] = field(default_factory=dict)
    members: int = 0
    offsets: int = 0
    partitions_served: int = 0
    partitions_read: int = 0  # being loaded


class GroupMetrics(CoordinatorMetrics):
    """Counters since the start."""

    __slots__ = ("commits", "generations")

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0  # committed offsets
        self.generations = 0  # generations of classic groups, and group epochs of KIP-848 groups
