"""Counters of transaction coordination, and a census of transactions, for the metrics."""

from dataclasses import dataclass

from ...coordinator.shell.coordinator import CoordinatorMetrics


@dataclass(slots=True)
class TransactionCensus:
    """Numbers of transactional ids and transactions of a broker at one moment."""

    ids: int = 0
    open: int = 0  # open, or decided without all of their markers
    oldest_ms: int = 0  # age of the oldest of them; 0: there is none
    staged_names: int = 0
    attempts_open: int = 0
    attempts_sealed: int = 0
    attempts_completing: int = 0  # decided, without all of their markers
    attempts_oldest_ms: int = 0  # age of the oldest attempt; 0: there is none
    partitions_served: int = 0
    partitions_read: int = 0  # being loaded
    markers: int = 0  # that are not acknowledged
    markers_repeated: int = 0  # since the start
    markers_oldest_ms: int = 0  # age of the decision of the oldest marker; 0: there is none


class TransactionMetrics(CoordinatorMetrics):
    """Counters since the start."""

    __slots__ = ("aborts", "commits", "marker_requests")

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0  # and those resumed after a load
        self.aborts: dict[str, int] = {}  # by reason; not those resumed after a load
        self.marker_requests = 0
