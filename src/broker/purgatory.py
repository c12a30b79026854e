"""The purgatory: produce requests that wait for their acknowledgement, ordered by offset.

An entry is released once: by progress, or with an error at the end of the leadership.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from ..errors import QuorumlogError
from ..ids import Offset

_NEVER: Final = 1 << 63


class Acks(Enum):
    """The acknowledgement that a producer requests."""

    ALL = "all"  # all in-sync replicas
    NONE = "0"  # none
    LEADER = "1"  # the leader alone

    __hash__ = object.__hash__  # Enum's is in Python, and members are singletons


@dataclass(slots=True, eq=False)
class PurgatoryEntry:
    """The wait of one partition of a produce request."""

    next_offset: Offset  # released when all records below it are acknowledged
    token: Any  # the shell's handle, opaque here
    purgatory: "Purgatory"
    error: QuorumlogError | None = None
    is_released: bool = False

    def cancel(self) -> None:
        """Cancel the wait; no-op if it was released."""
        if not self.is_released:
            # sometimes: a waiting produce request is cancelled
            self.is_released = True  # its heap entry is skipped later
            self.purgatory.remove_one()


@dataclass(slots=True, eq=False)
class Purgatory:
    """The entries that wait for one kind of acknowledgement."""

    count: int = 0  # neither released nor cancelled
    _heap: list[tuple[int, int, PurgatoryEntry]] = field(default_factory=list)  # by next_offset
    _sequence: int = 0  # breaks ties of offsets by order of arrival

    def add(self, next_offset: Offset, token: Any) -> PurgatoryEntry:
        """Add an entry."""
        entry = PurgatoryEntry(next_offset, token, self)
        self._sequence += 1
        self.count += 1
        heapq.heappush(self._heap, (next_offset, self._sequence, entry))
        return entry

    def remove_one(self) -> None:
        """Count a cancelled entry; bound the number of cancelled entries in the heap."""
        self.count -= 1
        if len(self._heap) > 2 * self.count + 64:
            self._heap = [each for each in self._heap if not each[2].is_released]
            heapq.heapify(self._heap)

    def release(self, end: int) -> Iterator[PurgatoryEntry]:
        """Release the entries for offsets up to `end`."""
        while self._heap and self._heap[0][0] <= end:
            entry = heapq.heappop(self._heap)[2]
            if not entry.is_released:
                entry.is_released = True
                self.count -= 1
                yield entry

    def fail(self, error: QuorumlogError) -> Iterator[PurgatoryEntry]:
        """Release all entries with an error."""
        for entry in self.release(_NEVER):
            entry.error = error
            yield entry

    def check_invariants(self, name: str) -> None:
        """Raise AssertionError unless these hold, by number:

        1. The count is the number of entries in the heap that were neither released nor cancelled.
        """
        pending = sum(1 for _, _, entry in self._heap if not entry.is_released)
        assert pending == self.count, (
            f"purgatory invariant 1, {name}: {pending} entries in the purgatory,"
            f" {self.count} counted"
        )


@dataclass(slots=True, eq=False)
class ProducePurgatory:
    """The produce requests of one partition that wait for their acknowledgement."""

    entries_max: int  # beyond it, produce requests are refused
    _acks_all: Purgatory = field(default_factory=Purgatory)
    _acks_leader: Purgatory = field(default_factory=Purgatory)  # acks=1

    @property
    def count(self) -> int:
        """The number of waiting produce requests."""
        return self._acks_all.count + self._acks_leader.count

    def add(self, acks: Acks, next_offset: Offset, token: Any) -> PurgatoryEntry:
        """Add an entry for a produce request with these acks."""
        assert acks is not Acks.NONE, "acks=0 does not wait"
        return (self._acks_all if acks is Acks.ALL else self._acks_leader).add(next_offset, token)

    def release(self, *, high_watermark: int, own_end: int) -> tuple[PurgatoryEntry, ...]:
        """Release what is acknowledged by all in-sync replicas, or by the leader alone."""
        released: tuple[PurgatoryEntry, ...] = ()
        if self._acks_all.count:
            released = tuple(self._acks_all.release(high_watermark))
        if self._acks_leader.count:
            released = (*released, *self._acks_leader.release(own_end))
        return released

    def fail(self, error: QuorumlogError) -> tuple[PurgatoryEntry, ...]:
        """Release all entries with an error."""
        return (*self._acks_all.fail(error), *self._acks_leader.fail(error))

    def check_invariants(self, name: str) -> None:
        """Check the invariants of both kinds; see `Purgatory.check_invariants`."""
        self._acks_all.check_invariants(name)
        self._acks_leader.check_invariants(name)
