"""Produce requests that wait for their acknowledgement, in order of what they wait for.

A wait is released once: by progress, or with the error of the end of a leadership.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ...errors import QuorumlogError
from ...ids import Offset

_NEVER: Final = 1 << 63


@dataclass(slots=True, eq=False)
class Wait:
    """A produce request's partition waiting for its acknowledgement."""

    next_offset: Offset  # released when everything below this offset is held
    token: Any  # the shell's handle; this module only carries it
    error: QuorumlogError | None = None
    released: bool = False
    kind: "Waits | None" = None  # which waits it is one of


@dataclass(slots=True, eq=False)
class Waits:
    """The waits of one kind of acknowledgement."""

    count: int = 0  # neither released nor forgotten
    _heap: list[tuple[int, int, Wait]] = field(default_factory=list)  # by next_offset
    _sequence: int = 0  # makes heap entries comparable, first come first released

    def add(self, next_offset: Offset, token: Any) -> Wait:
        """Remember one."""
        wait = Wait(next_offset, token, kind=self)
        self._sequence += 1
        self.count += 1
        heapq.heappush(self._heap, (next_offset, self._sequence, wait))
        return wait

    def forget(self, wait: Wait) -> None:
        """Drop one whose caller is gone; a released one is left alone."""
        if wait.released:
            return
        wait.released = True  # its heap entry is skipped when it comes up
        self.count -= 1
        if len(self._heap) > 2 * self.count + 64:  # entries of the forgotten stay bounded too
            self._heap = [entry for entry in self._heap if not entry[2].released]
            heapq.heapify(self._heap)

    def pop(self, end: int) -> Iterator[Wait]:
        """Release those that wait for no more than `end`."""
        while self._heap and self._heap[0][0] <= end:
            wait = heapq.heappop(self._heap)[2]
            if not wait.released:
                wait.released = True
                self.count -= 1
                yield wait

    def fail(self, error: QuorumlogError) -> Iterator[Wait]:
        """Release all with an error."""
        for wait in self.pop(_NEVER):
            wait.error = error
            yield wait

    def check_invariants(self, name: str) -> None:
        """The books agree."""
        live = sum(1 for _, _, wait in self._heap if not wait.released)
        assert live == self.count, f"{name}: {live} waits live, {self.count} counted"
