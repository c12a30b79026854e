"""What coordinating groups came to since the start, for the metrics."""


class GroupFigures:
    """Counters; times in ms."""

    __slots__ = ("commits", "decisions", "load_ms_last", "load_ms_total", "loads", "thrown_away")

    def __init__(self) -> None:
        self.decisions = 0  # that stored something
        self.commits = 0  # offsets
        self.loads = 0
        self.load_ms_total = 0
        self.load_ms_last = 0
        self.thrown_away = 0  # times that a state was read anew after a failed append

    def decided(self, offsets: int) -> None:
        """Something was decided that is to be stored, with so many offsets."""
        self.decisions += 1
        self.commits += offsets

    def loaded(self, took_ms: int) -> None:
        """A partition was read."""
        self.loads += 1
        self.load_ms_total += took_ms
        self.load_ms_last = took_ms
