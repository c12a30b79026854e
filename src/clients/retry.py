"""Retries of a call: until it succeeds, fails with a permanent error, or its deadline is near.

The only module that imports tenacity. Tenacity's clock and randomness are not used: sleep, stop
and wait come from the runtime, so that a simulation is deterministic per seed. `Attempts`
recognises the success of a change with a lost response. Record batches have their own retries, see
`producer.sender`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ..errors import QuorumlogError, UnknownTopicId, UnknownTopicOrPartition
from ..runtime import Clock, Entropy

T = TypeVar("T")


def is_retriable(error: BaseException) -> bool:
    """Return True if the error table marks the error as retriable."""
    return isinstance(error, QuorumlogError) and error.retriable


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter: uniform in [w/2, w] with w = min(max, min * 2^n)."""

    entropy: Entropy
    wait_ms_min: int
    wait_ms_max: int

    def wait_ms(self, failures: int) -> int:
        """Return the pause after `failures` (>= 1) consecutive failures, in milliseconds, >= 1."""
        doublings = min(failures - 1, 20)  # keeps the shift small; wait_ms_max bounds the pause
        wait_ms = min(self.wait_ms_min << doublings, self.wait_ms_max)
        return max(1, round(self.entropy.uniform(wait_ms / 2, wait_ms)))


@dataclass(frozen=True, slots=True)
class Retrier:
    """Runs attempts in sequence under one backoff policy."""

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

        Raises the last error if `retry_on` rejects it, or if the next attempt would begin after
        the deadline. The first attempt always runs, with at least 1 ms.
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


class Attempts:
    """The attempts of one call; records whether one of them may have been executed.

    `refusals` are retriable errors after which certainly nothing was changed.
    """

    def __init__(
        self,
        *,
        refusals: tuple[type[BaseException], ...] = (),
        may_retry: Callable[[BaseException], bool] = is_retriable,
    ) -> None:
        self.is_outcome_unknown = False
        self._refusals = refusals
        self._may_retry = may_retry

    def retry_on(self, error: BaseException) -> bool:
        """Return True if the call is to be retried after this error."""
        again = self._may_retry(error)
        if again and not isinstance(error, self._refusals):
            self.is_outcome_unknown = True
        return again


def is_retriable_change(error: BaseException) -> bool:
    """Return True if a retry may succeed; a topic that the controller does not have stays
    absent."""
    return is_retriable(error) and not is_absent(error)


def is_absent(error: BaseException) -> bool:
    """Return True if the error says that the topic does not exist."""
    return isinstance(error, UnknownTopicOrPartition | UnknownTopicId)
