"""The broker: partitions, replication, quotas, and consumer groups of one node.

The modules of this package are pure: `partition` holds the state of one partition, `requests` the
requests and answers of the data path. `shell.replicas` ties partitions to logs and connections, and
follows the metadata.
"""

from .partition import Acks, LeaderState, Partition, Progress, Wait
from .requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ActiveProducer,
    AppendResult,
    DeletionOutcome,
    DeletionSpec,
    EpochEndOutcome,
    EpochEndSpec,
    FetchOutcome,
    FetchSpec,
    FoundRecords,
    LogSize,
    OffsetOutcome,
    OffsetSpec,
)

__all__ = [
    "Acks",
    "Partition",
    "LeaderState",
    "LogSize",
    "Progress",
    "Wait",
    "AppendResult",
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
