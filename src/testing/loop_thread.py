"""An event loop in a thread of its own, for code that runs beside a blocking test."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

WAIT_S: Final = 10.0  # calls take milliseconds


class LoopThread:
    """A loop that runs until `stop`; all methods may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop, its tasks, and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` on the loop and return its result; errors propagate."""

        async def call() -> T:
            return work()

        return self.run(call())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; errors propagate."""
        running: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return running.result(WAIT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(_turn())  # transports that were aborted close now
        finally:
            self._loop.close()


async def _turn() -> None:
    """Let all callbacks that are due run."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
