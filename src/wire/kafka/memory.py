"""A bound on what requests of all connections hold together.

A connection may take as long as the bound is not reached; so it is passed by what one connection
takes at once, and by no more. Who finds it reached is read no further until others gave back.
"""

from collections.abc import Callable
from typing import Final

BYTES_AN_ELEMENT: Final = 128
"""What an element of an array takes once it is read, about: an object of one or two fields."""


class RequestMemory:
    """Bytes of frames, from their first to their answer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[object, Callable[[], None]] = {}  # who waits for room, oldest first
        self._is_telling = False
        self.taken = 0

    @property
    def is_full(self) -> bool:
        """Whether nobody may take more."""
        return self.taken >= self._bytes_max

    def take(self, size: int) -> None:
        """Hold so many bytes more."""
        self.taken += size

    def give(self, size: int) -> None:
        """Hold so many less; those who wait go on, the first of them first."""
        self.taken -= size
        assert self.taken >= 0, f"{-self.taken} bytes were given that nobody had taken"
        if self._is_telling:
            return  # who goes on may give back at once: the loop below goes on with the next one
        self._is_telling = True
        try:
            while self._waiting and not self.is_full:
                waiter = next(iter(self._waiting))
                self._waiting.pop(waiter)()
        finally:
            self._is_telling = False

    def wait(self, waiter: object, resume: Callable[[], None]) -> None:
        """Have `resume` called, once, when there is room."""
        self._waiting.setdefault(waiter, resume)

    def forget(self, waiter: object) -> None:
        """It waits no more."""
        self._waiting.pop(waiter, None)
