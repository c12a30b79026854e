"""What coordinating groups came to since the start, and what is coordinated now, for the
metrics."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Census:
    """The groups of a broker at one moment."""

    groups_by_state: dict[str, int] = field(default_factory=dict)
    members: int = 0
    offsets: int = 0
    partitions_served: int = 0
    partitions_read: int = 0  # they still are


class GroupFigures:
    """Counters; times in ms."""

    __slots__ = ("commits", "decisions", "generations", "load_ms_total", "loads", "thrown_away")

    def __init__(self) -> None:
        self.decisions = 0  # that stored something
        self.commits = 0  # offsets
        self.generations = 0  # of classic groups; epochs of the others
        self.loads = 0
        self.load_ms_total = 0
        self.thrown_away = 0  # times that a state was read anew after a failed append

    def decided(self, *, commits: int, generations: int) -> None:
        """Something was decided that is to be stored, and in it so many of these."""
        self.decisions += 1
        self.commits += commits
        self.generations += generations

    def loaded(self, took_ms: int) -> None:
        """A partition was read."""
        self.loads += 1
        self.load_ms_total += took_ms
