"""Broker sessions of the active controller: soft state, never in the log.

A session belongs to a broker registration (broker epoch) and is kept alive by a stream of
heartbeats. A broker without a heartbeat for the session timeout is fenced. Streams have numbers;
heartbeats of a stream that a newer one has replaced are ignored.

A broker without a stream becomes *suspect* after a short grace time: its stream broke and no new
one was opened, or it has not connected since this leadership began. That is no proof of failure; it
only makes the controller probe the broker's listener.

After a stall of this node's own event loop, and with a new leadership, every session is extended by
one timeout: missing heartbeats may be the fault of this node.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..errors import StaleBrokerEpoch
from ..ids import NodeId, Offset
from .image import BrokerImage

BROKEN_GRACE_MS: Final = 300
"""Time after a broken stream until the broker is suspect."""
ABSENT_GRACE_MS: Final = 1_000
"""Time after the start of a leadership until a broker without a stream is suspect."""


@dataclass(slots=True, kw_only=True)
class _Session:
    """The session of one registered broker."""

    broker_epoch: Offset
    deadline_ms: int  # fence it without a heartbeat until then
    suspect_ms: int | None  # suspect without a stream from then on; None: it has a stream
    stream: int | None  # number of its stream; None: not connected
    applied_offset: Offset  # newest metadata offset that it reported as applied
    expected_ms: int = 0  # without a stream: a new one is expected until then
    # The offset that it must apply before it is unfenced; None: not known to be fenced.
    fenced_offset: Offset | None = None
    leave_offset: Offset | None = None  # of its committed controlled shutdown


class FailedBrokers(NamedTuple):
    """Brokers with their broker epochs, by ascending broker."""

    expired: list[tuple[NodeId, Offset]]  # fence them
    suspects: list[tuple[NodeId, Offset]]  # probe their listeners


class BrokerSessions:
    """The broker sessions of one leadership."""

    def __init__(self, *, timeout_ms: int, tick_ms: int, now_ms: int) -> None:
        """`tick_ms` is the maximum time between two calls of tick(); twice as long is a stall."""
        self.timeout_ms = timeout_ms
        self.tick_ms = tick_ms
        self._sessions: dict[NodeId, _Session] = {}
        self._ticked_ms = now_ms
        self._last_stream = 0

    def begin_leadership(self, brokers: Iterable[BrokerImage], now_ms: int) -> None:
        """Reset all sessions; each broker that is not fenced gets one timeout to connect."""
        self._sessions.clear()
        self._ticked_ms = now_ms
        for broker in brokers:
            if not broker.fenced:
                self._sessions[broker.id] = _Session(
                    broker_epoch=broker.epoch,
                    deadline_ms=now_ms + self.timeout_ms,
                    suspect_ms=now_ms + ABSENT_GRACE_MS,
                    stream=None,
                    applied_offset=Offset(-1),
                    expected_ms=now_ms + ABSENT_GRACE_MS,
                )

    def connect(self, broker_id: NodeId, broker_epoch: Offset, now_ms: int) -> int:
        """Accept a stream of a registered broker, replacing an older one; return its number."""
        self._last_stream += 1
        known = self._sessions.get(broker_id)
        # sometimes if known is not None and known.stream is not None: a stream replaces an open one
        same = known is not None and known.broker_epoch == broker_epoch
        # sometimes if known is not None and not same: a new registration replaces a live session
        self._sessions[broker_id] = _Session(
            broker_epoch=broker_epoch,
            deadline_ms=now_ms + self.timeout_ms,
            suspect_ms=None,
            stream=self._last_stream,
            applied_offset=known.applied_offset if known is not None and same else Offset(-1),
            leave_offset=known.leave_offset if known is not None and same else None,
        )
        return self._last_stream

    def is_connected(self, broker_id: NodeId) -> bool:
        """Return True if the broker has a stream."""
        session = self._sessions.get(broker_id)
        return session is not None and session.stream is not None

    def is_absent(self, broker_id: NodeId, broker_epoch: Offset) -> bool:
        """Return True if the registration has a session without a stream."""
        session = self._sessions.get(broker_id)
        return (
            session is not None and session.broker_epoch == broker_epoch and session.stream is None
        )

    def heartbeat(
        self, broker_id: NodeId, stream: int, *, applied_offset: Offset, now_ms: int
    ) -> None:
        """Extend the session by one timeout and record the applied offset. Raise StaleBrokerEpoch
        if the stream is not the current one: it was replaced, or the session has expired."""
        session = self._current(broker_id, stream)
        if session is None:
            # sometimes: a heartbeat arrives on a replaced or expired stream
            raise StaleBrokerEpoch(f"the session of broker {broker_id} was replaced or has expired")
        session.deadline_ms = now_ms + self.timeout_ms
        session.applied_offset = max(session.applied_offset, applied_offset)

    def disconnect(self, broker_id: NodeId, stream: int, now_ms: int) -> None:
        """Record the end of a stream; the session remains until its deadline."""
        session = self._current(broker_id, stream)
        # sometimes if session is None: a replaced stream of a broker ends
        if session is not None:
            session.stream = None
            session.suspect_ms = session.expected_ms = now_ms + BROKEN_GRACE_MS

    def _current(self, broker_id: NodeId, stream: int) -> _Session | None:
        """Return the session of the broker if the stream is its current one."""
        session = self._sessions.get(broker_id)
        return session if session is not None and session.stream == stream else None

    def may_unfence(self, broker_id: NodeId, newest_offset: Offset, *, fenced: bool) -> bool:
        """Return True if a broker can be unfenced; `fenced` is its state in the newest metadata.

        It must have applied its registration and its fencing. Until then it may assume leaderships
        that have moved, and would accept records that are lost.
        """
        session = self._sessions[broker_id]
        if not fenced:
            session.fenced_offset = None
            return False
        if session.fenced_offset is None:
            session.fenced_offset = newest_offset
        return session.applied_offset >= max(session.broker_epoch, session.fenced_offset)

    def unfenced(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        """Record that the broker was unfenced; a later fencing must be applied again."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.fenced_offset = None

    def remove(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        """Remove the session of a fenced broker, unless it has a new stream."""
        # sometimes if self.is_connected(broker_id): a broker connects while it is fenced
        if self.is_absent(broker_id, broker_epoch):
            del self._sessions[broker_id]

    def applied_offset(self, broker_id: NodeId) -> Offset:
        """Return the newest metadata offset that the broker reported as applied; -1: unknown."""
        session = self._sessions.get(broker_id)
        return Offset(-1) if session is None else session.applied_offset

    def is_awaited(self, broker_id: NodeId, offset: Offset) -> bool:
        """Return True if the broker is connected and has not applied the offset yet."""
        session = self._sessions.get(broker_id)
        return (
            session is not None and session.stream is not None and session.applied_offset < offset
        )

    # --- controlled shutdown -------------------------------------------------------------------

    def leave(self, broker_id: NodeId, broker_epoch: Offset, offset: Offset) -> None:
        """Record that the broker's controlled shutdown is committed at `offset`, where it has no
        leaderships."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.leave_offset = offset

    def may_leave(self, broker_id: NodeId, others: Iterable[NodeId], now_ms: int) -> bool:
        """Return True if every other active broker that is connected or expected has applied the
        move of the leaderships."""
        session = self._sessions.get(broker_id)
        offset = None if session is None else session.leave_offset
        return offset is not None and all(
            self.applied_offset(other) >= offset
            for other in others
            if other != broker_id and self._is_expected(other, now_ms)
        )

    def _is_expected(self, broker_id: NodeId, now_ms: int) -> bool:
        """Return True if the broker has a stream, or is expected to open one soon: its stream has
        just broken, or this leadership has just begun."""
        session = self._sessions.get(broker_id)
        return session is not None and (session.stream is not None or now_ms < session.expected_ms)

    # --- expiry --------------------------------------------------------------------------------

    def tick(self, brokers: Iterable[BrokerImage], now_ms: int) -> FailedBrokers:
        """Return the brokers whose session has expired, and the suspects; `brokers` are all that
        are registered."""
        self._cover(brokers, now_ms)
        expired = self._expire(now_ms)
        return FailedBrokers(expired, self._suspects(now_ms))

    def _cover(self, brokers: Iterable[BrokerImage], now_ms: int) -> None:
        """Create missing sessions of brokers that are not fenced. The stream of a broker may have
        ended while the command that unfenced it was queued; without a session it would never be
        fenced."""
        for broker in brokers:
            if broker.fenced:
                continue
            known = self._sessions.get(broker.id)
            if known is None or known.broker_epoch < broker.epoch:
                # sometimes: a broker is unfenced without a session
                self._sessions[broker.id] = _Session(
                    broker_epoch=broker.epoch,
                    deadline_ms=now_ms + self.timeout_ms,
                    suspect_ms=now_ms + BROKEN_GRACE_MS,
                    stream=None,
                    applied_offset=Offset(-1),
                )

    def _expire(self, now_ms: int) -> list[tuple[NodeId, Offset]]:
        """Drop the streams of expired sessions and return them: these brokers must connect again.

        Each one is returned again one timeout later unless it gets a heartbeat or is removed.
        """
        stalled = now_ms - self._ticked_ms > 2 * self.tick_ms
        self._ticked_ms = now_ms
        if stalled:
            # sometimes: a stall of the controller extends all sessions
            for session in self._sessions.values():
                session.deadline_ms = max(session.deadline_ms, now_ms + self.timeout_ms)
                if session.suspect_ms is not None:
                    session.suspect_ms = max(session.suspect_ms, now_ms + ABSENT_GRACE_MS)
                    session.expected_ms = session.suspect_ms
            return []
        expired = []
        for broker_id, session in sorted(self._sessions.items()):
            if session.deadline_ms <= now_ms:
                # sometimes if session.stream is not None: a session expires with an open stream
                session.stream = None
                session.suspect_ms = now_ms + self.timeout_ms
                session.deadline_ms = now_ms + self.timeout_ms
                expired.append((broker_id, session.broker_epoch))
        return expired

    def _suspects(self, now_ms: int) -> list[tuple[NodeId, Offset]]:
        """Return the suspects; each one is returned again after BROKEN_GRACE_MS until it has a
        stream."""
        found = []
        for broker_id, session in sorted(self._sessions.items()):
            if session.suspect_ms is not None and session.suspect_ms <= now_ms:
                session.suspect_ms = now_ms + BROKEN_GRACE_MS
                found.append((broker_id, session.broker_epoch))
        return found

    def next_look_ms(self, now_ms: int) -> int:
        """Return the time until the next call of tick(), 1 to `tick_ms`."""
        moments = [s.suspect_ms for s in self._sessions.values() if s.suspect_ms is not None]
        soonest = min(moments, default=now_ms + self.tick_ms)
        return max(1, min(soonest - now_ms, self.tick_ms))
