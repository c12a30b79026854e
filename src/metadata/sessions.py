"""Which brokers the active controller hears from: soft state, never in the log.

A session belongs to a broker and its registration (broker epoch); a stream feeds it. A broker that
is silent for the time-out is to be fenced. Streams are told apart by a number: what an old stream
still delivers after a newer one was accepted counts for nothing.

After a stall of this node's own loop, or with a new leadership, every session is extended by one
time-out: silence that may be our own deafness proves nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ..ids import NodeId, Offset
from .image import BrokerImage


@dataclass(slots=True, kw_only=True)
class BrokerSession:
    """What is known of one registered broker."""

    broker_epoch: Offset
    deadline_ms: int  # silent until then: fence it
    stream: int | None  # number of the live stream that feeds it; None: none is connected
    applied_offset: Offset  # newest metadata offset it said it has applied


class BrokerSessions:
    """The sessions of one leadership."""

    def __init__(self, *, timeout_ms: int, tick_ms: int, now_ms: int) -> None:
        """`tick_ms` is how often tick() is meant to be called: much later means a stall."""
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
            stream=self._last_stream,
            applied_offset=known.applied_offset if known is not None and same else Offset(-1),
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

    def heartbeat(
        self, broker_id: NodeId, stream: int, *, applied_offset: Offset, now_ms: int
    ) -> None:
        """The broker is alive; the stream must be current."""
        assert self.is_current(broker_id, stream), f"broker {broker_id}: stream {stream} is old"
        session = self._sessions[broker_id]
        session.deadline_ms = now_ms + self.timeout_ms
        session.applied_offset = max(session.applied_offset, applied_offset)

    def disconnect(self, broker_id: NodeId, stream: int) -> None:
        """The stream ended; the session goes on until its deadline."""
        if self.is_current(broker_id, stream):
            self._sessions[broker_id].stream = None

    def remove(self, broker_id: NodeId, broker_epoch: Offset) -> None:
        """The broker was fenced: its session is over, unless a new stream feeds it by now."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch and session.stream is None:
            del self._sessions[broker_id]

    def applied_offset(self, broker_id: NodeId) -> Offset:
        """Newest metadata offset that the broker said it has applied, -1: unknown."""
        session = self._sessions.get(broker_id)
        return Offset(-1) if session is None else session.applied_offset

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
            return []
        expired = []
        for broker_id, session in sorted(self._sessions.items()):
            if session.deadline_ms <= now_ms:
                session.stream = None
                session.deadline_ms = now_ms + self.timeout_ms
                expired.append((broker_id, session.broker_epoch))
        return expired
