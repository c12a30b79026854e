"""Retries: bounded by the deadline, with jitter, only of retriable errors."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.clients.retry import Backoff, BlockingRetrier, Retrier, RetryLimit, failures_text
from quorumlog.errors import InvalidRequest, OutcomeUnknown, QuorumlogError
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy


def test_waits_double_up_to_the_maximum_with_jitter() -> None:
    backoff = Backoff(SimEntropy("seed/1"), wait_ms_min=100, wait_ms_max=1_000)
    for failures, most in ((1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (500, 1_000)):
        waits = [backoff.wait_ms(failures) for _ in range(50)]
        assert all(most / 2 <= wait <= most for wait in waits)
        assert len(set(waits)) > 1


def simulated(main: Callable[[Runtime, Retrier], Coroutine[Any, Any, None]]) -> None:
    async def with_retrier(runtime: Runtime) -> None:
        backoff = Backoff(runtime.entropy.stream("test"), wait_ms_min=100, wait_ms_max=400)
        await main(runtime, Retrier(runtime.clock, backoff))

    simulation.run(with_retrier)


def test_last_error_is_raised_before_the_deadline() -> None:
    async def main(runtime: Runtime, retrier: Retrier) -> None:
        calls: list[int] = []

        async def attempt(remaining_ms: int) -> None:
            calls.append(remaining_ms)
            raise OutcomeUnknown(f"attempt {len(calls)}")

        began_ms = runtime.clock.now_ms()
        with pytest.raises(OutcomeUnknown, match=f"attempt {len(calls) or ''}"):
            await retrier.run(attempt, deadline_ms=began_ms + 2_000)
        assert runtime.clock.now_ms() < began_ms + 2_000
        assert len(calls) > 4
        assert calls == sorted(calls, reverse=True)

    simulated(main)


def test_non_retriable_error_is_not_retried() -> None:
    async def main(runtime: Runtime, retrier: Retrier) -> None:
        calls: list[int] = []

        async def attempt(remaining_ms: int) -> None:
            calls.append(remaining_ms)
            raise InvalidRequest("no")

        with pytest.raises(InvalidRequest):
            await retrier.run(attempt, deadline_ms=runtime.clock.now_ms() + 2_000)
        assert len(calls) == 1

    simulated(main)


def test_a_deadline_in_the_past_still_allows_one_attempt() -> None:
    async def main(runtime: Runtime, retrier: Retrier) -> None:
        async def attempt(remaining_ms: int) -> int:
            return remaining_ms

        assert await retrier.run(attempt, deadline_ms=runtime.clock.now_ms() - 5) == 1

    simulated(main)


def test_blocking_retries_last_until_the_deadline_at_least() -> None:
    clock_ms = 0
    attempts: list[int] = []

    def sleep(pause_s: float) -> None:
        nonlocal clock_ms
        clock_ms += round(pause_s * 1000)

    def attempt(failures: int) -> None:
        attempts.append(failures)
        raise OutcomeUnknown("no response")

    retrier = BlockingRetrier(lambda: clock_ms, sleep, Backoff(None, 100, 400))
    for limit, ends_ms in (
        (RetryLimit(1_000), 1_100),  # pauses of 100, 200 and then 400 ms
        (RetryLimit(0, attempts=3), 300),
    ):
        clock_ms = 0
        attempts.clear()
        with pytest.raises(OutcomeUnknown):
            retrier.run(attempt, limit=limit, on_retry=lambda failures, error: None)
        assert clock_ms == ends_ms
        assert attempts == list(range(len(attempts)))
    assert len(attempts) == 3


def test_errors_of_addresses_are_named_once_and_are_bounded() -> None:
    assert failures_text({"a:1": OutcomeUnknown("a:1: down")}) == "a:1: down"
    down: dict[str, QuorumlogError] = {f"a:{n}": OutcomeUnknown(f"a:{n}: down") for n in range(9)}
    text = failures_text({**down, "b:1": OutcomeUnknown("b:1: other")})
    assert text == "a:0, a:1, a:2, a:3 and others: down; b:1: other"
    many: dict[str, QuorumlogError] = {f"a:{n}": OutcomeUnknown(f"{n}") for n in range(9)}
    assert failures_text(many) == "a:0: 0; a:1: 1; a:2: 2; a:3: 3; and others"
