"""Which machines' words do not reach which others now, or late. Directions count one by one.

A barrier lets nothing through: what was sent waits in front of it, in order, as a kernel sends it
again and again, until the barrier falls or the connection is given up. A clog lets everything
through, late. Both are between machines by name, whatever runs on them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

Direction: TypeAlias = tuple[str, str]  # who speaks, who hears


@dataclass(slots=True)
class Barriers:
    """All barriers and clogs of a network; a direction may be closed by several at once."""

    on_open: Callable[[Direction], None] = lambda direction: None  # the last barrier has fallen
    _closed: dict[Direction, int] = field(default_factory=dict)  # how many barriers
    _clogs_ms: dict[Direction, int] = field(default_factory=dict)

    def is_closed(self, speaker: str, hearer: str) -> bool:
        """Whether nothing gets through."""
        return (speaker, hearer) in self._closed

    def cuts(self, one: str, other: str) -> bool:
        """Whether the two cannot talk, whichever direction is closed."""
        return self.is_closed(one, other) or self.is_closed(other, one)

    @property
    def is_open(self) -> bool:
        """Whether everything gets through everywhere, in time."""
        return not self._closed and not self._clogs_ms

    def clog_ms(self, speaker: str, hearer: str) -> int:
        """How much later everything comes."""
        return self._clogs_ms.get((speaker, hearer), 0)

    def close(self, directions: Iterable[Direction]) -> None:
        """Put up a barrier in each direction."""
        for direction in directions:
            self._closed[direction] = self._closed.get(direction, 0) + 1

    def open(self, directions: Iterable[Direction]) -> None:
        """Take down one barrier in each direction."""
        for direction in directions:
            left = self._closed.pop(direction) - 1
            if left:
                self._closed[direction] = left
            else:
                self.on_open(direction)

    def clog(self, directions: Iterable[Direction], by_ms: int) -> None:
        """Let everything come that much later; 0 ends it."""
        for direction in directions:
            if by_ms:
                self._clogs_ms[direction] = by_ms
            else:
                self._clogs_ms.pop(direction, None)

    def open_all(self) -> None:
        """Take down every barrier and every clog."""
        self._clogs_ms.clear()
        closed, self._closed = list(self._closed), {}
        for direction in closed:
            self.on_open(direction)


def between(some: Iterable[str], others: Iterable[str]) -> list[Direction]:
    """The directions from each of some to each of others."""
    hearers = list(others)
    return [(speaker, hearer) for speaker in some for hearer in hearers if speaker != hearer]


def apart(some: Iterable[str], others: Iterable[str]) -> list[Direction]:
    """The directions between two groups, both ways."""
    left, right = list(some), list(others)
    return between(left, right) + between(right, left)
