"""The delivery of committed batches to the state machine, in order and once.

Batches come from memory or from the log; snapshots are loaded into the state machine. It owns the
delivered offset and makes no decision about commits. It works in slices, so that heartbeats do not
wait for a long replay.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ...errors import CorruptionError, OffsetOutOfRange
from ...ids import Epoch, Offset
from ...records.codec import decode_batch
from ...runtime import Clock
from ..log_view import Entry, EntryKind, SnapshotId
from ..raft import Raft
from ..state import RaftState
from .log_tail import LogTail
from .metadata_log import MetadataLog
from .proposal_queue import ProposalQueue
from .state_machine import StateMachine

SLICE_BYTES: Final = 128 * 1024
"""Bytes of batches delivered in one step of the event loop, or one larger batch."""
SLICE_MS: Final = 5
"""A step ends after the batch that reaches this duration."""
INLINE_BYTES: Final = 16 * 1024
"""Bytes of batches that are delivered in the step that committed them. A single proposal then does
not wait for another task."""
INLINE_MS: Final = 1
"""SLICE_MS for that step."""


class Applier:
    """The delivered offset and the task that advances it."""

    def __init__(
        self,
        clock: Clock,
        log: MetadataLog,
        raft: Raft,
        state: RaftState,
        machine: StateMachine,
        *,
        tail: LogTail,
        proposals: ProposalQueue,
        applied: Callable[[Offset], None],
        opened: Callable[[Epoch], None],
    ) -> None:
        """`applied` is called after every slice, `opened` for the no-op of an epoch."""
        self._clock = clock
        self._log = log
        self._raft = raft
        self._view = state.log
        self._machine = machine
        self._tail = tail
        self._proposals = proposals
        self._applied = applied
        self._opened = opened
        self._end = state.applied_end  # everything below was delivered
        self._committed_end = self._end
        self._pauses = 0  # number of pause() calls: reads that began before one are discarded
        self._is_paused = False
        self._moved = asyncio.Event()
        self._closed = False

    def commit(self, end: Offset) -> None:
        """Record the committed end.

        A small amount in memory is delivered at once unless run() is delivering earlier batches.
        The rest is left to run().
        """
        was_behind = self._end < self._committed_end
        self._committed_end = max(self._committed_end, end)
        if not was_behind and self._is_behind() and self._end >= self._tail.start_offset:
            following = self._tail.following(self._end)
            self._apply(following, bytes_max=INLINE_BYTES, ms_max=INLINE_MS)
        if self._end < self._committed_end:
            self._moved.set()

    @property
    def end(self) -> Offset:
        """The end of the delivered entries."""
        return self._end

    @property
    def committed_end(self) -> Offset:
        """The end of the committed entries, delivered or not."""
        return self._committed_end

    def close(self) -> None:
        """End run()."""
        self._closed = True
        self._moved.set()

    async def run(self) -> None:
        """Deliver committed entries until close()."""
        while not self._is_closed():
            await self._moved.wait()
            self._moved.clear()
            while self._is_behind():
                if self._end < self._tail.start_offset:
                    await self._apply_from_log()
                else:
                    self._apply(self._tail.following(self._end))
                if self._is_behind():
                    await asyncio.sleep(0)  # let other tasks run between slices

    # --- state ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop delivering until resume(), because a snapshot is about to replace the log."""
        self._pauses += 1
        self._is_paused = True

    def resume(self) -> None:
        """Resume after the log was kept or the state was restored."""
        self._is_paused = False
        self._moved.set()

    async def restore(self, snapshot: SnapshotId) -> None:
        """Load the state machine from a snapshot on disk and continue after it.

        Call it only while paused or before run(). Raise SnapshotDamaged or DiskFailed.
        """
        reader = await self._log.open_snapshot(snapshot)
        self._machine.begin_restore()
        while (values := await reader.next()) is not None:
            self._machine.restore(values)
            await asyncio.sleep(0)
        self._machine.end_restore(snapshot.end_offset, snapshot.epoch)
        self._end = snapshot.end_offset
        self._committed_end = max(self._committed_end, self._end)
        # the snapshot has the entries that waited for delivery
        self._proposals.complete_to(self._end)

    # --- slices --------------------------------------------------------------------------------

    def _is_closed(self) -> bool:
        return self._closed

    def _is_behind(self) -> bool:
        """Return True if there are entries to deliver now."""
        return self._end < self._committed_end and not self._is_paused and not self._closed

    async def _apply_from_log(self) -> None:
        """Deliver a slice from disk. Its entries are durable, since the tail evicted them."""
        before = self._pauses
        end, _ = self._view.range_end(self._end, bytes_max=SLICE_BYTES)
        end = min(end, self._committed_end, self._tail.start_offset)
        try:
            entries = await self._log.read_entries(self._end, end)
        except (OffsetOutOfRange, CorruptionError):
            if self._pauses == before:
                raise
            return  # a snapshot has replaced the log
        if self._pauses == before:
            self._apply(entries)

    def _apply(
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
        self._proposals.complete_to(self._end)
        self._applied(self._end)

    def _values(self, entry: Entry) -> list[bytes]:
        values = self._proposals.values_at(entry.base_offset, entry.epoch)
        if values is not None:
            return values
        return [record.value or b"" for record in decode_batch(entry.payload)]
