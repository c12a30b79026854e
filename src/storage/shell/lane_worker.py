"""The workers of one lane, which run jobs in queue order; no other task uses that lane.

A job is a coroutine function: it plans on the loop in its turn, offloads the blocking part, and
applies the result. A worker set of width 1 never runs two jobs at once; a wider one runs up to its
width, and the caller ensures that those jobs do not conflict.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from ...metrics import LATENCY_MS, Histogram
from ...runtime.ports import Runtime, Scope

T = TypeVar("T")
Job: TypeAlias = Callable[[], Awaitable[None]]


class LaneWorker:
    """The queue of a lane, and the tasks that run its jobs; more than one task only once jobs wait.

    At most `width` jobs run at once.
    """

    def __init__(self, runtime: Runtime, scope: Scope, lane: str, *, width: int = 1) -> None:
        self.flush_ms = Histogram(LATENCY_MS)  # of work run by `flush`
        self._runtime = runtime
        self._scope = scope
        self._lane = lane
        self._width = width
        self._jobs: deque[Job] = deque()
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._idle = 0  # tasks without a job
        self._tasks: list[asyncio.Task[None]] = []
        self._add_task()

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.append(job)
        self._wake.set()
        if len(self._jobs) > self._idle and len(self._tasks) < self._width:
            self._add_task()

    async def offload(self, work: Callable[[], T]) -> T:
        """Run the blocking part of the current job in the lane."""
        return await self._runtime.tasks.offload(self._lane, work)

    async def flush(self, work: Callable[[], T]) -> T:
        """Run a flush in the lane and record its duration, including that of a failed one."""
        began_ms = self._runtime.clock.now_ms()
        try:
            return await self.offload(work)
        finally:
            self.flush_ms.observe(self._runtime.clock.now_ms() - began_ms)

    async def offload_all(self, works: Sequence[Callable[[], None]]) -> None:
        """Run parts of the current job in the lane, up to `width` at once; return when all have
        ended. Raises the first error."""
        shares = [works[first :: self._width] for first in range(min(self._width, len(works)))]
        parts = (self.offload(partial(_in_turn, share)) for share in shares)
        for outcome in await asyncio.gather(*parts, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def stop(self) -> None:
        """End the tasks after the queued jobs; no job may be submitted afterwards."""
        self._is_stopping = True
        self._wake.set()
        for task in self._tasks:
            await task

    def _add_task(self) -> None:
        self._idle += 1
        self._tasks.append(self._scope.spawn(self._work(), name=f"storage.owner {self._lane}"))

    async def _work(self) -> None:
        while True:
            self._idle -= 1
            while self._jobs:
                await self._jobs.popleft()()
            self._idle += 1
            if self._is_stopping:
                return
            self._wake.clear()
            await self._wake.wait()


def _in_turn(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()
