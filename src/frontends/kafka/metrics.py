"""Counters of the Kafka listeners, read by the metrics collectors."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...metrics import LATENCY_MS, Histogram


@dataclass(slots=True)
class ApiMetrics:
    """Counters of one API key."""

    answered: int = 0
    usual: int = 0  # begun in the short way, by `run` or `at_once`
    unanswered: int = 0  # their connection ended instead
    # of answered requests
    took_ms: Histogram = field(default_factory=lambda: Histogram(LATENCY_MS))
    errors: dict[int, int] = field(default_factory=dict)  # error codes in responses, with counts

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count the error codes of one response."""
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


@dataclass(slots=True)
class ListenerMetrics:
    """Counters of one listener's connections."""

    open: int = 0
    accepted: int = 0
    refused: int = 0  # over a connection limit, or during shutdown
    ended: dict[str, int] = field(default_factory=dict)  # by reason, one of `ENDS`


CLIENT, IDLE, SLOW, INVALID = "client", "idle", "slow", "invalid"
FAILED, BROKEN, STOPPED = "failed", "bug", "stopped"
UNAUTHENTICATED, FULL = "unauthenticated", "full"
ENDS = (CLIENT, IDLE, SLOW, INVALID, FAILED, BROKEN, STOPPED, UNAUTHENTICATED, FULL)
"""Reasons for the end of a connection: closed by the client; idle; too slow to complete a request;
invalid request; a failure without a response (acks=0); a bug; broker shutdown; a failed handshake
of TLS or authentication, or a credential that has changed; a limit of connections."""

ENDS_OF_BAD_INPUT = (INVALID, BROKEN)
"""Reasons that a correct client never causes."""


class KafkaMetrics:
    """Counters of all Kafka listeners of a broker."""

    def __init__(self) -> None:
        self.apis: dict[str, ApiMetrics] = {}  # by name, of the keys that were requested
        self.listeners: dict[str, ListenerMetrics] = {}
        self.received_bytes = 0
        self.sent_bytes = 0  # queued for the socket, file ranges included
        self.open = 0  # requests received and not answered

    def api(self, name: str) -> ApiMetrics:
        """Return the counters of a key."""
        found = self.apis.get(name)
        if found is None:
            found = self.apis[name] = ApiMetrics()
        return found
