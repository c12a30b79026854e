"""The event log of a run, and its hash.

An event is (virtual ns, node, port call or delivery, digest of arguments and result). Log lines,
clock reads and draws are not events. A seed must give the same hash under any PYTHONHASHSEED; if it
does not, the first differing line locates the nondeterminism.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from .process import Process

LINES_KEPT: Final = 200  # for the report of a failure


def digest(*buffers: bytes | bytearray | memoryview) -> str:
    """Return a short hex digest of bytes."""
    hashed = hashlib.blake2b(digest_size=6)
    for buffer in buffers:
        hashed.update(buffer)
    return hashed.hexdigest()


class EventLog:
    """A hash over all events, and the last events as text."""

    def __init__(
        self, now_ns: Callable[[], int], *, trace: Callable[[str], None] | None = None
    ) -> None:
        """`now_ns` returns the virtual time; `trace` receives every line."""
        self.count = 0
        self._now_ns = now_ns
        self._hash = hashlib.blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=LINES_KEPT)
        self._trace = trace

    def record(self, process: Process | None, what: str, detail: str) -> None:
        """Append an event of a process, or of the network itself."""
        line = f"{self._now_ns()} {'-' if process is None else repr(process)} {what} {detail}"
        self.count += 1
        self._hash.update(line.encode())
        self._last.append(line)
        if self._trace is not None:
            self._trace(line)

    def hash(self) -> str:
        """Return the digest of all events so far, 32 hex digits."""
        return self._hash.hexdigest()

    def last(self, count: int) -> Sequence[str]:
        """Return the last `count` events, oldest first."""
        return list(self._last)[-count:]
