"""What producing and replication came to since the start, in plain numbers."""

from collections.abc import Sequence

from ...ids import NodeId
from ...metrics import LATENCY_MS, Histogram
from ..partition import Acks
from ..requests import AppendResult


class ProduceFigures:
    """What producers of all front doors came to."""

    __slots__ = ("bytes", "failures", "records", "took_ms", "waiting")

    def __init__(self) -> None:
        self.bytes = 0  # of batches that got their place in a log
        self.records = 0  # that were acknowledged
        self.failures = 0  # of partitions' parts
        self.waiting = 0  # requests of the Kafka listeners between their place and their answer
        self.took_ms = {acks: Histogram(LATENCY_MS) for acks in Acks}

    def answered(self, outcome: AppendResult) -> None:
        """A partition's part was acknowledged."""
        self.records += outcome.next_offset - outcome.base_offset


class ReplicationFigures:
    """One broker's."""

    __slots__ = ("isr_grown", "isr_shrunk", "replicated_bytes")

    def __init__(self) -> None:
        self.replicated_bytes = 0  # of batches that were fetched from leaders and written here
        self.isr_grown = 0  # times that partitions led here got more in-sync replicas
        self.isr_shrunk = 0  # ... and fewer

    def led(self, before: Sequence[NodeId], after: Sequence[NodeId]) -> None:
        """A partition that is led here has other in-sync replicas now, or the same."""
        self.isr_grown += len(after) > len(before)
        self.isr_shrunk += len(after) < len(before)
