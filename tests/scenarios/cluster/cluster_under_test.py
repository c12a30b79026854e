"""A simulated cluster for one test, with helpers for tests of invalid requests."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest
from tests.kit.node_settings import with_settings
from tests.simulation.cluster.nodes import ClusterNode
from tests.simulation.cluster.options import TopicPlan
from tests.simulation.cluster.scripted import ScriptedCluster, options_of

from quorumlog.clients.admin.admin import AsyncAdmin
from quorumlog.errors import QuorumlogError
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld
from quorumlog.testing.checkers import Place

E = TypeVar("E", bound=QuorumlogError)
T = TypeVar("T")

PLACE: Final[Place] = ("t", 0)


def plan(
    *,
    partitions: int = 1,
    replication: int = 3,
    min_isr: int = 2,
    flush_policy: str = "replicated",
) -> TopicPlan:
    """Return the plan of a test's topic."""
    return TopicPlan(
        name="t",
        partitions=partitions,
        replication=replication,
        min_isr=min_isr,
        flush_policy=flush_policy,
    )


@contextmanager
def started(
    topic: TopicPlan | None = None,
    *,
    brokers: int = 3,
    is_combined: bool = False,
    seed: int = 1,
    **settings: Any,
) -> Iterator[ScriptedCluster]:
    """Start three controllers and some brokers, or three nodes with both roles, with one topic.
    `settings` apply to every node."""
    with SimWorld(seed) as world:
        stage = ScriptedCluster(
            world, options_of(topic or plan(), brokers=brokers, is_combined=is_combined)
        )
        for node in stage.cluster.nodes:
            node.config = with_settings(node.config, **settings)
        stage.start()
        yield stage


def asked(stage: ScriptedCluster, call: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """Run a call of the admin client; return its result."""

    async def ask(runtime: Runtime) -> T:
        return await call(stage.client().admin)

    return stage.do(ask)


def refused(
    stage: ScriptedCluster, call: Callable[[AsyncAdmin], Awaitable[object]], kind: type[E]
) -> str:
    """Run a call of the admin client that is rejected; return the error message."""
    with pytest.raises(kind) as caught:
        asked(stage, call)
    return caught.value.message


def in_sync(stage: ScriptedCluster, node: ClusterNode, place: Place = PLACE) -> bool:
    """Return True if a node is in a partition's ISR."""
    return node.node_id in stage.partition(place).isr


def is_fenced(stage: ScriptedCluster, node: ClusterNode) -> bool:
    """Return True if the controller has fenced a broker."""
    broker = stage.cluster.newest_image.broker(node.node_id)
    return broker is not None and broker.fenced
