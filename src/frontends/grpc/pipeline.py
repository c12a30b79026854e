"""The requests of one stream that are under way: answered in order, bounded in number and bytes.

The bound is the stream's back-pressure: who waits for room does not read on, and the caller's
window fills. One reader puts, one writer takes; neither blocks the other beyond the bound.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Pipeline(Generic[T]):
    """A first-in first-out queue whose entries count against the bound until they are answered."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max  # one entry alone may exceed it
        self._queue: deque[tuple[T, int]] = deque()
        self._count = 0  # under way: queued, or taken and not yet answered
        self._bytes = 0
        self._closed = False
        self._reader: asyncio.Future[None] | None = None  # waits for room
        self._writer: asyncio.Future[None] | None = None  # waits for an entry

    @property
    def count(self) -> int:
        """Entries under way: put and not yet answered."""
        return self._count

    async def room(self, size: int) -> None:
        """Return when an entry of `size` bytes may be put."""
        while self._count and (
            self._count >= self._count_max or self._bytes + size > self._bytes_max
        ):
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def put(self, entry: T, size: int) -> None:
        """Add an entry behind the others."""
        self._queue.append((entry, size))
        self._count += 1
        self._bytes += size
        _wake(self._writer)

    def close(self) -> None:
        """Nothing more will be put."""
        self._closed = True
        _wake(self._writer)

    async def take(self) -> tuple[T, int] | None:
        """Return the oldest entry with its size, or None when it is closed and empty."""
        while not self._queue:
            if self._closed:
                return None
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        return self._queue.popleft()

    def answered(self, size: int) -> None:
        """An entry that was taken is done with."""
        self._count -= 1
        self._bytes -= size
        assert self._count >= 0, f"{self._count} requests under way"
        assert self._bytes >= 0, f"{self._bytes} bytes under way"
        _wake(self._reader)


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
