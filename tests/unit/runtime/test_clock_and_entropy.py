"""Clocks and randomness, on both runtimes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from quorumlog.runtime import Entropy, Runtime

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]


def test_clock_is_the_loops_time(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(20):
            before_ms = loop.time() * 1000
            now_ms = runtime.clock.now_ms()
            assert before_ms - 1 <= now_ms <= loop.time() * 1000 + 1
            await asyncio.sleep(0.001)

    run(main)


def test_timer_fires_no_earlier_than_the_clock_says(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        for wait_ms in (1, 2, 3, 7, 19):
            before = runtime.clock.now_ms()
            await asyncio.sleep(wait_ms / 1000)
            assert runtime.clock.now_ms() - before >= wait_ms

    run(main)


def test_wall_clock_counts_milliseconds_since_1970(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        assert 1_500_000_000_000 < runtime.clock.wall_ms() < 4_000_000_000_000

    run(main)


def test_busy_microseconds_never_decrease_and_advance_with_the_loop(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        before_us = runtime.clock.busy_us()
        seen = [runtime.clock.busy_us() for _ in range(100)]
        assert seen == sorted(seen)
        await asyncio.sleep(0.02)
        assert runtime.clock.busy_us() - before_us >= 19_000

    run(main)


def draws(entropy: Entropy) -> list[object]:
    return [entropy.below(1 << 60), entropy.uniform(-1.0, 1.0), entropy.token(100)]


def test_draws_of_one_stream_never_shift_another(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        first = draws(runtime.entropy.stream("a"))
        draws(runtime.entropy)
        draws(runtime.entropy.stream("b"))
        assert draws(runtime.entropy.stream("a")) == first

    run(main)


def test_streams_differ_by_purpose_and_by_path(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        entropy = runtime.entropy
        tokens = {
            stream.token(16)
            for stream in (
                entropy,
                entropy.stream("a"),
                entropy.stream("b"),
                entropy.stream("a").stream("b"),
                entropy.stream("b").stream("a"),
                entropy.stream("ab"),
            )
        }
        assert len(tokens) == 6

    run(main)


def test_draws_stay_within_their_bounds(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        stream = runtime.entropy.stream("bounds")
        assert {stream.below(3) for _ in range(200)} == {0, 1, 2}
        assert stream.below(1) == 0
        assert all(2.0 <= stream.uniform(2.0, 3.0) <= 3.0 for _ in range(100))
        assert [len(stream.token(size)) for size in (0, 1, 16, 64, 65, 1000)] == [
            0,
            1,
            16,
            64,
            65,
            1000,
        ]
        assert stream.token(16) != stream.token(16)

    run(main)
