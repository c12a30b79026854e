"""Faults of a single node: crashes at drawn points, and a sequence of other faults.

A crash waits for a drawn time after the node's start, or none, and then for a drawn number of file
operations of the node, so that it hits creation, appends, rolls, syncs, start and recovery. It
kills the process or cuts the machine's power; the node stays down for a drawn time.

Other faults are a clean stop, a pause and a full disk; faults follow one after the other.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.files import CrashPoint
from quorumlog.simulation.world import SimNode, SimWorld

RESTART_MS = 1_000  # before a supervisor restarts a node that ended by itself
STOP_MS_MAX = 60_000  # of a clean stop
DEATH_WAIT_MS = 10_000  # a node without file operations is not killed: the next fault follows


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCrash:
    """A planned crash."""

    after_ms: int  # virtual, since the previous start; 0: during start and recovery
    point: CrashPoint
    down_ms: int  # before the restart


def draw_crashes(
    entropy: SimEntropy, *, span_ms: int, operations_max: int, power_chance: float = 0.7
) -> list[PlannedCrash]:
    """Draw one to four crashes within about `span_ms`; later ones often hit the recovery from
    the previous one."""
    count = 1 + entropy.below(4)
    deaths: list[PlannedCrash] = []
    for _ in range(count):
        at_once = entropy.chance(0.4)
        moment = ("before", "inside", "after")[entropy.below(3)]
        deaths.append(
            PlannedCrash(
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


def run_with_crashes(
    world: SimWorld,
    node: SimNode,
    deaths: list[PlannedCrash],
    *,
    done: Callable[[], bool],
    virtual_ms: int,
    may_end: Callable[[], bool] = lambda: False,
) -> int:
    """Run until the workload is done, with the planned crashes and restarts; return the number of
    crashes.

    Raises NotReached after `virtual_ms`, and AssertionError if the node ends by itself, unless
    `may_end()` allows it: then it is restarted, as by a supervisor.
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


class NodeFaultKind(StrEnum):
    """The kinds of faults."""

    DEATH = "death"  # kill the process or the machine, at a file operation
    STOP = "stop"  # stop cleanly, as by SIGTERM
    PAUSE = "pause"  # pause the process
    FULL = "full"  # fill the disk for a while


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """A planned fault of a node."""

    kind: NodeFaultKind
    after_ms: int  # virtual, since the end of the previous one
    span_ms: int  # duration of the outage, pause or full disk
    point: CrashPoint | None = None  # of a crash
    spare_bytes: int = 0  # free bytes of a full disk


def draw_node_faults(
    entropy: SimEntropy, *, count_max: int, span_ms: int, power_chance: float
) -> list[NodeFault]:
    """Draw up to `count_max` faults within about `span_ms`, possibly none."""
    count = entropy.below(count_max + 1)
    troubles: list[NodeFault] = []
    for _ in range(count):
        kind = list(NodeFaultKind)[entropy.below(len(NodeFaultKind))]
        point = None
        if kind is NodeFaultKind.DEATH:
            point = CrashPoint(
                operations=entropy.spread(1, 100),
                power=entropy.chance(power_chance),
                moment=("before", "inside", "after")[entropy.below(3)],
            )
        troubles.append(
            NodeFault(
                kind=kind,
                after_ms=1 + entropy.below(span_ms // count),
                span_ms=entropy.spread(1, 20_000 if kind is NodeFaultKind.PAUSE else 8_000),
                point=point,
                spare_bytes=entropy.below(20_000),
            )
        )
    return troubles


def run_with_faults(
    world: SimWorld,
    node: SimNode,
    troubles: list[NodeFault],
    *,
    done: Callable[[], bool],
    virtual_ms: int,
) -> Counter[str]:
    """Run until `done` with the planned faults; skip the remaining ones when done. Return the
    number of each kind.

    Raises NotReached after `virtual_ms`, and AssertionError if the node ends by itself.
    """
    happened: Counter[str] = Counter()
    end_ms = world.now_ms() + virtual_ms
    for trouble in troubles:
        world.run_for(trouble.after_ms, unless=lambda: done() or not node.alive)
        _check_alive(node)
        if done():
            return happened
        happened[trouble.kind] += _inflict(world, node, trouble)
    left_ms = max(1, end_ms - world.now_ms())
    world.run_until(lambda: done() or not node.alive, virtual_ms=left_ms, why="the workload's end")
    _check_alive(node)
    return happened


def _inflict(world: SimWorld, node: SimNode, trouble: NodeFault) -> bool:
    """Inject a fault and undo it. Return True if it took effect."""
    match trouble.kind:
        case NodeFaultKind.DEATH:
            return _kill(world, node, trouble)
        case NodeFaultKind.STOP:
            assert node.root is not None, f"{node.name} was never started"
            node.root.cancel()
            world.run_until(lambda: not node.alive, virtual_ms=STOP_MS_MAX, why="an orderly stop")
            world.run_for(trouble.span_ms)
            node.restart()
        case NodeFaultKind.PAUSE:
            node.pause()
            world.run_for(trouble.span_ms)
            node.resume()
        case NodeFaultKind.FULL:
            _fill_disk(world, node, trouble)
    return True


def _kill(world: SimWorld, node: SimNode, trouble: NodeFault) -> bool:
    node.crash_at(trouble.point)
    world.run_for(DEATH_WAIT_MS, unless=lambda: not node.alive)
    if node.alive:
        node.crash_at(None)
        return False
    assert node.killed, f"{node.name} ended by itself: {node.stops} {node.exit_error!r}"
    world.run_for(trouble.span_ms)
    node.restart()
    return True


def _fill_disk(world: SimWorld, node: SimNode, trouble: NodeFault) -> None:
    """Fill the disk for a while; a node that cannot store its vote may end by itself."""
    disk = node.device.disk
    disk.capacity_bytes = disk.used_bytes() + trouble.spare_bytes
    world.run_for(trouble.span_ms, unless=lambda: not node.alive)
    disk.capacity_bytes = None
    if not node.alive:
        world.run_for(RESTART_MS)
        node.restart()


def _check_alive(node: SimNode) -> None:
    if not node.alive:
        raise AssertionError(
            f"{node.name} ended by itself: {node.stops} {node.exit_error!r}"
        ) from node.exit_error
