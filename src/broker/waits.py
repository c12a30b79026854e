"""Produce requests that wait for their acknowledgement, ordered by offset.

A wait is released once: by progress, or with an error at the end of the leadership.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import QuorumlogError
from ..ids import Offset

_NEVER: Final = 1 << 63


@dataclass(slots=True, eq=False)
class Wait:
    """The wait of one partition of a produce request."""

    next_offset: Offset  # released when all records below it are acknowledged
    token: Any  # the shell's handle, opaque here
    error: QuorumlogError | None = None
    released: bool = False
    kind: "Waits | None" = None  # the collection that holds it


@dataclass(slots=True, eq=False)
class Waits:
    """The waits for one kind of acknowledgement."""

    count: int = 0  # neither released nor cancelled
    _heap: list[tuple[int, int, Wait]] = field(default_factory=list)  # by next_offset
    _sequence: int = 0  # breaks ties of offsets by order of arrival

    def add(self, next_offset: Offset, token: Any) -> Wait:
        """Add a wait."""
        wait = Wait(next_offset, token, kind=self)
        self._sequence += 1
        self.count += 1
        heapq.heappush(self._heap, (next_offset, self._sequence, wait))
        return wait

    def cancel(self, wait: Wait) -> None:
        """Cancel a wait; no-op if it was released."""
        if wait.released:
            return
        wait.released = True  # its heap entry is skipped later
        self.count -= 1
        if len(self._heap) > 2 * self.count + 64:  # bounds the entries of cancelled waits
            self._heap = [entry for entry in self._heap if not entry[2].released]
            heapq.heapify(self._heap)

    def pop(self, end: int) -> Iterator[Wait]:
        """Release the waits for offsets up to `end`."""
        while self._heap and self._heap[0][0] <= end:
            wait = heapq.heappop(self._heap)[2]
            if not wait.released:
                wait.released = True
                self.count -= 1
                yield wait

    def fail(self, error: QuorumlogError) -> Iterator[Wait]:
        """Release all waits with an error."""
        for wait in self.pop(_NEVER):
            wait.error = error
            yield wait

    def check_invariants(self, name: str) -> None:
        """Assert that the count matches the heap."""
        live = sum(1 for _, _, wait in self._heap if not wait.released)
        assert live == self.count, f"{name}: {live} waits in the heap, {self.count} counted"
