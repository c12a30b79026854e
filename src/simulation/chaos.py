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

RESTART_MS = 1_000  # until a supervisor starts a node again that ended by itself


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
    may_end: Callable[[], bool] = lambda: False,
) -> int:
    """Run until the workload is done while the node dies and comes back as planned; return how
    often it died.

    Raises NotReached when `virtual_ms` pass, and AssertionError when the node ends by itself,
    unless `may_end()` excuses it: then it is started again, as a supervisor would.
    """
    end_ms = world.now_ms() + virtual_ms
    planned, happened = list(deaths), 0

    def is_over() -> bool:
        return done() or not node.alive

    while True:
        death = planned.pop(0) if planned else None
        if death is not None:
            world.run_for(death.after_ms, unless=is_over)
        node.crash_at(None if death is None else death.point)
        left_ms = max(1, end_ms - world.now_ms())
        world.run_until(is_over, virtual_ms=left_ms, why="the workload's end")
        if node.alive:
            node.crash_at(None)
            return happened
        if not node.killed and not may_end():
            raise AssertionError(
                f"{node.name} ended by itself: {node.stops} {node.exit_error!r}"
            ) from node.exit_error
        happened += 1
        world.run_for(death.down_ms if death is not None else RESTART_MS)
        node.restart()
