"""Steps of long work, between which other tasks run."""

import asyncio
from collections.abc import Iterator

from quorumlog.runtime.steps import collect, step_counter


def test_tasks_that_count_together_share_the_steps() -> None:
    """A hundred tasks process as many items between two turns of another task as one task does."""
    step, count = 200, 100

    async def main() -> None:
        take_turn = step_counter(step)
        decided = 0

        async def work() -> None:
            nonlocal decided
            for _ in range(2 * step):
                await take_turn()
                decided += 1

        tasks = [asyncio.ensure_future(work()) for _ in range(count)]
        before = steps = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            assert decided - before <= step
            before, steps = decided, steps + 1
        assert decided == 2 * step * count
        assert steps >= 2 * count

    asyncio.run(main())


def test_cancellation_at_the_end_of_a_step_stops_no_other_task() -> None:
    async def main() -> None:
        take_turn = step_counter(1)
        cancelled, other = (asyncio.ensure_future(take_turn()) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        async with asyncio.timeout(10):
            await other
        assert cancelled.cancelled()

    asyncio.run(main())


def test_items_are_collected_in_steps() -> None:
    async def main() -> None:
        computed = 0

        def items() -> Iterator[int | None]:
            nonlocal computed
            for number in range(10):
                computed += 1
                yield number if number % 2 else None

        collecting = asyncio.ensure_future(collect(items(), 4))
        counts = []
        while not collecting.done():
            await asyncio.sleep(0)
            counts.append(computed)
        assert counts == [4, 8, 10]
        assert await collecting == [1, 3, 5, 7, 9]

    asyncio.run(main())
