"""Time limits and waits of tests on the real runtime.

A generous limit costs nothing if the event occurs early. A limit that a test verifies runs in
virtual time, or is retried if the machine was too busy to meet it.
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
"""Half of pytest's `timeout` of a test."""

AMPLE_MS: Final = 1000 * AMPLE_S

TICK_S: Final = 0.02
ATTEMPTS: Final = 5


def run_patiently(main: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run `main(runtime)` on the real runtime, with a generous connect timeout: by default a call
    fails if the server gets no processor for half a second."""
    return real.run(main, connect_ms=AMPLE_MS)


async def with_time(first_ms: int, check: Callable[[int], Awaitable[None]]) -> None:
    """Run a check with a time limit; retry a failure with ten times the limit, then 30 s."""
    for time_ms in (first_ms, 10 * first_ms):
        try:
            await check(time_ms)
        except (AssertionError, QuorumlogError, pytest.fail.Exception):
            continue
        return
    await check(AMPLE_MS // 2)


def with_blocking_time(first_ms: int, check: Callable[[int], None]) -> None:
    """Run `with_time` for a check that needs no event loop."""

    async def checked(time_ms: int) -> None:
        check(time_ms)

    asyncio.run(with_time(first_ms, checked))


@contextmanager
def watching_stalls() -> Iterator[Callable[[], float]]:
    """Measure the longest time, in seconds, for which a thread of this process did not run."""
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
    """Run `check(attempt)`; retry a failure if this process stalled for `stall_s` or longer."""
    for number in range(ATTEMPTS):
        with watching_stalls() as longest_s:
            try:
                check(number)
            except (AssertionError, QuorumlogError, pytest.fail.Exception):
                if longest_s() < stall_s or number == ATTEMPTS - 1:
                    raise
                continue
        return


async def wait_until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; poll it, since no event signals it."""
    async with asyncio.timeout(AMPLE_S):
        while not condition():  # noqa: ASYNC110 (no event signals it)
            await asyncio.sleep(0.001)


def wait_until_blocking(condition: Callable[[], bool], why: str = "") -> None:
    """Return when the condition holds; raise AssertionError with `why` after AMPLE_S."""
    end = time.monotonic() + AMPLE_S
    while not condition():
        assert time.monotonic() < end, why or "the condition does not hold in time"
        time.sleep(0.01)
