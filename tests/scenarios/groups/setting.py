"""A group of some kind on a cluster of three nodes, for one test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.simulation.levels.groups.plan import Kind
from tests.simulation.levels.groups.scripted import Scene

from quorumlog.simulation import SimWorld

EVERY_KIND: Final = tuple(Kind)
CLASSIC: Final = (Kind.EAGER, Kind.COOPERATIVE)


@contextmanager
def started(kind: Kind, *, seed: int = 1, **settings: Any) -> Iterator[Scene]:
    """A cluster with the topic "t", started, and nobody in the group."""
    with SimWorld(seed) as world:
        scene = Scene(world, kind, **settings)
        scene.start()
        yield scene


@contextmanager
def at_work(kind: Kind, *names: str, seed: int = 1, **settings: Any) -> Iterator[Scene]:
    """The same with members, who have worked on ten records of each partition."""
    with started(kind, seed=seed, **settings) as scene:
        for name in names:
            scene.enter(name)
        scene.until_settled(*names)
        scene.produce(10)
        scene.until_served()
        yield scene
