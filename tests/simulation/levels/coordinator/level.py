"""Level `coordinator`: the pure group coordinator of one partition, judged by a model.

Classic groups, groups of KIP-848 and groups without members get drawn requests of members that keep
to the protocol, and of some that do not. Time stops at every deadline. Topics and configs change,
and another coordinator loads the log. Each reply, each description and each removal must be that of
the model, at its time and not before. At the end no request comes any more, and nothing may be
left.
"""

from quorumlog.simulation.world import SimWorld

from ...checkers.violation import Violation
from .options import draw_options
from .requests import DrawnSteps
from .world import CoordinatorWorld


def play(world: SimWorld) -> dict[str, int]:
    """Run a seed; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    options = draw_options(entropy.stream("options"))

    def record(what: str, detail: str) -> None:
        world.events.record(None, what, detail)

    coordinator = CoordinatorWorld(entropy.stream("coordinator"), options, record)
    steps = DrawnSteps(coordinator, entropy.stream("steps"))
    for _ in range(options.steps):
        steps.step()
    steps.end()
    _check_empty(coordinator)
    return {name.replace(" ", "_"): count for name, count in sorted(coordinator.counts.items())}


def _check_empty(world: CoordinatorWorld) -> None:
    """Check that nothing is left of groups without members and offsets, in the log either."""
    shard = world.shard
    left = [line.group for line in shard.listings() if line is not None]
    if left or shard.offset_count or shard.members.total or shard.deadline_ms() != world.check_ms:
        raise Violation(
            "Left", f"groups {left}, {shard.offset_count} offsets, {shard.members.total} bytes"
        )
    facts = [key for key, value in world.stored.items() if value is not None]
    if facts:
        raise Violation("Left", f"the log has {facts}")
