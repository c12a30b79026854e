"""Linearizable reads: who waits for the quorum's word that this node leads, and then for the state
to have reached what was committed by then (ReadIndex, thesis 6.4).

Reads asked for in one turn of the loop share one context of the core, and so cost one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ...errors import NotController, Overloaded, QuorumlogError
from ...ids import Offset
from ..core.raft import Raft
from ..core.ready import ReadReady

_Waiters: TypeAlias = "list[asyncio.Future[Offset]]"


class IndexReads:
    """The reads of one node."""

    def __init__(self, raft: Raft, *, wake: Callable[[], None], waiters_max: int) -> None:
        """`wake` has begin() called soon."""
        self._raft = raft
        self._wake = wake
        self._waiters_max = waiters_max
        self._count = 0
        self._context = 0
        self._gathered: _Waiters = []
        self._asked: dict[int, _Waiters] = {}  # by context
        self._confirmed: deque[tuple[Offset, _Waiters]] = deque()  # until applied, ascending

    async def wait(self) -> Offset:
        """Return an offset once the state has reached it that no write committed before the call is
        at or above; raises NotController, Overloaded."""
        if self._count >= self._waiters_max:
            raise Overloaded(
                f"{self._count} reads wait for the quorum, the bound is {self._waiters_max}: wait"
                " and repeat"
            )
        waiter: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        self._count += 1
        if not self._gathered:
            self._wake()
        self._gathered.append(waiter)
        return await waiter

    def begin(self, now_ms: int) -> None:
        """Ask the quorum on behalf of those who came since the last call."""
        if not self._gathered:
            return
        waiters, self._gathered = self._gathered, []
        self._context += 1
        try:
            self._raft.read_index(self._context, now_ms)
        except (NotController, Overloaded) as error:
            self._fail(waiters, error)
        else:
            self._asked[self._context] = waiters

    def ready(self, read: ReadReady, applied_end: Offset) -> None:
        """The quorum has confirmed a read."""
        waiters = self._asked.pop(read.context, [])  # none: fail() was called meanwhile
        self._confirmed.append((read.offset, waiters))
        self.applied(applied_end)

    def lost(self, context: int, error: QuorumlogError) -> None:
        """The leadership ended before a read was confirmed."""
        self._fail(self._asked.pop(context, []), error)

    def applied(self, end: Offset) -> None:
        """Everything below `end` is applied."""
        while self._confirmed and self._confirmed[0][0] <= end:
            _, waiters = self._confirmed.popleft()
            self._count -= len(waiters)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(end)

    def fail(self, error: QuorumlogError) -> None:
        """The node ends: nobody is answered any more."""
        for waiters in (self._gathered, *self._asked.values(), *(w for _, w in self._confirmed)):
            self._fail(waiters, error)
        self._gathered = []
        self._asked.clear()
        self._confirmed.clear()

    def _fail(self, waiters: _Waiters, error: QuorumlogError) -> None:
        self._count -= len(waiters)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
