"""Background tasks of the controller by key; tasks of one key never run concurrently."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeAlias

from ...runtime import Runtime, Scope

Task: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class BackgroundTasks:
    """Tasks by key; run() must run."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[Hashable, Task] = {}
        self._running: set[Hashable] = set()  # never iterated
        self._wake = asyncio.Event()
        self._closed = False

    def start(self, key: Hashable, task: Task) -> None:
        """Run the task soon, unless one of the same key is waiting or running."""
        if key not in self._running:
            self._waiting.setdefault(key, task)
            self._wake.set()

    async def run(self) -> None:
        """Run tasks until close(), which cancels running ones. An error of a task ends run()."""
        async with self._runtime.tasks.scope("controller.errands") as scope:
            while not self._closed:
                self._start(scope)
                await self._wake.wait()
                self._wake.clear()
            scope.cancel()

    def close(self) -> None:
        """End run()."""
        self._closed = True
        self._wake.set()

    def _start(self, scope: Scope) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            self._running.add(key)
            task = self._waiting.pop(key)
            scope.spawn(self._run(key, task), name="controller.errand")

    async def _run(self, key: Hashable, task: Task) -> None:
        try:
            await task()
        finally:
            self._running.discard(key)
