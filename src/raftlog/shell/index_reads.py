"""Linearizable reads: calls that wait for the quorum's confirmation and then for the applied offset
(ReadIndex, thesis 6.4).

Reads that start in one turn of the event loop share one read of the core.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ...errors import NotController, Overloaded, QuorumlogError
from ...ids import Offset
from ..raft import Raft
from ..ready import ReadReady

_Waiters: TypeAlias = "list[asyncio.Future[Offset]]"


class IndexReads:
    """The pending reads of one node."""

    def __init__(self, raft: Raft, *, wake: Callable[[], None], waiters_max: int) -> None:
        """`wake` schedules a call of begin()."""
        self._raft = raft
        self._wake = wake
        self._waiters_max = waiters_max
        self._count = 0
        self._context = 0
        self._queued: _Waiters = []
        self._asked: dict[int, _Waiters] = {}  # by context
        # waiting for the apply, ascending
        self._confirmed: deque[tuple[Offset, _Waiters]] = deque()

    async def wait(self) -> Offset:
        """Return the applied offset once it covers every write committed before the call.

        Raise NotController or Overloaded.
        """
        if self._count >= self._waiters_max:
            raise Overloaded(
                f"metadata log: {self._count} reads wait for the quorum, the limit is"
                f" {self._waiters_max}; retry later"
            )
        waiter: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        self._count += 1
        if not self._queued:
            self._wake()
        self._queued.append(waiter)
        return await waiter

    def begin(self, now_ms: int) -> None:
        """Start one read of the core for all calls since the last one."""
        if not self._queued:
            return
        waiters, self._queued = self._queued, []
        self._context += 1
        try:
            self._raft.read_index(self._context, now_ms)
        except (NotController, Overloaded) as error:
            self._fail(waiters, error)
        else:
            self._asked[self._context] = waiters

    def ready(self, read: ReadReady, applied_end: Offset) -> None:
        """Record the quorum's confirmation of a read."""
        waiters = self._asked.pop(read.context, [])  # empty after fail()
        self._confirmed.append((read.offset, waiters))
        self.applied(applied_end)

    def lost(self, context: int, error: QuorumlogError) -> None:
        """Fail a read whose leadership ended before the confirmation."""
        self._fail(self._asked.pop(context, []), error)

    def applied(self, end: Offset) -> None:
        """Return from the reads that the applied offset covers."""
        while self._confirmed and self._confirmed[0][0] <= end:
            _, waiters = self._confirmed.popleft()
            self._count -= len(waiters)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(end)

    def fail(self, error: QuorumlogError) -> None:
        """Fail all reads at the end of the node."""
        for waiters in (self._queued, *self._asked.values(), *(w for _, w in self._confirmed)):
            self._fail(waiters, error)
        self._queued = []
        self._asked.clear()
        self._confirmed.clear()

    def _fail(self, waiters: _Waiters, error: QuorumlogError) -> None:
        self._count -= len(waiters)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
