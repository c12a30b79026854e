"""Linearizable reads by ReadIndex (thesis 6.4).

A read may be answered at the leader's high watermark once a majority has confirmed, by a heartbeat
sent after the read was asked for, that it is still the leader. Reads that come while a round is
under way share the next one. Before the leader has committed in its own epoch its high watermark
may be behind: reads wait for that.
"""

from collections import deque

from ...errors import Overloaded
from ...ids import Offset
from .ready import ReadReady


class Reads:
    """The reads of one leadership."""

    __slots__ = ("_asked", "_count", "_reads_max", "_waiting")

    ROUNDS_MAX = 4  # under way at once; more would not answer sooner

    def __init__(self, *, reads_max: int) -> None:
        self._reads_max = reads_max
        self._waiting: list[int] = []  # contexts that no round was begun for
        self._asked: deque[tuple[int, Offset, list[int]]] = deque()  # (round, offset, contexts)
        self._count = 0

    def add(self, context: int) -> None:
        """Take a read in; raises Overloaded when too many wait."""
        if self._count >= self._reads_max:
            raise Overloaded(
                f"{self._count} reads wait for the quorum, the bound is {self._reads_max}: wait"
                " and repeat"
            )
        self._waiting.append(context)
        self._count += 1

    @property
    def is_asked(self) -> bool:
        """Whether a round is under way."""
        return bool(self._asked)

    @property
    def wants_round(self) -> bool:
        """Whether a round of heartbeats should begin."""
        return bool(self._waiting) and len(self._asked) < self.ROUNDS_MAX

    def begin_round(self, number: int, high_watermark: Offset) -> None:
        """The round is sent now: everything that waits is answered by it."""
        self._asked.append((number, high_watermark, self._waiting))
        self._waiting = []

    def confirm(self, number: int) -> list[ReadReady]:
        """A majority answered this round: what it and those before it confirm."""
        ready: list[ReadReady] = []
        while self._asked and self._asked[0][0] <= number:
            _, offset, contexts = self._asked.popleft()
            self._count -= len(contexts)
            ready.extend(ReadReady(context, offset) for context in contexts)
        return ready

    def lose(self) -> list[int]:
        """The leadership is over: every read that was not confirmed."""
        lost = [context for _, _, contexts in self._asked for context in contexts]
        lost += self._waiting
        self._asked.clear()
        self._waiting, self._count = [], 0
        return lost
