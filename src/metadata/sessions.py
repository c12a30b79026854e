"""Which brokers the active controller hears from: soft state, never in the log.

A session belongs to a broker and its registration (broker epoch); a stream feeds it. A broker that
is silent for the time-out is to be fenced. Streams are told apart by a number: what an old stream
still delivers after a newer one was accepted counts for nothing.

A broker without a stream is soon *suspect*: its stream broke a moment ago and no new one came, or
this leadership is a second old and none has come at all. That proves nothing; it only says that
the broker's listener is worth asking whether anybody is there.

After a stall of this node's own loop, or with a new leadership, every session is extended by one
time-out: silence that may be our own deafness proves nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..ids import NodeId, Offset
from .image import BrokerImage

BROKEN_GRACE_MS: Final = 300
"""A broker whose stream broke is suspect when no new one came for so long."""
ABSENT_GRACE_MS: Final = 1_000
"""A broker that has not connected to a new leadership for so long is suspect."""


@dataclass(slots=True, kw_only=True)
class BrokerSession:
    """What is known of one registered broker."""

    broker_epoch: Offset
    deadline_ms: int  # silent until then: fence it
    suspect_ms: int | None  # without a stream until then: suspect; None: a stream feeds it
    stream: int | None  # number of the live stream that feeds it; None: none is connected
    applied_offset: Offset  # newest metadata offset it said it has applied
    expected_ms: int = 0  # without a stream: a new one may well come until then
    # What it must have applied before it is unfenced; None: it is not known to be fenced.
    fenced_offset: Offset | None = None
    leave_offset: Offset | None = None  # of its controlled shutdown, once that is committed


class BrokerSessions:
    """The sessions of one leadership."""

    def __init__(self, *, timeout_ms: int, tick_ms: int, now_ms: int) -> None:
        """`tick_ms` is the longest time between two calls of tick() that is meant: much later
        means a stall."""
        self.timeout_ms = timeout_ms
        self.tick_ms = tick_ms
        self._sessions: dict[NodeId, BrokerSession] = {}
        self._ticked_ms = now_ms
        self._last_stream = 0

    def begin_leadership(self, brokers: Iterable[BrokerImage], now_ms: int) -> None:
        """Forget the past; every broker that is not fenced has one time-out to appear."""
        self._sessions.clear()
        self._ticked_ms = now_ms
        for broker in brokers:
            if not broker.fenced:
                self._sessions[broker.id] = BrokerSession(
                    broker_epoch=broker.epoch,
                    deadline_ms=now_ms + self.timeout_ms,
                    suspect_ms=now_ms + ABSENT_GRACE_MS,
                    stream=None,
                    applied_offset=Offset(-1),
                    expected_ms=now_ms + ABSENT_GRACE_MS,
                )

    def cover(self, brokers: Iterable[BrokerImage], now_ms: int) -> None:
        """Give every broker that is not fenced a session, if it has none: its stream may have ended
        while the command that unfenced it waited its turn, and nobody would ever miss it."""
        for broker in brokers:
            if broker.fenced:
                continue
            known = self._sessions.get(broker.id)
            if known is None or known.broker_epoch < broker.epoch:
                self._sessions[broker.id] = BrokerSession(
                    broker_epoch=broker.epoch,
                    deadline_ms=now_ms + self.timeout_ms,
                    suspect_ms=now_ms + BROKEN_GRACE_MS,
                    stream=None,
                    applied_offset=Offset(-1),
                )

    def connect(self, broker_id: NodeId, broker_epoch: Offset, now_ms: int) -> int:
        """Accept a stream of a registered broker; return its number. It replaces an older one."""
        self._last_stream += 1
        known = self._sessions.get(broker_id)
        same = known is not None and known.broker_epoch == broker_epoch
        self._sessions[broker_id] = BrokerSession(
            broker_epoch=broker_epoch,
            deadline_ms=now_ms + self.timeout_ms,
            suspect_ms=None,
            stream=self._last_stream,
            applied_offset=known.applied_offset if known is not None and same else Offset(-1),
            leave_offset=known.leave_offset if known is not None and same else None,
        )
        return self._last_stream

    def is_current(self, broker_id: NodeId, stream: int) -> bool:
        """Whether the stream is the one that feeds the broker's session."""
        session = self._sessions.get(broker_id)
        return session is not None and session.stream == stream

    def is_connected(self, broker_id: NodeId) -> bool:
        """Whether a live stream feeds the broker's session."""
        session = self._sessions.get(broker_id)
        return session is not None and session.stream is not None

    def is_expected(self, broker_id: NodeId, now_ms: int) -> bool:
        """Whether a live stream feeds the broker's session, or may well do in a moment: the one
        before broke just now, or this leadership has just begun."""
        session = self._sessions.get(broker_id)
        return session is not None and (session.stream is not None or now_ms < session.expected_ms)

    def is_absent(self, broker_id: NodeId, broker_epoch: Offset) -> bool:
        """Whether the registration has a session that no stream feeds."""
        session = self._sessions.get(broker_id)
        return (
            session is not None and session.broker_epoch == broker_epoch and session.stream is None
        )

    def heartbeat(
        self, broker_id: NodeId, stream: int, *, applied_offset: Offset, now_ms: int
    ) -> None:
        """The broker is alive; the stream must be current."""
        assert self.is_current(broker_id, stream), f"broker {broker_id}: stream {stream} is old"
        session = self._sessions[broker_id]
        session.deadline_ms = now_ms + self.timeout_ms
        session.applied_offset = max(session.applied_offset, applied_offset)

    def disconnect(self, broker_id: NodeId, stream: int, now_ms: int) -> None:
        """The stream ended; the session goes on until its deadline."""
        if self.is_current(broker_id, stream):
            session = self._sessions[broker_id]
            session.stream = None
            session.suspect_ms = session.expected_ms = now_ms + BROKEN_GRACE_MS

    def may_unfence(self, broker_id: NodeId, newest_offset: Offset, *, fenced: bool) -> bool:
        """Whether a broker that is fenced or not in the newest metadata may be unfenced.

        It must have applied its registration and, if it was fenced since, that: until then it may
        believe that it leads what others lead by now, and would take records that are lost.
        """
        session = self._sessions[broker_id]
        if not fenced:
            session.fenced_offset = None
            return False
        if session.fenced_offset is None:
            session.fenced_offset = newest_offset
        return session.applied_offset >= max(session.broker_epoch, session.fenced_offset)

    def unfenced(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        """The broker was unfenced: when it is fenced once more, it must learn of that one too."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.fenced_offset = None

    def remove(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        """The broker was fenced: its session is over, unless a new stream feeds it by now."""
        if self.is_absent(broker_id, broker_epoch):
            del self._sessions[broker_id]

    def applied_offset(self, broker_id: NodeId) -> Offset:
        """Newest metadata offset that the broker said it has applied, -1: unknown."""
        session = self._sessions.get(broker_id)
        return Offset(-1) if session is None else session.applied_offset

    def is_awaited(self, broker_id: NodeId, offset: Offset) -> bool:
        """Whether the broker has not applied an offset yet and is connected, so that it will."""
        session = self._sessions.get(broker_id)
        return (
            session is not None and session.stream is not None and session.applied_offset < offset
        )

    # --- leaving in order ----------------------------------------------------------------------

    def leave(self, broker_id: NodeId, broker_epoch: Offset, offset: Offset) -> None:
        """The broker's controlled shutdown is committed up to `offset`: it leads nothing there."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.leave_offset = offset

    def may_leave(self, broker_id: NodeId, others: Iterable[NodeId], now_ms: int) -> bool:
        """Whether all those who serve, as far as they are connected or expected, know that the
        broker leads nothing any more."""
        session = self._sessions.get(broker_id)
        offset = None if session is None else session.leave_offset
        return offset is not None and all(
            self.applied_offset(other) >= offset
            for other in others
            if other != broker_id and self.is_expected(other, now_ms)
        )

    # --- silence -------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[tuple[NodeId, Offset]]:
        """Return the sessions (broker, broker epoch) that have run out, by ascending broker.

        A stream that was silent for so long feeds them no more: the broker must connect again.
        Each is reported again one time-out later unless it is heard from or removed.
        """
        stalled = now_ms - self._ticked_ms > 2 * self.tick_ms
        self._ticked_ms = now_ms
        if stalled:
            for session in self._sessions.values():
                session.deadline_ms = max(session.deadline_ms, now_ms + self.timeout_ms)
                if session.suspect_ms is not None:
                    session.suspect_ms = max(session.suspect_ms, now_ms + ABSENT_GRACE_MS)
                    session.expected_ms = session.suspect_ms
            return []
        expired = []
        for broker_id, session in sorted(self._sessions.items()):
            if session.deadline_ms <= now_ms:
                session.stream = None
                session.suspect_ms = now_ms + self.timeout_ms
                session.deadline_ms = now_ms + self.timeout_ms
                expired.append((broker_id, session.broker_epoch))
        return expired

    def suspects(self, now_ms: int) -> list[tuple[NodeId, Offset]]:
        """Return who (broker, broker epoch) is suspect now, by ascending broker; after tick().

        Each is named again a grace later, as long as no stream feeds its session.
        """
        found = []
        for broker_id, session in sorted(self._sessions.items()):
            if session.suspect_ms is not None and session.suspect_ms <= now_ms:
                session.suspect_ms = now_ms + BROKEN_GRACE_MS
                found.append((broker_id, session.broker_epoch))
        return found

    def next_look_ms(self, now_ms: int) -> int:
        """Time until there may be somebody to name, at most `tick_ms`, at least 1."""
        moments = [s.suspect_ms for s in self._sessions.values() if s.suspect_ms is not None]
        soonest = min(moments, default=now_ms + self.tick_ms)
        return max(1, min(soonest - now_ms, self.tick_ms))
