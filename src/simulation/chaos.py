"""When a node dies: crash points drawn from the seed, and the restarts between them.

A death waits for a drawn time since the node's start, or none, and then for a drawn number of file
operations of the node (so it hits creation, appends, rolls, syncs, start and recovery alike). It
takes the process or the machine's power with it; the node stays down for a drawn time.
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

    after_ms: int  # virtual, since the start before it; 0: it falls into start and recovery
    point: CrashPoint
    down_ms: int  # before the restart


def draw_deaths(
    entropy: SimEntropy, *, span_ms: int, operations_max: int, power_chance: float = 0.7
) -> list[Death]:
    """Draw one to four deaths, the later ones as likely within the recovery from the one before as
    later on; all within about `span_ms`."""
    count = 1 + entropy.below(4)
    deaths: list[Death] = []
    for _ in range(count):
        at_once = entropy.chance(0.4)
        moment = ("before", "inside", "after")[entropy.below(3)]
        deaths.append(
            Death(
                after_ms=0 if at_once else 1 + entropy.below(span_ms // count),
                point=CrashPoint(
                    operations=entropy.spread(1, operations_max),
                    power=entropy.chance(power_chance),
                    moment=moment,
                ),
                down_ms=entropy.spread(1, 5_000),
            )
        )
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
        world.run_for(death.after_ms, unless=lambda: done() or not node.alive)
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
