"""Deadlines by name, cheap to move into the future: a heartbeat does so every few seconds.

A heap has one entry for a name, at its deadline or earlier; who moves a deadline back touches no
heap. An entry that comes up too early goes in again at its name's deadline.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

STALE_MAX: Final = 64
"""So many entries more than twice the deadlines may stand in the heap before it is made anew."""


@dataclass(slots=True)
class Timers:
    """A name is a kind and a member id."""

    _deadlines: dict[tuple[str, str], int] = field(default_factory=dict)
    _heap: list[tuple[int, str, str]] = field(default_factory=list)
    _queued: dict[tuple[str, str], int] = field(default_factory=dict)  # the entry's time

    def start(self, kind: str, member_id: str, at_ms: int) -> None:
        """Set a deadline, or move it."""
        name = (kind, member_id)
        self._deadlines[name] = at_ms
        queued_ms = self._queued.get(name)
        if queued_ms is None or at_ms < queued_ms:
            self._queued[name] = at_ms
            heappush(self._heap, (at_ms, kind, member_id))
            if len(self._heap) > 2 * len(self._deadlines) + STALE_MAX:
                self._rebuild()

    def _rebuild(self) -> None:
        """Forget the entries of names that have no deadline any more."""
        self._queued = dict(self._deadlines)
        self._heap = [(at_ms, *name) for name, at_ms in self._deadlines.items()]
        heapify(self._heap)

    def stop(self, *kinds: str, member_id: str) -> None:
        """Forget deadlines of a member."""
        for kind in kinds:
            self._deadlines.pop((kind, member_id), None)

    def at_ms(self, kind: str, member_id: str) -> int | None:
        """A deadline; None: it is not set."""
        return self._deadlines.get((kind, member_id))

    def runs(self, kind: str, member_id: str) -> bool:
        """Whether a deadline is set."""
        return (kind, member_id) in self._deadlines

    def next_ms(self) -> int | None:
        """When to look next; never after a deadline, None: there is none."""
        return self._heap[0][0] if self._deadlines and self._heap else None

    def due(self, now_ms: int) -> list[tuple[str, str]]:
        """Take out what is due, the earliest first."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, kind, member_id = heappop(self._heap)
            name = (kind, member_id)
            if self._queued.get(name) != at_ms:
                continue  # an earlier entry has taken its place
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
