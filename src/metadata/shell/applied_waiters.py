"""Waits until brokers have applied a metadata offset, as reported by their heartbeats."""

import asyncio
from collections.abc import Callable, Iterable

from ...ids import NodeId, Offset


class AppliedWaiters:
    """The waiters by broker. Each waiter is registered with one broker at a time, so that a
    heartbeat visits only the waiters of its sender; `moved()` moves them to their next broker."""

    def __init__(self, is_awaited: Callable[[NodeId, Offset], bool]) -> None:
        """`is_awaited` returns True for a connected broker that has not applied an offset yet."""
        self._is_awaited = is_awaited
        # By broker; dicts serve as ordered sets.
        self._waiters: dict[NodeId, dict[_Waiter, None]] = {}

    async def wait(self, brokers: Iterable[NodeId], offset: Offset, timeout_ms: int) -> None:
        """Wait until no broker is awaited any more, at most `timeout_ms`."""
        waiter = _Waiter(list(brokers), offset)
        if self._move_on(waiter):
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter.done
        except TimeoutError:
            return
        finally:
            if waiter.left:
                self._waiters.get(waiter.left[-1], {}).pop(waiter, None)

    def moved(self, broker: NodeId) -> None:
        """Check the waiters of a broker whose applied offset or connection has changed."""
        for waiter in self._waiters.pop(broker, ()):
            if self._move_on(waiter) and not waiter.done.done():
                waiter.done.set_result(None)

    def _move_on(self, waiter: "_Waiter") -> bool:
        """Register the waiter with its next awaited broker; return True if there is none."""
        while waiter.left:
            broker = waiter.left[-1]
            if self._is_awaited(broker, waiter.offset):
                self._waiters.setdefault(broker, {})[waiter] = None
                return False
            waiter.left.pop()
        return True


class _Waiter:
    """One wait for several brokers."""

    __slots__ = ("done", "left", "offset")

    def __init__(self, left: list[NodeId], offset: Offset) -> None:
        self.left = left  # brokers to check; registered with the last one
        self.offset = offset
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
