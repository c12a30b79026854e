"""Answers with so much in them that encoding them would hold the loop up: a thread does it."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from . import messages
from .api import Answer, Call, Door, Fields, Part, Prepared

ELEMENTS_ON_THE_LOOP_MAX: Final = 500
"""An answer with more of them is encoded in a thread: 500 take about ten milliseconds."""

_THROTTLE: Final = Struct(">i")


class Encoded(Prepared):
    """What is bytes already."""

    __slots__ = ("_body", "_errors", "_has_throttle_time")

    def __init__(self, body: bytes, errors: Sequence[int], has_throttle_time: bool) -> None:
        self._body = body
        self._errors = errors
        self._has_throttle_time = has_throttle_time  # at its start

    @property
    def error_codes(self) -> Sequence[int]:
        """The errors in it."""
        return self._errors

    def parts(self, throttle_ms: int) -> Sequence[Part]:
        """Return the body, with the throttle time where there is room for it."""
        if not self._has_throttle_time:
            return [self._body]
        return [_THROTTLE.pack(throttle_ms), memoryview(self._body)[_THROTTLE.size :]]


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
