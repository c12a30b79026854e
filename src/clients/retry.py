"""Retries of calls: until success, a permanent error, or the limit. The backoff of every retry.

`Retrier` serves the asyncio clients, `BlockingRetrier` processes without an event loop (Spark).
`Attempts` recognises the success of a change with a lost response. The retries of record batches
are in `producer.retry`.

The only module that imports tenacity. Tenacity's clock and randomness are not used: sleep, stop
and wait come from the runtime, so that a simulation is deterministic per seed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception

from ..errors import QuorumlogError, UnknownTopicId, UnknownTopicOrPartition
from ..runtime import Clock, Entropy

T = TypeVar("T")

SHOWN_MAX: Final = 4  # different errors of addresses, and addresses of one error, in a message


def is_retriable(error: BaseException) -> bool:
    """Return True if the error table marks the error as retriable."""
    return isinstance(error, QuorumlogError) and error.retriable


def failures_text(failures: Mapping[str, QuorumlogError]) -> str:
    """Return the errors of calls to several addresses: each text once, with its addresses."""
    if len(failures) == 1:
        return next(iter(failures.values())).message
    addresses: dict[str, list[str]] = {}
    for address, error in failures.items():
        addresses.setdefault(error.message.removeprefix(f"{address}: "), []).append(address)
    parts = [
        f"{', '.join(those[:SHOWN_MAX])}{' and others' * (len(those) > SHOWN_MAX)}: {text}"
        for text, those in list(addresses.items())[:SHOWN_MAX]
    ]
    return "; ".join(parts) + "; and others" * (len(addresses) > SHOWN_MAX)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter: uniform in [w/2, w] with w = min(max, min * 2^n)."""

    entropy: Entropy | None  # None: w without jitter
    wait_ms_min: int
    wait_ms_max: int

    def wait_ms(self, failures: int) -> int:
        """Return the pause after `failures` (>= 1) consecutive failures, in milliseconds, >= 1."""
        doublings = min(failures - 1, 20)  # keeps the shift small; wait_ms_max bounds the pause
        wait_ms = min(self.wait_ms_min << doublings, self.wait_ms_max)
        if self.entropy is None:
            return max(1, wait_ms)
        return max(1, round(self.entropy.uniform(wait_ms / 2, wait_ms)))


@dataclass(frozen=True, slots=True)
class RetryLimit:
    """The limit of retries: a number of attempts, and more of them until the deadline.

    With the time of the next attempt no attempt begins after the deadline; with the time of the
    failure the retries last at least until the deadline.
    """

    deadline_ms: int  # on the clock of the caller
    attempts: int = 1  # made even after the deadline

    def allows(self, failures: int, at_ms: int) -> bool:
        """Return True if another attempt may follow `failures` failed ones; `at_ms` is the time
        that must be before the deadline."""
        return failures < self.attempts or at_ms < self.deadline_ms


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

        limit = RetryLimit(deadline_ms)

        def stop(state: RetryCallState) -> bool:
            next_ms = self.clock.now_ms() + round(state.upcoming_sleep * 1000)
            return not limit.allows(state.attempt_number, next_ms)

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


@dataclass(frozen=True, slots=True)
class BlockingRetrier:
    """Runs attempts in sequence in the calling thread under one backoff policy."""

    now_ms: Callable[[], int]  # monotonic
    sleep: Callable[[float], None]  # in seconds
    backoff: Backoff

    def run(
        self,
        attempt: Callable[[int], T],
        *,
        limit: RetryLimit,
        retry_on: Callable[[BaseException], bool] = is_retriable,
        on_retry: Callable[[int, BaseException], None],
    ) -> T:
        """Call `attempt(failures)` until it returns; call `on_retry(failures, error)` before each
        pause.

        Raises the last error if `retry_on` rejects it, or if the attempt failed at the limit: the
        deadline is a lower bound.
        """

        def stop(state: RetryCallState) -> bool:
            return not limit.allows(state.attempt_number, self.now_ms())

        def wait(state: RetryCallState) -> float:
            return self.backoff.wait_ms(state.attempt_number) / 1000

        def before_sleep(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome is not None else None
            assert error is not None, "a retry without an error"
            on_retry(state.attempt_number, error)

        for turn in Retrying(
            sleep=self.sleep,
            stop=stop,
            wait=wait,
            retry=retry_if_exception(retry_on),
            before_sleep=before_sleep,
            reraise=True,
        ):
            with turn:
                return attempt(turn.retry_state.attempt_number - 1)
        raise AssertionError("tenacity raises the last error")


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
