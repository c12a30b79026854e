"""The event hash: what a run did at its ports, in order, as one digest.

An event is (virtual ns, node, port call or delivery, digest of arguments and result). Logs, clock
reads and draws are not events. Two runs of one seed must give one hash under any PYTHONHASHSEED;
where they do not, the first line that differs says where the order leaked.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

LINES_KEPT: Final = 200  # for the report of a failure


def digest(*buffers: bytes | bytearray | memoryview) -> str:
    """Return a short hex digest of bytes."""
    hashed = hashlib.blake2b(digest_size=6)
    for buffer in buffers:
        hashed.update(buffer)
    return hashed.hexdigest()


class EventLog:
    """Hashes every event and keeps the last ones as text."""

    def __init__(self, *, trace: Callable[[str], None] | None = None) -> None:
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=LINES_KEPT)
        self._trace = trace  # takes every line; None: nobody

    def record(self, now_ns: int, node: str, what: str, detail: str) -> None:
        """Add one event."""
        line = f"{now_ns} {node} {what} {detail}"
        self.count += 1
        self._hash.update(line.encode())
        self._last.append(line)
        if self._trace is not None:
            self._trace(line)

    def hash(self) -> str:
        """The digest of all events so far, 32 hex digits."""
        return self._hash.hexdigest()

    def last(self, count: int) -> Sequence[str]:
        """The last events, oldest first."""
        return list(self._last)[-count:]
