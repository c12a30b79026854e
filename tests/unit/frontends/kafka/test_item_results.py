"""Requests of many items."""

import asyncio

from quorumlog.frontends.kafka.item_results import (
    PARTS_A_STEP,
    PARTS_AT_ONCE,
    repeated,
)
from quorumlog.runtime.steps import step_counter


class Name:
    """A name that counts how often it is compared."""

    compared = 0

    def __init__(self, name: str) -> None:
        self._name = name

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return isinstance(other, Name) and self._name == other._name


def test_duplicates_are_found_in_linear_time() -> None:
    """A request may have a million items: a quadratic comparison would block the loop for hours."""
    count = 1_000
    twice = repeated(Name(str(index % count)) for index in range(2 * count))
    assert len(twice) == count
    Name.compared = 0
    assert all(Name(str(index)) in twice for index in range(count))
    assert Name("other") not in twice
    assert Name.compared < 3 * count


def test_tasks_that_count_together_share_the_steps() -> None:
    """A hundred tasks process as many items between two turns of another task as one task does."""

    async def main() -> None:
        take_turn = step_counter(PARTS_A_STEP)
        decided = 0

        async def work() -> None:
            nonlocal decided
            for _ in range(2 * PARTS_A_STEP):
                await take_turn()
                decided += 1

        tasks = [asyncio.ensure_future(work()) for _ in range(PARTS_AT_ONCE)]
        before = steps = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            assert decided - before <= PARTS_A_STEP
            before, steps = decided, steps + 1
        assert decided == 2 * PARTS_A_STEP * PARTS_AT_ONCE
        assert steps >= 2 * PARTS_AT_ONCE

    asyncio.run(main())
