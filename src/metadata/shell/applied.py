"""Waiting until given brokers have applied a metadata offset, as their heartbeats say."""

import asyncio
from collections.abc import Callable, Iterable

from ...ids import NodeId, Offset


class AppliedWaiters:
    """Those who wait. Each stands with one broker that it waits for, so that a heartbeat costs what
    waits for its sender; `moved()` sends it on to the next one."""

    def __init__(self, is_awaited: Callable[[NodeId, Offset], bool]) -> None:
        """`is_awaited` says whether a broker is yet to apply an offset, and likely to."""
        self._is_awaited = is_awaited
        # By broker; dicts serve as ordered sets.
        self._standing: dict[NodeId, dict[_Waiter, None]] = {}

    async def wait(self, brokers: Iterable[NodeId], offset: Offset, timeout_ms: int) -> None:
        """Return once no broker is awaited any more, or after `timeout_ms`."""
        waiter = _Waiter(list(brokers), offset)
        if self._send_on(waiter):
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter.over
        except TimeoutError:
            return
        finally:
            if waiter.left:
                self._standing.get(waiter.left[-1], {}).pop(waiter, None)

    def moved(self, broker: NodeId) -> None:
        """What the broker has applied has moved, or it is not awaited any more."""
        for waiter in self._standing.pop(broker, ()):
            if self._send_on(waiter) and not waiter.over.done():
                waiter.over.set_result(None)

    def _send_on(self, waiter: "_Waiter") -> bool:
        """Have it stand with the next broker that it waits for; whether there is none."""
        while waiter.left:
            broker = waiter.left[-1]
            if self._is_awaited(broker, waiter.offset):
                self._standing.setdefault(broker, {})[waiter] = None
                return False
            waiter.left.pop()
        return True


class _Waiter:
    """One who waits."""

    __slots__ = ("left", "offset", "over")

    def __init__(self, left: list[NodeId], offset: Offset) -> None:
        self.left = left  # not looked at yet, but for the last one, with which it stands
        self.offset = offset
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
