"""A folder becomes a log of record batches: segments, indexes, recovery, one owner a directory.

`Log` is the bookkeeping of one partition (or of the metadata log); `shell.directory.Directory` owns
a data directory's lock, its write lane, group commit and checkpoints. The format on disk is the
one that the field's own tools read. Knows no network, no Raft, no topics.
"""

from .appending.appends import Write
from .config import DirectoryConfig, FlushPolicy, LogConfig
from .disk.checkpoints import DirectoryMeta
from .log import Log
from .origin import Origin
from .reading.ranges import Range
from .reading.times import TimedOffset

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
