"""Deadlines of members; moving one later is a dictionary write, as each heartbeat does.

The heap has one entry for each name, at its deadline or earlier. An entry that reaches the top too
early is pushed again at the deadline.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

STALE_MAX: Final = 64
"""The heap is rebuilt when it has more than twice as many entries as deadlines, plus this
number."""


@dataclass(slots=True)
class Timers:
    """Deadlines by kind and member id."""

    _deadlines: dict[tuple[str, str], int] = field(default_factory=dict)
    _heap: list[tuple[int, str, str]] = field(default_factory=list)
    _queued: dict[tuple[str, str], int] = field(default_factory=dict)  # the time of the valid entry

    def start(self, kind: str, member_id: str, at_ms: int) -> None:
        """Set or move a deadline."""
        name = (kind, member_id)
        self._deadlines[name] = at_ms
        queued_ms = self._queued.get(name)
        if queued_ms is None or at_ms < queued_ms:
            self._queued[name] = at_ms
            heappush(self._heap, (at_ms, kind, member_id))
            if len(self._heap) > 2 * len(self._deadlines) + STALE_MAX:
                self._rebuild()

    def _rebuild(self) -> None:
        """Rebuild the heap without outdated entries."""
        self._queued = dict(self._deadlines)
        self._heap = [(at_ms, *name) for name, at_ms in self._deadlines.items()]
        heapify(self._heap)

    def stop(self, *kinds: str, member_id: str) -> None:
        """Remove deadlines of a member."""
        for kind in kinds:
            self._deadlines.pop((kind, member_id), None)

    def at_ms(self, kind: str, member_id: str) -> int | None:
        """Return a deadline, or None."""
        return self._deadlines.get((kind, member_id))

    def runs(self, kind: str, member_id: str) -> bool:
        """Return True if the deadline is set."""
        return (kind, member_id) in self._deadlines

    def next_ms(self) -> int | None:
        """Return the earliest time at which a deadline may be due; None: no deadline."""
        return self._heap[0][0] if self._deadlines and self._heap else None

    def due(self, now_ms: int) -> list[tuple[str, str]]:
        """Remove and return the names that are due, the earliest first."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, kind, member_id = heappop(self._heap)
            name = (kind, member_id)
            if self._queued.get(name) != at_ms:
                continue  # replaced by an earlier entry
            del self._queued[name]
            deadline_ms = self._deadlines.get(name)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                del self._deadlines[name]
                found.append(name)
            else:
                self._queued[name] = deadline_ms
                heappush(self._heap, (deadline_ms, kind, member_id))
        return found
