"""The newest batches of the log in memory, for followers and for the delivery.

The tail has the same end as the core's view after every step. Its size is limited; beyond the limit
it keeps only batches that are not durable here. The core limits those: uncommitted bytes on a
leader, the window on a follower. Older batches are on disk.
"""

from collections import deque
from collections.abc import Iterator

from ...ids import Offset
from ..log_view import Entry, LogView


class LogTail:
    """The contiguous batches [start_offset, end_offset) at the end of the log."""

    __slots__ = ("_bases", "_bytes_max", "_durable_end", "_entries", "_size", "end_offset")

    def __init__(self, end_offset: Offset, *, bytes_max: int) -> None:
        """Start empty at the end of a durable log."""
        self.end_offset = end_offset
        self._bytes_max = bytes_max
        self._durable_end = end_offset
        self._entries: dict[Offset, Entry] = {}  # by base offset, chained by next offset
        self._bases: deque[Offset] = deque()  # ascending
        self._size = 0  # bytes of the retained batches

    @property
    def start_offset(self) -> Offset:
        """The base offset of the oldest retained batch; the end if there is none."""
        return self._bases[0] if self._bases else self.end_offset

    @property
    def size(self) -> int:
        """The bytes of the retained batches."""
        return self._size

    # --- changes -------------------------------------------------------------------------------

    def put(self, entry: Entry) -> None:
        """Add a batch that was appended to the log."""
        assert entry.base_offset == self.end_offset, f"{entry.base_offset} at {self.end_offset}"
        self._entries[entry.base_offset] = entry
        self._bases.append(entry.base_offset)
        self._size += entry.size
        self.end_offset = entry.next_offset
        if self._size > self._bytes_max:
            self._evict()

    def follow(self, log: LogView, entries: tuple[Entry, ...], *, durable_end: Offset) -> None:
        """Add a leader's entries that the core accepted, replacing conflicting ones. `durable_end`
        is the core's after that."""
        if durable_end < self._durable_end:
            self.truncate_to(durable_end)
        first, last = entries[0], entries[-1]
        if (
            first.base_offset == self.end_offset
            and last.next_offset == log.end_offset
            and last.epoch == log.last_epoch
        ):
            for entry in entries:
                self.put(entry)
            return
        for entry in entries:
            if not _holds(log, entry):
                continue
            known = self._entries.get(entry.base_offset)
            if known is None and entry.base_offset < durable_end:
                continue  # already on disk
            if known is None or known.epoch != entry.epoch:
                self.truncate_to(entry.base_offset)
                self.put(entry)
        assert self.end_offset == log.end_offset, f"{self.end_offset} is not {log.end_offset}"

    def truncate_to(self, offset: Offset) -> None:
        """Remove every batch from a boundary on."""
        while self._bases and self._bases[-1] >= offset:
            self._size -= self._entries.pop(self._bases.pop()).size
        self.end_offset = min(self.end_offset, offset)
        self._durable_end = min(self._durable_end, offset)

    def reset(self, end_offset: Offset) -> None:
        """Become empty at the end of a durable log."""
        self._entries.clear()
        self._bases.clear()
        self._size = 0
        self.end_offset = self._durable_end = end_offset

    def durable(self, end_offset: Offset) -> None:
        """Record the durable end. Batches below it may be evicted."""
        self._durable_end = end_offset
        if self._size > self._bytes_max:
            self._evict()

    # --- queries -------------------------------------------------------------------------------

    def between(self, start_offset: Offset, end_offset: Offset) -> tuple[Entry, ...] | None:
        """Return the batches of [start, end), both boundaries, or None if some are not retained."""
        entry = self._entries.get(start_offset)
        if entry is None or end_offset > self.end_offset:
            return None
        if entry.next_offset == end_offset:
            return (entry,)
        found = [entry]
        while entry.next_offset < end_offset:
            entry = self._entries[entry.next_offset]
            found.append(entry)
        assert entry.next_offset == end_offset, f"{end_offset} is inside the batch {entry}"
        return tuple(found)

    def following(self, offset: Offset) -> Iterator[Entry]:
        """Yield the batches from a boundary on; none if that batch is not retained."""
        entry = self._entries.get(offset)
        while entry is not None:
            yield entry
            entry = self._entries.get(entry.next_offset)

    def _evict(self) -> None:
        while self._size > self._bytes_max:
            oldest = self._entries[self._bases[0]]
            if oldest.next_offset > self._durable_end:
                return
            self._bases.popleft()
            del self._entries[oldest.base_offset]
            self._size -= oldest.size


def _holds(log: LogView, entry: Entry) -> bool:
    """Return True if the log has the entry: one offset and epoch name one batch (log matching)."""
    if not log.start_offset <= entry.base_offset < log.end_offset:
        return False
    return log.is_boundary(entry.base_offset) and log.epoch_at(entry.base_offset) == entry.epoch
