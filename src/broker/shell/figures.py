"""What replication came to since the start, in plain numbers."""

from collections.abc import Sequence

from ...ids import NodeId


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
