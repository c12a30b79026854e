"""The requests in flight of one stream: answered in order, bounded in number and bytes.

The bound is the stream's back-pressure: a reader that waits for room reads no further, and the
caller's flow-control window fills. One reader puts, one writer takes.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Pipeline(Generic[T]):
    """A FIFO queue; its entries count against the bound until they are answered."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max  # a single entry may exceed it
        self._queue: deque[tuple[T, int]] = deque()
        self._count = 0  # in flight: queued, or taken and not yet answered
        self._bytes = 0
        self._closed = False
        self._reader: asyncio.Future[None] | None = None  # waits for room
        self._writer: asyncio.Future[None] | None = None  # waits for an entry

    @property
    def count(self) -> int:
        """Entries in flight: put and not yet answered."""
        return self._count

    async def room(self, size: int) -> None:
        """Wait until an entry of `size` bytes may be put."""
        while self._count and (
            self._count >= self._count_max or self._bytes + size > self._bytes_max
        ):
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def put(self, entry: T, size: int) -> None:
        """Append an entry."""
        self._queue.append((entry, size))
        self._count += 1
        self._bytes += size
        _wake(self._writer)

    def close(self) -> None:
        """Mark the end: no entry follows."""
        self._closed = True
        _wake(self._writer)

    async def take(self) -> tuple[T, int] | None:
        """Return the oldest entry with its size, or None if the queue is closed and empty."""
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
        """Release the room of a taken entry."""
        self._count -= 1
        self._bytes -= size
        assert self._count >= 0, f"{self._count} requests in flight"
        assert self._bytes >= 0, f"{self._bytes} bytes in flight"
        _wake(self._reader)


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
