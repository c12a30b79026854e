"""Linearizable reads by ReadIndex (thesis 6.4).

A read is served at the leader's high watermark after a majority confirms the leadership by a
heartbeat that was sent after the read was requested. Reads that arrive during a round share the
next one. Until the leader commits an entry of its own epoch its high watermark may lag: reads wait.
"""

from collections import deque

from ...errors import Overloaded
from ...ids import Offset
from .ready import ReadReady


class Reads:
    """The pending reads of one leadership."""

    __slots__ = ("_asked", "_count", "_reads_max", "_waiting")

    ROUNDS_MAX = 4  # rounds in flight; more do not reduce the latency

    def __init__(self, *, reads_max: int) -> None:
        self._reads_max = reads_max
        self._waiting: list[int] = []  # contexts without a round
        self._asked: deque[tuple[int, Offset, list[int]]] = deque()  # (round, offset, contexts)
        self._count = 0

    def add(self, context: int) -> None:
        """Queue a read. Raise Overloaded if too many are queued."""
        if self._count >= self._reads_max:
            raise Overloaded(
                f"metadata log: {self._count} reads wait for the quorum, the limit is"
                f" {self._reads_max}; retry later"
            )
        self._waiting.append(context)
        self._count += 1

    @property
    def has_round(self) -> bool:
        """Return True if a round is in flight."""
        return bool(self._asked)

    @property
    def wants_round(self) -> bool:
        """Return True if a heartbeat round should start."""
        return bool(self._waiting) and len(self._asked) < self.ROUNDS_MAX

    def begin_round(self, number: int, high_watermark: Offset) -> None:
        """Assign all queued reads to the round that is sent now."""
        self._asked.append((number, high_watermark, self._waiting))
        self._waiting = []

    def confirm(self, number: int) -> list[ReadReady]:
        """Return the reads of this round and of earlier ones, which a majority confirmed."""
        ready: list[ReadReady] = []
        while self._asked and self._asked[0][0] <= number:
            _, offset, contexts = self._asked.popleft()
            self._count -= len(contexts)
            ready.extend(ReadReady(context, offset) for context in contexts)
        return ready

    def lose(self) -> list[int]:
        """Remove and return every unconfirmed read at the end of the leadership."""
        lost = [context for _, _, contexts in self._asked for context in contexts]
        lost += self._waiting
        self._asked.clear()
        self._waiting, self._count = [], 0
        return lost
