"""The memory bound on requests of all connections together.

A connection may take memory while the total is below the bound, so the total exceeds it by at most
what one connection takes at once. Above the bound, no connection is read until memory is given
back.
"""

from collections.abc import Callable
from typing import Final

BYTES_AN_ELEMENT: Final = 128
"""Approximate memory of one array element after decoding: an object of one or two fields."""


class RequestMemory:
    """Bytes of requests, from their first byte until the response."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # connections waiting for memory, oldest first
        self._waiting: dict[object, Callable[[], None]] = {}
        self._is_telling = False
        self.taken = 0

    @property
    def is_full(self) -> bool:
        """Return True if no connection may take more."""
        return self.taken >= self._bytes_max

    def take(self, size: int) -> None:
        """Add `size` bytes."""
        self.taken += size

    def give(self, size: int) -> None:
        """Subtract `size` bytes and resume waiting connections, the oldest first."""
        self.taken -= size
        assert self.taken >= 0, f"{-self.taken} bytes more were given back than taken"
        if self._is_telling:
            # a resumed connection may give back at once: the loop below continues with the next one
            return
        self._is_telling = True
        try:
            while self._waiting and not self.is_full:
                waiter = next(iter(self._waiting))
                self._waiting.pop(waiter)()
        finally:
            self._is_telling = False

    def wait(self, waiter: object, resume: Callable[[], None]) -> None:
        """Register `resume`, which is called once when there is memory."""
        self._waiting.setdefault(waiter, resume)

    def forget(self, waiter: object) -> None:
        """Remove a waiting connection."""
        self._waiting.pop(waiter, None)
