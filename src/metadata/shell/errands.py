"""What the controller does of its own accord, beside whatever noticed the need: each errand once at
a time."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeAlias

from ...runtime import Runtime, Scope

Errand: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Errands:
    """Errands by what they are about; run() must run."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[Hashable, Errand] = {}
        self._running: set[Hashable] = set()  # looked into, never walked
        self._wake = asyncio.Event()
        self._closed = False

    def send(self, about: Hashable, errand: Errand) -> None:
        """Run it soon, unless one about the same is waiting or under way."""
        if about not in self._running:
            self._waiting.setdefault(about, errand)
            self._wake.set()

    async def run(self) -> None:
        """Run them until close(), which cancels those under way. An error of one ends this."""
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
            about = next(iter(self._waiting))
            self._running.add(about)
            errand = self._waiting.pop(about)
            scope.spawn(self._do(about, errand), name="controller.errand")

    async def _do(self, about: Hashable, errand: Errand) -> None:
        try:
            await errand()
        finally:
            self._running.discard(about)
