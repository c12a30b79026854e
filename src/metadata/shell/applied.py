"""Waiting until given brokers have applied a metadata offset, as their heartbeats say."""

import asyncio
from collections.abc import Callable, Sequence

from ...ids import NodeId, Offset


class AppliedWaiters:
    """Those who wait; `moved()` wakes the ones that have nothing left to wait for."""

    def __init__(self, applied_offset: Callable[[NodeId], Offset]) -> None:
        self._applied_offset = applied_offset
        self._waiters: list[tuple[Sequence[NodeId], Offset, asyncio.Future[None]]] = []

    async def wait(self, brokers: Sequence[NodeId], offset: Offset, timeout_ms: int) -> bool:
        """Return whether all brokers have applied the offset within `timeout_ms`."""
        if self._have_applied(brokers, offset):
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((brokers, offset, waiter))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters = [entry for entry in self._waiters if entry[2] is not waiter]
        return True

    def moved(self) -> None:
        """An applied offset has moved."""
        for brokers, offset, waiter in self._waiters:
            if not waiter.done() and self._have_applied(brokers, offset):
                waiter.set_result(None)

    def _have_applied(self, brokers: Sequence[NodeId], offset: Offset) -> bool:
        return all(self._applied_offset(broker) >= offset for broker in brokers)
