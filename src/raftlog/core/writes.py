"""What is on its way to the disk, and what is there.

One write is in flight at a time, named by a token; what comes meanwhile is gathered into the next
one. `durable_end` is the end of the log that would survive a power cut now: a write that completes
confirms only what was not truncated since it was handed out, whatever stands at those offsets now
(the A-B-A of asynchronous appends).
"""

from collections import deque
from collections.abc import Sequence

from ...ids import Epoch, Offset
from .log_view import Entry, SnapshotId
from .messages import SnapshotChunk
from .ready import HardState, Token


class Write:
    """What was handed out under a token."""

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
        # Up to here its entries are still the log's: lowered by a truncation under way.
        self.valid_end = entries[-1].next_offset if entries else Offset(0)


class Writes:
    """The disk of one member, as its core knows it."""

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
        """Everything below `end_offset` and the hard state are durable."""
        self.durable_state = hard_state
        self.durable_end = end_offset
        self.in_flight: Write | None = None
        self._disk_end = end_offset  # end of the file once everything handed out is written
        self._append: deque[Entry] = deque()  # in the view, not yet handed out
        self._truncate_to: Offset | None = None  # not yet handed out
        self._chunks: list[SnapshotChunk] = []
        self._install: SnapshotId | None = None
        self._last_token = Token(0)

    @property
    def durable_epoch(self) -> Epoch:
        """The epoch that this node would know after a power cut."""
        return self.durable_state.epoch

    @property
    def unwritten(self) -> Sequence[Entry]:
        """Entries in the view that were not handed out yet, in order."""
        return self._append

    @property
    def has_chunks(self) -> bool:
        """Whether pieces of a snapshot wait to be written, or are being written."""
        return bool(self._chunks or (self.in_flight is not None and self.in_flight.chunks))

    def append(self, entry: Entry) -> None:
        """Have an entry written at the log's end."""
        self._append.append(entry)

    def truncate_to(self, offset: Offset) -> None:
        """Have everything from the offset on dropped."""
        while self._append and self._append[-1].base_offset >= offset:
            self._append.pop()
        if offset < self._disk_end:
            self._truncate_to = offset  # lower than an earlier one, or that had been undone
            self._disk_end = offset
        self.durable_end = min(self.durable_end, offset)
        if self.in_flight is not None:
            self.in_flight.valid_end = min(self.in_flight.valid_end, offset)

    def add_chunk(self, chunk: SnapshotChunk) -> None:
        """Have a piece of a snapshot written."""
        self._chunks.append(chunk)

    def install(self, snapshot: SnapshotId) -> None:
        """Have the received snapshot put in the log's place, after the pieces above."""
        self._install = snapshot

    def forget_chunks(self) -> None:
        """Another snapshot is received instead: what was not handed out need not be written."""
        self._chunks.clear()

    def has_write(self, hard_state: HardState) -> bool:
        """Whether begin() would carry anything; only while nothing is in flight."""
        return (
            hard_state != self.durable_state
            or bool(self._append)
            or bool(self._chunks)
            or self._install is not None
            or self._truncate_to is not None
        )

    def begin(self, hard_state: HardState, *, bytes_max: int) -> Write:
        """Hand out the next write: the hard state, and what was gathered.

        At most `bytes_max` bytes of entries, or one larger; none together with an install.
        """
        assert self.in_flight is None, "two writes in flight"
        self._last_token = Token(self._last_token + 1)
        entries: tuple[Entry, ...] = ()
        truncate_to = None
        if self._install is None:
            truncate_to, self._truncate_to = self._truncate_to, None
            entries = self._take(bytes_max)
        self.in_flight = Write(
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

    def complete(self, token: Token) -> Write:
        """The write of the token is durable; returns it."""
        write = self._landed(token)
        if write.hard_state is not None:
            assert write.hard_state.epoch >= self.durable_epoch, "the epoch went back"
            self.durable_state = write.hard_state
        if write.entries:
            self.durable_end = max(self.durable_end, write.valid_end)
        return write

    def refuse(self, token: Token) -> Write:
        """The write is durable but for its install, which was not done."""
        write = self._landed(token)
        assert write.install is not None, f"token {token} installs nothing"
        if write.hard_state is not None:
            self.durable_state = write.hard_state
        return write

    def reset(self, end_offset: Offset) -> None:
        """The log is empty and durable at a snapshot's end."""
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

    def _landed(self, token: Token) -> Write:
        write = self.in_flight
        assert write is not None, f"token {token} completed, none is in flight"
        assert token == write.token, f"token {token} completed, {write.token} is in flight"
        self.in_flight = None
        return write
