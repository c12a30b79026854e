"""Long work on the event loop, in steps between which other tasks run."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def step_counter(step: int) -> Callable[..., Awaitable[None]]:
    """Return an async function to call for each item: other tasks run after every `step` of its
    argument, 1 for an item. The tasks that call the same function share the steps."""
    count = 0
    may_go_on = asyncio.Event()
    may_go_on.set()

    async def take_turn(weight: int = 1) -> None:
        nonlocal count
        while not may_go_on.is_set():  # another task has ended the step
            await may_go_on.wait()
        count += weight
        if count >= step:
            count = 0
            may_go_on.clear()
            try:
                await asyncio.sleep(0)
            finally:  # the others go on after a cancellation, too
                may_go_on.set()

    return take_turn


async def collect(items: Iterable[T | None], step: int) -> list[T]:
    """Return the items of an iterator that computes them, without None. Other tasks run after every
    `step` of them."""
    found, take_turn = list[T](), step_counter(step)
    for item in items:
        if item is not None:
            found.append(item)
        await take_turn()
    return found
