"""The broker: partitions, replication, quotas, and consumer groups of one node.

The modules of this package are pure: `partition` holds the state of one partition, `leader_state`
and `follower_state` its roles, `quotas` throttles clients, and `requests` are the requests and
answers of the data path. `shell.replica_manager` ties partitions to logs and follows the metadata.
"""

from .leader_state import LeaderAndIsr
from .partition import Acks, Partition, PartitionProgress
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
from .waits import Wait

__all__ = [
    "Acks",
    "Partition",
    "LeaderAndIsr",
    "ReplicaSize",
    "PartitionProgress",
    "Wait",
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
