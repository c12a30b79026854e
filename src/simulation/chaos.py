"""When a node dies: crash points drawn from the seed, and the restarts between them.

A *plan* is a list of deaths. Each waits for a drawn number of file operations of the node's
process (so it hits creation, appends, rolls, syncs, start and recovery alike) and takes the process
or the machine's power with it; the node stays down for a drawn time.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .entropy import SimEntropy
from .files import CrashPoint
from .world import SimNode, SimWorld

STEP_MS = 1_000  # the harness looks at the workload at least this often


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One crash to come."""

    point: CrashPoint
    down_ms: int  # before the restart


def draw_deaths(
    entropy: SimEntropy, *, operations_max: int, power_chance: float = 0.7
) -> list[Death]:
    """Draw one to four deaths; a later one often falls into the recovery from the one before."""
    deaths: list[Death] = []
    for number in range(1 + entropy.below(4)):
        soon = number > 0 and entropy.chance(0.5)
        operations = entropy.spread(1, 30 if soon else operations_max)
        moment = ("before", "inside", "after")[entropy.below(3)]
        point = CrashPoint(operations=operations, power=entropy.chance(power_chance), moment=moment)
        deaths.append(Death(point=point, down_ms=entropy.spread(1, 5_000)))
    return deaths


def run_with_deaths(
    world: SimWorld,
    node: SimNode,
    deaths: list[Death],
    *,
    done: Callable[[], bool],
    virtual_ms: int,
) -> int:
    """Run until the workload is done while the node dies and comes back as planned; return the
    deaths that happened.

    Raises NotReached when `virtual_ms` pass, and AssertionError when the node ends by itself.
    """
    end_ms = world.now_ms() + virtual_ms
    happened = 0
    for death in deaths:
        node.crash_at(death.point)
        _run(world, lambda: done() or not node.alive, end_ms)
        if node.alive:
            break
        _check_death(node)
        happened += 1
        world.run_for(death.down_ms)
        node.restart()
    node.crash_at(None)
    _run(world, lambda: done() or not node.alive, end_ms)
    if not node.alive:
        _check_death(node)
    return happened


def _run(world: SimWorld, wanted: Callable[[], bool], end_ms: int) -> None:
    world.run_until(wanted, virtual_ms=max(1, end_ms - world.now_ms()), why="the workload's end")


def _check_death(node: SimNode) -> None:
    """A node may die at a crash point only: an exit or a stop of its own is a failure."""
    assert not node.stops, f"{node.name} stopped itself: {node.stops}"
    if node.exit_error is not None:
        raise AssertionError(f"{node.name} failed: {node.exit_error!r}") from node.exit_error
    assert node.killed, f"{node.name} exited"
