"""One task that gives jobs to one lane, one after another; nobody else awaits that lane.

A job is a coroutine function: it plans on the loop when its turn comes, offloads the waiting part,
and takes the result in. So no two jobs of an owner are ever under way at once.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from ...runtime.ports import Runtime, Scope

T = TypeVar("T")
Job: TypeAlias = Callable[[], Awaitable[None]]


class Owner:
    """The queue before a lane, and the task that works it off."""

    def __init__(self, runtime: Runtime, scope: Scope, lane: str) -> None:
        self._runtime = runtime
        self._lane = lane
        self._jobs: deque[Job] = deque()
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._task = scope.spawn(self._work(), name=f"storage.owner {lane}")

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.append(job)
        self._wake.set()

    async def offload(self, work: Callable[[], T]) -> T:
        """Run the waiting part of the present job in the lane."""
        return await self._runtime.tasks.offload(self._lane, work)

    async def stop(self) -> None:
        """End the task, after what is queued; nothing may be submitted from here on."""
        self._is_stopping = True
        self._wake.set()
        await self._task

    async def _work(self) -> None:
        while True:
            while self._jobs:
                await self._jobs.popleft()()
            if self._is_stopping:
                return
            self._wake.clear()
            await self._wake.wait()
