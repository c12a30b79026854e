"""The broker: partitions, replication, quotas, and consumer groups of one node.

The modules of this package are pure: `partition` holds the state of one partition,
`partition_leader` and `partition_follower` its roles, `isr` the in-sync replicas, and `purgatory`
the produce requests that wait. `quotas` throttles clients, and `requests` are the requests and
answers of the data path. `shell.replica_manager` ties partitions to logs and follows the metadata.
"""

from .isr import LeaderAndIsr
from .partition import Partition
from .partition_leader import PartitionProgress
from .purgatory import Acks, PurgatoryEntry
from .requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ActiveProducer,
    DeletionOutcome,
    DeletionSpec,
    EpochEndOutcome,
    EpochEndSpec,
    FetchOutcome,
    FetchSpec,
    FoundRecords,
    OffsetOutcome,
    OffsetSpec,
    ReplicaSize,
)

__all__ = [
    "Acks",
    "Partition",
    "LeaderAndIsr",
    "ReplicaSize",
    "PartitionProgress",
    "PurgatoryEntry",
    "DeletionOutcome",
    "DeletionSpec",
    "EpochEndSpec",
    "EpochEndOutcome",
    "ActiveProducer",
    "FetchSpec",
    "FetchOutcome",
    "FoundRecords",
    "OffsetSpec",
    "OffsetOutcome",
    "LATEST",
    "EARLIEST",
    "MAX_TIMESTAMP",
]
