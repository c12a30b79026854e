"""Counters of produce requests and of replication, since the start."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ids import NodeId
from ...metrics import LATENCY_MS, Histogram
from ...storage.shell.append_queue import Appended
from ..purgatory import Acks


class ProduceMetrics:
    """Counters of the produce requests of all front ends."""

    __slots__ = ("bytes", "failures", "records", "took_ms", "waiting")

    def __init__(self) -> None:
        self.bytes = 0  # of batches with assigned offsets
        self.records = 0  # acknowledged
        self.failures = 0  # of partitions in produce requests
        self.waiting = 0  # Kafka produce requests between append and answer
        self.took_ms = {acks: Histogram(LATENCY_MS) for acks in Acks}

    def answered(self, outcome: Appended) -> None:
        """Count an acknowledged partition."""
        self.records += outcome.next_offset - outcome.base_offset


if TYPE_CHECKING:
    from .replica import Replica


class ReplicationMetrics:
    """Counters of one broker."""

    __slots__ = ("isr_grown", "isr_shrunk", "replicated_bytes", "transactional")

    def __init__(self) -> None:
        # replicas that may lead a log with an open transaction
        self.transactional: dict[Replica, None] = {}
        self.replicated_bytes = 0  # of batches fetched from leaders and appended here
        self.isr_grown = 0  # ISR expansions of partitions led here
        self.isr_shrunk = 0  # ISR shrinks of partitions led here

    def open_transactions(self) -> tuple[int, int]:
        """Return the number of open transactions in partitions led here, and the largest distance
        of a last stable offset from its high watermark. Visits the partitions with
        transactions."""
        count = lag_max = 0
        for replica in list(self.transactional):
            leader = replica.partition.leader
            opened = lag = 0
            if leader is not None:
                opened = replica.log.producers.states.undecided.open_count
                lag = leader.high_watermark - replica.log.last_stable_offset
            if not opened and lag <= 0:
                del self.transactional[replica]
            count += opened
            lag_max = max(lag_max, lag)
        return count, lag_max

    def led(self, before: Sequence[NodeId], after: Sequence[NodeId]) -> None:
        """Count the ISR change of a partition led here, if any."""
        self.isr_grown += len(after) > len(before)
        self.isr_shrunk += len(after) < len(before)
