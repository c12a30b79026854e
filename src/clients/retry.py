"""Repeat a call until it succeeds, fails for good, or its deadline is near.

The one place that imports tenacity. Its clock and its randomness are never used: sleep, stop and
wait are built on the runtime, so that a simulated client repeats exactly as the seed says. Every
wait is bounded by the caller's deadline, and the last error is what the caller gets.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ..errors import QuorumlogError
from ..runtime import Clock, Entropy

T = TypeVar("T")


def is_retriable(error: BaseException) -> bool:
    """Whether the error table says that the same request may succeed when it is sent again."""
    return isinstance(error, QuorumlogError) and error.retriable


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling waits with full jitter in the upper half: [w/2, w] with w = min * 2^n up to max."""

    entropy: Entropy
    wait_ms_min: int
    wait_ms_max: int

    def wait_ms(self, failures: int) -> int:
        """Return the wait after `failures` (>= 1) failures in a row, in milliseconds, >= 1."""
        doublings = min(failures - 1, 20)  # 2^20 is above every sensible maximum
        wait_ms = min(self.wait_ms_min << doublings, self.wait_ms_max)
        return max(1, round(self.entropy.uniform(wait_ms / 2, wait_ms)))


@dataclass(frozen=True, slots=True)
class Retrier:
    """Runs attempts one after another under one policy."""

    clock: Clock
    backoff: Backoff

    async def run(
        self,
        attempt: Callable[[int], Awaitable[T]],
        *,
        deadline_ms: int,
        retry_on: Callable[[BaseException], bool] = is_retriable,
    ) -> T:
        """Call `attempt(remaining_ms)` until it returns; `deadline_ms` is on clock.now_ms().

        Raises the last error when it may not be repeated, or when the next attempt would begin
        after the deadline. The first attempt always runs, with at least 1 ms.
        """

        def stop(state: RetryCallState) -> bool:
            return self.clock.now_ms() + state.upcoming_sleep * 1000 >= deadline_ms

        def wait(state: RetryCallState) -> float:
            return self.backoff.wait_ms(state.attempt_number) / 1000

        async def once() -> T:
            return await attempt(max(1, deadline_ms - self.clock.now_ms()))

        retrying = AsyncRetrying(
            sleep=asyncio.sleep,
            stop=stop,
            wait=wait,
            retry=retry_if_exception(retry_on),
            reraise=True,
        )
        return await retrying(once)
