"""Hands committed batches to the state machine, in order and once: from memory where they are
still there, from the log where not; and loads it from snapshots.

Owns the place up to which the state machine has been served. Decides nothing about what is
committed. Works in slices, so that heartbeats never wait for a long past.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ...errors import CorruptionError, OffsetOutOfRange
from ...ids import Epoch, Offset
from ...records.codec import decode_batch
from ...runtime import Clock
from ..core.log_view import Entry, EntryKind, SnapshotId
from ..core.raft import Raft
from .disk.metadata_log import MetadataLog
from .gathering import Gathering
from .state_machine import StateMachine
from .tail import Tail

SLICE_BYTES: Final = 128 * 1024
"""Bytes of batches that are delivered in one step of the loop, or one larger batch."""
SLICE_MS: Final = 5
"""A step ends after the batch that makes it take so long."""
INLINE_BYTES: Final = 16 * 1024
"""Bytes of batches that are delivered in the very step in which they were committed: who waits for
one commit alone need not wait for another task."""
INLINE_MS: Final = 1
"""As SLICE_MS, in that step."""


class Delivery:
    """The state machine's place in the log."""

    def __init__(
        self,
        clock: Clock,
        log: MetadataLog,
        raft: Raft,
        machine: StateMachine,
        *,
        tail: Tail,
        gathering: Gathering,
        applied: Callable[[Offset], None],
        opened: Callable[[Epoch], None],
    ) -> None:
        """`applied` is told after every slice, `opened` when an epoch's no-op is reached."""
        self._clock = clock
        self._log = log
        self._raft = raft
        self._machine = machine
        self._tail = tail
        self._gathering = gathering
        self._applied = applied
        self._opened = opened
        self._end = raft.applied_end  # everything below was delivered
        self._committed_end = self._end
        self._pauses = 0  # counts the calls of pause(): what was read before one is void
        self._is_paused = False
        self._moved = asyncio.Event()
        self._closed = False

    def commit(self, end: Offset) -> None:
        """Everything below `end` is committed. A little that is in memory is delivered at once,
        unless run() is at work on what lies before; the rest is left to run()."""
        was_behind = self._end < self._committed_end
        self._committed_end = max(self._committed_end, end)
        if not was_behind and self._is_behind() and self._end >= self._tail.start_offset:
            following = self._tail.following(self._end)
            self._deliver(following, bytes_max=INLINE_BYTES, ms_max=INLINE_MS)
        if self._end < self._committed_end:
            self._moved.set()

    @property
    def end(self) -> Offset:
        """Everything below was delivered."""
        return self._end

    @property
    def committed_end(self) -> Offset:
        """Everything below is committed, delivered or not."""
        return self._committed_end

    def close(self) -> None:
        """End run()."""
        self._closed = True
        self._moved.set()

    async def run(self) -> None:
        """Deliver what is committed; until close()."""
        while not self._is_closed():
            await self._moved.wait()
            self._moved.clear()
            while self._is_behind():
                if self._end < self._tail.start_offset:
                    await self._deliver_from_log()
                else:
                    self._deliver(self._tail.following(self._end))
                if self._is_behind():
                    await asyncio.sleep(0)  # the loop breathes between slices

    # --- state ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """The log is about to be replaced by a snapshot: deliver nothing until go_on()."""
        self._pauses += 1
        self._is_paused = True

    def go_on(self) -> None:
        """The log is what it was, or the state was restored."""
        self._is_paused = False
        self._moved.set()

    async def restore(self, snapshot: SnapshotId) -> None:
        """Load the state machine from a snapshot that is on the disk, and go on behind it; only
        while paused, or before run(). Raises SnapshotDamaged, StorageError."""
        reader = await self._log.open_snapshot(snapshot)
        self._machine.begin_restore()
        while (values := await reader.next()) is not None:
            self._machine.restore(values)
            await asyncio.sleep(0)
        self._machine.end_restore(snapshot.end_offset, snapshot.epoch)
        self._end = snapshot.end_offset
        self._committed_end = max(self._committed_end, self._end)
        self._gathering.delivered(self._end)  # the state has what waited to be delivered

    # --- slices --------------------------------------------------------------------------------

    def _is_closed(self) -> bool:
        return self._closed

    def _is_behind(self) -> bool:
        """Whether there is something to deliver now."""
        return self._end < self._committed_end and not self._is_paused and not self._closed

    async def _deliver_from_log(self) -> None:
        """Read a slice of what is in memory no more; it is durable, since it was forgotten."""
        before = self._pauses
        end, _ = self._raft.log.range_end(self._end, bytes_max=SLICE_BYTES)
        end = min(end, self._committed_end, self._tail.start_offset)
        try:
            entries = await self._log.read_entries(self._end, end)
        except (OffsetOutOfRange, CorruptionError):
            if self._pauses == before:
                raise
            return  # a snapshot has taken the log's place
        if self._pauses == before:
            self._deliver(entries)

    def _deliver(
        self, entries: Iterable[Entry], *, bytes_max: int = SLICE_BYTES, ms_max: int = SLICE_MS
    ) -> None:
        """Deliver one slice of contiguous committed batches."""
        begun_ms, size = self._clock.now_ms(), 0
        opened: list[Epoch] = []
        for entry in entries:
            if entry.next_offset > self._committed_end:
                break
            assert entry.base_offset == self._end, f"{entry.base_offset} follows {self._end}"
            if entry.kind is EntryKind.DATA:
                self._machine.committed(entry.base_offset, entry.epoch, self._values(entry))
            elif entry.kind is EntryKind.LEADER_CHANGE:
                opened.append(entry.epoch)
            self._end = entry.next_offset
            size += entry.size
            if size >= bytes_max or self._clock.now_ms() - begun_ms >= ms_max:
                break
        self._raft.applied(self._end)
        for epoch in opened:
            self._opened(epoch)
        self._gathering.delivered(self._end)
        self._applied(self._end)

    def _values(self, entry: Entry) -> list[bytes]:
        values = self._gathering.delivering(entry.base_offset, entry.epoch)
        if values is not None:
            return values
        return [record.value or b"" for record in decode_batch(entry.payload)]
