"""The events of a run as five numbers each: their digest, the last ones as text, and a trace.

The digest of the numbers is the event hash. Text is formatted only when it is read.
"""

import hashlib
from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

FIELDS: Final = 5


class EventKind(IntEnum):
    """The kinds of events."""

    DELIVER = 0
    TICK = 1
    TURN = 2  # the effects of several inputs were fetched together
    WRITE = 3  # a step of a write is durable
    PERSISTED = 4
    READ = 5  # entries or a snapshot chunk were read for sending
    APPLY = 6
    PROPOSE = 7
    READ_INDEX = 8
    UNREACHABLE = 9
    SNAPSHOT = 10
    ADD_VOTER = 11
    REMOVE_VOTER = 12
    TRANSFER = 13
    RESIGN = 14
    CRASH = 15
    START = 16
    PAUSE = 17
    RESUME = 18
    JUMP = 19
    WIPE = 20
    CUT = 21  # links were cut
    HEAL = 22
    CLOG = 23
    RELEASE = 24  # messages that waited for a write were sent
    PHASE = 25


class EventRecorder:
    """The event log: (virtual us, code, epoch, high watermark, log end) of every event.

    The code is kind * 65536 + message type * 256 + sender * 16 + node.
    """

    __slots__ = ("numbers",)

    def __init__(self) -> None:
        self.numbers = array("q")

    @property
    def count(self) -> int:
        """The number of recorded events."""
        return len(self.numbers) // FIELDS

    def hash(self) -> str:
        """Return the digest of all events, 32 hex digits."""
        return hashlib.blake2b(self.numbers.tobytes(), digest_size=16).hexdigest()

    def lines(self, messages: tuple[str, ...], *, last: int | None = None) -> Iterator[str]:
        """Yield the events as text, oldest first; `messages` are the names of the message types."""
        first = 0 if last is None else max(0, self.count - last)
        for index in range(first * FIELDS, len(self.numbers), FIELDS):
            now_us, code, epoch, high_watermark, end = self.numbers[index : index + FIELDS]
            what, node = EventKind(code >> 16).name.lower(), code & 15
            if code >> 16 == EventKind.DELIVER:
                what = f"deliver {messages[code >> 8 & 255]} of n{code >> 4 & 15}"
            node_name = f"n{node}" if node else "--"
            state = f"epoch={epoch} hw={high_watermark} end={end}"
            yield f"{now_us / 1e6:12.6f} {node_name} {what:<34} {state}"
