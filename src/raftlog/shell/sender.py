"""The sender: messages as they are, entries and snapshot chunks after reading their bytes.

Entries in memory are sent in the same step. Requests that need a read wait in a FIFO queue per
peer, which the core's window bounds. Other messages to the peer, such as heartbeats, overtake it.
"""

import asyncio
from collections import deque
from typing import Final

from ...errors import CorruptionError, OffsetOutOfRange
from ...ids import Epoch, Offset
from ..log_view import Entry
from ..messages import AppendRequest, SnapshotChunk
from ..ready import Outgoing, SendChunk, SendEntries
from ..state import RaftState
from ..voters import Voter
from .log_tail import LogTail
from .metadata_log import MetadataLog
from .transport import Transport

QUEUE_MAX: Final = 1_000
"""Limit on queued requests per peer. More are dropped; the core detects the loss by heartbeats."""


class Sender:
    """The outgoing requests of one node."""

    def __init__(
        self, state: RaftState, log: MetadataLog, *, tail: LogTail, transport: Transport
    ) -> None:
        self._state = state
        self._log = log
        self._tail = tail
        self._transport = transport
        self._queues: dict[Voter, deque[SendEntries | SendChunk]] = {}  # never empty
        self._waiting = asyncio.Event()
        self._closed = False

    def send(self, outgoing: Outgoing) -> None:
        """Send a message, or queue a request that needs a read. Never waits."""
        if not isinstance(outgoing, SendEntries | SendChunk):
            self._transport.send(outgoing)
            return
        queue = self._queues.get(outgoing.receiver)
        if queue is None:
            if isinstance(outgoing, SendEntries):
                entries = self._tail.between(outgoing.prev.offset, outgoing.end)
                if entries is not None:
                    self._send_entries(outgoing, entries)
                    return
            queue = self._queues[outgoing.receiver] = deque()
            self._waiting.set()
        if isinstance(outgoing, SendEntries):
            _drop_from(queue, outgoing)
        if len(queue) < QUEUE_MAX:
            queue.append(outgoing)

    def forget(self, peer: Voter) -> None:
        """Drop the queued requests of a peer whose connection broke."""
        self._queues.pop(peer, None)

    def close(self) -> None:
        """End run()."""
        self._closed = True
        self._queues.clear()
        self._waiting.set()

    async def run(self) -> None:
        """Read and send queued requests, one per peer in turn, until close()."""
        while not self._is_closed():
            await self._waiting.wait()
            self._waiting.clear()
            while self._queues:
                for peer in list(self._queues):
                    await self._send_first(peer)

    def _is_closed(self) -> bool:
        return self._closed

    async def _send_first(self, peer: Voter) -> None:
        """Read and send a peer's oldest request."""
        queue = self._queues.get(peer)
        if queue is None:
            return
        first = queue[0]
        if self._is_due(first.epoch):
            if isinstance(first, SendEntries):
                await self._read_entries(first)
            else:
                await self._read_chunk(first)
        if self._queues.get(peer) is queue:  # the peer was not forgotten during the read
            if queue[0] is first:
                queue.popleft()
            if not queue:
                del self._queues[peer]

    async def _read_entries(self, wanted: SendEntries) -> None:
        start, end = wanted.prev.offset, wanted.end
        entries = self._tail.between(start, end)
        if entries is None and start >= self._state.log.start_offset:
            # Entries in memory may not be durable yet. Take them before waiting for the read of the
            # rest.
            disk_end = min(end, max(start, self._tail.start_offset))
            newest = self._tail.between(disk_end, end) if disk_end < end else ()
            oldest = await self._read(start, disk_end)
            entries = None if newest is None or oldest is None else oldest + newest
        if entries is not None and self._is_due(wanted.epoch):
            self._send_entries(wanted, entries)

    async def _read(self, start: Offset, end: Offset) -> tuple[Entry, ...] | None:
        """Read [start, end) from disk. Return None if it was removed, truncated or replaced by a
        snapshot during the read."""
        try:
            return await self._log.read_entries(start, end)
        except (OffsetOutOfRange, CorruptionError):
            if self._state.is_leader and start >= self._state.log.start_offset:
                raise
            return None

    async def _read_chunk(self, wanted: SendChunk) -> None:
        found = await self._log.read_snapshot_chunk(
            wanted.snapshot, wanted.position, wanted.bytes_max
        )
        if found is None or not self._is_due(wanted.epoch):
            return
        content, size = found
        self._transport.send(
            SnapshotChunk(
                sender=self._state.me,
                receiver=wanted.receiver,
                epoch=wanted.epoch,
                snapshot=wanted.snapshot,
                voters=wanted.voters,
                size=size,
                position=wanted.position,
                content=content,
            )
        )

    def _send_entries(self, wanted: SendEntries, entries: tuple[Entry, ...]) -> None:
        self._transport.send(
            AppendRequest(
                sender=self._state.me,
                receiver=wanted.receiver,
                epoch=wanted.epoch,
                prev=wanted.prev,
                entries=entries,
                high_watermark=wanted.high_watermark,
            )
        )

    def _is_due(self, epoch: Epoch) -> bool:
        """Return True if this node still leads the epoch."""
        return self._state.is_leader and self._state.epoch == epoch


def _drop_from(queue: deque[SendEntries | SendChunk], wanted: SendEntries) -> None:
    """Drop queued requests from an offset on, because the core sends from there again."""
    while queue:
        last = queue[-1]
        if not isinstance(last, SendEntries) or last.prev.offset < wanted.prev.offset:
            return
        queue.pop()
