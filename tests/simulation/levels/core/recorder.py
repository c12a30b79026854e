"""Every event of a run as five numbers: their digest, the last ones as text, and a trace on demand.

A number more or less is a different run, so the digest is the event hash. Text is made only when
somebody wants to read it.
"""

import hashlib
from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

FIELDS: Final = 5


class What(IntEnum):
    """What happened at a member."""

    DELIVER = 0
    TICK = 1
    TURN = 2  # the effects of several inputs were fetched at once
    WRITE = 3  # a step of a write is durable
    PERSISTED = 4
    READ = 5  # entries or a piece of a snapshot were read, to be sent
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
    RELEASE = 24  # messages that had waited for a write were sent
    PHASE = 25


class Recorder:
    """The flight recorder: (virtual us, code, epoch, high watermark, log end) of every event.

    The code is what * 65536 + kind of message * 256 + sender * 16 + node.
    """

    __slots__ = ("numbers",)

    def __init__(self) -> None:
        self.numbers = array("q")

    @property
    def count(self) -> int:
        """How many events were recorded."""
        return len(self.numbers) // FIELDS

    def hash(self) -> str:
        """The digest of all events, 32 hex digits."""
        return hashlib.blake2b(self.numbers.tobytes(), digest_size=16).hexdigest()

    def lines(self, messages: tuple[str, ...], *, last: int | None = None) -> Iterator[str]:
        """The events as text, oldest first; `messages` names the kinds of messages."""
        first = 0 if last is None else max(0, self.count - last)
        for index in range(first * FIELDS, len(self.numbers), FIELDS):
            now_us, code, epoch, high_watermark, end = self.numbers[index : index + FIELDS]
            what, node = What(code >> 16).name.lower(), code & 15
            if code >> 16 == What.DELIVER:
                what = f"deliver {messages[code >> 8 & 255]} of n{code >> 4 & 15}"
            who = f"n{node}" if node else "--"
            state = f"epoch={epoch} hw={high_watermark} end={end}"
            yield f"{now_us / 1e6:12.6f} {who} {what:<34} {state}"
