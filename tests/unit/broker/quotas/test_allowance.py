"""A rate limit on average: bursts, waits, and the upper bound under any requests."""

from hypothesis import given
from hypothesis import strategies as st

from quorumlog.broker.quotas import BURST_MS, WAIT_MS_MAX, TokenBucket


def test_ten_seconds_worth_may_be_taken_at_once() -> None:
    allowance = TokenBucket(per_second=1000, now_ms=5)
    assert allowance.take(9_999, 5) == 0
    assert allowance.take(1, 5) == 0
    assert allowance.take(1, 5) == 1


def test_wait_ends_when_the_debt_is_paid() -> None:
    allowance = TokenBucket(per_second=1000, now_ms=0)
    assert allowance.take(12_500, 0) == 2_500
    assert allowance.take(0, 1_000) == 1_500
    assert allowance.take(0, 2_500) == 0
    assert allowance.take(1, 2_500) == 1


def test_waits_of_several_requests_add_up() -> None:
    allowance = TokenBucket(per_second=1000, now_ms=0)
    allowance.take(10_000, 0)
    assert [allowance.take(500, 0) for _ in range(3)] == [500, 1_000, 1_500]


def test_an_idle_client_gathers_one_burst_and_no_more() -> None:
    allowance = TokenBucket(per_second=1000, now_ms=0)
    allowance.take(10_000, 0)
    assert allowance.take(10_000, 100 * BURST_MS) == 0
    assert allowance.take(1_000, 100 * BURST_MS) == 1_000


def test_wait_is_bounded_and_the_rest_of_the_debt_stays() -> None:
    allowance = TokenBucket(per_second=1, now_ms=0)
    assert allowance.take(10 + 2 * WAIT_MS_MAX / 1000, 0) == WAIT_MS_MAX
    assert allowance.take(0, WAIT_MS_MAX) == WAIT_MS_MAX
    assert allowance.take(0, 2 * WAIT_MS_MAX) == 0


def test_clock_that_goes_back_adds_no_allowance() -> None:
    allowance = TokenBucket(per_second=1000, now_ms=1_000)
    allowance.take(10_000, 1_000)
    assert allowance.take(500, 400) == 500
    assert allowance.take(0, 1_000) == 500


@given(
    rate=st.integers(10_000, 10**9),  # no wait comes near the bound
    requests=st.lists(st.tuples(st.integers(0, 3 * 10**6), st.integers(0, 5_000)), max_size=40),
)
def test_throttled_client_gets_at_most_the_rate_a_burst_and_one_request(
    rate: int, requests: list[tuple[int, int]]
) -> None:
    """In any span of time that starts with a request."""
    allowance = TokenBucket(per_second=rate, now_ms=0)
    now_ms, taken = 0, []
    for units, pause_ms in requests:
        taken.append((now_ms, units))
        now_ms += allowance.take(units, now_ms) + pause_ms
    for first, (began_ms, _) in enumerate(taken):
        total = 0
        for when_ms, units in taken[first:]:
            within = rate * (BURST_MS + when_ms - began_ms) / 1000
            # One request is accepted while any allowance is left; waits are whole milliseconds.
            assert total <= within * 1.000001 + rate / 1000 * len(taken)
            total += units
