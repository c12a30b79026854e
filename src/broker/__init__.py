"""The broker room: what a node does for the partitions it leads.

`partition` decides (high watermark, fencing, waits), `requests` names what the front doors ask,
`shell.replicas` does the work over storage and follows the metadata image.
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
