"""The real machine for tests that must not fail where it is busy with other things.

What surely happens is waited for as long as it takes: an ample bound costs nothing where it is met,
and a bound that is the point of a test is tried in virtual time, or judged by what the machine did.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

from quorumlog.errors import QuorumlogError
from quorumlog.runtime import Runtime, real

T = TypeVar("T")

AMPLE_S: Final = 60
"""Half of what the whole test may take (pytest's `timeout`)."""

AMPLE_MS: Final = 1000 * AMPLE_S

TICK_S: Final = 0.02
ATTEMPTS: Final = 5


def run_patiently(main: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run `main(runtime)` on the real machine. An attempt of a channel to connect may take long:
    by default a call fails after half a second in which the other end had no processor."""
    return real.run(main, connect_ms=AMPLE_MS)


async def with_time(first_ms: int, check: Callable[[int], Awaitable[None]]) -> None:
    """Run a check of what happens within a time; where it fails, again with more, and at last with
    an ample one: a busy machine may not come to anything in the first."""
    for time_ms in (first_ms, 10 * first_ms):
        try:
            await check(time_ms)
        except (AssertionError, QuorumlogError, pytest.fail.Exception):
            continue
        return
    await check(AMPLE_MS // 2)


def with_blocking_time(first_ms: int, check: Callable[[int], None]) -> None:
    """The same without a loop."""

    async def checked(time_ms: int) -> None:
        check(time_ms)

    asyncio.run(with_time(first_ms, checked))


@contextmanager
def watching_stalls() -> Iterator[Callable[[], float]]:
    """Measure how long at most another thread of this process was kept from running, in seconds."""
    longest_s, is_over = 0.0, threading.Event()

    def tick() -> None:
        nonlocal longest_s
        before_s = time.monotonic()
        while not is_over.wait(TICK_S):
            now_s = time.monotonic()
            longest_s, before_s = max(longest_s, now_s - before_s - TICK_S), now_s

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield lambda: longest_s
    finally:
        is_over.set()
        thread.join()


def undisturbed(check: Callable[[int], None], *, stall_s: float) -> None:
    """Run a check, with its number, of what holds as long as no process is kept from running for
    long; again where it fails and this one was, for `stall_s` or more."""
    for number in range(ATTEMPTS):
        with watching_stalls() as longest_s:
            try:
                check(number)
            except (AssertionError, QuorumlogError, pytest.fail.Exception):
                if longest_s() < stall_s or number == ATTEMPTS - 1:
                    raise
                continue
        return
