"""Until when each of many must give a sign of life, with the cheapest step for the sign itself.

A sign comes every few seconds from each, an end hardly ever. So a sign only writes the new time
beside the name, and the heap keeps the old one: it is put right when it comes to the top.
"""

from heapq import heapify, heappop, heappush
from typing import Final

STALE_MAX: Final = 64
"""So many entries more than twice the names may stand in the heap before it is made anew."""


class Deadlines:
    """A time for each name, in milliseconds."""

    __slots__ = ("_at_ms", "_heap", "_serial")

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        self._heap: list[tuple[int, int, str]] = []  # no later than the name's time; serial; name
        self._serial = 0

    def __contains__(self, name: str) -> bool:
        return name in self._at_ms

    def names(self) -> frozenset[str]:
        """Who has a time."""
        return frozenset(self._at_ms)

    def get(self, name: str) -> int | None:
        """A name's time; None: it has none."""
        return self._at_ms.get(name)

    def set(self, name: str, at_ms: int) -> None:
        """Put a name's time on; a later one costs next to nothing."""
        before = self._at_ms.get(name)
        self._at_ms[name] = at_ms
        if before is None or at_ms < before:
            self._serial += 1
            heappush(self._heap, (at_ms, self._serial, name))
            if len(self._heap) > 2 * len(self._at_ms) + STALE_MAX:
                self._rebuild()

    def drop(self, name: str) -> None:
        """A name has no time any more, if it had one."""
        self._at_ms.pop(name, None)

    def next_ms(self) -> int | None:
        """The earliest time; None: there is none."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[str]:
        """Take out the names whose time is [.., now_ms], the earliest first."""
        names = []
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            name = heappop(self._heap)[2]
            del self._at_ms[name]
            names.append(name)
        return names

    def clear(self) -> None:
        """Nobody has a time."""
        self._at_ms.clear()
        self._heap.clear()

    def _settle(self) -> None:
        """Make the top of the heap one that is true."""
        heap = self._heap
        while heap:
            listed_ms, serial, name = heap[0]
            at_ms = self._at_ms.get(name)
            if at_ms == listed_ms:
                return
            heappop(heap)
            if at_ms is not None and at_ms > listed_ms:
                heappush(heap, (at_ms, serial, name))

    def _rebuild(self) -> None:
        first: dict[str, int] = {}  # by name, its oldest serial: ties keep their order
        for _, serial, name in self._heap:
            if name in self._at_ms:
                first[name] = min(serial, first.get(name, serial))
        self._heap = [(self._at_ms[name], serial, name) for name, serial in first.items()]
        heapify(self._heap)
