"""The pending writes of one node, and its durable state.

One write is in flight at a time, identified by a token; later changes are combined into the next
one. `durable_end` is the end of the log after a power failure now. A completed write confirms only
entries that were not truncated since it was handed out, even if other entries have their offsets
now (the ABA problem of asynchronous appends).
"""

from collections import deque
from collections.abc import Sequence

from ..ids import Epoch, Offset
from .hard_state import HardState
from .log_view import Entry, SnapshotId
from .messages import SnapshotChunk
from .ready import Token


class PendingWrite:
    """A write that was handed out under a token."""

    __slots__ = ("chunks", "entries", "hard_state", "install", "token", "truncate_to", "valid_end")

    def __init__(
        self,
        token: Token,
        *,
        hard_state: HardState | None,
        chunks: tuple[SnapshotChunk, ...],
        install: SnapshotId | None,
        truncate_to: Offset | None,
        entries: tuple[Entry, ...],
    ) -> None:
        self.token = token
        self.hard_state = hard_state
        self.chunks = chunks
        self.install = install
        self.truncate_to = truncate_to
        self.entries = entries
        # End of the entries that are still in the log: a truncation during the write lowers it.
        self.valid_end = entries[-1].next_offset if entries else Offset(0)


class WriteQueue:
    """The core's view of the node's disk."""

    __slots__ = (
        "_append",
        "_chunks",
        "_disk_end",
        "_install",
        "_last_token",
        "_truncate_to",
        "durable_end",
        "durable_state",
        "in_flight",
    )

    def __init__(self, hard_state: HardState, end_offset: Offset) -> None:
        """Start with a durable hard state and a durable log that ends at `end_offset`."""
        self.durable_state = hard_state
        self.durable_end = end_offset
        self.in_flight: PendingWrite | None = None
        self._disk_end = end_offset  # end of the file after all handed out writes
        self._append: deque[Entry] = deque()  # in the view, not handed out yet
        self._truncate_to: Offset | None = None  # not handed out yet
        self._chunks: list[SnapshotChunk] = []
        self._install: SnapshotId | None = None
        self._last_token = Token(0)

    @property
    def durable_epoch(self) -> Epoch:
        """The durable epoch."""
        return self.durable_state.epoch

    @property
    def unwritten(self) -> Sequence[Entry]:
        """The entries in the view that were not handed out yet, in order."""
        return self._append

    @property
    def has_chunks(self) -> bool:
        """Return True if snapshot chunks are queued or being written."""
        return bool(self._chunks or (self.in_flight is not None and self.in_flight.chunks))

    def append(self, entry: Entry) -> None:
        """Queue an entry at the log's end."""
        self._append.append(entry)

    def truncate_to(self, offset: Offset) -> None:
        """Queue a truncation to the offset."""
        while self._append and self._append[-1].base_offset >= offset:
            self._append.pop()
        if offset < self._disk_end:
            self._truncate_to = offset  # lower than an earlier truncation, or behind later appends
            self._disk_end = offset
        self.durable_end = min(self.durable_end, offset)
        if self.in_flight is not None:
            self.in_flight.valid_end = min(self.in_flight.valid_end, offset)

    def add_chunk(self, chunk: SnapshotChunk) -> None:
        """Queue a snapshot chunk."""
        self._chunks.append(chunk)

    def install(self, snapshot: SnapshotId) -> None:
        """Queue the install of the received snapshot, after the queued chunks."""
        self._install = snapshot

    def drop_chunks(self) -> None:
        """Drop the queued chunks, because another snapshot replaces the one that is received."""
        self._chunks.clear()

    def has_write(self, hard_state: HardState) -> bool:
        """Return True if begin() would return effects. Valid only while no write is in flight."""
        return (
            hard_state != self.durable_state
            or bool(self._append)
            or bool(self._chunks)
            or self._install is not None
            or self._truncate_to is not None
        )

    def begin(self, hard_state: HardState, *, bytes_max: int) -> PendingWrite:
        """Hand out the next write: the hard state and the queued changes.

        It has at most `bytes_max` bytes of entries, or one larger entry. It has no entries together
        with an install.
        """
        assert self.in_flight is None, "two writes in flight"
        self._last_token = Token(self._last_token + 1)
        entries: tuple[Entry, ...] = ()
        truncate_to = None
        if self._install is None:
            truncate_to, self._truncate_to = self._truncate_to, None
            entries = self._take(bytes_max)
        self.in_flight = PendingWrite(
            self._last_token,
            hard_state=hard_state if hard_state != self.durable_state else None,
            chunks=tuple(self._chunks),
            install=self._install,
            truncate_to=truncate_to,
            entries=entries,
        )
        self._chunks.clear()
        self._install = None
        if entries:
            self._disk_end = entries[-1].next_offset
        return self.in_flight

    def complete(self, token: Token) -> PendingWrite:
        """Mark the write of the token as durable and return it."""
        write = self._finish(token)
        if write.hard_state is not None:
            assert write.hard_state.epoch >= self.durable_epoch, (
                f"epoch {write.hard_state.epoch} after {self.durable_epoch}"
            )
            self.durable_state = write.hard_state
        if write.entries:
            self.durable_end = max(self.durable_end, write.valid_end)
        return write

    def refuse(self, token: Token) -> PendingWrite:
        """Mark the write as durable except for its install, which was not performed."""
        write = self._finish(token)
        assert write.install is not None, f"token {token} installs nothing"
        if write.hard_state is not None:
            self.durable_state = write.hard_state
        return write

    def reset(self, end_offset: Offset) -> None:
        """Reset to an empty log, durable at a snapshot's end."""
        assert self.in_flight is None, "reset under a write"
        self._append.clear()
        self._truncate_to = None
        self._disk_end = self.durable_end = end_offset

    def _take(self, bytes_max: int) -> tuple[Entry, ...]:
        taken: list[Entry] = []
        size = 0
        while self._append:
            size += self._append[0].size
            if taken and size > bytes_max:
                break
            taken.append(self._append.popleft())
        return tuple(taken)

    def _finish(self, token: Token) -> PendingWrite:
        write = self.in_flight
        assert write is not None, f"token {token} completed, none is in flight"
        assert token == write.token, f"token {token} completed, {write.token} is in flight"
        self.in_flight = None
        return write
