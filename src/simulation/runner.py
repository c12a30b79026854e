"""Run a coroutine on the simulated runtime: one node, no faults."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ..runtime import Runtime
from .world import SimWorld

T = TypeVar("T")

VIRTUAL_MS_MAX: Final = 3_600_000  # an hour of virtual time is a test that hangs
CLEAN_UP_MS: Final = 60_000


def run(
    main: Callable[[Runtime], Coroutine[Any, Any, T]],
    *,
    seed: int = 0,
    virtual_ms: int = VIRTUAL_MS_MAX,
) -> T:
    """Run `main(runtime)` on one node without faults and return its result.

    Tasks that are left are cancelled, newest first, as the real runner does. Raises the errors of
    `main`, Deadlock, and NotReached after `virtual_ms`.
    """
    with SimWorld(seed) as world:
        node = world.node("node")
        node.start_process()
        task = node.attach(main, name="main")
        world.run_until(task, virtual_ms=virtual_ms, why="the end of main")
        left = world.loop.pending_tasks()
        for straggler in reversed(left):
            straggler.cancel()
        world.run_until(
            lambda: all(straggler.done() for straggler in left),
            virtual_ms=CLEAN_UP_MS,
            why="the end of the cancelled tasks",
        )
        result: T = task.result()
    return result
