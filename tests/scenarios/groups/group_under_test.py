"""A group of a given kind on a cluster of three nodes, for one test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.simulation.levels.groups.plan import MemberKind
from tests.simulation.levels.groups.scripted import ScriptedGroup

from quorumlog.simulation import SimWorld

EVERY_KIND: Final = tuple(MemberKind)
CLASSIC: Final = (MemberKind.EAGER, MemberKind.COOPERATIVE)


@contextmanager
def started(kind: MemberKind, *, seed: int = 1, **settings: Any) -> Iterator[ScriptedGroup]:
    """Start a cluster with the topic "t" and an empty group."""
    with SimWorld(seed) as world:
        scene = ScriptedGroup(world, kind, **settings)
        scene.start()
        yield scene


@contextmanager
def at_work(
    kind: MemberKind, *names: str, seed: int = 1, **settings: Any
) -> Iterator[ScriptedGroup]:
    """Start a cluster and members, which have processed ten records of each partition."""
    with started(kind, seed=seed, **settings) as scene:
        for name in names:
            scene.enter(name)
        scene.until_settled(*names)
        scene.produce(10)
        scene.until_served()
        yield scene
