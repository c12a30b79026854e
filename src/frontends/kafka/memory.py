"""The memory bound on requests of all connections together.

A connection may take memory while the total is below the bound, so the total exceeds it by at most
what one connection takes at once. Above the bound, no connection is read until memory is given
back. A large frame takes memory as its bytes arrive, so several incomplete ones may reach the bound
together; then one of them is read on alone, and the total exceeds the bound by at most that frame.
"""

from collections.abc import Callable
from typing import Final

BYTES_AN_ELEMENT: Final = 128
"""Approximate memory of one array element after decoding: an object of one or two fields."""


class RequestMemory:
    """Bytes of requests, from their first byte until the response."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        # connections waiting for memory, oldest first
        self._waiting: dict[object, Callable[[], None]] = {}
        self._incomplete: dict[object, int] = {}  # bytes of large incomplete frames by connection
        self._incomplete_bytes = 0
        self._alone: object | None = None  # the one of them that is read above the bound
        self._is_telling = False
        self.taken = 0

    @property
    def is_full(self) -> bool:
        """Return True if no connection may take more."""
        return self.taken >= self.bytes_max

    def take(self, size: int) -> None:
        """Add `size` bytes."""
        self.taken += size

    def take_incomplete(self, reader: object, size: int) -> None:
        """Add `size` bytes of the large incomplete frame of a connection."""
        self.taken += size
        self._incomplete_bytes += size
        self._incomplete[reader] = self._incomplete.get(reader, 0) + size

    def complete(self, reader: object) -> int:
        """End the large incomplete frame of a connection. Return its bytes, which the caller gives
        back."""
        size = self._incomplete.pop(reader, 0)
        self._incomplete_bytes -= size
        if self._alone is reader:
            self._alone = None
        return size

    def may_read(self, reader: object) -> bool:
        """Return True if a connection may be read. Above the bound one connection may continue its
        incomplete frame, if no complete request holds memory that it will give back."""
        if not self.is_full:
            return True
        if self._incomplete_bytes != self.taken or reader not in self._incomplete:
            return False
        if self._alone is None:
            self._alone = reader
        return self._alone is reader

    def give(self, size: int) -> None:
        """Subtract `size` bytes and resume waiting connections, the oldest first."""
        self.taken -= size
        assert self.taken >= 0, f"{-self.taken} bytes more were given back than taken"
        if self._is_telling:
            # a resumed connection may give back at once: the loop below continues with the next one
            return
        self._is_telling = True
        try:
            while (waiter := self._next_waiting()) is not None:
                self._waiting.pop(waiter)()
        finally:
            self._is_telling = False

    def wait(self, waiter: object, resume: Callable[[], None]) -> None:
        """Register `resume`, which is called once when there is memory."""
        self._waiting.setdefault(waiter, resume)

    def _next_waiting(self) -> object | None:
        """Return the connection to resume next, None if all must wait."""
        if not self.is_full:
            return next(iter(self._waiting), None)
        if self._incomplete_bytes != self.taken:
            return None
        candidates = self._incomplete if self._alone is None else (self._alone,)
        return next((each for each in candidates if each in self._waiting), None)

    def forget(self, waiter: object) -> None:
        """Remove a waiting connection."""
        self._waiting.pop(waiter, None)
