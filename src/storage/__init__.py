"""Logs of record batches in a data directory: segments, indexes, recovery.

`Log` holds the state of one partition's log (or of the metadata log).
`shell.data_directory.DataDirectory` owns a data directory's lock, write lane, group commit and
checkpoints. The format on disk is Kafka's. This package does not depend on the network, Raft or
topics.
"""

from .append import AppendOrigin, LogWrite
from .checkpoints import DirectoryMeta
from .config import DirectoryConfig, FlushPolicy, LogConfig
from .log import Log
from .read import SegmentRange
from .time_lookup import TimedOffset
from .transaction_index import AbortedTransaction, committed_batches

__all__ = [
    "Log",
    "LogConfig",
    "FlushPolicy",
    "AppendOrigin",
    "LogWrite",
    "SegmentRange",
    "AbortedTransaction",
    "committed_batches",
    "TimedOffset",
    "DirectoryMeta",
    "DirectoryConfig",
]
