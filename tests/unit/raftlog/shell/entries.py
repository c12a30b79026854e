"""Log entries for the tests of the raft shell."""

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog import Entry, EntryKind


def entry(base: int, count: int = 1, *, epoch: int = 1, size: int = 100) -> Entry:
    return Entry(
        kind=EntryKind.DATA,
        epoch=Epoch(epoch),
        base_offset=Offset(base),
        count=count,
        payload=bytes(size),
    )
