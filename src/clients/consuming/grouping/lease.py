"""For how long a member may take its partitions for its own (KIP-848); pure.

The coordinator shuts a member out, and gives others what it had, once it has not heard of it for a
session, or once the member has not given back in time what it was asked for (rebalance time-out).
The member may not hear of that: it is cut off, was stopped, or hears it with its next heartbeat
only. So it counts by itself, each time from where the coordinator cannot have begun before: the
session from when the newest heartbeat that was answered was sent; what is wanted back from when the
first heartbeat was sent behind the last answer that did not want it.
"""

from collections.abc import Collection, Iterable
from typing import Final

from ...offsets import Place

FOREVER_MS: Final = 2**62
SESSION_MS: Final = 45_000  # group.consumer.session.timeout.ms, of brokers that do not say theirs
CERTAIN: Final = 0.95
"""The coordinator's clock may be faster than this one; so much of a span is sure."""


class Lease:
    """See the module. Times are on one monotonic clock that also moves while code runs."""

    __slots__ = ("_asked_ms", "_back_ms", "_session_end_ms", "_wanted_back", "heard_ms")

    def __init__(self, *, back_ms: int) -> None:
        self._back_ms = int(back_ms * CERTAIN)  # for what is wanted back
        self._asked_ms = FOREVER_MS  # of the first heartbeat behind the last answer
        self._session_end_ms = FOREVER_MS
        self.heard_ms = 0  # when the last heartbeat that was answered was sent
        self._wanted_back: dict[Place, int] = {}  # since when, at the earliest

    @property
    def session_end_ms(self) -> int:
        """Others may have everything from then on."""
        return self._session_end_ms

    @property
    def back_end_ms(self) -> int:
        """The same, unless everything that is wanted back is reported before."""
        return min(self._wanted_back.values(), default=FOREVER_MS) + self._back_ms

    def asks(self, now_ms: int) -> None:
        """A heartbeat is about to be sent."""
        self._asked_ms = min(self._asked_ms, now_ms)

    def answered(
        self,
        *,
        sent_ms: int,
        session_ms: int,
        reported: Iterable[Place],
        target: Collection[Place],
    ) -> None:
        """An answer has come to what was sent at `sent_ms`: the member has reported to hold these,
        and shall have those. `session_ms` 0: it was not said."""
        self.heard_ms = sent_ms
        self._session_end_ms = sent_ms + int((session_ms or SESSION_MS) * CERTAIN)
        asked_ms, self._asked_ms = min(self._asked_ms, sent_ms), FOREVER_MS
        self._wanted_back = {
            place: self._wanted_back.get(place, asked_ms)
            for place in reported
            if place not in target
        }

    def end(self) -> None:
        """The member has nothing."""
        self._asked_ms = self._session_end_ms = FOREVER_MS
        self._wanted_back = {}
