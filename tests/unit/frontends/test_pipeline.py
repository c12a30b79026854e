"""The bound on a stream's requests in flight."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from quorumlog import simulation
from quorumlog.frontends.grpc.pipeline import Pipeline
from quorumlog.runtime import Runtime


def run(main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    simulation.run(main)


def test_requests_in_flight_are_bounded_in_number_until_answered() -> None:
    async def main(runtime: Runtime) -> None:
        pipeline: Pipeline[str] = Pipeline(count_max=2, bytes_max=1000)
        for entry in ("a", "b"):
            await pipeline.room(1)
            pipeline.put(entry, 1)
        async with runtime.tasks.scope("test") as scope:
            waiting = scope.spawn(pipeline.room(1), name="room")
            assert await pipeline.take() == ("a", 1)
            await asyncio.sleep(0)
            assert not waiting.done(), "a taken request is not answered yet"
            pipeline.answered(1)
            await waiting

    run(main)


def test_requests_in_flight_are_bounded_in_bytes_except_for_a_single_one() -> None:
    async def main(runtime: Runtime) -> None:
        pipeline: Pipeline[str] = Pipeline(count_max=100, bytes_max=10)
        await pipeline.room(50)
        pipeline.put("large", 50)
        async with runtime.tasks.scope("test") as scope:
            waiting = scope.spawn(pipeline.room(1), name="room")
            await asyncio.sleep(0)
            assert not waiting.done()
            taken = await pipeline.take()
            assert taken == ("large", 50)
            pipeline.answered(50)
            await waiting

    run(main)


def test_entries_are_returned_in_order_and_then_the_end() -> None:
    async def main(runtime: Runtime) -> None:
        pipeline: Pipeline[int] = Pipeline(count_max=10, bytes_max=10)
        taken: list[tuple[int, int] | None] = []

        async def take() -> None:
            while (entry := await pipeline.take()) is not None:
                taken.append(entry)
            taken.append(None)

        async with runtime.tasks.scope("test") as scope:
            scope.spawn(take(), name="take")
            for number in range(3):
                pipeline.put(number, 0)
                await asyncio.sleep(0)
            pipeline.close()
        assert taken == [(0, 0), (1, 0), (2, 0), None]

    run(main)
