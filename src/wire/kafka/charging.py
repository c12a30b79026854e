"""What a request costs its client, and for how long the client has to wait for that (KIP-13,
KIP-124, KIP-219).

A request is answered at once; the answer says how long the client should keep still, and the
connection is not read for as long, so that one which does not obey waits too. What a client waits
for is found here; the waiting is the connection's.

`work_us` is the time for which a request kept the loop: its decoding, each step of its handler, its
encoding. What it waited for is not in it, nor what other tasks and threads did for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, TypeVar

from .api import Answer, Call, Door, Prepared

PRODUCE: Final = 0
FETCH: Final = 1

T = TypeVar("T")


def charge(door: Door, call: Call, answer: Answer, *, work_us: int = 0) -> int:
    """Charge the client of an answer that is about to leave (None: none will); returns for how many
    milliseconds its connection must not be read, 0: not at all."""
    throttling = door.throttling
    if throttling.is_idle:
        return 0
    bytes_out = None
    if call.api.key == FETCH:
        bytes_out = answer.size if isinstance(answer, Prepared) else 0
    return throttling.charge(
        user=call.client.user,
        client_id=call.client_id,
        now_ms=door.runtime.clock.now_ms(),
        bytes_in=call.size if call.api.key == PRODUCE else None,
        bytes_out=bytes_out,
        work_us=work_us,
    )


def fetch_bytes_max(door: Door, call: Call, wanted_bytes: int) -> int:
    """Return how many bytes a fetch is answered with at most: what it wants, as far as the broker's
    bound and the client's quota go."""
    bytes_max = min(wanted_bytes, door.settings.fetch_bytes_max)
    if door.throttling.is_idle:
        return bytes_max
    return door.throttling.fetch_bytes_max(
        bytes_max,
        user=call.client.user,
        client_id=call.client_id,
        now_ms=door.runtime.clock.now_ms(),
    )


class Measured(Generic[T]):
    """Awaits something and adds up for how long its steps keep the loop."""

    __slots__ = ("_now_us", "_work", "work_us")

    def __init__(self, work: Awaitable[T], now_us: Callable[[], int]) -> None:
        """`now_us` is a clock that moves within a step: Clock.busy_us."""
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
            except (Exception, asyncio.CancelledError) as error:  # for who waits in the work
                send = _thrower(steps, error)
            else:
                send = steps.__next__


def _thrower(steps: Generator[Any, Any, T], error: BaseException) -> Callable[[], Any]:
    def throw() -> Any:
        return steps.throw(error)

    return throw
