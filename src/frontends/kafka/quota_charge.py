"""Quota charges of requests and the throttle times that result (KIP-13, KIP-124, KIP-219).

A request is answered at once. The response carries the throttle time, and the connection is not
read for that long, so that a client that ignores it is throttled too. This module computes the
throttle time; the connection applies it.

`work_us` is the time for which a request occupied the event loop: its decoding, each step of its
handler, its encoding. Waiting time, and work of other tasks and threads, is not included.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, TypeVar

from .api import Answer, BrokerContext, Call, PreparedResponse

PRODUCE: Final = 0
FETCH: Final = 1

T = TypeVar("T")


def charge(broker: BrokerContext, call: Call, answer: Answer, *, work_us: int = 0) -> int:
    """Charge the client for a response that is about to be sent (None: no response). Return the
    throttle time in ms, 0 for none."""
    throttling = broker.throttling
    if throttling.is_idle:
        return 0
    bytes_out = None
    if call.api.key == FETCH:
        bytes_out = answer.size if isinstance(answer, PreparedResponse) else 0
    return throttling.charge(
        user=call.client.identity.user,
        client_id=call.client_id,
        now_ms=broker.runtime.clock.now_ms(),
        bytes_in=call.size if call.api.key == PRODUCE else None,
        bytes_out=bytes_out,
        work_us=work_us,
    )


def fetch_bytes_max(broker: BrokerContext, call: Call, wanted_bytes: int) -> int:
    """Return the size limit of a fetch response: the requested bytes, bounded by the broker's limit
    and the client's quota."""
    bytes_max = min(wanted_bytes, broker.requests.fetch_bytes_max)
    if broker.throttling.is_idle:
        return bytes_max
    return broker.throttling.fetch_bytes_max(
        bytes_max,
        user=call.client.identity.user,
        client_id=call.client_id,
        now_ms=broker.runtime.clock.now_ms(),
    )


class MeasuredAwaitable(Generic[T]):
    """An awaitable wrapper that measures how long its steps occupy the event loop."""

    __slots__ = ("_now_us", "_work", "work_us")

    def __init__(self, work: Awaitable[T], now_us: Callable[[], int]) -> None:
        """Wrap `work`; `now_us` is a clock that moves within a step: Clock.busy_us."""
        self._work = work
        self._now_us = now_us
        self.work_us = 0

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        send: Callable[[], Any] = steps.__next__
        while True:
            began_us = self._now_us()
            try:
                awaited = send()
            except StopIteration as end:
                outcome: T = end.value
                return outcome
            finally:
                self.work_us += self._now_us() - began_us
            try:
                yield awaited
            # thrown into the wrapped awaitable
            except (Exception, asyncio.CancelledError) as error:
                send = _thrower(steps, error)
            else:
                send = steps.__next__


def _thrower(steps: Generator[Any, Any, T], error: BaseException) -> Callable[[], Any]:
    def throw() -> Any:
        return steps.throw(error)

    return throw
