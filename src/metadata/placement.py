"""Where the replicas of new partitions go: round robin over the active brokers.

Even in replicas and in leaders as long as no broker is fenced; racks are not looked at yet.
"""

from collections.abc import Sequence

from ..errors import InvalidReplicationFactor
from ..ids import NodeId


def place(
    brokers: Sequence[NodeId], *, partitions: int, replication_factor: int, start: int
) -> list[tuple[NodeId, ...]]:
    """Return the replicas of every partition, the preferred leader first.

    `brokers` are the usable ones, ascending; `start` turns the ring, so that the first partitions
    of many topics do not meet on one broker. Raises InvalidReplicationFactor.
    """
    if replication_factor < 1:
        raise InvalidReplicationFactor(
            f"the replication factor must be at least 1, not {replication_factor}"
        )
    count = len(brokers)
    if replication_factor > count:
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} needs as many usable brokers, there are"
            f" {count}: start more brokers or ask for fewer replicas"
        )
    return [
        tuple(brokers[(start + index + step) % count] for step in range(replication_factor))
        for index in range(partitions)
    ]
