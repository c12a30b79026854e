"""A folder becomes a log of record batches: segments, indexes, recovery, one owner a directory.

`Log` is the bookkeeping of one partition (or of the metadata log); `shell.directory.Directory` owns
a data directory's lock, its write lane, group commit and checkpoints. The format on disk is the
one that the field's own tools read. Knows no network, no Raft, no topics.
"""

from .appends import Origin, Write
from .checkpoints import DirectoryMeta
from .config import DirectoryConfig, FlushPolicy, LogConfig
from .log import Log
from .ranges import Range
from .times import TimedOffset

__all__ = [
    "Log",
    "LogConfig",
    "FlushPolicy",
    "Origin",
    "Write",
    "Range",
    "TimedOffset",
    "DirectoryMeta",
    "DirectoryConfig",
]
