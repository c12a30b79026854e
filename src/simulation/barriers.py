"""Network partitions and delays between machines, by direction.

A barrier blocks a direction: frames wait in order, as a kernel retransmits them, until the barrier
is removed or the connection breaks. A clog delays every frame. Both apply to machines by name,
independent of their processes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

Direction: TypeAlias = tuple[str, str]  # (sender, receiver)


@dataclass(slots=True)
class Barriers:
    """All barriers and clogs of a network; several barriers may block one direction."""

    # called when the last barrier of a direction is removed
    on_open: Callable[[Direction], None] = lambda direction: None
    _closed: dict[Direction, int] = field(default_factory=dict)  # number of barriers
    _clogs_ms: dict[Direction, int] = field(default_factory=dict)

    def is_closed(self, speaker: str, hearer: str) -> bool:
        """Return True if no frame passes in this direction."""
        return (speaker, hearer) in self._closed

    def cuts(self, one: str, other: str) -> bool:
        """Return True if at least one direction between the two is blocked."""
        return self.is_closed(one, other) or self.is_closed(other, one)

    @property
    def is_open(self) -> bool:
        """True if no barrier and no clog exists."""
        return not self._closed and not self._clogs_ms

    def clog_ms(self, speaker: str, hearer: str) -> int:
        """Return the delay of a direction."""
        return self._clogs_ms.get((speaker, hearer), 0)

    def close(self, directions: Iterable[Direction]) -> None:
        """Add a barrier in each direction."""
        for direction in directions:
            self._closed[direction] = self._closed.get(direction, 0) + 1

    def open(self, directions: Iterable[Direction]) -> None:
        """Remove one barrier in each direction."""
        for direction in directions:
            left = self._closed.pop(direction) - 1
            if left:
                self._closed[direction] = left
            else:
                self.on_open(direction)

    def clog(self, directions: Iterable[Direction], by_ms: int) -> None:
        """Delay the directions by that much; 0 removes the delay."""
        for direction in directions:
            if by_ms:
                self._clogs_ms[direction] = by_ms
            else:
                self._clogs_ms.pop(direction, None)

    def open_all(self) -> None:
        """Remove every barrier and every clog."""
        self._clogs_ms.clear()
        closed, self._closed = list(self._closed), {}
        for direction in closed:
            self.on_open(direction)


def between(some: Iterable[str], others: Iterable[str]) -> list[Direction]:
    """Return the directions from each of the first to each of the second machines."""
    hearers = list(others)
    return [(speaker, hearer) for speaker in some for hearer in hearers if speaker != hearer]


def apart(some: Iterable[str], others: Iterable[str]) -> list[Direction]:
    """Return the directions between two groups, both ways."""
    left, right = list(some), list(others)
    return between(left, right) + between(right, left)
