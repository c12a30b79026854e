"""Answers with so much in them that encoding them would hold the loop up: a thread does it."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from . import messages
from .api import Answer, Call, Door, Fields, Part

ELEMENTS_ON_THE_LOOP_MAX: Final = 500
"""An answer with more of them is encoded in a thread: 500 take about ten milliseconds."""

_THROTTLE: Final = Struct(">i")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A `Prepared` that is bytes already."""

    body: bytes
    error_codes: Sequence[int]
    has_throttle_time: bool  # at its start

    @property
    def size(self) -> int:
        """It holds no records."""
        return 0

    def parts(self, throttle_ms: int) -> Sequence[Part]:
        """Return the body, with the throttle time where there is room for it."""
        if not self.has_throttle_time:
            return [self.body]
        return [_THROTTLE.pack(throttle_ms), memoryview(self.body)[_THROTTLE.size :]]

    def release(self) -> None:
        """Nothing is held."""


async def encoded(door: Door, call: Call, answer: Fields, *, elements: int) -> Answer:
    """Return an answer as it is or, where `elements` (structures in it, at least roughly) are many,
    as bytes. Only the start of an answer has room for a throttle time then.

    What makes its parts as they are asked for (a generator) makes them in the thread too.
    """
    if elements <= ELEMENTS_ON_THE_LOOP_MAX:
        return answer
    api, version = call.api, call.version
    errors: list[int] = []
    body = await door.runtime.tasks.offload(
        "cpu", lambda: messages.encode(api, version, answer, errors=errors)
    )
    return Encoded(body, errors, messages.begins_with_throttle_time(api, version))
