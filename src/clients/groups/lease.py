"""The lease of a member on its partitions (KIP-848). Pure.

The coordinator removes a member, and assigns its partitions to others, after a session without a
heartbeat, or if a revocation takes longer than the rebalance timeout. The member may not be
informed: it may be cut off or stopped. It therefore keeps its own deadlines, each counted from the
earliest moment at which the coordinator can have started:

- the session from the sending of the last heartbeat that was answered;
- a revocation from the sending of the first heartbeat after the last response that did not request
  it.
"""

from collections.abc import Collection, Iterable
from typing import Final

from ..offsets import Place

FOREVER_MS: Final = 2**62
SESSION_MS: Final = 45_000  # group.consumer.session.timeout.ms if the broker does not return it
CERTAIN: Final = 0.95
"""Share of a time span that is safe to use: the coordinator's clock may be faster than this one."""


class Lease:
    """The deadlines of a member. Times are on one monotonic clock that also advances while code
    runs."""

    __slots__ = ("_asked_ms", "_back_ms", "_session_end_ms", "_wanted_back", "heard_ms")

    def __init__(self, *, back_ms: int) -> None:
        self._back_ms = int(back_ms * CERTAIN)  # time limit of a revocation
        self._asked_ms = FOREVER_MS  # sending of the first heartbeat after the last response
        self._session_end_ms = FOREVER_MS
        self.heard_ms = 0  # sending of the last heartbeat that was answered
        self._wanted_back: dict[Place, int] = {}  # revocations, with their earliest start

    @property
    def session_end_ms(self) -> int:
        """The time from which other members may own all partitions."""
        return self._session_end_ms

    @property
    def back_end_ms(self) -> int:
        """The same, unless all pending revocations are reported before."""
        return min(self._wanted_back.values(), default=FOREVER_MS) + self._back_ms

    def asks(self, now_ms: int) -> None:
        """Record that a heartbeat is about to be sent."""
        self._asked_ms = min(self._asked_ms, now_ms)

    def answered(
        self,
        *,
        sent_ms: int,
        session_ms: int,
        reported: Iterable[Place],
        target: Collection[Place],
    ) -> None:
        """Record the response to a heartbeat sent at `sent_ms`.

        `reported` are the partitions that the member reported to own, `target` its target
        assignment. `session_ms` 0: not returned.
        """
        self.heard_ms = sent_ms
        self._session_end_ms = sent_ms + int((session_ms or SESSION_MS) * CERTAIN)
        asked_ms, self._asked_ms = min(self._asked_ms, sent_ms), FOREVER_MS
        self._wanted_back = {
            place: self._wanted_back.get(place, asked_ms)
            for place in reported
            if place not in target
        }

    def end(self) -> None:
        """Clear the deadlines: the member owns nothing."""
        self._asked_ms = self._session_end_ms = FOREVER_MS
        self._wanted_back = {}
