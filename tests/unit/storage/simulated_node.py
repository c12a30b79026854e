"""Runs of a coroutine on a simulated node."""

from collections.abc import Callable, Coroutine
from typing import Any

from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld


def run_on_node(main: Callable[[Runtime, SimNode], Coroutine[Any, Any, Any]]) -> None:
    """Run `main` on a simulated node until it returns; raise its error."""
    with SimWorld(0) as world:
        node = world.node("n")
        task = node.spawn(lambda runtime: main(runtime, node))
        world.run_until(task, virtual_ms=600_000)
        task.result()
