"""Hands committed batches to the listener, in order and once: from memory when they were proposed
in this life, from the log when they are older.

Owns the place up to which the listener has been served. Decides nothing about what is committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ...errors import QuorumlogError
from ...ids import Epoch, NodeId, Offset
from ...records.batch import iterate_batches
from ...records.codec import decode_batch
from ...storage import Log
from ...storage.shell.directory import Directory
from ..log_view import Entry

REPLAY_BYTES: Final = 128 * 1024
"""Bytes of the log decoded in one step of the loop while an old log is replayed."""


class CommitListener(Protocol):
    """What hangs on the quorum's log; called on the loop, in order, never concurrently."""

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """The values of one committed batch, once each, from the log's start after a restart."""

    def leadership(self, leader_id: NodeId | None, epoch: int) -> None:
        """The leader of the epoch opened it, and everything before was delivered; None: it gave
        its leadership up."""


class Proposal:
    """A batch of this life on its way to being committed."""

    __slots__ = ("_error", "_waiters", "base_offset", "epoch", "is_done", "next_offset", "values")

    def __init__(self, entry: Entry, values: list[bytes] | None) -> None:
        self.base_offset = entry.base_offset
        self.next_offset = entry.next_offset
        self.epoch = entry.epoch
        self.values = values  # None: the no-op that opens the epoch
        self.is_done = False  # committed and delivered, or given up
        self._error: QuorumlogError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def last_offset(self) -> Offset:
        """Offset of its last record."""
        return Offset(self.next_offset - 1)

    async def wait_committed(self) -> None:
        """Return once the batch is committed and was delivered to the listener.

        Raises what ended the leadership before that was known: the outcome is then unknown. Any
        number may wait; a cancelled one takes nothing along.
        """
        if not self.is_done:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._error is not None:
            raise self._error

    def finish(self, error: QuorumlogError | None = None) -> None:
        """Let those who wait go on; a second call does nothing."""
        if self.is_done:
            return
        self.is_done, self._error = True, error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class Delivery:
    """The listener's place in the log."""

    def __init__(
        self,
        directory: Directory,
        log: Log,
        listener: CommitListener,
        *,
        applied: Callable[[Offset], None],
        opened: Callable[[Epoch], None],
    ) -> None:
        self._directory = directory
        self._log = log
        self._listener = listener
        self._applied = applied  # told after every delivery
        self._opened = opened  # told when an epoch's no-op is reached
        self._end = Offset(log.log_start_offset)  # everything below was delivered
        self._committed_end = self._end
        self._tail: deque[Proposal] = deque()  # of this life, undelivered, contiguous
        self._moved = asyncio.Event()
        self._closed = False

    def remember(self, proposal: Proposal) -> None:
        """Keep an appended batch until it is committed."""
        self._tail.append(proposal)

    def commit(self, end: Offset) -> None:
        """Everything below `end` is committed: deliver what is in memory at once."""
        self._committed_end = end
        self._deliver_tail()
        if self._end < end:
            self._moved.set()

    def fail(self, error: QuorumlogError) -> None:
        """Give up on every undelivered proposal; what commits later is delivered all the same."""
        for proposal in self._tail:
            proposal.finish(error)

    def close(self) -> None:
        """End run()."""
        self._closed = True
        self._moved.set()

    async def run(self) -> None:
        """Deliver from the log what is committed and not in memory; until close()."""
        while not self._is_closed():
            await self._moved.wait()
            self._moved.clear()
            while self._end < self._replay_end():
                await self._replay_step()
                if self._is_closed():
                    return
            self._deliver_tail()

    def _is_closed(self) -> bool:
        return self._closed

    def _replay_end(self) -> Offset:
        """Where the batches in memory begin, or the commit if that comes first."""
        tail_start = self._tail[0].base_offset if self._tail else self._committed_end
        return min(tail_start, self._committed_end)

    async def _replay_step(self) -> None:
        found = self._log.read(self._end, max_bytes=REPLAY_BYTES, end_offset=self._replay_end())
        assert found is not None, f"nothing at {self._end}, log end {self._log.log_end_offset}"
        content = await self._directory.read(found)
        assert content, f"nothing at {self._end}, log end {self._log.log_end_offset}"
        for position, header in iterate_batches(content):
            assert header.base_offset == self._end, f"{header.base_offset} follows {self._end}"
            if not header.is_control:
                values = [record.value or b"" for record in decode_batch(content, position)]
                self._listener.committed(header.base_offset, header.leader_epoch, values)
            self._end = Offset(header.next_offset)
            self._applied(self._end)
        await asyncio.sleep(0)  # a long replay lets the loop breathe between steps

    def _deliver_tail(self) -> None:
        while self._tail and self._tail[0].base_offset == self._end:
            if self._tail[0].next_offset > self._committed_end:
                return
            proposal = self._tail.popleft()
            self._end = proposal.next_offset
            if proposal.values is not None:
                self._listener.committed(proposal.base_offset, proposal.epoch, proposal.values)
            self._applied(self._end)
            if proposal.values is None:
                self._opened(proposal.epoch)
            proposal.finish()
