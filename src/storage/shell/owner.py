"""Tasks that give jobs to one lane, in the order of the jobs; nobody else awaits that lane.

A job is a coroutine function: it plans on the loop when its turn comes, offloads the waiting part,
and takes the result in. So no two jobs of an owner of width 1 are ever under way at once; of a
wider one as many as it is wide, and whoever gives it jobs sees to it that they do not meet.
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


class Owner:
    """The queue before a lane, and the tasks that work it off; more than one only once jobs wait.

    At most `width` jobs are under way at once.
    """

    def __init__(self, runtime: Runtime, scope: Scope, lane: str, *, width: int = 1) -> None:
        self.flush_ms = Histogram(LATENCY_MS)  # of what went through `flush`
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
        """Run the waiting part of the present job in the lane."""
        return await self._runtime.tasks.offload(self._lane, work)

    async def flush(self, work: Callable[[], T]) -> T:
        """The same for a flush, whose time is kept also when it fails."""
        began_ms = self._runtime.clock.now_ms()
        try:
            return await self.offload(work)
        finally:
            self.flush_ms.observe(self._runtime.clock.now_ms() - began_ms)

    async def offload_all(self, works: Sequence[Callable[[], None]]) -> None:
        """Run parts of the present job in the lane, as many at once as it is wide; returns when all
        have ended. Raises the first error."""
        shares = [works[first :: self._width] for first in range(min(self._width, len(works)))]
        parts = (self.offload(partial(_in_turn, share)) for share in shares)
        for outcome in await asyncio.gather(*parts, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def stop(self) -> None:
        """End the task, after what is queued; nothing may be submitted from here on."""
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
