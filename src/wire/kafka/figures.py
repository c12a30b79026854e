"""What the Kafka listeners count. Whoever shows it looks; nothing is pushed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...metrics import LATENCY_MS, Histogram


@dataclass(slots=True)
class ApiFigures:
    """The requests of one API key."""

    answered: int = 0
    unanswered: int = 0  # ended their connection instead
    took_ms: Histogram = field(default_factory=lambda: Histogram(LATENCY_MS))  # of the answered
    errors: dict[int, int] = field(default_factory=dict)  # in answers, by code

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count the errors of one answer."""
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


@dataclass(slots=True)
class ListenerFigures:
    """The connections of one listener."""

    open: int = 0
    accepted: int = 0
    refused: int = 0  # beyond the bound, or while the broker stops
    ended: dict[str, int] = field(default_factory=dict)  # by one of `ENDS`


CLIENT, IDLE, SLOW, INVALID = "client", "idle", "slow", "invalid"
FAILED, BROKEN, STOPPED = "failed", "bug", "stopped"
ENDS = (CLIENT, IDLE, SLOW, INVALID, FAILED, BROKEN, STOPPED)
"""Why connections end: by the client, or here, because it asked for nothing, did not go on with a
request that it had begun, sent what is none, could be told of a failure by nothing else (acks=0),
met a bug, or because the broker stops."""

ENDS_OF_BAD_INPUT = (INVALID, BROKEN)
"""Those that no client that does everything right meets."""


class KafkaFigures:
    """All of a broker's Kafka listeners."""

    def __init__(self) -> None:
        self.apis: dict[str, ApiFigures] = {}  # by name, of those that were asked
        self.listeners: dict[str, ListenerFigures] = {}
        self.received_bytes = 0
        self.sent_bytes = 0  # queued for the kernel, with what lies in files
        self.open = 0  # requests that have come and are not answered

    def api(self, name: str) -> ApiFigures:
        """Return the row of a key."""
        found = self.apis.get(name)
        if found is None:
            found = self.apis[name] = ApiFigures()
        return found
