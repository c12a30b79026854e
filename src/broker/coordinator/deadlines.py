"""Deadlines of many members; moving one later is a dictionary write.

Members send a heartbeat every few seconds and rarely expire. A heartbeat therefore only writes the
new time into a dictionary. The heap keeps the earlier time, which is corrected when it reaches the
top.
"""

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

N = TypeVar("N")

STALE_MAX: Final = 64
"""The heap is rebuilt when it has more than twice as many entries as deadlines, plus this
number."""


class DeadlineQueue(Generic[N]):
    """One deadline for each name, in milliseconds."""

    __slots__ = ("_at_ms", "_heap", "_serial")

    def __init__(self) -> None:
        self._at_ms: dict[N, int] = {}
        self._heap: list[tuple[int, int, N]] = []  # at most the name's deadline; serial; name
        self._serial = 0

    def __contains__(self, name: N) -> bool:
        return name in self._at_ms

    def names(self) -> frozenset[N]:
        """Return the names that have a deadline."""
        return frozenset(self._at_ms)

    def get(self, name: N) -> int | None:
        """Return the deadline of a name, or None."""
        return self._at_ms.get(name)

    def set(self, name: N, at_ms: int) -> None:
        """Set the deadline of a name. O(1) if it moves later, else O(log n)."""
        before = self._at_ms.get(name)
        self._at_ms[name] = at_ms
        if before is None or at_ms < before:
            self._serial += 1
            heappush(self._heap, (at_ms, self._serial, name))
            if len(self._heap) > 2 * len(self._at_ms) + STALE_MAX:
                self._rebuild()

    def postpone(self, name: N, at_ms: int) -> bool:
        """Move a deadline later; return False, without an effect, if there is none or it would move
        earlier. O(1)."""
        before = self._at_ms.get(name)
        if before is None or at_ms < before:
            return False
        self._at_ms[name] = at_ms
        return True

    def drop(self, name: N) -> None:
        """Remove the deadline of a name, if there is one."""
        self._at_ms.pop(name, None)

    def next_ms(self) -> int | None:
        """Return the earliest deadline, or None."""
        self._drop_outdated()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, *, limit: int | None = None) -> list[N]:
        """Remove and return at most `limit` names with a deadline of at most `now_ms`, the earliest
        first."""
        names: list[N] = []
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms and len(names) != limit:
            name = heappop(self._heap)[2]
            del self._at_ms[name]
            names.append(name)
        return names

    def clear(self) -> None:
        """Remove all deadlines."""
        self._at_ms.clear()
        self._heap.clear()

    def _drop_outdated(self) -> None:
        """Remove outdated entries from the top of the heap."""
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
        first: dict[N, int] = {}  # oldest serial of each name: ties keep their order
        for _, serial, name in self._heap:
            if name in self._at_ms:
                first[name] = min(serial, first.get(name, serial))
        self._heap = [(self._at_ms[name], serial, name) for name, serial in first.items()]
        heapify(self._heap)
