"""Counters that all coordinators have."""


class CoordinatorMetrics:
    """Counters since the start; times in ms."""

    __slots__ = ("decisions", "load_ms_total", "loads", "reloads")

    def __init__(self) -> None:
        self.decisions = 0  # with records
        self.loads = 0
        self.load_ms_total = 0
        self.reloads = 0  # reloads after a failed append

    def loaded(self, took_ms: int) -> None:
        """Count a loaded partition."""
        self.loads += 1
        self.load_ms_total += took_ms
