"""Encoding of large responses in a thread, so that it does not block the event loop."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from . import messages
from .api import Answer, BrokerContext, Call, Fields, Part, PreparedResponse

ELEMENTS_ON_THE_LOOP_MAX: Final = 500
"""A response with more elements is encoded in a thread: 500 take about ten milliseconds."""

_THROTTLE: Final = Struct(">i")


class EncodedResponse(PreparedResponse):
    """A response that is encoded already."""

    __slots__ = ("_body", "_errors", "_has_throttle_time")

    def __init__(self, body: bytes, errors: Sequence[int], has_throttle_time: bool) -> None:
        self._body = body
        self._errors = errors
        self._has_throttle_time = has_throttle_time  # as its first field

    @property
    def error_codes(self) -> Sequence[int]:
        """The error codes in the response."""
        return self._errors

    def parts(self, throttle_ms: int) -> Sequence[Part]:
        """Return the body, with the throttle time if it is the first field."""
        if not self._has_throttle_time:
            return [self._body]
        return [_THROTTLE.pack(throttle_ms), memoryview(self._body)[_THROTTLE.size :]]


async def encode_if_large(
    broker: BrokerContext, call: Call, answer: Fields, *, elements: int
) -> Answer:
    """Return a response as it is or, if it has many `elements` (structs, approximately), encoded.
    An encoded response carries a throttle time only as its first field.

    A generator in `answer` is consumed in the thread too.
    """
    if elements <= ELEMENTS_ON_THE_LOOP_MAX:
        return answer
    api, version = call.api, call.version
    errors: list[int] = []
    body = await broker.runtime.tasks.offload(
        "cpu", lambda: messages.encode(api, version, answer, errors=errors)
    )
    return EncodedResponse(body, errors, messages.begins_with_throttle_time(api, version))
